//! Placeholders: the real descriptors that stand for forwarded files.
//!
//! A placeholder is a memory file whose content says which file it stands for, sealed against
//! writing and opened write-only: a system call that bypasses this library fails with `EBADF` or
//! `EPERM` instead of reading or writing the wrong thing. Its kernel offset is the file's offset.

use crate::sys::{self, sys};
use crate::table::{Kind, Open};
use forebay_client::{File, FileRecord};
use std::sync::Arc;

const NAME: &[u8] = b"forebay\0";
const LINK: &[u8] = b"/memfd:forebay (deleted)";

#[derive(serde::Serialize, serde::Deserialize)]
struct Record {
    path: Vec<u8>,
    file: Option<FileRecord>,
}

/// A new placeholder for `open`; its number, or a negative errno.
pub(crate) fn create(open: &Open, cloexec: bool) -> isize {
    let record = Record { path: open.path.clone(), file: open.remote().map(File::record) };
    let Ok(bytes) = postcard::to_allocvec(&record) else { return -(libc::EINVAL as isize) };
    let mem = sys!(memfd_create, NAME.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
    if mem < 0 {
        return mem;
    }
    let mem = mem as i32;
    let written = sys!(pwrite64, mem, bytes.as_ptr(), bytes.len(), 0);
    let seals = libc::F_SEAL_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
    sys!(fcntl, mem, libc::F_ADD_SEALS, seals);
    let fd = if written == bytes.len() as isize {
        let link = format!("/proc/self/fd/{mem}\0");
        let flags = libc::O_WRONLY | if cloexec { libc::O_CLOEXEC } else { 0 };
        sys!(openat, libc::AT_FDCWD, link.as_ptr(), flags, 0)
    } else {
        -(libc::ENOMEM as isize)
    };
    // The number below the new one must be free again: programs expect the lowest.
    if fd > mem as isize {
        let want = if cloexec { libc::O_CLOEXEC } else { 0 };
        let moved = sys!(dup3, fd, mem, want);
        sys::close(fd as i32);
        return moved;
    }
    sys::close(mem);
    fd
}

/// What the placeholder `fd` stands for, if it is one: after `exec`.
pub(crate) fn inherited(fd: i32) -> Option<Arc<Open>> {
    let link = format!("/proc/self/fd/{fd}");
    if sys::readlink(link.as_bytes())?.as_slice() != LINK {
        return None;
    }
    let bytes = sys::read_file(link.as_bytes(), 1 << 16)?;
    let record: Record = postcard::from_bytes(&bytes).ok()?;
    let kind = match record.file {
        Some(f) => Kind::Remote(File::inherited(f)),
        None => Kind::Above(record.path.clone()),
    };
    Some(Open::new(kind, record.path))
}
