//! Open files for a program that this library does not reach: what was redirected into a forwarded
//! directory becomes the machine's own descriptor of the same file, where this machine has it.

use super::fd;
use crate::notes;
use crate::state::state;
use crate::sys::{self, sys};
use crate::table::{self, Open};
use forebay_client::{File, OpenFlags};
use std::ffi::c_int;

/// Before a program that is not covered starts in this process: its descriptors of forwarded files are
/// made to work, or named.
pub(crate) fn hand_over(program: &[u8]) {
    for (fd, open) in table::all() {
        let flags = sys!(fcntl, fd, libc::F_GETFD, 0);
        let Some(file) = open.remote() else { continue };
        if flags < 0 || flags as c_int & libc::FD_CLOEXEC != 0 || file.mode & libc::S_IFMT != libc::S_IFREG {
            continue;
        }
        if !replace(fd, &open, file) {
            let path = String::from_utf8_lossy(&open.path).into_owned();
            let why = format!(
                "it cannot use descriptor {fd}, which is {path}: there it fails (not under --via mount)"
            );
            notes::note("descriptor", program, &why);
        }
    }
}

/// Puts this machine's descriptor of the file in the place of `fd`.
fn replace(fd: c_int, open: &Open, file: &File) -> bool {
    // Who else has the file open shares its offset, which only appending does without.
    let Ok(flags) = fd::flags_of(fd, open) else { return false };
    if file.is_shared() && !flags.has(OpenFlags::APPEND) {
        return false;
    }
    let base = state().exports.get(usize::from(file.export)).and_then(|e| e.local.as_ref());
    let Some(base) = base else { return false };
    let path = [base.as_slice(), b"/", &file.rel()].concat();
    let kept = libc::O_ACCMODE | libc::O_APPEND;
    let new = sys::open(&path, flags.to_linux() & kept | libc::O_NOFOLLOW | libc::O_CLOEXEC, 0);
    if new < 0 {
        return false;
    }
    let new = new as c_int;
    // SAFETY: a plain struct of integers.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    let same = sys!(fstat, new, &raw mut found) == 0 && found.st_ino == file.ino;
    let at = sys!(lseek, fd, 0, libc::SEEK_CUR);
    let done = same && at >= 0 && sys!(lseek, new, at, libc::SEEK_SET) >= 0 && sys!(dup3, new, fd, 0) >= 0;
    sys::close(new);
    done
}
