//! The program's memory, looked at as the kernel looks at it: a pointer that leads nowhere is an
//! `EFAULT`, not a fault. A page is asked for once and remembered, so that a buffer that is used again
//! costs a comparison.

use crate::sys::{Raw, sys};
use std::ffi::c_char;
use std::sync::atomic::{AtomicUsize, Ordering};

const PAGE: usize = 4096;
const ENTRIES: usize = 256;
/// Buffers up to this size may be copied to or from by this process itself.
const COPIED: usize = 64 << 10;
/// The end of what the kernel lets a program have.
const TASK_END: usize = if cfg!(target_arch = "x86_64") { (1 << 47) - PAGE } else { 1 << 48 };

/// Pages that were found readable (or writable) lately, and since when: [`CHANGES`] at that time.
struct Seen([AtomicUsize; ENTRIES]);

static READABLE: Seen = Seen([const { AtomicUsize::new(0) }; ENTRIES]);
static WRITABLE: Seen = Seen([const { AtomicUsize::new(0) }; ENTRIES]);
/// How often memory was taken away from the program, or its protection changed.
static CHANGES: AtomicUsize = AtomicUsize::new(1);

impl Seen {
    fn check(&self, address: usize, probe: fn(usize) -> bool) -> bool {
        let page = address / PAGE;
        let mark = page ^ CHANGES.load(Ordering::Relaxed) << 36;
        let entry = &self.0[page % ENTRIES];
        if entry.load(Ordering::Relaxed) == mark {
            return true;
        }
        let there = probe(address);
        if there {
            entry.store(mark, Ordering::Relaxed);
        }
        there
    }

    /// Every page of a small buffer, which may be copied from here; of a large one, which the kernel gets,
    /// the first and the last: one with a hole in it is too rare to pay for.
    fn check_all(&self, start: usize, n: usize, probe: fn(usize) -> bool) -> bool {
        if n == 0 {
            return true;
        }
        let Some(last) = start.checked_add(n - 1).filter(|&last| last < TASK_END) else { return false };
        let between = if n <= COPIED { start / PAGE + 1..last / PAGE } else { 0..0 };
        start >= PAGE
            && self.check(start, probe)
            && (start / PAGE == last / PAGE || self.check(last, probe))
            && between.into_iter().all(|page| self.check(page * PAGE, probe))
    }

    /// How many of the bytes are there from the first one on.
    fn part(&self, start: usize, n: usize, probe: fn(usize) -> bool) -> usize {
        if self.check_all(start, n, probe) {
            return n;
        }
        let mut end = start;
        while (PAGE..TASK_END).contains(&end) && end - start < n && self.check(end, probe) {
            end = (end / PAGE + 1) * PAGE;
        }
        (end - start).min(n)
    }
}

/// Asks the kernel to read eight bytes for a call that it then refuses: `EINVAL` if it could.
fn can_read(address: usize) -> bool {
    sys!(rt_sigprocmask, usize::MAX, address & !7, 0, 8) == -(libc::EINVAL as Raw)
}

/// Asks the kernel to add nothing to four bytes.
fn can_write(address: usize) -> bool {
    const ADD_NOTHING: usize = 1 << 28;
    let word = address & !3;
    sys!(futex, word, libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG, 0, 0, word, ADD_NOTHING)
        != -(libc::EFAULT as Raw)
}

/// Memory of the program was unmapped or protected: what was seen is worth nothing any more.
pub fn changed() {
    CHANGES.fetch_add(1, Ordering::Relaxed);
}

/// Whether `n` bytes there are within what a program can have.
pub fn in_range<T>(p: *const T, n: usize) -> bool {
    (p as usize).checked_add(n).is_some_and(|end| end <= TASK_END)
}

/// Whether the program has `n` readable bytes there.
pub fn readable<T>(p: *const T, n: usize) -> bool {
    READABLE.check_all(p as usize, n, can_read)
}

/// How many of `n` bytes there can be read from the first one on.
pub fn readable_part<T>(p: *const T, n: usize) -> usize {
    READABLE.part(p as usize, n, can_read)
}

/// How many of `n` bytes there can be written to from the first one on.
pub fn writable_part<T>(p: *mut T, n: usize) -> usize {
    WRITABLE.part(p as usize, n, can_write)
}

/// Whether the program has `n` writable bytes there.
pub fn writable<T>(p: *mut T, n: usize) -> bool {
    WRITABLE.check_all(p as usize, n, can_write)
}

/// A value of the program's, `EFAULT` if it has none there.
///
/// # Safety
/// Every bit pattern must be a value of `T`.
pub unsafe fn take<T: Copy>(p: *const T) -> Result<T, i32> {
    if !readable(p, size_of::<T>()) {
        return Err(libc::EFAULT);
    }
    // SAFETY: readable, as was just seen; a program's pointer need not be aligned.
    Ok(unsafe { p.read_unaligned() })
}

/// Gives the program a value, `EFAULT` if it has no room for it there.
#[expect(clippy::not_unsafe_ptr_arg_deref, reason = "whether it can be written to is looked at first")]
pub fn give<T>(p: *mut T, value: T) -> Result<(), i32> {
    if !writable(p, size_of::<T>()) {
        return Err(libc::EFAULT);
    }
    // SAFETY: writable, as was just seen; a program's pointer need not be aligned.
    unsafe { p.write_unaligned(value) };
    Ok(())
}

/// The program's own bytes: `EFAULT` if it has none there.
///
/// # Safety
/// The memory must stay as it is while the result is used, as for any buffer given to a system call.
pub unsafe fn bytes<'a, T>(p: *const T, n: usize) -> Result<&'a [u8], i32> {
    if n == 0 {
        return Ok(&[]);
    }
    if !readable(p, n) {
        return Err(libc::EFAULT);
    }
    // SAFETY: readable, as was just seen.
    Ok(unsafe { std::slice::from_raw_parts(p.cast(), n) })
}

/// The program's own bytes, to be written: `EFAULT` if it has none there.
///
/// # Safety
/// As for [`bytes`].
pub unsafe fn bytes_mut<'a, T>(p: *mut T, n: usize) -> Result<&'a mut [u8], i32> {
    if n == 0 {
        return Ok(&mut []);
    }
    if !writable(p, n) {
        return Err(libc::EFAULT);
    }
    // SAFETY: writable, as was just seen.
    Ok(unsafe { std::slice::from_raw_parts_mut(p.cast(), n) })
}

/// The program's C string of less than `PATH_MAX` bytes. `None`: it has none there, or a longer one; to
/// say which is left to the kernel.
///
/// # Safety
/// As for [`bytes`].
pub unsafe fn text<'a>(p: *const c_char) -> Option<&'a [u8]> {
    const LONGEST: usize = libc::PATH_MAX as usize;
    let start = p as usize;
    let mut n = 0;
    while n < LONGEST {
        let at = start.checked_add(n)?;
        if !(PAGE..TASK_END).contains(&at) || !READABLE.check(at, can_read) {
            return None;
        }
        let here = (PAGE - at % PAGE).min(LONGEST - n);
        // SAFETY: as many bytes as this page still has, which was just seen to be readable.
        let found = unsafe { libc::strnlen(at as *const c_char, here) };
        n += found;
        if found < here {
            // SAFETY: the pages up to here were seen to be readable.
            return Some(unsafe { std::slice::from_raw_parts(p.cast(), n) });
        }
    }
    None
}
