//! The one thing here that needs `unsafe`.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// What is started ends when the thread that started it does, whatever happens to this program.
pub(crate) fn end_with_parent(command: &mut Command) {
    // SAFETY: the closure runs between fork and exec and makes one system call, without allocating or
    // locking.
    unsafe {
        command.pre_exec(|| {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            Ok(())
        });
    }
}
