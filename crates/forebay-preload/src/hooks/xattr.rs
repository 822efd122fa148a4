//! Extended attributes.

use super::{at, fail, fail_errno, hooks, neg};
use crate::state::state;
use crate::sys::{self, sys};
use crate::table;
use forebay_client::{Answer, Meta, Target};
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
    // SAFETY: the program's own buffer of `n` bytes.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), buf.cast(), bytes.len()) };
    bytes.len() as isize
}

fn by_path<'m>(
    path: *const c_char,
    follow: bool,
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
            let target = if follow { Target::Path(r.wire()) } else { Target::Link(r.wire()) };
            client.meta(op(target), |a| Some(answered(a, &done)))
        },
        |_| neg(libc::EOPNOTSUPP),
    )
}

fn by_fd<'m>(
    fd: c_int,
    local: impl FnOnce() -> sys::Raw,
    op: impl Fn(Target<'m>) -> Meta<'m>,
    done: impl Fn(&[u8]) -> isize,
) -> isize {
    let Some(open) = table::get(fd) else { return sys::ret(local()) };
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

/// The program's attribute name.
unsafe fn name<'a>(p: *const c_char) -> &'a [u8] {
    // SAFETY: the program's own argument to a function that takes a C string.
    unsafe { sys::bytes(p) }.unwrap_or_default()
}

/// The program's attribute value.
unsafe fn value<'a>(p: *const c_void, n: usize) -> &'a [u8] {
    if n == 0 {
        return &[];
    }
    // SAFETY: the program's own buffer; the kernel's limit is 64 KiB.
    unsafe { std::slice::from_raw_parts(p.cast(), n.min(65536)) }
}

unsafe extern "C" fn getxattr(path: *const c_char, key: *const c_char, buf: *mut c_void, n: usize) -> isize {
    // SAFETY: the program's own argument.
    let name = unsafe { name(key) };
    by_path(
        path,
        true,
        |p| sys!(getxattr, p, key, buf, n),
        move |target| Meta::Getxattr { target, name: short(name) },
        |b| give(b, buf, n),
    )
}

unsafe extern "C" fn lgetxattr(path: *const c_char, key: *const c_char, buf: *mut c_void, n: usize) -> isize {
    // SAFETY: the program's own argument.
    let name = unsafe { name(key) };
    by_path(
        path,
        false,
        |p| sys!(lgetxattr, p, key, buf, n),
        move |target| Meta::Getxattr { target, name: short(name) },
        |b| give(b, buf, n),
    )
}

unsafe extern "C" fn fgetxattr(fd: c_int, key: *const c_char, buf: *mut c_void, n: usize) -> isize {
    // SAFETY: the program's own argument.
    let name = unsafe { name(key) };
    by_fd(
        fd,
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
    let (name, data): (&'static [u8], &'static [u8]) = unsafe { (name(key), value(v, n)) };
    by_path(
        path,
        follow,
        |p| if follow { sys!(setxattr, p, key, v, n, flags) } else { sys!(lsetxattr, p, key, v, n, flags) },
        move |target| Meta::Setxattr { target, name: short(name), value: short(data), flags },
        |_| 0,
    ) as c_int
}

unsafe extern "C" fn setxattr(
    path: *const c_char,
    key: *const c_char,
    v: *const c_void,
    n: usize,
    flags: c_int,
) -> c_int {
    set(path, key, v, n, flags, true)
}

unsafe extern "C" fn lsetxattr(
    path: *const c_char,
    key: *const c_char,
    v: *const c_void,
    n: usize,
    flags: c_int,
) -> c_int {
    set(path, key, v, n, flags, false)
}

unsafe extern "C" fn fsetxattr(
    fd: c_int,
    key: *const c_char,
    v: *const c_void,
    n: usize,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's own arguments.
    let (name, data) = unsafe { (name(key), value(v, n)) };
    by_fd(
        fd,
        || sys!(fsetxattr, fd, key, v, n, flags),
        |target| Meta::Setxattr { target, name, value: data, flags },
        |_| 0,
    ) as c_int
}

unsafe extern "C" fn listxattr(path: *const c_char, buf: *mut c_void, n: usize) -> isize {
    by_path(
        path,
        true,
        |p| sys!(listxattr, p, buf, n),
        |target| Meta::Listxattr { target },
        |b| give(b, buf, n),
    )
}

unsafe extern "C" fn llistxattr(path: *const c_char, buf: *mut c_void, n: usize) -> isize {
    by_path(
        path,
        false,
        |p| sys!(llistxattr, p, buf, n),
        |target| Meta::Listxattr { target },
        |b| give(b, buf, n),
    )
}

unsafe extern "C" fn flistxattr(fd: c_int, buf: *mut c_void, n: usize) -> isize {
    by_fd(fd, || sys!(flistxattr, fd, buf, n), |target| Meta::Listxattr { target }, |b| give(b, buf, n))
}

fn remove(path: *const c_char, key: *const c_char, follow: bool) -> c_int {
    // SAFETY: the program's own argument.
    let name: &'static [u8] = unsafe { name(key) };
    by_path(
        path,
        follow,
        |p| if follow { sys!(removexattr, p, key) } else { sys!(lremovexattr, p, key) },
        move |target| Meta::Removexattr { target, name: short(name) },
        |_| 0,
    ) as c_int
}

unsafe extern "C" fn removexattr(path: *const c_char, key: *const c_char) -> c_int {
    remove(path, key, true)
}

unsafe extern "C" fn lremovexattr(path: *const c_char, key: *const c_char) -> c_int {
    remove(path, key, false)
}

unsafe extern "C" fn fremovexattr(fd: c_int, key: *const c_char) -> c_int {
    // SAFETY: the program's own argument.
    let name = unsafe { name(key) };
    by_fd(fd, || sys!(fremovexattr, fd, key), |target| Meta::Removexattr { target, name }, |_| 0) as c_int
}
