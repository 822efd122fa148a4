//! Attributes that are set, and links that are read.

use super::{allow, at, fail, fail_errno, hooks, neg, no_above};
use crate::attr;
use crate::path;
use crate::state::state;
use crate::sys::{self, sys};
use crate::table::{self, Kind, Open};
use crate::user;
use forebay_client::{Answer, Error, ExportId, FsStat, Meta, Path, SetTime, Target};
use std::ffi::{c_char, c_int, c_uint, c_void};

hooks! {
    c"chmod" => chmod, c"fchmod" => fchmod, c"fchmodat" => fchmodat, c"lchmod" => lchmod, c"chown" => chown,
    c"lchown" => lchown, c"fchown" => fchown, c"fchownat" => fchownat, c"utimensat" => utimensat,
    c"futimens" => futimens, c"utime" => utime, c"utimes" => utimes, c"lutimes" => lutimes,
    c"futimes" => futimes, c"futimesat" => futimesat, c"readlink" => readlink, c"readlinkat" => readlinkat,
    c"statfs" => statfs, c"statfs64" => statfs,
    c"fstatfs" => fstatfs, c"fstatfs64" => fstatfs, c"statvfs" => statvfs, c"statvfs64" => statvfs,
    c"fstatvfs" => fstatvfs, c"fstatvfs64" => fstatvfs, c"inotify_add_watch" => inotify_add_watch,
    c"name_to_handle_at" => name_to_handle_at, c"open_by_handle_at" => open_by_handle_at,
}

/// An operation that takes a path or, with an empty one, a descriptor. A null path is one where `by_fd`
/// says so.
fn targeted(
    (dirfd, path): (c_int, *const c_char),
    (flags, by_fd): (c_int, bool),
    local: impl Fn(i32, *const c_char) -> sys::Raw,
    op: impl Fn(Target<'_>) -> Meta<'_>,
) -> c_int {
    const KNOWN: c_int = libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH;
    let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    // SAFETY: the program's own argument to a function that takes a C string.
    let empty = flags & libc::AT_EMPTY_PATH != 0 && unsafe { user::text(path) } == Some(b"");
    if empty && dirfd == libc::AT_FDCWD {
        return targeted((dirfd, c".".as_ptr()), (flags & !libc::AT_EMPTY_PATH, false), local, op);
    }
    if (empty || by_fd && path.is_null()) && table::is_forwarded(dirfd) {
        if flags & !KNOWN != 0 {
            return fail_errno(libc::EINVAL) as c_int;
        }
        let local = |_| -(libc::EIO as sys::Raw);
        let by_handle = |h| op(Target::Handle(h));
        // Without a path it is about an open file, with an empty one about any place.
        return if empty {
            super::size::on_place(dirfd, local, by_handle)
        } else {
            super::size::on_fd(dirfd, local, by_handle)
        } as c_int;
    }
    at(
        dirfd,
        path,
        follow,
        local,
        |client, r| {
            allow(flags, KNOWN)?;
            let target = if follow { Target::Path(r.wire()) } else { Target::Link(r.wire()) };
            client.meta(op(target), |_| Some(0))
        },
        |_| neg(libc::EROFS),
    ) as c_int
}

pub(crate) unsafe extern "C" fn chmod(path: *const c_char, mode: c_uint) -> c_int {
    // SAFETY: the same arguments.
    unsafe { fchmodat(libc::AT_FDCWD, path, mode, 0) }
}

pub(crate) unsafe extern "C" fn lchmod(path: *const c_char, mode: c_uint) -> c_int {
    // SAFETY: the same arguments.
    unsafe { fchmodat(libc::AT_FDCWD, path, mode, libc::AT_SYMLINK_NOFOLLOW) }
}

pub(crate) unsafe extern "C" fn fchmodat(
    dirfd: c_int,
    path: *const c_char,
    mode: c_uint,
    flags: c_int,
) -> c_int {
    targeted(
        (dirfd, path),
        (flags, false),
        |d, p| {
            if flags == 0 {
                return sys!(fchmodat, d, p, mode);
            }
            match sys!(fchmodat2, d, p, mode, flags) {
                r if r == -(libc::ENOSYS as isize) && flags == libc::AT_SYMLINK_NOFOLLOW => {}
                r => return r,
            }
            // As libc: a link's own mode cannot be changed, another file's can.
            // SAFETY: a plain struct of integers.
            let mut s: libc::stat = unsafe { std::mem::zeroed() };
            match sys!(newfstatat, d, p, &raw mut s, libc::AT_SYMLINK_NOFOLLOW) {
                r if r < 0 => r,
                _ if s.st_mode & libc::S_IFMT == libc::S_IFLNK => -(libc::EOPNOTSUPP as isize),
                _ => sys!(fchmodat, d, p, mode),
            }
        },
        |target| Meta::Chmod { target, mode: mode & 0o7777 },
    )
}

pub(crate) unsafe extern "C" fn fchmod(fd: c_int, mode: c_uint) -> c_int {
    super::size::on_fd(
        fd,
        |fd| sys!(fchmod, fd, mode),
        |h| Meta::Chmod { target: Target::Handle(h), mode: mode & 0o7777 },
    ) as c_int
}

pub(crate) unsafe extern "C" fn chown(path: *const c_char, uid: c_uint, gid: c_uint) -> c_int {
    // SAFETY: the same arguments.
    unsafe { fchownat(libc::AT_FDCWD, path, uid, gid, 0) }
}

pub(crate) unsafe extern "C" fn lchown(path: *const c_char, uid: c_uint, gid: c_uint) -> c_int {
    // SAFETY: the same arguments.
    unsafe { fchownat(libc::AT_FDCWD, path, uid, gid, libc::AT_SYMLINK_NOFOLLOW) }
}

pub(crate) unsafe extern "C" fn fchownat(
    dirfd: c_int,
    path: *const c_char,
    uid: c_uint,
    gid: c_uint,
    flags: c_int,
) -> c_int {
    targeted(
        (dirfd, path),
        (flags, false),
        |d, p| sys!(fchownat, d, p, uid, gid, flags),
        |target| Meta::Chown { target, uid, gid },
    )
}

pub(crate) unsafe extern "C" fn fchown(fd: c_int, uid: c_uint, gid: c_uint) -> c_int {
    super::size::on_fd(
        fd,
        |fd| sys!(fchown, fd, uid, gid),
        |h| Meta::Chown { target: Target::Handle(h), uid, gid },
    ) as c_int
}

fn set_time(t: &libc::timespec) -> Result<SetTime, i32> {
    match t.tv_nsec {
        libc::UTIME_NOW => Ok(SetTime::Now),
        libc::UTIME_OMIT => Ok(SetTime::Omit),
        0..=999_999_999 => Ok(SetTime::At(t.tv_sec, t.tv_nsec as u32)),
        _ => Err(libc::EINVAL),
    }
}

/// The two times of `utimensat`; a null pointer means now.
unsafe fn times(t: *const libc::timespec) -> Result<(SetTime, SetTime), i32> {
    if t.is_null() {
        return Ok((SetTime::Now, SetTime::Now));
    }
    // SAFETY: any bytes are numbers.
    let t = unsafe { user::take(t.cast::<[libc::timespec; 2]>()) }?;
    Ok((set_time(&t[0])?, set_time(&t[1])?))
}

/// libc's function, which wants a path.
unsafe extern "C" fn utimensat(
    dirfd: c_int,
    path: *const c_char,
    t: *const libc::timespec,
    flags: c_int,
) -> c_int {
    if path.is_null() {
        return fail_errno(libc::EINVAL) as c_int;
    }
    set_times_at(dirfd, path, t, flags)
}

/// The system call `utimensat`.
pub(crate) fn set_times_at(
    dirfd: c_int,
    path: *const c_char,
    t: *const libc::timespec,
    flags: c_int,
) -> c_int {
    let local = |d, p| sys!(utimensat, d, p, t, flags);
    // SAFETY: the program's own array.
    let (atime, mtime) = match unsafe { times(t) } {
        Ok(x) => x,
        // Whether the file is there comes first.
        Err(libc::EINVAL) => {
            return match targeted((dirfd, path), (flags, true), local, |target| Meta::Stat { target }) {
                0 => fail_errno(libc::EINVAL) as c_int,
                other => other,
            };
        }
        Err(e) => return fail_errno(e) as c_int,
    };
    if (atime, mtime) == (SetTime::Omit, SetTime::Omit) {
        // Linux does not even look whether the file is there.
        return 0;
    }
    targeted((dirfd, path), (flags, true), local, |target| Meta::Utimens { target, atime, mtime })
}

pub(crate) unsafe extern "C" fn futimens(fd: c_int, t: *const libc::timespec) -> c_int {
    if !table::is_forwarded(fd) {
        return sys::ret(sys!(utimensat, fd, 0, t, 0)) as c_int;
    }
    set_times_at(fd, std::ptr::null(), t, 0)
}

/// Two times with microseconds; a null pointer means now. The kernel refuses what is no part of a second.
fn from_micros(t: *const libc::timeval) -> Result<Option<[libc::timespec; 2]>, i32> {
    if t.is_null() {
        return Ok(None);
    }
    // SAFETY: any bytes are numbers.
    let t = unsafe { user::take(t.cast::<[libc::timeval; 2]>()) }?;
    if t.iter().any(|t| !(0..1_000_000).contains(&t.tv_usec)) {
        return Err(libc::EINVAL);
    }
    Ok(Some(t.map(|t| libc::timespec { tv_sec: t.tv_sec, tv_nsec: t.tv_usec * 1000 })))
}

/// `utimensat` with times in another form.
fn set_times(
    dirfd: c_int,
    path: *const c_char,
    times: Result<Option<[libc::timespec; 2]>, i32>,
    flags: c_int,
) -> c_int {
    match times {
        Ok(times) => set_times_at(dirfd, path, ptr(&times), flags),
        Err(e) => fail_errno(e) as c_int,
    }
}

fn ptr(t: &Option<[libc::timespec; 2]>) -> *const libc::timespec {
    t.as_ref().map_or(std::ptr::null(), |t| t.as_ptr())
}

pub(crate) unsafe extern "C" fn utime(path: *const c_char, t: *const libc::utimbuf) -> c_int {
    let whole = |t: libc::utimbuf| [t.actime, t.modtime].map(|s| libc::timespec { tv_sec: s, tv_nsec: 0 });
    // SAFETY: any bytes are numbers.
    let times = if t.is_null() { Ok(None) } else { unsafe { user::take(t) }.map(|t| Some(whole(t))) };
    set_times(libc::AT_FDCWD, path, times, 0)
}

pub(crate) unsafe extern "C" fn utimes(path: *const c_char, t: *const libc::timeval) -> c_int {
    set_times(libc::AT_FDCWD, path, from_micros(t), 0)
}

pub(crate) unsafe extern "C" fn lutimes(path: *const c_char, t: *const libc::timeval) -> c_int {
    set_times(libc::AT_FDCWD, path, from_micros(t), libc::AT_SYMLINK_NOFOLLOW)
}

pub(crate) unsafe extern "C" fn futimes(fd: c_int, t: *const libc::timeval) -> c_int {
    match from_micros(t) {
        // SAFETY: our own array.
        Ok(times) => unsafe { futimens(fd, ptr(&times)) },
        Err(e) => fail_errno(e) as c_int,
    }
}

pub(crate) unsafe extern "C" fn futimesat(
    dirfd: c_int,
    path: *const c_char,
    t: *const libc::timeval,
) -> c_int {
    set_times(dirfd, path, from_micros(t), 0)
}

pub(crate) unsafe extern "C" fn readlink(path: *const c_char, buf: *mut c_char, n: usize) -> isize {
    read_link(libc::AT_FDCWD, path, buf, n)
}

pub(crate) unsafe extern "C" fn readlinkat(
    dirfd: c_int,
    path: *const c_char,
    buf: *mut c_char,
    n: usize,
) -> isize {
    read_link(dirfd, path, buf, n)
}

pub(crate) fn read_link(dirfd: c_int, path: *const c_char, buf: *mut c_char, n: usize) -> isize {
    let give = |text: &[u8]| {
        let len = text.len().min(n);
        if !user::writable(buf, len) {
            return fail_errno(libc::EFAULT);
        }
        // SAFETY: the program's own buffer of `n` bytes.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), buf.cast(), len) };
        len as isize
    };
    if n == 0 {
        return fail_errno(libc::EINVAL);
    }
    // SAFETY: the program's own argument to a function that takes a C string.
    let given = unsafe { user::text(path) }.unwrap_or_default();
    if given.starts_with(b"/proc/") || given.starts_with(b"/dev/") {
        // What a descriptor or the working directory stands for, as the program knows it.
        if let Some((fd, b"")) = path::proc_fd(given)
            && let Some(open) = table::get(fd)
        {
            return give(&path::open_path(&open));
        }
        if path::is_proc_cwd(given)
            && let Some(cwd) = state().cwd.get()
        {
            return give(&cwd.path);
        }
        if given == b"/proc/self/exe"
            && let Some(exe) = sys::env(super::exec::EXE)
        {
            return give(exe);
        }
    }
    if given.is_empty()
        && !path.is_null()
        && let Some(open) = table::get(dirfd)
    {
        return link_of(&open, give);
    }
    at(
        dirfd,
        path,
        false,
        |d, p| sys!(readlinkat, d, p, buf, n),
        |client, r| {
            client.meta(Meta::Readlink { path: r.wire() }, |a| match a {
                Answer::Bytes(b) => Some(give(b)),
                _ => None,
            })
        },
        |_| neg(libc::EINVAL),
    )
}

/// What a link says that is open as a place in the tree.
fn link_of(open: &Open, give: impl Fn(&[u8]) -> isize) -> isize {
    let Some(file) = open.remote().filter(|f| f.mode & libc::S_IFMT == libc::S_IFLNK) else {
        return fail_errno(libc::ENOENT);
    };
    let rel = file.rel();
    let path = Path { export: ExportId(file.export), rel: &rel };
    let client = state().client();
    // It is read by its name, which may be another one's by now.
    let same = super::stat::attr_at(client, Target::Link(path))
        .and_then(|a| if a.ino == file.ino { Ok(()) } else { Err(Error::local(libc::ESTALE)) });
    let read = same.and_then(|()| {
        client.meta(Meta::Readlink { path }, |a| match a {
            Answer::Bytes(b) => Some(give(b)),
            _ => None,
        })
    });
    read.unwrap_or_else(|e| fail(&e, &open.path))
}

fn fs_at(
    path: *const c_char,
    local: impl Fn(*const c_char) -> sys::Raw,
    put: impl Fn(&FsStat) -> Result<(), i32>,
) -> c_int {
    at(
        libc::AT_FDCWD,
        path,
        true,
        |_, p| local(p),
        |client, r| {
            let fs = client.meta(Meta::Statfs { target: Target::Path(r.wire()) }, want_fs)?;
            put(&fs).map_err(Error::local)?;
            Ok(0)
        },
        no_above,
    ) as c_int
}

fn fs_of(fd: c_int, local: impl FnOnce() -> sys::Raw, put: impl Fn(&FsStat) -> Result<(), i32>) -> c_int {
    let put = |fs: &FsStat| put(fs).map_or_else(|e| fail_errno(e) as c_int, |()| 0);
    let Some(open) = table::get(fd) else { return sys::ret(local()) as c_int };
    let Kind::Remote(file) = &open.kind else {
        return put(&FsStat { bsize: 4096, frsize: 4096, namelen: 255, ..FsStat::default() });
    };
    match state().client().meta_on(file, |h| Meta::Statfs { target: Target::Handle(h) }, want_fs) {
        Ok(fs) => put(&fs),
        Err(e) => fail(&e, &open.path) as c_int,
    }
}

fn want_fs(a: Answer<'_>) -> Option<FsStat> {
    match a {
        Answer::Fs(f) => Some(f),
        _ => None,
    }
}

pub(crate) unsafe extern "C" fn statfs(path: *const c_char, buf: *mut libc::statfs64) -> c_int {
    fs_at(path, |p| sys!(statfs, p, buf), |f| user::give(buf, attr::statfs(f)))
}

pub(crate) unsafe extern "C" fn fstatfs(fd: c_int, buf: *mut libc::statfs64) -> c_int {
    fs_of(fd, || sys!(fstatfs, fd, buf), |f| user::give(buf, attr::statfs(f)))
}

/// libc makes `statvfs` from the kernel's `statfs`.
fn vfs(local: impl FnOnce(*mut libc::statfs64) -> sys::Raw, buf: *mut libc::statvfs) -> sys::Raw {
    // SAFETY: a plain struct of integers.
    let mut s: libc::statfs64 = unsafe { std::mem::zeroed() };
    let r = local(&raw mut s);
    if r >= 0 {
        // SAFETY: fsid_t is two integers.
        let fsid = unsafe { std::mem::transmute::<libc::fsid_t, u64>(s.f_fsid) };
        // ST_VALID is the kernel's own mark.
        let fs = FsStat {
            bsize: s.f_bsize as u64,
            frsize: if s.f_frsize != 0 { s.f_frsize as u64 } else { s.f_bsize as u64 },
            blocks: s.f_blocks,
            bfree: s.f_bfree,
            bavail: s.f_bavail,
            files: s.f_files,
            ffree: s.f_ffree,
            fsid,
            namelen: s.f_namelen as u64,
            flags: s.f_flags as u64 & !0x20,
            kind: 0,
        };
        // SAFETY: the program's own buffer.
        unsafe { buf.write(attr::statvfs(&fs)) };
    }
    r
}

pub(crate) unsafe extern "C" fn statvfs(path: *const c_char, buf: *mut libc::statvfs) -> c_int {
    fs_at(path, |p| vfs(|s| sys!(statfs, p, s), buf), |f| user::give(buf, attr::statvfs(f)))
}

pub(crate) unsafe extern "C" fn fstatvfs(fd: c_int, buf: *mut libc::statvfs) -> c_int {
    fs_of(fd, || vfs(|s| sys!(fstatfs, fd, s), buf), |f| user::give(buf, attr::statvfs(f)))
}

pub(crate) unsafe extern "C" fn inotify_add_watch(fd: c_int, path: *const c_char, mask: c_uint) -> c_int {
    at(
        libc::AT_FDCWD,
        path,
        true,
        |_, p| sys!(inotify_add_watch, fd, p, mask),
        // What programs take for "poll instead".
        |_, r| {
            crate::notes::note(
                "inotify",
                &r.full,
                "changes of forwarded files are not announced; the program must poll",
            );
            Err(Error::local(libc::ENOSPC))
        },
        no_above,
    ) as c_int
}

pub(crate) unsafe extern "C" fn name_to_handle_at(
    d: c_int,
    path: *const c_char,
    h: *mut c_void,
    m: *mut c_int,
    flags: c_int,
) -> c_int {
    if flags & libc::AT_EMPTY_PATH != 0 && table::is_forwarded(d) {
        return fail_errno(libc::EOPNOTSUPP) as c_int;
    }
    at(
        d,
        path,
        true,
        |d, p| sys!(name_to_handle_at, d, p, h, m, flags),
        |_, _| Err(Error::local(libc::EOPNOTSUPP)),
        no_above,
    ) as c_int
}

/// No handle was ever given out for a forwarded file.
pub(crate) unsafe extern "C" fn open_by_handle_at(mount: c_int, handle: *mut c_void, flags: c_int) -> c_int {
    if table::is_forwarded(mount) {
        return fail_errno(libc::EOPNOTSUPP) as c_int;
    }
    super::fd::opened_locally(sys!(open_by_handle_at, mount, handle, flags)) as c_int
}
