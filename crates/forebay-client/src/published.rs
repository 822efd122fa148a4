//! A value for many readers without a lock.

use std::sync::atomic::{AtomicPtr, Ordering};

/// A value that is read all the time and replaced almost never, by a pointer that is swapped. What
/// it held before is leaked: a thread (or a forked child) may still be reading it, and there are
/// only as many as a file moves or is renamed, or a job is mapped anew.
#[derive(Debug)]
pub(crate) struct Published<T>(AtomicPtr<T>);

impl<T> Published<T> {
    pub(crate) fn new(value: T) -> Published<T> {
        Published(AtomicPtr::new(Box::into_raw(Box::new(value))))
    }

    pub(crate) fn get(&self) -> &T {
        // SAFETY: the pointer came from a box that is never freed while `self` lives.
        unsafe { &*self.0.load(Ordering::Acquire) }
    }

    pub(crate) fn set(&self, value: T) {
        self.0.store(Box::into_raw(Box::new(value)), Ordering::Release);
    }
}

impl<T> Drop for Published<T> {
    fn drop(&mut self) {
        // SAFETY: `self` is going away, so nobody reads the current value any more.
        drop(unsafe { Box::from_raw(*self.0.get_mut()) });
    }
}
