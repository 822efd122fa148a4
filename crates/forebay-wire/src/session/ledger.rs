//! The node's memory of what it began and ended, in memory that outlives its process: a ring of
//! [`Entry`]s that another process of the same host can read when this one is gone.
//!
//! What changes something is entered right before its lease is checked and its system call made, and
//! again right after. So what is not entered was not begun, and a node that was stopped in between
//! cannot begin it unseen: its lease has run out when it goes on.

use crate::hello::SessionId;
use crate::message::Fate;
use forebay_types::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many operations a node process remembers, and one entry in front for the ring itself.
pub const ENTRIES: usize = (1 << 16) + 1;

const CLAIMED: u64 = 1;
const BEGUN: u64 = 2;
const DONE: u64 = 3;

/// A frame's age is counted in whole milliseconds, and clocks are read one after the other.
const SLACK_MS: u64 = 10;

/// One operation, 64 bytes. All zero is a free one; every bit pattern is a value.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Entry {
    /// State in the lowest byte, errno in the next two, milliseconds of the host's clock above. In the
    /// first entry: how many operations were ever entered.
    word: AtomicU64,
    session: [AtomicU64; 2],
    /// In the first entry: the newest moment of what was overwritten.
    id: AtomicU64,
    values: [AtomicU64; 4],
}

/// The ledger in `memory`, at least two entries.
#[derive(Debug)]
pub struct Ledger<M> {
    memory: M,
}

/// An operation that was entered; to be told how it ended.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an operation that is not ended stays begun"]
pub struct Begun(usize);

fn millis(now: Nanos) -> u64 {
    now.0 / 1_000_000
}

fn pack(state: u64, errno: u32, now: Nanos) -> u64 {
    state | u64::from(errno & 0xffff) << 8 | millis(now) << 24
}

fn state(word: u64) -> u64 {
    word & 0xff
}

fn halves(session: SessionId) -> [u64; 2] {
    let n = u128::from_le_bytes(session.0);
    [n as u64, (n >> 64) as u64]
}

impl<M: AsRef<[Entry]>> Ledger<M> {
    /// The ledger in `memory`; `None` if that is too short.
    pub fn new(memory: M) -> Option<Ledger<M>> {
        (memory.as_ref().len() > 1).then_some(Ledger { memory })
    }

    fn parts(&self) -> (&Entry, &[Entry]) {
        self.memory.as_ref().split_first().expect("checked when it was made")
    }

    /// Enters an operation that is about to be tried. `None` if every entry stands for one under way:
    /// it must not be tried.
    pub fn begin(&self, session: SessionId, id: u64, now: Nanos) -> Option<Begun> {
        let (head, ring) = self.parts();
        for _ in 0..ring.len() {
            let at = (head.word.fetch_add(1, Ordering::Relaxed) % ring.len() as u64) as usize;
            let entry = &ring[at];
            let old = entry.word.load(Ordering::Acquire);
            if matches!(state(old), CLAIMED | BEGUN)
                || entry.word.compare_exchange(old, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_err()
            {
                continue;
            }
            if state(old) == DONE {
                head.id.fetch_max(old >> 24, Ordering::AcqRel);
            }
            let [low, high] = halves(session);
            entry.session[0].store(low, Ordering::Relaxed);
            entry.session[1].store(high, Ordering::Relaxed);
            entry.id.store(id, Ordering::Relaxed);
            entry.word.store(pack(BEGUN, 0, now), Ordering::Release);
            return Some(Begun(at));
        }
        None
    }

    /// It was tried, and ended so.
    pub fn done(&self, begun: Begun, errno: u32, values: [u64; 4], now: Nanos) {
        let entry = &self.parts().1[begun.0];
        for (slot, value) in entry.values.iter().zip(values) {
            slot.store(value, Ordering::Relaxed);
        }
        entry.word.store(pack(DONE, errno, now), Ordering::Release);
    }

    /// It was not tried after all.
    pub fn withdraw(&self, begun: Begun) {
        self.parts().1[begun.0].word.store(0, Ordering::Release);
    }

    /// What became of the request `id` of `session`, first sent `age_ms` before `now`.
    pub fn fate(&self, session: SessionId, id: u64, age_ms: u32, now: Nanos) -> Fate {
        let (head, ring) = self.parts();
        let [low, high] = halves(session);
        let mut begun = false;
        for entry in ring {
            let word = entry.word.load(Ordering::Acquire);
            if !matches!(state(word), BEGUN | DONE)
                || entry.id.load(Ordering::Relaxed) != id
                || entry.session[0].load(Ordering::Relaxed) != low
                || entry.session[1].load(Ordering::Relaxed) != high
            {
                continue;
            }
            // A later try of what is done does nothing.
            if state(word) == BEGUN {
                begun = true;
                continue;
            }
            let values = std::array::from_fn(|i| entry.values[i].load(Ordering::Relaxed));
            return Fate::Done { errno: (word >> 8 & 0xffff) as u32, values };
        }
        if begun {
            return Fate::Begun;
        }
        let sent = millis(now).saturating_sub(u64::from(age_ms) + SLACK_MS);
        if head.id.load(Ordering::Acquire) >= sent.max(1) { Fate::Forgotten } else { Fate::Absent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: SessionId = SessionId([3; 16]);

    fn ledger(entries: usize) -> Ledger<Vec<Entry>> {
        Ledger::new((0..=entries).map(|_| Entry::default()).collect()).unwrap()
    }

    #[test]
    fn tells_what_was_begun_and_how_it_ended() {
        assert_eq!(size_of::<Entry>(), 64);
        let l = ledger(4);
        let now = Nanos::from_secs(100);
        assert_eq!(l.fate(S, 1, 0, now), Fate::Absent);
        let one = l.begin(S, 1, now).unwrap();
        assert_eq!(l.fate(S, 1, 0, now), Fate::Begun);
        assert_eq!(l.fate(SessionId([4; 16]), 1, 0, now), Fate::Absent);
        l.done(one, 17, [1, 2, 3, 4], now);
        assert_eq!(l.fate(S, 1, 0, now), Fate::Done { errno: 17, values: [1, 2, 3, 4] });
        let again = l.begin(S, 1, now).unwrap();
        assert_eq!(l.fate(S, 1, 0, now), Fate::Done { errno: 17, values: [1, 2, 3, 4] });
        l.withdraw(again);
        let two = l.begin(S, 2, now).unwrap();
        l.withdraw(two);
        assert_eq!(l.fate(S, 2, 0, now), Fate::Absent);
    }

    #[test]
    fn what_is_overwritten_is_not_called_absent() {
        let l = ledger(2);
        let at = Nanos::from_secs;
        let running = l.begin(S, 1, at(10)).unwrap();
        for id in 2..5 {
            let b = l.begin(S, id, at(10 + id)).unwrap();
            l.done(b, 0, [0; 4], at(10 + id));
        }
        assert_eq!(l.fate(S, 1, 20_000, at(20)), Fate::Begun, "what is under way is never overwritten");
        assert_eq!(l.fate(S, 2, 8_000, at(20)), Fate::Forgotten);
        assert_eq!(l.fate(S, 9, 1_000, at(20)), Fate::Absent, "sent after all that was forgotten");
        let last = l.begin(S, 5, at(20)).unwrap();
        assert_eq!(l.begin(S, 6, at(20)), None, "no room for what must be remembered");
        l.done(running, 0, [0; 4], at(20));
        l.done(last, 0, [0; 4], at(20));
    }
}
