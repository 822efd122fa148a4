//! Names: making, removing, renaming, linking.

use super::{allow, at, fail, fail_errno, hooks, neg, no_above};
use crate::cwd;
use crate::path::{self, Remote, Resolved};
use crate::state::state;
use crate::sys::{self, sys};
use crate::table;
use forebay_client::{Client, Error, Meta, Path, Target};
use std::ffi::{c_char, c_int, c_uint};
use std::sync::atomic::Ordering;

hooks! {
    c"mkdir" => mkdir, c"mkdirat" => mkdirat, c"rmdir" => rmdir, c"unlink" => unlink, c"unlinkat" => unlinkat,
    c"rename" => rename, c"renameat" => renameat, c"renameat2" => renameat2, c"link" => link,
    c"linkat" => linkat, c"symlink" => symlink, c"symlinkat" => symlinkat, c"mknod" => mknod,
    c"mknodat" => mknodat, c"mkfifo" => mkfifo, c"mkfifoat" => mkfifoat, c"__xmknod" => xmknod,
}

pub(crate) unsafe extern "C" fn mkdir(path: *const c_char, mode: c_uint) -> c_int {
    make_dir(libc::AT_FDCWD, path, mode)
}

pub(crate) unsafe extern "C" fn mkdirat(dirfd: c_int, path: *const c_char, mode: c_uint) -> c_int {
    make_dir(dirfd, path, mode)
}

pub(crate) fn make_dir(dirfd: c_int, path: *const c_char, mode: c_uint) -> c_int {
    // A directory above a forwarded one counts as there, even where this machine has none.
    // SAFETY: the program's own argument to a function that takes a C string.
    if let Some(p) = unsafe { crate::user::text(path) }
        && let Resolved::Above(_) = path::place(dirfd, p)
    {
        return fail_errno(libc::EEXIST) as c_int;
    }
    at(
        dirfd,
        path,
        false,
        |d, p| sys!(mkdirat, d, p, mode),
        |client, r| client.meta(Meta::Mkdir { path: r.wire(), mode: state().making(mode) }, |_| Some(0)),
        |_| neg(libc::EEXIST),
    ) as c_int
}

pub(crate) unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    remove_at(libc::AT_FDCWD, path, libc::AT_REMOVEDIR)
}

pub(crate) unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    remove_at(libc::AT_FDCWD, path, 0)
}

pub(crate) unsafe extern "C" fn unlinkat(dirfd: c_int, path: *const c_char, flags: c_int) -> c_int {
    remove_at(dirfd, path, flags)
}

pub(crate) fn remove_at(dirfd: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the program's own argument to a function that takes a C string.
    let given = unsafe { crate::user::text(path) }.unwrap_or_default();
    let last = last_name(given);
    at(
        dirfd,
        path,
        false,
        |d, p| sys!(unlinkat, d, p, flags),
        |client, r| {
            allow(flags, libc::AT_REMOVEDIR)?;
            if matches!(last, b"." | b"..") {
                parent_is_there(client, r)?;
            }
            match last {
                b"." if flags != 0 => return Err(Error::local(libc::EINVAL)),
                b".." if flags != 0 => return Err(Error::local(libc::ENOTEMPTY)),
                b"." | b".." => return Err(Error::local(libc::EISDIR)),
                _ => {}
            }
            if r.rel.is_empty() {
                return Err(Error::local(libc::EBUSY));
            }
            let op = if flags & libc::AT_REMOVEDIR != 0 {
                Meta::Rmdir { path: r.wire() }
            } else {
                Meta::Unlink { path: r.wire() }
            };
            client.meta(op, |_| Some(0))?;
            if flags & libc::AT_REMOVEDIR != 0 {
                gone(r);
                cwd::removed(&r.full);
            }
            Ok(0)
        },
        |_| neg(libc::EBUSY),
    ) as c_int
}

/// Whether the directory of a path's last name is there, which comes before what is said of that name.
fn parent_is_there(client: &Client, r: &Remote) -> Result<(), Error> {
    let rel = r.rel.strip_suffix(b"/").unwrap_or(&r.rel);
    let end = rel.iter().rposition(|&b| b == b'/').map_or(0, |i| i + 1);
    let parent = Path { export: r.wire().export, rel: &rel[..end] };
    super::stat::attr_at(client, Target::Path(parent)).map(|_| ())
}

/// The last name of a path, `.` and `..` too; slashes behind it do not count.
fn last_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&b| b == b'/').find(|p| !p.is_empty()).unwrap_or_default()
}

pub(crate) unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    rename_at(libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0)
}

pub(crate) unsafe extern "C" fn renameat(
    fd: c_int,
    from: *const c_char,
    td: c_int,
    to: *const c_char,
) -> c_int {
    rename_at(fd, from, td, to, 0)
}

pub(crate) unsafe extern "C" fn renameat2(
    fd: c_int,
    from: *const c_char,
    td: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    rename_at(fd, from, td, to, flags)
}

/// Both names, resolved until neither leaves its export.
enum Pair {
    Local(Vec<u8>, Vec<u8>),
    Remote(Remote, Remote),
    /// One of each; that of this machine.
    Mixed(Vec<u8>),
}

/// Why a name cannot be given between a forwarded directory and `local`, a name of this machine: two file
/// systems, if the directory of the latter is there.
fn between(local: &[u8]) -> i32 {
    let trimmed = local.iter().rposition(|&b| b != b'/').map_or(local, |i| &local[..=i]);
    let parent = trimmed.iter().rposition(|&b| b == b'/').map_or(&b"."[..], |i| &trimmed[..=i]);
    match sys!(faccessat, libc::AT_FDCWD, sys::cstring(parent).as_ptr(), libc::F_OK) {
        r if r < 0 => -r as i32,
        _ => libc::EXDEV,
    }
}

/// Where two names lead. `attempt` is the forwarded operation; it is tried again after a link that
/// leads out of the export was followed.
fn pair(
    (fd, from): (c_int, *const c_char),
    (td, to): (c_int, *const c_char),
    follow_from: bool,
    raw: impl Fn(c_int, *const c_char, c_int, *const c_char) -> sys::Raw,
    remote: impl Fn(&Remote, &Remote) -> Result<isize, Error>,
) -> isize {
    // SAFETY: the program's own arguments to a function that takes C strings.
    let (a, b) = unsafe { (crate::user::text(from), crate::user::text(to)) };
    let (Some(a), Some(b)) = (a, b) else { return sys::ret(raw(fd, from, td, to)) };
    if a.is_empty() || b.is_empty() {
        // No name; or a descriptor of this machine.
        return sys::ret(raw(fd, from, td, to));
    }
    let (mut pa, mut pb) = (path::place(fd, a), path::place(td, b));
    if matches!((&pa, &pb), (Resolved::Local, Resolved::Local)) {
        let r = raw(fd, from, td, to);
        if r != -(libc::ENOENT as sys::Raw) {
            return sys::ret(r);
        }
        let (la, lb) = (path::through_link(fd, a, follow_from), path::through_link(td, b, false));
        if la.is_none() && lb.is_none() {
            return sys::ret(r);
        }
        (pa, pb) = (la.unwrap_or(pa), lb.unwrap_or(pb));
    }
    let full = |place: Resolved, dirfd: c_int, given: &[u8]| -> Result<Result<Remote, Vec<u8>>, i32> {
        Ok(match place {
            Resolved::Remote(r) => Ok(r),
            Resolved::LocalAt(p) => Err(p),
            Resolved::Local if given.first() == Some(&b'/') => Err(given.to_vec()),
            Resolved::Local if table::is_forwarded(dirfd) => return Err(libc::ENOTDIR),
            Resolved::Local if dirfd == libc::AT_FDCWD => {
                Err(path::join(&state().cwd.get().ok_or(libc::ENOENT)?.path, given))
            }
            Resolved::Local => {
                let dir = sys::readlink(format!("/proc/self/fd/{dirfd}").as_bytes()).ok_or(libc::EBADF)?;
                Err(path::join(&dir, given))
            }
            Resolved::Above(_) => return Err(libc::EBUSY),
        })
    };
    let (mut ra, mut rb) = match (full(pa, fd, a), full(pb, td, b)) {
        (Ok(x), Ok(y)) => (x, y),
        (Err(e), _) | (_, Err(e)) => return fail_errno(e),
    };
    for _ in 0..40 {
        let now = match (ra, rb) {
            (Ok(x), Ok(y)) => Pair::Remote(x, y),
            (Err(x), Err(y)) => Pair::Local(x, y),
            (Err(p), Ok(_)) | (Ok(_), Err(p)) => Pair::Mixed(p),
        };
        match now {
            Pair::Mixed(local) => return fail_errno(between(&local)),
            Pair::Local(x, y) => {
                let (x, y) = (sys::cstring(&x), sys::cstring(&y));
                return sys::ret(raw(libc::AT_FDCWD, x.as_ptr().cast(), libc::AT_FDCWD, y.as_ptr().cast()));
            }
            Pair::Remote(x, y) if x.direct().is_some() && y.direct().is_some() => {
                (ra, rb) = (x.direct().map_or(Ok(x), Err), y.direct().map_or(Ok(y), Err));
            }
            Pair::Remote(x, y) => match path::unshadowed(&x, follow_from)
                .and_then(|()| path::unshadowed(&y, false))
                .and_then(|()| remote(&x, &y))
            {
                Ok(v) => return v,
                Err(Error::Escapes) => {
                    // Either may be the one: follow whichever has a link that leads out.
                    let out = |r: &Remote, follow| {
                        path::follow_out(r, follow).ok().map(|p| path::place_of_absolute(&p))
                    };
                    let step = |r: Remote, follow: bool| match out(&r, follow) {
                        Some(Resolved::Remote(n)) => (Ok(n), true),
                        Some(Resolved::LocalAt(p) | Resolved::Above(p)) => (Err(p), true),
                        _ => (Ok(r), false),
                    };
                    let (na, moved_a) = step(x, follow_from);
                    let (nb, moved_b) = step(y, false);
                    if !moved_a && !moved_b {
                        return fail_errno(libc::EXDEV);
                    }
                    (ra, rb) = (na, nb);
                }
                Err(e) => {
                    if matches!(e, Error::NoNode { .. })
                        && state().fallback_direct()
                        && let (Some(a), Some(b)) = (x.local(), y.local())
                    {
                        crate::notes::note("direct", &x.full, &e.to_string());
                        (ra, rb) = (Err(a), Err(b));
                        continue;
                    }
                    return fail(&e, &x.full);
                }
            },
        }
    }
    fail_errno(libc::ELOOP)
}

pub(crate) fn rename_at(
    fd: c_int,
    from: *const c_char,
    td: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    let dots = [from, to].map(|p| {
        // SAFETY: the program's own arguments to a function that takes C strings.
        matches!(last_name(unsafe { crate::user::text(p) }.unwrap_or_default()), b"." | b"..")
    });
    pair(
        (fd, from),
        (td, to),
        false,
        |fd, from, td, to| sys!(renameat2, fd, from, td, to, flags),
        |a, b| {
            const NOREPLACE: c_int = libc::RENAME_NOREPLACE as c_int;
            const EXCHANGE: c_int = libc::RENAME_EXCHANGE as c_int;
            const WHITEOUT: c_int = libc::RENAME_WHITEOUT as c_int;
            let asked = flags as c_int;
            allow(asked, NOREPLACE | EXCHANGE | WHITEOUT)?;
            if asked & EXCHANGE != 0 && asked & (NOREPLACE | WHITEOUT) != 0 {
                return Err(Error::local(libc::EINVAL));
            }
            if dots[0] || dots[1] || a.rel.is_empty() || b.rel.is_empty() {
                parent_is_there(state().client(), a)?;
                parent_is_there(state().client(), b)?;
                let taken = asked & NOREPLACE != 0 && !dots[0] && !a.rel.is_empty();
                return Err(Error::local(if taken { libc::EEXIST } else { libc::EBUSY }));
            }
            if a.export != b.export {
                return Err(Error::local(libc::EXDEV));
            }
            state().client().meta(Meta::Rename { from: a.wire(), to: b.wire(), flags }, |_| Some(0))?;
            if asked & EXCHANGE == 0 {
                gone(b);
            }
            renamed(a, b, flags);
            cwd::renamed(&a.full, &b.full, flags);
            Ok(0)
        },
    ) as c_int
}

/// The directory with that name is no more: who has it open does not come to another one by its name.
fn gone(r: &Remote) {
    let trim = |p: &[u8]| p.strip_suffix(b"/").unwrap_or(p).to_vec();
    for (_, open) in table::all() {
        let Some(file) = open.remote().filter(|f| f.is_dir() && usize::from(f.export) == r.export) else {
            continue;
        };
        // By another spelling of its name it may have been renamed to itself.
        if trim(&file.rel()) == trim(&r.rel) && super::stat::attr_of(file).is_ok_and(|a| a.nlink == 0) {
            open.gone.store(true, Ordering::Relaxed);
        }
    }
}

/// Open files below the old name are to be found under the new one should they move.
fn renamed(a: &Remote, b: &Remote, flags: c_uint) {
    let trim = |p: &[u8]| p.strip_suffix(b"/").unwrap_or(p).to_vec();
    let (old, new) = (trim(&a.rel), trim(&b.rel));
    for (_, open) in table::all() {
        let Some(file) = open.remote() else { continue };
        if usize::from(file.export) != a.export {
            continue;
        }
        let moved = |from: &[u8], to: &[u8]| {
            path::below(&file.rel(), from)
                .map(|rest| if rest.is_empty() { to.to_vec() } else { [to, b"/", rest].concat() })
        };
        if let Some(rel) = moved(&old, &new) {
            file.set_rel(rel);
        } else if flags & libc::RENAME_EXCHANGE != 0
            && let Some(rel) = moved(&new, &old)
        {
            file.set_rel(rel);
        }
    }
}

pub(crate) unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    link_at(libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0)
}

pub(crate) unsafe extern "C" fn linkat(
    fd: c_int,
    from: *const c_char,
    td: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    link_at(fd, from, td, to, flags)
}

/// Whether a path is empty.
fn unnamed(path: *const c_char) -> bool {
    // SAFETY: the program's own argument to a function that takes a C string.
    unsafe { crate::user::text(path) }.is_some_and(<[u8]>::is_empty)
}

pub(crate) fn link_at(fd: c_int, from: *const c_char, td: c_int, to: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the program's own argument to a function that takes a C string.
    let source = unsafe { crate::user::text(from) }.unwrap_or_default();
    // An unnamed file (O_TMPFILE) is given a name by its descriptor, in one of two ways.
    let by_fd = if source.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
        table::get(fd)
    } else {
        let named = path::proc_fd(source).filter(|(_, rest)| rest.is_empty());
        let open = named.and_then(|(n, _)| table::get(n));
        if open.is_some() && flags & libc::AT_SYMLINK_FOLLOW == 0 {
            // The link of that name is on another file system.
            return fail_errno(libc::EXDEV) as c_int;
        }
        open
    };
    if let Some(open) = by_fd
        && let Some(file) = open.remote()
    {
        let nowhere = [libc::EXDEV, libc::ENOENT][usize::from(unnamed(to))];
        return at(
            td,
            to,
            false,
            |_, _| -(nowhere as isize),
            |client, r| {
                client.meta_on(
                    file,
                    |h| Meta::Link { from: Target::Handle(h), to: r.wire() },
                    |_| Some(()),
                )?;
                file.set_rel(r.rel.clone());
                Ok(0)
            },
            no_above,
        ) as c_int;
    }
    let follow = flags & libc::AT_SYMLINK_FOLLOW != 0;
    pair(
        (fd, from),
        (td, to),
        follow,
        |fd, from, td, to| sys!(linkat, fd, from, td, to, flags),
        |a, b| {
            allow(flags, libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH)?;
            if a.export != b.export {
                return Err(Error::local(libc::EXDEV));
            }
            let from = if follow { Target::Path(a.wire()) } else { Target::Link(a.wire()) };
            state().client().meta(Meta::Link { from, to: b.wire() }, |_| Some(0))
        },
    ) as c_int
}

pub(crate) unsafe extern "C" fn symlink(target: *const c_char, path: *const c_char) -> c_int {
    symlink_at(target, libc::AT_FDCWD, path)
}

pub(crate) unsafe extern "C" fn symlinkat(target: *const c_char, dirfd: c_int, path: *const c_char) -> c_int {
    symlink_at(target, dirfd, path)
}

pub(crate) fn symlink_at(target: *const c_char, dirfd: c_int, path: *const c_char) -> c_int {
    // SAFETY: the program's own argument to a function that takes a C string.
    let Some(text) = (unsafe { crate::user::text(target) }) else {
        return sys::ret(sys!(symlinkat, target, dirfd, path)) as c_int;
    };
    at(
        dirfd,
        path,
        false,
        |d, p| sys!(symlinkat, target, d, p),
        |client, r| {
            if text.is_empty() {
                return Err(Error::local(libc::ENOENT));
            }
            client.meta(Meta::Symlink { target: text, path: r.wire() }, |_| Some(0))
        },
        |_| neg(libc::EEXIST),
    ) as c_int
}

pub(crate) unsafe extern "C" fn mknod(path: *const c_char, mode: c_uint, dev: u64) -> c_int {
    make_node(libc::AT_FDCWD, path, mode, dev)
}

pub(crate) unsafe extern "C" fn mknodat(dirfd: c_int, path: *const c_char, mode: c_uint, dev: u64) -> c_int {
    make_node(dirfd, path, mode, dev)
}

pub(crate) unsafe extern "C" fn xmknod(
    _: c_int,
    path: *const c_char,
    mode: c_uint,
    dev: *const u64,
) -> c_int {
    // SAFETY: the old interface passes a pointer to the device number.
    make_node(libc::AT_FDCWD, path, mode, unsafe { *dev })
}

pub(crate) unsafe extern "C" fn mkfifo(path: *const c_char, mode: c_uint) -> c_int {
    make_node(libc::AT_FDCWD, path, mode | libc::S_IFIFO, 0)
}

pub(crate) unsafe extern "C" fn mkfifoat(dirfd: c_int, path: *const c_char, mode: c_uint) -> c_int {
    make_node(dirfd, path, mode | libc::S_IFIFO, 0)
}

pub(crate) fn make_node(dirfd: c_int, path: *const c_char, mode: c_uint, dev: u64) -> c_int {
    match mode & libc::S_IFMT {
        0 | libc::S_IFREG | libc::S_IFCHR | libc::S_IFBLK | libc::S_IFIFO | libc::S_IFSOCK => {}
        libc::S_IFDIR => return fail_errno(libc::EPERM) as c_int,
        _ => return fail_errno(libc::EINVAL) as c_int,
    }
    at(
        dirfd,
        path,
        false,
        |d, p| sys!(mknodat, d, p, mode, dev),
        |client, r| {
            let mode = mode & libc::S_IFMT | state().making(mode);
            client.meta(Meta::Mknod { path: r.wire(), mode, dev }, |_| Some(0))
        },
        |_| neg(libc::EEXIST),
    ) as c_int
}
