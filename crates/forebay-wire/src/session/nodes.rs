//! Which I/O node to use: what was seen of each, and where the arbiter says that the clients of this
//! job belong. Read by every call of every thread, without a lock: a signal handler or a forked child
//! may be here. A node once known keeps its index until the process ends.

use crate::hello::HostBoot;
use forebay_types::{Epoch, Nanos, Seat};
use std::fmt::Debug;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// A node that broke is not tried again for this long, while another one lives.
const DOWN_FOR: Nanos = Nanos::from_secs(2);

/// More I/O nodes than this are not remembered, and a mapping has no more than this.
const CHUNK: usize = 64;
const CHUNKS: usize = 64;
const MAPPED: usize = 1024;

/// Which of a job's processes this one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Its number.
    pub number: usize,
    /// How many there are, where a launcher says so: then the nodes get blocks of neighbours, which live
    /// on one host most likely, and whichever of them do the I/O (one in two, one per host) are spread.
    pub of: Option<usize>,
    /// How many of its ancestors' forks came before it: workers do not crowd where their parent is.
    pub forks: usize,
}

impl From<usize> for Turn {
    fn from(number: usize) -> Turn {
        Turn { number, of: None, forks: 0 }
    }
}

impl From<Seat> for Turn {
    fn from(seat: Seat) -> Turn {
        match seat {
            Seat::Turn(number) => number.into(),
            Seat::Row { at, of } => Turn { number: at as usize, of: Some(of as usize), forks: 0 },
        }
    }
}

impl Turn {
    /// The one of `nodes` that is this process's.
    fn among(self, nodes: usize) -> usize {
        let nodes = nodes.max(1);
        let first = match self.of {
            Some(of) if self.number < of => (self.number as u128 * nodes as u128 / of as u128) as usize,
            _ => self.number % nodes,
        };
        (first + self.forks % nodes) % nodes
    }
}

#[derive(Debug)]
struct Entry<A> {
    address: A,
    /// Not 0: it broke, and has not answered since.
    down_until: AtomicU64,
    draining: AtomicBool,
    /// The kernel it runs on, as it last greeted; all zero while that is not known.
    host: [AtomicU64; 2],
}

impl<A> Entry<A> {
    fn new(address: A) -> Entry<A> {
        Entry {
            address,
            down_until: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            host: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }
}

/// Where the clients of this job belong: replaced as a whole, read until it was read undisturbed.
#[derive(Debug)]
struct Mapping {
    version: AtomicU64,
    epoch: AtomicU64,
    count: AtomicUsize,
    nodes: Box<[AtomicU32]>,
}

type Chunk<A> = Box<[OnceLock<Entry<A>>]>;

/// The I/O nodes, as this process sees them, by their index.
#[derive(Debug)]
pub struct Nodes<A> {
    /// On the heap, as all that is large: a program's threads may have small stacks.
    entries: Box<[OnceLock<Chunk<A>>]>,
    count: AtomicUsize,
    changing: AtomicBool,
    mapping: Mapping,
    /// Which of the job's nodes is this process's: the index of it.
    turn: Turn,
    current: AtomicUsize,
    /// The last call found no node at all.
    gone: AtomicBool,
}

impl<A: Clone> Clone for Nodes<A> {
    fn clone(&self) -> Nodes<A> {
        let to = Nodes::empty(self.turn);
        for i in 0..self.len() {
            let from = self.entry(i);
            let entry = Entry::new(from.address.clone());
            entry.down_until.store(from.down_until.load(Ordering::Relaxed), Ordering::Relaxed);
            entry.draining.store(from.draining.load(Ordering::Relaxed), Ordering::Relaxed);
            for (to, from) in entry.host.iter().zip(&from.host) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            to.push(entry);
        }
        to.map(self.epoch(), &self.mapped());
        to.current.store(self.current.load(Ordering::Relaxed), Ordering::Relaxed);
        to.gone.store(self.gone(), Ordering::Relaxed);
        to
    }
}

impl<A> Nodes<A> {
    fn empty(turn: Turn) -> Nodes<A> {
        Nodes {
            entries: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
            count: AtomicUsize::new(0),
            changing: AtomicBool::new(false),
            mapping: Mapping {
                version: AtomicU64::new(0),
                epoch: AtomicU64::new(0),
                count: AtomicUsize::new(0),
                nodes: (0..MAPPED).map(|_| AtomicU32::new(0)).collect(),
            },
            turn,
            current: AtomicUsize::new(0),
            gone: AtomicBool::new(false),
        }
    }

    fn entry(&self, node: usize) -> &Entry<A> {
        self.entries[node / CHUNK]
            .get()
            .and_then(|chunk| chunk[node % CHUNK].get())
            .expect("an index stands for an entry that was added")
    }

    /// How many nodes are known.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Whether none is known; never, once made.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One writer at a time.
    fn push(&self, entry: Entry<A>) -> usize {
        let at = self.len();
        let chunk = self.entries[at / CHUNK].get_or_init(|| (0..CHUNK).map(|_| OnceLock::new()).collect());
        chunk[at % CHUNK].get_or_init(|| entry);
        self.count.store(at + 1, Ordering::Release);
        at
    }

    /// One writer at a time.
    fn map(&self, epoch: Epoch, nodes: &[usize]) {
        let m = &self.mapping;
        m.version.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (slot, node) in m.nodes.iter().zip(nodes) {
            slot.store(*node as u32, Ordering::Relaxed);
        }
        m.count.store(nodes.len().min(MAPPED), Ordering::Relaxed);
        m.epoch.store(epoch.0, Ordering::Relaxed);
        m.version.fetch_add(1, Ordering::Release);
    }

    /// In a forked process, `forks` forks later: its node is another one than its parent's.
    pub fn fork(&mut self, forks: usize) {
        self.turn.forks = self.turn.forks.wrapping_add(forks);
        let own = self.mapped();
        if let Some(&node) = own.get(self.turn.among(own.len())) {
            self.current.store(node, Ordering::Relaxed);
        }
    }

    /// The job's own nodes, in the mapping's order.
    pub fn mapped(&self) -> Vec<usize> {
        self.consistent(|nodes| nodes.iter().map(|n| n.load(Ordering::Relaxed) as usize).collect())
    }

    /// What `look` says of one mapping's nodes.
    fn consistent<T>(&self, look: impl Fn(&[AtomicU32]) -> T) -> T {
        let m = &self.mapping;
        // A signal handler that interrupted the writer sees no end of it: what it reads then is a
        // mixture of two mappings, all of them nodes that are known.
        let mut tries = 0;
        loop {
            let before = m.version.load(Ordering::Acquire);
            let seen = look(&m.nodes[..m.count.load(Ordering::Relaxed)]);
            fence(Ordering::Acquire);
            tries += 1;
            if tries == 10_000 || before.is_multiple_of(2) && m.version.load(Ordering::Relaxed) == before {
                return seen;
            }
            std::hint::spin_loop();
        }
    }

    /// Whether the node is one of the job's own that may be expected to answer, and stays.
    pub fn serves_job(&self, node: usize, now: Nanos) -> bool {
        self.usable(node, now)
            && self.consistent(|nodes| nodes.iter().any(|n| n.load(Ordering::Relaxed) as usize == node))
    }

    /// The version of the mapping this process follows.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.mapping.epoch.load(Ordering::Relaxed))
    }

    /// The index of the node whose address is the one wanted.
    pub fn find(&self, wanted: impl Fn(&A) -> bool) -> Option<usize> {
        (0..self.len()).find(|&i| wanted(&self.entry(i).address))
    }

    /// Where a node listens.
    pub fn address(&self, node: usize) -> &A {
        &self.entry(node).address
    }

    /// The node to use. One that works is kept; when it does not, the job's others are tried in turn,
    /// then the rest.
    pub fn pick(&self, now: Nanos) -> usize {
        let current = self.current.load(Ordering::Relaxed);
        if self.usable(current, now) {
            return current;
        }
        let own = self.mapped();
        let n = self.len();
        let at = own.iter().position(|&i| i == current).unwrap_or(self.turn.among(own.len()));
        let next = (1..=own.len())
            .map(|i| own[(at + i) % own.len()])
            .chain((1..=n).map(|i| (current + i) % n).filter(|i| !own.contains(i)));
        let chosen = next
            .clone()
            .find(|&i| self.usable(i, now))
            .or_else(|| next.clone().find(|&i| !self.is_down(i, now)))
            .unwrap_or((current + 1) % n);
        // It may have been started again since it said that it drains; if not, it says so again.
        self.entry(chosen).draining.store(false, Ordering::Relaxed);
        self.current.store(chosen, Ordering::Relaxed);
        chosen
    }

    /// The job's home: the first of its nodes that may be expected to answer.
    pub fn home(&self, now: Nanos) -> usize {
        let own = self.mapped();
        own.iter().copied().find(|&i| !self.is_down(i, now)).unwrap_or_else(|| self.pick(now))
    }

    /// Whether the node broke a short while ago, and has not answered since.
    pub fn is_down(&self, node: usize, now: Nanos) -> bool {
        now.0 < self.entry(node).down_until.load(Ordering::Relaxed)
    }

    /// Whether the node may be expected to answer, and does not ask its clients to leave.
    pub fn usable(&self, node: usize, now: Nanos) -> bool {
        !self.is_down(node, now) && !self.entry(node).draining.load(Ordering::Relaxed)
    }

    /// The node broke or did not answer.
    pub fn mark_down(&self, node: usize, now: Nanos) {
        self.entry(node).down_until.store((now + DOWN_FOR).0, Ordering::Relaxed);
        self.entry(node).draining.store(false, Ordering::Relaxed);
    }

    /// The node answered, and said whether it asks its clients to leave.
    pub fn mark_up(&self, node: usize, draining: bool) {
        let entry = self.entry(node);
        // Written only when they change: every call of every thread comes here.
        if entry.down_until.load(Ordering::Relaxed) != 0 {
            entry.down_until.store(0, Ordering::Relaxed);
        }
        if entry.draining.load(Ordering::Relaxed) != draining {
            entry.draining.store(draining, Ordering::Relaxed);
        }
        if self.gone.load(Ordering::Relaxed) {
            self.gone.store(false, Ordering::Relaxed);
        }
    }

    /// The node greeted from this host.
    pub fn mark_host(&self, node: usize, host: HostBoot) {
        for (slot, half) in self.entry(node).host.iter().zip(halves(host)) {
            slot.store(half, Ordering::Relaxed);
        }
    }

    /// The host from which it last greeted.
    pub fn host(&self, node: usize) -> Option<HostBoot> {
        let [low, high] = self.entry(node).host.each_ref().map(|half| half.load(Ordering::Relaxed));
        let host = u128::from(high) << 64 | u128::from(low);
        (host != 0).then(|| HostBoot(host.to_le_bytes()))
    }

    fn host_is(&self, node: usize, host: Option<HostBoot>) -> bool {
        let wanted = host.map_or([0; 2], halves);
        self.entry(node).host.iter().zip(wanted).all(|(slot, half)| slot.load(Ordering::Relaxed) == half)
    }

    /// Nodes on that host, as far as is known, and behind them those of which nothing is known; those
    /// that are down only if `all` of the first are wanted.
    pub fn on_host(&self, host: HostBoot, now: Nanos, all: bool) -> impl Iterator<Item = usize> + '_ {
        let up = move |i: usize| !self.is_down(i, now);
        let there = (0..self.len()).filter(move |&i| self.host_is(i, Some(host)) && (all || up(i)));
        there.chain((0..self.len()).filter(move |&i| self.host_is(i, None) && (all || up(i))))
    }

    /// Whether none may be expected to answer right now.
    pub fn all_down(&self, now: Nanos) -> bool {
        (0..self.len()).all(|i| self.is_down(i, now))
    }

    /// A call found no node in time. The next ones wait less, if no node has answered since it broke.
    pub fn note_failure(&self) {
        if (0..self.len()).all(|i| self.entry(i).down_until.load(Ordering::Relaxed) != 0) {
            self.gone.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the last call found no node, and none has answered since.
    pub fn gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }
}

fn halves(host: HostBoot) -> [u64; 2] {
    let n = u128::from_le_bytes(host.0);
    [n as u64, (n >> 64) as u64]
}

impl<A: Clone + Eq + Debug> Nodes<A> {
    /// The job's nodes as of `epoch`, at least one, and others that may serve it when all of those
    /// are gone.
    pub fn new(epoch: Epoch, own: &[A], spare: &[A], turn: impl Into<Turn>) -> Nodes<A> {
        let nodes = Nodes::empty(turn.into());
        nodes.remap(epoch, own);
        for address in spare {
            nodes.index(address);
        }
        nodes
    }

    /// The index of the node at `address`, a new one if need be.
    pub fn index(&self, address: &A) -> usize {
        self.find(|a| a == address).unwrap_or_else(|| self.change(|nodes| nodes.add(address)))
    }

    fn add(&self, address: &A) -> usize {
        // An arbiter that goes on naming new ones does not fill our memory.
        let full = self.len() == CHUNK * CHUNKS;
        self.find(|a| a == address)
            .unwrap_or_else(|| if full { 0 } else { self.push(Entry::new(address.clone())) })
    }

    fn change<T>(&self, change: impl FnOnce(&Nodes<A>) -> T) -> T {
        while self.changing.swap(true, Ordering::Acquire) {
            std::hint::spin_loop();
        }
        let done = change(self);
        self.changing.store(false, Ordering::Release);
        done
    }

    /// The clients of this job belong to these nodes now.
    pub fn remap(&self, epoch: Epoch, to: &[A]) {
        if to.is_empty() {
            return;
        }
        self.change(|nodes| {
            let own: Vec<usize> = to.iter().take(MAPPED).map(|a| nodes.add(a)).collect();
            nodes.map(epoch, &own);
            nodes.current.store(own[nodes.turn.among(own.len())], Ordering::Relaxed);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(names: &[&str]) -> Vec<String> {
        names.iter().map(|n| (*n).to_owned()).collect()
    }

    fn of(count: usize, turn: usize) -> Nodes<String> {
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
        assert_eq!(n.pick(t), 2, "and one choice is kept");
        n.mark_down(2, t);
        assert!(n.all_down(t));
        let tried: Vec<usize> = (0..3).map(|_| n.pick(t)).collect();
        assert_eq!(tried.iter().collect::<std::collections::BTreeSet<_>>().len(), 3, "all are tried in turn");
    }

    #[test]
    fn whoever_does_the_io_is_spread() {
        let node = |number, of, nodes| Turn { number, of: Some(of), forks: 0 }.among(nodes);
        let load = |ranks: &mut dyn Iterator<Item = usize>| {
            ranks.fold([0; 4], |mut load, rank| {
                load[node(rank, 64, 4)] += 1;
                load
            })
        };
        assert_eq!(load(&mut (0..64)), [16; 4]);
        assert_eq!(load(&mut (0..64).step_by(2)), [8; 4], "every second rank");
        assert_eq!(load(&mut (0..64).step_by(16)), [1; 4], "one aggregator per host");
        assert_eq!([node(0, 2, 4), node(1, 2, 4)], [0, 2], "fewer processes than nodes");
        assert!((0..15).all(|rank| node(rank, 64, 4) == 0), "neighbours share a node");
        assert_eq!(Turn::from(6).among(4), 2, "in turns, where nobody knows how many there are");
    }

    #[test]
    fn forked_workers_do_not_crowd_where_their_parent_is() {
        let parent = of(4, 1);
        let at = |forks: usize| {
            let mut child = parent.clone();
            child.fork(forks);
            child.pick(Nanos::from_secs(10))
        };
        assert_eq!((1..=8).map(at).collect::<Vec<_>>(), [2, 3, 0, 1, 2, 3, 0, 1]);
    }

    #[test]
    fn one_dead_node_is_not_the_end() {
        let n = of(2, 0);
        let t = Nanos::from_secs(10);
        n.mark_down(0, t);
        n.note_failure();
        assert!(!n.gone(), "the other one has not failed");
        n.mark_down(1, t + Nanos::from_secs(3));
        n.note_failure();
        assert!(n.gone(), "neither has answered since, though the first may be tried again");
        n.mark_up(0, false);
        assert!(!n.gone());
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
