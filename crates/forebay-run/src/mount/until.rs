//! What a signal asks of `forebay mount`: while it waits for an arbiter or I/O nodes, and while it mounts, to end where it
//! is; once it serves, to unmount first; in the foreground of one in the background, to end that one.

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How long the process in the background may take to end, so that this one ends within a second.
const BACKGROUND_LIMIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 700_000_000 };

/// Signals that ask to end, watched for from the moment this is made.
pub struct Until {
    pub(super) end: Sender<()>,
    ended: Receiver<()>,
    stage: Arc<Mutex<Stage>>,
}

/// Whom a signal is for.
#[derive(Default)]
enum Stage {
    /// Nothing is served yet, and nobody waits for an I/O node that does not answer.
    #[default]
    Before,
    /// The process in the background, which is this one's child and not reaped yet.
    Background(Pid),
    /// Whoever serves.
    Serving,
}

impl Until {
    /// From now on.
    pub fn signalled() -> Result<Until> {
        let mut signals = signal_hook::iterator::Signals::new(forebay_embed::ending_signals())?;
        let (end, ended) = channel();
        let (told, stage) = (end.clone(), Arc::<Mutex<Stage>>::default());
        let watched = Arc::clone(&stage);
        std::thread::spawn(move || {
            for signal in signals.forever() {
                // Held to the end: nothing begins meanwhile.
                let stage = lock(&watched);
                match *stage {
                    Stage::Before => forebay_embed::tidy_and_exit(128 + signal),
                    Stage::Background(pid) => {
                        pass_on(pid, signal);
                        forebay_embed::tidy_and_exit(128 + signal);
                    }
                    // If nobody listens any more, the end is under way.
                    Stage::Serving => drop(told.send(())),
                }
            }
        });
        Ok(Until { end, ended, stage })
    }

    /// Everything is mounted: from now on a signal is for whoever waits here, who unmounts in order.
    pub(super) fn serving(&self) {
        *lock(&self.stage) = Stage::Serving;
    }

    /// Waits for the first signal, or for the end of a mount that somebody else unmounted.
    pub(super) fn wait(&self) {
        // This value has a sender of its own.
        let _ = self.ended.recv();
    }

    /// Starts the process in the background; from now on a signal ends it, too.
    pub(super) fn start(&self, command: &mut Command) -> Result<Child> {
        // Held meanwhile, so that no signal ends this process and leaves that one.
        let mut stage = lock(&self.stage);
        let child = command.spawn().context("cannot start")?;
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            *stage = Stage::Background(pid);
        }
        Ok(child)
    }

    /// Waits for the end of what [`Until::start`] started.
    pub(super) fn ended(&self, mut child: Child) -> Result<ExitStatus> {
        let pid = match *lock(&self.stage) {
            Stage::Background(pid) => Some(pid),
            Stage::Before | Stage::Serving => None,
        };
        if let Some(pid) = pid {
            // Not reaped before no signal is for it any more: its number must not be given anew.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while waitid(WaitId::Pid(pid), options).is_err_and(|e| e == rustix::io::Errno::INTR) {}
        }
        *lock(&self.stage) = Stage::Before;
        Ok(child.wait()?)
    }
}

/// Tells the process in the background, and waits until it has ended: nothing is left when this one has.
fn pass_on(pid: Pid, signal: i32) {
    crate::sys::send(pid, signal);
    if let Ok(told) = pidfd_open(pid, PidfdFlags::empty()) {
        // One that serves already, and whose I/O node hangs, may take longer.
        let _ = poll(&mut [PollFd::new(&told, PollFlags::IN)], Some(&BACKGROUND_LIMIT));
    }
    // Nothing of it is left to whoever reaps what has lost its parent.
    let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
}

fn lock(stage: &Mutex<Stage>) -> MutexGuard<'_, Stage> {
    stage.lock().unwrap_or_else(PoisonError::into_inner)
}
