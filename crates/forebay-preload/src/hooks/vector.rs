//! Data in many buffers: `readv`, `writev` and their relatives.

use super::io::{At, Buffer, Written, read_open, read_piece, write_open, write_piece};
use super::{fail_errno, hooks, size};
use crate::sys::{self, blocking, sys};
use crate::table::{self, Open};
use forebay_client::File;
use forebay_hook::vector::Vector;
use std::ffi::c_int;

hooks! {
    c"readv" => readv, c"writev" => writev, c"preadv" => preadv, c"preadv64" => preadv, c"pwritev" => pwritev,
    c"pwritev64" => pwritev, c"preadv2" => preadv2, c"preadv64v2" => preadv2, c"pwritev2" => pwritev2,
    c"pwritev64v2" => pwritev2,
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
