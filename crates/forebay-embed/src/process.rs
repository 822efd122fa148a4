//! Child processes, in process groups of their own: started, signalled, frozen, ended and reaped here.

use crate::interrupt::started;
use crate::sys;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, pidfd_open, waitid,
};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus};
use std::time::{Duration, Instant};

/// How long a thread may take to stop once its process was told to.
const FREEZE_LIMIT: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// A running child. Dropping it kills it, and what it started in its group.
#[derive(Debug)]
pub struct Process {
    child: Child,
    pid: Pid,
}

impl Process {
    /// Starts `command` in a group of its own: a terminal's Ctrl-C is for this program. It ends with the
    /// thread that calls this, at the latest.
    pub fn start(command: &mut Command) -> io::Result<Process> {
        command.process_group(0);
        sys::end_with_parent(command);
        let mut all = started();
        let child = command.spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::Other)?;
        all.groups.insert(pid.as_raw_nonzero().get());
        Ok(Process { child, pid })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its standard input, if that is a pipe.
    pub fn input(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Its standard output, if that is a pipe.
    pub fn output(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// How it ended, if it has.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        let mut all = started();
        let status = self.child.try_wait()?;
        if status.is_some() {
            all.groups.remove(&self.pid.as_raw_nonzero().get());
        }
        Ok(status)
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            // It is not reaped here, but where nobody can signal its number any more.
            match waitid(WaitId::Pid(self.pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Waits for its end, but not for longer than this.
    pub fn wait_for(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + patience;
        // The kernel tells, where it can: looking again and again would show in what is measured.
        let told = pidfd_open(self.pid, PidfdFlags::empty()).ok();
        loop {
            let ended = self.try_wait()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if ended.is_some() || left.is_zero() {
                return Ok(ended);
            }
            let waited = told.as_ref().is_some_and(|pidfd| {
                let limit = Timespec::try_from(left).ok();
                poll(&mut [PollFd::new(pidfd, PollFlags::IN)], limit.as_ref()).is_ok()
            });
            if !waited {
                std::thread::sleep(LOOK_AGAIN);
            }
        }
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let all = started();
        // The number of one that was reaped may be another's by now.
        if !all.groups.contains(&self.pid.as_raw_nonzero().get()) {
            return Err(io::Error::other("the process has ended"));
        }
        Ok(kill_process(self.pid, signal)?)
    }

    /// Stops it (SIGSTOP), and waits until every one of its threads stands still: on a busy machine some
    /// would go on for a while.
    pub fn freeze(&self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        let deadline = Instant::now() + FREEZE_LIMIT;
        while !self.is_frozen()? {
            if Instant::now() > deadline {
                return Err(io::Error::other("the process does not stop"));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Lets it go on.
    pub fn thaw(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    pub(crate) fn is_frozen(&self) -> io::Result<bool> {
        stands_still(self.id())
    }

    /// Asks it to end, and makes it after `patience`. How it ended, if that was seen.
    pub fn end(&mut self, patience: Duration) -> Option<ExitStatus> {
        self.ask_to_end();
        match self.wait_for(patience) {
            Ok(Some(status)) => Some(status),
            _ => self.kill(),
        }
    }

    /// Asks it to end.
    pub fn ask_to_end(&self) {
        let _ = self.signal(Signal::TERM);
        // One that is stopped hears it only then.
        let _ = self.signal(Signal::CONT);
    }

    /// Kills it, and what it started in its group.
    pub fn kill(&mut self) -> Option<ExitStatus> {
        if let Ok(Some(status)) = self.try_wait() {
            return Some(status);
        }
        let _ = kill_process_group(self.pid, Signal::KILL);
        self.wait().ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Whether all threads of a process are stopped.
pub fn stands_still(pid: u32) -> io::Result<bool> {
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end while they are listed.
        let Ok(stat) = std::fs::read_to_string(task?.path().join("stat")) else { continue };
        // The name in parentheses may hold anything; the state comes after it.
        let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
        if !matches!(state, Some('T' | 't' | 'Z' | 'X')) {
            return Ok(false);
        }
    }
    Ok(true)
}
