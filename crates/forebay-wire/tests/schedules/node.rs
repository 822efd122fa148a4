//! A node process, made of the session's node half: lease, memory of answers, ledger.

use crate::world::{Event, Frame, Op, Reply, Request, World};
use forebay_types::Nanos;
use forebay_wire::hello::{HostBoot, Incarnation, SessionId};
use forebay_wire::message::Fate;
use forebay_wire::session::lease::Lease;
use forebay_wire::session::ledger::{Begun, Entry, Ledger};
use forebay_wire::session::replies::{Replies, RequestState};
use std::collections::{BTreeMap, VecDeque};

/// A session whose last connection broke is given up after this.
const GRACE: Nanos = Nanos::from_secs(1);

pub(crate) fn session_id(client: usize) -> SessionId {
    SessionId([client as u8 + 1; 16])
}

pub(crate) fn incarnation(process: usize) -> Incarnation {
    Incarnation([process as u8 + 1; 16])
}

pub(crate) fn host_boot(host: usize) -> HostBoot {
    HostBoot([host as u8 + 1; 16])
}

struct Session {
    lease: Lease,
    replies: Replies,
    writing: Vec<u64>,
    tries: Vec<(u64, u64)>,
    /// The file it has open.
    open: Option<u64>,
}

#[derive(Default)]
struct Desk {
    newest: Nanos,
    inbox: VecDeque<Frame>,
    /// Its thread is in a system call, or waits for another try of the same request.
    busy: bool,
    waits_for: Option<Request>,
}

struct Call {
    request: Request,
    file: u64,
    link: usize,
    client: usize,
    begun: Option<Begun>,
    result: Option<Result<[u64; 4], u32>>,
    back: bool,
}

pub(crate) struct Process {
    pub(crate) number: usize,
    pub(crate) slot: usize,
    pub(crate) host: usize,
    pub(crate) frozen: bool,
    pub(crate) ended: bool,
    pub(crate) draining: bool,
    ledger: Ledger<Vec<Entry>>,
    sessions: BTreeMap<usize, Session>,
    desks: BTreeMap<usize, Desk>,
    calls: BTreeMap<u64, Call>,
    next_call: u64,
}

impl Process {
    pub(crate) fn new(number: usize, slot: usize, host: usize) -> Process {
        Process {
            number,
            slot,
            host,
            frozen: false,
            ended: false,
            draining: false,
            ledger: Ledger::new((0..33).map(|_| Entry::default()).collect()).expect("long enough"),
            sessions: BTreeMap::new(),
            desks: BTreeMap::new(),
            calls: BTreeMap::new(),
            next_call: 0,
        }
    }
}

impl Process {
    /// Its machine is gone, with every system call.
    pub(crate) fn crash(&mut self) {
        self.calls.clear();
    }
}

fn pack(result: Result<[u64; 4], u32>) -> Vec<u8> {
    let (errno, values) = match result {
        Ok(values) => (0, values),
        Err(errno) => (u64::from(errno), [0; 4]),
    };
    [errno, values[0], values[1], values[2], values[3]].iter().flat_map(|n| n.to_le_bytes()).collect()
}

fn unpack(frame: &[u8]) -> Reply {
    let at = |i: usize| u64::from_le_bytes(frame[8 * i..8 * i + 8].try_into().expect("as packed"));
    match at(0) {
        0 => Reply::Ok([at(1), at(2), at(3), at(4)]),
        errno => Reply::Refused(errno as u32),
    }
}

fn once(op: Op) -> bool {
    matches!(op, Op::Append | Op::Mkdir(_) | Op::Rmdir(_) | Op::Replace)
}

impl World {
    /// Whether any process remembers that it has carried the request out.
    pub(crate) fn is_entered(&self, client: usize, id: u64) -> bool {
        let session = session_id(client);
        self.processes.iter().any(|p| matches!(p.ledger.fate(session, id, 0, self.now), Fate::Done { .. }))
    }

    /// The clock of a host: none agrees with another.
    fn host_now(&self, process: usize) -> Nanos {
        self.now + Nanos::from_secs(500 * self.processes[process].host as u64)
    }

    pub(crate) fn arrive_at_node(&mut self, link: usize, frame: Frame) {
        let p = self.links[link].process;
        let process = &mut self.processes[p];
        if process.ended {
            return;
        }
        let desk = process.desks.entry(link).or_default();
        if desk.busy && matches!(frame, Frame::Ping(_)) && !process.frozen {
            // Somebody else says that it lives.
            self.send(link, false, Frame::Pong);
            return;
        }
        desk.inbox.push_back(frame);
        self.pump(p, link);
    }

    fn pump(&mut self, p: usize, link: usize) {
        loop {
            let process = &mut self.processes[p];
            if process.frozen || process.ended {
                return;
            }
            let Some(desk) = process.desks.get_mut(&link) else { return };
            if desk.busy {
                return;
            }
            let Some(frame) = desk.inbox.pop_front() else { return };
            self.serve(p, link, frame);
        }
    }

    fn observe(&mut self, p: usize, link: usize, stamp: Nanos) {
        let (now, client) = (self.host_now(p), self.links[link].client);
        let process = &mut self.processes[p];
        let session = process.sessions.entry(client).or_insert_with(|| Session {
            lease: Lease::new(crate::world::LEASE, now, stamp),
            replies: Replies::default(),
            writing: Vec::new(),
            tries: Vec::new(),
            open: None,
        });
        session.lease.observe(now, stamp);
        let desk = process.desks.entry(link).or_default();
        desk.newest = desk.newest.max(stamp);
    }

    fn serve(&mut self, p: usize, link: usize, frame: Frame) {
        match frame {
            Frame::Hello(stamp) => {
                self.observe(p, link, stamp);
                self.send(link, false, Frame::Welcome(incarnation(p)));
            }
            Frame::Ping(stamp) => {
                self.observe(p, link, stamp);
                self.send(link, false, Frame::Pong);
            }
            Frame::Open(stamp, wanted) => {
                self.observe(p, link, stamp);
                let client = self.links[link].client;
                let found = Some(self.file).filter(|file| wanted.is_none_or(|w| w == *file));
                if let Some(session) = self.processes[p].sessions.get_mut(&client) {
                    session.open = found;
                }
                self.send(link, false, Frame::Opened(found));
            }
            Frame::Verdict { stamp, about, id, age_ms } => {
                self.observe(p, link, stamp);
                let (client, now) = (self.links[link].client, self.host_now(p));
                let known = self
                    .processes
                    .iter()
                    .find(|other| incarnation(other.number) == about && other.host == self.processes[p].host)
                    .map(|other| {
                        let dead = other.ended && other.calls.is_empty();
                        (dead, other.ledger.fate(session_id(client), id, age_ms, now))
                    });
                self.send(link, false, Frame::Known(known));
            }
            Frame::Request(request) => {
                self.observe(p, link, request.stamp);
                self.request(p, link, request);
            }
            _ => {}
        }
    }

    fn answer(&mut self, link: usize, id: u64, reply: Reply) {
        self.send(link, false, Frame::Answer(id, reply));
    }

    fn request(&mut self, p: usize, link: usize, request: Request) {
        let now = self.host_now(p);
        let client = self.links[link].client;
        let process = &mut self.processes[p];
        let newest = process.desks[&link].newest;
        // A name needs no open file.
        let named = matches!(request.op, Op::Mkdir(_) | Op::Rmdir(_));
        let Some(session) = process.sessions.get_mut(&client).filter(|s| named || s.open.is_some()) else {
            return self.answer(link, request.id, Reply::Stale);
        };
        if request.op == Op::Sync {
            return self.call(p, link, request, None);
        }
        let id = request.id;
        if once(request.op) {
            match session.replies.begin(id) {
                // Its session is a new one, but this process may have tried it.
                RequestState::New
                    if request.replay.is_some_and(|age| {
                        let age = u32::try_from(age).unwrap_or(u32::MAX);
                        process.ledger.fate(session_id(client), id, age, now) != Fate::Absent
                    }) =>
                {
                    session.replies.forget(id);
                    return self.answer(link, id, Reply::Expired);
                }
                RequestState::New => {}
                RequestState::Answered(frame) => {
                    let reply = unpack(frame);
                    return self.answer(link, id, reply);
                }
                RequestState::Running => return self.wait_for(p, link, request),
            }
            let Some(begun) = process.ledger.begin(session_id(client), id, now) else {
                session.replies.forget(id);
                return self.answer(link, id, Reply::Expired);
            };
            if !session.lease.holds(now, newest) {
                process.ledger.withdraw(begun);
                session.replies.forget(id);
                return self.answer(link, id, Reply::Expired);
            }
            return self.call(p, link, request, Some(begun));
        }
        // As the node's session does it for what may be done again.
        let this = request.replay.map_or(0, |age| age + 1);
        if !session.lease.holds(now, newest)
            || session.tries.iter().any(|&(other, try_)| other == id && try_ > this)
        {
            return self.answer(link, id, Reply::Expired);
        }
        if this > 0 {
            session.tries.retain(|&(other, _)| other != id);
            session.tries.push((id, this));
            if session.writing.contains(&id) {
                return self.wait_for(p, link, request);
            }
            if let Fate::Done { errno, values } = process.ledger.fate(session_id(client), id, 0, now) {
                let result = if errno == 0 { Ok(values) } else { Err(errno) };
                return self.answer(link, id, unpack(&pack(result)));
            }
        }
        session.writing.push(id);
        // Locks are not entered.
        let writes = matches!(request.op, Op::Write(_));
        let begun = writes.then(|| process.ledger.begin(session_id(client), id, now)).flatten();
        self.call(p, link, request, begun);
    }

    fn wait_for(&mut self, p: usize, link: usize, request: Request) {
        let desk = self.processes[p].desks.entry(link).or_default();
        desk.busy = true;
        desk.waits_for = Some(request);
    }

    /// A system call: it takes effect at some moment, whatever becomes of its process.
    fn call(&mut self, p: usize, link: usize, request: Request, begun: Option<Begun>) {
        let client = self.links[link].client;
        let quick = matches!(request.op, Op::Lock | Op::Unlock);
        let takes = if quick { Nanos(1000) } else { self.random.skewed(self.plan.longest_call) };
        let file = self.processes[p].sessions.get(&client).and_then(|s| s.open).unwrap_or(u64::MAX);
        let effect = Nanos(self.random.below(takes.0 + 1));
        let process = &mut self.processes[p];
        let number = process.next_call;
        process.next_call += 1;
        process.desks.entry(link).or_default().busy = true;
        process.calls.insert(number, Call { request, file, link, client, begun, result: None, back: false });
        self.at(self.now + effect, Event::Effect(p, number));
        self.at(self.now + takes, Event::Return(p, number));
    }

    pub(crate) fn effect(&mut self, p: usize, number: u64) {
        let Some(call) = self.processes[p].calls.get(&number) else { return };
        let (request, file) = (call.request, call.file);
        // A lock of a process that has ended is nobody's.
        if self.processes[p].ended && request.op == Op::Lock {
            return;
        }
        let result = self.apply(request, file, p);
        if let Some(call) = self.processes[p].calls.get_mut(&number) {
            call.result = Some(result);
        }
    }

    pub(crate) fn returned(&mut self, p: usize, number: u64) {
        let process = &mut self.processes[p];
        if process.ended {
            process.calls.remove(&number);
        } else if process.frozen {
            if let Some(call) = process.calls.get_mut(&number) {
                call.back = true;
            }
        } else {
            self.complete(p, number);
        }
    }

    fn complete(&mut self, p: usize, number: u64) {
        let now = self.host_now(p);
        let process = &mut self.processes[p];
        let Some(call) = process.calls.remove(&number) else { return };
        let Some(result) = call.result else { return };
        let id = call.request.id;
        let session = process.sessions.get_mut(&call.client);
        if let Some(begun) = call.begun {
            let (errno, values) = match result {
                Ok(values) => (0, values),
                Err(errno) => (errno, [0; 4]),
            };
            process.ledger.done(begun, errno, values, now);
        }
        if let Some(session) = session {
            if once(call.request.op) {
                session.replies.answered(id, pack(result));
            }
            session.writing.retain(|&other| other != id);
        }
        let reply = unpack(&pack(result));
        self.answer(call.link, id, reply);
        self.free(p, call.link);
        // Other tries of the same request have been waiting for this.
        let waiting: Vec<(usize, Request)> = self.processes[p]
            .desks
            .iter()
            .filter_map(|(link, d)| d.waits_for.filter(|r| r.id == id).map(|r| (*link, r)))
            .filter(|(link, _)| self.links[*link].client == call.client)
            .collect();
        for (link, request) in waiting {
            let desk = self.processes[p].desks.entry(link).or_default();
            desk.busy = false;
            desk.waits_for = None;
            self.request(p, link, request);
            self.pump(p, link);
        }
        self.try_to_end(p);
    }

    fn free(&mut self, p: usize, link: usize) {
        self.processes[p].desks.entry(link).or_default().busy = false;
        self.pump(p, link);
    }

    pub(crate) fn thaw(&mut self, p: usize) {
        self.processes[p].frozen = false;
        if self.processes[p].ended {
            return;
        }
        let back: Vec<u64> =
            self.processes[p].calls.iter().filter(|(_, c)| c.back).map(|(n, _)| *n).collect();
        for number in back {
            self.complete(p, number);
        }
        let links: Vec<usize> = self.processes[p].desks.keys().copied().collect();
        for link in links {
            self.pump(p, link);
        }
    }

    /// A client's connection ended.
    pub(crate) fn disconnected(&mut self, p: usize, client: usize) {
        self.at(self.now + GRACE, Event::Lapse(p, client));
    }

    pub(crate) fn lapse(&mut self, p: usize, client: usize) {
        let alone = !self.links.iter().any(|l| l.open && l.process == p && l.client == client);
        if alone && !self.processes[p].frozen {
            self.processes[p].sessions.remove(&client);
            if self.lock == Some((p, client)) {
                self.lock = None;
            }
        }
    }

    /// A draining process ends when nothing is under way.
    pub(crate) fn try_to_end(&mut self, p: usize) {
        let process = &self.processes[p];
        let locked = self.lock.is_some_and(|(holder, _)| holder == p);
        if process.draining && !process.ended && !process.frozen && process.calls.is_empty() && !locked {
            let slot = process.slot;
            self.kill(slot);
        }
    }
}
