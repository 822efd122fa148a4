//! `nftw` and `ftw`: libc's walk opens directories by a way of its own that cannot be replaced.

use super::hooks;
use crate::path;
use crate::sys;
use std::collections::HashSet;
use std::ffi::{CStr, c_char, c_int};

hooks! {
    c"nftw" => nftw, c"nftw64" => nftw, c"ftw" => ftw, c"ftw64" => ftw,
}

const FILE: c_int = 0;
const DIR: c_int = 1;
const UNREADABLE: c_int = 2;
const NO_STAT: c_int = 3;
const LINK: c_int = 4;
const DIR_AFTER: c_int = 5;
const BROKEN_LINK: c_int = 6;

const PHYS: c_int = 1;
const MOUNT: c_int = 2;
const CHDIR: c_int = 4;
const DEPTH: c_int = 8;
const ACTION: c_int = 16;

const SKIP_SUBTREE: c_int = 2;
const SKIP_SIBLINGS: c_int = 3;

#[repr(C)]
struct Ftw {
    base: c_int,
    level: c_int,
}

type New = unsafe extern "C" fn(*const c_char, *const libc::stat, c_int, *mut Ftw) -> c_int;
type Old = unsafe extern "C" fn(*const c_char, *const libc::stat, c_int) -> c_int;

enum Visit {
    New(New),
    Old(Old),
}

struct Walk {
    visit: Visit,
    flags: c_int,
    start: Vec<u8>,
    device: libc::dev_t,
    seen: HashSet<(libc::dev_t, libc::ino_t)>,
}

unsafe extern "C" fn nftw(root: *const c_char, visit: New, _descriptors: c_int, flags: c_int) -> c_int {
    walk(root, Visit::New(visit), flags)
}

unsafe extern "C" fn ftw(root: *const c_char, visit: Old, _descriptors: c_int) -> c_int {
    walk(root, Visit::Old(visit), 0)
}

fn walk(root: *const c_char, visit: Visit, flags: c_int) -> c_int {
    // SAFETY: the program's own argument to a function that takes a C string.
    let Some(given) = (unsafe { crate::user::text(root) }).filter(|p| !p.is_empty()) else {
        return super::fail_errno(libc::ENOENT) as c_int;
    };
    let mut path = given.to_vec();
    while path.len() > 1 && path.ends_with(b"/") {
        path.pop();
    }
    // SAFETY: plain structs of integers, filled by `stat`.
    let mut s: libc::stat = unsafe { std::mem::zeroed() };
    let name = sys::cstring(&path);
    // SAFETY: a C string and our own buffer.
    let found = unsafe {
        if flags & PHYS != 0 {
            super::stat::lstat(name.as_ptr().cast(), &mut s)
        } else {
            super::stat::stat(name.as_ptr().cast(), &mut s)
        }
    };
    // A root that is not there is an error; a root that is a broken link is a visit.
    // SAFETY: as above.
    if found != 0 && unsafe { super::stat::lstat(name.as_ptr().cast(), &mut s) } != 0 {
        return -1;
    }
    let start = crate::state::state().cwd.get().map_or_else(Vec::new, |c| c.path.clone());
    let mut walk = Walk { visit, flags, device: s.st_dev, seen: HashSet::new(), start };
    let base = path.iter().rposition(|&b| b == b'/').map_or(0, |i| i + 1);
    let code = match walk.enter(&path) {
        Ok(()) => walk.one(&path, base, 0),
        Err(()) => -1,
    };
    if flags & CHDIR != 0 {
        let e = sys::errno();
        walk.go(&walk.start);
        sys::set_errno(e);
    }
    if flags & ACTION != 0 && (code == SKIP_SUBTREE || code == SKIP_SIBLINGS) { 0 } else { code }
}

impl Walk {
    fn go(&self, dir: &[u8]) -> bool {
        let dir = sys::cstring(dir);
        // SAFETY: a C string.
        unsafe { libc::chdir(dir.as_ptr().cast()) == 0 }
    }

    fn full(&self, path: &[u8]) -> Vec<u8> {
        path::join(&self.start, path)
    }

    /// Makes the directory that holds `path` the working one, where that was asked for.
    fn enter(&self, path: &[u8]) -> Result<(), ()> {
        if self.flags & CHDIR == 0 {
            return Ok(());
        }
        let full = self.full(path);
        let cut = full.iter().rposition(|&b| b == b'/').unwrap_or(0).max(1);
        if self.go(&full[..cut]) { Ok(()) } else { Err(()) }
    }

    fn call(&self, path: &[u8], s: &libc::stat, kind: c_int, base: usize, level: c_int) -> c_int {
        let path = sys::cstring(path);
        let mut place = Ftw { base: base as c_int, level };
        // SAFETY: the program's own function, called as it is declared.
        unsafe {
            match self.visit {
                Visit::New(f) => f(path.as_ptr().cast(), s, kind, &mut place),
                Visit::Old(f) => {
                    // The old interface knows no links: one that leads nowhere has no attributes.
                    let kind = if kind == BROKEN_LINK { NO_STAT } else { kind };
                    f(path.as_ptr().cast(), s, kind)
                }
            }
        }
    }

    fn one(&mut self, path: &[u8], base: usize, level: c_int) -> c_int {
        // SAFETY: a plain struct of integers.
        let mut s: libc::stat = unsafe { std::mem::zeroed() };
        let name = sys::cstring(&self.full(path));
        let physical = self.flags & PHYS != 0;
        // SAFETY: C strings and our own buffer.
        let found = unsafe {
            if physical {
                super::stat::lstat(name.as_ptr().cast(), &mut s)
            } else {
                super::stat::stat(name.as_ptr().cast(), &mut s)
            }
        };
        if found != 0 {
            if sys::errno() != libc::EACCES && sys::errno() != libc::ENOENT {
                return -1;
            }
            // SAFETY: as above.
            let link = !physical
                && unsafe { super::stat::lstat(name.as_ptr().cast(), &mut s) } == 0
                && s.st_mode & libc::S_IFMT == libc::S_IFLNK;
            return self.call(path, &s, if link { BROKEN_LINK } else { NO_STAT }, base, level);
        }
        match s.st_mode & libc::S_IFMT {
            libc::S_IFDIR => {
                let foreign = self.flags & MOUNT != 0 && s.st_dev != self.device;
                if foreign || !physical && !self.seen.insert((s.st_dev, s.st_ino)) {
                    return 0;
                }
                self.directory(path, &s, base, level)
            }
            libc::S_IFLNK => self.call(path, &s, LINK, base, level),
            _ => self.call(path, &s, FILE, base, level),
        }
    }

    fn directory(&mut self, path: &[u8], s: &libc::stat, base: usize, level: c_int) -> c_int {
        let Some(names) = names(&self.full(path)) else {
            if sys::errno() != libc::EACCES {
                return -1;
            }
            return self.call(path, s, UNREADABLE, base, level);
        };
        if self.flags & DEPTH == 0 {
            match self.call(path, s, DIR, base, level) {
                0 => {}
                SKIP_SUBTREE if self.flags & ACTION != 0 => return 0,
                other => return other,
            }
        }
        let prefix = if path.ends_with(b"/") { path.to_vec() } else { [path, b"/"].concat() };
        for name in names {
            let child = [&prefix[..], &name].concat();
            if self.enter(&child).is_err() {
                return -1;
            }
            match self.one(&child, prefix.len(), level + 1) {
                0 => {}
                SKIP_SIBLINGS if self.flags & ACTION != 0 => break,
                other => return other,
            }
        }
        if self.flags & DEPTH == 0 {
            return 0;
        }
        if self.enter(path).is_err() {
            return -1;
        }
        self.call(path, s, DIR_AFTER, base, level)
    }
}

/// The names in a directory.
fn names(dir: &[u8]) -> Option<Vec<Vec<u8>>> {
    let dir = sys::cstring(dir);
    // SAFETY: a stream that is closed when it was read.
    unsafe {
        let stream = libc::opendir(dir.as_ptr().cast());
        if stream.is_null() {
            return None;
        }
        let mut all = Vec::new();
        loop {
            let entry = libc::readdir64(stream);
            if entry.is_null() {
                break;
            }
            let name = CStr::from_ptr((*entry).d_name.as_ptr()).to_bytes();
            if name != b"." && name != b".." {
                all.push(name.to_vec());
            }
        }
        libc::closedir(stream);
        Some(all)
    }
}
