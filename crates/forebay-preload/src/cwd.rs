//! The working directory, as the program knows it and as the kernel does.
//!
//! The kernel's is the forwarded directory itself wherever this machine has it, if by another name: what
//! a program writes past this library, by relative names, is then where it belongs. Where the machine
//! does not have it, the kernel's is a stand-in in the run's own directory, and programs that this
//! library does not reach are not started there (see [`crate::hooks::exec`]).
//!
//! A directory can be renamed while it is somebody's working directory, so the kernel is asked where it
//! is before every relative path that may concern us.

use crate::path;
use crate::shared::Shared;
use crate::state::{State, state};
use crate::sys::{self, sys};
use std::sync::Arc;

/// Tells a child process that its working directory is that of this export, by its index.
pub(crate) const VARIABLE: &[u8] = b"FOREBAY_CWD";

/// What the kernel has for the working directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// The same.
    Same,
    /// This machine's own view of the forwarded directory, by another path: which export.
    Elsewhere(usize),
    /// A directory that stands for one this machine does not have.
    StandIn,
}

/// The working directory.
pub(crate) struct Cwd {
    /// As the program knows it.
    pub(crate) path: Vec<u8>,
    pub(crate) kernel: Kernel,
    /// As the kernel knows it.
    there: Vec<u8>,
    /// Whether relative paths may lead to a forwarded file.
    near: bool,
}

impl Cwd {
    fn new(state: &State, there: &[u8], export: Option<usize>) -> Cwd {
        let stands_for = there
            .strip_prefix(state.shadow.as_slice())
            .filter(|rest| matches!(rest.first(), None | Some(b'/')));
        let elsewhere = || {
            let i = export?;
            let export = state.exports.get(i)?;
            let rest = path::below(there, export.local.as_deref()?)?;
            Some((i, path::under(&export.dir, rest)))
        };
        let (path, kernel) = if let Some(rest) = stands_for {
            (if rest.is_empty() { b"/".to_vec() } else { rest.to_vec() }, Kernel::StandIn)
        } else if state.exports.iter().any(|e| path::below(there, &e.dir).is_some()) {
            (there.to_vec(), Kernel::Same)
        } else if let Some((i, path)) = elsewhere() {
            (path, Kernel::Elsewhere(i))
        } else {
            (there.to_vec(), Kernel::Same)
        };
        let near = kernel != Kernel::Same || state.is_near(&path);
        Cwd { path, kernel, there: there.to_vec(), near }
    }

    /// Whether the kernel's is another one.
    pub(crate) fn shadowed(&self) -> bool {
        self.kernel != Kernel::Same
    }

    fn export(&self) -> Option<usize> {
        match self.kernel {
            Kernel::Elsewhere(i) => Some(i),
            _ => None,
        }
    }
}

/// The one there is, and how it is found out.
pub(crate) struct Current(Shared<Cwd>);

impl Current {
    pub(crate) const fn unknown() -> Current {
        Current(Shared::empty())
    }

    /// Where the process is; `None` if the kernel does not know it either (it was removed).
    pub(crate) fn get(&self) -> Option<Arc<Cwd>> {
        let known = self.0.get();
        let mut buf = [0u8; libc::PATH_MAX as usize];
        let there = sys::getcwd_into(&mut buf)?;
        match known {
            Some(cwd) if cwd.there == there => Some(cwd),
            other => Some(self.learn(there, other.and_then(|c| c.export()))),
        }
    }

    /// As [`Current::get`], for a path relative to it; `None` as well if such a path is the kernel's
    /// business alone.
    pub(crate) fn for_relative(&self, path: &[u8]) -> Option<Arc<Cwd>> {
        let known = self.0.get()?;
        if !known.near && !path.starts_with(b"..") {
            return None;
        }
        drop(known);
        self.get()
    }

    fn learn(&self, there: &[u8], export: Option<usize>) -> Arc<Cwd> {
        let state = state();
        let cwd = Arc::new(Cwd::new(state, there, export));
        // A child that shares its parent's memory has a working directory of its own.
        if !state.is_passing_child() {
            self.0.replace(Some(Arc::clone(&cwd)));
        }
        cwd
    }

    /// The process went somewhere else, by way of this export if by one.
    pub(crate) fn moved(&self, export: Option<usize>) {
        let mut buf = [0u8; libc::PATH_MAX as usize];
        if let Some(there) = sys::getcwd_into(&mut buf) {
            self.learn(there, export);
        }
    }

    /// The process went to another directory by a path relative to where it was.
    pub(crate) fn moved_on(&self) {
        self.moved(self.0.get().and_then(|cwd| cwd.export()));
    }

    pub(crate) fn after_fork(&self) {
        self.0.after_fork();
    }
}

/// Makes `dir`, a directory as the program names it, the working directory: of the export `export`, with
/// this inode number. A system call's result.
pub(crate) fn enter(dir: &[u8], export: usize, ino: u64) -> sys::Raw {
    let state = state();
    let found = &state.exports[export];
    if let (Some(local), Some(rest)) = (&found.local, path::below(dir, &found.dir)) {
        let place = path::under(local, rest);
        let fd = sys::open(&place, libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC, 0);
        if fd >= 0 {
            // SAFETY: a plain struct of integers.
            let mut s: libc::stat = unsafe { std::mem::zeroed() };
            let same = sys!(fstat, fd, &raw mut s) == 0 && s.st_ino == ino;
            let r = if same { sys!(fchdir, fd) } else { -(libc::ENOENT as sys::Raw) };
            sys::close(fd as i32);
            if r >= 0 {
                state.cwd.moved(Some(export));
                return r;
            }
        }
    }
    enter_stand_in(dir)
}

/// Makes the stand-in for `dir` the kernel's working directory, so that children inherit it.
pub(crate) fn enter_stand_in(dir: &[u8]) -> sys::Raw {
    let state = state();
    let stand_in = [&state.shadow[..], dir].concat();
    sys::mkdirs(&stand_in);
    let r = sys!(chdir, sys::cstring(&stand_in).as_ptr());
    if r >= 0 {
        state.cwd.moved(None);
    }
    r
}

/// Makes a directory that was removed the working directory: the kernel's is one that was removed, too.
pub(crate) fn enter_removed(dir: &[u8]) -> sys::Raw {
    // What leads up from there leads to its parent.
    let parent = dir.iter().rposition(|&b| b == b'/').map_or(&b""[..], |i| &dir[..i]);
    let name = format!("/.removed-{}", sys::getpid());
    let stand_in = [&state().shadow[..], parent, name.as_bytes()].concat();
    sys::mkdirs(&stand_in);
    let name = sys::cstring(&stand_in);
    let r = sys!(chdir, name.as_ptr());
    sys!(unlinkat, libc::AT_FDCWD, name.as_ptr(), libc::AT_REMOVEDIR);
    r
}

/// A forwarded directory was renamed: a stand-in for it, which may be somebody's working directory, goes
/// with it.
pub(crate) fn renamed(from: &[u8], to: &[u8], flags: u32) {
    let state = state();
    if !state.has_stand_ins() {
        return;
    }
    let name = |p: &[u8]| sys::cstring(&[&state.shadow[..], p].concat());
    let (from, target) = (name(from), name(to));
    // There is none for most directories.
    let moved = sys!(renameat2, libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, target.as_ptr(), flags);
    if moved == -(libc::ENOENT as sys::Raw) && sys!(faccessat, libc::AT_FDCWD, from.as_ptr(), libc::F_OK) == 0
    {
        let parent = to.iter().rposition(|&b| b == b'/').map_or(to, |i| &to[..i]);
        sys::mkdirs(&[&state.shadow[..], parent].concat());
        sys!(renameat2, libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, target.as_ptr(), flags);
    }
}

/// A forwarded directory was removed, and with it its stand-in.
pub(crate) fn removed(dir: &[u8]) {
    let state = state();
    if state.has_stand_ins() {
        let name = sys::cstring(&[&state.shadow[..], dir].concat());
        sys!(unlinkat, libc::AT_FDCWD, name.as_ptr(), libc::AT_REMOVEDIR);
    }
}
