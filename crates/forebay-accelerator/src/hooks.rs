//! The functions of libc that are replaced. Each does what the kernel would, past the mount where that may be.

use crate::memory;
use crate::run::{At, What, is_nothing, past, trusts_size};
use crate::state;
use crate::table::{closes, own_in, owns, vacates};
use forebay_client::Error;
use forebay_hook::patch::hooks;
use forebay_hook::sys::{self, blocking, sys};
use forebay_hook::user;
use forebay_hook::vector::Vector;
use forebay_program::{HEAD, Uncovered, script, uncovered};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

hooks! {
    c"read" => read, c"write" => write,
    c"pread" => pread, c"pread64" => pread, c"pwrite" => pwrite, c"pwrite64" => pwrite,
    c"readv" => readv, c"writev" => writev,
    c"preadv" => preadv, c"preadv64" => preadv, c"pwritev" => pwritev, c"pwritev64" => pwritev,
    c"preadv2" => preadv2, c"preadv64v2" => preadv2, c"pwritev2" => pwritev2, c"pwritev64v2" => pwritev2,
    c"close" => close, c"_IO_file_close" => io_file_close, c"dup2" => dup2, c"dup3" => dup3,
    c"close_range" => close_range, c"closefrom" => closefrom,
    c"mmap" => mmap, c"mmap64" => mmap, c"copy_file_range" => copy_file_range, c"ioctl" => ioctl,
    c"sendfile" => sendfile, c"sendfile64" => sendfile, c"splice" => splice,
    c"execve" => execve,
}

/// So many scripts may run each other.
const SCRIPTS: usize = 5;

fn read_to(fd: c_int, buf: *mut c_void, n: usize, at: At) -> Option<isize> {
    let ready = || user::writable(buf, n);
    past(fd, What::Read, n, at, ready, |client, file, offset| {
        // SAFETY: the program's buffer, which is there.
        let buf = unsafe { std::slice::from_raw_parts_mut(buf.cast(), n) };
        client.pread(file, buf, offset)
    })
}

fn write_from(fd: c_int, buf: *const c_void, n: usize, at: At) -> Option<isize> {
    let ready = || user::readable(buf, n);
    past(fd, What::Write, n, at, ready, |client, file, offset| {
        // SAFETY: the program's buffer, which is there, and which it leaves alone during the call.
        let data = unsafe { std::slice::from_raw_parts(buf.cast(), n) };
        client.pwrite(file, data, offset)
    })
}

/// Several buffers as one.
fn many(fd: c_int, what: What, v: *const libc::iovec, count: c_int, at: At) -> Option<isize> {
    // Nothing of it is looked at where nothing is to be done.
    if is_nothing(fd) {
        return None;
    }
    let write = what == What::Write;
    // SAFETY: the program's own vector. What is wrong with it the kernel says.
    let v = unsafe { Vector::new(v, count, write) }.ok().filter(|v| v.is_whole(write))?;
    let mut failed = None;
    past(
        fd,
        what,
        v.total,
        at,
        || true,
        |client, file, offset| {
            let done = v.each(v.total, !write, |piece, before| {
                let at = offset + before as u64;
                let moved =
                    if write { client.pwrite(file, piece, at) } else { client.pread(file, piece, at) };
                moved.map_or_else(
                    |e| {
                        failed = Some(e);
                        -1
                    },
                    |n| n as isize,
                )
            });
            usize::try_from(done).map_err(|_| failed.take().unwrap_or(Error::local(libc::EIO)))
        },
    )
}

/// Where a call with an offset happens; `v2`: −1 is the descriptor's own.
fn place(offset: i64, v2: bool) -> Option<At> {
    if v2 && offset == -1 { Some(At::Here) } else { u64::try_from(offset).ok().map(At::Offset) }
}

unsafe extern "C" fn read(fd: c_int, buf: *mut c_void, n: usize) -> isize {
    sys::test_cancel();
    read_to(fd, buf, n, At::Here).unwrap_or_else(|| blocking(|| sys!(read, fd, buf, n)))
}

unsafe extern "C" fn write(fd: c_int, buf: *const c_void, n: usize) -> isize {
    sys::test_cancel();
    write_from(fd, buf, n, At::Here).unwrap_or_else(|| blocking(|| sys!(write, fd, buf, n)))
}

unsafe extern "C" fn pread(fd: c_int, buf: *mut c_void, n: usize, offset: i64) -> isize {
    sys::test_cancel();
    place(offset, false)
        .and_then(|at| read_to(fd, buf, n, at))
        .unwrap_or_else(|| blocking(|| sys!(pread64, fd, buf, n, offset)))
}

unsafe extern "C" fn pwrite(fd: c_int, buf: *const c_void, n: usize, offset: i64) -> isize {
    sys::test_cancel();
    place(offset, false)
        .and_then(|at| write_from(fd, buf, n, at))
        .unwrap_or_else(|| blocking(|| sys!(pwrite64, fd, buf, n, offset)))
}

unsafe extern "C" fn readv(fd: c_int, v: *const libc::iovec, n: c_int) -> isize {
    sys::test_cancel();
    many(fd, What::Read, v, n, At::Here).unwrap_or_else(|| blocking(|| sys!(readv, fd, v, n)))
}

unsafe extern "C" fn writev(fd: c_int, v: *const libc::iovec, n: c_int) -> isize {
    sys::test_cancel();
    many(fd, What::Write, v, n, At::Here).unwrap_or_else(|| blocking(|| sys!(writev, fd, v, n)))
}

unsafe extern "C" fn preadv(fd: c_int, v: *const libc::iovec, n: c_int, offset: i64) -> isize {
    sys::test_cancel();
    let high = (offset as u64) >> 32;
    place(offset, false)
        .and_then(|at| many(fd, What::Read, v, n, at))
        .unwrap_or_else(|| blocking(|| sys!(preadv, fd, v, n, offset, high)))
}

unsafe extern "C" fn pwritev(fd: c_int, v: *const libc::iovec, n: c_int, offset: i64) -> isize {
    sys::test_cancel();
    let high = (offset as u64) >> 32;
    place(offset, false)
        .and_then(|at| many(fd, What::Write, v, n, at))
        .unwrap_or_else(|| blocking(|| sys!(pwritev, fd, v, n, offset, high)))
}

unsafe extern "C" fn preadv2(fd: c_int, v: *const libc::iovec, n: c_int, offset: i64, flags: c_int) -> isize {
    sys::test_cancel();
    let high = (offset as u64) >> 32;
    place(offset, true)
        .filter(|_| flags == 0)
        .and_then(|at| many(fd, What::Read, v, n, at))
        .unwrap_or_else(|| blocking(|| sys!(preadv2, fd, v, n, offset, high, flags)))
}

unsafe extern "C" fn pwritev2(
    fd: c_int,
    v: *const libc::iovec,
    n: c_int,
    offset: i64,
    flags: c_int,
) -> isize {
    sys::test_cancel();
    let high = (offset as u64) >> 32;
    if flags & libc::RWF_APPEND != 0 {
        // The kernel finds the end by itself.
        trusts_size(fd);
    }
    place(offset, true)
        .filter(|_| flags == 0)
        .and_then(|at| many(fd, What::Write, v, n, at))
        .unwrap_or_else(|| blocking(|| sys!(pwritev2, fd, v, n, offset, high, flags)))
}

/// Closes a descriptor; what its I/O node says of it is told if the kernel has nothing to say.
fn close_fd(fd: c_int) -> isize {
    let told = closes(fd);
    if told == Err(libc::EBADF) {
        // A program that closes everything does not know of our sockets.
        return sys::ret(-(libc::EBADF as isize));
    }
    match (blocking(|| sys!(close, fd)), told) {
        (0, Err(errno)) => sys::ret(-(errno as isize)),
        (closed, _) => closed,
    }
}

unsafe extern "C" fn close(fd: c_int) -> c_int {
    sys::test_cancel();
    close_fd(fd) as c_int
}

/// What `fclose` does inside.
unsafe extern "C" fn io_file_close(stream: *mut u8) -> c_int {
    const FILENO: usize = 112;
    // SAFETY: `_fileno` of glibc's FILE, whose layout is part of its ABI.
    let fd = unsafe { stream.add(FILENO).cast::<c_int>().read() };
    close_fd(fd) as c_int
}

unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    if fd == to {
        let open = sys!(fcntl, fd, libc::F_GETFD);
        return sys::ret(if open < 0 { open } else { to as isize }) as c_int;
    }
    dup_to(fd, to, 0)
}

unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    dup_to(fd, to, flags)
}

fn dup_to(fd: c_int, to: c_int, flags: c_int) -> c_int {
    if owns(fd) {
        return sys::ret(-(libc::EBADF as isize)) as c_int;
    }
    // What is written to a file that loses its descriptor so has been answered.
    if fd != to && closes(to) == Err(libc::EBADF) && !vacates(to) {
        return sys::ret(-(libc::EBUSY as isize)) as c_int;
    }
    sys::ret(sys!(dup3, fd, to, flags)) as c_int
}

unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const CLOEXEC: c_int = libc::CLOSE_RANGE_CLOEXEC as c_int;
    let own = own_in(first, last);
    if own.is_empty() || flags & CLOEXEC != 0 || first > last {
        return sys::ret(sys!(close_range, first, last, flags)) as c_int;
    }
    let mut from = first;
    for fd in own {
        if fd > from {
            let closed = sys!(close_range, from, fd - 1, flags);
            if closed < 0 {
                return sys::ret(closed) as c_int;
            }
        }
        from = fd + 1;
    }
    if from > last { 0 } else { sys::ret(sys!(close_range, from, last, flags)) as c_int }
}

unsafe extern "C" fn closefrom(first: c_int) {
    // SAFETY: as for any range.
    unsafe { close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
}

unsafe extern "C" fn mmap(
    addr: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    memory::mapped(prot, flags);
    if flags & libc::MAP_ANONYMOUS == 0 {
        trusts_size(fd);
    }
    sys::ret(sys!(mmap, addr, len, prot, flags, fd, offset)) as *mut c_void
}

unsafe extern "C" fn copy_file_range(
    from: c_int,
    at: *mut i64,
    to: c_int,
    there: *mut i64,
    len: usize,
    flags: c_uint,
) -> isize {
    sys::test_cancel();
    trusts_size(from);
    blocking(|| sys!(copy_file_range, from, at, to, there, len, flags))
}

unsafe extern "C" fn sendfile(to: c_int, from: c_int, at: *mut i64, n: usize) -> isize {
    trusts_size(from);
    sys::ret(sys!(sendfile, to, from, at, n))
}

unsafe extern "C" fn splice(
    from: c_int,
    at: *mut i64,
    to: c_int,
    there: *mut i64,
    n: usize,
    flags: c_uint,
) -> isize {
    sys::test_cancel();
    trusts_size(from);
    blocking(|| sys!(splice, from, at, to, there, n, flags))
}

unsafe extern "C" fn ioctl(fd: c_int, request: libc::c_ulong, argument: usize) -> c_int {
    if request == libc::FIONREAD {
        trusts_size(fd);
    }
    sys::ret(sys!(ioctl, fd, request, argument)) as c_int
}

/// Whether this library can be loaded into a program, or does not bother it.
fn fits(path: *const c_char) -> bool {
    // SAFETY: the program's own argument to a function that takes a C string.
    let Some(path) = (unsafe { user::text(path) }) else { return true };
    let mut path = path.to_vec();
    for _ in 0..SCRIPTS {
        let Some(head) = sys::read_file(&path, HEAD) else { return true };
        match script(&head) {
            Some((interpreter, _)) => path = interpreter.to_vec(),
            None => {
                use Uncovered::{Bits32, Foreign, OtherLibc};
                return !matches!(uncovered(&head), Some(Bits32 | Foreign | OtherLibc));
            }
        }
    }
    true
}

unsafe extern "C" fn execve(
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    if state::get().is_none() || envp.is_null() || fits(path) {
        return sys::ret(sys!(execve, path, argv, envp)) as c_int;
    }
    let mut new = Vec::new();
    let changed = without_library(envp, &mut new);
    let envp = if changed.is_some() { new.as_ptr() } else { envp };
    sys::ret(sys!(execve, path, argv, envp)) as c_int
}

/// The environment `envp` without this library, in `new`: what has to outlive it.
fn without_library(envp: *const *const c_char, new: &mut Vec<*const c_char>) -> Option<Vec<u8>> {
    const NAME: &[u8] = b"LD_PRELOAD=";
    let own = sys::own_file()?;
    let mut changed = None;
    for i in 0.. {
        // SAFETY: the program's own environment: an array of C strings that ends with a null.
        let entry = unsafe { envp.add(i).read() };
        new.push(entry);
        if entry.is_null() {
            break;
        }
        // SAFETY: as above.
        let text = unsafe { CStr::from_ptr(entry) }.to_bytes();
        if let (Some(value), None) = (text.strip_prefix(NAME), &changed) {
            let others = value.split(|b| matches!(b, b':' | b' ')).filter(|one| *one != own);
            let others: Vec<&[u8]> = others.filter(|one| !one.is_empty()).collect();
            let value = sys::cstring(&[NAME, &others.join(&b':')].concat());
            new[i] = value.as_ptr().cast();
            changed = Some(value);
        }
    }
    changed
}
