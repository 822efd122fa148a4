//! Which I/O node to use: a small state machine over what was seen of each, and over where the
//! arbiter says that the clients of this job belong.

use crate::published::Published;
use forebay_types::{Address, Epoch, Nanos};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// A node that broke is not tried again for this long, while another one lives.
const DOWN_FOR: Nanos = Nanos::from_secs(2);

/// More I/O nodes than this are not remembered.
const MAX_NODES: usize = 4096;

#[derive(Debug)]
struct Entry {
    address: Address,
    /// Not 0: it broke, and has not answered since.
    down_until: AtomicU64,
    draining: AtomicBool,
    /// Nobody listens at its address: its process has ended.
    ended: AtomicBool,
}

impl Entry {
    fn new(address: Address) -> Entry {
        Entry {
            address,
            down_until: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }
}

/// Where the clients of this job belong.
#[derive(Clone, Debug)]
struct Mapping {
    epoch: Epoch,
    nodes: Vec<usize>,
}

/// The I/O nodes, as this process sees them. They are known by their index, which never changes;
/// new ones are added behind the others.
#[derive(Debug)]
pub(crate) struct Nodes {
    entries: Published<Vec<&'static Entry>>,
    adding: AtomicBool,
    mapping: Published<Mapping>,
    /// Which of the job's nodes is this process's: the how manieth it is.
    turn: usize,
    current: AtomicUsize,
    /// The last call found no node at all.
    gone: AtomicBool,
}

impl Clone for Nodes {
    fn clone(&self) -> Nodes {
        let entries = self.entries.get().iter().map(|from| {
            let to = Entry::new(from.address.clone());
            to.down_until.store(from.down_until.load(Ordering::Relaxed), Ordering::Relaxed);
            to.draining.store(from.draining.load(Ordering::Relaxed), Ordering::Relaxed);
            leak(to)
        });
        Nodes {
            entries: Published::new(entries.collect()),
            adding: AtomicBool::new(false),
            mapping: Published::new(self.mapping.get().clone()),
            turn: self.turn,
            current: AtomicUsize::new(self.current.load(Ordering::Relaxed)),
            gone: AtomicBool::new(self.gone()),
        }
    }
}

/// A node once known is known until the process ends.
fn leak(entry: Entry) -> &'static Entry {
    Box::leak(Box::new(entry))
}

impl Nodes {
    /// The job's nodes as of `epoch`, at least one, and others that may serve it when all of those
    /// are gone.
    pub(crate) fn new(epoch: Epoch, own: &[Address], spare: &[Address], turn: usize) -> Nodes {
        let nodes = Nodes {
            entries: Published::new(Vec::new()),
            adding: AtomicBool::new(false),
            mapping: Published::new(Mapping { epoch, nodes: Vec::new() }),
            turn,
            current: AtomicUsize::new(0),
            gone: AtomicBool::new(false),
        };
        nodes.remap(epoch, own);
        for address in spare {
            nodes.index(address);
        }
        nodes
    }

    fn entry(&self, node: usize) -> &'static Entry {
        self.entries.get()[node]
    }

    fn len(&self) -> usize {
        self.entries.get().len()
    }

    /// Where a node listens.
    pub(crate) fn address(&self, node: usize) -> &'static Address {
        &self.entry(node).address
    }

    /// The index of the node at `address`, a new one if need be.
    pub(crate) fn index(&self, address: &Address) -> usize {
        let find = || self.entries.get().iter().position(|e| e.address == *address);
        loop {
            if let Some(found) = find() {
                return found;
            }
            if !self.adding.swap(true, Ordering::Acquire) {
                let index = find().unwrap_or_else(|| {
                    let mut entries = self.entries.get().clone();
                    // An arbiter that goes on naming new ones does not fill our memory.
                    if entries.len() == MAX_NODES {
                        return self.mapping.get().nodes.first().copied().unwrap_or(0);
                    }
                    entries.push(leak(Entry::new(address.clone())));
                    self.entries.set(entries);
                    self.len() - 1
                });
                self.adding.store(false, Ordering::Release);
                return index;
            }
            std::hint::spin_loop();
        }
    }

    /// The version of the mapping this process follows.
    pub(crate) fn epoch(&self) -> Epoch {
        self.mapping.get().epoch
    }

    /// The clients of this job belong to these nodes now.
    pub(crate) fn remap(&self, epoch: Epoch, to: &[Address]) {
        if to.is_empty() {
            return;
        }
        let nodes: Vec<usize> = to.iter().map(|a| self.index(a)).collect();
        let home = nodes[self.turn % nodes.len()];
        self.mapping.set(Mapping { epoch, nodes });
        self.current.store(home, Ordering::Relaxed);
    }

    /// The node to use. One that works is kept; when it does not, the job's others are tried in turn,
    /// then the rest.
    pub(crate) fn pick(&self, now: Nanos) -> usize {
        let current = self.current.load(Ordering::Relaxed);
        if self.usable(current, now) {
            return current;
        }
        let own = &self.mapping.get().nodes;
        let n = self.len();
        let at = own.iter().position(|&i| i == current).unwrap_or(self.turn % own.len());
        let next = (1..=own.len())
            .map(|i| own[(at + i) % own.len()])
            .chain((1..=n).map(|i| (current + i) % n).filter(|i| !own.contains(i)));
        let chosen = next
            .clone()
            .find(|&i| self.usable(i, now))
            .or_else(|| next.clone().find(|&i| !self.is_down(i, now)))
            .unwrap_or((current + 1) % n);
        self.current.store(chosen, Ordering::Relaxed);
        chosen
    }

    pub(crate) fn is_down(&self, node: usize, now: Nanos) -> bool {
        now.0 < self.entry(node).down_until.load(Ordering::Relaxed)
    }

    fn usable(&self, node: usize, now: Nanos) -> bool {
        !self.is_down(node, now) && !self.entry(node).draining.load(Ordering::Relaxed)
    }

    /// The node broke or did not answer.
    pub(crate) fn mark_down(&self, node: usize, now: Nanos) {
        self.entry(node).down_until.store((now + DOWN_FOR).0, Ordering::Relaxed);
        self.entry(node).draining.store(false, Ordering::Relaxed);
    }

    /// Nobody listens where the node was: it cannot carry anything out any more.
    pub(crate) fn mark_ended(&self, node: usize, now: Nanos) {
        self.mark_down(node, now);
        self.entry(node).ended.store(true, Ordering::Relaxed);
    }

    /// Whether nobody listened when it was last tried.
    pub(crate) fn has_ended(&self, node: usize) -> bool {
        self.entry(node).ended.load(Ordering::Relaxed)
    }

    /// The node answered, and said whether it asks its clients to leave.
    pub(crate) fn mark_up(&self, node: usize, draining: bool) {
        let entry = self.entry(node);
        // Written only when they change: every call of every thread comes here.
        if entry.down_until.load(Ordering::Relaxed) != 0 {
            entry.down_until.store(0, Ordering::Relaxed);
        }
        if entry.ended.load(Ordering::Relaxed) {
            entry.ended.store(false, Ordering::Relaxed);
        }
        if entry.draining.load(Ordering::Relaxed) != draining {
            entry.draining.store(draining, Ordering::Relaxed);
        }
        if self.gone.load(Ordering::Relaxed) {
            self.gone.store(false, Ordering::Relaxed);
        }
    }

    /// Whether none may be expected to answer right now.
    pub(crate) fn all_down(&self, now: Nanos) -> bool {
        (0..self.len()).all(|i| self.is_down(i, now))
    }

    /// A call found no node in time. The next ones wait less, if no node has answered since it broke.
    pub(crate) fn note_failure(&self) {
        if self.entries.get().iter().all(|e| e.down_until.load(Ordering::Relaxed) != 0) {
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

    fn at(names: &[&str]) -> Vec<Address> {
        names.iter().map(|n| Address::Unix((*n).into())).collect()
    }

    fn of(count: usize, turn: usize) -> Nodes {
        let all = ["a", "b", "c", "d"];
        Nodes::new(Epoch(0), &at(&all[..count]), &[], turn)
    }

    #[test]
    fn keeps_what_works_and_leaves_what_does_not() {
        let n = of(3, 1);
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
        let n = of(2, 0);
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
        let n = of(2, 0);
        let t = Nanos::from_secs(10);
        n.mark_up(0, true);
        assert_eq!(n.pick(t), 1);
        n.mark_down(1, t);
        assert_eq!(n.pick(t), 0);
        n.mark_up(0, false);
        assert_eq!(n.pick(t + Nanos::from_secs(5)), 0);
    }

    #[test]
    fn goes_where_it_is_mapped() {
        let n = Nodes::new(Epoch(3), &at(&["a", "b"]), &at(&["s"]), 1);
        let t = Nanos::from_secs(10);
        assert_eq!((n.epoch(), n.pick(t)), (Epoch(3), 1));
        n.mark_down(1, t);
        assert_eq!(n.pick(t), 0, "the job's own before a spare one");
        n.mark_down(0, t);
        assert_eq!(n.address(n.pick(t)), &at(&["s"])[0]);
        n.remap(Epoch(4), &at(&["x", "b", "y"]));
        assert_eq!(n.epoch(), Epoch(4));
        assert_eq!(n.address(n.pick(t + Nanos::from_secs(60))), &at(&["b"])[0], "the second of three");
        n.remap(Epoch(5), &at(&["y"]));
        assert_eq!(n.address(n.pick(t)), &at(&["y"])[0]);
        assert_eq!(n.index(&at(&["a"])[0]), 0, "what was known keeps its index");
        assert_eq!(n.clone().epoch(), Epoch(5));
    }
}
