//! What a descriptor is, as the kernel knows it, without a question to the mount.

use crate::memory;
use forebay_hook::sys::{self, sys};
use forebay_hook::user;
use std::ffi::c_char;

/// So much stack is needed.
const STACK: usize = 32 << 10;

/// An open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) device: (u32, u32),
    pub(crate) ino: u64,
    pub(crate) mode: u16,
    /// As the kernel knows it: it may be longer.
    pub(crate) size: u64,
}

/// What the kernel says of a path, or of `dir` itself.
pub(crate) fn statx(dir: i32, path: *const c_char, flags: i32, mask: u32) -> Option<libc::statx> {
    // SAFETY: plain numbers, for which zero is a value.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    (sys!(statx, dir, path, flags, mask, &raw mut found) == 0).then_some(found)
}

fn of_fd(fd: i32, flags: i32, mask: u32) -> Option<Seen> {
    let found = statx(fd, c"".as_ptr(), libc::AT_EMPTY_PATH | flags, mask)?;
    Some(Seen {
        device: (found.stx_dev_major, found.stx_dev_minor),
        ino: found.stx_ino,
        mode: found.stx_mode,
        size: found.stx_size,
    })
}

/// What is behind a descriptor.
pub(crate) fn at(fd: i32) -> Option<Seen> {
    of_fd(fd, libc::AT_STATX_DONT_SYNC, libc::STATX_BASIC_STATS)
}

/// Has the kernel learn how long the file is.
pub(crate) fn learn_size(fd: i32) {
    of_fd(fd, libc::AT_STATX_FORCE_SYNC, libc::STATX_SIZE);
}

/// The device that `path` is on.
pub(crate) fn device_of(path: &[u8]) -> Option<(u32, u32)> {
    let fd = sys::open(path, libc::O_PATH | libc::O_CLOEXEC | libc::O_DIRECTORY, 0);
    let seen = (fd >= 0).then(|| at(fd as i32)).flatten();
    if fd >= 0 {
        sys::close(fd as i32);
    }
    seen.map(|seen| seen.device)
}

/// How it was opened, and what was set since.
pub(crate) fn flags_of(fd: i32) -> i32 {
    sys!(fcntl, fd, libc::F_GETFL) as i32
}

/// Whether the process may have one more descriptor: a connection is one. Without it nobody could be asked, until the deadline.
pub(crate) fn has_descriptor() -> bool {
    let fd = sys!(openat, libc::AT_FDCWD, c"/".as_ptr(), libc::O_PATH | libc::O_CLOEXEC);
    fd >= 0 && sys!(close, fd) == 0
}

/// Whether there is enough stack: a signal handler may have a small one, a thread too.
pub(crate) fn has_room() -> bool {
    let marker = 0u8;
    let sp = &raw const marker as usize;
    (!memory::may_be_a_handlers(sp) || has_room_there(sp)) && user::writable((sp - STACK) as *mut u8, 1)
}

/// The same by the kernel's word on the stack of signal handlers.
#[cold]
fn has_room_there(sp: usize) -> bool {
    // SAFETY: plain numbers, for which zero is a value.
    let mut other: libc::stack_t = unsafe { std::mem::zeroed() };
    if sys!(sigaltstack, 0, &raw mut other) != 0 {
        return false;
    }
    other.ss_flags & libc::SS_ONSTACK == 0 || sp.saturating_sub(other.ss_sp as usize) >= STACK
}

/// Whether a write that ends at `end` is within what the process may write.
pub(crate) fn is_allowed(end: u64) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // The older call: it costs half of what `prlimit64` does.
    let asked = sys!(getrlimit, libc::RLIMIT_FSIZE, &raw mut limit);
    asked == 0 && (limit.rlim_cur == libc::RLIM_INFINITY || end <= limit.rlim_cur)
}
