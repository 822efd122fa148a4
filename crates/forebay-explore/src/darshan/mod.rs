//! Scenarios from Darshan logs: how many processes, shared files or files of their own, request
//! sizes, order and volume.

mod derive;
mod log;
mod predict;

pub use derive::{derive, to_toml};
pub use log::{DarshanError, Log, PosixRecord, read};

use std::path::{Path, PathBuf};

/// Why a log gives no scenario, or not what was asked of it.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", file.display())]
pub struct NoScenario {
    /// Of which file.
    pub file: PathBuf,
    /// Why.
    pub why: Problem,
}

impl NoScenario {
    fn of<W: Into<Problem>>(file: &Path) -> impl FnOnce(W) -> NoScenario {
        let file = file.to_owned();
        move |why| NoScenario { file, why: why.into() }
    }
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// It cannot be read.
    #[error("cannot read it: {0}")]
    Read(#[from] std::io::Error),
    /// It is no log.
    #[error(transparent)]
    Log(#[from] DarshanError),
    /// Nothing can be derived from it.
    #[error("{0}")]
    Derive(String),
    /// It is no table of curves.
    #[error("not a table of curves: {0}")]
    Curves(#[from] forebay_policy::TableError),
}

fn log_of(path: &Path) -> Result<(Log, String), NoScenario> {
    let name = path.file_stem().map_or_else(|| "darshan".into(), |s| s.to_string_lossy().into_owned());
    let bytes = forebay_types::input::read(path).map_err(NoScenario::of(path))?;
    Ok((read(&bytes).map_err(NoScenario::of(path))?, name))
}

/// What a log's application would get of each number of I/O nodes, by the curves in a file, for people.
pub fn predict(path: &Path, curves: &Path) -> Result<String, NoScenario> {
    let (log, name) = log_of(path)?;
    let table = forebay_types::input::read(curves).map_err(NoScenario::of(curves))?;
    let table = forebay_policy::CurveTable::from_csv(&table[..]).map_err(NoScenario::of(curves))?;
    predict::predict(&log, &name, &table).map_err(|why| NoScenario::of(path)(Problem::Derive(why)))
}

/// The scenario of a log, as TOML with a comment that says where it comes from.
pub fn scenario_of(path: &Path) -> Result<String, NoScenario> {
    let (log, name) = log_of(path)?;
    let scenario = derive(&log, &name).map_err(|why| NoScenario::of(path)(Problem::Derive(why)))?;
    let (read, written) = log.posix.iter().fold((0, 0), |(r, w), p| (r + p.bytes_read, w + p.bytes_written));
    let comment = format!(
        "Derived from the Darshan log {name}: {} processes, {} file records,\n{written} bytes written, {read} bytes read.",
        log.processes,
        log.posix.len()
    );
    Ok(to_toml(&scenario, &comment))
}
