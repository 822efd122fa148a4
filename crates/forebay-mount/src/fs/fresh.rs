//! A `stat` is two questions of the kernel, one for the name and one for the attributes, though the
//! first answer holds both. The second is answered from the first if the same thread asks it next,
//! at once, and nothing was changed through this mount in between: then it is the same `stat`.

use forebay_client::Attr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Within one system call; no other host's change can be heard of in so short a time.
pub(super) const AT_ONCE: Duration = Duration::from_micros(250);
const SLOTS: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Seen {
    thread: u32,
    node: u64,
    attr: Attr,
    at: Instant,
    changes: u64,
}

/// What threads were told last.
#[derive(Debug)]
pub(super) struct Fresh {
    slots: [Mutex<Option<Seen>>; SLOTS],
    changes: AtomicU64,
}

impl Default for Fresh {
    fn default() -> Fresh {
        Fresh { slots: std::array::from_fn(|_| Mutex::new(None)), changes: AtomicU64::new(0) }
    }
}

impl Fresh {
    fn slot(&self, thread: u32) -> &Mutex<Option<Seen>> {
        &self.slots[thread as usize % SLOTS]
    }

    /// How many changes there were: to be read before the attributes are asked for.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub(super) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// `thread` was told `attr` of `node`, asked for after `changes`.
    pub(super) fn told(&self, thread: u32, node: u64, attr: &Attr, changes: u64) {
        let seen = Seen { thread, node, attr: *attr, at: Instant::now(), changes };
        *self.slot(thread).lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
    }

    /// `thread` asks something: what it was told last, if that is `node`'s and still true.
    pub(super) fn take(&self, thread: u32, node: u64) -> Option<Attr> {
        let seen = self.slot(thread).lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let same = seen.thread == thread && seen.node == node && seen.changes == self.changes();
        (same && seen.at.elapsed() < AT_ONCE).then_some(seen.attr)
    }

    /// `thread` does something else.
    pub(super) fn forget(&self, thread: u32) {
        *self.slot(thread).lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_thread_at_once_and_nothing_in_between() {
        let fresh = Fresh::default();
        let attr = Attr { ino: 7, ..Attr::default() };
        let tell = || fresh.told(5, 9, &attr, fresh.changes());
        tell();
        assert!(fresh.take(6, 9).is_none());
        tell();
        assert!(fresh.take(5, 8).is_none());
        assert!(fresh.take(5, 9).is_none(), "it was taken");
        tell();
        fresh.changed();
        assert!(fresh.take(5, 9).is_none());
        tell();
        std::thread::sleep(AT_ONCE);
        assert!(fresh.take(5, 9).is_none());
    }
}
