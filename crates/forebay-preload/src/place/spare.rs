//! One opening of the shared memory file that outlives the files it stood for. To open that file anew
//! goes through `/proc`, which takes longer than everything else this library does to open a file;
//! most programs have one file open at a time, and to duplicate a descriptor is cheap.

use crate::sys::sys;
use crate::table::Open;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

/// Its number, out of the program's way; [`NONE`] or [`NEVER`].
static FD: AtomicI32 = AtomicI32::new(NONE);
/// A file is using it: two files must not share an offset.
static LENT: AtomicBool = AtomicBool::new(false);
/// Which spare it is. One of a parent process is not to be given back here.
static GENERATION: AtomicU32 = AtomicU32::new(1);
/// Whether a file was opened before: a program that opens only one needs no spare.
static SECOND: AtomicBool = AtomicBool::new(false);

const NONE: i32 = -1;
/// The descriptor table has no room for one.
const NEVER: i32 = -2;

/// A descriptor of the spare for `open`, if there is one and it is free.
pub(super) fn lend(open: &Open, cloexec: bool) -> Option<isize> {
    let spare = FD.load(Ordering::Acquire);
    if spare < 0 || LENT.swap(true, Ordering::Acquire) {
        return None;
    }
    let how = if cloexec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
    let fd = sys!(fcntl, spare, how, 0);
    if fd < 0 {
        if fd == -(libc::EBADF as isize) {
            // It was closed by a way that this library does not see.
            FD.store(NONE, Ordering::Relaxed);
        }
        LENT.store(false, Ordering::Release);
        return None;
    }
    if FD.load(Ordering::Acquire) != spare {
        // Meanwhile the program has taken the number: this is a file of its own, and not to be touched.
        sys!(close, fd);
        return None;
    }
    sys!(lseek, fd, 0, libc::SEEK_SET);
    open.spare.store(GENERATION.load(Ordering::Relaxed), Ordering::Relaxed);
    Some(fd)
}

/// `fd` was opened for `open`: it becomes the spare if there is none.
pub(super) fn keep(open: &Open, fd: i32) {
    if !SECOND.swap(true, Ordering::Relaxed)
        || FD.load(Ordering::Relaxed) != NONE
        || LENT.swap(true, Ordering::Acquire)
    {
        return;
    }
    let spare = sys!(fcntl, fd, libc::F_DUPFD_CLOEXEC, forebay_client::high_descriptor()) as i32;
    if spare < 0 {
        FD.store(NEVER, Ordering::Relaxed);
        LENT.store(false, Ordering::Release);
        return;
    }
    open.spare.store(GENERATION.load(Ordering::Relaxed), Ordering::Relaxed);
    FD.store(spare, Ordering::Release);
}

/// A file does not need it any more, if it ever did: `held` says so.
pub(crate) fn give_back(held: &AtomicU32) {
    let held = held.swap(0, Ordering::Relaxed);
    if held != 0 && held == GENERATION.load(Ordering::Relaxed) {
        LENT.store(false, Ordering::Release);
    }
}

/// Its number, if there is one.
pub(crate) fn descriptor() -> Option<i32> {
    Some(FD.load(Ordering::Relaxed)).filter(|fd| *fd >= 0)
}

/// It is somebody else's from now on: the program wants its number, or a forked child would share its
/// offset with the parent.
pub(crate) fn forsake() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    FD.store(NONE, Ordering::Relaxed);
    LENT.store(false, Ordering::Release);
}
