//! Data that moves between descriptors inside the kernel: here through a buffer, where one of them
//! is forwarded.

use super::io::{self, At};
use super::{fail_errno, hooks, size};
use crate::sys::{self, sys};
use crate::table;
use crate::user;
use forebay_client::OpenFlags;
use std::ffi::{c_int, c_uint};

hooks! {
    c"sendfile" => sendfile, c"sendfile64" => sendfile, c"copy_file_range" => copy_file_range, c"splice" => splice,
}

const CHUNK: usize = 1 << 20;

fn at(offset: Option<u64>) -> At {
    offset.map_or(At::Here, At::Offset)
}

fn read_any(fd: c_int, buf: &mut [u8], offset: Option<u64>) -> isize {
    match (table::get(fd), offset) {
        (Some(open), _) => io::read_open(fd, &open, io::Into(buf), at(offset)),
        (None, Some(at)) => sys::ret(sys!(pread64, fd, buf.as_mut_ptr(), buf.len(), at)),
        (None, None) => sys::ret(sys!(read, fd, buf.as_mut_ptr(), buf.len())),
    }
}

fn write_any(fd: c_int, data: &[u8], offset: Option<u64>) -> isize {
    match (table::get(fd), offset) {
        (Some(open), _) => io::write_open(fd, &open, io::From(data), at(offset), false),
        (None, Some(at)) => sys::ret(sys!(pwrite64, fd, data.as_ptr(), data.len(), at)),
        (None, None) => sys::ret(sys!(write, fd, data.as_ptr(), data.len())),
    }
}

/// Copies up to `count` bytes. Without a source offset, the source's own offset moves by what was
/// written, no further.
fn pump(from: c_int, mut from_at: Option<u64>, to: c_int, mut to_at: Option<u64>, count: usize) -> isize {
    let mut buf = vec![0u8; count.min(CHUNK)];
    let mut total = 0usize;
    while total < count {
        let want = buf.len().min(count - total);
        let n = read_any(from, &mut buf[..want], from_at);
        if n <= 0 {
            return if total > 0 { total as isize } else { n };
        }
        let mut written = 0usize;
        while written < n as usize {
            let w = write_any(to, &buf[written..n as usize], to_at.map(|t| t + written as u64));
            if w <= 0 {
                let back = n - written as isize;
                if from_at.is_none() && back > 0 {
                    size::seek(from, -(back as i64), libc::SEEK_CUR);
                }
                total += written;
                return if total > 0 { total as isize } else { w };
            }
            written += w as usize;
        }
        total += written;
        from_at = from_at.map(|a| a + written as u64);
        to_at = to_at.map(|a| a + written as u64);
        // A pipe or socket that gave less than asked for has no more right now.
        if (n as usize) < want && table::get(from).is_none() {
            break;
        }
    }
    total as isize
}

/// Whether what is written there goes to the end of the file, wherever it was to go.
fn appends(to: c_int) -> bool {
    match table::get(to) {
        Some(open) => open.remote().is_some_and(|f| f.flags().has(OpenFlags::APPEND)),
        None => {
            let flags = sys!(fcntl, to, libc::F_GETFL, 0);
            flags >= 0 && flags as c_int & libc::O_APPEND != 0
        }
    }
}

/// Whether both ends are one file, and what is read and what is written have bytes in common.
fn overlaps(from: c_int, from_at: Option<u64>, to: c_int, to_at: Option<u64>, count: usize) -> bool {
    let (Some(source), Some(target)) = (table::get(from), table::get(to)) else { return false };
    let (Some(source), Some(target)) = (source.remote(), target.remote()) else { return false };
    if (source.export, source.ino) != (target.export, target.ino) {
        return false;
    }
    let start = |fd, at: Option<u64>| at.or_else(|| u64::try_from(size::seek(fd, 0, libc::SEEK_CUR)).ok());
    let (Some(a), Some(b), Ok(end)) = (start(from, from_at), start(to, to_at), size::size(source)) else {
        return false;
    };
    let count = (count as u64).min(end.saturating_sub(a));
    count > 0 && b < a.saturating_add(count) && a < b.saturating_add(count)
}

/// The program's offset argument: its value, and `EINVAL` for a negative one.
unsafe fn offset(p: *const i64) -> Result<Option<u64>, i32> {
    if p.is_null() {
        return Ok(None);
    }
    // SAFETY: any bytes are a number.
    let at = unsafe { user::take(p) }?;
    if !user::writable(p.cast_mut(), size_of::<i64>()) {
        return Err(libc::EFAULT);
    }
    u64::try_from(at).map(Some).map_err(|_| libc::EINVAL)
}

unsafe fn advance(p: *mut i64, n: isize) {
    if !p.is_null() && n > 0 {
        // SAFETY: the program's own argument.
        unsafe { *p += n as i64 };
    }
}

pub(crate) unsafe extern "C" fn sendfile(to: c_int, from: c_int, at: *mut i64, count: usize) -> isize {
    if !table::is_forwarded(to) && !table::is_forwarded(from) {
        return sys::ret(sys!(sendfile, to, from, at, count));
    }
    if appends(to) {
        return fail_errno(libc::EINVAL);
    }
    // SAFETY: the program's own arguments.
    unsafe {
        let from_at = match offset(at) {
            Ok(o) => o,
            Err(e) => return fail_errno(e),
        };
        let n = pump(from, from_at, to, None, count.min(0x7fff_f000));
        advance(at, n);
        n
    }
}

pub(crate) unsafe extern "C" fn copy_file_range(
    from: c_int,
    fat: *mut i64,
    to: c_int,
    tat: *mut i64,
    n: usize,
    flags: c_uint,
) -> isize {
    if !table::is_forwarded(to) && !table::is_forwarded(from) {
        return sys::ret(sys!(copy_file_range, from, fat, to, tat, n, flags));
    }
    if flags != 0 {
        return fail_errno(libc::EINVAL);
    }
    if appends(to) {
        return fail_errno(libc::EBADF);
    }
    // SAFETY: the program's own arguments.
    unsafe {
        let (a, b) = match (offset(fat), offset(tat)) {
            (Ok(a), Ok(b)) => (a, b),
            (Err(e), _) | (_, Err(e)) => return fail_errno(e),
        };
        if overlaps(from, a, to, b, n) {
            return fail_errno(libc::EINVAL);
        }
        let n = pump(from, a, to, b, n.min(0x7fff_f000));
        advance(fat, n);
        advance(tat, n);
        n
    }
}

pub(crate) unsafe extern "C" fn splice(
    from: c_int,
    fat: *mut i64,
    to: c_int,
    tat: *mut i64,
    n: usize,
    flags: c_uint,
) -> isize {
    if !table::is_forwarded(to) && !table::is_forwarded(from) {
        return sys::ret(sys!(splice, from, fat, to, tat, n, flags));
    }
    let pipe = |fd: c_int| {
        // SAFETY: a plain struct of integers.
        let mut s: libc::stat = unsafe { std::mem::zeroed() };
        sys!(fstat, fd, &raw mut s) == 0 && s.st_mode & libc::S_IFMT == libc::S_IFIFO
    };
    if !pipe(from) && !pipe(to) || appends(to) {
        return fail_errno(libc::EINVAL);
    }
    // The other end is a pipe: no more than it takes at once, or the call would block half-way.
    // SAFETY: the program's own arguments.
    unsafe {
        let (a, b) = match (offset(fat), offset(tat)) {
            (Ok(a), Ok(b)) => (a, b),
            (Err(e), _) | (_, Err(e)) => return fail_errno(e),
        };
        let n = pump(from, a, to, b, n.min(65536));
        advance(fat, n);
        advance(tat, n);
        n
    }
}
