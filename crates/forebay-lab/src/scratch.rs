//! Directories that go with the command that made them, also when it is interrupted.

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use tempfile::TempDir;

/// All that were made. To remove one that is gone already does nothing.
static MADE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// What is still being written to may need another try.
const TRIES: usize = 3;

/// A memory file system if there is one, so that nothing but what is measured takes time.
pub fn memory() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}

/// A directory below `base`, removed when dropped.
pub(crate) fn directory(base: &Path, what: &str) -> Result<TempDir> {
    let dir = tempfile::Builder::new()
        .prefix(&format!("forebay-{what}-"))
        .tempdir_in(base)
        .with_context(|| format!("cannot write to {}", base.display()))?;
    MADE.lock().unwrap_or_else(PoisonError::into_inner).push(dir.path().to_owned());
    Ok(dir)
}

/// From now on, whoever interrupts this command finds nothing left behind; child processes end with it.
pub fn tidy_when_interrupted() -> Result<()> {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if WATCHED.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    let mut signals =
        signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot watch for Ctrl-C")?;
    std::thread::spawn(move || {
        let Some(signal) = signals.forever().next() else { return };
        for dir in MADE.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = (0..TRIES).try_for_each(|_| match std::fs::remove_dir_all(dir) {
                Err(_) if dir.exists() => Ok(()),
                _ => Err(()),
            });
        }
        std::process::exit(128 + signal);
    });
    Ok(())
}
