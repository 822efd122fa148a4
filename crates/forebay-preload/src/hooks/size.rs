//! Where in a file, how long it is, and whether it is safe: seek, truncate, allocate, sync, advice.

use super::io::{self, direct};
use super::{at, fail, fail_errno, hooks, limit, neg};
use crate::state::state;
use crate::sys::{self, sys};
use crate::table;
use forebay_client::{Answer, Error, File, Meta, OpenFlags, SeekKind, Target};
use std::ffi::{c_char, c_int};

hooks! {
    c"lseek" => lseek, c"lseek64" => lseek, c"fsync" => fsync, c"fdatasync" => fdatasync,
    c"syncfs" => fsync_fs, c"sync_file_range" => sync_file_range, c"ftruncate" => ftruncate,
    c"ftruncate64" => ftruncate, c"truncate" => truncate, c"truncate64" => truncate, c"fallocate" => fallocate,
    c"fallocate64" => fallocate, c"posix_fallocate" => posix_fallocate, c"posix_fallocate64" => posix_fallocate,
    c"posix_fadvise" => posix_fadvise, c"posix_fadvise64" => posix_fadvise, c"readahead" => readahead,
}

pub(crate) unsafe extern "C" fn lseek(fd: c_int, offset: i64, whence: c_int) -> i64 {
    seek(fd, offset, whence) as i64
}

pub(crate) fn seek(fd: c_int, offset: i64, whence: c_int) -> isize {
    let raw = |offset: i64, whence: c_int| sys::ret(sys!(lseek, fd, offset, whence));
    let Some(open) = table::get(fd) else { return raw(offset, whence) };
    let Some(file) = open.remote() else { return raw(offset, whence) };
    match whence {
        // The kernel knows that it has no offset.
        _ if open.is_path() => raw(0, libc::SEEK_CUR),
        libc::SEEK_SET | libc::SEEK_CUR => raw(offset, whence),
        libc::SEEK_END => match size(file) {
            Ok(size) => match (size as i64).checked_add(offset) {
                Some(to) if to >= 0 => raw(to, libc::SEEK_SET),
                _ => fail_errno(libc::EINVAL),
            },
            Err(e) => fail(&e, &open.path),
        },
        libc::SEEK_DATA | libc::SEEK_HOLE => {
            if offset < 0 {
                return fail_errno(libc::ENXIO);
            }
            let kind = if whence == libc::SEEK_DATA { SeekKind::Data } else { SeekKind::Hole };
            let found = state().client().meta_on(
                file,
                |handle| Meta::Seek { handle, offset: offset as u64, kind },
                |a| match a {
                    Answer::Offset(o) => Some(o),
                    _ => None,
                },
            );
            match found {
                Ok(to) => raw(to as i64, libc::SEEK_SET),
                Err(e) => fail(&e, &open.path),
            }
        }
        _ => fail_errno(libc::EINVAL),
    }
}

/// The file's size now.
pub(crate) fn size(file: &File) -> Result<u64, Error> {
    super::stat::attr_of(file).map(|a| a.size)
}

/// A metadata operation on a descriptor whose only answer is that it was done.
pub(crate) fn on_fd<'m>(
    fd: c_int,
    local: impl FnOnce(c_int) -> sys::Raw,
    op: impl Fn(u64) -> Meta<'m>,
) -> isize {
    if table::get(fd).is_some_and(|open| open.is_path()) {
        return fail_errno(libc::EBADF);
    }
    on_place(fd, local, op)
}

/// As [`on_fd`], also for a place in the tree (`O_PATH`).
pub(crate) fn on_place<'m>(
    fd: c_int,
    local: impl FnOnce(c_int) -> sys::Raw,
    op: impl Fn(u64) -> Meta<'m>,
) -> isize {
    let Some(open) = table::get(fd) else { return sys::ret(local(fd)) };
    let Some(file) = open.remote() else { return fail_errno(libc::EROFS) };
    match state().client().meta_on(file, op, |_| Some(())) {
        Ok(()) => 0,
        Err(e) => direct(&open, file, &e, local),
    }
}

pub(crate) fn sync(fd: c_int, data_only: bool) -> isize {
    on_fd(
        fd,
        |fd| if data_only { sys!(fdatasync, fd) } else { sys!(fsync, fd) },
        |handle| Meta::Fsync { handle, data_only },
    )
}

pub(crate) unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    sys::test_cancel();
    sync(fd, false) as c_int
}

pub(crate) unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    sys::test_cancel();
    sync(fd, true) as c_int
}

pub(crate) unsafe extern "C" fn fsync_fs(fd: c_int) -> c_int {
    on_fd(fd, |fd| sys!(syncfs, fd), |handle| Meta::Fsync { handle, data_only: false }) as c_int
}

pub(crate) unsafe extern "C" fn sync_file_range(fd: c_int, offset: i64, n: i64, flags: c_int) -> c_int {
    const KNOWN: c_int = (libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER) as c_int;
    if table::is_forwarded(fd) && (offset < 0 || n < 0 || flags & !KNOWN != 0) {
        return fail_errno(libc::EINVAL) as c_int;
    }
    on_fd(
        fd,
        |fd| sys!(sync_file_range, fd, offset, n, flags),
        |handle| Meta::Fsync { handle, data_only: true },
    ) as c_int
}

pub(crate) unsafe extern "C" fn ftruncate(fd: c_int, size: i64) -> c_int {
    if size < 0 {
        return fail_errno(libc::EINVAL) as c_int;
    }
    if let Some(open) = table::get(fd)
        && let Some(f) = open.remote()
        && !f.flags().has(OpenFlags::WRITE)
    {
        return fail_errno(if open.is_path() { libc::EBADF } else { libc::EINVAL }) as c_int;
    }
    if table::is_forwarded(fd)
        && let Err(e) = limit::size(size as u64)
    {
        return fail_errno(e) as c_int;
    }
    on_fd(
        fd,
        |fd| sys!(ftruncate, fd, size),
        |handle| Meta::Truncate { target: Target::Handle(handle), size: size as u64 },
    ) as c_int
}

pub(crate) unsafe extern "C" fn truncate(path: *const c_char, size: i64) -> c_int {
    if size < 0 {
        return fail_errno(libc::EINVAL) as c_int;
    }
    at(
        libc::AT_FDCWD,
        path,
        true,
        |_, p| sys!(truncate, p, size),
        |client, r| {
            limit::size(size as u64).map_err(Error::local)?;
            client.meta(Meta::Truncate { target: Target::Path(r.wire()), size: size as u64 }, |_| Some(0))
        },
        |_| neg(libc::EISDIR),
    ) as c_int
}

pub(crate) unsafe extern "C" fn fallocate(fd: c_int, mode: c_int, offset: i64, len: i64) -> c_int {
    if table::is_forwarded(fd) {
        if offset < 0 || len <= 0 {
            return fail_errno(libc::EINVAL) as c_int;
        }
        let grows = mode & libc::FALLOC_FL_KEEP_SIZE == 0;
        if grows && let Err(e) = limit::size(offset.saturating_add(len) as u64) {
            return fail_errno(e) as c_int;
        }
    }
    on_fd(
        fd,
        |fd| sys!(fallocate, fd, mode, offset, len),
        |handle| Meta::Fallocate { handle, mode, offset: offset as u64, len: len as u64 },
    ) as c_int
}

/// Returns the error instead of setting it.
pub(crate) unsafe extern "C" fn posix_fallocate(fd: c_int, offset: i64, len: i64) -> c_int {
    if offset < 0 || len <= 0 {
        return libc::EINVAL;
    }
    if table::is_forwarded(fd)
        && let Err(e) = limit::size(offset.saturating_add(len) as u64)
    {
        return e;
    }
    let r = on_fd(
        fd,
        |fd| sys!(fallocate, fd, 0, offset, len),
        |handle| Meta::Fallocate { handle, mode: 0, offset: offset as u64, len: len as u64 },
    );
    if r == 0 {
        return 0;
    }
    let e = sys::errno();
    if e != libc::EOPNOTSUPP {
        return e;
    }
    // A file system without it: touch every block, as libc does.
    let mut at = offset + len - 1;
    let mut byte = [0u8; 1];
    while at >= offset {
        // SAFETY: one byte of our own.
        unsafe {
            let n = io::pread(fd, byte.as_mut_ptr().cast(), 1, at);
            if n < 0 || (n == 0 || byte[0] == 0) && io::pwrite(fd, [0u8].as_ptr().cast(), 1, at) < 0 {
                return sys::errno();
            }
        }
        at -= 4096;
    }
    0
}

pub(crate) unsafe extern "C" fn posix_fadvise(fd: c_int, offset: i64, len: i64, advice: c_int) -> c_int {
    -(advise(fd, offset, len, advice) as c_int)
}

/// Advice is taken note of, no more.
pub(crate) fn advise(fd: c_int, offset: i64, len: i64, advice: c_int) -> sys::Raw {
    let Some(open) = table::get(fd) else { return sys!(fadvise64, fd, offset, len, advice) };
    if open.is_path() {
        return -(libc::EBADF as sys::Raw);
    }
    let known = (libc::POSIX_FADV_NORMAL..=libc::POSIX_FADV_NOREUSE).contains(&advice) && len >= 0;
    if known { 0 } else { -(libc::EINVAL as sys::Raw) }
}

pub(crate) unsafe extern "C" fn readahead(fd: c_int, offset: i64, count: usize) -> isize {
    if let Some(open) = table::get(fd) {
        return match open.remote() {
            Some(f) if !f.flags().has(OpenFlags::READ) => fail_errno(libc::EBADF),
            Some(f) if !f.is_dir() => 0,
            _ => fail_errno(libc::EINVAL),
        };
    }
    sys::ret(sys!(readahead, fd, offset, count))
}
