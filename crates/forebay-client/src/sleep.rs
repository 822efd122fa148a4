//! Before a thread sleeps in here its front end may have something to do first: the mount lets somebody
//! else read the kernel's requests meanwhile.

use rustix::fd::BorrowedFd;
use std::sync::OnceLock;

/// Told that the calling thread is about to sleep: until there is something to read, or for a while.
type BeforeSleep = fn(Option<BorrowedFd<'_>>);

static BEFORE: OnceLock<BeforeSleep> = OnceLock::new();

/// `hook` is called by every thread that is about to sleep, from now on. The first one counts.
pub fn before_sleep(hook: BeforeSleep) {
    let _ = BEFORE.set(hook);
}

/// The calling thread is about to sleep until `answer` can be read, or for a while.
pub(crate) fn begins(answer: Option<BorrowedFd<'_>>) {
    if let Some(hook) = BEFORE.get() {
        hook(answer);
    }
}
