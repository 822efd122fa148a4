//! Sessions: what one client process holds on this node, across its connections.

use crate::clients::Client;
use crate::fail::{Failure, Outcome};
use crate::file::{LockFile, OpenFile};
use crate::job::Job;
use crate::link::Link;
use crate::room::Room;
use crate::stats::{Op, Operations, counting};
use crate::sys::{self, acting};
use forebay_types::{ClientId, FlowId, Nanos};
use forebay_wire::frame::{Header, flag};
use forebay_wire::hello::SessionId;
use forebay_wire::message::LockRange;
use forebay_wire::session::held::{Lifeline, Share};
use forebay_wire::session::lease::Lease;
use forebay_wire::session::presence::{Presence, holds_on};
use forebay_wire::session::replies::{Replies, RequestState};
use forebay_wire::session::writes::{Turn, Writes};
use rustix::io::Errno;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// How often a repeated request that waits for the first one's answer looks whether its client does, too.
const LOOK: Duration = Duration::from_millis(200);

/// One client process.
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) job: Arc<Job>,
    pub(crate) pid: u32,
    /// The process, as the pattern metrics tell processes apart.
    pub(crate) client: ClientId,
    /// Its rank, or its host.
    counted: Arc<Client>,
    /// Its run.
    operations: Arc<Operations>,
    /// May change the node's parameters.
    pub(crate) admin: bool,
    /// See [`Session::is_here`].
    here: AtomicBool,
    state: Mutex<State>,
    answered: Condvar,
}

struct State {
    lease: Lease,
    files: Share<Arc<OpenFile>, foldhash::fast::RandomState>,
    locks: HashMap<(u64, u64), Arc<LockFile>>,
    replies: Replies,
    /// Requests noted in `replies` that are being carried out.
    running: u32,
    writes: Writes,
    /// How many threads wait on `answered`: waking nobody would cost a system call, too.
    waiting: u32,
    connections: Vec<Weak<Link>>,
    presence: Presence,
    gone: bool,
}

/// What a session held; dropping it closes files and releases locks.
#[derive(Default)]
pub(crate) struct Holdings {
    _files: Vec<Arc<OpenFile>>,
    _locks: Vec<Arc<LockFile>>,
    pub(crate) connections: Vec<Arc<Link>>,
    /// Whose it was, if its client went without a word.
    pub(crate) session: Option<Arc<Session>>,
}

impl Session {
    fn new(who: &Arrival, now: Nanos) -> Session {
        Session {
            id: who.id,
            job: Arc::clone(&who.job),
            pid: who.pid,
            client: ClientId(foldhash::fast::FixedState::default().hash_one(who.id)),
            counted: Arc::clone(&who.client),
            operations: who.job.stats.of_run(who.id.run()),
            admin: who.admin,
            here: AtomicBool::new(false),
            state: Mutex::new(State {
                lease: Lease::new(who.lease, now, Nanos(who.stamp)),
                files: Share::default(),
                locks: HashMap::default(),
                replies: Replies::default(),
                running: 0,
                waiting: 0,
                writes: Writes::default(),
                connections: Vec::new(),
                presence: Presence::new(now),
                gone: false,
            }),
            answered: Condvar::new(),
        }
    }

    /// Whether its job has this I/O node only, on the client's own host, and no contract by which nothing is kept: the
    /// client looks at this node's board then, and says so with each open.
    pub(crate) fn is_here(&self) -> bool {
        self.here.load(Relaxed)
    }

    pub(crate) fn set_here(&self, here: bool) {
        self.here.store(here, Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An operation of it was answered: `bytes` moved, in `latency` from receipt to answer.
    pub(crate) fn record(&self, op: Op, bytes: u64, latency: Nanos, failed: bool) {
        if !counting() {
            return;
        }
        self.operations.record(op, bytes, latency, failed);
        let (read, written) = if op == Op::READ { (bytes, 0) } else { (0, bytes) };
        self.counted.record(read, written, latency, failed);
    }

    /// A frame stamped `stamp` came at `now`.
    pub(crate) fn observe(&self, now: Nanos, stamp: u64) {
        self.lock().lease.observe(now, Nanos(stamp));
    }

    /// As [`Session::observe`], and the open file of `handle`.
    pub(crate) fn observe_and_find(&self, now: Nanos, stamp: u64, handle: u64) -> Outcome<Arc<OpenFile>> {
        let mut s = self.lock();
        s.lease.observe(now, Nanos(stamp));
        s.files.get(handle).cloned().ok_or(Failure::STALE)
    }

    /// The open file of `handle`.
    pub(crate) fn find(&self, handle: u64) -> Outcome<Arc<OpenFile>> {
        self.lock().files.get(handle).cloned().ok_or(Failure::STALE)
    }

    /// Says that a change that came by `link` may be made now, or why not. To be asked right before
    /// making it.
    pub(crate) fn may_change(&self, link: &Link, now: Nanos) -> Outcome<()> {
        if self.lock().lease.holds(now, link.newest_stamp()) { Ok(()) } else { Err(Failure::EXPIRED) }
    }

    /// As [`Session::may_change`] for a write, which [`Session::end_write`] must follow. A write whose
    /// connection broke is sent again: an older try that is found in a buffer after that is not
    /// carried out, and one that is being carried out is waited for. Otherwise it could overwrite
    /// what its client has written since.
    /// `Some`: an older try has been carried out, and ended so, as the ledger says.
    pub(crate) fn begin_write<T>(
        &self,
        link: &Link,
        header: &Header,
        now: Nanos,
        ended: impl FnOnce() -> Option<T>,
    ) -> Outcome<Option<T>> {
        let id = header.id.get();
        let age = header.has(flag::REPLAY).then(|| header.age_ms.get());
        let mut s = self.lock();
        if !s.lease.holds(now, link.newest_stamp()) {
            return Err(Failure::EXPIRED);
        }
        let mut turn = s.writes.arrive(id, age);
        while turn == Turn::Later {
            s = self.wait_while(s, link, |s| s.writes.is_running(id))?;
            turn = s.writes.arrive(id, age);
        }
        if turn == Turn::Never {
            return Err(Failure::EXPIRED);
        }
        if age.is_some() {
            if let Some(how) = ended() {
                return Ok(Some(how));
            }
            // That may have taken long: nobody has read the client's pings meanwhile.
            if !s.lease.holds(sys::now(), link.newest_stamp()) {
                return Err(Failure::EXPIRED);
            }
        }
        s.writes.begin(id);
        Ok(None)
    }

    /// Waits while the request's first try `runs`, as long as its client does: the first try may be at
    /// storage that hangs, and nobody but the client knows how much time it has.
    fn wait_while<'a>(
        &self,
        mut s: MutexGuard<'a, State>,
        link: &Link,
        mut runs: impl FnMut(&mut State) -> bool,
    ) -> Outcome<MutexGuard<'a, State>> {
        s.waiting += 1;
        let abandoned = loop {
            if !runs(&mut s) {
                break false;
            }
            let waited;
            (s, waited) = self.answered.wait_timeout(s, LOOK).unwrap_or_else(PoisonError::into_inner);
            if waited.timed_out() && link.abandoned() {
                break true;
            }
        };
        s.waiting -= 1;
        if abandoned { Err(Failure::ABANDONED) } else { Ok(s) }
    }

    /// Whether a write that [`Session::begin_write`] let through is under way.
    pub(crate) fn is_writing(&self, id: u64) -> bool {
        self.lock().writes.is_running(id)
    }

    /// A write that [`Session::begin_write`] let through is over, and the ledger says how.
    pub(crate) fn end_write(&self, header: &Header) {
        let mut s = self.lock();
        s.writes.end(header.id.get());
        let waiting = s.waiting;
        drop(s);
        if waiting > 0 {
            self.answered.notify_all();
        }
    }

    /// Enters a newly opened file.
    pub(crate) fn enter(&self, file: Arc<OpenFile>, per_session: usize, per_job: usize) -> Outcome<u64> {
        const FULL: &str = "too many open files on this I/O node";
        let mut s = self.lock();
        if s.gone || s.files.len() >= per_session {
            return Err(Failure::new(Errno::MFILE, FULL));
        }
        let handle = self.job.handles.enter(&file, per_job).ok_or(Failure::new(Errno::NFILE, FULL))?;
        s.files.enter(handle, file);
        Ok(handle)
    }

    /// Takes a reference to a file of another session of the job.
    pub(crate) fn adopt(&self, handle: u64, per_session: usize) -> Outcome<Arc<OpenFile>> {
        let mut s = self.lock();
        if let Some(file) = s.files.get(handle) {
            return Ok(Arc::clone(file));
        }
        if s.gone || s.files.len() >= per_session {
            return Err(Failure::new(Errno::MFILE, "too many open files on this I/O node"));
        }
        let file = self.job.handles.adopt(handle).ok_or(Failure::STALE)?;
        s.files.enter(handle, Arc::clone(&file));
        Ok(file)
    }

    /// Gives the session's reference away, and as `close(2)` does the process's locks on the file.
    pub(crate) fn close(&self, handle: u64, linger: Option<Nanos>) -> Outcome<Arc<OpenFile>> {
        let mut s = self.lock();
        let release = |handle, linger| self.job.handles.release(handle, linger);
        let mut left = s.files.close(handle, linger, release).ok_or(Failure::STALE)?;
        let file = left.pop().ok_or(Failure::STALE)?;
        let locks = if s.locks.is_empty() { None } else { s.locks.remove(&(file.dev, file.ino)) };
        drop(s);
        drop((left, locks));
        Ok(file)
    }

    /// The descriptor for the process's locks on the file.
    pub(crate) fn lock_file(&self, file: &OpenFile, room: &Arc<Room>) -> Outcome<Arc<LockFile>> {
        let key = (file.dev, file.ino);
        if let Some(found) = self.lock().locks.get(&key) {
            return Ok(Arc::clone(found));
        }
        let room = room.take(self.job.whom()).ok_or(Failure::NO_ROOM)?;
        let new = Arc::new(LockFile::new(file, room)?);
        let mut s = self.lock();
        if s.gone {
            return Err(Failure::STALE);
        }
        Ok(Arc::clone(s.locks.entry(key).or_insert(new)))
    }

    fn lock_in_the_way(&self, identity: u64, wanted: &LockRange) -> Option<LockRange> {
        let s = self.lock();
        s.locks.values().filter(|l| l.identity == identity).find_map(|l| l.in_the_way_of(wanted))
    }

    /// Notes a request that must not be done twice. `Some` is the answer it already had.
    pub(crate) fn begin(&self, link: &Link, id: u64) -> Outcome<Option<Vec<u8>>> {
        let mut s = self.lock();
        match s.replies.begin(id) {
            RequestState::New => {}
            RequestState::Answered(frame) => return Ok(Some(frame.to_vec())),
            RequestState::Running => {
                s = self.wait_while(s, link, |s| matches!(s.replies.begin(id), RequestState::Running))?;
                // If the first try turned out not to have been made, the wait noted this one as new.
                if let RequestState::Answered(frame) = s.replies.begin(id) {
                    return Ok(Some(frame.to_vec()));
                }
            }
        }
        s.running += 1;
        Ok(None)
    }

    /// The outcome of a request that [`Session::begin`] noted; `None`: it was not carried out.
    pub(crate) fn end(&self, id: u64, frame: Option<&[u8]>) {
        let mut s = self.lock();
        match frame {
            Some(frame) => s.replies.answered(id, frame.to_vec()),
            None => s.replies.forget(id),
        }
        s.running = s.running.saturating_sub(1);
        let waiting = s.waiting;
        drop(s);
        if waiting > 0 {
            self.answered.notify_all();
        }
    }

    /// A connection ended; `owed`: the client may not have got all its answers.
    pub(crate) fn disconnected(&self, link: &Arc<Link>, now: Nanos, owed: bool) {
        let mut s = self.lock();
        s.connections.retain(|c| !std::ptr::eq(c.as_ptr(), Arc::as_ptr(link)));
        s.presence.left(now, owed);
    }

    /// A connection that only keeps files open has ended.
    pub(crate) fn lifeline_ended(&self, line: Lifeline, linger: Nanos) {
        let release = |handle, linger| self.job.handles.release(handle, linger);
        let left = self.lock().files.untied(line, linger, release);
        // Closed outside of any lock: that can take its time.
        drop(left);
    }

    fn owes(&self) -> bool {
        let s = self.lock();
        s.presence.is_owed(s.busy())
    }

    /// Whether a node that drains should wait for a client that says nothing: it holds what cannot be
    /// moved, or something of it is being carried out.
    pub(crate) fn holds_on(&self) -> bool {
        let who = acting::identity(self.job.whom());
        let s = self.lock();
        let locked = s.locks.values().any(|l| !l.is_idle());
        holds_on(s.busy(), locked, s.files.all().map(|file| file.ties(who.as_deref())))
    }

    /// Gives up all it holds; `keep`: but for its files, while forked processes may adopt them.
    fn leave(&self, linger: Option<Nanos>, keep: bool) -> Holdings {
        let mut s = self.lock();
        s.gone = true;
        let release = |handle, linger| self.job.handles.release(handle, linger);
        let files = s.files.leave(linger, keep, release);
        Holdings {
            _files: files,
            _locks: s.locks.drain().map(|(_, l)| l).collect(),
            connections: s.connections.drain(..).filter_map(|c| c.upgrade()).collect(),
            session: None,
        }
    }
}

impl State {
    /// Whether something of it is being carried out.
    fn busy(&self) -> bool {
        self.running > 0 || self.writes.are_running()
    }
}

/// All sessions of the node, by job and id.
#[derive(Default)]
pub(crate) struct Sessions {
    table: Mutex<HashMap<(FlowId, SessionId), Arc<Session>>>,
}

/// Who wants a session, as proved in the handshake.
pub(crate) struct Arrival {
    pub(crate) job: Arc<Job>,
    pub(crate) id: SessionId,
    pub(crate) pid: u32,
    pub(crate) client: Arc<Client>,
    pub(crate) admin: bool,
    pub(crate) stamp: u64,
    pub(crate) lease: Nanos,
    /// The connection only keeps the session's files open.
    pub(crate) lifeline: bool,
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<(FlowId, SessionId), Arc<Session>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins a connection to its session, which is new (`false`) or was still here (`true`); perhaps as a lifeline.
    pub(crate) fn join(
        &self,
        who: Arrival,
        link: &Arc<Link>,
        now: Nanos,
    ) -> (Arc<Session>, bool, Option<Lifeline>) {
        let mut table = self.lock();
        let key = (who.job.flow(), who.id);
        let found = table.get(&key).map(Arc::clone);
        let resumed = found.is_some();
        let session = found.unwrap_or_else(|| Arc::new(Session::new(&who, now)));
        let mut s = session.lock();
        s.lease.observe(now, Nanos(who.stamp));
        let line = who.lifeline.then(|| s.files.tied());
        if line.is_none() {
            s.connections.push(Arc::downgrade(link));
            s.presence.joined();
        }
        drop(s);
        if !resumed {
            session.counted.began();
            table.insert(key, Arc::clone(&session));
        }
        (session, resumed, line)
    }

    /// The client said goodbye.
    pub(crate) fn leave(&self, session: &Arc<Session>, linger: Option<Nanos>) -> Holdings {
        self.lock().retain(|_, s| !Arc::ptr_eq(s, session));
        session.leave(linger, linger.is_some())
    }

    /// Releases the sessions whose clients have been away for longer than `grace`, but for those whose
    /// requests are still being carried out: their clients may come for the answers.
    pub(crate) fn expire(&self, now: Nanos, grace: Nanos) -> Vec<Holdings> {
        let mut table = self.lock();
        let away = |s: &Session| {
            let s = s.lock();
            s.presence.is_over(now, grace, s.busy())
        };
        let due: Vec<_> = table.extract_if(|_, s| away(s)).map(|(_, s)| s).collect();
        drop(table);
        for s in &due {
            tracing::debug!(
                "a session is given up: job {}, process {}, away too long",
                s.job.stats.job,
                s.pid
            );
        }
        due.into_iter().map(|s| Holdings { session: Some(Arc::clone(&s)), ..s.leave(None, true) }).collect()
    }

    /// Who, besides `except`, holds a lock on the file that is in the way, and which.
    pub(crate) fn lock_holder(
        &self,
        identity: u64,
        wanted: &LockRange,
        except: &Arc<Session>,
    ) -> Option<(LockRange, u32)> {
        let table = self.lock();
        let mut others = table.values().filter(|s| !Arc::ptr_eq(s, except));
        others.find_map(|s| Some((s.lock_in_the_way(identity, wanted)?, s.pid)))
    }

    /// Whether a node that drains should wait for a client that is not connected.
    pub(crate) fn owe(&self) -> bool {
        self.lock().values().any(|s| s.owes())
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }
}
