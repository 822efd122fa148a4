//! Which I/O node to use: a small state machine over what was seen of each.

use forebay_types::Nanos;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// A node that broke is not tried again for this long, while another one lives.
const DOWN_FOR: Nanos = Nanos::from_secs(2);

#[derive(Debug, Default)]
struct Health {
    /// Not 0: it broke, and has not answered since.
    down_until: AtomicU64,
    draining: AtomicBool,
    /// Nobody listens at its address: its process has ended.
    ended: AtomicBool,
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
        copy.gone.store(self.gone(), Ordering::Relaxed);
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

    /// Nobody listens where the node was: it cannot carry anything out any more.
    pub(crate) fn mark_ended(&self, node: usize, now: Nanos) {
        self.mark_down(node, now);
        self.health[node].ended.store(true, Ordering::Relaxed);
    }

    /// Whether nobody listened when it was last tried.
    pub(crate) fn has_ended(&self, node: usize) -> bool {
        self.health[node].ended.load(Ordering::Relaxed)
    }

    /// The node answered, and said whether it asks its clients to leave.
    pub(crate) fn mark_up(&self, node: usize, draining: bool) {
        let health = &self.health[node];
        // Written only when they change: every call of every thread comes here.
        if health.down_until.load(Ordering::Relaxed) != 0 {
            health.down_until.store(0, Ordering::Relaxed);
        }
        if health.ended.load(Ordering::Relaxed) {
            health.ended.store(false, Ordering::Relaxed);
        }
        if health.draining.load(Ordering::Relaxed) != draining {
            health.draining.store(draining, Ordering::Relaxed);
        }
        if self.gone.load(Ordering::Relaxed) {
            self.gone.store(false, Ordering::Relaxed);
        }
    }

    /// Whether none may be expected to answer right now.
    pub(crate) fn all_down(&self, now: Nanos) -> bool {
        (0..self.health.len()).all(|i| self.is_down(i, now))
    }

    /// A call found no node in time. The next ones wait less, if no node has answered since it broke.
    pub(crate) fn note_failure(&self) {
        if self.health.iter().all(|h| h.down_until.load(Ordering::Relaxed) != 0) {
            self.gone.store(true, Ordering::Relaxed);
        }
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
        n.mark_up(2, true);
        assert_eq!(n.pick(t), 0);
        n.mark_down(0, t);
        assert_eq!(n.pick(t), 2, "a draining node is better than a dead one");
        n.mark_down(2, t);
        assert!(n.all_down(t));
        let tried: Vec<usize> = (0..3).map(|_| n.pick(t)).collect();
        assert_eq!(tried.iter().collect::<std::collections::BTreeSet<_>>().len(), 3, "all are tried in turn");
    }

    #[test]
    fn one_dead_node_is_not_the_end() {
        let n = Nodes::new(2, 0);
        let t = Nanos::from_secs(10);
        n.mark_ended(0, t);
        n.note_failure();
        assert!(!n.gone(), "the other one has not failed");
        n.mark_down(1, t + Nanos::from_secs(3));
        n.note_failure();
        assert!(n.gone(), "neither has answered since, though the first may be tried again");
        assert!(n.has_ended(0) && !n.has_ended(1));
        n.mark_up(0, false);
        assert!(!n.gone() && !n.has_ended(0));
    }

    #[test]
    fn a_node_that_was_draining_comes_back() {
        let n = Nodes::new(2, 0);
        let t = Nanos::from_secs(10);
        n.mark_up(0, true);
        assert_eq!(n.pick(t), 1);
        n.mark_down(1, t);
        assert_eq!(n.pick(t), 0);
        n.mark_up(0, false);
        assert_eq!(n.pick(t + Nanos::from_secs(5)), 0);
    }
}
