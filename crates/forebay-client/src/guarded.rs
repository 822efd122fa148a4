//! A value that threads change one after the other, without a lock that the kernel knows: a forked
//! child may find it held by a thread that it does not have, and takes it over.

use crate::sys;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// So often is a holder waited for: it holds on for some hundred nanoseconds.
const SPINS: u32 = 1_000_000;

/// A value behind a flag.
#[derive(Debug)]
pub(crate) struct Guarded<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is touched only by whoever holds the flag.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    pub(crate) fn new(value: T) -> Guarded<T> {
        Guarded { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Runs `f` with the value. `None`: its holder does not let go.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        // No signal handler of this thread finds the value held by the very thread it interrupted.
        let _quiet = sys::HeldSignals::new();
        for spin in 0..SPINS {
            if !self.held.swap(true, Ordering::Acquire) {
                // SAFETY: we hold the flag.
                let r = f(unsafe { &mut *self.value.get() });
                self.held.store(false, Ordering::Release);
                return Some(r);
            }
            if spin % 1000 == 999 {
                std::thread::yield_now();
            }
        }
        None
    }

    /// In a forked child, whose only thread this is: puts `value` there if another thread of the parent
    /// was changing the old one when the child was made. That one's memory is left alone.
    pub(crate) fn take_over(&self, value: T) {
        if self.held.load(Ordering::Relaxed) {
            // SAFETY: there is no other thread.
            unsafe { self.value.get().write(value) };
            self.held.store(false, Ordering::Release);
        }
    }
}

/// A value that whoever comes second does without: nobody waits, so a signal handler may come here.
#[derive(Debug, Default)]
pub(crate) struct Tried<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is touched only by whoever holds the flag.
unsafe impl<T: Send> Sync for Tried<T> {}

impl<T: Default> Tried<T> {
    /// Runs `f` with the value; `None`: somebody else has it.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.held.swap(true, Ordering::Acquire) {
            return None;
        }
        // SAFETY: we hold the flag.
        let r = f(unsafe { &mut *self.value.get() });
        self.held.store(false, Ordering::Release);
        Some(r)
    }

    /// In a forked child, whose only thread this is: begins anew.
    pub(crate) fn take_over(&self) {
        // The parent's is left alone if a thread was just changing it.
        let whole = !self.held.load(Ordering::Relaxed);
        // SAFETY: there is no other thread.
        unsafe {
            if whole {
                *self.value.get() = T::default();
            } else {
                self.value.get().write(T::default());
            }
        }
        self.held.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let sum = Guarded::new(0u64);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..10_000).for_each(|_| assert!(sum.with(|n| *n += 1).is_some())));
            }
        });
        assert_eq!(sum.with(|n| *n), Some(40_000));
        let left = sum.with(|_| sum.with(|n| *n));
        assert_eq!(left, Some(None), "a holder that never lets go is not waited for forever");
        sum.held.store(true, Ordering::Relaxed);
        sum.take_over(7);
        assert_eq!(sum.with(|n| *n), Some(7));
    }
}
