//! `stat` in its forms: past the mount where that may be, else as libc does it.

use crate::names::{Found, attributes};
use crate::state;
use forebay_hook::patch::hooks;
use forebay_hook::sys::{self, Raw, sys};
use forebay_hook::user;
use std::ffi::{c_char, c_int, c_uint};

hooks! {
    c"stat" => stat, c"stat64" => stat, c"lstat" => lstat, c"lstat64" => lstat, c"fstatat" => fstatat,
    c"fstatat64" => fstatat, c"statx" => statx, c"__xstat" => xstat, c"__xstat64" => xstat, c"__lxstat" => lxstat,
    c"__lxstat64" => lxstat, c"__fxstatat" => fxstatat, c"__fxstatat64" => fxstatat,
    c"unshare" => unshare, c"setns" => setns,
}

/// With these it is known what is meant.
const KNOWN: c_int =
    libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT | libc::AT_EMPTY_PATH | libc::AT_STATX_FORCE_SYNC;

/// What was asked for, given by `give`; `None`: the kernel is to be asked.
fn given(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    give: impl FnOnce(&Found) -> Result<(), i32>,
) -> Option<Raw> {
    if flags & !KNOWN != 0 {
        return None;
    }
    match attributes(dir, path, flags & libc::AT_SYMLINK_NOFOLLOW == 0)? {
        Ok(found) => give(&found).ok().map(|()| 0),
        Err(errno) => Some(-(errno as Raw)),
    }
}

fn plain(dir: c_int, path: *const c_char, buf: *mut libc::stat, flags: c_int) -> c_int {
    let given = given(dir, path, flags, |found| user::give(buf, forebay_client::stat(&found.attr)));
    sys::ret(given.unwrap_or_else(|| sys!(newfstatat, dir, path, buf, flags))) as c_int
}

unsafe extern "C" fn stat(path: *const c_char, buf: *mut libc::stat) -> c_int {
    plain(libc::AT_FDCWD, path, buf, 0)
}

unsafe extern "C" fn lstat(path: *const c_char, buf: *mut libc::stat) -> c_int {
    plain(libc::AT_FDCWD, path, buf, libc::AT_SYMLINK_NOFOLLOW)
}

unsafe extern "C" fn fstatat(dir: c_int, path: *const c_char, buf: *mut libc::stat, flags: c_int) -> c_int {
    plain(dir, path, buf, flags)
}

unsafe extern "C" fn xstat(_: c_int, path: *const c_char, buf: *mut libc::stat) -> c_int {
    plain(libc::AT_FDCWD, path, buf, 0)
}

unsafe extern "C" fn lxstat(_: c_int, path: *const c_char, buf: *mut libc::stat) -> c_int {
    plain(libc::AT_FDCWD, path, buf, libc::AT_SYMLINK_NOFOLLOW)
}

unsafe extern "C" fn fxstatat(
    _: c_int,
    dir: c_int,
    path: *const c_char,
    buf: *mut libc::stat,
    flags: c_int,
) -> c_int {
    plain(dir, path, buf, flags)
}

unsafe extern "C" fn statx(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    buf: *mut libc::statx,
) -> c_int {
    // The mount does not know when files were made.
    let usual = mask & !(libc::STATX_BASIC_STATS | libc::STATX_BTIME | libc::STATX_MNT_ID) == 0;
    let given = usual
        .then(|| {
            given(dir, path, flags, |found| {
                let mut all = forebay_client::statx(&found.attr);
                (all.stx_mnt_id, all.stx_mask) = (found.mount, all.stx_mask | libc::STATX_MNT_ID);
                all.stx_attributes_mask = found.attributes;
                user::give(buf, all)
            })
        })
        .flatten();
    sys::ret(given.unwrap_or_else(|| sys!(statx, dir, path, flags, mask, buf))) as c_int
}

/// In another namespace users have other numbers.
fn leave() {
    if let Some(names) = state::get().and_then(|state| state.names.as_ref()) {
        names.leave();
    }
}

unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    if flags & libc::CLONE_NEWUSER != 0 {
        leave();
    }
    sys::ret(sys!(unshare, flags)) as c_int
}

unsafe extern "C" fn setns(fd: c_int, kind: c_int) -> c_int {
    leave();
    sys::ret(sys!(setns, fd, kind)) as c_int
}
