//! Descriptors: open, close, dup, fcntl.

use super::{fail, fail_errno, hooks, lock};
use crate::notes;
use crate::path::{self, Remote, Resolved};
use crate::place::{self, spare};
use crate::state::state;
use crate::sys::{self, Raw, sys};
use crate::table::{self, Kind, Open};
use crate::user;
use forebay_client::{Client, Error, File, Meta, OpenFlags, Target};
use std::ffi::{c_char, c_int, c_uint};
use std::sync::Arc;
use std::sync::atomic::Ordering;

hooks! {
    c"open" => open, c"open64" => open, c"openat" => openat, c"openat64" => openat,
    c"creat" => creat, c"close" => close, c"_IO_file_close" => io_file_close,
    c"close_range" => close_range, c"closefrom" => closefrom,
    c"dup" => dup, c"dup2" => dup2, c"dup3" => dup3, c"fcntl" => fcntl, c"fcntl64" => fcntl,
    c"umask" => umask,
}

pub(crate) unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    sys::test_cancel();
    open_at(libc::AT_FDCWD, path, flags, mode) as c_int
}

pub(crate) unsafe extern "C" fn creat(path: *const c_char, mode: c_uint) -> c_int {
    sys::test_cancel();
    open_at(libc::AT_FDCWD, path, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC, mode) as c_int
}

unsafe extern "C" fn openat(dirfd: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    open_at(dirfd, path, flags, mode) as c_int
}

/// `openat`, with libc's convention.
pub(crate) fn open_at(dirfd: i32, path: *const c_char, flags: c_int, mode: c_uint) -> isize {
    // SAFETY: the program's own argument to a function that takes a C string.
    let Some(bytes) = (unsafe { user::text(path) }) else {
        return sys::ret(sys!(openat, dirfd, path, flags, mode));
    };
    // Of a place in the tree nothing else is asked for; the kernel overlooks the rest, too.
    let flags = if flags & libc::O_PATH != 0 { flags & PLACE } else { flags };
    let mut place = path::place(dirfd, bytes);
    for _ in 0..40 {
        if let Some(p) = place.direct() {
            return opened_locally(sys::open(&p, flags, mode));
        }
        match place {
            Resolved::Local => {
                let fd = sys!(openat, dirfd, path, flags, mode);
                if fd == -(libc::ENOENT as Raw)
                    && let Some(next) = path::through_link(dirfd, bytes, flags & libc::O_NOFOLLOW == 0)
                {
                    place = next;
                    continue;
                }
                return opened_locally(fd);
            }
            Resolved::LocalAt(p) => return opened_locally(sys::open(&p, flags, mode)),
            Resolved::Above(p) => return open_above(p, flags, mode),
            Resolved::Remote(r) => {
                match path::unshadowed(&r, follows(flags)).and_then(|()| open_remote(&r, flags, mode)) {
                    Ok(fd) => return fd,
                    Err(Error::Escapes) => match path::follow_out(&r, flags & libc::O_NOFOLLOW == 0) {
                        Ok(p) => place = path::place_of_absolute(&p),
                        Err(e) => return fail(&e, &r.full),
                    },
                    Err(e) => {
                        if matches!(e.errno(), libc::ENXIO | libc::EOPNOTSUPP)
                            && let Some(fd) = open_pipe(&r, flags)
                        {
                            return fd;
                        }
                        if matches!(e, Error::NoNode { .. })
                            && state().fallback_direct()
                            && let Some(p) = r.local()
                        {
                            notes::note("direct", &r.full, &e.to_string());
                            return opened_locally(sys::open(&p, flags, mode));
                        }
                        return fail(&e, &r.full);
                    }
                }
            }
        }
    }
    fail_errno(libc::ELOOP)
}

/// Whether a link at the end of the path is followed.
fn follows(flags: c_int) -> bool {
    let new = libc::O_CREAT | libc::O_EXCL;
    flags & libc::O_NOFOLLOW == 0 && flags & new != new
}

/// The system call of that name: libc has no function for it.
pub(crate) fn openat2(dirfd: i32, path: *const c_char, how: *const OpenHow, size: usize) -> isize {
    // SAFETY: the program's own argument to a call that takes a C string.
    let bytes = unsafe { user::text(path) };
    let forwarded =
        bytes.is_some_and(|b| !matches!(path::place(dirfd, b), Resolved::Local | Resolved::LocalAt(_)));
    if !forwarded || size < size_of::<OpenHow>() {
        return opened_locally(sys!(openat2, dirfd, path, how, size));
    }
    // SAFETY: any bytes are numbers.
    let asked = match unsafe { user::take(how) } {
        Ok(asked) => asked,
        Err(e) => return fail_errno(e),
    };
    // A newer form of the argument, with something in it that is not known here.
    if size > PAGE {
        return fail_errno(libc::E2BIG);
    }
    // SAFETY: the program's own argument of that size.
    match unsafe { user::bytes(how.wrapping_add(1), size - size_of::<OpenHow>()) } {
        Err(e) => return fail_errno(e),
        Ok(rest) if rest.iter().any(|&b| b != 0) => return fail_errno(libc::E2BIG),
        Ok(_) => {}
    }
    let flags = asked.flags as c_int;
    let creates = flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE;
    const HARMLESS: u64 = libc::RESOLVE_NO_MAGICLINKS | libc::RESOLVE_NO_XDEV;
    if asked.flags >> 32 != 0
        || flags & !KNOWN != 0
        || flags & libc::O_PATH != 0 && flags & !PLACE != 0
        || asked.mode & !0o7777 != 0
        || asked.mode != 0 && !creates
        || asked.resolve & !(HARMLESS | CONFINES | libc::RESOLVE_CACHED) != 0
    {
        return fail_errno(libc::EINVAL);
    }
    if asked.resolve & libc::RESOLVE_CACHED != 0 {
        return fail_errno(libc::EAGAIN);
    }
    if asked.resolve & CONFINES != 0 {
        notes::note("openat2", bytes.unwrap_or_default(), "confined path look-up is refused with ENOSYS");
        return fail_errno(libc::ENOSYS);
    }
    open_at(dirfd, path, flags, asked.mode as c_uint)
}

/// What `openat2` accepts, unlike its older relatives.
const KNOWN: c_int = libc::O_ACCMODE
    | libc::O_CREAT
    | libc::O_EXCL
    | libc::O_NOCTTY
    | libc::O_TRUNC
    | libc::O_APPEND
    | libc::O_NONBLOCK
    | libc::O_SYNC
    | libc::O_ASYNC
    | libc::O_DIRECT
    | LARGE_FILE
    | libc::O_NOATIME
    | libc::O_TMPFILE
    | PLACE;
const PLACE: c_int = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_PATH | libc::O_CLOEXEC;
/// The kernel's own number, which libc has no use for on these machines.
const LARGE_FILE: c_int = if cfg!(target_arch = "x86_64") { 0o100_000 } else { 0o400_000 };
const PAGE: usize = 4096;

const CONFINES: u64 = libc::RESOLVE_NO_SYMLINKS | libc::RESOLVE_BENEATH | libc::RESOLVE_IN_ROOT;

/// The kernel's `struct open_how`, in its first version.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// The kernel handed out this number, so whatever the table has for it is old.
pub(crate) fn opened_locally(fd: Raw) -> isize {
    if fd >= 0 {
        drop(table::take(fd as i32));
    }
    sys::ret(fd)
}

fn open_above(path: Vec<u8>, flags: c_int, mode: c_uint) -> isize {
    let fd = sys::open(&path, flags, mode);
    if fd >= 0 {
        drop(table::take(fd as i32));
        if flags & (libc::O_DIRECTORY | libc::O_PATH) != 0 && !state().is_passing_child() {
            let _ = table::put(fd as i32, Open::new(Kind::LocalAbove(path.clone()), path));
        }
        return fd;
    }
    if fd != -(libc::ENOENT as Raw) {
        return sys::ret(fd);
    }
    if flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_CREAT != 0 {
        return fail_errno(libc::EISDIR);
    }
    stand_for(Open::new(Kind::Above(path.clone()), path), flags)
}

fn open_remote(r: &Remote, flags: c_int, mode: c_uint) -> Result<isize, Error> {
    let client = state().client();
    let wire = OpenFlags::from_linux(flags);
    let mode = state().making(mode);
    let (file, _) = client.open(r.wire(), wire, mode)?;
    Ok(stand_for(Open::new(Kind::Remote(file), r.full.clone()), flags))
}

/// A named pipe is a meeting point of processes on one machine, on any file system. Ours meet at one
/// in the run's own directory that stands for it.
fn open_pipe(r: &Remote, flags: c_int) -> Option<isize> {
    let attr = super::stat::attr_at(state().client(), Target::Path(r.wire())).ok()?;
    if attr.mode & libc::S_IFMT != libc::S_IFIFO {
        notes::note("special", &r.full, "sockets and devices cannot be used through an I/O node");
        return None;
    }
    let pipes = &state().pipes;
    sys::mkdirs(pipes);
    let stand_in = [&pipes[..], format!("/{:x}.{:x}", attr.dev, attr.ino).as_bytes()].concat();
    // It may be there already.
    sys!(mknodat, libc::AT_FDCWD, sys::cstring(&stand_in).as_ptr(), libc::S_IFIFO | 0o600, 0);
    let how = flags & (libc::O_ACCMODE | libc::O_NONBLOCK | libc::O_CLOEXEC);
    Some(opened_locally(sys::open(&stand_in, how, 0)))
}

/// Gives `open` a descriptor.
fn stand_for(open: Arc<Open>, flags: c_int) -> isize {
    let fd = place::create(&open, flags);
    if fd < 0 || table::put(fd as i32, Arc::clone(&open)).is_err() {
        if let Some(f) = open.remote() {
            // Nothing was written through it; its close has no outcome.
            let _ = state().client().close(f);
        }
        if fd >= 0 {
            sys::close(fd as i32);
            return fail_errno(libc::EMFILE);
        }
    }
    sys::ret(fd)
}

unsafe extern "C" fn close(fd: c_int) -> c_int {
    close_fd(fd) as c_int
}

/// What `fclose` calls: libc closes the descriptor by a way of its own there.
unsafe extern "C" fn io_file_close(stream: *mut u8) -> c_int {
    const FILENO: usize = 112;
    // SAFETY: `_fileno` of glibc's FILE, whose layout is part of its ABI.
    let fd = unsafe { stream.add(FILENO).cast::<c_int>().read() };
    close_fd(fd) as c_int
}

pub(crate) fn close_fd(fd: i32) -> isize {
    let state = state();
    if state.client_if_any().is_some_and(|c| c.owns_fd(fd)) || spare::descriptor() == Some(fd) {
        // A program that closes everything does not know of our sockets.
        return fail_errno(libc::EBADF);
    }
    if table::get_any(fd).is_none() || state.is_passing_child() {
        return sys::ret(sys!(close, fd));
    }
    let open = table::take(fd);
    let r = sys!(close, fd);
    match open {
        Some(open) if !matches!(open.kind, Kind::LocalAbove(_)) => {
            let outcome = forget(open);
            if r < 0 { sys::ret(r) } else { outcome }
        }
        _ => sys::ret(r),
    }
}

/// A descriptor is gone; closes the file with the last one.
fn forget(open: Arc<Open>) -> isize {
    forget_by(open, Client::close)
}

fn forget_by(open: Arc<Open>, close: impl FnOnce(&Client, &File) -> Result<(), Error>) -> isize {
    let Some(file) = open.remote() else { return 0 };
    // Nobody asks whose it is that closes a file.
    let client = state().client_for_data();
    let released = lock::on_close(client, file);
    let path = open.path.clone();
    let closed = match Arc::try_unwrap(open) {
        Ok(last) => match last.remote().map(|f| {
            // Others wait for its lock: it lingers only if there is somebody to hold it.
            if f.is_shared() && f.took_locks() && !has_children() {
                f.set_shared(false);
            }
            close(client, f)
        }) {
            Some(closed) => closed,
            None => Ok(()),
        },
        Err(shared) => {
            shared.left.store(true, Ordering::Release);
            Ok(())
        }
    };
    released.and(closed).map_or_else(|e| fail(&e, &path), |()| 0)
}

/// Whether this process has children, living or not yet waited for.
pub(crate) fn has_children() -> bool {
    let how = libc::WNOHANG | libc::WNOWAIT | libc::WEXITED;
    sys!(waitid, libc::P_ALL, 0, 0, how, 0) != -(libc::ECHILD as Raw)
}

pub(crate) unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const UNSHARE: c_int = libc::CLOSE_RANGE_UNSHARE as c_int;
    if first > last || flags & !UNSHARE != 0 {
        // Wrong, or close-on-exec only: ours is set already, and placeholders follow the kernel's rule.
        return sys::ret(sys!(close_range, first, last, flags)) as c_int;
    }
    if flags & UNSHARE != 0 {
        // A table of its own, for this thread. Should there be others, what they have in common with it
        // fails for them from now on.
        match sys!(unshare, libc::CLONE_FILES) {
            r if r < 0 => return sys::ret(r) as c_int,
            _ => {}
        }
    }
    let last = last.min(table::MAX_FD as c_uint * 16);
    close_all(first, last);
    0
}

unsafe extern "C" fn closefrom(first: c_int) {
    close_all(first.max(0) as c_uint, c_uint::MAX - 1);
}

/// Closes a range around our own descriptors.
fn close_all(first: c_uint, last: c_uint) {
    for (fd, _) in table::all() {
        if fd as c_uint >= first && fd as c_uint <= last {
            close_fd(fd);
        }
    }
    let mut own = state().client_if_any().map_or(Vec::new(), |c| c.fds());
    own.extend(spare::descriptor());
    own.sort_unstable();
    let mut from = first;
    for fd in own.into_iter().map(|f| f as c_uint).filter(|f| (first..=last).contains(f)) {
        if fd > from {
            sys!(close_range, from, fd - 1, 0);
        }
        from = fd + 1;
    }
    if from <= last {
        sys!(close_range, from, last, 0);
    }
}

pub(crate) unsafe extern "C" fn dup(fd: c_int) -> c_int {
    duplicated(fd, sys!(dup, fd)) as c_int
}

pub(crate) unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    if fd == to {
        return sys::ret(match sys!(fcntl, fd, libc::F_GETFD) {
            r if r < 0 => r,
            _ => to as Raw,
        }) as c_int;
    }
    dup_to(fd, to, 0)
}

pub(crate) unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    dup_to(fd, to, flags)
}

/// How often it is looked whether a number is free: two seconds.
const MAX_NAPS: u32 = 20_000;

fn dup_to(fd: c_int, to: c_int, flags: c_int) -> c_int {
    let state = state();
    if let Some(client) = state.client_if_any() {
        // A socket that another thread is using just now is not pulled away from under it.
        for _ in 0..MAX_NAPS {
            if !client.owns_fd(to) {
                break;
            }
            client.vacate_fd(to);
            let nap = libc::timespec { tv_sec: 0, tv_nsec: 100_000 };
            if client.owns_fd(to) {
                sys!(nanosleep, &raw const nap, 0);
            }
        }
        if client.owns_fd(to) {
            return fail_errno(libc::EBUSY) as c_int;
        }
    }
    if spare::descriptor() == Some(to) {
        spare::forsake();
    }
    let passing = state.is_passing_child();
    let gone = if passing { None } else { table::take(to) };
    let r = sys!(dup3, fd, to, flags);
    if passing {
        return sys::ret(r) as c_int;
    }
    if let Some(open) = gone {
        if r < 0 {
            let _ = table::put(to, open);
        } else if !matches!(open.kind, Kind::LocalAbove(_)) {
            // What that says nobody hears.
            forget_by(open, Client::close_unheard);
        }
    }
    duplicated(fd, r) as c_int
}

/// The kernel made `new` of `fd`.
fn duplicated(fd: c_int, new: Raw) -> isize {
    if new >= 0 && !state().is_passing_child() {
        match table::get_any(fd) {
            Some(open) => {
                if table::put(new as i32, open).is_err() {
                    sys::close(new as i32);
                    return fail_errno(libc::EMFILE);
                }
            }
            None => drop(table::take(new as i32)),
        }
    }
    sys::ret(new)
}

pub(crate) unsafe extern "C" fn umask(mask: c_uint) -> c_uint {
    if !state().is_passing_child() {
        state().umask.store(mask & 0o777, Ordering::Relaxed);
    }
    sys!(umask, mask) as c_uint
}

unsafe extern "C" fn fcntl(fd: c_int, cmd: c_int, arg: usize) -> c_int {
    control(fd, cmd, arg) as c_int
}

pub(crate) fn control(fd: c_int, cmd: c_int, arg: usize) -> isize {
    let raw = || sys!(fcntl, fd, cmd, arg);
    match cmd {
        // The kernel knows that it is only a place in the tree.
        _ if !matches!(cmd, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC | libc::F_GETFL)
            && table::get(fd).is_some_and(|open| open.is_path()) =>
        {
            sys::ret(raw())
        }
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicated(fd, raw()),
        libc::F_GETFL | libc::F_SETFL => match table::get(fd) {
            Some(open) => file_flags(fd, &open, cmd, arg as c_int).unwrap_or_else(|e| fail(&e, &open.path)),
            None => sys::ret(raw()),
        },
        libc::F_SETLK
        | libc::F_SETLKW
        | libc::F_GETLK
        | libc::F_OFD_SETLK
        | libc::F_OFD_SETLKW
        | libc::F_OFD_GETLK => match table::get(fd) {
            Some(open) => lock::fcntl_lock(fd, &open, cmd, arg as *mut libc::flock),
            None => sys::ret(raw()),
        },
        // What a file system without leases and such answers; the placeholder's answer would be its own.
        libc::F_SETLEASE
        | libc::F_NOTIFY
        | libc::F_ADD_SEALS
        | libc::F_GET_SEALS
        | F_SET_RW_HINT
        | F_SET_FILE_RW_HINT
        | F_GET_RW_HINT
        | F_GET_FILE_RW_HINT => match table::get(fd) {
            Some(open) => {
                if cmd == libc::F_SETLEASE {
                    notes::note("lease", &open.path, "leases on forwarded files are refused with EINVAL");
                }
                fail_errno(libc::EINVAL)
            }
            None => sys::ret(raw()),
        },
        libc::F_GETLEASE if table::is_forwarded(fd) => libc::F_UNLCK as isize,
        libc::F_SETPIPE_SZ | libc::F_GETPIPE_SZ if table::is_forwarded(fd) => fail_errno(libc::EBADF),
        _ => sys::ret(raw()),
    }
}

const F_GET_RW_HINT: c_int = 1035;
const F_SET_RW_HINT: c_int = 1036;
const F_GET_FILE_RW_HINT: c_int = 1037;
const F_SET_FILE_RW_HINT: c_int = 1038;

fn file_flags(fd: c_int, open: &Open, cmd: c_int, arg: c_int) -> Result<isize, Error> {
    let Some(file) = open.remote() else {
        return Ok(if cmd == libc::F_GETFL { (libc::O_RDONLY | libc::O_DIRECTORY) as isize } else { 0 });
    };
    let before = flags_of(fd, open)?;
    if cmd == libc::F_GETFL {
        // What the open file is for, and what the kernel knows of every one.
        const NOT_THE_FILES: c_int = libc::O_ACCMODE | libc::O_PATH | place::SHARED;
        let kernels = sys!(fcntl, fd, libc::F_GETFL, 0) as c_int & !NOT_THE_FILES;
        return Ok((before.to_linux() | kernels) as isize);
    }
    let settable = OpenFlags::APPEND | OpenFlags::DIRECT | OpenFlags::NOATIME;
    let asked = OpenFlags::from_linux(arg & (libc::O_APPEND | libc::O_DIRECT | libc::O_NOATIME));
    let flags = OpenFlags(before.0 & !settable.0 | asked.0 & settable.0);
    // Who shares the open file, by inheritance or later on, must see them: the kernel keeps them.
    if !state().is_passing_child() && !place::settle_one(open) {
        return Err(Error::local(libc::EMFILE));
    }
    if flags != before {
        tell_flags(file, flags)?;
    }
    let kept = arg & (place::KERNELS | place::SHARED);
    match sys!(fcntl, fd, libc::F_SETFL, kept) {
        r if r < 0 => Err(Error::local(-r as i32)),
        _ => {
            file.set_flags(flags);
            Ok(0)
        }
    }
}

/// The flags of an open file as they are now: another process that shares it may have changed them.
pub(crate) fn flags_of(fd: c_int, open: &Open) -> Result<OpenFlags, Error> {
    let Some(file) = open.remote() else { return Ok(OpenFlags::READ | OpenFlags::DIRECTORY) };
    let known = file.flags();
    if !file.is_shared() || open.unsettled.load(Ordering::Relaxed) || known.has(OpenFlags::PATH) {
        return Ok(known);
    }
    let shared = OpenFlags::from_linux(place::SHARED).without(OpenFlags::READ);
    let look = |before: OpenFlags| {
        let now = sys!(fcntl, fd, libc::F_GETFL, 0);
        let seen = OpenFlags::from_linux(now as c_int & place::SHARED).without(OpenFlags::READ);
        if now < 0 { before } else { before.without(shared) | seen }
    };
    let mut flags = look(known);
    // This process may have a handle of its own; who changes them may still be at it.
    for _ in 0..8 {
        if flags == file.flags() {
            break;
        }
        tell_flags(file, flags)?;
        file.set_flags(flags);
        flags = look(flags);
    }
    Ok(flags)
}

/// The I/O node appends by them, too.
fn tell_flags(file: &File, flags: OpenFlags) -> Result<(), Error> {
    state().client().meta_on(file, |handle| Meta::SetFlags { handle, flags }, |_| Some(()))
}
