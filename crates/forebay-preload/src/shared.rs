//! A value that is replaced while others use it. Looking takes no lock; what was found stays alive for
//! as long as it is used.

use crate::sys::sys;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// One value, or none.
pub(crate) struct Shared<T> {
    value: AtomicPtr<T>,
    readers: AtomicU32,
}

impl<T> Shared<T> {
    pub(crate) const fn empty() -> Shared<T> {
        Shared { value: AtomicPtr::new(std::ptr::null_mut()), readers: AtomicU32::new(0) }
    }

    /// The cheapest question.
    pub(crate) fn is_empty(&self) -> bool {
        self.value.load(Ordering::Relaxed).is_null()
    }

    pub(crate) fn get(&self) -> Option<Arc<T>> {
        if self.is_empty() {
            return None;
        }
        self.readers.fetch_add(1, Ordering::Acquire);
        let p = self.value.load(Ordering::Acquire);
        let found = (!p.is_null()).then(|| {
            // SAFETY: the pointer came from `Arc::into_raw`, and whoever replaces it waits for
            // `readers` before it drops the reference that is kept here.
            unsafe {
                Arc::increment_strong_count(p);
                Arc::from_raw(p)
            }
        });
        self.readers.fetch_sub(1, Ordering::Release);
        found
    }

    /// Puts `new` in its place and returns what was there.
    pub(crate) fn replace(&self, new: Option<Arc<T>>) -> Option<Arc<T>> {
        let new = new.map_or(std::ptr::null_mut(), |n| Arc::into_raw(n).cast_mut());
        let old = self.value.swap(new, Ordering::AcqRel);
        if old.is_null() {
            return None;
        }
        // SAFETY: the reference that was kept here.
        let old = unsafe { Arc::from_raw(old) };
        let mut spins = 0;
        while self.readers.load(Ordering::Acquire) != 0 {
            spins += 1;
            if spins > 10_000 {
                // A signal handler replaces what its own thread is looking at: keep it alive for good.
                std::mem::forget(Arc::clone(&old));
                break;
            }
            if spins > 100 {
                sys!(sched_yield);
            }
        }
        Some(old)
    }

    /// In a forked child: other threads that were looking are not here.
    pub(crate) fn after_fork(&self) {
        self.readers.store(0, Ordering::Relaxed);
    }
}
