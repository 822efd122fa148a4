//! What goes with this program when it is interrupted: every process it started, every directory it made.

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long to try to remove what processes that are ending may still write to.
const REMOVAL: Duration = Duration::from_millis(500);

/// How long this program's other threads have to come to what they must wait for.
const SETTLES: Duration = Duration::from_millis(10);

/// A second signal so soon is the first one: `timeout` and terminals tell a process, and its group, too.
const SAME_REQUEST: Duration = Duration::from_millis(250);

/// How long anything else may take.
const LAST_LIMIT: Duration = Duration::from_millis(300);

/// What there is to tidy up.
#[derive(Default)]
pub(crate) struct Started {
    /// Leaders of process groups. Whoever reaps one removes it while it holds the lock, so that no number
    /// is used again while it is still in here.
    pub(crate) groups: BTreeSet<i32>,
    pub(crate) directories: BTreeSet<PathBuf>,
    watched: bool,
}

static STARTED: Mutex<Started> =
    Mutex::new(Started { groups: BTreeSet::new(), directories: BTreeSet::new(), watched: false });

pub(crate) fn started() -> MutexGuard<'static, Started> {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What else is done then, and what it is.
static LAST: Mutex<Vec<(&'static str, Act)>> = Mutex::new(Vec::new());
type Act = Box<dyn FnOnce() + Send>;

/// Should the program end where it is ([`tidy_and_exit`]), this is done at last, for as long as there is time: in
/// place of what was asked for under that name before.
pub fn before_exit(what: &'static str, act: impl FnOnce() + Send + 'static) {
    let mut all = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|(name, _)| *name != what);
    all.push((what, Box::new(act)));
}

/// The signals that ask a program to end. What whoever started it had it ignore, as `nohup` does, is not among them
/// and stays ignored. To be asked before any of them is watched.
pub fn ending_signals() -> Vec<i32> {
    [SIGINT, SIGTERM, SIGHUP, SIGQUIT].into_iter().filter(|signal| !crate::sys::ignores(*signal)).collect()
}

/// From now on, whoever interrupts this program ([`ending_signals`]) finds it ended within a second
/// and nothing left behind. For programs that have nothing else to do at their end.
pub fn tidy_when_interrupted() -> io::Result<()> {
    if std::mem::replace(&mut started().watched, true) {
        return Ok(());
    }
    let mut signals = signal_hook::iterator::Signals::new(ending_signals())?;
    std::thread::spawn(move || {
        let Some(signal) = signals.forever().next() else { return };
        tidy_and_exit(128 + signal);
    });
    Ok(())
}

static STOP: AtomicBool = AtomicBool::new(false);
/// By which signal.
static BY: AtomicI32 = AtomicI32::new(SIGINT);

/// The exit status of a program that was interrupted and ended in order.
pub fn interrupted_status() -> u8 {
    128u8.wrapping_add(BY.load(Ordering::Relaxed) as u8)
}

/// A file that grows past a limit is an error like others, not this program's death. Whoever it starts has the signal as
/// it was.
pub fn heed_file_size_limit() {
    // If it cannot be had, it is as it was.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
}

/// What to say if a panic is about a thread that the system does not give.
pub fn lacks_thread(panic: &(dyn std::any::Any + Send)) -> Option<&'static str> {
    let text = panic.downcast_ref::<String>()?;
    let of = ["failed to spawn thread", "OS can't spawn", "The global thread pool has not been initialized"];
    of.iter().any(|start| text.starts_with(start)).then_some(
        "cannot start a thread: this user, or the job, has as many as it may (ulimit -u, pids.max), or no memory",
    )
}

/// A flag that an interrupt ([`ending_signals`]) sets, for programs that then end in order. If this one has not ended
/// `limit` later, or if it is asked again, it ends where it is ([`tidy_and_exit`]).
pub fn stop_when_interrupted(limit: Duration) -> io::Result<&'static AtomicBool> {
    let mut signals = signal_hook::iterator::Signals::new(ending_signals())?;
    std::thread::spawn(move || {
        let mut first = None;
        for signal in signals.forever() {
            if first.is_some_and(|first: Instant| first.elapsed() < SAME_REQUEST) {
                continue;
            }
            first.get_or_insert_with(Instant::now);
            BY.store(signal, Ordering::Relaxed);
            if STOP.swap(true, Ordering::Relaxed) {
                tidy_and_exit(128 + signal);
            }
            std::thread::spawn(move || {
                std::thread::sleep(limit);
                tidy_and_exit(128 + signal);
            });
        }
    });
    Ok(&STOP)
}

/// Ends the program where it is, whatever its other threads do, and leaves nothing behind.
pub fn tidy_and_exit(status: i32) -> ! {
    // Nothing is started or reaped from here on.
    let all = started();
    for group in all.groups.iter().filter_map(|id| rustix::process::Pid::from_raw(*id)) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let last = std::mem::take(&mut *LAST.lock().unwrap_or_else(PoisonError::into_inner));
    let (done, wait) = std::sync::mpsc::channel();
    let acting = std::thread::Builder::new().spawn(move || {
        last.into_iter().for_each(|(_, act)| act());
        let _ = done.send(());
    });
    if acting.is_ok() {
        let _ = wait.recv_timeout(LAST_LIMIT);
    }
    let deadline = Instant::now() + REMOVAL;
    loop {
        all.directories.iter().for_each(|dir| remove(dir, deadline));
        // Another thread of ours may have been making something there: it has by now, or waits for us.
        std::thread::sleep(SETTLES);
        if Instant::now() >= deadline || !all.directories.iter().any(|dir| dir.exists()) {
            std::process::exit(status)
        }
    }
}

/// Removes a directory; tries again while somebody still writes to it.
pub(crate) fn remove(dir: &Path, deadline: Instant) {
    while std::fs::remove_dir_all(dir).is_err() && dir.exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
}
