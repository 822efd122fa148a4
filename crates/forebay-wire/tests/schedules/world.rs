//! Time, events, faults, and the arbiter.

use crate::client::Client;
use crate::node::Process;
use crate::plan::{Fault, Plan, Random};
use forebay_types::Nanos;
use forebay_wire::hello::Incarnation;
use forebay_wire::message::Fate;
use forebay_wire::session::held;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

pub(crate) const LEASE: Nanos = Nanos::from_secs(2);
pub(crate) const DEADLINE: Nanos = Nanos::from_secs(30);
const END: Nanos = Nanos::from_secs(200);
const MOST_CLIENTS: usize = 6;
pub(crate) const REGISTERS: u64 = 2;
pub(crate) const NAMES: u64 = 2;

/// What an operation does to storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Write(u64),
    Append,
    Mkdir(u64),
    Rmdir(u64),
    Lock,
    Unlock,
    /// The lock of the open file, whoever of those who share it takes or releases it.
    Flock,
    Funlock,
    /// What the host of whoever carries it out has taken is durable.
    Sync,
    /// The file is removed and made anew, under the same name.
    Replace,
}

impl Op {
    /// Whether it needs no open file.
    pub(crate) fn is_of_names(self) -> bool {
        matches!(self, Op::Mkdir(_) | Op::Rmdir(_))
    }

    pub(crate) fn is_of_locks(self) -> bool {
        matches!(self, Op::Lock | Op::Unlock | Op::Flock | Op::Funlock)
    }
}

/// An operation of a client, and what became of it.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) op: Op,
    pub(crate) client: usize,
    /// Through which open file.
    pub(crate) open: usize,
    pub(crate) begun: Nanos,
    pub(crate) ended: Option<(Nanos, Result<[u64; 4], Failed>)>,
    /// Its client was stopped meanwhile.
    pub(crate) excused: bool,
    /// How often, and when first and last, it changed storage.
    pub(crate) applied: u32,
    /// Since then its client does not know whether it was done before it was sent elsewhere.
    pub(crate) blind: bool,
    /// Hosts whose memory has it, and whether one of them has it on disk.
    pub(crate) on: Vec<usize>,
    pub(crate) synced: bool,
    /// Its client was told that it may be lost.
    pub(crate) told: bool,
    /// A sync after it went well.
    pub(crate) covered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    Refused(u32),
    NoNode,
    Unknown,
    LockLost,
    Unsynced,
    Stale,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) answered: u64,
    pub(crate) moved: u64,
    pub(crate) unknown: u64,
    pub(crate) settled: u64,
    pub(crate) told: u64,
    /// Told of a loss that another process had noticed; syncs that covered what others wrote.
    pub(crate) heard: u64,
    pub(crate) covered: u64,
    pub(crate) blind: u64,
    pub(crate) synced: u64,
    pub(crate) unsynced: u64,
    pub(crate) stale: u64,
    pub(crate) remapped: u64,
    pub(crate) forked: u64,
    pub(crate) adopted: u64,
    pub(crate) kept: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, other: &Totals) {
        self.answered += other.answered;
        self.moved += other.moved;
        self.unknown += other.unknown;
        self.settled += other.settled;
        self.told += other.told;
        self.heard += other.heard;
        self.covered += other.covered;
        self.blind += other.blind;
        self.synced += other.synced;
        self.unsynced += other.unsynced;
        self.stale += other.stale;
        self.remapped += other.remapped;
        self.forked += other.forked;
        self.adopted += other.adopted;
        self.kept += other.kept;
    }
}

/// A request as it travels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) number: usize,
    pub(crate) id: u64,
    pub(crate) stamp: Nanos,
    /// Milliseconds since it was first sent, if it was sent before.
    pub(crate) replay: Option<u64>,
    pub(crate) op: Op,
    /// Which file it is meant for, and as what it is open.
    pub(crate) file: u64,
    pub(crate) handle: u64,
}

/// What every frame of a node says: the mapping that it knows, and whether it drains.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stamp {
    pub(crate) epoch: u64,
    pub(crate) draining: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Frame {
    Hello(Nanos),
    Request(Request),
    Ping(Nanos),
    /// The file by its name; if it is still this one.
    Open(Nanos, Option<u64>),
    /// Another process's open file, by its handle.
    Adopt(Nanos, u64),
    /// Whether the handle is known.
    Holds(Nanos, u64),
    Close(Nanos, u64, bool),
    Mapping(Nanos),
    /// The client ends; another process may have inherited what it has open.
    Goodbye(bool),
    /// The connection has ended: nothing more comes.
    End,
    Verdict {
        stamp: Nanos,
        about: Incarnation,
        id: u64,
        age_ms: u32,
    },
    Welcome(Incarnation),
    Answer(u64, Reply),
    Pong,
    /// The file and its handle.
    Opened(Option<(u64, u64)>),
    Held(bool),
    /// Whether the handle was known.
    Closed(bool),
    /// The version of the mapping.
    Mapped(u64),
    Known(Option<(bool, Fate)>),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Reply {
    Ok([u64; 4]),
    Refused(u32),
    Expired,
    Stale,
}

/// A connection between a client and a process.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) client: usize,
    pub(crate) process: usize,
    pub(crate) slot: usize,
    pub(crate) open: bool,
    /// Nothing gets through any more, and nobody knows.
    pub(crate) deaf: bool,
    /// On the way to the node: when it arrives, and the event's number.
    pub(crate) flying: Vec<(Nanos, u64)>,
    /// When the last frame arrives, at the client and at the node.
    pub(crate) last: [Nanos; 2],
}

/// A connection that only keeps a session's files open, and the processes that have it.
#[derive(Clone, Debug)]
pub(crate) struct Lifeline {
    pub(crate) line: held::Lifeline,
    pub(crate) process: usize,
    pub(crate) session: usize,
    pub(crate) owner: usize,
    pub(crate) holders: Vec<usize>,
    pub(crate) open: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A frame arrives at the node (`true`) or at the client.
    Arrive(usize, bool, Frame, Stamp),
    /// The other end of a connection, or nobody at all, was found.
    Broken(usize),
    Refused(usize, usize),
    Wake(usize, u64),
    /// A system call of a process takes effect, ends.
    Effect(usize, u64),
    Return(usize, u64),
    Thaw(usize),
    /// Whether a session of a process is over.
    Lapse(usize, usize),
    /// Whether a drain is.
    Tick(usize),
    /// A lifeline has ended.
    Untied(usize),
    /// The arbiter hears where a node is; a process hears from the arbiter.
    Registered(usize),
    Told(usize, u64),
    Fault(usize),
}

pub(crate) struct World {
    pub(crate) now: Nanos,
    pub(crate) random: Random,
    pub(crate) plan: Plan,
    queue: BinaryHeap<Reverse<(Nanos, u64)>>,
    pub(crate) events: BTreeMap<u64, Event>,
    sequence: u64,
    pub(crate) links: Vec<Link>,
    pub(crate) processes: Vec<Process>,
    /// The process at each address, and whose address that is.
    pub(crate) slots: Vec<Option<usize>>,
    owners: Vec<usize>,
    /// The address of each node.
    addresses: Vec<usize>,
    /// The addresses that the arbiter has mapped the job to, by version.
    pub(crate) mappings: Vec<Vec<usize>>,
    pub(crate) lifelines: Vec<Lifeline>,
    pub(crate) handles: u64,
    pub(crate) cuts: Vec<(usize, usize, Nanos)>,
    /// Frames that were lost by chance.
    pub(crate) lost: u32,
    /// How often each host was started.
    boots: Vec<usize>,
    pub(crate) done: Vec<Done>,
    // Storage.
    pub(crate) log: Vec<usize>,
    pub(crate) names: [Option<usize>; NAMES as usize],
    /// Which file stands under the name.
    pub(crate) file: u64,
    /// The process and client that have the lock, and how often it changed hands.
    pub(crate) lock: Option<(usize, usize)>,
    pub(crate) lock_turns: u64,
    /// The same for the lock of an open file: the process, and the handle that it has there.
    pub(crate) flock: Option<(usize, u64)>,
    pub(crate) flock_turns: u64,
    /// How many open files there were.
    pub(crate) opens: usize,
    pub(crate) totals: Totals,
    broken: Option<String>,
    /// Everything that happens is printed.
    pub(crate) told: bool,
}

impl World {
    pub(crate) fn run(plan: &Plan, told: bool) -> Result<Totals, String> {
        let mut w = World {
            now: Nanos::from_secs(1000),
            random: Random::new(plan.seed ^ 0xabcd),
            plan: plan.clone(),
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            sequence: 0,
            links: Vec::new(),
            processes: Vec::new(),
            slots: vec![None; plan.nodes],
            owners: (0..plan.nodes).collect(),
            addresses: (0..plan.nodes).collect(),
            mappings: vec![(0..plan.nodes).collect(); 2],
            lifelines: Vec::new(),
            handles: 0,
            cuts: Vec::new(),
            lost: 0,
            boots: vec![0; plan.hosts],
            done: Vec::new(),
            log: Vec::new(),
            names: [None; NAMES as usize],
            file: 0,
            lock: None,
            lock_turns: 0,
            flock: None,
            flock_turns: 0,
            opens: 0,
            totals: Totals::default(),
            broken: None,
            told,
        };
        let start = w.now;
        for node in 0..plan.nodes {
            w.start(node);
        }
        let mut clients: Vec<Client> = (0..plan.clients).map(|i| Client::new(i, plan, &mut w)).collect();
        for (i, (when, _)) in plan.faults.iter().enumerate() {
            w.at(start + *when, Event::Fault(i));
        }
        while let Some(Reverse((when, number))) = w.queue.pop() {
            let Some(event) = w.events.remove(&number) else { continue };
            w.now = when;
            if w.now > start + END {
                break;
            }
            w.handle(event, &mut clients);
            if let Some(broken) = w.broken.take() {
                return Err(format!("at {:.6} s: {broken}", w.now.since(start).0 as f64 / 1e9));
            }
        }
        w.check_end()?;
        Ok(w.totals)
    }

    pub(crate) fn break_promise(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    /// The event's number.
    pub(crate) fn at(&mut self, when: Nanos, event: Event) -> u64 {
        self.sequence += 1;
        self.queue.push(Reverse((when.max(self.now), self.sequence)));
        self.events.insert(self.sequence, event);
        self.sequence
    }

    fn handle(&mut self, event: Event, clients: &mut Vec<Client>) {
        if self.told {
            println!("{:>12.6} {event:?}", (self.now.0 - 1_000_000_000_000) as f64 / 1e9);
        }
        match event {
            Event::Arrive(link, true, frame, _) => self.arrive_at_node(link, frame),
            Event::Arrive(link, false, frame, stamp) => {
                if self.links[link].open {
                    let client = self.links[link].client;
                    clients[client].arrive(self, link, frame, stamp);
                }
            }
            Event::Broken(link) => clients[self.links[link].client].broken(self, link),
            Event::Refused(client, slot) => clients[client].refused(self, slot),
            Event::Wake(client, turn) => clients[client].wake(self, turn),
            Event::Effect(process, call) => self.effect(process, call),
            Event::Return(process, call) => self.returned(process, call),
            Event::Thaw(process) => self.thaw(process),
            Event::Lapse(process, session) => self.lapse(process, session),
            Event::Tick(process) => self.drain(process),
            Event::Untied(lifeline) => self.untied(lifeline),
            Event::Registered(node) => {
                let mut mapping = self.mappings.last().cloned().unwrap_or_default();
                mapping.iter_mut().filter(|slot| self.owners[**slot] == node).for_each(|slot| {
                    *slot = self.addresses[node];
                });
                self.publish(mapping);
            }
            Event::Told(process, epoch) => {
                let known = &mut self.processes[process].epoch;
                *known = epoch.max(*known);
            }
            Event::Fault(i) => self.fault(i, clients),
        }
        // The lock of an open file goes with its last reference, and with its node.
        let process = |p: usize| &self.processes[p];
        let gone = |(p, handle): &(usize, u64)| process(*p).ended || !process(*p).files.contains(*handle);
        self.flock = self.flock.filter(|held| !gone(held));
        for i in 0..clients.len() {
            if clients[i].is_to_fork() && clients.len() < MOST_CLIENTS {
                let index = clients.len();
                let child = clients[i].fork(self, index);
                clients.push(child);
                self.totals.forked += 1;
            }
        }
    }

    /// The arbiter says where the job is mapped to, and one node after the other hears of it.
    fn publish(&mut self, mapping: Vec<usize>) {
        self.mappings.push(mapping);
        let epoch = self.mappings.len() as u64 - 1;
        for p in self.slots.clone().into_iter().flatten() {
            self.tell(p, epoch);
        }
    }

    fn tell(&mut self, process: usize, epoch: u64) {
        let delay = self.random.skewed(Nanos::from_millis(500));
        self.at(self.now + delay, Event::Told(process, epoch));
    }

    fn start(&mut self, node: usize) {
        let (host, slot) = (node % self.plan.hosts, self.addresses[node]);
        let machine = host + self.plan.hosts * self.boots[host];
        let number = self.processes.len();
        self.slots[slot] = Some(number);
        self.processes.push(Process::new(number, slot, machine));
        self.tell(number, self.mappings.len() as u64 - 1);
    }

    fn fault(&mut self, i: usize, clients: &mut [Client]) {
        match self.plan.faults[i].1 {
            Fault::Kill(node) => self.kill(self.addresses[node]),
            Fault::Restart(node) => {
                self.kill(self.addresses[node]);
                self.start(node);
            }
            Fault::Elsewhere(node) => {
                self.kill(self.addresses[node]);
                self.addresses[node] = self.slots.len();
                self.slots.push(None);
                self.owners.push(node);
                self.start(node);
                let delay = Nanos::from_millis(20) + self.random.skewed(Nanos::from_secs(2));
                self.at(self.now + delay, Event::Registered(node));
            }
            Fault::Reboot(host) => {
                self.boots[host] += 1;
                for node in (host..self.plan.nodes).step_by(self.plan.hosts) {
                    self.reboot(self.addresses[node]);
                    self.start(node);
                }
            }
            Fault::Drain(node) => {
                if let Some(p) = self.slots[self.addresses[node]].filter(|p| !self.is_draining(*p)) {
                    self.begin_drain(p);
                }
            }
            Fault::Freeze(node, long) => {
                let process = self.slots[self.addresses[node]];
                if let Some(p) = process.filter(|p| !self.processes[*p].frozen) {
                    self.processes[p].frozen = true;
                    self.at(self.now + long, Event::Thaw(p));
                }
            }
            Fault::Reset(client, node) => {
                let slot = self.addresses[node];
                for link in 0..self.links.len() {
                    if (self.links[link].client, self.links[link].slot) == (client, slot) {
                        self.reset(link);
                    }
                }
            }
            Fault::Cut(client, node, long) => {
                self.cuts.push((client, self.addresses[node], self.now + long));
            }
            Fault::StopClient(client, long) => clients[client].stop(self, long),
            Fault::Remap(mask) => {
                let chosen = (0..self.plan.nodes).filter(|n| mask >> n & 1 == 1);
                let mut mapping: Vec<usize> = chosen.map(|n| self.addresses[n]).collect();
                if mapping.is_empty() {
                    mapping.push(self.addresses[mask as usize >> 8 & 1]);
                }
                self.publish(mapping);
            }
            Fault::Fork(client) => clients[client].ask_to_fork(),
            Fault::Exit(client) => clients[client].ask_to_end(self),
            Fault::Die(client) => clients[client].die(self),
        }
    }

    pub(crate) fn kill(&mut self, slot: usize) {
        let Some(p) = self.slots[slot].take() else { return };
        self.processes[p].ended = true;
        if self.lock.is_some_and(|(holder, _)| holder == p) {
            self.lock = None;
        }
        for link in 0..self.links.len() {
            if self.links[link].process == p {
                self.reset(link);
            }
        }
    }

    /// The process at an address ends with its machine: no system call of it goes on.
    fn reboot(&mut self, slot: usize) {
        let process = self.slots[slot];
        self.kill(slot);
        if let Some(p) = process {
            self.processes[p].crash();
        }
    }
}
