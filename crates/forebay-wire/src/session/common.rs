//! What the processes that share an open file (by `fork`, `exec`, or passed on) know of it together, in memory that
//! they share: which hosts have its data unsynced, whoever wrote it; which locks the open file holds, whoever took
//! them, and which acknowledged writes have failed, so that each of them is told. All zero is a good beginning.

use super::owed::Owed;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// So many places at which one open file holds locks are told apart: it has more than one only after a move or a
/// drain has divided it.
const PLACES: usize = 4;
/// Stands for every place: there were too many.
const ANYWHERE: u64 = u64::MAX;
/// Locked by more than one process.
const SEVERAL: u64 = u64::MAX;

/// One open file of several processes. A place is the handle that it has on its node.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Common {
    /// The hosts that have its data unsynced.
    pub owed: Owed,
    flock: Places,
    ranges: Places,
    /// Who has locked ranges of bytes.
    ranges_by: AtomicU64,
    lost: AtomicU64,
    told: AtomicU64,
    /// How often a write failed that was acknowledged, and the last errno.
    failed: AtomicU64,
    /// The same, as far as somebody was told.
    failure_told: AtomicU64,
}

/// So many bits of [`Common::failed`] are an errno.
const ERRNO_BITS: u32 = 12;

/// Where locks of one kind are held.
#[derive(Debug, Default)]
#[repr(C)]
struct Places([AtomicU64; PLACES]);

impl Places {
    fn has(&self, place: u64) -> bool {
        self.0
            .iter()
            .any(|p| matches!(p.load(SeqCst), held if held != 0 && (held == place || held == ANYWHERE)))
    }

    fn any(&self) -> bool {
        self.0.iter().any(|p| p.load(SeqCst) != 0)
    }

    fn add(&self, place: u64) {
        let put = |p: &AtomicU64| p.compare_exchange(0, place, SeqCst, SeqCst).is_ok();
        if !self.has(place) && !self.0.iter().any(put) {
            self.0[0].store(ANYWHERE, SeqCst);
        }
    }

    fn remove(&self, place: u64) {
        for p in &self.0 {
            let _ = p.compare_exchange(place, 0, SeqCst, SeqCst);
        }
    }
}

/// How ranges of bytes were changed through the open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranges {
    /// Some were locked.
    Locked,
    /// Some were released; `rest`: this process has locked others.
    Released {
        /// It has.
        rest: bool,
    },
    /// All were released, whoever had locked them.
    Free,
}

impl Common {
    /// It is for another open file from now on.
    pub fn clear(&self) {
        self.owed.clear();
        let alone = [&self.ranges_by, &self.lost, &self.told, &self.failed, &self.failure_told];
        alone.into_iter().chain(&self.flock.0).chain(&self.ranges.0).for_each(|word| word.store(0, SeqCst));
    }

    /// The whole file was locked at `place`, or released.
    pub fn note_flock(&self, place: u64, held: bool) {
        if held { self.flock.add(place) } else { self.flock.remove(place) }
    }

    /// Ranges of bytes were changed at `place` by the process that is called `who`.
    pub fn note_ranges(&self, place: u64, who: u64, change: Ranges) {
        match change {
            Ranges::Locked => {
                self.ranges.add(place);
                if let Err(by) = self.ranges_by.compare_exchange(0, who, SeqCst, SeqCst)
                    && by != who
                {
                    self.ranges_by.store(SEVERAL, SeqCst);
                }
            }
            // What others have locked is not known here: it counts as held until all is released.
            Ranges::Released { rest } if rest || self.ranges_by.load(SeqCst) != who => {}
            Ranges::Released { .. } | Ranges::Free => {
                self.ranges.remove(place);
                if !self.ranges.any() {
                    self.ranges_by.store(0, SeqCst);
                }
            }
        }
    }

    /// Whether the open file holds locks at `place`.
    pub fn holds_at(&self, place: u64) -> bool {
        self.flock.has(place) || self.ranges.has(place)
    }

    /// Whether the open file holds any.
    pub fn holds(&self) -> bool {
        self.flock.any() || self.ranges.any()
    }

    /// A process has opened the file elsewhere. If its node is `gone`, the locks that were held there are lost; where it
    /// lives, another process may have locked the file there just now, and has it still.
    pub fn left(&self, place: u64, gone: bool) {
        if gone && self.holds_at(place) {
            // First of all, so that nobody finds neither the locks nor their loss.
            self.lost.fetch_add(1, SeqCst);
            self.flock.remove(place);
            self.ranges.remove(place);
        }
    }

    /// How often locks were lost. Whoever has heard of fewer is to be told.
    pub fn lost(&self) -> u64 {
        self.lost.load(SeqCst)
    }

    /// Somebody was told of so many losses.
    pub fn note_told(&self, of: u64) {
        self.told.fetch_max(of, SeqCst);
    }

    /// Of how many losses somebody was told: a program that begins now need not be.
    pub fn told(&self) -> u64 {
        self.told.load(SeqCst)
    }

    /// A write that was acknowledged has failed.
    pub fn fail(&self, errno: i32) {
        let errno = errno as u64 & ((1 << ERRNO_BITS) - 1);
        let next = |failed: u64| Some(((failed >> ERRNO_BITS) + 1) << ERRNO_BITS | errno);
        let _ = self.failed.fetch_update(SeqCst, SeqCst, next);
    }

    /// Which failures there were. Whoever has heard of others is to be told.
    pub fn failed(&self) -> u64 {
        self.failed.load(SeqCst)
    }

    /// What is told of these.
    pub fn errno(failed: u64) -> i32 {
        (failed & ((1 << ERRNO_BITS) - 1)) as i32
    }

    /// Somebody was told of these.
    pub fn note_failure_told(&self, failed: u64) {
        self.failure_told.fetch_max(failed, SeqCst);
    }

    /// Of which somebody was told.
    pub fn failure_told(&self) -> u64 {
        self.failure_told.load(SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_known_to_all_and_counted_once() {
        let c = Common::default();
        c.note_flock(7, true);
        assert!(c.holds_at(7) && !c.holds_at(8) && c.holds());
        c.left(8, true);
        assert_eq!(c.lost(), 0, "it was held elsewhere");
        c.left(7, false);
        assert!(c.lost() == 0 && c.holds_at(7), "its node lives");
        c.left(7, true);
        c.left(7, true);
        assert_eq!((c.lost(), c.told()), (1, 0));
        assert!(!c.holds());
        c.note_told(1);
        c.note_flock(9, true);
        c.note_flock(9, false);
        c.left(9, true);
        assert_eq!((c.lost(), c.told()), (1, 1), "it was released");
    }

    #[test]
    fn each_failure_is_another_one() {
        let c = Common::default();
        assert_eq!((c.failed(), c.failure_told()), (0, 0));
        c.fail(28);
        let first = c.failed();
        assert_eq!(Common::errno(first), 28);
        c.note_failure_told(first);
        c.fail(5);
        assert!(c.failed() > first && Common::errno(c.failed()) == 5);
        assert_eq!(c.failure_told(), first, "of the second nobody has heard");
        c.clear();
        assert_eq!((c.failed(), c.failure_told()), (0, 0));
    }

    #[test]
    fn ranges_are_held_until_whoever_locked_them_has_released_all() {
        let c = Common::default();
        c.note_ranges(7, 1, Ranges::Locked);
        c.note_ranges(7, 2, Ranges::Released { rest: false });
        assert!(c.holds_at(7), "it may be another's");
        c.note_ranges(7, 1, Ranges::Released { rest: true });
        assert!(c.holds_at(7));
        c.note_ranges(7, 1, Ranges::Released { rest: false });
        assert!(!c.holds());
        c.note_ranges(7, 1, Ranges::Locked);
        c.note_ranges(7, 2, Ranges::Locked);
        c.note_ranges(7, 1, Ranges::Released { rest: false });
        assert!(c.holds(), "the other's are left");
        c.note_ranges(7, 1, Ranges::Free);
        assert!(!c.holds());
    }

    #[test]
    fn too_many_places_are_all_places() {
        let c = Common::default();
        (1..=5).for_each(|place| c.note_flock(place, true));
        assert!(c.holds_at(77));
        c.left(77, true);
        assert_eq!(c.lost(), 1);
    }
}
