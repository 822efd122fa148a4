//! A client: the session's client half, driven by events instead of sockets.

use crate::kin::{Place, Purpose};
use crate::node::{host_boot, incarnation};
use crate::plan::Plan;
use crate::together::{Believed, Hearing, Open, Sync, hosts};
use crate::world::{
    DEADLINE, Done, Event, Failed, Frame, LEASE, NAMES, Op, REGISTERS, Reply, Request, Stamp, World,
};
use forebay_types::{Epoch, Nanos};
use forebay_wire::hello::HostBoot;
use forebay_wire::message::{LockKind, LockOwner, LockRange};
use forebay_wire::session::call::{Bound, Call, FileAt, Kind, Process, Step, Verdict, Why};
use forebay_wire::session::duty::Duty;
use forebay_wire::session::locks::Locks;
use forebay_wire::session::news::News;
use forebay_wire::session::nodes::Nodes;
use forebay_wire::session::place::{Adopted, Moving, Said, Ties};
use forebay_wire::session::wait::{self, Patience, Wait};
use std::collections::BTreeMap;
use std::rc::Rc;

const PING_AFTER: Nanos = Nanos::from_millis(500);
pub(crate) const ESTALE: i32 = 116;

pub(crate) enum Doing {
    Nothing,
    Napping,
    Connecting { slot: usize, link: Option<usize>, purpose: Purpose, wait: Wait, hello: Nanos },
    Awaiting { slot: usize, link: usize, purpose: Purpose, wait: Wait, fresh: bool },
}

#[derive(Clone, Copy)]
pub(crate) struct Known {
    pub(crate) link: usize,
    process: Process,
    lease: Nanos,
}

pub(crate) struct Current {
    pub(crate) call: Call,
    pub(crate) number: usize,
    pub(crate) op: Op,
    /// How often the lock had changed hands when the call began.
    turns: u64,
    pub(crate) believed: Option<Believed>,
}

pub(crate) struct Client {
    pub(crate) index: usize,
    pub(crate) nodes: Nodes<usize>,
    pub(crate) news: News,
    pub(crate) links: BTreeMap<usize, Known>,
    pub(crate) place: Place,
    /// Other processes may have the file open, too.
    pub(crate) shared: bool,
    pub(crate) locks: Locks,
    pub(crate) current: Option<Current>,
    pub(crate) doing: Doing,
    pub(crate) turn: u64,
    pub(crate) stopped_until: Nanos,
    /// The lock's turn at which this client got it.
    pub(crate) locked: Option<u64>,
    pub(crate) next_id: u64,
    pub(crate) left: u64,
    /// The file it has open.
    pub(crate) file: Option<u64>,
    /// The open file, and what this process has heard of its locks.
    pub(crate) open: Rc<Open>,
    pub(crate) hearing: Hearing,
    /// Hosts that have what was not synced, as far as nobody else knows; what a sync under way is about; and those that it
    /// is yet to ask.
    pub(crate) owed: u64,
    pub(crate) sync: Option<Sync>,
    pub(crate) duties: Vec<HostBoot>,
    pub(crate) duty: Option<Duty>,
    pub(crate) forks: usize,
    pub(crate) to_fork: bool,
    pub(crate) to_end: bool,
    pub(crate) ended: bool,
}

impl Client {
    pub(crate) fn new(index: usize, plan: &Plan, w: &mut World) -> Client {
        let all: Vec<usize> = (0..plan.nodes).collect();
        let mut client = Client {
            index,
            nodes: Nodes::new(Epoch(1), &all, &[], index),
            news: News::default(),
            links: BTreeMap::new(),
            place: Place { node: 0, handle: 0, client: index, lost: true, nameless: false },
            shared: false,
            locks: Locks::default(),
            current: None,
            doing: Doing::Nothing,
            turn: 0,
            stopped_until: Nanos::ZERO,
            locked: None,
            next_id: 0,
            left: 6 + w.random.below(20),
            file: None,
            open: Open::new(w),
            hearing: Hearing::default(),
            owed: 0,
            sync: None,
            duties: Vec::new(),
            duty: None,
            forks: 0,
            to_fork: false,
            to_end: false,
            ended: false,
        };
        client.arm(w, w.now + Nanos::from_millis(10));
        client
    }

    /// The file, as a call is to know of it.
    pub(crate) fn at(&self, now: Nanos) -> FileAt {
        let Place { node, client, lost, nameless, .. } = self.place;
        let ties = Ties { locked: self.is_locked(), nameless, shared: self.shared };
        FileAt::new(node, client == self.index, lost, ties, &self.nodes, now)
    }

    fn note_lock(&mut self, kind: LockKind) {
        self.locks.note(LockOwner::Process, LockRange { kind, start: 0, len: 0 });
    }

    pub(crate) fn arm(&mut self, w: &mut World, when: Nanos) {
        self.turn += 1;
        w.at(when, Event::Wake(self.index, self.turn));
    }

    pub(crate) fn stop(&mut self, w: &mut World, long: Nanos) {
        self.stopped_until = self.stopped_until.max(w.now + long);
        if let Some(c) = &self.current {
            w.done[c.number].excused = true;
        }
    }

    fn is_stopped(&self, w: &mut World, event: Event) -> bool {
        let stopped = w.now < self.stopped_until;
        if stopped {
            w.at(self.stopped_until, event);
        }
        stopped
    }

    fn begin_op(&mut self, w: &mut World) {
        let Some(left) = self.left.checked_sub(1).filter(|_| !self.ended) else { return };
        self.left = left;
        let op = match w.random.below(15) {
            10..12 => Op::Sync,
            12 if w.random.one_in(3) => Op::Replace,
            0..4 | 12 => Op::Write(w.random.below(REGISTERS)),
            4..6 => Op::Append,
            6 => Op::Mkdir(w.random.below(NAMES)),
            7 => Op::Rmdir(w.random.below(NAMES)),
            13.. if self.believes().is_some() => Op::Funlock,
            13.. => Op::Flock,
            _ if self.locked.is_some() => Op::Unlock,
            _ => Op::Lock,
        };
        let kind = match op {
            Op::Append | Op::Mkdir(_) | Op::Rmdir(_) | Op::Replace => Kind::Once,
            Op::Sync => Kind::Look,
            _ => Kind::Again,
        };
        let number = w.done.len();
        w.done.push(Done {
            op,
            client: self.index,
            open: self.open.id,
            begun: w.now,
            ended: None,
            excused: false,
            applied: 0,
            blind: false,
            on: Vec::new(),
            synced: false,
            told: false,
            covered: false,
        });
        self.next_id += 1;
        let call = Call::new(self.next_id, kind, w.now, DEADLINE);
        let believed = self.begins(w, op);
        self.current = Some(Current { call, number, op, turns: w.lock_turns, believed });
        if !op.is_of_names() && self.hears_of_loss() {
            w.totals.heard += 1;
            return self.finish(w, Err(Failed::LockLost));
        }
        self.go(w);
    }

    pub(crate) fn finish(&mut self, w: &mut World, result: Result<[u64; 4], Failed>) {
        self.doing = Doing::Nothing;
        let Some(c) = self.current.take() else { return };
        let apart = c.op == Op::Lock || c.op.is_of_names();
        if result.is_ok() && !apart && self.locked.is_some_and(|turn| turn != c.turns) {
            let what = format!("Locks: call {} went well, though its lock was another's meanwhile", c.number);
            w.break_promise(what);
        }
        self.ends(w, &c, result);
        match (c.op, result) {
            (Op::Lock, Ok(_)) => {
                self.note_lock(LockKind::Write);
                self.locked.get_or_insert(w.lock_turns);
            }
            (Op::Unlock, Ok(_)) => {
                self.note_lock(LockKind::Unlock);
                self.locked = None;
            }
            (_, Err(Failed::LockLost)) => self.locked = None,
            _ => {}
        }
        if result == Err(Failed::Stale) {
            // The program opens the file that is there now, and has it open nowhere yet.
            self.place = Place { client: self.index, lost: true, nameless: false, ..self.place };
            (self.file, self.locked, self.locks, self.shared) = (None, None, Locks::default(), false);
            self.open_anew(w);
        }
        w.finish(c.number, result);
        if c.op == Op::Sync {
            w.check_durable(c.number, result);
        }
        self.end_if_asked(w);
        let pause = w.random.skewed(Nanos::from_secs(4));
        self.arm(w, w.now + pause);
    }

    pub(crate) fn go(&mut self, w: &mut World) {
        if self.duty.is_some() {
            return self.discharge(w);
        }
        let (at, news) = (self.at(w.now), self.news.is_due(self.nodes.epoch()));
        let Some(c) = &mut self.current else { return };
        let bound = if c.op.is_of_names() { Bound::Free } else { Bound::File(at) };
        let step = c.call.next(w.now, &self.nodes, bound, news);
        if c.call.may_be_repeated() {
            w.note_blind(c.number, c.call.id);
        }
        if w.told {
            println!("             call {} {:?} of client {}: {step:?}", c.number, c.op, self.index);
        }
        match step {
            Step::Send(slot) => self.begin(w, slot, Purpose::Request),
            Step::Look(slot) => self.begin(w, slot, Purpose::Look),
            Step::Ask { via, about, age_ms } => {
                let asked = w.now;
                self.begin(w, via, Purpose::Ask { via, asked, about, age_ms });
            }
            Step::Open(slot) => self.begin(w, slot, Purpose::Open),
            Step::Nap(until) => {
                self.doing = Doing::Napping;
                self.arm(w, until);
            }
            Step::Done { by, errno, values } => {
                w.totals.settled += 1;
                if !c.op.is_of_names() {
                    self.mark_unsynced(by.host);
                }
                self.finish(w, if errno == 0 { Ok(values) } else { Err(Failed::Refused(errno)) });
            }
            Step::Fail(Why::NoNode) => self.finish(w, Err(Failed::NoNode)),
            Step::Fail(Why::Unknown(_)) => self.finish(w, Err(Failed::Unknown)),
            Step::Map(slot) if self.news.ask() => self.begin(w, slot, Purpose::Map),
            Step::Map(_) => self.go(w),
            Step::Adopt(slot) => self.begin(w, slot, Purpose::Adopt),
        }
    }

    fn patience(&self, lease: Nanos, now: Nanos) -> Wait {
        let Some(c) = &self.current else { unreachable!("a call is under way") };
        let deadline = c.call.deadline().since(now);
        Wait::new(Patience { ping_after: PING_AFTER, lease, deadline }, now, now)
    }

    pub(crate) fn begin(&mut self, w: &mut World, slot: usize, purpose: Purpose) {
        if let Some(known) = self.links.get(&slot).copied() {
            if w.links[known.link].open {
                return self.use_link(w, slot, known, purpose, false);
            }
            // Found dead before it is used.
            self.links.remove(&slot);
        }
        let link = w.connect(self.index, *self.nodes.address(slot));
        let mut wait = self.patience(LEASE, w.now);
        if matches!(purpose, Purpose::Look) {
            let patience = Patience { ping_after: PING_AFTER, lease: LEASE, deadline: PING_AFTER };
            wait = Wait::new(patience, w.now, w.now);
        }
        wait.sent(w.now, true);
        if let Some(link) = link {
            w.send(link, true, Frame::Hello(w.now));
        }
        self.doing = Doing::Connecting { slot, link, purpose, wait, hello: w.now };
        self.watch(w);
    }

    /// Does what the wait says, until something comes.
    fn watch(&mut self, w: &mut World) {
        let (Doing::Connecting { wait, .. } | Doing::Awaiting { wait, .. }) = &mut self.doing else { return };
        match wait.step(w.now) {
            wait::Step::WaitUntil(t) => self.arm(w, t),
            wait::Step::Ping => {
                wait.sent(w.now, true);
                if let Doing::Awaiting { link, .. } = self.doing {
                    w.send(link, true, Frame::Ping(w.now));
                }
                self.watch(w);
            }
            wait::Step::GiveUp | wait::Step::Deadline => self.lost(w, true),
        }
    }

    fn use_link(&mut self, w: &mut World, slot: usize, known: Known, purpose: Purpose, fresh: bool) {
        let Some(c) = &mut self.current else { return };
        let link = known.link;
        let wait = match purpose {
            Purpose::Look => {
                c.call.looked(Some(known.process));
                return self.go(w);
            }
            Purpose::Request => {
                if !c.call.may_send(known.process) {
                    return self.go(w);
                }
                let replay = c.call.first_sent().map(|t| w.now.since(t).0 / 1_000_000);
                c.call.sending(w.now);
                let (number, id, op) = (c.number, c.call.id, c.op);
                let (file, handle) = (self.file.unwrap_or(u64::MAX), self.place.handle);
                let request = Request { number, id, stamp: w.now, replay, op, file, handle };
                let wait = self.patience(known.lease, w.now);
                w.send(link, true, Frame::Request(request));
                wait
            }
            Purpose::Ask { about, age_ms, .. } => {
                let id = c.call.id;
                let wait = self.patience(known.lease, w.now);
                let frame = Frame::Verdict { stamp: w.now, about: about.incarnation, id, age_ms };
                w.send(link, true, frame);
                wait
            }
            Purpose::Duty { host, .. } if known.process.host != host => return self.go(w),
            _ => {
                let wait = self.patience(known.lease, w.now);
                let frame = match purpose {
                    Purpose::Map => Frame::Mapping(w.now),
                    Purpose::Adopt => Frame::Adopt(w.now, self.place.handle),
                    Purpose::Hold(_) => Frame::Holds(w.now, self.place.handle),
                    Purpose::Leave { handle, linger, .. } => Frame::Close(w.now, handle, linger),
                    _ => Frame::Open(w.now, self.file),
                };
                w.send(link, true, frame);
                wait
            }
        };
        self.doing = Doing::Awaiting { slot, link, purpose, wait, fresh };
        self.watch(w);
    }

    /// The connection in use is of no more use.
    fn lost(&mut self, w: &mut World, silent: bool) {
        let doing = std::mem::replace(&mut self.doing, Doing::Nothing);
        let Some(c) = &mut self.current else { return };
        let purpose = match doing {
            Doing::Connecting { slot, link, purpose, .. } => {
                self.nodes.mark_down(slot, w.now);
                if let Some(link) = link {
                    w.reset(link);
                }
                if matches!(purpose, Purpose::Request) {
                    c.call.not_sent();
                }
                purpose
            }
            Doing::Awaiting { slot, link, purpose, wait, fresh } => {
                if fresh || silent {
                    self.nodes.mark_down(slot, w.now);
                }
                let known = self.links.remove(&slot);
                w.reset(link);
                if let (Purpose::Request, Some(known)) = (purpose, known) {
                    c.call.unanswered(known.process, wait.last_sent(), known.lease);
                }
                purpose
            }
            Doing::Nothing | Doing::Napping => return,
        };
        match purpose {
            Purpose::Request | Purpose::Duty { .. } => {}
            Purpose::Look => c.call.looked(None),
            Purpose::Ask { via, asked, .. } => c.call.verdict(via, asked, Verdict::NoAnswer),
            Purpose::Open | Purpose::Adopt => c.call.step_failed(),
            Purpose::Map => self.news.answered(None, self.nodes.epoch(), |_| {}),
            Purpose::Leave { handle, lock_lost, .. } => return self.has_left(w, handle, false, lock_lost),
            Purpose::Hold(errno) => {
                let moved = Moving::new(self.at(w.now), self.shared).held(errno, false);
                return self.moved(w, 0, moved, None);
            }
        }
        self.go(w);
    }

    pub(crate) fn broken(&mut self, w: &mut World, link: usize) {
        if self.is_stopped(w, Event::Broken(link)) {
            return;
        }
        self.links.retain(|_, k| {
            let in_use = matches!(self.doing, Doing::Awaiting { link: l, .. } if l == link);
            k.link != link || in_use
        });
        let mine = match &self.doing {
            Doing::Connecting { link: l, .. } => *l == Some(link),
            Doing::Awaiting { link: l, .. } => *l == link,
            _ => false,
        };
        if mine {
            self.lost(w, false);
        }
    }

    pub(crate) fn refused(&mut self, w: &mut World, slot: usize) {
        if self.is_stopped(w, Event::Refused(self.index, slot)) {
            return;
        }
        let address = |node: usize| *self.nodes.address(node);
        if matches!(&self.doing, Doing::Connecting { slot: s, link: None, .. } if address(*s) == slot) {
            self.lost(w, false);
        }
    }

    pub(crate) fn wake(&mut self, w: &mut World, turn: u64) {
        if turn != self.turn || self.is_stopped(w, Event::Wake(self.index, turn)) {
            return;
        }
        match self.doing {
            Doing::Nothing if self.current.is_none() => self.begin_op(w),
            Doing::Nothing => {}
            Doing::Napping => self.go(w),
            Doing::Connecting { .. } | Doing::Awaiting { .. } => self.watch(w),
        }
    }

    pub(crate) fn arrive(&mut self, w: &mut World, link: usize, frame: Frame, stamp: Stamp) {
        if self.is_stopped(w, Event::Arrive(link, false, frame, stamp)) {
            return;
        }
        self.news.heard(Epoch(stamp.epoch));
        match (&mut self.doing, frame) {
            (Doing::Connecting { slot, link: Some(l), purpose, hello, .. }, Frame::Welcome(who))
                if *l == link =>
            {
                let (slot, purpose, transit) = (*slot, *purpose, w.now.since(*hello));
                let process = w.links[link].process;
                assert_eq!(who, incarnation(process), "a process greets as itself");
                let host = host_boot(w.processes[process].host);
                let process = Process { node: slot, incarnation: who, host };
                let known = Known { link, process, lease: LEASE + transit };
                self.links.insert(slot, known);
                self.nodes.mark_host(slot, host);
                self.use_link(w, slot, known, purpose, true);
            }
            (Doing::Awaiting { link: l, slot, purpose, wait, .. }, frame) if *l == link => {
                wait.heard(w.now);
                let (slot, purpose) = (*slot, *purpose);
                self.nodes.mark_up(slot, stamp.draining);
                self.heard(w, slot, purpose, frame);
            }
            _ => {}
        }
    }

    fn heard(&mut self, w: &mut World, slot: usize, purpose: Purpose, frame: Frame) {
        let Some(c) = &mut self.current else { return };
        match (purpose, frame) {
            (Purpose::Request, Frame::Answer(id, reply)) if id == c.call.id => match reply {
                Reply::Ok(values) => {
                    let host = self.links.get(&slot).map(|k| k.process.host);
                    if c.op == Op::Sync {
                        let owed = self.sync.as_ref().map_or(0, |sync| sync.hosts);
                        self.duties = hosts(owed).filter(|h| Some(*h) != host).collect();
                        self.doing = Doing::Nothing;
                        return self.discharge(w);
                    }
                    if !c.op.is_of_names() {
                        host.into_iter().for_each(|host| self.mark_unsynced(host));
                    }
                    self.finish(w, Ok(values));
                }
                Reply::Refused(errno) => self.finish(w, Err(Failed::Refused(errno))),
                Reply::Expired | Reply::Stale => {
                    c.call.not_done();
                    if matches!(reply, Reply::Stale) {
                        self.place.lost = true;
                    }
                    self.doing = Doing::Nothing;
                    self.go(w);
                }
            },
            (Purpose::Ask { via, asked, .. }, Frame::Known(known)) => {
                let verdict = known.map_or(Verdict::Ignorant, |(dead, fate)| Verdict::Known { dead, fate });
                c.call.verdict(via, asked, verdict);
                self.doing = Doing::Nothing;
                self.go(w);
            }
            (Purpose::Duty { id, .. }, Frame::Answer(answered, reply)) if id == answered => {
                if matches!(reply, Reply::Ok(_)) {
                    self.duty = None;
                }
                self.doing = Doing::Nothing;
                if self.duty.is_none() && self.duties.is_empty() {
                    return self.finish(w, Ok([0; 4]));
                }
                self.discharge(w);
            }
            (Purpose::Duty { id, .. }, Frame::Opened(opened)) => match opened {
                Some((file, handle)) => {
                    let (number, op, replay) = (c.number, c.op, None);
                    let request = Request { number, id, stamp: w.now, replay, op, file, handle };
                    if let Doing::Awaiting { link, wait, .. } = &mut self.doing {
                        wait.sent(w.now, false);
                        w.send(*link, true, Frame::Request(request));
                    }
                    self.watch(w);
                }
                // The host has the file no more, by its name.
                None => {
                    (self.duty, self.duties) = (None, Vec::new());
                    self.finish(w, Err(Failed::Unsynced));
                }
            },
            (Purpose::Open, Frame::Opened(opened)) => {
                let said = opened.map_or(Said::Refused(ESTALE), |_| Said::Opened);
                let moving = Moving::new(self.at(w.now), self.shared);
                if self.open.together.get() {
                    self.locks.leave_own();
                }
                let moved = moving.answered(said, w.now, &self.nodes, &mut self.locks);
                self.moved(w, slot, moved, opened);
            }
            (Purpose::Leave { handle, lock_lost, .. }, Frame::Closed(known)) => {
                self.has_left(w, handle, known, lock_lost);
            }
            (Purpose::Hold(errno), Frame::Held(holds)) => {
                let moved = Moving::new(self.at(w.now), self.shared).held(errno, holds);
                self.moved(w, slot, moved, None);
            }
            (Purpose::Adopt, Frame::Opened(opened)) => {
                match Adopted::of(opened.map(|(_, handle)| handle), opened.is_none()) {
                    Adopted::Ours(handle) => {
                        w.totals.adopted += 1;
                        self.place = Place { handle, client: self.index, ..self.place };
                    }
                    _ => self.place.lost = true,
                }
                self.doing = Doing::Nothing;
                self.go(w);
            }
            (Purpose::Map, Frame::Mapped(epoch)) => {
                let nodes = &self.nodes;
                self.news.answered(Some(Epoch(epoch)), nodes.epoch(), |epoch| {
                    w.totals.remapped += 1;
                    nodes.remap(epoch, &w.mappings[epoch.0 as usize]);
                });
                self.doing = Doing::Nothing;
                self.go(w);
            }
            _ => self.watch(w),
        }
    }
}
