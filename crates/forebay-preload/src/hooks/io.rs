//! Data: read and write, in one piece and in many.

use super::{fail, fail_errno, fd, hooks, limit};
use crate::state::state;
use crate::sys::{self, blocking, sys};
use crate::table::{self, Open};
use crate::user;
use forebay_client::{Error, File, OpenFlags};
use forebay_hook::vector::MAX_RW;
use std::ffi::{c_int, c_void};

hooks! {
    c"read" => read, c"write" => write, c"pread64" => pread, c"pread" => pread, c"pwrite64" => pwrite,
    c"pwrite" => pwrite,
}

/// What a read or write moves: the program's buffer, or several of them as one.
pub(crate) trait Buffer {
    fn len(&self) -> usize;
    /// Reads at an offset until it is full or the file ends.
    fn fill(&mut self, open: &Open, file: &File, offset: u64) -> isize;
    /// Writes its first `n` bytes, at an offset or (`None`) at the end of the file.
    fn drain(&mut self, open: &Open, file: &File, offset: Option<u64>, n: usize) -> Written;
}

/// How much was written, or −1; where an append ended.
pub(crate) struct Written {
    pub(crate) n: isize,
    pub(crate) end: Option<u64>,
}

/// One buffer to be filled.
pub(crate) struct Into<'a>(pub(crate) &'a mut [u8]);
/// One buffer to be written.
pub(crate) struct From<'a>(pub(crate) &'a [u8]);

impl Buffer for Into<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn fill(&mut self, open: &Open, file: &File, offset: u64) -> isize {
        read_piece(open, file, self.0, offset)
    }

    fn drain(&mut self, _: &Open, _: &File, _: Option<u64>, _: usize) -> Written {
        Written { n: fail_errno(libc::EBADF), end: None }
    }
}

impl Buffer for From<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn fill(&mut self, _: &Open, _: &File, _: u64) -> isize {
        fail_errno(libc::EBADF)
    }

    fn drain(&mut self, open: &Open, file: &File, offset: Option<u64>, n: usize) -> Written {
        write_piece(open, file, &self.0[..n], offset)
    }
}

pub(crate) fn read_piece(open: &Open, file: &File, buf: &mut [u8], offset: u64) -> isize {
    match state().client_for_data().pread(file, buf, offset) {
        Ok(n) => n as isize,
        Err(e) => direct(open, file, &e, |local| sys!(pread64, local, buf.as_mut_ptr(), buf.len(), offset)),
    }
}

pub(crate) fn write_piece(open: &Open, file: &File, data: &[u8], offset: Option<u64>) -> Written {
    let client = state().client_for_data();
    match offset {
        Some(offset) => {
            let n = match client.pwrite(file, data, offset) {
                Ok(n) => n as isize,
                Err(e) => {
                    direct(open, file, &e, |local| sys!(pwrite64, local, data.as_ptr(), data.len(), offset))
                }
            };
            Written { n, end: None }
        }
        None => match client.append(file, data) {
            Ok((n, end)) => Written { n: n as isize, end: Some(end) },
            Err(e) => Written {
                n: direct(open, file, &e, |local| sys!(write, local, data.as_ptr(), data.len())),
                end: None,
            },
        },
    }
}

/// Where a read or write happens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    /// At the descriptor's offset, which moves.
    Here,
    /// At this one.
    Offset(u64),
}

/// Reads through the open file.
pub(crate) fn read_open(fd: i32, open: &Open, mut into: impl Buffer, at: At) -> isize {
    let Some(file) = open.remote() else { return fail_errno(libc::EISDIR) };
    if !file.flags().has(OpenFlags::READ) || file.flags().has(OpenFlags::PATH) {
        return fail_errno(libc::EBADF);
    }
    if file.is_dir() {
        return fail_errno(libc::EISDIR);
    }
    match at {
        At::Offset(offset) => into.fill(open, file, offset),
        At::Here => open.with_offset(|| {
            let at = sys!(lseek, fd, 0, libc::SEEK_CUR);
            if at < 0 {
                return sys::ret(at);
            }
            let n = into.fill(open, file, at as u64);
            if n > 0 {
                sys!(lseek, fd, n, libc::SEEK_CUR);
            }
            n
        }),
    }
}

/// Writes through the open file; `append`: at its end, whatever the offset.
pub(crate) fn write_open(fd: i32, open: &Open, mut from: impl Buffer, at: At, append: bool) -> isize {
    let Some(file) = open.remote() else { return fail_errno(libc::EBADF) };
    if !file.flags().has(OpenFlags::WRITE) || file.flags().has(OpenFlags::PATH) {
        return fail_errno(libc::EBADF);
    }
    let len = from.len();
    let appends = match fd::flags_of(fd, open) {
        Ok(flags) => append || flags.has(OpenFlags::APPEND),
        Err(e) => return fail(&e, &open.path),
    };
    // Linux appends to an append-only descriptor even where an offset is given.
    if appends {
        let allowed = match limit::room_at_end(file, len) {
            Ok(n) => n,
            Err(e) => return fail_errno(e),
        };
        let written = from.drain(open, file, None, allowed);
        // Nothing written moves nothing.
        if let (Some(end), At::Here, 1..) = (written.end, at, written.n) {
            sys!(lseek, fd, end, libc::SEEK_SET);
        }
        return written.n;
    }
    let mut write = |offset: u64| match limit::room(offset, len) {
        Ok(allowed) => from.drain(open, file, Some(offset), allowed).n,
        Err(e) => fail_errno(e),
    };
    match at {
        At::Offset(offset) => write(offset),
        // The offset moves first, so that processes that share it never write to the same place.
        At::Here => open.with_offset(|| {
            let end = sys!(lseek, fd, len, libc::SEEK_CUR);
            if end < 0 {
                return sys::ret(end);
            }
            let n = write((end as u64).saturating_sub(len as u64));
            let missing = len as isize - n.max(0);
            if missing > 0 {
                sys!(lseek, fd, -missing, libc::SEEK_CUR);
            }
            n
        }),
    }
}

/// With no I/O node left and the user's leave, the operation goes to this machine's own view of the
/// file; otherwise it fails.
pub(crate) fn direct(open: &Open, file: &File, e: &Error, f: impl FnOnce(i32) -> sys::Raw) -> isize {
    match direct_fd(file, e) {
        Some(local) if local < 0 => sys::ret(local),
        Some(local) => {
            let r = f(local as i32);
            sys::close(local as i32);
            sys::ret(r)
        }
        None => fail(e, &open.path),
    }
}

/// With no I/O node left and the user's leave: the file opened on this machine, or a negative errno.
pub(crate) fn direct_fd(file: &File, e: &Error) -> Option<sys::Raw> {
    if !matches!(e, Error::NoNode { .. } | Error::Lost(_)) || !state().fallback_direct() {
        return None;
    }
    let export = &state().exports[usize::from(file.export)];
    let path = |base: &[u8]| [base, &b"/"[..], &file.rel()].concat();
    let base = export.local.as_ref()?;
    crate::notes::note("direct", &path(&export.dir), &e.to_string());
    Some(sys::open(&path(base), file.flags().to_linux() | libc::O_CLOEXEC, 0))
}

fn read_into(fd: c_int, open: &Open, buf: *mut c_void, n: usize, at: At) -> isize {
    if !user::in_range(buf, n) {
        return fail_errno(libc::EFAULT);
    }
    // As much as has room, as the kernel would.
    let room = user::writable_part(buf, n.min(MAX_RW));
    if room == 0 && n > 0 {
        return fail_errno(libc::EFAULT);
    }
    let n = room;
    let buf = if n == 0 {
        &mut []
    } else {
        // SAFETY: the program's buffer of `n` bytes.
        unsafe { std::slice::from_raw_parts_mut(buf.cast::<u8>(), n) }
    };
    read_open(fd, open, Into(buf), at)
}

fn write_from(fd: c_int, open: &Open, buf: *const c_void, n: usize, at: At) -> isize {
    if !user::in_range(buf, n) {
        return fail_errno(libc::EFAULT);
    }
    // As much as is there, as the kernel would.
    let there = user::readable_part(buf, n.min(MAX_RW));
    if there == 0 && n > 0 {
        return fail_errno(libc::EFAULT);
    }
    // SAFETY: the program's buffer, which it leaves alone during the call.
    match unsafe { user::bytes(buf, there) } {
        Ok(data) => write_open(fd, open, From(data), at, false),
        Err(e) => fail_errno(e),
    }
}

pub(crate) unsafe extern "C" fn read(fd: c_int, buf: *mut c_void, n: usize) -> isize {
    sys::test_cancel();
    match table::get(fd) {
        Some(open) => read_into(fd, &open, buf, n, At::Here),
        None => blocking(|| sys!(read, fd, buf, n)),
    }
}

pub(crate) unsafe extern "C" fn write(fd: c_int, buf: *const c_void, n: usize) -> isize {
    sys::test_cancel();
    match table::get(fd) {
        Some(open) => write_from(fd, &open, buf, n, At::Here),
        None => blocking(|| sys!(write, fd, buf, n)),
    }
}

pub(crate) unsafe extern "C" fn pread(fd: c_int, buf: *mut c_void, n: usize, offset: i64) -> isize {
    sys::test_cancel();
    match table::get(fd) {
        Some(_) if offset < 0 => fail_errno(libc::EINVAL),
        Some(open) => read_into(fd, &open, buf, n, At::Offset(offset as u64)),
        None => blocking(|| sys!(pread64, fd, buf, n, offset)),
    }
}

pub(crate) unsafe extern "C" fn pwrite(fd: c_int, buf: *const c_void, n: usize, offset: i64) -> isize {
    sys::test_cancel();
    match table::get(fd) {
        Some(_) if offset < 0 => fail_errno(libc::EINVAL),
        Some(open) => write_from(fd, &open, buf, n, At::Offset(offset as u64)),
        None => blocking(|| sys!(pwrite64, fd, buf, n, offset)),
    }
}
