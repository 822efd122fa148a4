//! Sessions: what one client process holds on this node, across its connections, and the jobs they
//! belong to.

use crate::fail::{Failure, Outcome};
use crate::file::{Handles, LockFile, OpenFile};
use crate::link::Link;
use crate::stats::FlowStats;
use forebay_types::{ClientId, Epoch, FlowId, Nanos};
use forebay_wire::frame::{Header, flag};
use forebay_wire::hello::SessionId;
use forebay_wire::session::lease::Lease;
use forebay_wire::session::replies::{Known, Replies};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// How long a repeated request waits for the first one's answer.
const RUNNING_PATIENCE: Duration = Duration::from_secs(5);

/// How many repeated writes a session remembers: more than a client can have unanswered at once.
const KEPT_TRIES: usize = 256;

/// One job: its flow, its counters and its open files.
pub(crate) struct Job {
    pub(crate) stats: FlowStats,
    pub(crate) handles: Handles,
    epoch: AtomicU64,
    /// The addresses of its I/O nodes, as of `epoch`.
    nodes: Mutex<Arc<[String]>>,
}

impl Job {
    pub(crate) fn new(flow: FlowId, name: &str) -> Job {
        Job {
            stats: FlowStats::new(flow, name.to_owned()),
            handles: Handles::default(),
            epoch: AtomicU64::new(0),
            nodes: Mutex::new(Arc::from([])),
        }
    }

    pub(crate) fn flow(&self) -> FlowId {
        self.stats.flow
    }

    /// The version of its mapping: every reply tells it.
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Relaxed))
    }

    /// Where its clients belong.
    pub(crate) fn mapping(&self) -> (Epoch, Arc<[String]>) {
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        (self.epoch(), Arc::clone(&nodes))
    }

    /// Where its clients belong from now on, unless something newer is known.
    pub(crate) fn remap(&self, epoch: Epoch, to: &[String]) {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if epoch > self.epoch() {
            *nodes = to.into();
            self.epoch.store(epoch.0, Relaxed);
        }
    }
}

/// One client process.
pub(crate) struct Session {
    pub(crate) job: Arc<Job>,
    pub(crate) pid: u32,
    /// The process, as the pattern metrics tell processes apart.
    pub(crate) client: ClientId,
    /// May change the node's parameters.
    pub(crate) admin: bool,
    state: Mutex<State>,
    answered: Condvar,
}

struct State {
    lease: Lease,
    files: HashMap<u64, Arc<OpenFile>, foldhash::fast::RandomState>,
    locks: HashMap<(u64, u64), Arc<LockFile>>,
    replies: Replies,
    /// Writes that are being carried out, by request id.
    writing: Vec<u64>,
    /// Writes that were sent more than once: the newest try of each.
    tries: VecDeque<(u64, u64)>,
    /// How many threads wait on `answered`: waking nobody would cost a system call, too.
    waiting: u32,
    connections: Vec<Weak<Link>>,
    /// When the last connection broke.
    alone_since: Option<Nanos>,
    gone: bool,
}

/// What a session held; dropping it closes files and releases locks.
#[derive(Default)]
pub(crate) struct Left {
    _files: Vec<Arc<OpenFile>>,
    _locks: Vec<Arc<LockFile>>,
    pub(crate) connections: Vec<Arc<Link>>,
}

impl Session {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A frame stamped `stamp` came at `now`.
    pub(crate) fn observe(&self, now: Nanos, stamp: u64) {
        self.lock().lease.observe(now, Nanos(stamp));
    }

    /// As [`Session::observe`], and the open file of `handle`.
    pub(crate) fn observe_and_find(&self, now: Nanos, stamp: u64, handle: u64) -> Outcome<Arc<OpenFile>> {
        let mut s = self.lock();
        s.lease.observe(now, Nanos(stamp));
        s.files.get(&handle).cloned().ok_or(Failure::STALE)
    }

    /// The open file of `handle`.
    pub(crate) fn find(&self, handle: u64) -> Outcome<Arc<OpenFile>> {
        self.lock().files.get(&handle).cloned().ok_or(Failure::STALE)
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
    pub(crate) fn begin_write(&self, link: &Link, header: &Header, now: Nanos) -> Outcome<()> {
        let id = header.id.get();
        // Later tries are older requests; the first one has no age.
        let this = if header.has(flag::REPLAY) { u64::from(header.age_ms.get()) + 1 } else { 0 };
        let mut s = self.lock();
        if !s.lease.holds(now, link.newest_stamp()) {
            return Err(Failure::EXPIRED);
        }
        if s.tries.iter().any(|&(other, newest)| other == id && newest > this) {
            return Err(Failure::EXPIRED);
        }
        if this > 0 {
            s.tries.retain(|&(other, _)| other != id);
            if s.tries.len() == KEPT_TRIES {
                s.tries.pop_front();
            }
            s.tries.push_back((id, this));
            s.waiting += 1;
            let (mut after, timeout) = self
                .answered
                .wait_timeout_while(s, RUNNING_PATIENCE, |s| s.writing.contains(&id))
                .unwrap_or_else(PoisonError::into_inner);
            after.waiting -= 1;
            if timeout.timed_out() {
                return Err(Failure::new(
                    Errno::IO,
                    "the request's first try is still running on this I/O node",
                ));
            }
            s = after;
        }
        s.writing.push(id);
        Ok(())
    }

    /// A write that [`Session::begin_write`] let through has been carried out.
    pub(crate) fn end_write(&self, header: &Header) {
        let mut s = self.lock();
        if let Some(at) = s.writing.iter().position(|&id| id == header.id.get()) {
            s.writing.swap_remove(at);
        }
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
        s.files.insert(handle, file);
        Ok(handle)
    }

    /// Takes a reference to a file of another session of the job.
    pub(crate) fn adopt(&self, handle: u64, per_session: usize) -> Outcome<Arc<OpenFile>> {
        let mut s = self.lock();
        if let Some(file) = s.files.get(&handle) {
            return Ok(Arc::clone(file));
        }
        if s.gone || s.files.len() >= per_session {
            return Err(Failure::new(Errno::MFILE, "too many open files on this I/O node"));
        }
        let file = self.job.handles.adopt(handle).ok_or(Failure::STALE)?;
        s.files.insert(handle, Arc::clone(&file));
        Ok(file)
    }

    /// Drops the session's reference, and as `close(2)` does the process's locks on the file.
    pub(crate) fn close(&self, handle: u64, linger: Option<Nanos>) -> Outcome<()> {
        let mut s = self.lock();
        let file = s.files.remove(&handle).ok_or(Failure::STALE)?;
        let locks = if s.locks.is_empty() { None } else { s.locks.remove(&(file.dev, file.ino)) };
        let last = self.job.handles.release(handle, linger);
        drop(s);
        drop((file, locks, last));
        Ok(())
    }

    /// The descriptor for the process's locks on the file.
    pub(crate) fn lock_file(&self, file: &OpenFile) -> Outcome<Arc<LockFile>> {
        let key = (file.dev, file.ino);
        if let Some(found) = self.lock().locks.get(&key) {
            return Ok(Arc::clone(found));
        }
        let new = Arc::new(LockFile::new(file)?);
        let mut s = self.lock();
        if s.gone {
            return Err(Failure::STALE);
        }
        Ok(Arc::clone(s.locks.entry(key).or_insert(new)))
    }

    fn locks_on(&self, file: &OpenFile) -> bool {
        self.lock().locks.contains_key(&(file.dev, file.ino))
    }

    /// Notes a request that must not be done twice. `Some` is the answer it already had.
    pub(crate) fn begin(&self, id: u64) -> Outcome<Option<Vec<u8>>> {
        let mut s = self.lock();
        match s.replies.begin(id) {
            Known::New => return Ok(None),
            Known::Answered(frame) => return Ok(Some(frame.to_vec())),
            Known::Running => s.waiting += 1,
        }
        let (mut s, timeout) = self
            .answered
            .wait_timeout_while(s, RUNNING_PATIENCE, |s| matches!(s.replies.begin(id), Known::Running))
            .unwrap_or_else(PoisonError::into_inner);
        s.waiting -= 1;
        if timeout.timed_out() {
            return Err(Failure::new(Errno::IO, "the request's first try is still running on this I/O node"));
        }
        match s.replies.begin(id) {
            Known::Answered(frame) => Ok(Some(frame.to_vec())),
            // The wait above noted it as new: the first try turned out not to have been made.
            Known::New | Known::Running => Ok(None),
        }
    }

    /// The outcome of a request that [`Session::begin`] noted; `None`: it was not carried out.
    pub(crate) fn end(&self, id: u64, frame: Option<&[u8]>) {
        let mut s = self.lock();
        match frame {
            Some(frame) => s.replies.answered(id, frame.to_vec()),
            None => s.replies.forget(id),
        }
        let waiting = s.waiting;
        drop(s);
        if waiting > 0 {
            self.answered.notify_all();
        }
    }

    /// A connection ended.
    pub(crate) fn disconnected(&self, link: &Arc<Link>, now: Nanos) {
        let mut s = self.lock();
        s.connections.retain(|c| !std::ptr::eq(c.as_ptr(), Arc::as_ptr(link)));
        if s.connections.is_empty() {
            s.alone_since = Some(now);
        }
    }

    /// Gives up all it holds.
    fn leave(&self, linger: Option<Nanos>) -> Left {
        let mut s = self.lock();
        s.gone = true;
        let mut files: Vec<Arc<OpenFile>> = Vec::new();
        for (handle, file) in s.files.drain() {
            files.push(file);
            files.extend(self.job.handles.release(handle, linger));
        }
        Left {
            _files: files,
            _locks: s.locks.drain().map(|(_, l)| l).collect(),
            connections: s.connections.drain(..).filter_map(|c| c.upgrade()).collect(),
        }
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
    pub(crate) admin: bool,
    pub(crate) stamp: u64,
    pub(crate) lease: Nanos,
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<(FlowId, SessionId), Arc<Session>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins a connection to its session, which is new (`false`) or was still here (`true`).
    pub(crate) fn join(&self, who: Arrival, link: &Arc<Link>, now: Nanos) -> (Arc<Session>, bool) {
        let mut table = self.lock();
        let key = (who.job.flow(), who.id);
        if let Some(session) = table.get(&key) {
            let mut s = session.lock();
            s.lease.observe(now, Nanos(who.stamp));
            s.connections.push(Arc::downgrade(link));
            s.alone_since = None;
            drop(s);
            return (Arc::clone(session), true);
        }
        let session = Arc::new(Session {
            job: who.job,
            pid: who.pid,
            client: ClientId(foldhash::fast::FixedState::default().hash_one(who.id)),
            admin: who.admin,
            state: Mutex::new(State {
                lease: Lease::new(who.lease, now, Nanos(who.stamp)),
                files: HashMap::default(),
                locks: HashMap::default(),
                replies: Replies::default(),
                waiting: 0,
                writing: Vec::new(),
                tries: VecDeque::new(),
                connections: vec![Arc::downgrade(link)],
                alone_since: None,
                gone: false,
            }),
            answered: Condvar::new(),
        });
        table.insert(key, Arc::clone(&session));
        (session, false)
    }

    /// The client said goodbye.
    pub(crate) fn leave(&self, session: &Arc<Session>, linger: Option<Nanos>) -> Left {
        self.lock().retain(|_, s| !Arc::ptr_eq(s, session));
        session.leave(linger)
    }

    /// Releases the sessions whose clients have been away for longer than `grace`.
    pub(crate) fn expire(&self, now: Nanos, grace: Nanos) -> Vec<Left> {
        let mut table = self.lock();
        let away = |s: &Session| s.lock().alone_since.is_some_and(|since| now.since(since) >= grace);
        let due: Vec<_> = table.extract_if(|_, s| away(s)).map(|(_, s)| s).collect();
        drop(table);
        due.iter().map(|s| s.leave(None)).collect()
    }

    /// The process id of the one session that holds byte-range locks on the file, besides `except`.
    pub(crate) fn lock_holder(&self, file: &OpenFile, except: &Arc<Session>) -> Option<u32> {
        let table = self.lock();
        let mut holders = table.values().filter(|s| !Arc::ptr_eq(s, except) && s.locks_on(file));
        let first = holders.next()?;
        holders.next().is_none().then_some(first.pid)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }
}
