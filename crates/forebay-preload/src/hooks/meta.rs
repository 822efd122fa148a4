//! Attributes that are set, links that are read, and where the process is.

use super::{at, fail, fail_errno, hooks, neg, no_above};
use crate::attr;
use crate::path::{self, Place};
use crate::state::state;
use crate::sys::{self, sys};
use crate::table::{self, Kind};
use forebay_client::{Answer, Client, Error, FsStat, Meta, SetTime, Target};
use std::ffi::{c_char, c_int, c_uint, c_void};

hooks! {
    c"chmod" => chmod, c"fchmod" => fchmod, c"fchmodat" => fchmodat, c"lchmod" => lchmod, c"chown" => chown,
    c"lchown" => lchown, c"fchown" => fchown, c"fchownat" => fchownat, c"utimensat" => utimensat,
    c"futimens" => futimens, c"utime" => utime, c"utimes" => utimes, c"lutimes" => lutimes,
    c"futimes" => futimes, c"futimesat" => futimesat, c"readlink" => readlink, c"readlinkat" => readlinkat,
    c"chdir" => chdir, c"fchdir" => fchdir, c"getcwd" => getcwd, c"statfs" => statfs, c"statfs64" => statfs,
    c"fstatfs" => fstatfs, c"fstatfs64" => fstatfs, c"statvfs" => statvfs, c"statvfs64" => statvfs,
    c"fstatvfs" => fstatvfs, c"fstatvfs64" => fstatvfs, c"inotify_add_watch" => inotify_add_watch,
    c"name_to_handle_at" => name_to_handle_at,
}

/// An operation that takes a path (`follow` or not) or, with an empty one, a descriptor.
fn targeted(
    dirfd: c_int,
    path: *const c_char,
    follow: bool,
    local: impl Fn(i32, *const c_char) -> sys::Raw,
    op: impl Fn(Target<'_>) -> Meta<'_>,
) -> c_int {
    // SAFETY: the program's own argument to a function that takes a C string.
    let empty = unsafe { sys::bytes(path) }.is_none_or(<[u8]>::is_empty);
    if empty && table::is_forwarded(dirfd) {
        return super::io::on_fd(dirfd, |_| -(libc::EIO as sys::Raw), |h| op(Target::Handle(h))) as c_int;
    }
    at(
        dirfd,
        path,
        follow,
        local,
        |client, r| {
            let target = if follow { Target::Path(r.wire()) } else { Target::Link(r.wire()) };
            client.meta(op(target), |_| Some(0))
        },
        |_| neg(libc::EROFS),
    ) as c_int
}

unsafe extern "C" fn chmod(path: *const c_char, mode: c_uint) -> c_int {
    // SAFETY: the same arguments.
    unsafe { fchmodat(libc::AT_FDCWD, path, mode, 0) }
}

unsafe extern "C" fn lchmod(path: *const c_char, mode: c_uint) -> c_int {
    // SAFETY: the same arguments.
    unsafe { fchmodat(libc::AT_FDCWD, path, mode, libc::AT_SYMLINK_NOFOLLOW) }
}

unsafe extern "C" fn fchmodat(dirfd: c_int, path: *const c_char, mode: c_uint, flags: c_int) -> c_int {
    let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    targeted(
        dirfd,
        path,
        follow,
        |d, p| {
            if follow {
                return sys!(fchmodat, d, p, mode);
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

unsafe extern "C" fn fchmod(fd: c_int, mode: c_uint) -> c_int {
    super::io::on_fd(
        fd,
        |fd| sys!(fchmod, fd, mode),
        |h| Meta::Chmod { target: Target::Handle(h), mode: mode & 0o7777 },
    ) as c_int
}

unsafe extern "C" fn chown(path: *const c_char, uid: c_uint, gid: c_uint) -> c_int {
    // SAFETY: the same arguments.
    unsafe { fchownat(libc::AT_FDCWD, path, uid, gid, 0) }
}

unsafe extern "C" fn lchown(path: *const c_char, uid: c_uint, gid: c_uint) -> c_int {
    // SAFETY: the same arguments.
    unsafe { fchownat(libc::AT_FDCWD, path, uid, gid, libc::AT_SYMLINK_NOFOLLOW) }
}

unsafe extern "C" fn fchownat(
    dirfd: c_int,
    path: *const c_char,
    uid: c_uint,
    gid: c_uint,
    flags: c_int,
) -> c_int {
    targeted(
        dirfd,
        path,
        flags & libc::AT_SYMLINK_NOFOLLOW == 0,
        |d, p| sys!(fchownat, d, p, uid, gid, flags),
        |target| Meta::Chown { target, uid, gid },
    )
}

unsafe extern "C" fn fchown(fd: c_int, uid: c_uint, gid: c_uint) -> c_int {
    super::io::on_fd(
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
    // SAFETY: the program's own array of two.
    let t = unsafe { std::slice::from_raw_parts(t, 2) };
    Ok((set_time(&t[0])?, set_time(&t[1])?))
}

unsafe extern "C" fn utimensat(
    dirfd: c_int,
    path: *const c_char,
    t: *const libc::timespec,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's own array.
    let (atime, mtime) = match unsafe { times(t) } {
        Ok(x) => x,
        Err(e) => return fail_errno(e) as c_int,
    };
    targeted(
        dirfd,
        path,
        flags & libc::AT_SYMLINK_NOFOLLOW == 0,
        |d, p| sys!(utimensat, d, p, t, flags),
        |target| Meta::Utimens { target, atime, mtime },
    )
}

unsafe extern "C" fn futimens(fd: c_int, t: *const libc::timespec) -> c_int {
    if !table::is_forwarded(fd) {
        return sys::ret(sys!(utimensat, fd, 0, t, 0)) as c_int;
    }
    // SAFETY: the same arguments; a null path means the descriptor.
    unsafe { utimensat(fd, std::ptr::null(), t, 0) }
}

fn from_micros(t: *const libc::timeval) -> Option<[libc::timespec; 2]> {
    if t.is_null() {
        return None;
    }
    // SAFETY: the program's own array of two.
    let t = unsafe { std::slice::from_raw_parts(t, 2) };
    Some([0, 1].map(|i| libc::timespec { tv_sec: t[i].tv_sec, tv_nsec: t[i].tv_usec * 1000 }))
}

fn ptr(t: &Option<[libc::timespec; 2]>) -> *const libc::timespec {
    t.as_ref().map_or(std::ptr::null(), |t| t.as_ptr())
}

unsafe extern "C" fn utime(path: *const c_char, t: *const libc::utimbuf) -> c_int {
    let times = (!t.is_null()).then(|| {
        // SAFETY: the program's own struct.
        let t = unsafe { &*t };
        [t.actime, t.modtime].map(|s| libc::timespec { tv_sec: s, tv_nsec: 0 })
    });
    // SAFETY: our own array.
    unsafe { utimensat(libc::AT_FDCWD, path, ptr(&times), 0) }
}

unsafe extern "C" fn utimes(path: *const c_char, t: *const libc::timeval) -> c_int {
    // SAFETY: our own array.
    unsafe { utimensat(libc::AT_FDCWD, path, ptr(&from_micros(t)), 0) }
}

unsafe extern "C" fn lutimes(path: *const c_char, t: *const libc::timeval) -> c_int {
    // SAFETY: our own array.
    unsafe { utimensat(libc::AT_FDCWD, path, ptr(&from_micros(t)), libc::AT_SYMLINK_NOFOLLOW) }
}

unsafe extern "C" fn futimes(fd: c_int, t: *const libc::timeval) -> c_int {
    // SAFETY: our own array.
    unsafe { futimens(fd, ptr(&from_micros(t))) }
}

unsafe extern "C" fn futimesat(dirfd: c_int, path: *const c_char, t: *const libc::timeval) -> c_int {
    // SAFETY: our own array.
    unsafe { utimensat(dirfd, path, ptr(&from_micros(t)), 0) }
}

unsafe extern "C" fn readlink(path: *const c_char, buf: *mut c_char, n: usize) -> isize {
    read_link(libc::AT_FDCWD, path, buf, n)
}

unsafe extern "C" fn readlinkat(dirfd: c_int, path: *const c_char, buf: *mut c_char, n: usize) -> isize {
    read_link(dirfd, path, buf, n)
}

pub(crate) fn read_link(dirfd: c_int, path: *const c_char, buf: *mut c_char, n: usize) -> isize {
    let give = |text: &[u8]| {
        let len = text.len().min(n);
        // SAFETY: the program's own buffer of `n` bytes.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), buf.cast(), len) };
        len as isize
    };
    if n == 0 {
        return fail_errno(libc::EINVAL);
    }
    // SAFETY: the program's own argument to a function that takes a C string.
    let given = unsafe { sys::bytes(path) }.unwrap_or_default();
    if given.starts_with(b"/proc/") || given.starts_with(b"/dev/") {
        // What a descriptor or the working directory stands for, as the program knows it.
        if let Some((fd, b"")) = path::proc_fd(given)
            && let Some(open) = table::get(fd)
        {
            return give(&path::open_path(&open));
        }
        if path::is_proc_cwd(given) && state().cwd().shadowed {
            return give(&state().cwd().path);
        }
        if given == b"/proc/self/exe"
            && let Some(exe) = sys::env(super::exec::EXE)
        {
            return give(exe);
        }
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

unsafe extern "C" fn chdir(path: *const c_char) -> c_int {
    // SAFETY: the program's own argument to a function that takes a C string.
    let Some(given) = (unsafe { sys::bytes(path) }) else { return fail_errno(libc::EFAULT) as c_int };
    let mut place = path::place(libc::AT_FDCWD, given);
    for _ in 0..40 {
        match place {
            Place::Local => {
                let r = sys!(chdir, path);
                if r == -(libc::ENOENT as isize)
                    && let Some(next) = path::through_link(libc::AT_FDCWD, given, true)
                {
                    place = next;
                    continue;
                }
                return moved(r);
            }
            Place::LocalAt(p) => return moved(sys!(chdir, sys::cstring(&p).as_ptr())),
            Place::Above(p) => {
                let r = sys!(chdir, sys::cstring(&p).as_ptr());
                return if r == -(libc::ENOENT as isize) { enter_shadow(&p) } else { moved(r) };
            }
            Place::Remote(r) => match physical(state().client(), &r) {
                Ok(dir) => return enter_shadow(&dir),
                Err(Error::Escapes) => match path::follow_out(&r, true) {
                    Ok(p) => place = path::place_of_absolute(&p),
                    Err(e) => return fail(&e, &r.full) as c_int,
                },
                Err(e) => return fail(&e, &r.full) as c_int,
            },
        }
    }
    fail_errno(libc::ELOOP) as c_int
}

/// The directory's path without links in it, as the kernel would remember it.
fn physical(client: &'static Client, r: &path::Remote) -> Result<Vec<u8>, Error> {
    let a = super::stat::attr_at(client, Target::Path(r.wire()))?;
    if a.mode & libc::S_IFMT != libc::S_IFDIR {
        return Err(Error::local(libc::ENOTDIR));
    }
    client.meta(Meta::Access { path: r.wire(), mode: libc::X_OK as u32, follow: true }, |_| Some(()))?;
    let dir = &state().exports[r.export].dir;
    let mut done: Vec<u8> = Vec::new();
    let mut todo: Vec<Vec<u8>> = r.rel.split(|&b| b == b'/').rev().map(<[u8]>::to_vec).collect();
    let mut links = 0;
    while let Some(part) = todo.pop() {
        match part.as_slice() {
            b"" | b"." => continue,
            b".." => {
                if done.is_empty() {
                    return Err(Error::Escapes);
                }
                let cut = done.iter().rposition(|&b| b == b'/').unwrap_or(0);
                done.truncate(cut);
                continue;
            }
            _ => {}
        }
        let parent = done.len();
        if parent > 0 {
            done.push(b'/');
        }
        done.extend_from_slice(&part);
        let here = forebay_client::Path { export: forebay_client::ExportId(r.export as u16), rel: &done };
        match client.meta(Meta::Readlink { path: here }, |a| match a {
            Answer::Bytes(b) => Some(b.to_vec()),
            _ => None,
        }) {
            Ok(target) => {
                links += 1;
                if links > 40 || target.first() == Some(&b'/') {
                    return Err(Error::Escapes);
                }
                done.truncate(parent);
                todo.extend(target.split(|&b| b == b'/').rev().map(<[u8]>::to_vec));
            }
            Err(e) if e.errno() == libc::EINVAL => {}
            Err(e) => return Err(e),
        }
    }
    Ok(if done.is_empty() { dir.clone() } else { [dir, &b"/"[..], &done].concat() })
}

fn moved(r: sys::Raw) -> c_int {
    if r >= 0 && !state().is_passing_child() {
        state().refresh_cwd();
    }
    sys::ret(r) as c_int
}

/// Makes the stand-in for `dir` the kernel's working directory, so that children inherit it.
fn enter_shadow(dir: &[u8]) -> c_int {
    let stand_in = [&state().shadow[..], dir].concat();
    sys::mkdirs(&stand_in);
    moved(sys!(chdir, sys::cstring(&stand_in).as_ptr()))
}

unsafe extern "C" fn fchdir(fd: c_int) -> c_int {
    let Some(open) = table::get(fd) else { return moved(sys!(fchdir, fd)) };
    if open.remote().is_some_and(|f| !f.is_dir()) {
        return fail_errno(libc::ENOTDIR) as c_int;
    }
    enter_shadow(&path::open_path(&open))
}

unsafe extern "C" fn getcwd(buf: *mut c_char, n: usize) -> *mut c_char {
    let dir = match sys::getcwd() {
        Some(d) => d,
        None => {
            fail_errno(libc::ENOENT);
            return std::ptr::null_mut();
        }
    };
    let seen: &[u8] = match dir.strip_prefix(state().shadow.as_slice()) {
        Some(b"") => b"/",
        Some(rest) if rest[0] == b'/' => rest,
        _ => &dir,
    };
    let need = seen.len() + 1;
    let (buf, n) = if buf.is_null() {
        let n = if n == 0 { need } else { n };
        // SAFETY: the program frees it, as with libc's own.
        (unsafe { libc::malloc(n.max(need)) }.cast::<c_char>(), n)
    } else {
        (buf, n)
    };
    if buf.is_null() || need > n {
        fail_errno(if n == 0 { libc::EINVAL } else { libc::ERANGE });
        return std::ptr::null_mut();
    }
    // SAFETY: `n` bytes, checked above.
    unsafe {
        std::ptr::copy_nonoverlapping(seen.as_ptr().cast(), buf, seen.len());
        *buf.add(seen.len()) = 0;
    }
    buf
}

fn fs_at(path: *const c_char, local: impl Fn(*const c_char) -> sys::Raw, put: impl Fn(&FsStat)) -> c_int {
    at(
        libc::AT_FDCWD,
        path,
        true,
        |_, p| local(p),
        |client, r| {
            let fs = client.meta(Meta::Statfs { target: Target::Path(r.wire()) }, want_fs)?;
            put(&fs);
            Ok(0)
        },
        no_above,
    ) as c_int
}

fn fs_of(fd: c_int, local: impl FnOnce() -> sys::Raw, put: impl Fn(&FsStat)) -> c_int {
    let Some(open) = table::get(fd) else { return sys::ret(local()) as c_int };
    let Kind::Remote(file) = &open.kind else {
        put(&FsStat { bsize: 4096, frsize: 4096, namelen: 255, ..FsStat::default() });
        return 0;
    };
    match state().client().meta_on(file, |h| Meta::Statfs { target: Target::Handle(h) }, want_fs) {
        Ok(fs) => {
            put(&fs);
            0
        }
        Err(e) => fail(&e, &open.path) as c_int,
    }
}

fn want_fs(a: Answer<'_>) -> Option<FsStat> {
    match a {
        Answer::Fs(f) => Some(f),
        _ => None,
    }
}

unsafe extern "C" fn statfs(path: *const c_char, buf: *mut libc::statfs64) -> c_int {
    // SAFETY: the program's own buffer.
    fs_at(path, |p| sys!(statfs, p, buf), |f| unsafe { buf.write(attr::statfs(f)) })
}

unsafe extern "C" fn fstatfs(fd: c_int, buf: *mut libc::statfs64) -> c_int {
    // SAFETY: the program's own buffer.
    fs_of(fd, || sys!(fstatfs, fd, buf), |f| unsafe { buf.write(attr::statfs(f)) })
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

unsafe extern "C" fn statvfs(path: *const c_char, buf: *mut libc::statvfs) -> c_int {
    // SAFETY: the program's own buffer.
    fs_at(path, |p| vfs(|s| sys!(statfs, p, s), buf), |f| unsafe { buf.write(attr::statvfs(f)) })
}

unsafe extern "C" fn fstatvfs(fd: c_int, buf: *mut libc::statvfs) -> c_int {
    // SAFETY: the program's own buffer.
    fs_of(fd, || vfs(|s| sys!(fstatfs, fd, s), buf), |f| unsafe { buf.write(attr::statvfs(f)) })
}

unsafe extern "C" fn inotify_add_watch(fd: c_int, path: *const c_char, mask: c_uint) -> c_int {
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

unsafe extern "C" fn name_to_handle_at(
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
