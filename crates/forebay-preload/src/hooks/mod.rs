//! The functions that take the place of libc's, by family. Each asks whether the path or descriptor
//! is forwarded; if not, it makes the system call libc would have made.

pub(crate) mod aio;
pub(crate) mod copy;
pub(crate) mod dir;
pub(crate) mod exec;
pub(crate) mod fd;
pub(crate) mod handover;
pub(crate) mod io;
pub(crate) mod ioctl;
pub(crate) mod library;
pub(crate) mod limit;
pub(crate) mod lock;
pub(crate) mod map;
pub(crate) mod meta;
pub(crate) mod names;
pub(crate) mod size;
pub(crate) mod socket;
pub(crate) mod spawn;
pub(crate) mod stat;
pub(crate) mod syscall;
pub(crate) mod vector;
pub(crate) mod walk;
pub(crate) mod wd;
pub(crate) mod xattr;

use crate::notes;
use crate::patch::{self, Hook};
use crate::path::{self, Remote, Resolved};
use crate::state::state;
use crate::sys::{self, Raw};
use forebay_client::{Client, Error};
use std::ffi::{c_char, c_int};

/// Every function that is replaced.
pub(crate) fn all() -> Vec<Hook> {
    patch::all_of(&[
        fd::HOOKS,
        io::HOOKS,
        vector::HOOKS,
        size::HOOKS,
        limit::HOOKS,
        ioctl::HOOKS,
        socket::HOOKS,
        lock::HOOKS,
        stat::HOOKS,
        names::HOOKS,
        meta::HOOKS,
        xattr::HOOKS,
        dir::HOOKS,
        map::HOOKS,
        copy::HOOKS,
        exec::HOOKS,
        syscall::HOOKS,
        walk::HOOKS,
        wd::HOOKS,
    ])
}

pub(crate) use forebay_hook::patch::hooks;

/// Fails as a C function does. What is not the file system's own answer also goes into the report.
pub(crate) fn fail(e: &Error, path: &[u8]) -> isize {
    if !matches!(e, Error::Refused { .. } | Error::Escapes) {
        notes::note("error", path, &e.to_string());
    }
    fail_errno(e.errno())
}

pub(crate) fn fail_errno(errno: i32) -> isize {
    sys::set_errno(errno);
    -1
}

/// An operation on a path: on this machine by `local`, forwarded by `remote`, or on a directory
/// above a forwarded one that this machine does not have by `above` (`None`: as the kernel says).
/// `follow`: whether the operation follows a link at the end of the path.
pub(crate) fn at(
    dirfd: i32,
    path: *const c_char,
    follow: bool,
    local: impl Fn(i32, *const c_char) -> Raw,
    remote: impl Fn(&'static Client, &Remote) -> Result<isize, Error>,
    above: impl Fn(&[u8]) -> Option<Raw>,
) -> isize {
    // SAFETY: the program's own argument to a function that takes a C string.
    let Some(bytes) = (unsafe { crate::user::text(path) }) else { return sys::ret(local(dirfd, path)) };
    let mut place = path::place(dirfd, bytes);
    for _ in 0..40 {
        if let Some(p) = place.direct() {
            return sys::ret(local(libc::AT_FDCWD, sys::cstring(&p).as_ptr().cast()));
        }
        match place {
            Resolved::Local => {
                let r = local(dirfd, path);
                if r == -(libc::ENOENT as Raw)
                    && let Some(next) = path::through_link(dirfd, bytes, follow)
                {
                    place = next;
                    continue;
                }
                return sys::ret(r);
            }
            Resolved::LocalAt(p) => return sys::ret(local(libc::AT_FDCWD, sys::cstring(&p).as_ptr().cast())),
            Resolved::Above(p) => {
                let r = local(libc::AT_FDCWD, sys::cstring(&p).as_ptr().cast());
                if r != -(libc::ENOENT as Raw) {
                    return sys::ret(r);
                }
                return sys::ret(above(&p).unwrap_or(r));
            }
            Resolved::Remote(r) => {
                match path::unshadowed(&r, follow).and_then(|()| remote(state().client(), &r)) {
                    Ok(v) => return v,
                    Err(Error::Escapes) => match path::follow_out(&r, follow) {
                        Ok(p) => place = path::place_of_absolute(&p),
                        Err(e) => return fail(&e, &r.full),
                    },
                    Err(e) => {
                        if matches!(e, Error::NoNode { .. })
                            && state().fallback_direct()
                            && let Some(p) = r.local()
                        {
                            notes::note("direct", &r.full, &e.to_string());
                            return sys::ret(local(libc::AT_FDCWD, sys::cstring(&p).as_ptr().cast()));
                        }
                        return fail(&e, &r.full);
                    }
                }
            }
        }
    }
    fail_errno(libc::ELOOP)
}

/// `EINVAL` for flags that an operation does not know, as from the kernel.
pub(crate) fn allow(flags: c_int, known: c_int) -> Result<(), Error> {
    if flags & !known == 0 { Ok(()) } else { Err(Error::local(libc::EINVAL)) }
}

/// For operations that have no meaning on a directory that is not there.
pub(crate) fn no_above(_: &[u8]) -> Option<Raw> {
    None
}

/// A negative errno as [`at`]'s `above` returns it.
pub(crate) fn neg(errno: i32) -> Option<Raw> {
    Some(-(errno as Raw))
}
