//! The machine that is measured on.

use anyhow::{Context, Result};
use forebay_types::Nanos;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// This program, which is also what I/O nodes, arbiters and workers run.
pub(crate) fn program() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find this program's own file")
}

/// How busy the machine is: experiments with real time depend on it.
pub(crate) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("load {} on {cores} cores", text.split(' ').next().unwrap_or("?"))
}

/// Now, as I/O nodes date their intervals.
pub(crate) fn wall_clock() -> Nanos {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(Nanos::ZERO, Nanos::from)
}
