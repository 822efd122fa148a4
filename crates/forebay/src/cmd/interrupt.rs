//! Ctrl-C and SIGTERM for commands that want to end in order, in bounded time.

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

static STOP: AtomicBool = AtomicBool::new(false);
/// By which signal.
static BY: AtomicI32 = AtomicI32::new(SIGINT);

/// The exit status of a command that was interrupted.
pub(crate) fn status() -> u8 {
    128u8.wrapping_add(BY.load(Ordering::Relaxed) as u8)
}

/// A flag that an interrupt sets. If the command has not ended `limit` later, or if it is asked again,
/// the process ends where it is, and everything it started with it.
pub(crate) fn flag(limit: Duration) -> Result<&'static AtomicBool> {
    let mut signals =
        signal_hook::iterator::Signals::new([SIGINT, SIGTERM]).context("cannot watch for Ctrl-C")?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            BY.store(signal, Ordering::Relaxed);
            if STOP.swap(true, Ordering::Relaxed) {
                forebay_embed::tidy_and_exit(128 + signal);
            }
            std::thread::spawn(move || {
                std::thread::sleep(limit);
                forebay_embed::tidy_and_exit(128 + signal);
            });
        }
    });
    Ok(&STOP)
}
