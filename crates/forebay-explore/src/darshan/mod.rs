//! Scenarios from Darshan logs: how many processes, shared files or files of their own, request
//! sizes, order and volume.

mod derive;
mod log;

pub use crate::derived::to_toml;
use crate::derived::{Derived, NoScenario, Problem, stem};
pub use derive::derive;
pub use log::{DarshanError, Log, PosixRecord, read};

use std::path::Path;

/// The scenario of a log, with a comment that says where it comes from.
pub fn derived(path: &Path) -> Result<Derived, NoScenario> {
    let name = stem(path);
    let bytes = forebay_types::input::read(path).map_err(NoScenario::of(path))?;
    let log = read(&bytes).map_err(NoScenario::of(path))?;
    let scenario = derive(&log, &name).map_err(|why| NoScenario::of(path)(Problem::Derive(why)))?;
    let (read, written) = log.posix.iter().fold((0, 0), |(r, w), p| (r + p.bytes_read, w + p.bytes_written));
    let comment = format!(
        "Derived from the Darshan log {name}: {} processes, {} file records,\n{written} bytes written, {read} bytes read.",
        log.processes,
        log.posix.len()
    );
    Ok(Derived { file: path.to_owned(), scenario, comment, found: String::new() })
}
