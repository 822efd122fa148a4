//! The client: which node, which connection, and what to do when the answer does not come.

use crate::call::{Body, On, Request, TURN};
use crate::config::{Config, ConfigError};
use crate::counters::{Counters, OpIndex};
use crate::error::Error;
use crate::file::File;
use crate::files::{Done, FileCounters};
use crate::guarded::Tried;
use crate::later::Ring;
use crate::lifeline::Lifelines;
use crate::pool::Pool;
use crate::seen::Posted;
use crate::sys;
use crate::trace::Tracer;
use crate::transfer::Data;
use forebay_types::{Address, Epoch, Seat, Secret, Task};
use forebay_wire::flags::OpenFlags;
use forebay_wire::frame::{HEADER_LEN, Header, Opcode};
use forebay_wire::hello::SessionId;
use forebay_wire::message::{Answer, Attr, Meta, Path};
use forebay_wire::session::board::Still;
use forebay_wire::session::call::Kind;
use forebay_wire::session::news::News;
use forebay_wire::session::nodes::Nodes;
use forebay_wire::session::place::has_no_name;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// Closes of clean files that wait for the next request to travel with.
const MAX_PENDING: usize = 16;

/// One process's way to the I/O nodes.
pub struct Client {
    pub(crate) config: Config,
    pub(crate) secret: Secret,
    pub(crate) session: SessionId,
    pub(crate) host: String,
    pub(crate) task: Option<Task>,
    pub(crate) pool: Pool,
    pub(crate) next_id: AtomicU64,
    pub(crate) nodes: Nodes<&'static Address>,
    pub(crate) lifelines: Lifelines,
    pending: Mutex<Vec<PendingClose>>,
    pending_count: AtomicUsize,
    /// How often the process has forked.
    forks: AtomicUsize,
    /// Open files were sent to processes that are no children.
    passed: AtomicBool,
    /// The process acts for another user than the one whom the nodes serve.
    pub(crate) foreign: AtomicBool,
    /// No node shares memory with this process.
    pub(crate) unshared: AtomicBool,
    /// The process that the newest connection leads to, by a part of its incarnation.
    pub(crate) serving: AtomicU64,
    /// When that was last seen to live, in nanoseconds.
    pub(crate) looked: AtomicU64,
    /// What the node of this host tells of changes to files.
    pub(crate) board: Posted,
    /// What is done later to files that this process makes.
    pub(crate) ring: Tried<Ring>,
    pub(crate) news: News,
    /// When the configuration was last read again, in nanoseconds.
    pub(crate) reread: AtomicU64,
    /// How nodes want what this process uses to be protected, as far as they have said so.
    pub(crate) asked: AtomicU8,
    pub(crate) counters: Option<&'static Counters>,
    pub(crate) files: Option<&'static FileCounters>,
    pub(crate) tracer: Option<Tracer>,
}

/// A file that a node has opened.
pub(crate) struct Opened {
    pub(crate) node: usize,
    pub(crate) handle: u64,
    pub(crate) attr: Attr,
    pub(crate) identity: u64,
    /// How long that holds, all that is in the file, and whether it may be written later.
    pub(crate) seen: Option<(Still, Option<Vec<u8>>, bool)>,
}

struct PendingClose {
    node: usize,
    id: u64,
    frame: Vec<u8>,
}

impl Client {
    /// A client for this process. It connects when it is first needed.
    pub fn new(config: Config, counters: Option<&'static Counters>) -> Result<Client, ConfigError> {
        let ours = |dir: &'_ Option<PathBuf>| dir.clone().filter(|_| !config.outside);
        let files = ours(&config.files).and_then(|dir| FileCounters::open(&dir).ok());
        let tracer = ours(&config.trace).and_then(|dir| Tracer::open(&dir));
        Client::counting(config, counters, files, tracer)
    }

    fn counting(
        mut config: Config,
        counters: Option<&'static Counters>,
        files: Option<&'static FileCounters>,
        tracer: Option<Tracer>,
    ) -> Result<Client, ConfigError> {
        let secret = config.check()?;
        let host = config.host.clone().unwrap_or_else(sys::hostname);
        let env = |name: &str| std::env::var(name).ok().filter(|_| !config.outside);
        let task = Task::find(config.starter, env);
        let streams = env("FOREBAY_STREAMS").unwrap_or_default();
        config.share &= streams != "off";
        config.stage &= !matches!(&*streams, "off" | "reads");
        let seat = config.seat(&host, task).unwrap_or(Seat::Turn(sys::pid() as usize));
        let nodes = Nodes::new(config.epoch, &known(&config.nodes), &known(&config.spare), seat);
        for address in &known(&config.down) {
            nodes.mark_down(nodes.index(address), sys::now());
        }
        Ok(Client {
            secret,
            session: SessionId::of_run(sys::random16(), config.run),
            host,
            task,
            pool: Pool::new(),
            next_id: AtomicU64::new(1),
            nodes,
            lifelines: Lifelines::default(),
            pending: Mutex::new(Vec::new()),
            pending_count: AtomicUsize::new(0),
            forks: AtomicUsize::new(0),
            passed: AtomicBool::new(false),
            foreign: AtomicBool::new(false),
            unshared: AtomicBool::new(false),
            serving: AtomicU64::new(0),
            looked: AtomicU64::new(0),
            board: Posted::default(),
            ring: Tried::default(),
            news: News::default(),
            reread: AtomicU64::new(0),
            asked: AtomicU8::new(0),
            counters,
            files,
            tracer,
            config,
        })
    }

    /// For a forked child: a client of its own with the same configuration. The parent's connections
    /// are closed in this process.
    ///
    /// # Safety
    /// The calling thread must be the only one of the process, as it is after `fork`.
    pub unsafe fn after_fork(&self) -> Client {
        // SAFETY: as the caller promises.
        unsafe { self.pool.forget() };
        let tracer = self.tracer.as_ref().map(Tracer::inherit);
        let mut child = Client::counting(self.config.clone(), self.counters, self.files, tracer)
            .expect("the parent checked it");
        child.nodes = self.nodes.clone();
        // Where hosts have their I/O nodes, workers stay with their host's.
        if self.config.hosts.is_empty() {
            child.nodes.fork(self.forks.load(Ordering::Relaxed));
        }
        child.asked = AtomicU8::new(self.asked.load(Ordering::Relaxed));
        child.lifelines = self.lifelines.inherit();
        child.board = self.board.inherit();
        child
    }

    /// Which process of a parallel program this is.
    pub fn task(&self) -> Option<Task> {
        self.task
    }

    /// The configuration it was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The version of the mapping it follows.
    pub fn epoch(&self) -> Epoch {
        self.nodes.epoch()
    }

    /// Whether `fd` is one of its sockets.
    pub fn owns_fd(&self, fd: i32) -> bool {
        fd >= 0 && (self.pool.owns_fd(fd) || self.lifelines.owns_fd(fd))
    }

    /// Its sockets.
    pub fn fds(&self) -> Vec<i32> {
        let mut fds = self.pool.fds();
        fds.extend(self.lifelines.fds());
        fds
    }

    /// For a program that may close descriptors behind this client's back: those that are not its own any more are not
    /// used again.
    pub fn check_fds(&self) {
        self.pool.check();
    }

    /// The program wants the descriptor number `fd`: moves a socket that has it.
    pub fn vacate_fd(&self, fd: i32) {
        self.pool.for_each_idle(|t| t.relocate(fd));
        self.lifelines.vacate(fd);
    }

    /// Opens or creates a file.
    pub fn open(&self, path: Path<'_>, flags: OpenFlags, mode: u32) -> Result<(File, Attr), Error> {
        let begun = self.noted();
        let later = flags.without(OpenFlags::CREATE | OpenFlags::EXCL | OpenFlags::TRUNC);
        let asked = if self.may_see_board() { flags | OpenFlags::SEEN } else { flags };
        let started = sys::now();
        let mut opened = self.open_on_some(path, asked, mode, 0)?;
        if let Err((maker, identity)) = opened {
            // A node made it and is gone: it is opened by its name, if that still is the same file.
            if flags.has(OpenFlags::TMPFILE) || identity == 0 {
                return Err(Error::local(libc::EIO));
            }
            opened = self.open_on_some(path, later, 0, identity).map_err(|e| match e {
                // It was made, and somebody else has removed or replaced it since.
                Error::Refused { errno, .. } if has_no_name(errno) => {
                    Error::Lost((*self.nodes.address(maker)).clone())
                }
                e => e,
            })?;
        }
        let (file, attr) = self.file_of(path, later, opened.map_err(|_| Error::local(libc::EIO))?, started);
        let emptied = flags.has(OpenFlags::EXCL) || flags.has(OpenFlags::TRUNC);
        let made = emptied || flags.has(OpenFlags::CREATE) && attr.size == 0;
        if made && flags.has(OpenFlags::WRITE) {
            self.made_file();
        }
        self.did(&file, begun, Done::Opened);
        Ok((file, attr))
    }

    /// `Err` inside: it was made by this node, which is gone, with this identity.
    pub(crate) fn open_on_some(
        &self,
        path: Path<'_>,
        flags: OpenFlags,
        mode: u32,
        identity: u64,
    ) -> Result<Result<Opened, (usize, u64)>, Error> {
        let op = Meta::Open { path, flags, mode, identity };
        let mut body = Vec::with_capacity(path.rel.len() + 24);
        op.encode(&mut body);
        let request = Request::meta(&op, Body::Bytes(&body));
        self.call(OpIndex::meta(&op), On::Names, request, None, |served, header, answer| {
            let node = served.node;
            match Answer::decode(answer) {
                Ok(Answer::Opened { handle, attr, identity, seen }) => {
                    let seen = seen.map(|s| (s.still, s.contents.map(<[u8]>::to_vec), s.later));
                    Ok(Ok(Opened { node, handle, attr, identity, seen }))
                }
                Ok(Answer::Done) => Ok(Err((node, header.offset.get()))),
                _ => Err(self.nonsense(node)),
            }
        })
    }

    /// Closes a file. When nothing was written or locked through it there is no outcome to wait for,
    /// and the close travels with the next request.
    pub fn close(&self, file: &File) -> Result<(), Error> {
        let begun = self.noted();
        // The close itself has it done.
        let owed = self.owed(file);
        let settled = self.settle(file);
        // A thread that is opening it elsewhere does so for somebody who still reads: it is let finish,
        // and nobody opens it again after that.
        let started = sys::now();
        let alone = loop {
            match file.begin_move() {
                None if sys::now().since(started) < self.limit() => drop(sys::nap(TURN)),
                alone => break alone,
            }
        };
        if !file.set_closed() {
            return Ok(());
        }
        drop(alone);
        let closed = self.close_lanes(file).and(self.close_place(file));
        let done = owed.map_or(Ok(()), |upto| self.is_done(file, upto));
        if file.is_shared() && !self.passed.load(Ordering::Relaxed) {
            self.lifelines.let_go();
        }
        file.leave_common();
        self.did(file, begun, Done::Closed);
        settled.and(closed).and(done)
    }

    /// As [`Client::close`], where nobody is told an error (`dup2` says none): what was written and is lost is counted as
    /// a failed write.
    pub fn close_unheard(&self, file: &File) -> Result<(), Error> {
        let (owes, started) = (file.streams.owes(), sys::now());
        let closed = self.close(file).map(|()| 0);
        if owes && closed.is_err() {
            self.count(OpIndex::WRITE, started, &closed);
        }
        closed.map(drop)
    }

    fn close_place(&self, file: &File) -> Result<(), Error> {
        let place = file.place();
        if place.session != self.session {
            return Ok(());
        }
        let op = Meta::Close { handle: place.handle };
        let mut body = Vec::with_capacity(16);
        op.encode(&mut body);
        // What others may have locked, or hold too, is closed now: this process may have nothing to say for
        // long.
        if !file.is_dirty() && !file.is_shared() && self.defer_close(place.node, &body) {
            return Ok(());
        }
        let locked = file.ties().locked;
        // A lock that went with its node is told; of other things a close has nothing to say then.
        let gone = || match locked || file.hears_of_loss() {
            true => Err(Error::LockLost(place.address.clone())),
            false => Ok(()),
        };
        if self.nodes.is_down(place.node, sys::now()) {
            return gone();
        }
        let request = Request { linger: file.is_shared(), ..Request::meta(&op, Body::Bytes(&body)) };
        match self.call(OpIndex::meta(&op), On::Node(place.node), request, None, |_, _, _| Ok(())) {
            // Every write was acknowledged; a node that died since took only its handle with it, and
            // one that was started again does not know it. What its host's kernel has not written yet
            // is the business of `fsync`, as it would be here.
            Err(Error::NoNode { .. } | Error::Protocol(..) | Error::StaleHandle) => gone(),
            other => other,
        }
    }

    fn defer_close(&self, node: usize, body: &[u8]) -> bool {
        // Never waits: a signal handler or a forked child may be here.
        let Ok(mut pending) = self.pending.try_lock() else { return false };
        if pending.len() >= MAX_PENDING {
            return false;
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut header = Header::request(Opcode::Meta, id, body.len() as u32);
        header.stamp = sys::now().0.into();
        let mut frame = Vec::with_capacity(HEADER_LEN + body.len());
        frame.extend_from_slice(header.as_bytes());
        frame.extend_from_slice(body);
        pending.push(PendingClose { node, id, frame });
        self.pending_count.store(pending.len(), Ordering::Relaxed);
        if let Some(c) = self.counters {
            c.add(OpIndex::meta(&Meta::Close { handle: 0 }), 0, 0, false);
        }
        true
    }

    pub(crate) fn take_pending(&self, node: usize) -> Vec<(u64, Vec<u8>)> {
        if self.pending_count.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let Ok(mut pending) = self.pending.try_lock() else { return Vec::new() };
        let mut mine = Vec::new();
        pending.retain_mut(|p| {
            if p.node == node {
                mine.push((p.id, std::mem::take(&mut p.frame)));
            }
            p.node != node
        });
        self.pending_count.store(pending.len(), Ordering::Relaxed);
        mine
    }

    /// Whether closes wait for a request to `node`.
    pub(crate) fn has_pending(&self, node: usize) -> bool {
        self.pending_count.load(Ordering::Relaxed) != 0
            && self.pending.try_lock().is_ok_and(|pending| pending.iter().any(|p| p.node == node))
    }

    /// Closes that may not have reached `node`. One that did is not known there a second time.
    pub(crate) fn put_pending_back(&self, node: usize, closes: Vec<(u64, Vec<u8>)>) {
        if closes.is_empty() {
            return;
        }
        let Ok(mut pending) = self.pending.try_lock() else { return };
        let room = MAX_PENDING.saturating_sub(pending.len());
        pending.extend(closes.into_iter().take(room).map(|(id, frame)| PendingClose { node, id, frame }));
        self.pending_count.store(pending.len(), Ordering::Relaxed);
    }

    /// Reads at an offset; fewer bytes than asked for means the end of the file.
    pub fn pread(&self, file: &File, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        let begun = self.noted();
        let got = self.read_at(file, buf, offset);
        if let Ok(n) = got {
            self.did(file, begun, Done::Read { offset, bytes: n as u64 });
        }
        got
    }

    fn read_at(&self, file: &File, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        if let Some(got) = self.read_stream(file, buf, offset) {
            return got;
        }
        if buf.len() > forebay_wire::MAX_DATA as usize {
            return self.transfer(file, offset, Data::In(buf));
        }
        let lane = self.lane(file, offset, buf.len());
        self.read_piece(&mut self.begin(Kind::Look, sys::now()), lane, buf, offset)
    }

    /// Writes at an offset.
    pub fn pwrite(&self, file: &File, data: &[u8], offset: u64) -> Result<usize, Error> {
        file.late()?;
        let begun = self.noted();
        let streamed = self.write_stream(file, data, offset);
        let early = streamed.or_else(|| self.write_later(file, data, offset));
        let done = early.unwrap_or_else(|| self.write_at(file, data, offset));
        if let Ok(n) = done {
            self.did(file, begun, Done::Written { offset, bytes: n as u64 });
        }
        done
    }

    pub(crate) fn write_at(&self, file: &File, data: &[u8], offset: u64) -> Result<usize, Error> {
        file.mark_dirty();
        if data.len() > forebay_wire::MAX_DATA as usize {
            return self.transfer(file, offset, Data::Out(data));
        }
        let lane = self.lane(file, offset, data.len());
        let done = self.write_piece(&mut self.begin(Kind::Again, sys::now()), lane, data, offset);
        file.gather(lane);
        done
    }

    /// Writes at the end. Returns how much, and where the last of it ended.
    pub fn append(&self, file: &File, data: &[u8]) -> Result<(usize, u64), Error> {
        file.late()?;
        file.mark_dirty();
        let begun = self.noted();
        let n = self.write_chunks(data, |chunk, _| {
            let offset = file.end.load(Ordering::Relaxed);
            let body = Body::Bytes(chunk);
            let kind = Kind::Once;
            let request =
                Request { opcode: Opcode::Append, offset, length: 0, body, kind, linger: false, look: false };
            self.call(OpIndex::APPEND, On::File(file), request, None, |served, header, _| {
                let n = (header.length.get() as usize).min(chunk.len());
                file.mark_unsynced(served.host);
                file.end.store(header.offset.get().saturating_add(n as u64), Ordering::Relaxed);
                Ok(n)
            })
        })?;
        let end = file.end.load(Ordering::Relaxed);
        self.did(file, begun, Done::Written { offset: end.saturating_sub(n as u64), bytes: n as u64 });
        Ok((n, end))
    }

    fn nonsense(&self, node: usize) -> Error {
        Error::Protocol(
            (*self.nodes.address(node)).clone(),
            "an answer that does not fit the question".into(),
        )
    }

    fn write_chunks(
        &self,
        data: &[u8],
        mut send: impl FnMut(&[u8], usize) -> Result<usize, Error>,
    ) -> Result<usize, Error> {
        let max = forebay_wire::MAX_DATA as usize;
        let mut done = 0;
        loop {
            let chunk = &data[done..data.len().min(done + max)];
            match send(chunk, done) {
                Ok(n) => {
                    done += n;
                    if n < chunk.len() || done == data.len() {
                        return Ok(done);
                    }
                }
                Err(e) if done == 0 => return Err(e),
                Err(_) => return Ok(done),
            }
        }
    }

    /// A metadata operation on names.
    pub fn meta<T>(&self, op: Meta<'_>, answer: impl FnOnce(Answer<'_>) -> Option<T>) -> Result<T, Error> {
        let mut body = Vec::with_capacity(64);
        op.encode(&mut body);
        let begun = self.noted();
        let done =
            self.answered(OpIndex::meta(&op), On::Names, Request::meta(&op, Body::Bytes(&body)), answer)?;
        self.did_rename(&op, begun);
        Ok(done)
    }

    /// A metadata operation on an open file: `op` is given its handle.
    pub fn meta_on<'m, T>(
        &self,
        file: &File,
        op: impl Fn(u64) -> Meta<'m>,
        answer: impl FnOnce(Answer<'_>) -> Option<T>,
    ) -> Result<T, Error> {
        let shape = op(0);
        if let Meta::Fsync { data_only, .. } = shape {
            let begun = self.noted();
            // The node does what was put off before it syncs.
            let owed = self.owed(file);
            let settled = self.settle(file);
            let synced = settled.and_then(|()| self.sync(file, data_only));
            let done = owed.map_or(Ok(()), |upto| self.is_done(file, upto));
            synced.and(done)?;
            self.did(file, begun, Done::Synced { data_only });
            return answer(Answer::Done).ok_or_else(|| Error::local(libc::EIO));
        }
        if let Some(put_off) = self.set_later(file, &shape) {
            put_off?;
            return answer(Answer::Done).ok_or_else(|| Error::local(libc::EIO));
        }
        // The handle changes when the file moves: then the message is built anew.
        let build = |handle: u64, out: &mut Vec<u8>| op(handle).encode(out);
        let request = Request::meta(&shape, Body::ForHandle(&build));
        self.answered(OpIndex::meta(&shape), On::File(file), request, answer)
    }

    pub(crate) fn answered<T>(
        &self,
        op: OpIndex,
        on: On<'_>,
        request: Request<'_>,
        answer: impl FnOnce(Answer<'_>) -> Option<T>,
    ) -> Result<T, Error> {
        let mut answer = Some(answer);
        self.call(op, on, request, None, |served, _, bytes| {
            if let On::File(file) = on
                && request.kind != Kind::Look
            {
                file.mark_dirty();
                file.mark_unsynced(served.host);
            }
            Answer::decode(bytes)
                .ok()
                .and_then(|a| answer.take().and_then(|f| f(a)))
                .ok_or_else(|| self.nonsense(served.node))
        })
    }

    /// The JSON answer to a control request, from the node at `node`.
    pub fn control(&self, node: usize, request: &[u8]) -> Result<Vec<u8>, Error> {
        let body = Body::Bytes(request);
        let kind = Kind::Look;
        let request =
            Request { opcode: Opcode::Control, offset: 0, length: 0, body, kind, linger: false, look: false };
        self.call(OpIndex::CONTROL, On::Node(node), request, None, |_, _, body| Ok(body.to_vec()))
    }

    /// The process forks: its child may use what is open now after this process has closed it or
    /// has ended. The files themselves are told by [`File::set_shared`].
    pub fn note_fork(&self) {
        self.forks.fetch_add(1, Ordering::Relaxed);
        self.tie_lifelines();
    }

    /// Whether the process acts for another user than the one it began as. Names are then refused: the
    /// nodes would do it with the rights of the first one.
    pub fn set_foreign(&self, foreign: bool) {
        self.foreign.store(foreign, Ordering::Relaxed);
    }

    /// Whether there is a connection that nobody uses now: what is asked next needs no descriptor.
    pub fn is_connected(&self) -> bool {
        let mut connected = false;
        self.pool.for_each_idle(|taken| connected |= taken.conn().is_some());
        connected
    }

    /// Open files are sent to a process that is no child: it holds no lifeline, so this one keeps its own.
    pub fn note_pass(&self) {
        self.passed.store(true, Ordering::Relaxed);
        self.note_fork();
    }

    /// The process ends: takes leave of the nodes, which closes what is open there.
    pub fn leave(&self) {
        let linger = self.forks.load(Ordering::Relaxed) > 0;
        self.pool.for_each_idle(|taken| {
            if let Some(conn) = taken.conn() {
                conn.goodbye(linger);
            }
            taken.drop_conn();
        });
    }
}

/// A node once known is known until the process ends.
fn known(addresses: &[Address]) -> Vec<&'static Address> {
    addresses.iter().map(|a| &*Box::leak(Box::new(a.clone()))).collect()
}
