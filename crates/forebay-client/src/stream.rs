//! Small requests that follow each other through an open file, without a trip each
//! ([`forebay_wire::session::stream`]): what is to be read soon is there already, and what is written is
//! in memory that the I/O node of this host has too, so that it is not lost with this process.

use crate::call::On;
use crate::client::Client;
use crate::counters::OpIndex;
use crate::error::Error;
use crate::file::File;
use crate::guarded::Tried;
use crate::sys::{self, Area};
use crate::transfer::request;
use forebay_types::Nanos;
use forebay_wire::flags::OpenFlags;
use forebay_wire::frame::Opcode;
use forebay_wire::message::{Answer, Meta, Sharing};
use forebay_wire::session::board::{Scope, Still};
use forebay_wire::session::call::Kind;
use forebay_wire::session::stream::{
    CELLS, FURTHEST, READS_IN_A_ROW, RING, SMALL, Sequence, WRITES_IN_A_ROW, Window, places,
};
use rustix::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// So much memory of a process may be used for this.
const MOST: usize = 64 << 20;
/// What was read ahead is good for so long: for changes that no node knows of.
pub(crate) const GOOD_FOR: Nanos = Nanos::from_millis(1000);
/// How often it is looked whether the node process lives that shares the memory. Another one takes longer than this to
/// start, so that nobody can have written through it by then.
const LOOK: Nanos = Nanos::from_millis(1);
/// How long a thread that is in the midst of a write is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

static USED: AtomicUsize = AtomicUsize::new(0);

/// Both directions of one open file.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    reading: Tried<Reading>,
    writing: Tried<Writing>,
    /// Something may be written that is not in the file.
    staged: AtomicBool,
    /// What was read ahead is to be forgotten.
    stale: AtomicBool,
    /// And what was seen when it was opened, for good.
    aged: AtomicBool,
    /// Something was read ahead, or came with the open.
    ahead: AtomicBool,
    /// Something was put off ([`crate::later`]).
    put_off: AtomicBool,
}

#[derive(Debug, Default)]
struct Reading {
    sequence: Sequence,
    window: Window,
    read_at: Nanos,
    buffer: Vec<u8>,
    room: Option<Room>,
}

#[derive(Debug, Default)]
struct Writing {
    sequence: Sequence,
    shared: Option<Shared>,
}

/// Memory that the node has too, within what this process may use.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) area: Area,
    /// With which process, as [`Client::serving`] has it.
    pub(crate) with: u64,
    /// Where it began.
    start: u64,
    _room: Room,
}

impl Shared {
    /// Cells that begin at `start` with a nonce, and `len` bytes, to be shared with the process `with`; the descriptor by
    /// which it finds them.
    pub(crate) fn new(start: u64, with: u64, len: usize) -> Option<(Shared, OwnedFd, u64)> {
        let room = Room::take(CELLS + len)?;
        let (area, descriptor) = Area::new(CELLS + len).ok()?;
        let nonce = u64::from_le_bytes(sys::random16()[..8].try_into().unwrap_or_default());
        area.cells().nonce.store(nonce, Ordering::SeqCst);
        area.cells().start(start);
        Some((Shared { area, with, start, _room: room }, descriptor, nonce))
    }
}

/// A part of what this process may use.
#[derive(Debug)]
struct Room(usize);

impl Room {
    fn take(bytes: usize) -> Option<Room> {
        let room = Room(bytes);
        (USED.fetch_add(bytes, Ordering::Relaxed) + bytes <= MOST).then_some(room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        USED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

impl Streams {
    /// A lock was changed, or the file synced: what was read before is read again.
    pub(crate) fn look_again(&self) {
        if !self.stale.load(Ordering::Relaxed) {
            self.stale.store(true, Ordering::Relaxed);
            self.aged.store(true, Ordering::Relaxed);
        }
    }

    /// What is in the file was seen when it was opened, after `at`.
    pub(crate) fn begin_with(&mut self, contents: Vec<u8>, still: Still, at: Nanos) {
        let Some(room) = Room::take(contents.len()) else { return };
        self.reading.with(|r| {
            r.window.filled(0, contents.len(), true, still);
            (r.buffer, r.read_at, r.room) = (contents, at, Some(room));
        });
        self.ahead.store(true, Ordering::Relaxed);
    }

    /// Something may be written that is not in the file.
    pub(crate) fn is_staged(&self) -> bool {
        self.staged.load(Ordering::Relaxed)
    }

    /// Something was put off for the file.
    pub(crate) fn put_off(&self) {
        self.put_off.store(true, Ordering::Relaxed);
        self.aged.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_put_off(&self) -> bool {
        self.put_off.load(Ordering::Relaxed)
    }

    /// Whether something may still turn out not to be written. What has turned out is counted then.
    pub(crate) fn owes(&self) -> bool {
        self.is_staged() || self.is_put_off()
    }

    /// Whether something was put off, once.
    pub(crate) fn take_put_off(&self) -> bool {
        self.is_put_off() && self.put_off.swap(false, Ordering::Relaxed)
    }

    /// Whether a lock was changed, or the file synced, since it was opened.
    pub(crate) fn is_aged(&self) -> bool {
        self.aged.load(Ordering::Relaxed)
    }

    /// In a forked child: both are the parent's. What that was not told, it is told, too.
    pub(crate) fn after_fork(&self) {
        self.reading.take_over();
        self.writing.take_over();
        self.staged.store(false, Ordering::Relaxed);
        self.put_off.store(false, Ordering::Relaxed);
    }
}

impl Writing {
    /// Copies into the ring, if there is room. False: the node must be asked before this counts as written.
    fn put(shared: &Shared, data: &[u8], offset: u64) -> Option<bool> {
        let (cells, end) = (shared.area.cells(), offset + data.len() as u64);
        if end > cells.head() + RING as u64 {
            return None;
        }
        let (first, second) = places(offset..end);
        let (a, b) = data.split_at(first.len());
        shared.area.put(first, a);
        shared.area.put(second, b);
        Some(cells.publish(end))
    }
}

impl Client {
    /// Whether requests to the file may do without trips.
    pub(crate) fn streams(&self, file: &File) -> bool {
        self.config.share && !file.is_shared() && !file.is_bound() && !file.is_closed()
    }

    /// A read of what is there already, or that goes on a stream; `None`: it goes its own way.
    pub(crate) fn read_stream(
        &self,
        file: &File,
        buf: &mut [u8],
        offset: u64,
    ) -> Option<Result<usize, Error>> {
        let small = (1..=SMALL).contains(&buf.len());
        if !small && !file.streams.ahead.load(Ordering::Relaxed)
            || !self.streams(file)
            || file.flags().has(OpenFlags::DIRECT)
        {
            return None;
        }
        let started = sys::now();
        let got = file.streams.reading.with(|r| self.read_ahead(file, r, buf, offset, started)).flatten();
        if let Some(outcome) = &got {
            self.count(OpIndex::READ, started, outcome);
        }
        got
    }

    fn read_ahead(
        &self,
        file: &File,
        r: &mut Reading,
        buf: &mut [u8],
        offset: u64,
        now: Nanos,
    ) -> Option<Result<usize, Error>> {
        let (board, place) = (self.board(now)?, file.on_board?);
        if file.streams.stale.load(Ordering::Relaxed) && file.streams.stale.swap(false, Ordering::Relaxed)
            || now.since(r.read_at) >= GOOD_FOR
        {
            r.window.forget();
        }
        let on_stream = r.sequence.note(offset, buf.len(), READS_IN_A_ROW) && buf.len() <= SMALL;
        if let Some(part) = r.window.find(board, offset, buf.len()) {
            let n = part.len();
            buf[..n].copy_from_slice(&r.buffer[part]);
            return Some(Ok(n));
        }
        if r.window.covers(offset, buf.len()) {
            // Somebody changes the file.
            r.window.forget();
            r.sequence.in_vain();
            return None;
        }
        if !on_stream {
            r.window.forget();
            return None;
        }
        if r.room.as_ref().is_none_or(|room| room.0 < FURTHEST) {
            r.room = None;
            r.room = Room::take(FURTHEST);
        }
        let still = r.room.as_ref().and_then(|_| board.still(place, Scope::Nothing, false));
        let Some(still) = still else {
            r.sequence.in_vain();
            return None;
        };
        let size = r.window.grow(buf.len());
        r.window.forget();
        r.buffer.resize(size, 0);
        r.read_at = now;
        let asked = request(Opcode::Read, offset, size, &[]);
        let mut call = self.begin(Kind::Look, now);
        let got =
            self.carry(&mut call, On::File(file), asked, Some(&mut r.buffer), |_, _, data| Ok(data.len()));
        Some(got.map(|n| {
            let n = n.min(size);
            // If another process has answered, that one's board will be looked at, where this does not hold.
            r.window.filled(offset, n, n < size, still);
            file.streams.ahead.store(true, Ordering::Relaxed);
            let mine = n.min(buf.len());
            buf[..mine].copy_from_slice(&r.buffer[..mine]);
            mine
        }))
    }

    /// A small write that goes on a stream; `None`: it goes its own way.
    pub(crate) fn write_stream(&self, file: &File, data: &[u8], offset: u64) -> Option<Result<usize, Error>> {
        let small = (1..=SMALL).contains(&data.len()) && self.config.stage && file.is_plain();
        if !small || !self.streams(file) || self.unshared.load(Ordering::Relaxed) {
            return None;
        }
        let end = offset.checked_add(data.len() as u64).filter(|end| i64::try_from(*end).is_ok())?;
        let started = sys::now();
        let done = file.streams.writing.with(|w| self.write_behind(file, w, data, offset, started)).flatten();
        let outcome = done?.map(|()| (end - offset) as usize);
        self.count(OpIndex::WRITE, started, &outcome);
        Some(outcome)
    }

    fn write_behind(
        &self,
        file: &File,
        w: &mut Writing,
        data: &[u8],
        offset: u64,
        now: Nanos,
    ) -> Option<Result<(), Error>> {
        let on_stream = w.sequence.note(offset, data.len(), WRITES_IN_A_ROW);
        if w.shared.as_ref().is_some_and(|shared| !self.lives(shared, now))
            && let Err(e) = self.unstage(file, w)
        {
            return Some(Err(e));
        }
        if let Some(shared) = &w.shared {
            let cells = shared.area.cells();
            if cells.is_tight() {
                let told = self.unstage(file, w);
                w.sequence.in_vain();
                return told.err().map(Err);
            }
            if !cells.troubled() && cells.tail() == offset {
                let put = Writing::put(shared, data, offset).or_else(|| {
                    // The ring is full.
                    let settle = |handle| Meta::Share { handle, how: Sharing::Settle };
                    self.meta_on(file, settle, |a| matches!(a, Answer::Done).then_some(())).ok()?;
                    Writing::put(shared, data, offset)
                });
                match put {
                    Some(true) => return Some(Ok(())),
                    // It counts once the node has answered.
                    Some(false) => return Some(self.unstage(file, w)),
                    None => {}
                }
            } else if !cells.troubled() && !on_stream {
                return None;
            }
            if let Err(e) = self.unstage(file, w) {
                return Some(Err(e));
            }
        }
        if !on_stream {
            return None;
        }
        let told = |how| {
            self.meta_on(
                file,
                |handle| Meta::Share { handle, how },
                |a| matches!(a, Answer::Done).then_some(()),
            )
        };
        let Some(shared) = self.share(offset, |fd, nonce| Sharing::Write { fd, nonce }, told) else {
            w.sequence.in_vain();
            return None;
        };
        file.mark_dirty();
        file.streams.staged.store(true, Ordering::Relaxed);
        let put = Writing::put(&shared, data, offset);
        w.shared = Some(shared);
        if put == Some(true) { Some(Ok(())) } else { Some(self.unstage(file, w)) }
    }

    /// Whether the node process that this one was last connected to lives.
    pub(crate) fn node_lives(&self, now: Nanos) -> bool {
        if now.since(Nanos(self.looked.load(Ordering::Relaxed))) < LOOK {
            return true;
        }
        let lives = !self.pool.is_left();
        if lives {
            self.looked.store(now.0, Ordering::Relaxed);
        }
        lives
    }

    /// Whether the process that shares the memory still is the one that serves.
    pub(crate) fn lives(&self, shared: &Shared, now: Nanos) -> bool {
        self.node_lives(now) && shared.with == self.serving.load(Ordering::Relaxed)
    }

    /// Before the process ends or becomes another program: what the node has not taken yet is in the file, or told.
    pub fn rescue(&self, file: &File) -> Result<(), Error> {
        let missing = |w: &mut Writing| {
            w.shared.as_ref().is_some_and(|s| s.area.cells().head() != s.area.cells().tail())
        };
        let staged = file.streams.is_staged() && file.streams.writing.with(missing) != Some(false);
        if !staged && !file.streams.is_put_off() {
            return Ok(());
        }
        let started = sys::now();
        let outcome = self.settle(file).map(|()| 0);
        if outcome.is_err() {
            self.count(OpIndex::WRITE, started, &outcome);
        }
        outcome.map(|_| ())
    }

    /// Memory that the node has too, if it takes it when it is `told`.
    #[cold]
    pub(crate) fn share(
        &self,
        start: u64,
        how: impl FnOnce(i32, u64) -> Sharing,
        told: impl FnOnce(Sharing) -> Result<(), Error>,
    ) -> Option<Shared> {
        let with = self.serving.load(Ordering::SeqCst);
        let (shared, descriptor, nonce) = Shared::new(start, with, RING)?;
        match told(how(descriptor.as_raw_fd(), nonce)) {
            // Another process may have been found on the way: with whom it is shared is not known then.
            Ok(()) => (self.serving.load(Ordering::SeqCst) == with).then_some(shared),
            Err(Error::Refused { errno: libc::EOPNOTSUPP, .. }) => {
                self.unshared.store(true, Ordering::Relaxed);
                None
            }
            Err(_) => None,
        }
    }

    /// Has all that was written put into the file, and shares nothing to write any more.
    fn unstage(&self, file: &File, w: &mut Writing) -> Result<(), Error> {
        let Some(shared) = w.shared.take() else { return Ok(()) };
        file.streams.staged.store(false, Ordering::Relaxed);
        w.sequence.ended(shared.area.cells().tail().saturating_sub(shared.start));
        let end = |handle| Meta::Share { handle, how: Sharing::End };
        self.meta_on(file, end, |a| matches!(a, Answer::Done).then_some(()))?;
        let (mut at, tail) = (shared.area.cells().head(), shared.area.cells().tail());
        if at < tail && shared.with != self.serving.load(Ordering::SeqCst) {
            // The process is gone, and others may have written through its successor since.
            return Err(Error::local(libc::EIO));
        }
        while at < tail {
            let rest = shared.area.get(places(at..tail).0);
            match self.write_at(file, &rest, at)? {
                0 => return Err(Error::local(libc::EIO)),
                n => at += n as u64,
            }
        }
        Ok(())
    }

    /// All that was written through the file is in it; or the error that is to be told.
    pub(crate) fn settle(&self, file: &File) -> Result<(), Error> {
        file.streams.look_again();
        file.late()?;
        self.settle_put_off(file)?;
        if !file.streams.staged.load(Ordering::Relaxed) {
            return Ok(());
        }
        let until = sys::now() + PATIENCE.into();
        loop {
            if let Some(outcome) = file.streams.writing.with(|w| self.unstage(file, w)) {
                return outcome;
            }
            if sys::now() >= until {
                // A thread left in the midst of a write. The node still takes what was written.
                return Ok(());
            }
            let _ = sys::nap(Duration::from_micros(50));
        }
    }

    /// As the end of a stream, for somebody who has no way to be told an error: the next call is.
    pub fn settle_later(&self, file: &File) {
        if let Err(e) = self.settle(file) {
            self.tell_later(file, e.errno());
        }
    }

    /// The file is used past the I/O node, by a mapping for example: nobody writes or reads ahead any more.
    pub fn use_directly(&self, file: &File) {
        if self.config.share {
            self.settle_later(file);
            // Without a node there is nothing to keep apart.
            let never = |handle| Meta::Share { handle, how: Sharing::Never };
            let _ = self.meta_on(file, never, |a| matches!(a, Answer::Done).then_some(()));
        }
    }

    /// A program begins that asks no I/O node: what anybody has written is in the files.
    pub fn settle_all(&self) {
        if self.config.share && self.config.stage {
            let op = Meta::Share { handle: 0, how: Sharing::SettleAll };
            let _ = self.meta(op, |a| matches!(a, Answer::Done).then_some(()));
        }
    }
}

impl File {
    /// Whether writes go where they are told to, and may be durable later.
    pub(crate) fn is_plain(&self) -> bool {
        let unfit = OpenFlags::APPEND | OpenFlags::DIRECT | OpenFlags::SYNC | OpenFlags::DSYNC;
        self.flags().0 & unfit.0 == 0
    }
}
