//! Data: read, write, seek, sync, size.

use super::{at, fail, fail_errno, hooks, neg};
use crate::state::state;
use crate::sys::{self, CancelPoint, sys};
use crate::table::{self, Open};
use forebay_client::{Answer, Error, File, Meta, OpenFlags, SeekKind, Target};
use std::ffi::{c_char, c_int, c_void};

hooks! {
    c"read" => read, c"write" => write, c"pread64" => pread, c"pread" => pread, c"pwrite64" => pwrite,
    c"pwrite" => pwrite, c"readv" => readv, c"writev" => writev, c"preadv" => preadv, c"preadv64" => preadv,
    c"pwritev" => pwritev, c"pwritev64" => pwritev, c"preadv2" => preadv2, c"preadv64v2" => preadv2,
    c"pwritev2" => pwritev2, c"pwritev64v2" => pwritev2, c"lseek" => lseek, c"lseek64" => lseek,
    c"fsync" => fsync, c"fdatasync" => fdatasync, c"syncfs" => fsync_fs, c"sync_file_range" => sync_file_range,
    c"ftruncate" => ftruncate, c"ftruncate64" => ftruncate, c"truncate" => truncate, c"truncate64" => truncate,
    c"fallocate" => fallocate, c"fallocate64" => fallocate, c"posix_fallocate" => posix_fallocate,
    c"posix_fallocate64" => posix_fallocate, c"posix_fadvise" => posix_fadvise,
    c"posix_fadvise64" => posix_fadvise, c"readahead" => readahead,
}

/// Reads through the open file; `None`: at the descriptor's offset, which moves.
pub(crate) fn read_open(fd: i32, open: &Open, buf: &mut [u8], offset: Option<u64>) -> isize {
    let Some(file) = open.remote() else { return fail_errno(libc::EISDIR) };
    if file.is_dir() {
        return fail_errno(libc::EISDIR);
    }
    if !file.flags().has(OpenFlags::READ) || file.flags().has(OpenFlags::PATH) {
        return fail_errno(libc::EBADF);
    }
    let pread = |offset: u64, buf: &mut [u8]| match state().client().pread(file, buf, offset) {
        Ok(n) => n as isize,
        Err(e) => direct(open, file, &e, |local| sys!(pread64, local, buf.as_mut_ptr(), buf.len(), offset)),
    };
    match offset {
        Some(offset) => pread(offset, buf),
        None => open.with_offset(|| {
            let at = sys!(lseek, fd, 0, libc::SEEK_CUR);
            if at < 0 {
                return sys::ret(at);
            }
            let n = pread(at as u64, buf);
            if n > 0 {
                sys!(lseek, fd, n, libc::SEEK_CUR);
            }
            n
        }),
    }
}

/// Writes through the open file; `None`: at the descriptor's offset, which moves.
pub(crate) fn write_open(fd: i32, open: &Open, data: &[u8], offset: Option<u64>) -> isize {
    let Some(file) = open.remote() else { return fail_errno(libc::EBADF) };
    if !file.flags().has(OpenFlags::WRITE) || file.flags().has(OpenFlags::PATH) {
        return fail_errno(libc::EBADF);
    }
    let client = state().client();
    // Linux appends to an append-only descriptor even where an offset is given.
    if file.flags().has(OpenFlags::APPEND) {
        return match client.append(file, data) {
            Ok((n, end)) => {
                if offset.is_none() {
                    sys!(lseek, fd, end, libc::SEEK_SET);
                }
                n as isize
            }
            Err(e) => direct(open, file, &e, |local| sys!(write, local, data.as_ptr(), data.len())),
        };
    }
    let pwrite = |offset: u64| match client.pwrite(file, data, offset) {
        Ok(n) => n as isize,
        Err(e) => direct(open, file, &e, |local| sys!(pwrite64, local, data.as_ptr(), data.len(), offset)),
    };
    match offset {
        Some(offset) => pwrite(offset),
        // The offset moves first, so that processes that share it never write to the same place.
        None => open.with_offset(|| {
            let end = sys!(lseek, fd, data.len(), libc::SEEK_CUR);
            if end < 0 {
                return sys::ret(end);
            }
            let n = pwrite((end as u64).saturating_sub(data.len() as u64));
            let missing = data.len() as isize - n.max(0);
            if missing > 0 {
                sys!(lseek, fd, -missing, libc::SEEK_CUR);
            }
            n
        }),
    }
}

/// With no I/O node left and the user's leave, the operation goes to this machine's own view of the
/// file; otherwise it fails.
fn direct(open: &Open, file: &File, e: &Error, f: impl FnOnce(i32) -> sys::Raw) -> isize {
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
    let path = |base: &[u8]| [base, &b"/"[..], file.rel()].concat();
    let base = export.local.as_ref()?;
    crate::notes::note("direct", &path(&export.dir), &e.to_string());
    Some(sys::open(&path(base), file.flags().to_linux() | libc::O_CLOEXEC, 0))
}

/// The program's buffer.
///
/// # Safety
/// `p` must point to `n` bytes the program lets us write.
unsafe fn slice_mut<'a>(p: *mut c_void, n: usize) -> &'a mut [u8] {
    if n == 0 {
        return &mut [];
    }
    // SAFETY: as the caller promises; a program that passes a bad pointer gets a fault instead of
    // EFAULT.
    unsafe { std::slice::from_raw_parts_mut(p.cast(), n.min(isize::MAX as usize)) }
}

/// The program's data.
///
/// # Safety
/// `p` must point to `n` readable bytes.
unsafe fn slice<'a>(p: *const c_void, n: usize) -> &'a [u8] {
    if n == 0 {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(p.cast(), n.min(isize::MAX as usize)) }
}

/// Linux moves at most this much in one call.
const MAX_RW: usize = 0x7fff_f000;

unsafe extern "C" fn read(fd: c_int, buf: *mut c_void, n: usize) -> isize {
    match table::get(fd) {
        // SAFETY: the program's buffer of `n` bytes.
        Some(open) => read_open(fd, &open, unsafe { slice_mut(buf, n.min(MAX_RW)) }, None),
        None => blocking(|| sys!(read, fd, buf, n)),
    }
}

unsafe extern "C" fn write(fd: c_int, buf: *const c_void, n: usize) -> isize {
    match table::get(fd) {
        // SAFETY: the program's buffer of `n` bytes.
        Some(open) => write_open(fd, &open, unsafe { slice(buf, n.min(MAX_RW)) }, None),
        None => blocking(|| sys!(write, fd, buf, n)),
    }
}

/// A call that may block for long and that a thread can be cancelled in.
fn blocking(f: impl FnOnce() -> sys::Raw) -> isize {
    let point = CancelPoint::enter();
    let r = f();
    point.leave();
    sys::ret(r)
}

unsafe extern "C" fn pread(fd: c_int, buf: *mut c_void, n: usize, offset: i64) -> isize {
    match table::get(fd) {
        Some(_) if offset < 0 => fail_errno(libc::EINVAL),
        // SAFETY: the program's buffer of `n` bytes.
        Some(open) => read_open(fd, &open, unsafe { slice_mut(buf, n.min(MAX_RW)) }, Some(offset as u64)),
        None => blocking(|| sys!(pread64, fd, buf, n, offset)),
    }
}

unsafe extern "C" fn pwrite(fd: c_int, buf: *const c_void, n: usize, offset: i64) -> isize {
    match table::get(fd) {
        Some(_) if offset < 0 => fail_errno(libc::EINVAL),
        // SAFETY: the program's buffer of `n` bytes.
        Some(open) => write_open(fd, &open, unsafe { slice(buf, n.min(MAX_RW)) }, Some(offset as u64)),
        None => blocking(|| sys!(pwrite64, fd, buf, n, offset)),
    }
}

/// The program's vector of buffers, checked as the kernel checks it.
///
/// # Safety
/// `iov` must point to `count` entries.
unsafe fn vector<'a>(iov: *const libc::iovec, count: c_int) -> Result<(&'a [libc::iovec], usize), i32> {
    if !(0..=1024).contains(&count) {
        return Err(libc::EINVAL);
    }
    if count == 0 {
        return Ok((&[], 0));
    }
    // SAFETY: as the caller promises.
    let v = unsafe { std::slice::from_raw_parts(iov, count as usize) };
    let total = v.iter().try_fold(0usize, |sum, e| sum.checked_add(e.iov_len)).ok_or(libc::EINVAL)?;
    Ok((v, total.min(MAX_RW)))
}

unsafe fn read_vector(
    fd: c_int,
    open: &Open,
    iov: *const libc::iovec,
    count: c_int,
    offset: Option<u64>,
) -> isize {
    // SAFETY: the program's own vector.
    let (v, total) = match unsafe { vector(iov, count) } {
        Ok(v) => v,
        Err(e) => return fail_errno(e),
    };
    if let [one] = v {
        // SAFETY: the program's own buffer.
        return read_open(fd, open, unsafe { slice_mut(one.iov_base, one.iov_len) }, offset);
    }
    let mut all = vec![0u8; total];
    let n = read_open(fd, open, &mut all[..total], offset);
    let mut from = 0;
    for e in v {
        let end = (from + e.iov_len).min(n.max(0) as usize);
        // An empty entry may stand before others.
        if end <= from {
            continue;
        }
        // SAFETY: the program's own buffer.
        let part = unsafe { slice_mut(e.iov_base, end - from) };
        part.copy_from_slice(&all[from..end]);
        from = end;
    }
    n
}

unsafe fn write_vector(
    fd: c_int,
    open: &Open,
    iov: *const libc::iovec,
    count: c_int,
    offset: Option<u64>,
) -> isize {
    // SAFETY: the program's own vector.
    let (v, total) = match unsafe { vector(iov, count) } {
        Ok(v) => v,
        Err(e) => return fail_errno(e),
    };
    if let [one] = v {
        // SAFETY: the program's own buffer.
        return write_open(fd, open, unsafe { slice(one.iov_base, one.iov_len) }, offset);
    }
    let mut all = Vec::with_capacity(total);
    for e in v {
        // SAFETY: the program's own buffer.
        all.extend_from_slice(unsafe { slice(e.iov_base, e.iov_len.min(total - all.len())) });
    }
    write_open(fd, open, &all, offset)
}

unsafe extern "C" fn readv(fd: c_int, iov: *const libc::iovec, count: c_int) -> isize {
    match table::get(fd) {
        // SAFETY: the program's own vector.
        Some(open) => unsafe { read_vector(fd, &open, iov, count, None) },
        None => blocking(|| sys!(readv, fd, iov, count)),
    }
}

unsafe extern "C" fn writev(fd: c_int, iov: *const libc::iovec, count: c_int) -> isize {
    match table::get(fd) {
        // SAFETY: the program's own vector.
        Some(open) => unsafe { write_vector(fd, &open, iov, count, None) },
        None => blocking(|| sys!(writev, fd, iov, count)),
    }
}

unsafe extern "C" fn preadv(fd: c_int, iov: *const libc::iovec, count: c_int, offset: i64) -> isize {
    // SAFETY: the program's own vector.
    unsafe { preadv2_at(fd, iov, count, offset, 0, false) }
}

unsafe extern "C" fn pwritev(fd: c_int, iov: *const libc::iovec, count: c_int, offset: i64) -> isize {
    // SAFETY: the program's own vector.
    unsafe { pwritev2_at(fd, iov, count, offset, 0, false) }
}

unsafe extern "C" fn preadv2(
    fd: c_int,
    iov: *const libc::iovec,
    count: c_int,
    offset: i64,
    flags: c_int,
) -> isize {
    // SAFETY: the program's own vector.
    unsafe { preadv2_at(fd, iov, count, offset, flags, true) }
}

unsafe extern "C" fn pwritev2(
    fd: c_int,
    iov: *const libc::iovec,
    count: c_int,
    offset: i64,
    flags: c_int,
) -> isize {
    // SAFETY: the program's own vector.
    unsafe { pwritev2_at(fd, iov, count, offset, flags, true) }
}

unsafe fn preadv2_at(
    fd: c_int,
    iov: *const libc::iovec,
    n: c_int,
    offset: i64,
    flags: c_int,
    v2: bool,
) -> isize {
    match table::get(fd) {
        // RWF_NOWAIT cannot be kept over a network; high priority is a hint.
        Some(_) if flags & libc::RWF_NOWAIT != 0 => fail_errno(libc::EOPNOTSUPP),
        // SAFETY: the program's own vector.
        Some(open) if v2 && offset == -1 => unsafe { read_vector(fd, &open, iov, n, None) },
        Some(_) if offset < 0 => fail_errno(libc::EINVAL),
        // SAFETY: the program's own vector.
        Some(open) => unsafe { read_vector(fd, &open, iov, n, Some(offset as u64)) },
        None => blocking(|| sys!(preadv2, fd, iov, n, offset, (offset as u64) >> 32, flags)),
    }
}

unsafe fn pwritev2_at(
    fd: c_int,
    iov: *const libc::iovec,
    n: c_int,
    offset: i64,
    flags: c_int,
    v2: bool,
) -> isize {
    let Some(open) = table::get(fd) else {
        return blocking(|| sys!(pwritev2, fd, iov, n, offset, (offset as u64) >> 32, flags));
    };
    if flags & (libc::RWF_NOWAIT | libc::RWF_APPEND) != 0 {
        return fail_errno(libc::EOPNOTSUPP);
    }
    let done = if v2 && offset == -1 {
        // SAFETY: the program's own vector.
        unsafe { write_vector(fd, &open, iov, n, None) }
    } else if offset < 0 {
        fail_errno(libc::EINVAL)
    } else {
        // SAFETY: the program's own vector.
        unsafe { write_vector(fd, &open, iov, n, Some(offset as u64)) }
    };
    if done > 0
        && flags & (libc::RWF_SYNC | libc::RWF_DSYNC) != 0
        && sync(fd, flags & libc::RWF_SYNC == 0) < 0
    {
        return -1;
    }
    done
}

unsafe extern "C" fn lseek(fd: c_int, offset: i64, whence: c_int) -> i64 {
    seek(fd, offset, whence) as i64
}

pub(crate) fn seek(fd: c_int, offset: i64, whence: c_int) -> isize {
    let raw = |offset: i64, whence: c_int| sys::ret(sys!(lseek, fd, offset, whence));
    let Some(open) = table::get(fd) else { return raw(offset, whence) };
    let Some(file) = open.remote() else { return raw(offset, whence) };
    match whence {
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
    let Some(open) = table::get(fd) else { return sys::ret(local(fd)) };
    let Some(file) = open.remote() else { return fail_errno(libc::EROFS) };
    match state().client().meta_on(file, op, |_| Some(())) {
        Ok(()) => 0,
        Err(e) => direct(&open, file, &e, local),
    }
}

fn sync(fd: c_int, data_only: bool) -> isize {
    on_fd(
        fd,
        |fd| if data_only { sys!(fdatasync, fd) } else { sys!(fsync, fd) },
        |handle| Meta::Fsync { handle, data_only },
    )
}

unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    sync(fd, false) as c_int
}

unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    sync(fd, true) as c_int
}

unsafe extern "C" fn fsync_fs(fd: c_int) -> c_int {
    on_fd(fd, |fd| sys!(syncfs, fd), |handle| Meta::Fsync { handle, data_only: false }) as c_int
}

unsafe extern "C" fn sync_file_range(fd: c_int, offset: i64, n: i64, flags: c_int) -> c_int {
    on_fd(
        fd,
        |fd| sys!(sync_file_range, fd, offset, n, flags),
        |handle| Meta::Fsync { handle, data_only: true },
    ) as c_int
}

unsafe extern "C" fn ftruncate(fd: c_int, size: i64) -> c_int {
    if size < 0 {
        return fail_errno(libc::EINVAL) as c_int;
    }
    if let Some(open) = table::get(fd)
        && let Some(f) = open.remote()
        && !f.flags().has(OpenFlags::WRITE)
    {
        return fail_errno(libc::EINVAL) as c_int;
    }
    on_fd(
        fd,
        |fd| sys!(ftruncate, fd, size),
        |handle| Meta::Truncate { target: Target::Handle(handle), size: size as u64 },
    ) as c_int
}

unsafe extern "C" fn truncate(path: *const c_char, size: i64) -> c_int {
    if size < 0 {
        return fail_errno(libc::EINVAL) as c_int;
    }
    at(
        libc::AT_FDCWD,
        path,
        true,
        |_, p| sys!(truncate, p, size),
        |client, r| {
            client.meta(Meta::Truncate { target: Target::Path(r.wire()), size: size as u64 }, |_| Some(0))
        },
        |_| neg(libc::EISDIR),
    ) as c_int
}

unsafe extern "C" fn fallocate(fd: c_int, mode: c_int, offset: i64, len: i64) -> c_int {
    if table::is_forwarded(fd) && (offset < 0 || len <= 0) {
        return fail_errno(libc::EINVAL) as c_int;
    }
    on_fd(
        fd,
        |fd| sys!(fallocate, fd, mode, offset, len),
        |handle| Meta::Fallocate { handle, mode, offset: offset as u64, len: len as u64 },
    ) as c_int
}

/// Returns the error instead of setting it.
unsafe extern "C" fn posix_fallocate(fd: c_int, offset: i64, len: i64) -> c_int {
    if offset < 0 || len <= 0 {
        return libc::EINVAL;
    }
    let r = on_fd(
        fd,
        |fd| sys!(fallocate, fd, 0, offset, len),
        |handle| Meta::Fallocate { handle, mode: 0, offset: offset as u64, len: len as u64 },
    );
    if r == 0 {
        return 0;
    }
    // SAFETY: libc's own per-thread location.
    let e = unsafe { *libc::__errno_location() };
    if e != libc::EOPNOTSUPP {
        return e;
    }
    // A file system without it: touch every block, as libc does.
    let mut at = offset + len - 1;
    let mut byte = [0u8; 1];
    while at >= offset {
        // SAFETY: one byte of our own.
        unsafe {
            let n = pread(fd, byte.as_mut_ptr().cast(), 1, at);
            if n < 0 || (n == 0 || byte[0] == 0) && pwrite(fd, [0u8].as_ptr().cast(), 1, at) < 0 {
                return *libc::__errno_location();
            }
        }
        at -= 4096;
    }
    0
}

unsafe extern "C" fn posix_fadvise(fd: c_int, offset: i64, len: i64, advice: c_int) -> c_int {
    if table::is_forwarded(fd) {
        return 0;
    }
    -(sys!(fadvise64, fd, offset, len, advice) as c_int)
}

unsafe extern "C" fn readahead(fd: c_int, offset: i64, count: usize) -> isize {
    if table::is_forwarded(fd) {
        return 0;
    }
    sys::ret(sys!(readahead, fd, offset, count))
}
