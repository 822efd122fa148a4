//! What a file is: stat in all its forms, access.

use super::{allow, at, fail, fail_errno, hooks, neg};
use crate::attr;
use crate::path::{self, Remote};
use crate::state::state;
use crate::sys::{self, sys};
use crate::table::{self, Kind, Open};
use crate::user;
use forebay_client::{Answer, Attr, Client, Error, File, Meta, Target};
use std::ffi::{c_char, c_int, c_uint};

hooks! {
    c"stat" => stat, c"stat64" => stat, c"lstat" => lstat, c"lstat64" => lstat, c"fstat" => fstat,
    c"fstat64" => fstat, c"fstatat" => fstatat, c"fstatat64" => fstatat, c"statx" => statx,
    c"__xstat" => xstat, c"__xstat64" => xstat, c"__lxstat" => lxstat, c"__lxstat64" => lxstat,
    c"__fxstat" => fxstat, c"__fxstat64" => fxstat, c"__fxstatat" => fxstatat, c"__fxstatat64" => fxstatat,
    c"access" => access, c"faccessat" => faccessat, c"euidaccess" => euidaccess, c"eaccess" => euidaccess,
}

/// Programs size their buffers by this; a small one makes many small requests.
const PREFERRED_BLOCK: u32 = 128 << 10;

fn preferred(mut a: Attr) -> Attr {
    a.blksize = a.blksize.max(PREFERRED_BLOCK);
    a
}

/// The attributes of an open file.
pub(crate) fn attr_of(file: &File) -> Result<Attr, Error> {
    if let Some(known) = state().client().attributes(file) {
        return Ok(preferred(known));
    }
    let stat = |handle| Meta::Stat { target: Target::Handle(handle) };
    state().client().meta_on(file, stat, want_attr).map(preferred).or_else(|e| {
        let local = super::io::direct_fd(file, &e).filter(|&fd| fd >= 0).ok_or(e)? as c_int;
        // SAFETY: a plain struct of integers.
        let mut found: libc::stat = unsafe { std::mem::zeroed() };
        let r = sys!(fstat, local, &raw mut found);
        sys::close(local);
        if r < 0 { Err(Error::local(-r as i32)) } else { Ok(attr::from_stat(&found)) }
    })
}

/// The attributes behind a path.
pub(crate) fn attr_at(client: &Client, target: Target<'_>) -> Result<Attr, Error> {
    client.meta(Meta::Stat { target }, want_attr).map(preferred)
}

fn want_attr(a: Answer<'_>) -> Option<Attr> {
    match a {
        Answer::Attr(a) => Some(a),
        _ => None,
    }
}

fn attr_of_open(open: &Open) -> Result<Attr, Error> {
    match &open.kind {
        Kind::Remote(f) => attr_of(f),
        Kind::Above(p) | Kind::LocalAbove(p) => Ok(attr::above(p)),
    }
}

/// `fstatat`, by what it does with the attributes.
fn stat_at(
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
    local: impl Fn(i32, *const c_char) -> sys::Raw,
    put: impl Fn(&Attr) -> Result<(), i32>,
) -> isize {
    // Both at once make no sense.
    const SYNC: c_int = libc::AT_STATX_FORCE_SYNC | libc::AT_STATX_DONT_SYNC;
    const KNOWN: c_int = libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT | libc::AT_EMPTY_PATH | SYNC;
    let known = || {
        allow(flags, KNOWN)?;
        if flags & SYNC == SYNC { Err(Error::local(libc::EINVAL)) } else { Ok(()) }
    };
    let put = |a: &Attr| put(a).map(|()| 0).map_err(Error::local);
    // Newer kernels take a null pointer for an empty path.
    // SAFETY: the program's own argument to a function that takes a C string.
    let empty = flags & libc::AT_EMPTY_PATH != 0
        && (path.is_null() || unsafe { user::text(path) }.is_some_and(<[u8]>::is_empty));
    if empty {
        if dirfd == libc::AT_FDCWD && state().cwd.get().is_some_and(|c| c.shadowed()) {
            return match known().and_then(|()| state().cwd.get().ok_or(Error::local(libc::ENOENT))) {
                Ok(cwd) => {
                    let here = sys::cstring(&cwd.path);
                    at(dirfd, here.as_ptr().cast(), true, local, by_path(true, &put), |_| None)
                }
                Err(e) => fail(&e, b"."),
            };
        }
        if let Some(open) = table::get(dirfd) {
            return match known().and_then(|()| attr_of_open(&open)).and_then(|a| put(&a)) {
                Ok(done) => done,
                Err(e) => fail(&e, &open.path),
            };
        }
    }
    let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    at(
        dirfd,
        path,
        follow,
        local,
        |client, r| known().and_then(|()| by_path(follow, &put)(client, r)),
        |p| Some(put(&attr::above(p)).unwrap_or_else(|e| -(e.errno() as sys::Raw))),
    )
}

/// The attributes of what has that path.
fn by_path(
    follow: bool,
    put: &impl Fn(&Attr) -> Result<isize, Error>,
) -> impl Fn(&'static Client, &Remote) -> Result<isize, Error> {
    move |client, r| {
        let target = if follow { Target::Path(r.wire()) } else { Target::Link(r.wire()) };
        attr_at(client, target).and_then(|a| put(&a))
    }
}

fn plain(dirfd: c_int, path: *const c_char, buf: *mut libc::stat, flags: c_int) -> c_int {
    stat_at(dirfd, path, flags, |d, p| sys!(newfstatat, d, p, buf, flags), |a| user::give(buf, attr::stat(a)))
        as c_int
}

pub(crate) unsafe extern "C" fn stat(path: *const c_char, buf: *mut libc::stat) -> c_int {
    plain(libc::AT_FDCWD, path, buf, 0)
}

pub(crate) unsafe extern "C" fn lstat(path: *const c_char, buf: *mut libc::stat) -> c_int {
    plain(libc::AT_FDCWD, path, buf, libc::AT_SYMLINK_NOFOLLOW)
}

pub(crate) unsafe extern "C" fn fstatat(
    dirfd: c_int,
    path: *const c_char,
    buf: *mut libc::stat,
    flags: c_int,
) -> c_int {
    plain(dirfd, path, buf, flags)
}

pub(crate) unsafe extern "C" fn fstat(fd: c_int, buf: *mut libc::stat) -> c_int {
    let Some(open) = table::get(fd) else { return sys::ret(sys!(fstat, fd, buf)) as c_int };
    let given = |a| user::give(buf, attr::stat(&a)).map_err(Error::local);
    match attr_of_open(&open).and_then(given) {
        Ok(()) => 0,
        Err(e) => fail(&e, &open.path) as c_int,
    }
}

pub(crate) unsafe extern "C" fn xstat(_: c_int, path: *const c_char, buf: *mut libc::stat) -> c_int {
    plain(libc::AT_FDCWD, path, buf, 0)
}

pub(crate) unsafe extern "C" fn lxstat(_: c_int, path: *const c_char, buf: *mut libc::stat) -> c_int {
    plain(libc::AT_FDCWD, path, buf, libc::AT_SYMLINK_NOFOLLOW)
}

pub(crate) unsafe extern "C" fn fxstat(_: c_int, fd: c_int, buf: *mut libc::stat) -> c_int {
    // SAFETY: the same arguments.
    unsafe { fstat(fd, buf) }
}

pub(crate) unsafe extern "C" fn fxstatat(
    _: c_int,
    d: c_int,
    path: *const c_char,
    buf: *mut libc::stat,
    flags: c_int,
) -> c_int {
    plain(d, path, buf, flags)
}

pub(crate) unsafe extern "C" fn statx(
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    buf: *mut libc::statx,
) -> c_int {
    stat_at(
        dirfd,
        path,
        flags,
        |d, p| sys!(statx, d, p, flags, mask, buf),
        |a| {
            // The highest bit is kept for a longer structure.
            if mask >> 31 != 0 { Err(libc::EINVAL) } else { user::give(buf, attr::statx(a)) }
        },
    ) as c_int
}

pub(crate) unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    access_at(libc::AT_FDCWD, path, mode, 0)
}

pub(crate) unsafe extern "C" fn euidaccess(path: *const c_char, mode: c_int) -> c_int {
    access_at(libc::AT_FDCWD, path, mode, libc::AT_EACCESS)
}

pub(crate) unsafe extern "C" fn faccessat(
    dirfd: c_int,
    path: *const c_char,
    mode: c_int,
    flags: c_int,
) -> c_int {
    access_at(dirfd, path, mode, flags)
}

pub(crate) fn access_at(dirfd: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
    const KNOWN: c_int = libc::AT_EACCESS | libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH;
    if mode & !7 != 0 {
        return fail_errno(libc::EINVAL) as c_int;
    }
    // SAFETY: the program's own argument to a function that takes a C string.
    let empty = flags & libc::AT_EMPTY_PATH != 0 && unsafe { user::text(path) } == Some(b"");
    if empty && let Some(open) = table::get(dirfd) {
        let here = sys::cstring(&path::open_path(&open));
        return access_at(libc::AT_FDCWD, here.as_ptr().cast(), mode, flags & !libc::AT_EMPTY_PATH);
    }
    let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    at(
        dirfd,
        path,
        follow,
        |d, p| {
            if flags == 0 {
                return sys!(faccessat, d, p, mode);
            }
            match sys!(faccessat2, d, p, mode, flags) {
                r if r == -(libc::ENOSYS as isize) => sys!(faccessat, d, p, mode),
                r => r,
            }
        },
        |client, r| {
            allow(flags, KNOWN)?;
            client.meta(Meta::Access { path: r.wire(), mode: mode as u32, follow }, |_| Some(0))
        },
        |_| if mode & libc::W_OK != 0 { neg(libc::EROFS) } else { Some(0) },
    ) as c_int
}
