//! Data in many buffers: `readv`, `writev` and their relatives. Large buffers are moved where they are,
//! small ones together, through a piece of memory no larger than one frame.

use super::io::{At, Buffer, MAX_RW, Written, blocking, read_open, read_piece, write_open, write_piece};
use super::{fail_errno, hooks, size};
use crate::sys::{self, sys};
use crate::table::{self, Open};
use crate::user;
use forebay_client::File;
use std::ffi::c_int;

hooks! {
    c"readv" => readv, c"writev" => writev, c"preadv" => preadv, c"preadv64" => preadv, c"pwritev" => pwritev,
    c"pwritev64" => pwritev, c"preadv2" => preadv2, c"preadv64v2" => preadv2, c"pwritev2" => pwritev2,
    c"pwritev64v2" => pwritev2,
}

/// What small buffers are gathered in: one frame.
const FRAME: usize = 4 << 20;
/// A buffer of this size is worth a request of its own.
const LARGE: usize = 1 << 20;

/// The program's buffers, checked as the kernel checks them.
struct Vector<'a> {
    buffers: &'a [libc::iovec],
    total: usize,
}

/// A run of the buffers' bytes that is moved by one request.
enum Run {
    /// Of one buffer, where it is.
    One(*mut u8, usize),
    /// Of several, this many bytes.
    Many(usize),
}

impl<'a> Vector<'a> {
    /// # Safety
    /// The program's own vector, which it leaves alone during the call.
    unsafe fn new(vector: *const libc::iovec, count: c_int, write: bool) -> Result<Vector<'a>, i32> {
        let count = usize::try_from(count).ok().filter(|n| *n <= 1024).ok_or(libc::EINVAL)?;
        // SAFETY: as the caller promises.
        let bytes = unsafe { user::bytes(vector, count * size_of::<libc::iovec>()) }?;
        let buffers = if bytes.is_empty() {
            &[]
        } else {
            // SAFETY: readable, as was just seen; the kernel's own layout.
            unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast::<libc::iovec>(), count) }
        };
        let (mut total, mut bad) = (0usize, false);
        for b in buffers {
            if b.iov_len > isize::MAX as usize {
                return Err(libc::EINVAL);
            }
            if !user::in_range(b.iov_base, b.iov_len) {
                return Err(libc::EFAULT);
            }
        }
        for b in buffers {
            let n = b.iov_len.min(MAX_RW - total);
            let there =
                if write { user::readable(b.iov_base, n) } else { n == 0 || user::writable(b.iov_base, 1) };
            if !there {
                // As much as is there, as the kernel would.
                bad = true;
                break;
            }
            total += n;
        }
        if bad && total == 0 {
            return Err(libc::EFAULT);
        }
        Ok(Vector { buffers, total })
    }

    /// The run that begins at `from`, of at most `left` bytes.
    fn run(&self, from: usize, left: usize) -> Run {
        let mut begin = 0;
        let mut many = 0;
        for b in self.buffers {
            let end = begin + b.iov_len;
            let skip = from.saturating_sub(begin);
            begin = end;
            if end <= from || skip >= b.iov_len {
                continue;
            }
            let here = b.iov_len - skip;
            if many == 0 && (here >= LARGE || here >= left) {
                // SAFETY: inside the program's buffer.
                return Run::One(unsafe { b.iov_base.cast::<u8>().add(skip) }, here.min(left));
            }
            if here >= LARGE || many + here > FRAME {
                break;
            }
            many += here;
        }
        Run::Many(many.min(left))
    }

    /// Copies between `piece` and the buffers' bytes from `from` on.
    fn copy(&self, from: usize, piece: &mut [u8], out: bool) {
        let (mut begin, mut done) = (0, 0);
        for b in self.buffers {
            let skip = (from + done).saturating_sub(begin);
            begin += b.iov_len;
            if skip >= b.iov_len || done == piece.len() {
                continue;
            }
            let n = (b.iov_len - skip).min(piece.len() - done);
            // SAFETY: inside the program's buffer and inside `piece`.
            unsafe {
                let theirs = b.iov_base.cast::<u8>().add(skip);
                let ours = piece.as_mut_ptr().add(done);
                if out {
                    std::ptr::copy_nonoverlapping(ours, theirs, n);
                } else {
                    std::ptr::copy_nonoverlapping(theirs, ours, n);
                }
            }
            done += n;
        }
    }

    /// Moves `total` bytes run by run: `step` is given each run's memory and how much came before it.
    fn each(&self, total: usize, out: bool, mut step: impl FnMut(&mut [u8], usize) -> isize) -> isize {
        let mut gathered = Vec::new();
        let mut done = 0;
        loop {
            let (n, want) = match self.run(done, total - done) {
                Run::One(p, n) => {
                    // SAFETY: a buffer of the program's, seen to be there.
                    (step(unsafe { std::slice::from_raw_parts_mut(p, n) }, done), n)
                }
                Run::Many(n) => {
                    gathered.resize(n, 0);
                    if !out {
                        self.copy(done, &mut gathered, false);
                    }
                    let moved = step(&mut gathered, done);
                    if out && moved > 0 {
                        self.copy(done, &mut gathered[..moved as usize], true);
                    }
                    (moved, n)
                }
            };
            if n < 0 {
                return if done > 0 { done as isize } else { n };
            }
            done += n as usize;
            if (n as usize) < want || done == total {
                return done as isize;
            }
        }
    }
}

impl Buffer for Vector<'_> {
    fn len(&self) -> usize {
        self.total
    }

    fn fill(&mut self, open: &Open, file: &File, offset: u64) -> isize {
        self.each(self.total, true, |piece, before| read_piece(open, file, piece, offset + before as u64))
    }

    fn drain(&mut self, open: &Open, file: &File, offset: Option<u64>, n: usize) -> Written {
        let mut end = None;
        let n = self.each(n, false, |piece, before| {
            let written = write_piece(open, file, piece, offset.map(|o| o + before as u64));
            end = written.end.or(end);
            written.n
        });
        Written { n, end }
    }
}

/// Where a call with an offset happens; `v2`: −1 is the descriptor's own.
fn place(offset: i64, v2: bool) -> Result<At, i32> {
    match offset {
        -1 if v2 => Ok(At::Here),
        o => u64::try_from(o).map(At::Offset).map_err(|_| libc::EINVAL),
    }
}

fn read_all(fd: c_int, open: &Open, v: *const libc::iovec, n: c_int, at: Result<At, i32>) -> isize {
    // SAFETY: the program's own vector.
    match at.and_then(|at| unsafe { Vector::new(v, n, false) }.map(|v| (v, at))) {
        Ok((v, at)) => read_open(fd, open, v, at),
        Err(e) => fail_errno(e),
    }
}

fn write_all(
    fd: c_int,
    open: &Open,
    v: *const libc::iovec,
    n: c_int,
    at: Result<At, i32>,
    append: bool,
) -> isize {
    // SAFETY: the program's own vector.
    match at.and_then(|at| unsafe { Vector::new(v, n, true) }.map(|v| (v, at))) {
        Ok((v, at)) => write_open(fd, open, v, at, append),
        Err(e) => fail_errno(e),
    }
}

pub(crate) unsafe extern "C" fn readv(fd: c_int, v: *const libc::iovec, n: c_int) -> isize {
    sys::test_cancel();
    match table::get(fd) {
        Some(open) => read_all(fd, &open, v, n, Ok(At::Here)),
        None => blocking(|| sys!(readv, fd, v, n)),
    }
}

pub(crate) unsafe extern "C" fn writev(fd: c_int, v: *const libc::iovec, n: c_int) -> isize {
    sys::test_cancel();
    match table::get(fd) {
        Some(open) => write_all(fd, &open, v, n, Ok(At::Here), false),
        None => blocking(|| sys!(writev, fd, v, n)),
    }
}

pub(crate) unsafe extern "C" fn preadv(fd: c_int, v: *const libc::iovec, n: c_int, offset: i64) -> isize {
    sys::test_cancel();
    match table::get(fd) {
        Some(open) => read_all(fd, &open, v, n, place(offset, false)),
        None => blocking(|| sys!(preadv2, fd, v, n, offset, (offset as u64) >> 32, 0)),
    }
}

pub(crate) unsafe extern "C" fn pwritev(fd: c_int, v: *const libc::iovec, n: c_int, offset: i64) -> isize {
    sys::test_cancel();
    match table::get(fd) {
        Some(open) => write_all(fd, &open, v, n, place(offset, false), false),
        None => blocking(|| sys!(pwritev2, fd, v, n, offset, (offset as u64) >> 32, 0)),
    }
}

pub(crate) unsafe extern "C" fn preadv2(
    fd: c_int,
    v: *const libc::iovec,
    n: c_int,
    offset: i64,
    flags: c_int,
) -> isize {
    // What is about writing has no meaning here, and is allowed.
    const KNOWN: c_int = libc::RWF_HIPRI | libc::RWF_SYNC | libc::RWF_DSYNC | libc::RWF_APPEND;
    match table::get(fd) {
        // High priority is a hint; not to wait cannot be kept over a network.
        Some(_) if flags & !KNOWN != 0 => fail_errno(libc::EOPNOTSUPP),
        Some(open) => read_all(fd, &open, v, n, place(offset, true)),
        None => blocking(|| sys!(preadv2, fd, v, n, offset, (offset as u64) >> 32, flags)),
    }
}

pub(crate) unsafe extern "C" fn pwritev2(
    fd: c_int,
    v: *const libc::iovec,
    n: c_int,
    offset: i64,
    flags: c_int,
) -> isize {
    const KNOWN: c_int = libc::RWF_HIPRI | libc::RWF_SYNC | libc::RWF_DSYNC | libc::RWF_APPEND;
    let Some(open) = table::get(fd) else {
        return blocking(|| sys!(pwritev2, fd, v, n, offset, (offset as u64) >> 32, flags));
    };
    if flags & !KNOWN != 0 {
        return fail_errno(libc::EOPNOTSUPP);
    }
    let done = write_all(fd, &open, v, n, place(offset, true), flags & libc::RWF_APPEND != 0);
    if done > 0
        && flags & (libc::RWF_SYNC | libc::RWF_DSYNC) != 0
        && size::sync(fd, flags & libc::RWF_SYNC == 0) < 0
    {
        return -1;
    }
    done
}
