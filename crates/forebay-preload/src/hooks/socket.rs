//! Sockets with a name below a forwarded directory, and descriptors that travel through sockets.
//!
//! A socket is a meeting point of processes on one machine, on any file system. Where the machine has
//! the directory under the same path, the kernel binds it there. Where it does not, the name is made on
//! the I/O node, and the socket itself in the run's own directory, called by the name's inode number; a
//! symbolic link beside it remembers what the program called it.

use super::{fail, fail_errno, hooks, stat};
use crate::path::{self, Remote, Resolved};
use crate::place;
use crate::state::state;
use crate::sys::{self, Raw, blocking, sys};
use crate::table;
use crate::user;
use forebay_client::{Attr, Error, Meta, Target};
use std::ffi::{c_int, c_uint, c_void};

hooks! {
    c"bind" => bind, c"connect" => connect, c"sendto" => sendto, c"sendmsg" => sendmsg, c"recvmsg" => recvmsg,
    c"sendmmsg" => sendmmsg, c"recvmmsg" => recvmmsg, c"getsockname" => getsockname,
    c"getpeername" => getpeername, c"accept" => accept, c"accept4" => accept4, c"recvfrom" => recvfrom,
}

/// Where the path begins in a Unix socket's address, and how long it may be.
const PATH: usize = std::mem::offset_of!(libc::sockaddr_un, sun_path);
const LONGEST: usize = size_of::<libc::sockaddr_un>() - PATH;

/// The path in an address; `None`: it is of another kind, or has no path.
fn named<'a>(address: *const c_void, len: c_uint) -> Option<&'a [u8]> {
    let len = (len as usize).min(size_of::<libc::sockaddr_un>());
    if address.is_null() || len <= PATH + 1 {
        return None;
    }
    // SAFETY: the program's own address, which it leaves alone during the call.
    let bytes = unsafe { user::bytes(address, len) }.ok()?;
    if u16::from_ne_bytes([bytes[0], bytes[1]]) != libc::AF_UNIX as u16 {
        return None;
    }
    let path = &bytes[PATH..];
    let path = &path[..path.iter().position(|&b| b == 0).unwrap_or(path.len())];
    (!path.is_empty()).then_some(path)
}

/// An address with this path.
fn address(path: &[u8]) -> Option<(libc::sockaddr_un, c_uint)> {
    if path.len() >= LONGEST {
        return None;
    }
    // SAFETY: a plain struct of integers.
    let mut a: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    a.sun_family = libc::AF_UNIX as u16;
    for (to, from) in a.sun_path.iter_mut().zip(path) {
        *to = *from as _;
    }
    Some((a, (PATH + path.len() + 1) as c_uint))
}

/// The forwarded path in an address, where the kernel would not find the same directory there.
fn concerns_us(given: *const c_void, len: c_uint) -> Option<(Remote, &'static [u8])> {
    let path = named(given, len)?;
    let Resolved::Remote(r) = path::place(libc::AT_FDCWD, path) else { return None };
    let export = &state().exports[r.export];
    (export.hidden || export.local.as_ref() != Some(&export.dir)).then_some((r, path))
}

/// What stands for the socket with these attributes.
fn stand_in(attr: &Attr) -> Vec<u8> {
    [&state().sockets[..], format!("/{:x}.{:x}", attr.dev, attr.ino).as_bytes()].concat()
}

const NAMED: &[u8] = b".name";

pub(crate) unsafe extern "C" fn bind(fd: c_int, given: *const c_void, len: c_uint) -> c_int {
    let Some((r, name)) = concerns_us(given, len) else {
        return sys::ret(sys!(bind, fd, given, len)) as c_int;
    };
    match bind_forwarded(fd, &r, name) {
        Ok(()) => 0,
        Err(e) => fail(&e, &r.full) as c_int,
    }
}

fn bind_forwarded(fd: c_int, r: &Remote, name: &[u8]) -> Result<(), Error> {
    let client = state().client();
    let mode = state().making(0o777);
    client
        .meta(Meta::Mknod { path: r.wire(), mode: libc::S_IFSOCK | mode, dev: 0 }, |_| Some(()))
        .map_err(|e| if e.errno() == libc::EEXIST { Error::local(libc::EADDRINUSE) } else { e })?;
    let bound = stat::attr_at(client, Target::Link(r.wire())).and_then(|attr| {
        sys::mkdirs(&state().sockets);
        let place = stand_in(&attr);
        let link = sys::cstring(&[&place[..], NAMED].concat());
        let (address, len) = address(&place).ok_or(Error::local(libc::ENAMETOOLONG))?;
        // The name was just made: whatever is here was for another one that had its number.
        sys!(unlinkat, libc::AT_FDCWD, sys::cstring(&place).as_ptr(), 0);
        sys!(unlinkat, libc::AT_FDCWD, link.as_ptr(), 0);
        sys!(symlinkat, sys::cstring(name).as_ptr(), libc::AT_FDCWD, link.as_ptr());
        match sys!(bind, fd, &raw const address, len) {
            r if r < 0 => Err(Error::local(-r as i32)),
            _ => Ok(()),
        }
    });
    if bound.is_err() {
        // The name is of no use without the socket.
        let _ = client.meta(Meta::Unlink { path: r.wire() }, |_| Some(()));
    }
    bound
}

/// The address that reaches the socket `r` on this machine.
fn reach(r: &Remote) -> Result<(libc::sockaddr_un, c_uint), Error> {
    let attr = stat::attr_at(state().client(), Target::Path(r.wire()))?;
    if attr.mode & libc::S_IFMT != libc::S_IFSOCK {
        return Err(Error::local(libc::ECONNREFUSED));
    }
    let place = stand_in(&attr);
    let here = sys!(faccessat, libc::AT_FDCWD, sys::cstring(&place).as_ptr(), libc::F_OK) == 0;
    // One that was bound past this library, or before the run.
    let place = if here { place } else { r.local().unwrap_or(place) };
    address(&place).ok_or(Error::local(libc::ENAMETOOLONG))
}

/// A call that takes an address: with the one that reaches the socket.
fn with_address(given: *const c_void, len: c_uint, call: impl FnOnce(*const c_void, c_uint) -> Raw) -> isize {
    let Some((r, _)) = concerns_us(given, len) else { return blocking(|| call(given, len)) };
    match reach(&r) {
        Ok((address, len)) => match call((&raw const address).cast(), len) {
            r if r == -(libc::ENOENT as Raw) => fail_errno(libc::ECONNREFUSED),
            r => sys::ret(r),
        },
        Err(e) => fail(&e, &r.full),
    }
}

pub(crate) unsafe extern "C" fn connect(fd: c_int, given: *const c_void, len: c_uint) -> c_int {
    with_address(given, len, |a, n| sys!(connect, fd, a, n)) as c_int
}

pub(crate) unsafe extern "C" fn sendto(
    fd: c_int,
    data: *const c_void,
    n: usize,
    flags: c_int,
    to: *const c_void,
    len: c_uint,
) -> isize {
    with_address(to, len, |a, l| sys!(sendto, fd, data, n, flags, a, l))
}

/// A call that gives an address: the program's own name instead of a stand-in's.
fn giving_address(to: *mut c_void, len: *mut c_uint, call: impl FnOnce() -> Raw) -> isize {
    let room = if to.is_null() || len.is_null() {
        0
    } else {
        // SAFETY: any bytes are a number; a bad pointer is the kernel's to tell.
        unsafe { user::take(len) }.unwrap_or(0)
    };
    let r = blocking(call);
    if r >= 0 && room > 0 {
        // SAFETY: the kernel has just written there.
        let used = unsafe { *len };
        if let Some(path) = named(to, used.min(room))
            && path::below(path, &state().sockets).is_some()
            && let Some(name) = sys::readlink(&[path, NAMED].concat())
            && let Some((own, n)) = address(&name)
        {
            let n_there = (n as usize).min(room as usize);
            // SAFETY: the program's own buffer of `room` bytes, which the kernel has just written to.
            unsafe {
                std::ptr::copy_nonoverlapping((&raw const own).cast::<u8>(), to.cast(), n_there);
                *len = n;
            }
        }
    }
    r
}

pub(crate) unsafe extern "C" fn getsockname(fd: c_int, to: *mut c_void, len: *mut c_uint) -> c_int {
    giving_address(to, len, || sys!(getsockname, fd, to, len)) as c_int
}

pub(crate) unsafe extern "C" fn getpeername(fd: c_int, to: *mut c_void, len: *mut c_uint) -> c_int {
    giving_address(to, len, || sys!(getpeername, fd, to, len)) as c_int
}

pub(crate) unsafe extern "C" fn accept(fd: c_int, to: *mut c_void, len: *mut c_uint) -> c_int {
    giving_address(to, len, || sys!(accept4, fd, to, len, 0)) as c_int
}

pub(crate) unsafe extern "C" fn accept4(fd: c_int, to: *mut c_void, len: *mut c_uint, flags: c_int) -> c_int {
    giving_address(to, len, || sys!(accept4, fd, to, len, flags)) as c_int
}

pub(crate) unsafe extern "C" fn recvfrom(
    fd: c_int,
    data: *mut c_void,
    n: usize,
    flags: c_int,
    from: *mut c_void,
    len: *mut c_uint,
) -> isize {
    giving_address(from, len, || sys!(recvfrom, fd, data, n, flags, from, len))
}

/// The descriptors that a message carries, and where they are written down.
fn carried(message: &libc::msghdr) -> Vec<*mut c_int> {
    let mut all = Vec::new();
    let start = message.msg_control as usize;
    if start == 0 || !user::readable(message.msg_control, message.msg_controllen) {
        return all;
    }
    let end = start + message.msg_controllen;
    let (head, word) = (size_of::<libc::cmsghdr>(), size_of::<usize>());
    let mut at = start;
    while at + head <= end {
        // SAFETY: inside the program's control data, seen to be readable.
        let c = unsafe { (at as *const libc::cmsghdr).read_unaligned() };
        let len = c.cmsg_len;
        if len < head || at + len > end {
            break;
        }
        if c.cmsg_level == libc::SOL_SOCKET && c.cmsg_type == libc::SCM_RIGHTS {
            let first = at + head;
            all.extend(
                (0..(len - head) / size_of::<c_int>())
                    .map(|i| (first + i * size_of::<c_int>()) as *mut c_int),
            );
        }
        at += len.next_multiple_of(word);
    }
    all
}

/// A forwarded file goes to another process, which finds out from its placeholder what it is, and may
/// use it after this one has closed it.
fn before_sending(message: &libc::msghdr) {
    if message.msg_controllen == 0 {
        return;
    }
    let mut any = false;
    for fd in carried(message) {
        // SAFETY: inside the program's control data, seen to be readable.
        if let Some(open) = table::get(unsafe { fd.read_unaligned() })
            && let Some(file) = open.remote()
        {
            state().client().settle_later(file);
            file.set_shared(true);
            any = true;
        }
    }
    if any {
        state().client().note_pass();
        place::settle_all();
    }
}

/// Descriptors have come, some of which may stand for forwarded files.
fn after_receiving(message: &libc::msghdr) {
    if message.msg_controllen == 0 {
        return;
    }
    for fd in carried(message) {
        // SAFETY: inside the program's control data, seen to be readable.
        let fd = unsafe { fd.read_unaligned() };
        drop(table::take(fd));
        if let Some(open) = place::inherited(fd) {
            let _ = table::put(fd, open);
        }
    }
}

pub(crate) unsafe extern "C" fn sendmsg(fd: c_int, message: *const libc::msghdr, flags: c_int) -> isize {
    // SAFETY: any bytes are such a structure.
    let Ok(mut m) = (unsafe { user::take(message) }) else {
        return sys::ret(sys!(sendmsg, fd, message, flags));
    };
    before_sending(&m);
    let Some((r, _)) = concerns_us(m.msg_name, m.msg_namelen) else {
        return blocking(|| sys!(sendmsg, fd, message, flags));
    };
    match reach(&r) {
        Ok((mut address, len)) => {
            (m.msg_name, m.msg_namelen) = ((&raw mut address).cast(), len);
            sys::ret(sys!(sendmsg, fd, &raw const m, flags))
        }
        Err(e) => fail(&e, &r.full),
    }
}

pub(crate) unsafe extern "C" fn recvmsg(fd: c_int, message: *mut libc::msghdr, flags: c_int) -> isize {
    let r = blocking(|| sys!(recvmsg, fd, message, flags));
    if r >= 0 {
        // SAFETY: the kernel has just read and written it.
        after_receiving(unsafe { &*message });
    }
    r
}

pub(crate) unsafe extern "C" fn sendmmsg(
    fd: c_int,
    messages: *mut libc::mmsghdr,
    n: c_uint,
    flags: c_int,
) -> c_int {
    if user::readable(messages, n.min(1024) as usize * size_of::<libc::mmsghdr>()) {
        for i in 0..n.min(1024) as usize {
            // SAFETY: inside the program's array, seen to be readable.
            before_sending(unsafe { &(*messages.add(i)).msg_hdr });
        }
    }
    blocking(|| sys!(sendmmsg, fd, messages, n, flags)) as c_int
}

pub(crate) unsafe extern "C" fn recvmmsg(
    fd: c_int,
    messages: *mut libc::mmsghdr,
    n: c_uint,
    flags: c_int,
    timeout: *mut libc::timespec,
) -> c_int {
    let r = blocking(|| sys!(recvmmsg, fd, messages, n, flags, timeout));
    for i in 0..usize::try_from(r).unwrap_or(0) {
        // SAFETY: the kernel has just read and written as many.
        after_receiving(unsafe { &(*messages.add(i)).msg_hdr });
    }
    r as c_int
}
