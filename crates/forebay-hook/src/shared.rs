//! Values that several threads use without locks: one that is replaced while others use it ([`Shared`]), one that is put there
//! once ([`publish`]), and a turn that a thread takes ([`Busy`]).

use crate::sys::{self, sys};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// One value, or none.
pub struct Shared<T> {
    value: AtomicPtr<T>,
    readers: AtomicU32,
}

impl<T> Shared<T> {
    /// None.
    pub const fn empty() -> Shared<T> {
        Shared { value: AtomicPtr::new(std::ptr::null_mut()), readers: AtomicU32::new(0) }
    }

    /// The cheapest question.
    pub fn is_empty(&self) -> bool {
        self.value.load(Ordering::Relaxed).is_null()
    }

    /// What is there.
    #[inline]
    pub fn get(&self) -> Option<Arc<T>> {
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
    pub fn replace(&self, new: Option<Arc<T>>) -> Option<Arc<T>> {
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
    pub fn after_fork(&self) {
        self.readers.store(0, Ordering::Relaxed);
    }
}

/// One thread at a time does something; a signal handler that interrupts it may do it, too.
pub struct Busy(AtomicUsize);

impl Busy {
    /// Nobody does.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Busy {
        Busy(AtomicUsize::new(0))
    }

    /// Runs `f` while no other thread does.
    pub fn with<T>(&self, f: impl FnOnce() -> T) -> T {
        let me = sys::thread();
        let mut spins = 0u32;
        while let Err(holder) = self.0.compare_exchange_weak(0, me, Ordering::Acquire, Ordering::Relaxed) {
            if holder == me {
                // A signal handler interrupted the holder, which waits for it.
                return f();
            }
            spins += 1;
            // A thread that left a handler by a jump never comes back to let it go.
            if spins > 1_000_000 {
                break;
            }
            if spins > 100 {
                sys!(sched_yield);
            }
        }
        let r = f();
        self.0.store(0, Ordering::Release);
        r
    }

    /// In a forked child: other threads are not here.
    pub fn after_fork(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Puts a value into its place for good, unless another thread was first: what is there.
pub fn publish<T>(place: &AtomicPtr<T>, new: T) -> &'static T {
    let new = Box::into_raw(Box::new(new));
    match place.compare_exchange(std::ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: just leaked.
        Ok(_) => unsafe { &*new },
        Err(other) => {
            // SAFETY: `new` was not published; `other` was, for good.
            unsafe {
                drop(Box::from_raw(new));
                &*other
            }
        }
    }
}
