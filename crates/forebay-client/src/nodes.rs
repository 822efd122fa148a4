//! Which I/O node to use: a small state machine over what was seen of each.

use forebay_types::Nanos;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// A node that broke is not tried again for this long, while another one lives.
const DOWN_FOR: Nanos = Nanos::from_secs(2);

#[derive(Debug, Default)]
struct Health {
    down_until: AtomicU64,
    draining: AtomicBool,
}

/// The I/O nodes of the job, as this process sees them.
#[derive(Debug)]
pub(crate) struct Nodes {
    health: Vec<Health>,
    current: AtomicUsize,
    /// The last call found no node at all.
    gone: AtomicBool,
}

impl Clone for Nodes {
    fn clone(&self) -> Nodes {
        let copy = Nodes::new(self.health.len(), self.current.load(Ordering::Relaxed));
        for (to, from) in copy.health.iter().zip(&self.health) {
            to.down_until.store(from.down_until.load(Ordering::Relaxed), Ordering::Relaxed);
            to.draining.store(from.draining.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        copy
    }
}

impl Nodes {
    pub(crate) fn new(count: usize, start: usize) -> Nodes {
        Nodes {
            health: (0..count).map(|_| Health::default()).collect(),
            current: AtomicUsize::new(start),
            gone: AtomicBool::new(false),
        }
    }

    /// The node to use. One that works is kept; when none seems to, they are tried in turn.
    pub(crate) fn pick(&self, now: Nanos) -> usize {
        let current = self.current.load(Ordering::Relaxed);
        if self.usable(current, now) {
            return current;
        }
        let n = self.health.len();
        let next = (1..=n).map(|i| (current + i) % n);
        let chosen = next
            .clone()
            .find(|&i| self.usable(i, now))
            .or_else(|| next.clone().find(|&i| !self.is_down(i, now)))
            .unwrap_or((current + 1) % n);
        self.current.store(chosen, Ordering::Relaxed);
        chosen
    }

    pub(crate) fn is_down(&self, node: usize, now: Nanos) -> bool {
        now.0 < self.health[node].down_until.load(Ordering::Relaxed)
    }

    fn usable(&self, node: usize, now: Nanos) -> bool {
        !self.is_down(node, now) && !self.health[node].draining.load(Ordering::Relaxed)
    }

    /// The node broke or did not answer.
    pub(crate) fn mark_down(&self, node: usize, now: Nanos) {
        self.health[node].down_until.store((now + DOWN_FOR).0, Ordering::Relaxed);
        self.health[node].draining.store(false, Ordering::Relaxed);
    }

    /// The node asks its clients to leave.
    pub(crate) fn mark_draining(&self, node: usize) {
        self.health[node].draining.store(true, Ordering::Relaxed);
    }

    /// The node answered.
    pub(crate) fn mark_up(&self, node: usize) {
        if self.health[node].down_until.load(Ordering::Relaxed) != 0 {
            self.health[node].down_until.store(0, Ordering::Relaxed);
        }
        if self.gone.load(Ordering::Relaxed) {
            self.gone.store(false, Ordering::Relaxed);
        }
    }

    /// Whether a node other than `node` may still answer.
    pub(crate) fn others_left(&self, node: usize, now: Nanos) -> bool {
        (0..self.health.len()).any(|i| i != node && !self.is_down(i, now))
    }

    /// Whether none may.
    pub(crate) fn all_down(&self, now: Nanos) -> bool {
        (0..self.health.len()).all(|i| self.is_down(i, now))
    }

    pub(crate) fn set_gone(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }

    pub(crate) fn gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_works_and_leaves_what_does_not() {
        let n = Nodes::new(3, 1);
        let t = Nanos::from_secs(10);
        assert_eq!(n.pick(t), 1);
        n.mark_down(1, t);
        assert_eq!(n.pick(t), 2);
        assert_eq!(n.pick(t + Nanos::from_secs(60)), 2, "it stays where it works");
        n.mark_draining(2);
        assert_eq!(n.pick(t), 0);
        n.mark_down(0, t);
        assert_eq!(n.pick(t), 2, "a draining node is better than a dead one");
        n.mark_down(2, t);
        assert!(n.all_down(t));
        let tried: Vec<usize> = (0..3).map(|_| n.pick(t)).collect();
        assert_eq!(tried.iter().collect::<std::collections::BTreeSet<_>>().len(), 3, "all are tried in turn");
    }
}
