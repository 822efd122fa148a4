//! Extended attributes.

use super::{at, fail, fail_errno, hooks, neg};
use crate::state::state;
use crate::sys::{self, sys};
use crate::table;
use crate::user;
use forebay_client::{Answer, Error, Meta, Target};
use std::ffi::{c_char, c_int, c_void};

hooks! {
    c"getxattr" => getxattr, c"lgetxattr" => lgetxattr, c"fgetxattr" => fgetxattr, c"setxattr" => setxattr,
    c"lsetxattr" => lsetxattr, c"fsetxattr" => fsetxattr, c"listxattr" => listxattr, c"llistxattr" => llistxattr,
    c"flistxattr" => flistxattr, c"removexattr" => removexattr, c"lremovexattr" => lremovexattr,
    c"fremovexattr" => fremovexattr,
}

/// Gives bytes as the xattr calls do: the length for an empty buffer, `ERANGE` for a small one.
fn give(bytes: &[u8], buf: *mut c_void, n: usize) -> isize {
    if n == 0 {
        return bytes.len() as isize;
    }
    if bytes.len() > n {
        return fail_errno(libc::ERANGE);
    }
    if !user::writable(buf, bytes.len()) {
        return fail_errno(libc::EFAULT);
    }
    // SAFETY: seen to be writable.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), buf.cast(), bytes.len()) };
    bytes.len() as isize
}

fn by_path<'m>(
    path: *const c_char,
    (follow, checked): (bool, Checked),
    local: impl Fn(*const c_char) -> sys::Raw,
    op: impl for<'a> Fn(Target<'a>) -> Meta<'a> + 'm,
    done: impl Fn(&[u8]) -> isize,
) -> isize {
    at(
        libc::AT_FDCWD,
        path,
        follow,
        |_, p| local(p),
        |client, r| {
            checked.map_err(Error::local)?;
            let target = if follow { Target::Path(r.wire()) } else { Target::Link(r.wire()) };
            client.meta(op(target), |a| Some(answered(a, &done)))
        },
        |_| neg(libc::EOPNOTSUPP),
    )
}

fn by_fd<'m>(
    (fd, checked): (c_int, Checked),
    local: impl FnOnce() -> sys::Raw,
    op: impl Fn(Target<'m>) -> Meta<'m>,
    done: impl Fn(&[u8]) -> isize,
) -> isize {
    let Some(open) = table::get(fd) else { return sys::ret(local()) };
    if let Err(e) = checked {
        return fail_errno(e);
    }
    let Some(file) = open.remote() else { return fail_errno(libc::EOPNOTSUPP) };
    match state().client().meta_on(file, |h| op(Target::Handle(h)), |a| Some(answered(a, &done))) {
        Ok(v) => v,
        Err(e) => fail(&e, &open.path),
    }
}

fn answered(a: Answer<'_>, done: &impl Fn(&[u8]) -> isize) -> isize {
    match a {
        Answer::Bytes(b) => done(b),
        _ => done(&[]),
    }
}

/// Whether a call's arguments are such as the kernel takes.
type Checked = Result<(), i32>;

/// The program's attribute name.
unsafe fn name<'a>(p: *const c_char) -> (&'a [u8], Checked) {
    // SAFETY: the program's own argument to a function that takes a C string.
    match unsafe { user::text(p) } {
        Some(name) if (1..=255).contains(&name.len()) => (name, Ok(())),
        Some(_) => (b"", Err(libc::ERANGE)),
        None => (b"", Err(if user::readable(p, 1) { libc::ERANGE } else { libc::EFAULT })),
    }
}

/// The program's attribute value.
unsafe fn value<'a>(p: *const c_void, n: usize) -> (&'a [u8], Checked) {
    const LONGEST: usize = 65536;
    if n > LONGEST {
        return (b"", Err(libc::E2BIG));
    }
    // SAFETY: the program's own buffer, which it leaves alone during the call.
    match unsafe { user::bytes(p, n) } {
        Ok(value) => (value, Ok(())),
        Err(e) => (b"", Err(e)),
    }
}

fn known(flags: c_int) -> Checked {
    if flags & !(libc::XATTR_CREATE | libc::XATTR_REPLACE) == 0 { Ok(()) } else { Err(libc::EINVAL) }
}

pub(crate) unsafe extern "C" fn getxattr(
    path: *const c_char,
    key: *const c_char,
    buf: *mut c_void,
    n: usize,
) -> isize {
    // SAFETY: the program's own argument.
    let (name, checked) = unsafe { name(key) };
    by_path(
        path,
        (true, checked),
        |p| sys!(getxattr, p, key, buf, n),
        move |target| Meta::Getxattr { target, name: short(name) },
        |b| give(b, buf, n),
    )
}

pub(crate) unsafe extern "C" fn lgetxattr(
    path: *const c_char,
    key: *const c_char,
    buf: *mut c_void,
    n: usize,
) -> isize {
    // SAFETY: the program's own argument.
    let (name, checked) = unsafe { name(key) };
    by_path(
        path,
        (false, checked),
        |p| sys!(lgetxattr, p, key, buf, n),
        move |target| Meta::Getxattr { target, name: short(name) },
        |b| give(b, buf, n),
    )
}

pub(crate) unsafe extern "C" fn fgetxattr(
    fd: c_int,
    key: *const c_char,
    buf: *mut c_void,
    n: usize,
) -> isize {
    // SAFETY: the program's own argument.
    let (name, checked) = unsafe { name(key) };
    by_fd(
        (fd, checked),
        || sys!(fgetxattr, fd, key, buf, n),
        |target| Meta::Getxattr { target, name },
        |b| give(b, buf, n),
    )
}

/// A name that outlives the call, shortened to the lifetime of its message.
fn short<'a>(name: &'static [u8]) -> &'a [u8] {
    name
}

fn set(
    path: *const c_char,
    key: *const c_char,
    v: *const c_void,
    n: usize,
    flags: c_int,
    follow: bool,
) -> c_int {
    // SAFETY: the program's own arguments.
    let ((name, named), (data, valued)): ((&'static [u8], _), (&'static [u8], _)) =
        unsafe { (name(key), value(v, n)) };
    let checked = known(flags).and(named).and(valued);
    by_path(
        path,
        (follow, checked),
        |p| if follow { sys!(setxattr, p, key, v, n, flags) } else { sys!(lsetxattr, p, key, v, n, flags) },
        move |target| Meta::Setxattr { target, name: short(name), value: short(data), flags },
        |_| 0,
    ) as c_int
}

pub(crate) unsafe extern "C" fn setxattr(
    path: *const c_char,
    key: *const c_char,
    v: *const c_void,
    n: usize,
    flags: c_int,
) -> c_int {
    set(path, key, v, n, flags, true)
}

pub(crate) unsafe extern "C" fn lsetxattr(
    path: *const c_char,
    key: *const c_char,
    v: *const c_void,
    n: usize,
    flags: c_int,
) -> c_int {
    set(path, key, v, n, flags, false)
}

pub(crate) unsafe extern "C" fn fsetxattr(
    fd: c_int,
    key: *const c_char,
    v: *const c_void,
    n: usize,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's own arguments.
    let ((name, named), (data, valued)) = unsafe { (name(key), value(v, n)) };
    let checked = known(flags).and(named).and(valued);
    by_fd(
        (fd, checked),
        || sys!(fsetxattr, fd, key, v, n, flags),
        |target| Meta::Setxattr { target, name, value: data, flags },
        |_| 0,
    ) as c_int
}

pub(crate) unsafe extern "C" fn listxattr(path: *const c_char, buf: *mut c_void, n: usize) -> isize {
    by_path(
        path,
        (true, Ok(())),
        |p| sys!(listxattr, p, buf, n),
        |target| Meta::Listxattr { target },
        |b| give(b, buf, n),
    )
}

pub(crate) unsafe extern "C" fn llistxattr(path: *const c_char, buf: *mut c_void, n: usize) -> isize {
    by_path(
        path,
        (false, Ok(())),
        |p| sys!(llistxattr, p, buf, n),
        |target| Meta::Listxattr { target },
        |b| give(b, buf, n),
    )
}

pub(crate) unsafe extern "C" fn flistxattr(fd: c_int, buf: *mut c_void, n: usize) -> isize {
    by_fd(
        (fd, Ok(())),
        || sys!(flistxattr, fd, buf, n),
        |target| Meta::Listxattr { target },
        |b| give(b, buf, n),
    )
}

fn remove(path: *const c_char, key: *const c_char, follow: bool) -> c_int {
    // SAFETY: the program's own argument.
    let (name, checked): (&'static [u8], Checked) = unsafe { name(key) };
    by_path(
        path,
        (follow, checked),
        |p| if follow { sys!(removexattr, p, key) } else { sys!(lremovexattr, p, key) },
        move |target| Meta::Removexattr { target, name: short(name) },
        |_| 0,
    ) as c_int
}

pub(crate) unsafe extern "C" fn removexattr(path: *const c_char, key: *const c_char) -> c_int {
    remove(path, key, true)
}

pub(crate) unsafe extern "C" fn lremovexattr(path: *const c_char, key: *const c_char) -> c_int {
    remove(path, key, false)
}

pub(crate) unsafe extern "C" fn fremovexattr(fd: c_int, key: *const c_char) -> c_int {
    // SAFETY: the program's own argument.
    let (name, checked) = unsafe { name(key) };
    by_fd((fd, checked), || sys!(fremovexattr, fd, key), |target| Meta::Removexattr { target, name }, |_| 0)
        as c_int
}
