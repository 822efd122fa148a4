//! A connection's sending side, shared by its own thread and the dispatchers, and why it ends.

use crate::buffer::Buffer;
use crate::fail::{Failure, Outcome};
use crate::file::OpenFile;
use crate::lent::Pipe;
use crate::path::Reach;
use crate::session::Session;
use crate::sys::{self, ClientMap};
use forebay_types::Nanos;
use forebay_wire::WireError;
use forebay_wire::frame::{Header, flag};
use forebay_wire::seal::{RECORD, Sealer};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, send, shutdown};
use rustix::time::Timespec;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How long one `send` may block (the socket's time-out). A dispatcher that has waited so long hands
/// the rest to a thread of the connection's own.
pub(crate) const SEND_SLICE: Duration = Duration::from_millis(50);

/// So much is sealed before it is sent: whole records.
const BATCH: usize = 2 * RECORD;

/// A client must not be slower than this, in bytes a second.
const SLOWEST: u64 = 256 << 10;

/// How long a frame of so many bytes may take to come or go, where a client may be silent for `stall`.
/// Less than others wait for memory ([`crate::buffer::Pool::take`]), so that they get it.
pub(crate) fn longest(stall: Duration, bytes: usize) -> Duration {
    stall / 2 + Duration::from_millis(bytes as u64 * 1000 / SLOWEST)
}

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stop {
    /// The client closed it.
    #[error("closed by the client")]
    Closed,
    /// The socket failed.
    #[error("the connection broke: {0}")]
    Broken(Errno),
    /// A frame was begun and not finished in time.
    #[error("the client was too slow at sending a frame, taking an answer or shaking hands")]
    Stalled,
    /// More requests unanswered than allowed.
    #[error("more requests are unanswered than the {0} the welcome allowed")]
    Credits(u32),
    /// Its user has as many connections as leave room for others.
    #[error("this I/O node has as many connections as it takes, or as it takes of one user")]
    Crowded,
    /// No memory for the payload came free in time.
    #[error("this I/O node has no memory left for the request ({0})")]
    NoMemory(Errno),
    /// The bytes make no sense.
    #[error("{0}")]
    Wire(#[from] WireError),
    /// The client said goodbye.
    #[error("goodbye")]
    Goodbye,
}

impl Stop {
    /// What the client is told, if there is anything to tell.
    pub(crate) fn errno(&self) -> Option<Errno> {
        Some(match self {
            Stop::Closed | Stop::Broken(_) | Stop::Goodbye => return None,
            Stop::Stalled => Errno::TIMEDOUT,
            Stop::Credits(_) => Errno::DQUOT,
            Stop::NoMemory(_) => Errno::NOBUFS,
            Stop::Wire(WireError::Version { .. }) => Errno::PROTONOSUPPORT,
            Stop::Crowded => Errno::USERS,
            Stop::Wire(
                WireError::Credentials
                | WireError::UnknownJob
                | WireError::NameTaken
                | WireError::Unprotected(_),
            ) => Errno::ACCESS,
            // Not the client's doing: it may come again.
            Stop::Wire(WireError::Tampered) => Errno::BADMSG,
            Stop::Wire(WireError::UnknownOpcode(_)) => Errno::OPNOTSUPP,
            Stop::Wire(WireError::TooLong { .. }) => Errno::MSGSIZE,
            Stop::Wire(_) => Errno::PROTO,
        })
    }
}

/// A frame to send that does not live in anybody's buffer.
pub(crate) enum Frame {
    Bytes(Vec<u8>),
    /// The header and so many bytes of payload.
    Buffer(Buffer, usize),
}

impl Frame {
    fn bytes(&self) -> &[u8] {
        match self {
            Frame::Bytes(b) => b,
            Frame::Buffer(b, len) => b.frame(*len),
        }
    }
}

/// A frame that waits to be sent, or its rest.
struct Queued {
    frame: Frame,
    /// The same sealed, once its turn has come. The frame stays: its memory is accounted for.
    sealed: Option<Vec<u8>>,
    from: usize,
}

impl Queued {
    /// What is still to be sent.
    fn rest(&self) -> &[u8] {
        let all = self.sealed.as_deref().unwrap_or_else(|| self.frame.bytes());
        &all[self.from..]
    }
}

/// The shared part of a connection.
pub(crate) struct Link {
    socket: OwnedFd,
    out: Mutex<Out>,
    out_free: Condvar,
    /// What is sent is sealed with this, and where it stands then. Only who is sending uses it.
    sealer: OnceLock<Mutex<(Sealer, Vec<u8>)>>,
    /// Requests received and not answered yet.
    pub(crate) unanswered: AtomicU32,
    /// When the last frame came.
    pub(crate) heard: AtomicU64,
    /// Whose it is, once that is known.
    pub(crate) session: OnceLock<Weak<Session>>,
    /// What it reaches, from then on.
    pub(crate) reach: OnceLock<Reach>,
    /// The client's newest stamp on this connection: whatever it says on others, it may have given up
    /// this one.
    stamp: AtomicU64,
    /// Since when the connection's thread has been working on a frame; 0 if it waits for one.
    pub(crate) busy_since: AtomicU64,
    dead: AtomicBool,
    /// Where the client places what it writes in large pieces. It lives as long as anything is to be done with that.
    payload: OnceLock<ClientMap>,
    /// A client that does not take its answers for so long is cut off.
    patience: Duration,
}

#[derive(Default)]
struct Out {
    /// Somebody is sending; who it is also sends what is queued.
    busy: bool,
    /// The connection's thread waits for that to end. Waking nobody would cost a system call, too.
    awaited: bool,
    queue: VecDeque<Queued>,
}

impl Link {
    pub(crate) fn new(socket: OwnedFd, patience: Duration) -> Link {
        Link {
            socket,
            session: OnceLock::new(),
            reach: OnceLock::new(),
            out: Mutex::default(),
            out_free: Condvar::new(),
            sealer: OnceLock::new(),
            unanswered: AtomicU32::new(0),
            heard: AtomicU64::new(sys::now().0),
            stamp: AtomicU64::new(0),
            busy_since: AtomicU64::new(0),
            dead: AtomicBool::new(false),
            payload: OnceLock::new(),
            patience,
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// A frame stamped `stamp` came at `now`, and is being worked on. Only the connection's own thread says so.
    pub(crate) fn came(&self, now: Nanos, stamp: u64) {
        self.heard.store(now.0, Relaxed);
        self.busy_since.store(now.0, Relaxed);
        if stamp > self.stamp.load(Relaxed) {
            self.stamp.store(stamp, Relaxed);
        }
    }

    pub(crate) fn newest_stamp(&self) -> Nanos {
        Nanos(self.stamp.load(Relaxed))
    }

    fn lock(&self) -> MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the client has closed the connection, as seen by a thread that does not read from it.
    pub(crate) fn abandoned(&self) -> bool {
        let flags = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let mut polled = [PollFd::new(&self.socket, flags)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.dead.load(Relaxed) || rustix::event::poll(&mut polled, Some(&now)).is_ok_and(|n| n > 0)
    }

    /// Makes the connection's thread read to the end of what has come, and stop.
    pub(crate) fn stop_receiving(&self) {
        let _ = shutdown(&self.socket, Shutdown::Read);
    }

    /// Ends the connection at once.
    pub(crate) fn cut(&self) {
        self.dead.store(true, Relaxed);
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// Whether it has been ended.
    pub(crate) fn is_cut(&self) -> bool {
        self.dead.load(Relaxed)
    }

    /// An open file of the session, if it may be sent on this connection.
    pub(crate) fn carries(&self, file: Arc<OpenFile>) -> Outcome<Arc<OpenFile>> {
        let may = self.reach.get().is_some_and(|reach| reach.carries(file.protect));
        if may { Ok(file) } else { Err(Failure::UNPROTECTED) }
    }

    /// From now on the client may place there what it writes.
    pub(crate) fn share(&self, memory: ClientMap) -> Outcome<()> {
        self.payload.set(memory).map_err(|_| Errno::BUSY.into())
    }

    /// Whether it may.
    pub(crate) fn shares(&self) -> bool {
        self.payload.get().is_some()
    }

    /// What a request has placed there, if it says so. The client leaves that alone until it has its answer, and the
    /// memory for good if it gets none.
    pub(crate) fn placed(&self, request: &Header) -> Option<&[u8]> {
        let len = request.has(flag::PLACED).then(|| request.payload_len())?;
        Some(self.payload.get().map_or(&[], |memory| memory.ring(0..len)))
    }

    /// From now on everything is sealed with this.
    pub(crate) fn protect(&self, sealer: Sealer) {
        let _ = self.sealer.set(Mutex::new((sealer, Vec::new())));
    }

    /// These bytes as they are sent, by whoever is sending: `None` if as they are.
    fn sealed(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let sealer = self.sealer.get()?;
        let mut out = Vec::with_capacity(Sealer::length(bytes.len()));
        sealer.lock().unwrap_or_else(PoisonError::into_inner).0.seal([bytes], &mut out);
        Some(out)
    }

    /// What is next in the queue, as it is sent.
    fn next_of(&self, mut queued: Queued) -> Queued {
        if queued.sealed.is_none() {
            queued.sealed = self.sealed(queued.frame.bytes());
        }
        queued
    }

    /// Sends what the client takes now, for at most [`SEND_SLICE`].
    fn send_some(&self, bytes: &[u8]) -> Result<usize, Errno> {
        loop {
            match send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(0),
                other => return other,
            }
        }
    }

    /// Sends what the client takes now of what was lent, for at most [`SEND_SLICE`].
    fn lend_some(&self, pipe: &Pipe, len: usize) -> Result<usize, Errno> {
        loop {
            match pipe.send(&self.socket, len) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(0),
                // All that is promised was there.
                Ok(0) => return Err(Errno::IO),
                other => return other,
            }
        }
    }

    fn send_all(&self, bytes: &[u8]) -> Result<(), Stop> {
        self.send_by(bytes.len(), |sent| self.send_some(&bytes[sent..]))
    }

    /// Sends all `len` bytes, waiting for a slow client as long as it takes something now and then, and not too slowly:
    /// others may wait for the memory. `some` sends a part of what is left.
    fn send_by(&self, len: usize, mut some: impl FnMut(usize) -> Result<usize, Errno>) -> Result<(), Stop> {
        let mut sent = some(0).map_err(Stop::Broken)?;
        if sent == len {
            return Ok(());
        }
        let began = Instant::now();
        let mut last = began;
        while sent < len {
            let n = some(sent).map_err(Stop::Broken)?;
            sent += n;
            let now = Instant::now();
            if n > 0 {
                last = now;
            }
            let slow = now - began > longest(self.patience, len);
            if slow || now - last > self.patience || self.dead.load(Relaxed) {
                return Err(Stop::Stalled);
            }
        }
        Ok(())
    }

    /// Sends a frame, sealed where that was agreed on: a part at a time, so that it stays in the processor's cache, and
    /// the other end opens what was sent while the next is sealed.
    fn send_frame(&self, frame: &[u8]) -> Result<(), Stop> {
        let Some(sealer) = self.sealer.get() else { return self.send_all(frame) };
        let mut sealing = sealer.lock().unwrap_or_else(PoisonError::into_inner);
        let (sealer, records) = &mut *sealing;
        let (mut pieces, mut from) = (frame.chunks(BATCH), 0);
        records.clear();
        self.send_by(Sealer::length(frame.len()), |_| {
            if from == records.len() {
                records.clear();
                from = 0;
                sealer.seal(pieces.next(), records);
            }
            let sent = self.send_some(&records[from..])?;
            from += sent;
            Ok(sent)
        })
    }

    /// Waits until it is the turn of the connection's own thread to send.
    fn turn(&self) {
        let mut out = self.lock();
        while out.busy {
            out.awaited = true;
            out = self.out_free.wait(out).unwrap_or_else(PoisonError::into_inner);
        }
        out.busy = true;
    }

    /// Whether what is sent may be pages that were lent.
    pub(crate) fn takes_pages(&self) -> bool {
        self.sealer.get().is_none()
    }

    /// From the connection's own thread: sends a header, waiting its turn, and `len` bytes that were lent.
    pub(crate) fn send_lent(&self, header: &[u8], pipe: &Pipe, len: usize) -> Result<(), Stop> {
        self.turn();
        let sent = self.send_all(header);
        let all = if len == 0 {
            sent
        } else {
            sent.and_then(|()| self.send_by(len, |sent| self.lend_some(pipe, len - sent)))
        };
        self.send_queued(all)
    }

    /// From the connection's own thread: sends a frame, waiting its turn.
    pub(crate) fn send(&self, frame: &[u8]) -> Result<(), Stop> {
        self.turn();
        let result = self.send_frame(frame);
        self.send_queued(result)
    }

    /// Nobody is sending any more.
    fn let_go(&self, mut out: MutexGuard<'_, Out>) {
        out.busy = false;
        let awaited = std::mem::take(&mut out.awaited);
        drop(out);
        if awaited {
            self.out_free.notify_one();
        }
    }

    /// Sends what others have queued meanwhile, then lets go. After an error all is dropped.
    fn send_queued(&self, mut result: Result<(), Stop>) -> Result<(), Stop> {
        loop {
            let mut out = self.lock();
            if result.is_err() {
                out.queue.clear();
            }
            let Some(queued) = out.queue.pop_front() else {
                self.let_go(out);
                break;
            };
            drop(out);
            result = match queued.sealed {
                None if queued.from == 0 => self.send_frame(queued.frame.bytes()),
                _ => self.send_all(queued.rest()),
            };
            self.unanswered.fetch_sub(1, Relaxed);
        }
        if result.is_err() {
            self.cut();
        }
        result
    }

    /// Sends a few bytes if nobody else is sending and the socket takes them at once.
    pub(crate) fn send_if_free(self: &Arc<Link>, frame: &[u8]) {
        let mut out = self.lock();
        if out.busy || self.dead.load(Relaxed) {
            return;
        }
        out.busy = true;
        drop(out);
        let sealed = self.sealed(frame);
        let bytes = sealed.as_deref().unwrap_or(frame);
        let result = match send(&self.socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(n) if n < bytes.len() => self.send_all(&bytes[n..]),
            Ok(_) => Ok(()),
            Err(Errno::AGAIN | Errno::INTR) => {
                if let Some(sealer) = self.sealer.get() {
                    sealer.lock().unwrap_or_else(PoisonError::into_inner).0.take_back();
                }
                Ok(())
            }
            Err(e) => Err(Stop::Broken(e)),
        };
        drop(self.send_queued(result));
    }

    /// From any other thread: sends the answer to a request, or has it sent. Never waits long.
    pub(crate) fn post(self: &Arc<Link>, frame: Frame) {
        let mut out = self.lock();
        if self.dead.load(Relaxed) {
            self.unanswered.fetch_sub(1, Relaxed);
            return;
        }
        out.queue.push_back(Queued { frame, sealed: None, from: 0 });
        if out.busy {
            return;
        }
        out.busy = true;
        while let Some(queued) = out.queue.pop_front() {
            drop(out);
            let mut queued = self.next_of(queued);
            let bytes = queued.rest();
            match self.send_some(bytes) {
                Ok(n) if n == bytes.len() => {
                    self.unanswered.fetch_sub(1, Relaxed);
                    out = self.lock();
                }
                Ok(n) => {
                    queued.from += n;
                    self.lock().queue.push_front(queued);
                    let link = Arc::clone(self);
                    let flusher = move || drop(link.send_queued(Ok(())));
                    let spawned = std::thread::Builder::new()
                        .name("flusher".into())
                        .stack_size(64 << 10)
                        .spawn(flusher);
                    if spawned.is_err() {
                        drop(self.send_queued(Err(Stop::Stalled)));
                    }
                    return;
                }
                Err(e) => {
                    drop(self.send_queued(Err(Stop::Broken(e))));
                    return;
                }
            }
        }
        self.let_go(out);
    }
}
