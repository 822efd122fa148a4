//! Memory mappings of forwarded files.

use super::{fail, fail_errno, hooks};
use crate::notes;
use crate::state::state;
use crate::sys::{self, sys};
use crate::table::{self, Open};
use crate::user;
use forebay_client::{Error, File, OpenFlags};
use std::ffi::{c_int, c_void};

hooks! {
    c"mmap" => mmap, c"mmap64" => mmap, c"munmap" => munmap, c"mprotect" => mprotect,
}

unsafe extern "C" fn mmap(
    addr: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    map(addr, len, prot, flags, fd, offset) as *mut c_void
}

/// Only to know that memory went away (see [`user`]).
unsafe extern "C" fn munmap(addr: *mut c_void, len: usize) -> c_int {
    user::changed();
    sys::ret(sys!(munmap, addr, len)) as c_int
}

/// As [`munmap`].
unsafe extern "C" fn mprotect(addr: *mut c_void, len: usize, prot: c_int) -> c_int {
    user::changed();
    sys::ret(sys!(mprotect, addr, len, prot)) as c_int
}

pub(crate) fn map(addr: *mut c_void, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> isize {
    if prot == libc::PROT_NONE || flags & libc::MAP_FIXED != 0 {
        user::changed();
    }
    // malloc comes here too: nothing may be allocated on this way.
    if flags & libc::MAP_ANONYMOUS != 0 || fd < 0 {
        return sys::ret(sys!(mmap, addr, len, prot, flags, fd, offset));
    }
    let Some(open) = table::get(fd) else { return sys::ret(sys!(mmap, addr, len, prot, flags, fd, offset)) };
    let Some(file) = open.remote() else { return fail_errno(libc::ENODEV) };
    if open.is_path() {
        return fail_errno(libc::EBADF);
    }
    if file.is_dir() {
        return fail_errno(libc::ENODEV);
    }
    if !file.flags().has(OpenFlags::READ) {
        return fail_errno(libc::EACCES);
    }
    if offset % 4096 != 0 || len == 0 {
        return fail_errno(libc::EINVAL);
    }
    if offset < 0 {
        return fail_errno(libc::EOVERFLOW);
    }
    let shared = flags & libc::MAP_TYPE != libc::MAP_PRIVATE;
    let writable = prot & libc::PROT_WRITE != 0;
    if shared {
        if writable && !file.flags().has(OpenFlags::WRITE) {
            return fail_errno(libc::EACCES);
        }
        if let Some(p) = map_local(&open, file, addr, len, prot, flags, offset) {
            return sys::ret(p);
        }
        if writable {
            notes::note(
                "mapping",
                &open.path,
                "a shared writable mapping needs the file on this machine: refused with ENODEV",
            );
            return fail_errno(libc::ENODEV);
        }
        notes::note(
            "mapping",
            &open.path,
            "a shared mapping is a snapshot: later writes of others are not seen",
        );
    }
    match snapshot(file, addr, len, prot, flags, offset as u64) {
        Ok(p) => sys::ret(p),
        Err(e) => fail(&e, &open.path),
    }
}

/// The file itself, where this machine sees the very same one.
fn map_local(
    open: &Open,
    file: &File,
    addr: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    offset: i64,
) -> Option<isize> {
    let base = state().exports[usize::from(file.export)].local.as_ref()?;
    let path = [base, &b"/"[..], &file.rel()].concat();
    let mode = if file.flags().has(OpenFlags::WRITE) { libc::O_RDWR } else { libc::O_RDONLY };
    let fd = sys::open(&path, mode | libc::O_CLOEXEC, 0);
    if fd < 0 {
        return None;
    }
    // SAFETY: a plain struct of integers.
    let mut s: libc::stat = unsafe { std::mem::zeroed() };
    let same = sys!(fstat, fd, &raw mut s) == 0
        && s.st_ino == file.ino
        && super::stat::attr_of(file).is_ok_and(|a| a.dev == s.st_dev && a.ino == s.st_ino);
    if same {
        state().client().use_directly(file);
    }
    let mapped = same.then(|| sys!(mmap, addr, len, prot, flags, fd, offset));
    sys::close(fd as c_int);
    if mapped.is_some() {
        notes::note("mapping", &open.path, "a shared mapping uses this machine's own view of the file");
    }
    mapped
}

/// Private memory with the file's content.
fn snapshot(
    file: &File,
    addr: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    offset: u64,
) -> Result<isize, Error> {
    let keep = libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE | libc::MAP_NORESERVE | libc::MAP_32BIT;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags & keep;
    let p = sys!(mmap, addr, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1i32 as usize, 0);
    if (-4095..0).contains(&p) {
        return Ok(p);
    }
    // SAFETY: the mapping just made.
    let memory = unsafe { std::slice::from_raw_parts_mut(p as *mut u8, len) };
    // Programs map more than the file; what lies behind its end stays zero and untouched.
    let size = super::size::size(file)?;
    let want = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX).min(len);
    if let Err(e) = state().client().pread(file, &mut memory[..want], offset) {
        sys!(munmap, p, len);
        return Err(e);
    }
    if prot != libc::PROT_READ | libc::PROT_WRITE {
        sys!(mprotect, p, len, prot);
    }
    Ok(p)
}
