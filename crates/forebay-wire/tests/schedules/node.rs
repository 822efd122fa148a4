//! A node process, made of the session's node half: lease, memory of answers and writes, ledger, open files, and
//! when a session or a drain is over.

use crate::world::{Event, Frame, Op, Reply, Request, World};
use forebay_types::Nanos;
use forebay_wire::hello::{HostBoot, Incarnation, SessionId};
use forebay_wire::message::Fate;
use forebay_wire::session::held::{Files, Share};
use forebay_wire::session::lease::Lease;
use forebay_wire::session::ledger::{Begun, Entry, Ledger};
use forebay_wire::session::presence::{Drain, GRACE, Presence};
use forebay_wire::session::replies::{Replies, RequestState};
use forebay_wire::session::writes::{Turn, Writes};
use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher};

/// A file, and the handle that it is open as.
pub(crate) type Opened = (u64, u64);

/// The same order every time.
pub(crate) type Hasher = BuildHasherDefault<DefaultHasher>;

pub(crate) fn session_id(client: usize) -> SessionId {
    SessionId([client as u8 + 1; 16])
}

pub(crate) fn incarnation(process: usize) -> Incarnation {
    Incarnation([process as u8 + 1; 16])
}

pub(crate) fn host_boot(host: usize) -> HostBoot {
    HostBoot([host as u8 + 1; 16])
}

/// What one client has there, until its last connection has ended and nobody holds a lifeline of it.
pub(crate) struct Session {
    pub(crate) client: usize,
    lease: Lease,
    replies: Replies,
    running: u32,
    writes: Writes,
    pub(crate) share: Share<Opened, Hasher>,
    pub(crate) presence: Presence,
    pub(crate) gone: bool,
}

impl Session {
    pub(crate) fn busy(&self) -> bool {
        self.running > 0 || self.writes.are_running()
    }
}

/// One connection.
#[derive(Default)]
pub(crate) struct Desk {
    pub(crate) session: Option<usize>,
    newest: Nanos,
    pub(crate) heard: Nanos,
    pub(crate) inbox: VecDeque<Frame>,
    /// Its thread is in a system call, or waits for another try of the same request.
    pub(crate) busy: bool,
    waits_for: Option<Request>,
    pub(crate) ended: bool,
}

pub(crate) struct Call {
    request: Request,
    file: u64,
    link: usize,
    session: usize,
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
    pub(crate) draining: Option<Drain>,
    /// The mapping that it knows.
    pub(crate) epoch: u64,
    ledger: Ledger<Vec<Entry>>,
    pub(crate) sessions: Vec<Session>,
    pub(crate) current: BTreeMap<usize, usize>,
    pub(crate) files: Files<Opened, Hasher>,
    pub(crate) desks: BTreeMap<usize, Desk>,
    pub(crate) calls: BTreeMap<u64, Call>,
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
            draining: None,
            epoch: 0,
            ledger: Ledger::new((0..33).map(|_| Entry::default()).collect()).expect("long enough"),
            sessions: Vec::new(),
            current: BTreeMap::new(),
            files: Files::default(),
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

    /// The session of a client, a new one if need be.
    fn join(&mut self, client: usize, now: Nanos, lease: Lease) -> usize {
        *self.current.entry(client).or_insert_with(|| {
            self.sessions.push(Session {
                client,
                lease,
                replies: Replies::default(),
                running: 0,
                writes: Writes::default(),
                share: Share::default(),
                presence: Presence::new(now),
                gone: false,
            });
            self.sessions.len() - 1
        })
    }

    /// Applies `change` to a session's files and those of the job.
    pub(crate) fn share<T>(
        &mut self,
        session: usize,
        change: impl FnOnce(&mut Share<Opened, Hasher>, &dyn Fn(u64, Option<Nanos>) -> Option<Opened>) -> T,
    ) -> T {
        let files = std::cell::RefCell::new(&mut self.files);
        change(&mut self.sessions[session].share, &|handle, linger| {
            files.borrow_mut().release(handle, linger)
        })
    }

    /// The session is over.
    pub(crate) fn leave(&mut self, session: usize, linger: Option<Nanos>, keep: bool) {
        self.share(session, |share, release| drop(share.leave(linger, keep, release)));
        self.sessions[session].gone = true;
        let client = self.sessions[session].client;
        if self.current.get(&client) == Some(&session) {
            self.current.remove(&client);
        }
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
        let Some(desk) = process.desks.get_mut(&link).filter(|desk| !desk.ended) else { return };
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
        let (now, seen) = (self.host_now(p), self.now);
        let process = &mut self.processes[p];
        let Some(desk) = process.desks.get_mut(&link) else { return };
        (desk.newest, desk.heard) = (desk.newest.max(stamp), seen);
        if let Some(session) = desk.session {
            process.sessions[session].lease.observe(now, stamp);
        }
    }

    fn greet(&mut self, p: usize, link: usize, stamp: Nanos) {
        let (now, client) = (self.host_now(p), self.links[link].client);
        let process = &mut self.processes[p];
        let session = process.join(client, self.now, Lease::new(crate::world::LEASE, now, stamp));
        process.sessions[session].presence.joined();
        if let Some(desk) = process.desks.get_mut(&link) {
            desk.session = Some(session);
        }
        self.observe(p, link, stamp);
        self.send(link, false, Frame::Welcome(incarnation(p)));
    }

    fn serve(&mut self, p: usize, link: usize, frame: Frame) {
        let now = self.now;
        self.processes[p].files.expire(now);
        if let Frame::Hello(stamp) = frame {
            return self.greet(p, link, stamp);
        }
        let desk = self.processes[p].desks.get_mut(&link);
        let Some((desk, session)) = desk.and_then(|d| d.session.map(|s| (d, s))) else { return };
        match frame {
            Frame::Ping(stamp) => {
                self.observe(p, link, stamp);
                self.send(link, false, Frame::Pong);
            }
            Frame::Open(stamp, wanted) => {
                self.observe(p, link, stamp);
                let found = Some(self.file).filter(|file| wanted.is_none_or(|w| w == *file));
                let opened = found.filter(|_| !self.processes[p].sessions[session].gone).map(|file| {
                    self.handles += 1;
                    let (process, opened) = (&mut self.processes[p], (file, self.handles));
                    process.files.enter(self.handles, opened);
                    process.sessions[session].share.enter(self.handles, opened);
                    opened
                });
                self.send(link, false, Frame::Opened(opened));
            }
            Frame::Adopt(stamp, handle) => {
                self.observe(p, link, stamp);
                let process = &mut self.processes[p];
                let share = &mut process.sessions[session].share;
                let file = share.get(handle).copied().or_else(|| process.files.adopt(handle));
                if let Some(file) = file {
                    share.enter(handle, file);
                }
                self.send(link, false, Frame::Opened(file));
            }
            Frame::Holds(stamp, handle) => {
                self.observe(p, link, stamp);
                let held = self.processes[p].sessions[session].share.get(handle).is_some();
                self.send(link, false, Frame::Held(held));
            }
            Frame::Close(stamp, handle, linger) => {
                self.observe(p, link, stamp);
                let linger = linger.then_some(now + GRACE);
                let closed =
                    self.processes[p].share(session, |share, release| share.close(handle, linger, release));
                self.unlock(p, session);
                self.send(link, false, Frame::Closed(closed.is_some()));
            }
            Frame::Mapping(stamp) => {
                self.observe(p, link, stamp);
                let epoch = self.processes[p].epoch;
                self.send(link, false, Frame::Mapped(epoch));
            }
            Frame::Goodbye(linger) => {
                self.processes[p].leave(session, linger.then_some(now + GRACE), linger);
                self.unlock(p, session);
            }
            Frame::End => {
                desk.ended = true;
                self.processes[p].sessions[session].presence.left(now, true);
                self.at(now + GRACE, Event::Lapse(p, session));
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
                self.request(p, link, session, request);
            }
            _ => {}
        }
    }

    /// A session has closed its file, or is over: its lock goes with it.
    pub(crate) fn unlock(&mut self, p: usize, session: usize) {
        if self.lock == Some((p, self.processes[p].sessions[session].client)) {
            self.lock = None;
        }
    }

    fn answer(&mut self, link: usize, id: u64, reply: Reply) {
        self.send(link, false, Frame::Answer(id, reply));
    }

    fn request(&mut self, p: usize, link: usize, session: usize, request: Request) {
        let now = self.host_now(p);
        let client = self.links[link].client;
        let process = &mut self.processes[p];
        let newest = process.desks[&link].newest;
        let (number, held) = (session, &mut process.sessions[session]);
        let (id, session) = (request.id, session_id(client));
        if !request.op.is_of_names() && held.share.get(request.handle).is_none() {
            return self.answer(link, id, Reply::Stale);
        }
        if request.op == Op::Sync {
            return self.call(p, link, number, request, None);
        }
        let age = request.replay.map(|age| u32::try_from(age).unwrap_or(u32::MAX));
        if once(request.op) {
            match held.replies.begin(id) {
                // Its session is a new one, but this process may have tried it.
                RequestState::New
                    if age.is_some_and(|age| process.ledger.fate(session, id, age, now) != Fate::Absent) =>
                {
                    held.replies.forget(id);
                    return self.answer(link, id, Reply::Expired);
                }
                RequestState::New => {}
                RequestState::Answered(frame) => {
                    let reply = unpack(frame);
                    return self.answer(link, id, reply);
                }
                RequestState::Running => return self.wait_for(p, link, request),
            }
            let Some(begun) = process.ledger.begin(session, id, now) else {
                held.replies.forget(id);
                return self.answer(link, id, Reply::Expired);
            };
            if !held.lease.holds(now, newest) {
                process.ledger.withdraw(begun);
                held.replies.forget(id);
                return self.answer(link, id, Reply::Expired);
            }
            held.running += 1;
            return self.call(p, link, number, request, Some(begun));
        }
        if !held.lease.holds(now, newest) {
            return self.answer(link, id, Reply::Expired);
        }
        match held.writes.arrive(id, age) {
            Turn::Never => return self.answer(link, id, Reply::Expired),
            Turn::Later => return self.wait_for(p, link, request),
            Turn::Now => {}
        }
        if age.is_some()
            && let Fate::Done { errno, values } = process.ledger.fate(session, id, 0, now)
        {
            let result = if errno == 0 { Ok(values) } else { Err(errno) };
            return self.answer(link, id, unpack(&pack(result)));
        }
        held.writes.begin(id);
        // Locks are not entered.
        let writes = matches!(request.op, Op::Write(_));
        let begun = writes.then(|| process.ledger.begin(session, id, now)).flatten();
        self.call(p, link, number, request, begun);
    }

    fn wait_for(&mut self, p: usize, link: usize, request: Request) {
        if let Some(desk) = self.processes[p].desks.get_mut(&link) {
            desk.busy = true;
            desk.waits_for = Some(request);
        }
    }

    /// A system call: it takes effect at some moment, whatever becomes of its process.
    fn call(&mut self, p: usize, link: usize, session: usize, request: Request, begun: Option<Begun>) {
        let quick = matches!(request.op, Op::Lock | Op::Unlock | Op::Flock | Op::Funlock);
        let takes = if quick { Nanos(1000) } else { self.random.skewed(self.plan.longest_call) };
        let file = self.processes[p].sessions[session].share.get(request.handle);
        let file = file.map_or(u64::MAX, |(file, _)| *file);
        let effect = Nanos(self.random.below(takes.0 + 1));
        let process = &mut self.processes[p];
        let number = process.next_call;
        process.next_call += 1;
        if let Some(desk) = process.desks.get_mut(&link) {
            desk.busy = true;
        }
        process.calls.insert(number, Call { request, file, link, session, begun, result: None, back: false });
        self.at(self.now + effect, Event::Effect(p, number));
        self.at(self.now + takes, Event::Return(p, number));
    }

    pub(crate) fn effect(&mut self, p: usize, number: u64) {
        let Some(call) = self.processes[p].calls.get(&number) else { return };
        let (request, file, session) = (call.request, call.file, call.session);
        // A lock of a process or a session that has ended is nobody's, nor is that of a file that is closed.
        let process = &self.processes[p];
        let over = match request.op {
            Op::Lock => process.sessions[session].gone,
            Op::Flock => !process.files.contains(request.handle),
            _ => false,
        };
        if over || process.ended && matches!(request.op, Op::Lock | Op::Flock) {
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
        let id = call.request.id;
        let session = &mut process.sessions[call.session];
        let result = call.result.unwrap_or(Err(116));
        if let Some(begun) = call.begun {
            let (errno, values) = match result {
                Ok(values) => (0, values),
                Err(errno) => (errno, [0; 4]),
            };
            process.ledger.done(begun, errno, values, now);
        }
        if once(call.request.op) {
            session.running = session.running.saturating_sub(1);
            session.replies.answered(id, pack(result));
        }
        session.writes.end(id);
        let reply = unpack(&pack(result));
        self.answer(call.link, id, reply);
        self.free(p, call.link);
        // Other tries of the same request have been waiting for this.
        let waiting: Vec<(usize, Request)> = self.processes[p]
            .desks
            .iter()
            .filter_map(|(link, d)| d.waits_for.filter(|r| r.id == id).map(|r| (*link, r)))
            .filter(|(link, _)| self.processes[p].desks[link].session == Some(call.session))
            .collect();
        for (link, request) in waiting {
            if let Some(desk) = self.processes[p].desks.get_mut(&link) {
                (desk.busy, desk.waits_for) = (false, None);
            }
            self.request(p, link, call.session, request);
            self.pump(p, link);
        }
    }

    fn free(&mut self, p: usize, link: usize) {
        if let Some(desk) = self.processes[p].desks.get_mut(&link) {
            desk.busy = false;
        }
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
}
