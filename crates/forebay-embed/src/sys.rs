//! What needs `unsafe` here.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// What is started ends when the thread that started it does, whatever happens to this program.
pub fn end_with_parent(command: &mut Command) {
    // SAFETY: the closure runs between fork and exec and makes one system call, without allocating or
    // locking.
    unsafe {
        command.pre_exec(|| {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            Ok(())
        });
    }
}

/// Whether this process ignores a signal.
pub(crate) fn ignores(signal: i32) -> bool {
    // SAFETY: sigaction is plain data, for which zeros are a value; without a new action, only asks.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut now) == 0 && now.sa_sigaction == libc::SIG_IGN
    }
}

/// This thread, and what it starts from now on, is in a network of its own, without any link.
///
/// # Errors
/// If it may not.
pub fn own_network() -> std::io::Result<()> {
    // SAFETY: threads go on sharing their descriptors; only sockets that are made from now on are elsewhere.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET)? };
    Ok(())
}
