//! One connection to an I/O node: the handshake, frames out, frames in, and how long to wait.

use crate::error::Error;
use crate::hosts::HostSet;
use crate::identity::Identity;
use crate::placed::Placing;
use crate::socket::Socket;
use crate::spin::Waiter;
use crate::sys;
use forebay_types::{Address, Nanos};
use forebay_wire::frame::{HEADER_LEN, Header, Opcode, flag};
use forebay_wire::hello::{HostBoot, Incarnation, Welcome};
use forebay_wire::session::call::Process;
use forebay_wire::session::fence::fence;
use forebay_wire::session::wait::{Patience, Step, Wait};
use rustix::fd::{AsRawFd, IntoRawFd};
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A node that is alive answers its first ping within this, on top of its lease.
pub(crate) const PING_AFTER: Duration = Duration::from_millis(500);
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// A connection that was used so recently is not looked at before it is used again.
const IDLE: Nanos = Nanos::from_millis(1);
/// Answers to requests with no more data than this may come while one looks.
const SHORT: usize = 64 << 10;
/// Room for a header and the body of almost every metadata answer.
const BUFFER: usize = 8 << 10;

/// Why an exchange did not end with an answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The connection is gone. What was seen, in words.
    Broken(String),
    /// The node does not answer.
    Silent(String),
    /// The whole call's time is over.
    Deadline,
    /// The node refuses this client: no use in trying again.
    Fatal(Error),
}

pub(crate) struct Conn {
    pub(crate) socket: Socket,
    pub(crate) address: Address,
    pub(crate) welcome: Welcome,
    /// Who is at the other end.
    pub(crate) process: Process,
    /// The host of that, as files note it.
    pub(crate) host: HostSet,
    /// When bytes of the request under way, or a ping for it, last left; `None` if none did.
    last_out: Option<Nanos>,
    /// When anything last came.
    last_in: Nanos,
    /// Answers that nobody waits for (closes sent along with another request), by id.
    owed: Vec<u64>,
    /// What is being sent, where it is sealed.
    records: Vec<u8>,
    buffer: Vec<u8>,
    /// The part of the buffer that was received and not yet used.
    filled: std::ops::Range<usize>,
    pub(crate) patience: Patience,
    waiter: Waiter,
    pub(crate) placing: Placing,
}

/// An answer.
pub(crate) struct Reply<'a> {
    pub(crate) header: Header,
    pub(crate) body: &'a [u8],
    /// When the last of it came.
    pub(crate) at: Nanos,
}

/// Where a frame's body went.
#[derive(Clone)]
pub(crate) enum Destination {
    Buffer(std::ops::Range<usize>),
    Caller(usize),
}

impl Conn {
    pub(crate) fn open(
        node: usize,
        address: &Address,
        who: &Identity<'_>,
        until: Nanos,
    ) -> Result<Conn, Failure> {
        let broken =
            |what: &str, e: Errno| Failure::Broken(format!("{address}: {what}: {}", std::io::Error::from(e)));
        let started = sys::now();
        let left = Duration::from(until.since(started));
        if left.is_zero() {
            return Err(Failure::Deadline);
        }
        let fd = sys::connect(address, CONNECT_LIMIT.min(left)).map_err(|e| match (address, e) {
            // No waiting changes that. The socket is its user's own, and so is what is done through it.
            (Address::Unix(_), Errno::ACCESS | Errno::PERM) => Failure::Fatal(Error::Refused {
                errno: libc::EACCES,
                message: format!("{address} is not this user's: the job's I/O nodes serve who started it"),
            }),
            (Address::Unix(path), Errno::NOENT) if sys::is_covered(path) => {
                Failure::Fatal(Error::local(libc::EIO))
            }
            _ => broken("connect", e),
        })?;
        let tick = who.tick.min(left / 2).max(Duration::from_millis(1));
        sys::set_timeouts(&fd, tick).map_err(|e| broken("set timeouts", e))?;
        let mut conn = Conn {
            socket: Socket::new(fd),
            address: address.clone(),
            welcome: Welcome { credits: 1, lease_ms: 2000, ..Welcome::default() },
            process: Process { node, incarnation: Incarnation::default(), host: HostBoot::default() },
            host: HostSet(0),
            last_out: None,
            last_in: started,
            owed: Vec::new(),
            records: Vec::new(),
            buffer: vec![0; BUFFER],
            filled: 0..0,
            patience: Patience {
                ping_after: PING_AFTER.into(),
                lease: Nanos::from_secs(2),
                deadline: left.into(),
            },
            waiter: Waiter::default(),
            placing: Placing::Nowhere,
        };
        conn.shake_hands(who, started)?;
        conn.placing = Placing::new(address, conn.socket.is_protected());
        sys::set_timeouts(conn.socket.fd(), who.tick).map_err(|e| broken("set timeouts", e))?;
        Ok(conn)
    }

    pub(crate) fn buffered(&self, place: Destination) -> &[u8] {
        match place {
            Destination::Buffer(range) => &self.buffer[range],
            Destination::Caller(_) => &[],
        }
    }

    /// The descriptor's number, so that a front end can protect it.
    pub(crate) fn raw_fd(&self) -> i32 {
        self.socket.fd().as_raw_fd()
    }

    /// The bare connection, by its number.
    pub(crate) fn into_raw_fd(self) -> i32 {
        self.socket.into_fd().into_raw_fd()
    }

    /// Moves the descriptor away from a number a program wants for itself.
    pub(crate) fn relocate(&mut self) {
        self.socket.relocate();
    }

    /// The wait for a request that is sent `now`, for a call that began at `call_started`.
    pub(crate) fn wait(&self, now: Nanos, call_started: Nanos, deadline: Duration) -> Wait {
        let patience = Patience { deadline: deadline.into(), ..self.patience };
        Wait::new(patience, call_started, now)
    }

    /// The node's lease, for the fence.
    pub(crate) fn lease(&self) -> Nanos {
        self.patience.lease
    }

    /// When bytes of the request under way last left, if any did.
    pub(crate) fn last_out(&self) -> Option<Nanos> {
        self.last_out
    }

    /// Whether the other end has closed the connection while it was not used.
    pub(crate) fn died_idle(&self, now: Nanos) -> bool {
        now.since(self.last_in) > IDLE && self.filled.is_empty() && self.is_closed()
    }

    pub(crate) fn is_closed(&self) -> bool {
        sys::is_closed(self.socket.fd())
    }

    /// A new request, or train of requests, begins.
    pub(crate) fn begin(&mut self) {
        self.last_out = None;
    }

    /// Sends one of several requests that are under way at once.
    pub(crate) fn send_more(&mut self, wait: &mut Wait, header: &Header, body: &[u8]) -> Result<(), Failure> {
        self.send_all(wait, &mut [IoSlice::new(header.as_bytes()), IoSlice::new(body)])
    }

    /// Sends a request, with frames that nobody waits for in front, and returns the wait for it.
    pub(crate) fn send_request(
        &mut self,
        now: Nanos,
        call_started: Nanos,
        deadline: Duration,
        ahead: &[(u64, Vec<u8>)],
        header: &Header,
        body: &[u8],
    ) -> Result<Wait, Failure> {
        let mut wait = self.wait(now, call_started, deadline);
        self.begin();
        if ahead.is_empty() {
            self.send_all(&mut wait, &mut [IoSlice::new(header.as_bytes()), IoSlice::new(body)])?;
        } else {
            let mut pieces: Vec<IoSlice<'_>> = ahead.iter().map(|(_, frame)| IoSlice::new(frame)).collect();
            pieces.push(IoSlice::new(header.as_bytes()));
            pieces.push(IoSlice::new(body));
            self.send_all(&mut wait, &mut pieces)?;
            self.owed.extend(ahead.iter().map(|(id, _)| *id));
        }
        let short = body.len().max(usize::try_from(header.length.get()).unwrap_or(usize::MAX)) <= SHORT;
        self.waiter.sent(short, wait.last_sent());
        Ok(wait)
    }

    /// Waits for the answer to `id`. A read's data goes straight into `into`, any other body into a
    /// buffer of the connection's.
    pub(crate) fn await_reply<'a>(
        &'a mut self,
        wait: &mut Wait,
        id: u64,
        mut into: Option<&'a mut [u8]>,
    ) -> Result<Reply<'a>, Failure> {
        loop {
            let (header, opcode, place) = self.receive_frame(wait, into.as_deref_mut())?;
            let got = header.id.get();
            if opcode == Opcode::Ping && header.has(flag::REPLY) {
                answered_ping(wait, &header);
                continue;
            }
            if let Some(at) = self.owed.iter().position(|o| *o == got) {
                self.owed.swap_remove(at);
                continue;
            }
            if opcode == Opcode::Goodbye {
                return Err(self.cut_off(&header, place));
            }
            if got != id || !header.has(flag::REPLY) {
                return Err(self.broken("an answer to another request"));
            }
            let body = match place {
                Destination::Buffer(range) => &self.buffer[range],
                Destination::Caller(n) => &into.expect("only a caller's buffer is filled")[..n],
            };
            return Ok(Reply { header, body, at: self.last_in });
        }
    }

    /// Waits for the next answer to any of several requests. The data of a read goes into the part
    /// of `into` that `locate` gives for its id, any other body into a buffer of the connection's.
    pub(crate) fn await_any<'a>(
        &'a mut self,
        wait: &mut Wait,
        into: Option<&'a mut [u8]>,
        locate: &dyn Fn(u64) -> Option<std::ops::Range<usize>>,
    ) -> Result<Reply<'a>, Failure> {
        let mut into = into;
        let (header, body) = loop {
            self.fill(wait, HEADER_LEN, HEADER_LEN)?;
            let mut head = [0u8; HEADER_LEN];
            head.copy_from_slice(&self.buffer[self.filled.start..self.filled.start + HEADER_LEN]);
            self.filled.start += HEADER_LEN;
            let (header, opcode) = self.parse(&head)?;
            let id = header.id.get();
            let want = header.body_len();
            if opcode == Opcode::Read
                && header.status.get() == 0
                && let Some(place) = locate(id)
                && let Some(room) = into.take().and_then(|all| all.get_mut(place))
            {
                let Some(data) = room.get_mut(..want) else {
                    return Err(self.broken("more data than asked for"));
                };
                let have = self.filled.len().min(want);
                data[..have].copy_from_slice(&self.buffer[self.filled.start..self.filled.start + have]);
                self.filled.start += have;
                self.receive_exactly(wait, &mut data[have..])?;
                return Ok(Reply { header, body: data, at: self.last_in });
            }
            self.fill(wait, want, usize::MAX)?;
            let body = self.filled.start..self.filled.start + want;
            self.filled.start = body.end;
            if opcode == Opcode::Goodbye {
                return Err(self.cut_off(&header, Destination::Buffer(body)));
            }
            if let Some(at) = self.owed.iter().position(|o| *o == id) {
                self.owed.swap_remove(at);
            } else if opcode != Opcode::Ping {
                break (header, body);
            } else {
                answered_ping(wait, &header);
            }
        };
        Ok(Reply { header, body: &self.buffer[body], at: self.last_in })
    }

    /// The node ends the connection and says why.
    fn cut_off(&self, header: &Header, place: Destination) -> Failure {
        let why = String::from_utf8_lossy(self.buffered(place)).into_owned();
        match i32::try_from(header.status.get()) {
            // It did not understand us: it would not the next time.
            Ok(libc::EPROTO | libc::EMSGSIZE | libc::EOPNOTSUPP | libc::EPROTONOSUPPORT) => {
                Failure::Fatal(Error::Protocol(self.address.clone(), why))
            }
            // It was overloaded, or we were slow: that may pass.
            _ => self.broken(&why),
        }
    }

    pub(crate) fn broken(&self, what: &str) -> Failure {
        Failure::Broken(format!("{}: {what}", self.address))
    }

    /// Reads one frame. Its body is left in the buffer, unless it is data for the caller.
    pub(crate) fn receive_frame(
        &mut self,
        wait: &mut Wait,
        into: Option<&mut [u8]>,
    ) -> Result<(Header, Opcode, Destination), Failure> {
        match into {
            Some(into) if self.filled.is_empty() && self.owed.is_empty() => self.receive_direct(wait, into),
            into => self.receive_buffered(wait, into),
        }
    }

    /// Nothing is buffered and the next frame is most likely the one with the data: one receive for
    /// header and data, the data where the caller wants it.
    fn receive_direct(
        &mut self,
        wait: &mut Wait,
        into: &mut [u8],
    ) -> Result<(Header, Opcode, Destination), Failure> {
        let mut head = [0u8; HEADER_LEN];
        let mut have = 0;
        while have < HEADER_LEN {
            let pieces = &mut [IoSliceMut::new(&mut head[have..]), IoSliceMut::new(into)];
            let got = self.socket.receive(&mut self.waiter, pieces);
            have += self.progress(wait, got)?;
        }
        let (header, opcode) = self.parse(&head)?;
        let (got, want) = (have - HEADER_LEN, header.body_len());
        if got > want {
            // Another frame follows this one already.
            self.buffer.clear();
            self.buffer.extend_from_slice(&into[want..got]);
            self.filled = 0..self.buffer.len();
        }
        if opcode != Opcode::Read || header.status.get() != 0 {
            // Not data after all (a pong, an error's sentence): into the buffer with it.
            let mut frame = into[..got.min(want)].to_vec();
            let have = frame.len();
            frame.resize(want, 0);
            self.receive_exactly(wait, &mut frame[have..])?;
            let end = frame.len();
            frame.extend_from_slice(&self.buffer[self.filled.clone()]);
            self.filled = end..frame.len();
            self.buffer = frame;
            return Ok((header, opcode, Destination::Buffer(0..end)));
        }
        let Some(data) = into.get_mut(..want) else {
            return Err(self.broken("more data than asked for"));
        };
        if got < want {
            self.receive_exactly(wait, &mut data[got..])?;
        }
        Ok((header, opcode, Destination::Caller(want)))
    }

    fn receive_buffered(
        &mut self,
        wait: &mut Wait,
        into: Option<&mut [u8]>,
    ) -> Result<(Header, Opcode, Destination), Failure> {
        // With a caller waiting for data, take no more than the headers in front of it.
        let ahead = if into.is_some() { (self.owed.len() + 1) * HEADER_LEN } else { usize::MAX };
        self.fill(wait, HEADER_LEN, ahead)?;
        let mut head = [0u8; HEADER_LEN];
        head.copy_from_slice(&self.buffer[self.filled.start..self.filled.start + HEADER_LEN]);
        self.filled.start += HEADER_LEN;
        let (header, opcode) = self.parse(&head)?;
        let want = header.body_len();
        if let Some(into) = into
            && opcode == Opcode::Read
            && header.status.get() == 0
        {
            let Some(data) = into.get_mut(..want) else {
                return Err(self.broken("more data than asked for"));
            };
            let have = self.filled.len().min(want);
            data[..have].copy_from_slice(&self.buffer[self.filled.start..self.filled.start + have]);
            self.filled.start += have;
            self.receive_exactly(wait, &mut data[have..])?;
            return Ok((header, opcode, Destination::Caller(want)));
        }
        self.fill(wait, want, usize::MAX)?;
        let body = self.filled.start..self.filled.start + want;
        self.filled.start = body.end;
        Ok((header, opcode, Destination::Buffer(body)))
    }

    /// Makes at least `need` bytes available in the buffer, taking at most `most` at once.
    fn fill(&mut self, wait: &mut Wait, need: usize, most: usize) -> Result<(), Failure> {
        if self.filled.is_empty() {
            self.filled = 0..0;
        }
        if self.buffer.len() < self.filled.start + need {
            self.buffer.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
            self.buffer.resize(need.max(BUFFER), 0);
        }
        while self.filled.len() < need {
            let room = self.buffer.len().min(self.filled.end.saturating_add(most));
            let pieces = &mut [IoSliceMut::new(&mut self.buffer[self.filled.end..room])];
            let got = self.socket.receive(&mut self.waiter, pieces);
            self.filled.end += self.progress(wait, got)?;
        }
        Ok(())
    }

    fn receive_exactly(&mut self, wait: &mut Wait, mut into: &mut [u8]) -> Result<(), Failure> {
        while !into.is_empty() {
            let got = self.socket.receive(&mut self.waiter, &mut [IoSliceMut::new(into)]);
            let n = self.progress(wait, got)?;
            into = &mut into[n..];
        }
        Ok(())
    }

    fn parse(&self, head: &[u8; HEADER_LEN]) -> Result<(Header, Opcode), Failure> {
        Header::decode(head).map_err(|e| self.broken(&e.to_string()))
    }

    /// Turns the outcome of one receive into bytes gained, asking the node for a sign of life when
    /// it is time to.
    fn progress(&mut self, wait: &mut Wait, got: Result<usize, Errno>) -> Result<usize, Failure> {
        match got {
            Ok(0) => Err(Failure::Broken(format!("{}: the connection was closed", self.address))),
            Ok(n) => {
                let now = sys::now();
                wait.heard(now);
                self.last_in = now;
                // A node that sends a byte now and then does not get more time than others.
                if wait.step(now) == Step::Deadline { Err(Failure::Deadline) } else { Ok(n) }
            }
            Err(Errno::INTR) => self.idle(wait).map(|()| 0),
            Err(Errno::AGAIN) => self.idle(wait).map(|()| 0),
            // The program's buffer has a hole: not the node's fault, and no other one could fill it.
            Err(Errno::FAULT) => Err(Failure::Fatal(Error::local(libc::EFAULT))),
            Err(e) => Err(Failure::Broken(format!("{}: receive: {}", self.address, std::io::Error::from(e)))),
        }
    }

    fn idle(&mut self, wait: &mut Wait) -> Result<(), Failure> {
        let now = sys::now();
        match wait.step(now) {
            Step::WaitUntil(_) => Ok(()),
            Step::Ping => {
                let mut ping = Header::request(Opcode::Ping, 0, 0);
                ping.stamp = now.0.into();
                match self.socket.send_small(ping.as_bytes()) {
                    Ok(whole) => {
                        let now = sys::now();
                        wait.sent(now, true);
                        self.last_out = Some(now);
                        // Half a ping and then nothing: no frame can follow it.
                        if whole { Ok(()) } else { Err(self.broken("it takes no more data")) }
                    }
                    Err(Errno::AGAIN | Errno::INTR) => {
                        wait.cannot_ping();
                        Ok(())
                    }
                    Err(e) => Err(self.broken(&format!("send: {}", std::io::Error::from(e)))),
                }
            }
            Step::GiveUp => Err(Failure::Silent(format!("{}: no answer", self.address))),
            Step::Deadline => Err(Failure::Deadline),
        }
    }

    pub(crate) fn send_all(&mut self, wait: &mut Wait, pieces: &mut [IoSlice<'_>]) -> Result<(), Failure> {
        if !self.socket.is_protected() {
            return self.send_pieces(wait, pieces);
        }
        let mut records = std::mem::take(&mut self.records);
        let mut rest = pieces;
        IoSlice::advance_slices(&mut rest, 0);
        let mut sent = Ok(());
        while !rest.is_empty() && sent.is_ok() {
            let n = self.socket.seal(rest, &mut records);
            IoSlice::advance_slices(&mut rest, n);
            sent = self.send_pieces(wait, &mut [IoSlice::new(&records)]);
        }
        self.records = records;
        sent
    }

    fn send_pieces(&mut self, wait: &mut Wait, mut pieces: &mut [IoSlice<'_>]) -> Result<(), Failure> {
        let mut stalled_since = None;
        IoSlice::advance_slices(&mut pieces, 0);
        while !pieces.is_empty() {
            match self.socket.send(pieces) {
                Ok(n) => {
                    IoSlice::advance_slices(&mut pieces, n);
                    stalled_since = None;
                    let now = sys::now();
                    wait.sent(now, false);
                    self.last_out = Some(now);
                    if !pieces.is_empty() && wait.step(now) == Step::Deadline {
                        return Err(Failure::Deadline);
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => {
                    let now = sys::now();
                    let since = *stalled_since.get_or_insert(now);
                    if let Step::Deadline = wait.step(now) {
                        return Err(Failure::Deadline);
                    }
                    if now.since(since) > fence(self.patience.lease) {
                        return Err(Failure::Silent(format!("{}: it takes no more data", self.address)));
                    }
                }
                Err(e) => {
                    let why = std::io::Error::from(e);
                    return Err(Failure::Broken(format!("{}: send: {why}", self.address)));
                }
            }
        }
        Ok(())
    }

    /// Takes leave, without waiting for an answer.
    pub(crate) fn goodbye(&mut self, linger: bool) {
        let mut bye = Header::request(Opcode::Goodbye, 0, 0);
        if linger {
            bye.set(flag::LINGER);
        }
        bye.stamp = sys::now().0.into();
        // The process is leaving: a node that does not get it finds out by the closed socket.
        let _ = self.socket.send_small(bye.as_bytes());
    }
}

/// When a node last said that a limit holds something back that this process waits for.
static LAST_HELD: AtomicU64 = AtomicU64::new(0);

/// That moment, if there was one.
pub(crate) fn last_held() -> Option<Nanos> {
    Some(Nanos(LAST_HELD.load(Ordering::Relaxed))).filter(|at| *at > Nanos::ZERO)
}

/// The node lives, and says whether a limit holds back what is waited for.
fn answered_ping(wait: &mut Wait, header: &Header) {
    if header.has(flag::HELD) {
        let now = sys::now();
        wait.held(now);
        LAST_HELD.store(now.0, Ordering::Relaxed);
    }
}
