//! Data that moves between descriptors inside the kernel: here through a buffer, where one of them
//! is forwarded.

use super::io::{self, At};
use super::{fail_errno, fd, hooks, size};
use crate::sys::{self, sys};
use crate::table;
use crate::user;
use forebay_client::OpenFlags;
use forebay_hook::vector::MAX_RW;
use std::ffi::{c_int, c_uint};
use std::sync::Arc;

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

/// One end of a copy, as the kernel looks at it.
struct End {
    kind: libc::mode_t,
    reads: bool,
    writes: bool,
    appends: bool,
}

impl End {
    fn is_pipe(&self) -> bool {
        self.kind == libc::S_IFIFO
    }
}

/// What a descriptor is for; `EBADF` if it is none, or only a place in the tree.
fn end(fd: c_int) -> Result<End, i32> {
    if let Some(open) = table::get(fd) {
        let flags = fd::flags_of(fd, &open).map_err(|e| e.errno())?;
        if flags.has(OpenFlags::PATH) {
            return Err(libc::EBADF);
        }
        return Ok(End {
            kind: open.remote().map_or(libc::S_IFDIR, |f| f.mode & libc::S_IFMT),
            reads: flags.has(OpenFlags::READ),
            writes: flags.has(OpenFlags::WRITE),
            appends: flags.has(OpenFlags::APPEND),
        });
    }
    let flags = sys!(fcntl, fd, libc::F_GETFL, 0) as c_int;
    // SAFETY: a plain struct of integers.
    let mut s: libc::stat = unsafe { std::mem::zeroed() };
    if flags < 0 || flags & libc::O_PATH != 0 || sys!(fstat, fd, &raw mut s) < 0 {
        return Err(libc::EBADF);
    }
    let mode = flags & libc::O_ACCMODE;
    Ok(End {
        kind: s.st_mode & libc::S_IFMT,
        reads: mode == libc::O_RDONLY || mode == libc::O_RDWR,
        writes: mode == libc::O_WRONLY || mode == libc::O_RDWR,
        appends: flags & libc::O_APPEND != 0,
    })
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
    // SAFETY: the program's own argument.
    let from_at = match unsafe { offset(at) }.and_then(|o| may_send(from, to).map(|()| o)) {
        Ok(o) => o,
        Err(e) => return fail_errno(e),
    };
    let count = count.min(MAX_RW);
    // From an open file to itself: both begin at the one offset they have.
    if from_at.is_none() && share_offset(from, to) {
        let here = size::seek(from, 0, libc::SEEK_CUR);
        let n = pump(from, Some(here as u64), to, Some(here as u64), count);
        if n > 0 {
            size::seek(from, here as i64 + n as i64, libc::SEEK_SET);
        }
        return n;
    }
    let n = pump(from, from_at, to, None, count);
    // SAFETY: the program's own argument.
    unsafe { advance(at, n) };
    n
}

/// Whether two descriptors are of one open file. Those that were there before this program was started are
/// known apart: their offset tells.
fn share_offset(a: c_int, b: c_int) -> bool {
    let (Some(x), Some(y)) = (table::get(a), table::get(b)) else { return false };
    let same = x.remote().zip(y.remote()).is_some_and(|(f, g)| (f.export, f.ino) == (g.export, g.ino));
    let at = |fd| size::seek(fd, 0, libc::SEEK_CUR);
    if Arc::ptr_eq(&x, &y) || !same || at(a) != at(b) {
        return Arc::ptr_eq(&x, &y);
    }
    let here = at(a);
    size::seek(a, here as i64 + 1, libc::SEEK_SET);
    let moved = at(b) != here;
    size::seek(a, here as i64, libc::SEEK_SET);
    moved
}

fn may_send(from: c_int, to: c_int) -> Result<(), i32> {
    let (source, target) = (end(from)?, end(to)?);
    if !source.reads || !target.writes {
        return Err(libc::EBADF);
    }
    // From what can be sought in, and not to where it would go elsewhere.
    if !matches!(source.kind, libc::S_IFREG | libc::S_IFBLK) || target.appends {
        return Err(libc::EINVAL);
    }
    Ok(())
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
    // SAFETY: the program's own arguments.
    let places = unsafe { offset(fat).and_then(|a| Ok((a, offset(tat)?))) };
    let checked = places.and_then(|(a, b)| {
        let n = may_copy((from, a), (to, b), n, flags)?;
        Ok((a, b, n))
    });
    let (a, b, n) = match checked {
        Ok(c) => c,
        Err(e) => return fail_errno(e),
    };
    let n = pump(from, a, to, b, n.min(MAX_RW));
    // SAFETY: the program's own arguments.
    unsafe {
        advance(fat, n);
        advance(tat, n);
    }
    n
}

/// Whether a range may be copied, and how much of it.
fn may_copy(
    (from, from_at): (c_int, Option<u64>),
    (to, to_at): (c_int, Option<u64>),
    n: usize,
    flags: c_uint,
) -> Result<usize, i32> {
    let (source, target) = (end(from)?, end(to)?);
    if flags != 0 {
        return Err(libc::EINVAL);
    }
    if source.kind == libc::S_IFDIR || target.kind == libc::S_IFDIR {
        return Err(libc::EISDIR);
    }
    if source.kind != libc::S_IFREG || target.kind != libc::S_IFREG {
        return Err(libc::EINVAL);
    }
    if !source.reads || !target.writes || target.appends {
        return Err(libc::EBADF);
    }
    if overlaps(from, from_at, to, to_at, n) {
        return Err(libc::EINVAL);
    }
    // No file has bytes there.
    const LAST: u64 = i64::MAX as u64;
    match to_at {
        Some(at) if n > 0 && at >= LAST - 4096 => Err(libc::EFBIG),
        Some(at) => Ok(n.min((LAST - at) as usize)),
        None => Ok(n),
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
    if n == 0 {
        return 0;
    }
    // SAFETY: the program's own arguments.
    let places = may_splice(from, !fat.is_null(), to, !tat.is_null(), flags)
        .and_then(|()| unsafe { offset(fat).and_then(|a| Ok((a, offset(tat)?))) })
        .and_then(|(a, b)| Ok((a, b, ready(from, to, n, flags)?)));
    let (a, b, n) = match places {
        Ok(p) => p,
        Err(e) => return fail_errno(e),
    };
    let n = pump(from, a, to, b, n);
    // SAFETY: the program's own arguments.
    unsafe {
        advance(fat, n);
        advance(tat, n);
    }
    n
}

fn may_splice(from: c_int, from_at: bool, to: c_int, to_at: bool, flags: c_uint) -> Result<(), i32> {
    const KNOWN: c_uint =
        libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT;
    if flags & !KNOWN != 0 {
        return Err(libc::EINVAL);
    }
    let (source, target) = (end(from)?, end(to)?);
    if source.is_pipe() && from_at || target.is_pipe() && to_at {
        return Err(libc::ESPIPE);
    }
    if !source.reads || !target.writes {
        return Err(libc::EBADF);
    }
    if !source.is_pipe() && !target.is_pipe() || source.kind == libc::S_IFDIR || target.appends {
        return Err(libc::EINVAL);
    }
    Ok(())
}

/// Waits until the pipe at one end has something or takes something, unless it is not to be waited for;
/// how much can be moved then without waiting half-way.
fn ready(from: c_int, to: c_int, n: usize, flags: c_uint) -> Result<usize, i32> {
    let into = !table::is_forwarded(to);
    let pipe = if into { to } else { from };
    let mut wanted =
        libc::pollfd { fd: pipe, events: if into { libc::POLLOUT } else { libc::POLLIN }, revents: 0 };
    let nonblocking = sys!(fcntl, pipe, libc::F_GETFL, 0) as c_int & libc::O_NONBLOCK != 0;
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let waits = flags & libc::SPLICE_F_NONBLOCK == 0 && !nonblocking;
    let limit = if waits { std::ptr::null() } else { &raw const at_once };
    match sys::blocking(|| sys!(ppoll, &raw mut wanted, 1, limit, 0, 0)) {
        -1 => return Err(sys::errno()),
        0 => return Err(libc::EAGAIN),
        _ => {}
    }
    if !into {
        return Ok(n.min(PIPE));
    }
    let mut held: c_int = 0;
    sys!(ioctl, pipe, libc::FIONREAD, &raw mut held);
    let size = usize::try_from(sys!(fcntl, pipe, libc::F_GETPIPE_SZ, 0)).unwrap_or(libc::PIPE_BUF);
    // Of one that is not empty no more is known than that it takes this much.
    Ok(n.min(if held == 0 { size.min(PIPE) } else { libc::PIPE_BUF }))
}

/// What a pipe usually holds.
const PIPE: usize = 64 << 10;
