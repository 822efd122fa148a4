//! What needs the system directly.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// A terminal's signals are not for this process.
pub(crate) fn own_session(command: &mut Command) {
    // SAFETY: setsid(2) is all that happens between fork and exec, and it is safe there.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            Ok(())
        });
    }
}

/// The C library's version.
pub(crate) fn glibc_version() -> String {
    // SAFETY: returns a static string.
    unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) }.to_string_lossy().into_owned()
}
