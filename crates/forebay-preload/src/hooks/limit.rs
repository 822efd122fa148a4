//! The limit on a file's size (`RLIMIT_FSIZE`): the kernel keeps it where a file is written, and for
//! forwarded files that is here.

use super::hooks;
use crate::sys::{self, sys};
use forebay_client::File;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

hooks! {
    c"setrlimit" => setrlimit, c"setrlimit64" => setrlimit, c"prlimit" => prlimit, c"prlimit64" => prlimit,
}

/// The limit as this process last set it or was started with.
static LIMIT: AtomicU64 = AtomicU64::new(libc::RLIM_INFINITY);

/// Asks the kernel.
pub(crate) fn refresh() {
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    if sys!(prlimit64, 0, libc::RLIMIT_FSIZE, 0, &raw mut now) == 0 {
        LIMIT.store(now.rlim_cur, Ordering::Relaxed);
    }
}

/// Whether the library may make a file of its own of so many bytes: where it may not, the kernel would end the program.
pub(crate) fn fits(len: usize) -> bool {
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    sys!(prlimit64, 0, libc::RLIMIT_FSIZE, 0, &raw mut now) == 0 && len as u64 <= now.rlim_cur
}

/// How much of `len` bytes at `offset` may be written. `EFBIG`, and the signal, if nothing.
pub(crate) fn room(offset: u64, len: usize) -> Result<usize, i32> {
    let limit = LIMIT.load(Ordering::Relaxed);
    if limit == libc::RLIM_INFINITY || len == 0 {
        return Ok(len);
    }
    match limit.checked_sub(offset) {
        None | Some(0) => {
            sys!(tgkill, sys::getpid(), sys!(gettid), libc::SIGXFSZ);
            Err(libc::EFBIG)
        }
        Some(left) => Ok(len.min(usize::try_from(left).unwrap_or(usize::MAX))),
    }
}

/// As [`room`], for what is written to the end of the file.
pub(crate) fn room_at_end(file: &File, len: usize) -> Result<usize, i32> {
    if LIMIT.load(Ordering::Relaxed) == libc::RLIM_INFINITY {
        return Ok(len);
    }
    room(super::size::size(file).map_err(|e| e.errno())?, len)
}

/// Whether a file may have this size.
pub(crate) fn size(size: u64) -> Result<(), i32> {
    room(size.saturating_sub(1), 1).map(|_| ())
}

pub(crate) unsafe extern "C" fn setrlimit(what: c_int, new: *const libc::rlimit) -> c_int {
    // SAFETY: the same call in another form.
    unsafe { prlimit(0, what, new, std::ptr::null_mut()) }
}

pub(crate) unsafe extern "C" fn prlimit(
    pid: c_int,
    what: c_int,
    new: *const libc::rlimit,
    old: *mut libc::rlimit,
) -> c_int {
    let r = sys!(prlimit64, pid, what, new, old);
    if r == 0 && !new.is_null() && what == libc::RLIMIT_FSIZE as c_int {
        refresh();
    }
    sys::ret(r) as c_int
}
