//! The files of a study: `results.csv` with a row per repetition and step, `runs/` with JSON, and
//! `summary.txt` in FORGE's form. Each is complete after every run, so an interrupted study can go on.

use super::drive::StudyError;
use super::prepare::CannotRun;
use super::record::RunRecord;
use crate::scenario::Scenario;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// There while files of the scenarios may be where they are made.
const UNFINISHED: &str = "unfinished";

/// The scenarios that were run, by name.
type PastScenarios = BTreeMap<String, PastScenario>;

/// A scenario, and where its files were.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PastScenario {
    root: String,
    /// Its JSON, as it was written.
    scenario: String,
}

/// What tells one name from others.
fn mark(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |h: u32, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193))
}

/// A study's directory.
pub struct Results {
    dir: PathBuf,
    csv: csv::Writer<File>,
    summary: File,
    done: HashSet<(String, u32, u32)>,
}

#[derive(Deserialize)]
struct DoneRow {
    run: String,
    io_nodes: u32,
    repetition: u32,
}

impl Results {
    /// Opens the directory. With `resume`, what is there is kept and counts as done; without, results
    /// that are there are not touched but refused.
    pub fn open(dir: &Path, resume: bool) -> io::Result<Results> {
        let named = |path: PathBuf| {
            move |e: io::Error| io::Error::new(e.kind(), format!("cannot make {}: {e}", path.display()))
        };
        fs::create_dir_all(dir.join("runs")).map_err(named(dir.join("runs")))?;
        let csv_path = dir.join("results.csv");
        let append = |name: &str| {
            let path = dir.join(name);
            OpenOptions::new().create(true).append(true).open(&path).map_err(named(path))
        };
        let table = append("results.csv")?;
        if let Err(TryLockError::WouldBlock) = table.try_lock() {
            let what = format!("another forebay explore is at work on {}", dir.display());
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, what));
        }
        let mut done = HashSet::new();
        let exists = fs::metadata(&csv_path).is_ok_and(|m| m.len() > 0);
        if exists {
            if !resume {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    format!(
                        "{} holds results already: give --resume to go on with them, or another --out",
                        dir.display()
                    ),
                ));
            }
            let text = forebay_types::input::read(&csv_path)?;
            // A row cut short by a crash is not counted, and cut off.
            let whole = text.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
            for row in csv::Reader::from_reader(&text[..whole]).deserialize::<DoneRow>() {
                let row = row.map_err(|e| io::Error::other(format!("{}: {e}", csv_path.display())))?;
                done.insert((row.run, row.io_nodes, row.repetition));
            }
            OpenOptions::new().write(true).open(&csv_path)?.set_len(whole as u64)?;
        }
        let csv = csv::WriterBuilder::new().has_headers(!exists).from_writer(table);
        Ok(Results { dir: dir.to_owned(), csv, summary: append("summary.txt")?, done })
    }

    /// What was done before: scenario, I/O nodes, repetition.
    pub fn done(&self) -> &HashSet<(String, u32, u32)> {
        &self.done
    }

    /// Where each run's record is.
    pub(super) fn runs(&self) -> PathBuf {
        self.dir.join("runs")
    }

    /// The CSV file.
    pub fn csv_path(&self) -> PathBuf {
        self.dir.join("results.csv")
    }

    /// Holds the scenarios, with their files below `root`, against those that were run before, if any were.
    pub(super) fn hold_against(&self, scenarios: &[Scenario], root: &Path) -> Result<(), StudyError> {
        let path = self.dir.join("scenarios.json");
        let read = || -> io::Result<PastScenarios> {
            match fs::read(&path) {
                Ok(text) => Ok(serde_json::from_slice(&text)?),
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(PastScenarios::default()),
                Err(e) => Err(e),
            }
        };
        let failed = |what| {
            let path = path.clone();
            move |source| StudyError::Io { what, path, source }
        };
        let mut known = read().map_err(failed("cannot read"))?;
        for s in scenarios {
            // How often it is run, and with what, may change.
            let plain = Scenario { io_nodes: Vec::new(), repetitions: None, ..s.clone() };
            let scenario = serde_json::to_string(&plain).unwrap_or_default();
            let now = PastScenario { root: root.to_string_lossy().into_owned(), scenario };
            let was = known.insert(s.name.clone(), now.clone());
            let begun = self.done.iter().any(|(name, ..)| *name == s.name);
            if begun && was.is_some_and(|was| was != now) {
                return Err(CannotRun::Changed(s.name.clone()).into());
            }
        }
        let text = serde_json::to_vec_pretty(&known).map_err(io::Error::other);
        text.and_then(|text| fs::write(&path, text)).map_err(failed("cannot write"))
    }

    /// Says that files of scenarios may be there, until it is taken back. Whether that was said before, and not taken
    /// back.
    pub(super) fn begin(&self) -> io::Result<bool> {
        let mark = File::options().write(true).create_new(true).open(self.dir.join(UNFINISHED));
        match mark {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(true),
            made => made.map(|_| false),
        }
    }

    /// No file is left.
    pub(super) fn end(&self) {
        let _ = fs::remove_file(self.dir.join(UNFINISHED));
    }

    /// Adds a run.
    pub fn add(&mut self, record: &RunRecord) -> io::Result<()> {
        let plain: String = record
            .scenario
            .chars()
            .map(|c| if c.is_alphanumeric() || "-_.=".contains(c) { c } else { '_' })
            .take(120)
            .collect();
        // What had to be changed for a file's name could be another's, too.
        let mark =
            if plain == record.scenario { String::new() } else { format!("-{:08x}", mark(&record.scenario)) };
        let name = format!("{plain}{mark}-ion{}-rep{}.json", record.io_nodes, record.repetition);
        fs::write(self.runs().join(name), serde_json::to_vec_pretty(record)?)?;
        self.summary.write_all(record.forge_summary().as_bytes())?;
        self.summary.write_all(b"\n")?;
        for row in record.rows() {
            self.csv.serialize(row).map_err(io::Error::other)?;
        }
        self.csv.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_cut_short_is_run_again() {
        let dir = tempfile::tempdir().unwrap();
        let csv = dir.path().join("results.csv");
        let whole = "run,io_nodes,repetition,other\na,1,1,x\na,2,1,x\n";
        fs::write(&csv, format!("{whole}a,4,1")).unwrap();
        assert!(Results::open(dir.path(), false).is_err());
        let results = Results::open(dir.path(), true).unwrap();
        assert_eq!(*results.done(), HashSet::from([("a".into(), 1, 1), ("a".into(), 2, 1)]));
        assert_eq!(fs::read_to_string(&csv).unwrap(), whole);
    }

    #[test]
    fn something_else_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("results.csv"), "my,notes\n1,2\n").unwrap();
        assert!(Results::open(dir.path(), true).is_err_and(|e| e.to_string().contains("results.csv")));
    }
}
