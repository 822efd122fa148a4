//! Receiving frames: one page-aligned buffer per connection, in which a frame's payload lands on a
//! page boundary and usually comes with its header in one system call.

use crate::buffer::{Account, Buffer, Pool};
use crate::link::{Stop, longest};
use crate::spinners::Spinners;
use crate::sys::{self, Map, PAGE};
use forebay_types::Nanos;
use forebay_wire::WireError;
use forebay_wire::frame::{HEADER_LEN, Header, Opcode};
use forebay_wire::seal::Opener;
use forebay_wire::session::spin::Spin;
use rustix::event::{PollFd, PollFlags};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The payload that fits the connection's own buffer.
pub(crate) const ROOM: usize = 64 << 10;
/// Where a header stands so that its payload begins a page.
const HEAD: usize = PAGE - HEADER_LEN;
/// From here on it pays to have the payload on a page boundary (and direct I/O demands it).
const ALIGN_FROM: usize = 512;

/// The receiving side of a connection.
pub(crate) struct Receiver {
    map: Map,
    start: usize,
    end: usize,
    stall: Duration,
    deadline: Option<Instant>,
    /// The last payload did not fit: fetch headers alone, the payload goes elsewhere.
    large: bool,
    spin: Spin,
    /// What comes is sealed, and opened with this.
    opener: Option<Opener>,
}

/// A frame's body.
pub(crate) enum Body {
    /// In the connection's buffer: so many bytes from there.
    Here(usize, usize),
    /// In a buffer of its own.
    Own(Buffer),
}

impl Receiver {
    pub(crate) fn new(stall: Duration) -> Result<Receiver, Errno> {
        Ok(Receiver {
            map: Map::new(PAGE + ROOM)?,
            start: HEAD,
            end: HEAD,
            stall,
            deadline: None,
            large: false,
            spin: Spin::default(),
            opener: None,
        })
    }

    /// From now on what comes is sealed.
    pub(crate) fn protect(&mut self, opener: Opener) -> Result<(), Stop> {
        if !self.is_empty() {
            return Err(WireError::Unexpected("a hello is answered before more is said").into());
        }
        self.opener = Some(opener);
        Ok(())
    }

    /// Whether nothing is buffered: the buffer may be used for something else until the next receive.
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether a whole further frame is buffered: the next one can be had without waiting.
    pub(crate) fn holds_frame(&self) -> bool {
        let held = &self.map[self.start..self.end];
        let header = held.first_chunk().map(Header::decode);
        matches!(header, Some(Ok((h, _))) if held.len() >= HEADER_LEN + h.body_len())
    }

    /// Whether the client has sent more than what was taken.
    pub(crate) fn more(&self, fd: BorrowedFd<'_>) -> bool {
        let mut byte = [0u8; 1];
        !self.is_empty()
            || self.opener.as_ref().is_some_and(Opener::is_ready)
            || matches!(recv(fd, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT), Ok((n, _)) if n > 0)
    }

    /// The page-aligned part of the buffer, with room for a header before it, if nothing is buffered.
    pub(crate) fn scratch(&mut self) -> Option<&mut [u8]> {
        if self.is_empty() { Some(&mut self.map[PAGE..]) } else { None }
    }

    /// The reply in the scratch space: `header`, then `len` bytes that are there already.
    pub(crate) fn scratch_frame(&mut self, header: &[u8; HEADER_LEN], len: usize) -> &[u8] {
        self.map[HEAD..PAGE].copy_from_slice(header);
        &self.map[HEAD..PAGE + len]
    }

    /// The bytes of a [`Body::Here`].
    pub(crate) fn bytes(&self, at: usize, len: usize) -> &[u8] {
        &self.map[at..at + len]
    }

    /// The next header, and its raw bytes if it cannot be understood. Waits as long as the client is
    /// silent between frames, but not within one.
    pub(crate) fn header(&mut self, fd: BorrowedFd<'_>) -> Result<[u8; HEADER_LEN], Stop> {
        if self.is_empty() {
            (self.start, self.end) = (HEAD, HEAD);
        }
        while self.end - self.start < HEADER_LEN {
            if self.map.len() - self.start < HEADER_LEN {
                self.compact();
            }
            let to = if self.large { self.start + HEADER_LEN } else { self.map.len() };
            self.fill(fd, to)?;
            if self.end - self.start < HEADER_LEN {
                self.partial()?;
            }
        }
        let mut header = [0; HEADER_LEN];
        header.copy_from_slice(&self.map[self.start..self.start + HEADER_LEN]);
        self.start += HEADER_LEN;
        Ok(header)
    }

    /// The body of the frame whose header was just taken.
    pub(crate) fn body(
        &mut self,
        fd: BorrowedFd<'_>,
        header: &Header,
        opcode: Opcode,
        memory: (&Arc<Pool>, &Arc<Account>),
    ) -> Result<Body, Stop> {
        let len = header.body_len();
        let payload = matches!(opcode, Opcode::Write | Opcode::Append);
        if len > ROOM {
            return self.large_body(fd, len, payload, memory).map(Body::Own);
        }
        self.large = false;
        let misplaced = payload && len >= ALIGN_FROM && !self.start.is_multiple_of(PAGE);
        if misplaced || self.map.len() - self.start < len {
            let held = self.end - self.start;
            self.map.copy_within(self.start..self.end, PAGE);
            (self.start, self.end) = (PAGE, PAGE + held);
        }
        while self.end - self.start < len {
            self.fill(fd, self.map.len())?;
            if self.end - self.start < len {
                self.partial()?;
            }
        }
        let at = self.start;
        self.start += len;
        self.deadline = None;
        Ok(Body::Here(at, len))
    }

    fn large_body(
        &mut self,
        fd: BorrowedFd<'_>,
        len: usize,
        payload: bool,
        (pool, account): (&Arc<Pool>, &Arc<Account>),
    ) -> Result<Buffer, Stop> {
        self.large = payload;
        let mut buffer = pool.take(account, len, 3 * self.stall).map_err(Stop::NoMemory)?;
        let into = buffer.payload_mut(len);
        let held = (self.end - self.start).min(len);
        into[..held].copy_from_slice(&self.map[self.start..self.start + held]);
        self.start += held;
        let mut done = held;
        let began = Instant::now();
        let mut progress = began;
        while done < len {
            let silent = match receive(&mut self.opener, fd, &mut into[done..], RecvFlags::WAITALL)? {
                Ok(0) => return Err(Stop::Closed),
                Ok(n) => {
                    done += n;
                    false
                }
                Err(Errno::INTR | Errno::AGAIN) => true,
                Err(e) => return Err(Stop::Broken(e)),
            };
            if done < len {
                let now = Instant::now();
                if !silent {
                    progress = now;
                }
                if now - began > longest(self.stall, len) || now - progress > self.stall {
                    return Err(Stop::Stalled);
                }
            }
        }
        self.deadline = None;
        Ok(buffer)
    }

    /// Moves what is buffered to where a header belongs.
    fn compact(&mut self) {
        let held = self.end - self.start;
        self.map.copy_within(self.start..self.end, HEAD);
        (self.start, self.end) = (HEAD, HEAD + held);
    }

    /// Waits for the next request with open eyes, if it may be expected soon and nobody else needs the
    /// processor: what has come by then is taken by the receive that follows. The last one came at `heard`.
    pub(crate) fn expect(
        &mut self,
        fd: BorrowedFd<'_>,
        spinners: &Spinners,
        heard: Nanos,
    ) -> Result<(), Stop> {
        if self.large || !self.is_empty() {
            return Ok(());
        }
        let Some(_spinning) = spinners.enter(heard) else { return Ok(()) };
        let budget = self.spin.budget();
        if budget == Nanos::ZERO {
            return Ok(());
        }
        (self.start, self.end) = (HEAD, HEAD);
        let (began, mut took) = (sys::now(), Nanos::ZERO);
        loop {
            match receive(&mut self.opener, fd, &mut self.map[HEAD..], RecvFlags::DONTWAIT)? {
                Ok(0) => return Err(Stop::Closed),
                Ok(n) => {
                    self.end += n;
                    // It took a little longer, by one look.
                    self.spin.hit(took);
                    return Ok(());
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(e) => return Err(Stop::Broken(e)),
            }
            took = sys::now().since(began);
            if took >= budget {
                self.spin.miss();
                return Ok(());
            }
            // The client may have been put on this processor.
            rustix::thread::sched_yield();
        }
    }

    /// Receives something, into the buffer up to `to`. The socket's receive time-out makes it come
    /// back now and then.
    fn fill(&mut self, fd: BorrowedFd<'_>, to: usize) -> Result<(), Stop> {
        loop {
            match receive(&mut self.opener, fd, &mut self.map[self.end..to], RecvFlags::empty())? {
                Ok(0) => return Err(Stop::Closed),
                Ok(n) => {
                    self.end += n;
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.silent(fd)?,
                Err(e) => return Err(Stop::Broken(e)),
            }
        }
    }

    /// Nothing came for a while.
    fn silent(&mut self, fd: BorrowedFd<'_>) -> Result<(), Stop> {
        let within = self.deadline.is_some() || !self.is_empty() || self.start != HEAD;
        if within {
            return self.partial();
        }
        // An idle connection costs no memory and no wake-ups.
        self.map.discard();
        let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        match rustix::event::poll(&mut polled, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(Stop::Broken(e)),
        }
    }

    /// A frame has begun and is not complete: that must not take for ever, not even byte by byte.
    fn partial(&mut self) -> Result<(), Stop> {
        let now = Instant::now();
        let deadline = *self.deadline.get_or_insert(now + self.stall);
        if now >= deadline { Err(Stop::Stalled) } else { Ok(()) }
    }

    /// From now on the client has this long for its next frame (the handshake).
    pub(crate) fn expect_within(&mut self, patience: Duration) {
        self.deadline = Some(Instant::now() + patience);
    }
}

/// Receives something, and opens it where it is sealed: `EINTR` where only a part of a record came.
fn receive(
    opener: &mut Option<Opener>,
    fd: BorrowedFd<'_>,
    into: &mut [u8],
    flags: RecvFlags,
) -> Result<Result<usize, Errno>, Stop> {
    let Some(opener) = opener else { return Ok(recv(fd, into, flags).map(|(n, _)| n)) };
    let ready = opener.take(into)?;
    if ready > 0 {
        return Ok(Ok(ready));
    }
    match recv(fd, opener.room(), flags.difference(RecvFlags::WAITALL)) {
        Ok((0, _)) => return Ok(Ok(0)),
        Ok((n, _)) => opener.received(n),
        Err(e) => return Ok(Err(e)),
    }
    Ok(match opener.take(into)? {
        0 => Err(Errno::INTR),
        n => Ok(n),
    })
}
