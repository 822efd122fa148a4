//! Who a signal is for: while the program runs, the program; before and after, this command, which
//! then ends at once and leaves nothing behind.

use anyhow::{Context, Result};
use rustix::process::{Pid, WaitId, WaitIdOptions};
use signal_hook::consts::{
    SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM,
    SIGWINCH, SIGXCPU, SIGXFSZ,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Those that ask to end this command when there is no program. The others have no meaning for it: they end nothing.
const ENDING: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];
/// Batch systems warn by these before the time is up, and people ask programs for a checkpoint.
const PASSED: [i32; 12] = [
    SIGUSR1,
    SIGUSR2,
    SIGALRM,
    SIGVTALRM,
    SIGPROF,
    SIGXCPU,
    SIGXFSZ,
    SIGCONT,
    SIGWINCH,
    SIGIO,
    libc::SIGPWR,
    libc::SIGSTKFLT,
];

/// Watches for signals.
pub struct Signals {
    program: Arc<Mutex<Option<Pid>>>,
    /// The program was asked to end.
    asked: Arc<AtomicBool>,
}

impl Signals {
    /// From now on.
    pub fn watch() -> Result<Signals> {
        // What is to be ignored is left so, for the program too.
        let numbered = libc::SIGRTMIN()..=libc::SIGRTMAX();
        let known = ENDING.into_iter().chain(PASSED).chain(numbered);
        let heeded = known.filter(|s| !crate::sys::was_ignored(*s));
        let mut signals = SignalsInfo::<WithRawSiginfo>::new(heeded).context("cannot watch for Ctrl-C")?;
        let program: Arc<Mutex<Option<Pid>>> = Arc::default();
        let watched = Arc::clone(&program);
        let asked: Arc<AtomicBool> = Arc::default();
        let ask = Arc::clone(&asked);
        std::thread::spawn(move || {
            for info in signals.forever() {
                let signal = info.si_signo;
                match *lock(&watched) {
                    Some(pid) => {
                        ask.fetch_or(ENDING.contains(&signal), Relaxed);
                        pass_on(pid, signal, info.si_code == libc::SI_KERNEL);
                    }
                    None if ENDING.contains(&signal) => forebay_embed::tidy_and_exit(128 + signal),
                    None => {}
                }
            }
        });
        Ok(Signals { program, asked })
    }

    /// Whether somebody asked the program to end.
    pub(crate) fn asked_to_end(&self) -> bool {
        self.asked.load(Relaxed)
    }

    /// Starts the program; from then on signals are for it.
    pub(crate) fn start(&self, program: impl FnOnce() -> Result<Child>) -> Result<Child> {
        // Held meanwhile, so that no signal ends this process and leaves a program without I/O nodes.
        let mut pid = lock(&self.program);
        let child = program()?;
        *pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Ok(child)
    }

    /// Waits for the program's end; from then on signals are for this process again.
    pub(crate) fn wait(&self, child: &mut Child) -> Result<ExitStatus> {
        let pid = *lock(&self.program);
        if let Some(pid) = pid {
            // Not reaped yet: until signals are turned away from it, its number must not be given anew.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            let wait = || rustix::process::waitid(WaitId::Pid(pid), options);
            while wait().is_err_and(|e| e == rustix::io::Errno::INTR) {}
        }
        *lock(&self.program) = None;
        child.wait().context("cannot wait for the program")
    }
}

fn pass_on(pid: Pid, signal: i32, by_kernel: bool) {
    // Ctrl-C and a new size of the window reach the program from the terminal itself, which sends them to the
    // whole group. What somebody sends to this process is for the program alone to know from here.
    // A file of its own that would be too large is this process's own affair, too.
    let not_for_it = matches!(signal, SIGINT | SIGQUIT | SIGWINCH | SIGXFSZ) && by_kernel;
    if !not_for_it {
        crate::sys::send(pid, signal);
    }
}

fn lock(program: &Mutex<Option<Pid>>) -> MutexGuard<'_, Option<Pid>> {
    program.lock().unwrap_or_else(PoisonError::into_inner)
}
