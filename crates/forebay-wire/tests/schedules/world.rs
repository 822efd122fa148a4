//! Time, the network, storage, the faults, and what must hold.

use crate::client::Client;
use crate::node::Process;
use crate::plan::{Fault, Plan, Random};
use forebay_types::Nanos;
use forebay_wire::hello::Incarnation;
use forebay_wire::message::Fate;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

pub(crate) const LEASE: Nanos = Nanos::from_secs(2);
pub(crate) const DEADLINE: Nanos = Nanos::from_secs(30);
const END: Nanos = Nanos::from_secs(200);
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
    /// What the host of whoever carries it out has taken is durable.
    Sync,
    /// The file is removed and made anew, under the same name.
    Replace,
}

/// An operation of a client, and what became of it.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) op: Op,
    pub(crate) client: usize,
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
    pub(crate) blind: u64,
    pub(crate) synced: u64,
    pub(crate) unsynced: u64,
    pub(crate) stale: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, other: &Totals) {
        self.answered += other.answered;
        self.moved += other.moved;
        self.unknown += other.unknown;
        self.settled += other.settled;
        self.told += other.told;
        self.blind += other.blind;
        self.synced += other.synced;
        self.unsynced += other.unsynced;
        self.stale += other.stale;
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
    /// Which file it is meant for.
    pub(crate) file: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Frame {
    Hello(Nanos),
    Request(Request),
    Ping(Nanos),
    /// The file by its name; if it is still this one.
    Open(Nanos, Option<u64>),
    Verdict {
        stamp: Nanos,
        about: Incarnation,
        id: u64,
        age_ms: u32,
    },
    Welcome(Incarnation),
    Answer(u64, Reply),
    Pong,
    Opened(Option<u64>),
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
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A frame arrives at the node (`true`) or at the client.
    Arrive(usize, bool, Frame),
    /// The other end of a connection, or nobody at all, was found.
    Broken(usize),
    Refused(usize, usize),
    Wake(usize, u64),
    /// A system call of a process takes effect, ends.
    Effect(usize, u64),
    Return(usize, u64),
    Thaw(usize),
    Lapse(usize, usize),
    Fault(usize),
}

pub(crate) struct World {
    pub(crate) now: Nanos,
    pub(crate) random: Random,
    pub(crate) plan: Plan,
    queue: BinaryHeap<Reverse<(Nanos, u64)>>,
    events: BTreeMap<u64, Event>,
    sequence: u64,
    pub(crate) links: Vec<Link>,
    pub(crate) processes: Vec<Process>,
    /// The process at each address.
    pub(crate) slots: Vec<Option<usize>>,
    cuts: Vec<(usize, usize, Nanos)>,
    /// Frames that were lost by chance.
    lost: u32,
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
            cuts: Vec::new(),
            lost: 0,
            boots: vec![0; plan.hosts],
            done: Vec::new(),
            log: Vec::new(),
            names: [None; NAMES as usize],
            file: 0,
            lock: None,
            lock_turns: 0,
            totals: Totals::default(),
            broken: None,
            told,
        };
        let start = w.now;
        for slot in 0..plan.nodes {
            w.start(slot);
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

    pub(crate) fn at(&mut self, when: Nanos, event: Event) {
        self.sequence += 1;
        self.queue.push(Reverse((when.max(self.now), self.sequence)));
        self.events.insert(self.sequence, event);
    }

    fn handle(&mut self, event: Event, clients: &mut [Client]) {
        if self.told {
            println!("{:>12.6} {event:?}", (self.now.0 - 1_000_000_000_000) as f64 / 1e9);
        }
        match event {
            Event::Arrive(link, true, frame) => self.arrive_at_node(link, frame),
            Event::Arrive(link, false, frame) => {
                if self.links[link].open {
                    let client = self.links[link].client;
                    clients[client].arrive(self, link, frame);
                }
            }
            Event::Broken(link) => clients[self.links[link].client].broken(self, link),
            Event::Refused(client, slot) => clients[client].refused(self, slot),
            Event::Wake(client, turn) => clients[client].wake(self, turn),
            Event::Effect(process, call) => self.effect(process, call),
            Event::Return(process, call) => self.returned(process, call),
            Event::Thaw(process) => self.thaw(process),
            Event::Lapse(process, client) => self.lapse(process, client),
            Event::Fault(i) => self.fault(i, clients),
        }
    }

    fn start(&mut self, slot: usize) {
        let host = slot % self.plan.hosts;
        let machine = host + self.plan.hosts * self.boots[host];
        let process = Process::new(self.processes.len(), slot, machine);
        self.slots[slot] = Some(self.processes.len());
        self.processes.push(process);
    }

    fn fault(&mut self, i: usize, clients: &mut [Client]) {
        match self.plan.faults[i].1 {
            Fault::Kill(slot) => self.kill(slot),
            Fault::Restart(slot) => {
                self.kill(slot);
                self.start(slot);
            }
            Fault::Reboot(host) => {
                self.boots[host] += 1;
                for slot in (host..self.plan.nodes).step_by(self.plan.hosts) {
                    self.reboot(slot);
                    self.start(slot);
                }
            }
            Fault::Drain(slot) => {
                if let Some(p) = self.slots[slot] {
                    self.processes[p].draining = true;
                    self.try_to_end(p);
                }
            }
            Fault::Freeze(slot, long) => {
                if let Some(p) = self.slots[slot].filter(|p| !self.processes[*p].frozen) {
                    self.processes[p].frozen = true;
                    self.at(self.now + long, Event::Thaw(p));
                }
            }
            Fault::Reset(client, slot) => {
                for link in 0..self.links.len() {
                    if (self.links[link].client, self.links[link].slot) == (client, slot) {
                        self.reset(link);
                    }
                }
            }
            Fault::Cut(client, slot, long) => self.cuts.push((client, slot, self.now + long)),
            Fault::StopClient(client, long) => clients[client].stop(self, long),
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

    /// Whether frames get through between a client and an address.
    fn connected(&self, client: usize, slot: usize) -> bool {
        !self.cuts.iter().any(|&(c, s, until)| (c, s) == (client, slot) && self.now < until)
    }

    pub(crate) fn reset(&mut self, link: usize) {
        if std::mem::replace(&mut self.links[link].open, false) {
            let process = self.links[link].process;
            self.disconnected(process, self.links[link].client);
            let delay = self.random.skewed(Nanos::from_millis(20));
            self.at(self.now + delay, Event::Broken(link));
        }
    }

    /// A client connects: the link, if somebody listens there.
    pub(crate) fn connect(&mut self, client: usize, slot: usize) -> Option<usize> {
        let process = self.slots[slot].filter(|_| self.connected(client, slot));
        let Some(process) = process else {
            // Refused at once, or nothing heard: the client's own patience ends that.
            if self.slots[slot].is_none() {
                let delay = self.random.skewed(Nanos::from_millis(5));
                self.at(self.now + delay, Event::Refused(client, slot));
            }
            return None;
        };
        self.links.push(Link { client, process, slot, open: true });
        Some(self.links.len() - 1)
    }

    /// Sends a frame; lost if the link is cut, and then nothing that follows arrives either.
    pub(crate) fn send(&mut self, link: usize, to_node: bool, frame: Frame) {
        let Link { client, slot, open, .. } = self.links[link];
        if !open {
            return;
        }
        if !self.connected(client, slot) || self.random.one_in(3000) {
            self.lost += 1;
            // Part of it may have arrived: the connection is of no use any more.
            if self.random.one_in(4) {
                self.reset(link);
            } else {
                self.links[link].slot = usize::MAX;
            }
            return;
        }
        if slot == usize::MAX {
            return;
        }
        let delay = Nanos(20_000) + self.random.skewed(Nanos::from_millis(300));
        self.at(self.now + delay, Event::Arrive(link, to_node, frame));
    }

    pub(crate) fn finish(&mut self, number: usize, result: Result<[u64; 4], Failed>) {
        let now = self.now;
        if self.told {
            println!("             call {number} {:?} ends: {result:?}", self.done[number].op);
        }
        let done = &mut self.done[number];
        done.ended = Some((now, result));
        let took = now.since(done.begun);
        let done = done.clone();
        if took > DEADLINE + Nanos::from_millis(600) && !done.excused {
            self.break_promise(format!("Time: call {number} took {took:?}"));
        }
        match result {
            Ok(_) => {
                self.totals.answered += 1;
                if done.applied == 0 && !matches!(done.op, Op::Lock | Op::Unlock) {
                    self.break_promise(format!("call {number} {:?} is answered and not done", done.op));
                }
            }
            Err(Failed::NoNode) if took < DEADLINE => {
                self.break_promise(format!("Time: call {number} failed after {took:?}"));
            }
            Err(Failed::Unknown) if self.plan.gentle && matches!(done.op, Op::Write(_)) => {
                self.break_promise(format!("Time: call {number} was given up, with nodes there to do it"));
            }
            Err(Failed::Unknown) => self.totals.unknown += 1,
            Err(Failed::LockLost) => self.totals.told += 1,
            Err(Failed::Stale) => self.totals.stale += 1,
            Err(_) => {}
        }
    }

    /// A sync of a client has ended: what it was told before that is durable, or it is told now.
    pub(crate) fn check_durable(&mut self, number: usize, result: Result<[u64; 4], Failed>) {
        let (client, begun) = (self.done[number].client, self.done[number].begun);
        let mut lost = None;
        for (i, d) in self.done.iter_mut().enumerate() {
            let acknowledged = matches!(d.ended, Some((at, Ok(_))) if at <= begun);
            if d.client != client || !matches!(d.op, Op::Write(_) | Op::Append) || !acknowledged {
                continue;
            }
            match result {
                Ok(_) if !d.synced && !d.told => lost = Some(i),
                Err(Failed::Unsynced | Failed::Stale) => d.told = true,
                _ => {}
            }
        }
        self.totals.synced += u64::from(result.is_ok());
        self.totals.unsynced += u64::from(result == Err(Failed::Unsynced));
        if let Some(i) = lost {
            self.break_promise(format!(
                "Durable: sync {number} went well, and call {i} is in no host's disk"
            ));
        }
    }

    /// The client of a call says that it may be repeated: only if nobody could know better.
    pub(crate) fn note_blind(&mut self, number: usize, id: u64) {
        let done = &mut self.done[number];
        if std::mem::replace(&mut done.blind, true) {
            return;
        }
        self.totals.blind += 1;
        // With slow storage somebody on each host can always tell, if he is heard.
        let client = done.client;
        if self.plan.slow && self.lost < 2 && self.is_entered(client, id) {
            self.break_promise(format!("Order: call {number} is repeated, though a ledger says it is done"));
        }
    }

    /// Storage is changed by a call.
    pub(crate) fn apply(&mut self, request: Request, file: u64, process: usize) -> Result<[u64; 4], u32> {
        let Request { number, op, .. } = request;
        if file != request.file && matches!(op, Op::Write(_) | Op::Append) {
            self.break_promise(format!("Identity: call {number} {op:?} lands in another file"));
        }
        let host = self.processes[process].host;
        match op {
            Op::Write(register) => self.check_order(number, register),
            Op::Sync => self.done.iter_mut().filter(|d| d.on.contains(&host)).for_each(|d| d.synced = true),
            Op::Replace => self.file += 1,
            Op::Append => self.log.push(number),
            Op::Mkdir(name) => match &mut self.names[name as usize] {
                Some(_) => return Err(17),
                free => *free = Some(number),
            },
            Op::Rmdir(name) => {
                self.names[name as usize].take().ok_or(2u32)?;
            }
            Op::Lock => match self.lock {
                Some(held) if held != (process, self.done[number].client) => return Err(11),
                held => {
                    self.lock = Some((process, self.done[number].client));
                    self.lock_turns += u64::from(held.is_none());
                }
            },
            Op::Unlock => {
                if self.lock == Some((process, self.done[number].client)) {
                    self.lock = None;
                }
            }
        }
        let done = &mut self.done[number];
        done.applied += 1;
        done.on.push(host);
        let (times, blind) = (done.applied, done.blind);
        if matches!(op, Op::Write(_)) && times > 1 && !blind {
            self.break_promise(format!(
                "Order: call {number} {op:?} was carried out twice, and it was known"
            ));
        }
        let once = !matches!(op, Op::Write(_) | Op::Lock | Op::Unlock | Op::Sync);
        if once && times > 1 {
            self.break_promise(format!("Once: call {number} {op:?} was carried out twice"));
        }
        Ok([self.log.len() as u64, 1, 0, 0])
    }

    /// A write lands: nothing newer may have been acknowledged before.
    fn check_order(&mut self, number: usize, register: u64) {
        let ended = match self.done[number].ended {
            Some((ended, Ok(_))) => ended,
            // No process had it any more when it was given up.
            Some((_, Err(Failed::NoNode))) => {
                return self.break_promise(format!("Order: call {number} lands after it failed for good"));
            }
            _ => return,
        };
        let newer = self.done.iter().position(|d| {
            d.op == Op::Write(register)
                && d.begun >= ended
                && d.applied > 0
                && matches!(d.ended, Some((_, Ok(_))))
        });
        if let Some(newer) = newer {
            self.break_promise(format!("Order: call {number} lands after call {newer}, begun after its end"));
        }
    }

    fn check_end(&self) -> Result<(), String> {
        for (number, d) in self.done.iter().enumerate() {
            let Some((_, result)) = d.ended else {
                if d.excused || self.now.since(d.begun) <= DEADLINE + Nanos::from_secs(1) {
                    continue;
                }
                return Err(format!("Time: call {number} {:?} never ended", d.op));
            };
            let times = d.applied;
            let right = match (d.op, result) {
                (Op::Lock | Op::Unlock | Op::Sync, _) => true,
                (Op::Write(_), Ok(_)) => times > 0,
                (_, Ok(_)) => times == 1,
                (_, Err(Failed::Refused(_))) => times == 0,
                // A process that is gone may have done it, before none was left to do it again: not later.
                (Op::Write(_), Err(_)) => true,
                (_, Err(Failed::NoNode)) => times == 0,
                (_, Err(_)) => times <= 1,
            };
            if !right {
                return Err(format!(
                    "Once: call {number} {:?} ended with {result:?}, done {times} times",
                    d.op
                ));
            }
        }
        Ok(())
    }
}
