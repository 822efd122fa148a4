//! Small requests that follow each other through an open file, without a trip each. Client and node of
//! one host share a piece of memory, one for each such file that is written: [`Cells`], and behind them a ring.
//!
//! *Reading*: the client reads ahead, and uses what it has only while nothing changes the file, which the
//! node's [`Board`] tells.
//!
//! *Writing*: a write is a copy into the ring and a new [`Cells::tail`]. The node writes it to the file:
//! before it carries out anything that could tell the difference, when the client asks, when the client
//! has ended (however it did), and soon in any case. One writes the tail, the other the head: nobody waits.

use super::board::{Board, Still};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// What lies before the ring.
pub const CELLS: usize = 4096;
/// The ring of a file that is written.
pub const RING: usize = 512 << 10;
/// Where one connection's large writes are placed, behind the [`CELLS`].
pub const PLACED: usize = 1 << 20;
/// Requests up to this size are small.
pub const SMALL: usize = 64 << 10;
/// The most that is read ahead of a file.
pub const FURTHEST: usize = 1 << 20;
/// So many in a row make a stream. A program that writes some records and syncs them, as databases do with
/// their journals, is better off without.
pub const READS_IN_A_ROW: u32 = 6;
/// The same for writes.
pub const WRITES_IN_A_ROW: u32 = 16;
/// What was begun in vain is tried again after as many requests as this, at most.
const LONGEST_REST: u32 = 1 << 16;
const FIRST_REST: u32 = 16;
/// A stream of so many bytes was worth its beginning and its end.
const WORTH: u64 = 64 << 10;

/// What client and node tell each other about one file. All zero is a good beginning; every bit pattern is
/// a value.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Cells {
    /// Which memory this is, so that nobody takes another for it.
    pub nonce: AtomicU64,
    tail: AtomicU64,
    head: AtomicU64,
    failed: AtomicU32,
    revoked: AtomicU32,
    owes: AtomicU32,
    tight: AtomicU32,
}

impl Cells {
    /// Client, before the node knows of it: writing begins here.
    pub fn start(&self, at: u64) {
        self.head.store(at, Ordering::Relaxed);
        self.tail.store(at, Ordering::Release);
    }

    /// How far the file has been written.
    pub fn head(&self) -> u64 {
        self.head.load(Ordering::Acquire)
    }

    /// How far the program has written.
    pub fn tail(&self) -> u64 {
        self.tail.load(Ordering::Acquire)
    }

    /// Client: what lies in the ring up to `tail` is written. False: the node does not look any more, and
    /// has to be asked.
    #[must_use]
    pub fn publish(&self, tail: u64) -> bool {
        self.tail.store(tail, Ordering::Release);
        // Either the node sees the tail after it revoked, or we see that it did.
        fence(Ordering::SeqCst);
        self.revoked.load(Ordering::Relaxed) == 0
    }

    /// Whether the client must ask before it goes on: why something could not be written, or that nothing
    /// more is taken.
    pub fn troubled(&self) -> bool {
        self.revoked.load(Ordering::Relaxed) != 0 || self.failed.load(Ordering::Relaxed) != 0
    }

    /// Node: what is still to be written, if the client has not made it up.
    pub fn pending(&self) -> Option<Range<u64>> {
        let (head, tail) = (self.head(), self.tail());
        let sane = tail >= head && tail - head <= RING as u64 && i64::try_from(tail).is_ok();
        sane.then_some(head..tail)
    }

    /// Node: the file has been written so far.
    pub fn written(&self, head: u64) {
        self.head.store(head, Ordering::Release);
    }

    /// Node: nothing more is taken, but for what is there.
    pub fn revoke(&self) {
        self.revoked.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Node: it could not be written.
    pub fn fail(&self, errno: u32) {
        self.failed.store(errno.max(1), Ordering::Release);
    }

    /// Node: whether there is so little space that what is put off might not fit.
    pub fn set_tight(&self, tight: bool) {
        if self.is_tight() != tight {
            self.tight.store(tight.into(), Ordering::SeqCst);
        }
    }

    /// Client: nothing is to be put off.
    pub fn is_tight(&self) -> bool {
        self.tight.load(Ordering::Relaxed) != 0
    }

    /// Node: something went wrong that it has not told yet, or nothing any more.
    pub fn owe(&self, something: bool) {
        self.owes.store(something.into(), Ordering::SeqCst);
    }

    /// Client: whether there is something that the node has not told.
    pub fn owes(&self) -> bool {
        self.owes.load(Ordering::SeqCst) != 0
    }

    /// The error with which writing has ended, 0 if it has not.
    pub fn failed(&self) -> u32 {
        self.failed.load(Ordering::Acquire)
    }
}

/// Where in the ring the bytes of a file lie: up to its end, and from its beginning on.
pub fn places(bytes: Range<u64>) -> (Range<usize>, Range<usize>) {
    let len = bytes.end.saturating_sub(bytes.start).min(RING as u64) as usize;
    let from = (bytes.start % RING as u64) as usize;
    let first = len.min(RING - from);
    (from..from + first, 0..len - first)
}

/// One direction of an open file: whether requests follow each other.
#[derive(Clone, Debug)]
pub struct Sequence {
    next: u64,
    run: u32,
    rest: u32,
    next_rest: u32,
}

impl Default for Sequence {
    fn default() -> Sequence {
        Sequence { next: 0, run: 0, rest: 0, next_rest: FIRST_REST }
    }
}

impl Sequence {
    /// A small request: whether it goes on a stream that is worth an effort, `enough` of them in a row.
    pub fn note(&mut self, offset: u64, len: usize, enough: u32) -> bool {
        self.run = if offset == self.next { self.run.saturating_add(1) } else { 1 };
        self.next = offset.saturating_add(len as u64);
        self.rest = self.rest.saturating_sub(1);
        self.run >= enough && self.rest == 0
    }

    /// A stream of so many bytes has come to its end.
    pub fn ended(&mut self, bytes: u64) {
        match bytes >= WORTH {
            true => (self.rest, self.next_rest) = (0, FIRST_REST),
            false => self.in_vain(),
        }
    }

    /// The effort was in vain: the next one is made later, each time later than the last.
    pub fn in_vain(&mut self) {
        self.rest = self.next_rest;
        self.next_rest = (self.next_rest * 4).min(LONGEST_REST);
    }
}

/// What was read ahead.
#[derive(Clone, Debug, Default)]
pub struct Window {
    start: u64,
    len: usize,
    /// The file ends where this does.
    ends: bool,
    still: Option<Still>,
    size: usize,
}

impl Window {
    /// Where in what was read ahead the bytes lie that a read would give, if all of them do, and the file is
    /// still the same.
    pub fn find(&self, board: &Board, offset: u64, len: usize) -> Option<Range<usize>> {
        let still = self.still.as_ref()?;
        let at = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        let end = at.checked_add(len)?;
        let part = match self.ends {
            true => at.min(self.len)..end.min(self.len),
            false => at..end,
        };
        (part.end <= self.len && board.contents_hold(still)).then_some(part)
    }

    /// Whether the bytes were read ahead, whatever has become of the file.
    pub fn covers(&self, offset: u64, len: usize) -> bool {
        let end = self.start.saturating_add(self.len as u64);
        self.len > 0 && offset >= self.start && offset.saturating_add(len as u64) <= end
    }

    /// Whether there is anything.
    pub fn is_empty(&self) -> bool {
        self.still.is_none()
    }

    /// How much to read for a stream that asks for `len` bytes now: more every time.
    pub fn grow(&mut self, len: usize) -> usize {
        self.size = (self.size * 2).max(len * 8).clamp(SMALL, FURTHEST);
        self.size
    }

    /// `len` bytes were read at `start`, and there were no more (`ends`); this was seen before that.
    pub fn filled(&mut self, start: u64, len: usize, ends: bool, still: Still) {
        (self.start, self.len, self.ends, self.still) = (start, len, ends, Some(still));
    }

    /// Nothing of it is used any more.
    pub fn forget(&mut self) {
        (self.len, self.still) = (0, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn so_many_in_a_row_and_rests_that_grow() {
        let mut s = Sequence::default();
        let worth: Vec<bool> = (0..6).map(|i| s.note(i * 10, 10, 4)).collect();
        assert_eq!(worth, [false, false, false, true, true, true]);
        assert!(!s.note(0, 10, 4), "elsewhere");
        s.in_vain();
        let rest = |s: &mut Sequence| {
            let mut at = s.next;
            (1..).find(|_| {
                at += 1;
                s.note(at - 1, 1, 4)
            })
        };
        assert_eq!(rest(&mut s), Some(16));
        s.ended(WORTH - 1);
        assert_eq!(rest(&mut s), Some(64));
        s.ended(WORTH);
        assert_eq!(rest(&mut s), Some(1), "it was worth it");
        s.in_vain();
        assert_eq!(rest(&mut s), Some(16));
    }

    #[test]
    fn a_change_ends_what_was_read_ahead() {
        use super::super::board::Scope;
        let board = Board::default();
        let mut w = Window::default();
        assert!(w.is_empty() && w.find(&board, 0, 0).is_none());
        w.filled(100, 50, false, board.still(7, Scope::Nothing, false).unwrap());
        assert_eq!(w.find(&board, 110, 40), Some(10..50));
        assert_eq!(w.find(&board, 110, 41), None, "not all of it");
        assert_eq!(w.find(&board, 99, 1), None);
        w.filled(100, 50, true, board.still(7, Scope::Nothing, false).unwrap());
        assert_eq!(w.find(&board, 110, 4096), Some(10..50), "all there is");
        assert_eq!(w.find(&board, 150, 10), Some(50..50), "the end");
        assert_eq!(w.find(&board, i64::MAX as u64, 10), Some(50..50), "far behind it");
        assert_eq!(w.find(&board, 99, 1), None);
        board.begin(Scope::Place(7));
        assert_eq!(w.find(&board, 110, 40), None, "before the change");
        assert!(w.covers(110, 40));
        board.end(Scope::Place(7));
        assert_eq!(w.find(&board, 110, 40), None, "and after it");
    }

    #[test]
    fn a_client_cannot_make_the_node_believe_anything() {
        let cells = Cells::default();
        cells.start(10);
        for tail in [9, 10 + RING as u64 + 1, u64::MAX] {
            let _ = cells.publish(tail);
            assert_eq!(cells.pending(), None);
        }
        assert!(cells.publish(10 + RING as u64));
        assert_eq!(cells.pending(), Some(10..10 + RING as u64));
        cells.revoke();
        assert!(!cells.publish(11) && cells.troubled());
    }

    proptest! {
        /// Whatever is written in whatever pieces, and taken whenever, is in the file.
        #[test]
        fn the_ring_loses_nothing(
            at in any::<u32>(), steps in prop::collection::vec((1usize..40_000, any::<bool>()), 1..200),
        ) {
            let (cells, mut ring) = (Cells::default(), vec![0u8; RING]);
            let (mut file, mut written, mut next) = (Vec::new(), Vec::new(), 0u8);
            cells.start(at.into());
            let take = |cells: &Cells, ring: &[u8], file: &mut Vec<u8>| {
                let range = cells.pending().unwrap();
                let (a, b) = places(range.clone());
                file.extend_from_slice(&ring[a]);
                file.extend_from_slice(&ring[b]);
                cells.written(range.end);
            };
            for (len, drain) in steps {
                let tail = cells.tail();
                if drain || tail + len as u64 > cells.head() + RING as u64 {
                    take(&cells, &ring, &mut file);
                }
                next = next.wrapping_add(7);
                let (a, b) = places(tail..tail + len as u64);
                prop_assert_eq!(a.len() + b.len(), len);
                ring[a].fill(next);
                ring[b].fill(next);
                written.extend(std::iter::repeat_n(next, len));
                prop_assert!(cells.publish(tail + len as u64));
            }
            take(&cells, &ring, &mut file);
            prop_assert!(file == written);
        }
    }
}
