//! Placeholders: the real descriptors that stand for forwarded files.
//!
//! A placeholder is an empty memory file, sealed against writing and opened write-only: a system
//! call that bypasses this library fails with `EBADF` or `EPERM` instead of reading or writing the
//! wrong thing. Its kernel offset is the file's offset, and its flags are those of the file that others
//! who share it may change. What was opened as a place in the tree (`O_PATH`) is one for the kernel, too,
//! which then refuses what such a descriptor is not for.
//!
//! Most files are opened and closed without ever leaving their process: they are stood for by a
//! further opening of one memory file that all share ([`Config::placeholder`]), one system call.
//! Before a fork or exec, [`settle_all`] puts one of their own in their place, whose name says which
//! file it stands for, so that another program finds out; a record too long for a name is its
//! content. A descriptor that escapes that (a raw `clone`) fails in the other process, it never
//! reads or writes the wrong file. One such opening is kept when its file is closed, and lent to the
//! next one ([`spare`]).
//!
//! [`Config::placeholder`]: forebay_client::Config::placeholder

pub(crate) mod spare;

use crate::hooks::fd;
use crate::state::state;
use crate::sys::{self, sys};
use crate::table::{self, Kind, Open};
use forebay_client::{File, FileRecord, OpenFlags};
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const NAME: &[u8] = b"forebay:";
const LINK: &[u8] = b"/memfd:forebay:";
const LINK_END: &[u8] = b" (deleted)";
/// The kernel's limit on a memory file's name.
const MAX_NAME: usize = 249;

#[derive(serde::Serialize, serde::Deserialize)]
enum Record {
    Remote(FileRecord),
    Above(Vec<u8>),
}

/// Flags of an open file that no I/O node needs to know: the kernel keeps them, in the placeholder.
pub(crate) const KERNELS: c_int = libc::O_NONBLOCK | libc::O_ASYNC;
/// Flags that can change, and that all processes which share an open file must see: the kernel keeps
/// them for an open file with a placeholder of its own.
pub(crate) const SHARED: c_int = libc::O_APPEND | libc::O_NOATIME;

/// How a placeholder is opened. One that is only a place in the tree is for the kernel, too.
fn opening(flags: c_int) -> c_int {
    let kept = flags & (libc::O_CLOEXEC | KERNELS | SHARED);
    if flags & libc::O_PATH != 0 { libc::O_PATH | flags & libc::O_CLOEXEC } else { libc::O_WRONLY | kept }
}

/// A new placeholder for `open`, which was opened with `flags`; its number, or a negative errno.
pub(crate) fn create(open: &Open, flags: c_int) -> isize {
    let cloexec = flags & libc::O_CLOEXEC;
    if let (Some(template), Kind::Remote(_)) = (&state().placeholder, &open.kind) {
        // The others that stand for a file one after the other are all opened alike.
        let alike = flags & (KERNELS | libc::O_PATH) == 0;
        let lent = if alike { spare::lend(open, cloexec != 0) } else { None };
        let fd = lent.unwrap_or_else(|| {
            let fd = sys!(openat, libc::AT_FDCWD, template.as_ptr(), opening(flags & !SHARED), 0);
            if fd >= 0 && alike {
                spare::keep(open, fd as i32);
            }
            fd
        });
        if fd >= 0 {
            open.unsettled.store(true, Ordering::Relaxed);
            return fd;
        }
    }
    create_own(open, flags)
}

/// Gives every file that is stood for by the shared placeholder one of its own, under the same
/// numbers and at the same offsets.
pub(crate) fn settle_all() {
    settle(|open| open.unsettled.load(Ordering::Relaxed) || is_wrong(open));
}

/// As [`settle_all`], for one file. Whether that was possible.
pub(crate) fn settle_one(one: &Open) -> bool {
    settle(|open| std::ptr::eq(open, one) && open.unsettled.load(Ordering::Relaxed));
    !one.unsettled.load(Ordering::Relaxed)
}

fn settle(wanted: impl Fn(&Open) -> bool) {
    // Descriptors that share an open file go on sharing it.
    let mut done: Vec<(*const Open, i32)> = Vec::new();
    for (fd, open) in table::all() {
        let this = Arc::as_ptr(&open);
        let cloexec = sys!(fcntl, fd, libc::F_GETFD) & libc::FD_CLOEXEC as isize != 0;
        let flags = if cloexec { libc::O_CLOEXEC } else { 0 };
        if let Some((_, first)) = done.iter().find(|(o, _)| *o == this) {
            sys!(dup3, *first, fd, flags);
        } else if wanted(&open) {
            // What no node can be told is as it was last known.
            let known = |_| open.remote().map_or(OpenFlags::READ, File::flags);
            let shared = fd::flags_of(fd, &open).unwrap_or_else(known).to_linux();
            let kept = sys!(fcntl, fd, libc::F_GETFL, 0) as c_int & (KERNELS | libc::O_PATH);
            open.with_offset(|| {
                let at = sys!(lseek, fd, 0, libc::SEEK_CUR);
                let own = create_own(&open, shared & SHARED | kept | libc::O_CLOEXEC);
                if own >= 0 {
                    sys!(lseek, own, at, libc::SEEK_SET);
                    sys!(dup3, own, fd, flags);
                    sys::close(own as i32);
                    open.unsettled.store(false, Ordering::Relaxed);
                    spare::give_back(&open.spare);
                }
            });
            done.push((this, fd));
        }
    }
}

/// Whether a placeholder's record is wrong in what matters, and can be mended by nothing but another placeholder.
/// That one shares its offset with nobody who has the old one.
fn is_wrong(open: &Open) -> bool {
    open.remote().is_some_and(|file| !state().client().settle_record(file))
}

fn create_own(open: &Open, flags: c_int) -> isize {
    let record = match &open.kind {
        Kind::Remote(f) => Record::Remote(state().client().record(f)),
        Kind::Above(p) | Kind::LocalAbove(p) => Record::Above(p.clone()),
    };
    let Ok(bytes) = postcard::to_allocvec(&record) else { return -(libc::EINVAL as isize) };
    let mut name = NAME.to_vec();
    let fits = NAME.len() + bytes.len().div_ceil(3) * 4 <= MAX_NAME;
    if fits {
        encode(&bytes, &mut name);
    }
    name.push(0);
    let mem = sys!(memfd_create, name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
    if mem < 0 {
        return mem;
    }
    let mem = mem as i32;
    let fits_there = || crate::hooks::limit::fits(bytes.len());
    let complete =
        fits || fits_there() && sys!(pwrite64, mem, bytes.as_ptr(), bytes.len(), 0) == bytes.len() as isize;
    let seals = libc::F_SEAL_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
    sys!(fcntl, mem, libc::F_ADD_SEALS, seals);
    let fd = if complete {
        let link = format!("/proc/self/fd/{mem}\0");
        sys!(openat, libc::AT_FDCWD, link.as_ptr(), opening(flags), 0)
    } else {
        -(libc::ENOMEM as isize)
    };
    // The number below the new one must be free again: programs expect the lowest.
    if fd > mem as isize {
        let moved = sys!(dup3, fd, mem, flags & libc::O_CLOEXEC);
        sys::close(fd as i32);
        return moved;
    }
    sys::close(mem);
    fd
}

/// What the placeholder `fd` stands for, if it is one: after `exec`.
pub(crate) fn inherited(fd: i32) -> Option<Arc<Open>> {
    let link = format!("/proc/self/fd/{fd}");
    let target = sys::readlink(link.as_bytes())?;
    let name = target.strip_prefix(LINK)?.strip_suffix(LINK_END)?;
    let bytes = if name.is_empty() { sys::read_file(link.as_bytes(), 1 << 16)? } else { decode(name)? };
    Some(match postcard::from_bytes(&bytes).ok()? {
        Record::Remote(f) => {
            let dir = &state().exports.get(usize::from(f.export))?.dir;
            let path = [dir, &b"/"[..], &f.rel].concat();
            Open::new(Kind::Remote(File::inherited(f)), path)
        }
        Record::Above(p) => Open::new(Kind::Above(p.clone()), p),
    })
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Three bytes as four letters that may stand in a file's name.
fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.chunks(3) {
        let at = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let word = at(0) << 16 | at(1) << 8 | at(2);
        for i in 0..=chunk.len() {
            out.push(DIGITS[(word >> (18 - 6 * i)) as usize & 63]);
        }
    }
}

fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for chunk in text.chunks(4) {
        let mut word = 0u32;
        for (i, c) in chunk.iter().enumerate() {
            let digit = DIGITS.iter().position(|d| d == c)? as u32;
            word |= digit << (18 - 6 * i);
        }
        out.extend_from_slice(&word.to_be_bytes()[1..chunk.len()]);
    }
    Some(out)
}
