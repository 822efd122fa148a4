//! Where the process is: its working directory and its root.

use super::{at, fail, fail_errno, hooks, no_above};
use crate::cwd;
use crate::notes::{self, Note};
use crate::path::{self, Resolved};
use crate::state::state;
use crate::sys::{self, sys};
use crate::table::{self, Kind};
use crate::user;
use forebay_client::{Answer, Client, Error, Meta, Target};
use std::ffi::{c_char, c_int};

hooks! {
    c"chdir" => chdir, c"fchdir" => fchdir, c"getcwd" => getcwd, c"chroot" => chroot,
}

pub(crate) unsafe extern "C" fn chdir(path: *const c_char) -> c_int {
    // SAFETY: the program's own argument to a function that takes a C string.
    let Some(given) = (unsafe { crate::user::text(path) }) else { return moved(sys!(chdir, path)) };
    let mut place = path::place(libc::AT_FDCWD, given);
    for _ in 0..40 {
        match place {
            Resolved::Local => {
                let r = sys!(chdir, path);
                if r == -(libc::ENOENT as isize)
                    && let Some(next) = path::through_link(libc::AT_FDCWD, given, true)
                {
                    place = next;
                    continue;
                }
                if r >= 0 && given.first() != Some(&b'/') && !state().is_passing_child() {
                    // From a directory that was removed: by the same way as before.
                    state().cwd.moved_on();
                    return went(r);
                }
                return moved(r);
            }
            Resolved::LocalAt(p) => return moved(sys!(chdir, sys::cstring(&p).as_ptr())),
            Resolved::Above(p) => {
                let r = sys!(chdir, sys::cstring(&p).as_ptr());
                return if r == -(libc::ENOENT as isize) { went(cwd::enter_stand_in(&p)) } else { moved(r) };
            }
            Resolved::Remote(r) => {
                match path::unshadowed(&r, true).and_then(|()| physical(state().client(), &r)) {
                    Ok((dir, ino)) => return went(cwd::enter(&dir, r.export, ino)),
                    Err(Error::Escapes) => match path::follow_out(&r, true) {
                        Ok(p) => place = path::place_of_absolute(&p),
                        Err(e) => return fail(&e, &r.full) as c_int,
                    },
                    Err(e) => return fail(&e, &r.full) as c_int,
                }
            }
        }
    }
    fail_errno(libc::ELOOP) as c_int
}

/// The directory's path without links in it, as the kernel would remember it, and its inode number.
fn physical(client: &'static Client, r: &path::Remote) -> Result<(Vec<u8>, u64), Error> {
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
    Ok((path::under(dir, &done), a.ino))
}

/// A change of directory that the kernel made.
fn moved(r: sys::Raw) -> c_int {
    if r >= 0 && !state().is_passing_child() {
        state().cwd.moved(None);
    }
    went(r)
}

fn went(r: sys::Raw) -> c_int {
    sys::ret(r) as c_int
}

pub(crate) unsafe extern "C" fn fchdir(fd: c_int) -> c_int {
    let Some(open) = table::get(fd) else { return moved(sys!(fchdir, fd)) };
    match &open.kind {
        Kind::Remote(f) if !f.is_dir() => fail_errno(libc::ENOTDIR) as c_int,
        Kind::Remote(f) => match super::stat::attr_of(f) {
            Ok(a) if a.nlink == 0 => went(cwd::enter_removed(&path::open_path(&open))),
            Ok(_) => went(cwd::enter(&path::open_path(&open), usize::from(f.export), f.ino)),
            Err(e) => fail(&e, &open.path) as c_int,
        },
        Kind::Above(p) | Kind::LocalAbove(p) => went(cwd::enter_stand_in(p)),
    }
}

unsafe extern "C" fn getcwd(buf: *mut c_char, n: usize) -> *mut c_char {
    let none = |errno: i32| {
        fail_errno(errno);
        std::ptr::null_mut()
    };
    let Some(cwd) = state().cwd.get() else { return none(libc::ENOENT) };
    let seen = &cwd.path;
    let need = seen.len() + 1;
    if n == 0 && !buf.is_null() {
        return none(libc::EINVAL);
    }
    if n != 0 && need > n {
        return none(libc::ERANGE);
    }
    let buf = if buf.is_null() {
        // SAFETY: the program frees it, as with libc's own.
        unsafe { libc::malloc(if n == 0 { need } else { n }) }.cast::<c_char>()
    } else {
        buf
    };
    if buf.is_null() {
        return none(libc::ENOMEM);
    }
    if !user::writable(buf, need) {
        return none(libc::EFAULT);
    }
    // SAFETY: `need` bytes, seen to be writable.
    unsafe {
        std::ptr::copy_nonoverlapping(seen.as_ptr().cast(), buf, seen.len());
        *buf.add(seen.len()) = 0;
    }
    buf
}

/// The system call of that name, which returns a length.
pub(crate) fn getcwd_call(buf: *mut c_char, n: usize) -> isize {
    let Some(cwd) = state().cwd.get() else { return sys::ret(sys!(getcwd, buf, n)) };
    let need = cwd.path.len() + 1;
    if need > n {
        return fail_errno(libc::ERANGE);
    }
    // SAFETY: the program's own buffer, or `getcwd` says that it is none.
    if unsafe { getcwd(buf, n) }.is_null() { -1 } else { need as isize }
}

/// Another root directory: nothing there has the path it is forwarded by, and programs started there do
/// not find this library.
pub(crate) unsafe extern "C" fn chroot(path: *const c_char) -> c_int {
    // SAFETY: the program's own argument to a function that takes a C string.
    let given = unsafe { user::text(path) }.unwrap_or_default();
    let leaves = path::normalise(given) != b"/";
    let why = "what is done under another root directory is not forwarded";
    let note = if leaves { Note::prepare("chroot", given, why) } else { None };
    let r = at(
        libc::AT_FDCWD,
        path,
        true,
        |_, p| sys!(chroot, p),
        |client, r| {
            super::stat::attr_at(client, Target::Path(r.wire()))?;
            let place = r.local().ok_or_else(|| {
                notes::note("chroot", &r.full, "not on this machine: refused with EPERM");
                Error::local(libc::EPERM)
            })?;
            match sys!(chroot, sys::cstring(&place).as_ptr()) {
                r if r < 0 => Err(Error::local(-r as i32)),
                r => Ok(r),
            }
        },
        no_above,
    );
    if r == 0 && leaves {
        if let Some(note) = note {
            note.say();
        }
        state().leave();
    }
    r as c_int
}
