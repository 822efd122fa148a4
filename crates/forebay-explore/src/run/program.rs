//! Child processes that end when we do.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running child: this very program with other arguments.
pub(super) struct Program {
    child: Child,
}

impl Program {
    pub(super) fn start(args: &[String], env: &[(String, String)]) -> io::Result<Program> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(args).envs(env.iter().map(|(k, v)| (k, v)));
        // Its own group: Ctrl-C is for the conductor, which ends the others in order.
        command.stdin(Stdio::null()).process_group(0);
        // SAFETY: the closure runs between fork and exec and makes one system call, without
        // allocating or locking.
        unsafe {
            command.pre_exec(|| {
                rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
                Ok(())
            });
        }
        Ok(Program { child: command.spawn()? })
    }

    /// Whether it has ended with an error.
    pub(super) fn failed(&mut self) -> Option<String> {
        match self.child.try_wait() {
            Ok(Some(status)) if !status.success() => Some(status.to_string()),
            _ => None,
        }
    }

    /// Asks it to end, and makes it after a second.
    pub(super) fn end(mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let deadline = Instant::now() + Duration::from_secs(1);
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
