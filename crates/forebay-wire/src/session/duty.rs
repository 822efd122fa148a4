//! `fsync` owed to a host other than the one that was asked first: which node there is asked next, and
//! when it is given up. What a node took lies in its host's kernel, so that any node process of the same
//! boot will do; if none is found, what it took cannot be vouched for, and that is said.

use super::nodes::Nodes;
use crate::hello::HostBoot;
use forebay_types::Nanos;

/// How long a node on a host that has our data is looked for: one that is started again is there by then.
const PATIENCE: Nanos = Nanos::from_secs(3);
const NAP: Nanos = Nanos::from_millis(50);

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Have that node sync the file, if it is on the host. If it is not, or does not answer: next.
    Through(usize),
    /// Wait until then, or a little less.
    Nap(Nanos),
    /// Nobody there can be asked.
    Unsynced,
}

/// A host that has to sync a file.
#[derive(Clone, Debug)]
pub struct Duty {
    /// The host, and which boot of it.
    pub host: HostBoot,
    started: Nanos,
    deadline: Nanos,
    round: Option<Vec<usize>>,
}

impl Duty {
    /// From `now` on; the whole call ends at `deadline`.
    pub fn new(host: HostBoot, now: Nanos, deadline: Nanos) -> Duty {
        Duty { host, started: now, deadline, round: None }
    }

    /// What to do at `now`.
    pub fn next<A>(&mut self, now: Nanos, nodes: &Nodes<A>) -> Step {
        if now >= self.deadline {
            return Step::Unsynced;
        }
        let round = self.round.get_or_insert_with(|| {
            let mut there: Vec<usize> = nodes.on_host(self.host, now, false).collect();
            there.reverse();
            there
        });
        if let Some(node) = round.pop() {
            return Step::Through(node);
        }
        if now.since(self.started) >= PATIENCE {
            return Step::Unsynced;
        }
        self.round = None;
        Step::Nap((now + NAP).min(self.deadline))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_types::Epoch;

    #[test]
    fn all_on_the_host_are_asked_until_it_is_given_up() {
        let (here, there) = (HostBoot([1; 16]), HostBoot([2; 16]));
        let nodes = Nodes::new(Epoch(0), &["a", "b", "c"], &[], 0);
        nodes.mark_host(0, here);
        nodes.mark_host(1, there);
        nodes.mark_host(2, there);
        let start = Nanos::from_secs(5);
        let mut duty = Duty::new(there, start, start + Nanos::from_secs(30));
        let mut now = start;
        let mut asked = Vec::new();
        let end = loop {
            match duty.next(now, &nodes) {
                Step::Through(node) => asked.push(node),
                Step::Nap(until) => now = until,
                Step::Unsynced => break now,
            }
        };
        assert!(asked.starts_with(&[1, 2, 1, 2]) && !asked.contains(&0), "{asked:?}");
        assert!(end >= start + PATIENCE && end < start + PATIENCE + NAP + NAP);
        let mut late = Duty::new(there, start, start + NAP);
        assert_eq!(late.next(start + NAP, &nodes), Step::Unsynced, "the call is over");
    }
}
