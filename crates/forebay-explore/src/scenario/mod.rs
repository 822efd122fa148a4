//! What is to be run: jobs of processes that write, read, think and make files, on a machine with so
//! many I/O nodes.
//!
//! | file | form |
//! |---|---|
//! | [`forge`] | FORGE's JSON, both its forms, unchanged |
//! | [`native`] | our TOML, with one scenario or a matrix of factors |

pub mod forge;
pub mod native;
mod units;

use forebay_types::input;
pub use forebay_types::{Layout, Operation, Spatiality};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

/// Why a scenario file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("{file}: {error}")]
    Io {
        /// Which file.
        file: String,
        /// What the system says.
        error: std::io::Error,
    },
    /// The text is not what it should be.
    #[error("{file}: {what}")]
    Text {
        /// Which file.
        file: String,
        /// What is wrong, and where.
        what: String,
    },
}

/// One scenario: jobs that run at the same time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// What results are filed under.
    pub name: String,
    /// The jobs; their first steps begin together.
    pub jobs: Vec<Job>,
    /// The numbers of I/O nodes to try; 0 is direct access. Empty: whatever the command line says.
    pub io_nodes: Vec<u32>,
    /// Repetitions of each number; `None`: whatever the command line says.
    pub repetitions: Option<u32>,
    /// Whether repetitions run in random order.
    pub shuffle: bool,
    /// Seed of everything random in it.
    pub seed: u64,
    /// The I/O nodes' scheduler and its parameters, in one line (`twins:window=2ms`).
    pub scheduler: Option<String>,
    /// Threads that carry out requests on an I/O node.
    pub dispatchers: Option<u32>,
}

/// One job: the same steps on every process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// What it is called.
    pub name: String,
    /// Compute nodes; all processes of one talk to the same I/O node.
    pub compute_nodes: u32,
    /// Processes on each.
    pub processes_per_node: u32,
    /// How long after the scenario's start it begins.
    pub delay: Duration,
    /// What it does, in order.
    pub steps: Vec<Step>,
}

impl Job {
    /// Processes on all compute nodes.
    pub fn processes(&self) -> u32 {
        self.compute_nodes.saturating_mul(self.processes_per_node)
    }
}

/// One thing that all processes of a job do before any goes on to the next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// Open a file.
    Open(Target),
    /// Close a file.
    Close(Target),
    /// Read or write data.
    Data(Data),
    /// Compute: no I/O for so long.
    Think(Duration),
    /// Make, look at or remove many files.
    Metadata(Metadata),
}

/// Which file a process uses.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Target {
    /// The shared file, or the start of the name of each process' own.
    pub path: String,
    /// Who shares it.
    pub layout: Layout,
    /// Whether the page cache is bypassed (`O_DIRECT`).
    pub direct_io: bool,
}

impl Target {
    /// The file of process `rank`, as FORGE names it.
    pub fn file(&self, rank: u32) -> String {
        match self.layout {
            Layout::Shared => self.path.clone(),
            Layout::FilePerProcess => format!("{}-{rank:03}", self.path),
        }
    }
}

/// When written data must be on stable storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fsync {
    /// Whenever the system likes.
    #[default]
    Never,
    /// At the end of the step; part of its time.
    End,
    /// After every write.
    Each,
}

/// A step that moves data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Data {
    /// Which files.
    pub target: Target,
    /// The share of requests that read: 0 writes, 1 reads, between mixes.
    pub read_share: f64,
    /// In which order.
    pub spatiality: Spatiality,
    /// Bytes that all processes together move.
    pub total_size: u64,
    /// Sizes of requests, with their weights.
    pub sizes: Vec<SizeShare>,
    /// Pause of a process after each request.
    pub think: Duration,
    /// When to stop even if not all is done; zero: never.
    pub stone_wall: Duration,
    /// Whether every byte read is checked.
    pub validation: bool,
    /// When data must be stable.
    pub fsync: Fsync,
}

impl Data {
    /// `write`, `read` or `mixed`.
    pub fn operation(&self) -> Operation {
        if self.read_share <= 0.0 {
            Operation::Write
        } else if self.read_share >= 1.0 {
            Operation::Read
        } else {
            Operation::Mixed
        }
    }

    /// The mean request size in bytes.
    pub fn mean_size(&self) -> f64 {
        let weight: f64 = self.sizes.iter().map(|s| s.weight).sum();
        self.sizes.iter().map(|s| s.size as f64 * s.weight).sum::<f64>() / weight
    }

    /// The largest request size in bytes.
    pub fn largest(&self) -> u64 {
        self.sizes.iter().map(|s| s.size).max().unwrap_or(0)
    }
}

/// A request size and how often it occurs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeShare {
    /// Bytes.
    pub size: u64,
    /// Relative frequency.
    pub weight: f64,
}

/// A step on many small files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// What is done to each.
    pub operation: MetaOperation,
    /// The start of their names.
    pub path: String,
    /// Files of each process.
    pub files: u32,
    /// When to stop even if not all is done; zero: never.
    pub stone_wall: Duration,
}

/// What is done to each of many files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MetaOperation {
    /// Made, empty.
    Create,
    /// Looked at.
    Stat,
    /// Removed.
    Unlink,
}

impl From<MetaOperation> for Operation {
    fn from(of: MetaOperation) -> Operation {
        match of {
            MetaOperation::Create => Operation::Create,
            MetaOperation::Stat => Operation::Stat,
            MetaOperation::Unlink => Operation::Unlink,
        }
    }
}

/// The largest request: what a process' buffer may have to hold.
pub const MAX_REQUEST: u64 = 1 << 30;
/// The most processes a scenario may have: under a launcher, which gave the room for them. On this
/// machine alone [`crate::run::MOST_LOCAL`] holds.
pub const MAX_PROCESSES: u32 = 1 << 20;
/// The most I/O nodes a run may have.
pub const MAX_IO_NODES: u32 = 1024;
/// The most repetitions of a run.
pub const MAX_REPETITIONS: u32 = 10_000;
/// The most files that the processes of a metadata step may make together.
pub const MAX_FILES: u64 = 100_000_000;

impl Scenario {
    /// Refuses what cannot be run, with the reason.
    pub fn check(&self) -> Result<(), String> {
        if self.jobs.is_empty() {
            return Err("no job in it".into());
        }
        check_io_nodes(&self.io_nodes)?;
        if let Some(n) = self.repetitions.filter(|n| !(1..=MAX_REPETITIONS).contains(n)) {
            return Err(format!("repetitions: {n}, and 1 to {MAX_REPETITIONS} are possible"));
        }
        if let Some(n) = self.dispatchers.filter(|n| !(1..=1024).contains(n)) {
            return Err(format!("dispatchers: {n}, and 1 to 1024 are possible"));
        }
        let all = self.jobs.iter().fold(0u32, |sum, j| sum.saturating_add(j.processes()));
        if all > MAX_PROCESSES {
            return Err(format!("{all} processes in all: at most {MAX_PROCESSES} are possible"));
        }
        for job in &self.jobs {
            let say = |what: String| Err(format!("job {}: {what}", job.name));
            if job.processes() == 0 || job.processes() > MAX_PROCESSES {
                return say(format!(
                    "{} processes: between 1 and {MAX_PROCESSES} are possible",
                    job.processes()
                ));
            }
            if job.steps.is_empty() {
                return say("it does nothing; give it a phase".into());
            }
            for step in &job.steps {
                match step {
                    Step::Open(t) => check_path(&t.path).or_else(say)?,
                    Step::Data(d) => check_path(&d.target.path)
                        .and_then(|()| check_data(d, job.processes()))
                        .or_else(say)?,
                    Step::Metadata(m) => {
                        check_path(&m.path).or_else(say)?;
                        let all = u64::from(m.files) * u64::from(job.processes());
                        if !(1..=MAX_FILES).contains(&all) {
                            return say(format!("files: {all} in all, and 1 to {MAX_FILES} are possible"));
                        }
                    }
                    _ => {}
                }
            }
        }
        check_names(&self.jobs)
    }
}

/// What names of files have behind the path: the process, and the number of one of many.
const LONGEST_ENDING: usize = "-1048575-100000000".len();
/// The longest name of a file, and the longest path that calls take, in bytes.
const LONGEST_NAME: usize = 255;
const LONGEST_PATH: usize = 3000;

/// Refuses files that would be elsewhere than below the scenario's directory, and what is no name of a file.
fn check_path(path: &str) -> Result<(), String> {
    if Path::new(path).components().any(|c| c == std::path::Component::ParentDir) {
        return Err(format!("path: {path:?} leaves the directory that it is below (..)"));
    }
    if path.contains('\0') || matches!(path.rsplit('/').next(), None | Some("" | ".")) {
        return Err(format!("path: {path:?} names no file"));
    }
    let longest = LONGEST_NAME - LONGEST_ENDING;
    if path.len() > LONGEST_PATH || path.split('/').any(|name| name.len() > longest) {
        return Err(format!(
            "path: names of at most {longest} bytes are possible (files of one's own end with the process' number), and \
             {LONGEST_PATH} bytes in all"
        ));
    }
    Ok(())
}

/// Refuses to look at or to remove files that no job makes: within a job, none that a step before did not make.
fn check_names(jobs: &[Job]) -> Result<(), String> {
    let made_by = |job: &Job, path: &str| {
        job.steps
            .iter()
            .any(|s| matches!(s, Step::Metadata(m) if m.operation == MetaOperation::Create && m.path == path))
    };
    for job in jobs {
        let mut there: HashMap<&str, u32> = HashMap::new();
        for step in &job.steps {
            let Step::Metadata(m) = step else { continue };
            let files = there.entry(&m.path).or_default();
            if m.operation == MetaOperation::Create {
                *files = m.files.max(*files);
                continue;
            }
            // Of files that another job makes nobody knows when they are there.
            let others = || jobs.iter().any(|other| !std::ptr::eq(other, job) && made_by(other, &m.path));
            if m.files > *files && !others() {
                let verb = Operation::from(m.operation);
                return Err(format!(
                    "job {}: {} of {} files {:?} of each process, of which there are {files} then: make them in a phase before \
                     (operation = \"create\")",
                    job.name,
                    verb.name(),
                    m.files,
                    m.path
                ));
            }
            if m.operation == MetaOperation::Unlink {
                *files = 0;
            }
        }
    }
    Ok(())
}

/// Refuses numbers of I/O nodes that no run can have.
pub fn check_io_nodes(counts: &[u32]) -> Result<(), String> {
    match counts.iter().find(|n| **n > MAX_IO_NODES) {
        Some(n) => Err(format!("io_nodes: {n}, and 0 to {MAX_IO_NODES} are possible")),
        None => Ok(()),
    }
}

fn check_data(d: &Data, processes: u32) -> Result<(), String> {
    if d.sizes.is_empty() || d.sizes.iter().any(|s| s.size == 0 || s.size > MAX_REQUEST) {
        return Err(format!("request_size: between 1 and {MAX_REQUEST} bytes are possible"));
    }
    if d.sizes.iter().any(|s| !s.weight.is_finite() || s.weight <= 0.0) {
        return Err("request_size: weights must be above zero".into());
    }
    if !(0.0..=1.0).contains(&d.read_share) {
        return Err(format!("read_share: {} is not between 0 and 1", d.read_share));
    }
    if d.target.layout == Layout::FilePerProcess && d.spatiality == Spatiality::Strided {
        return Err(
            "strided access to files of one's own makes no sense: use contiguous, or a shared file".into()
        );
    }
    // A mix is cut to fit; a single size that does not fit is a mistake.
    let least = if d.sizes.len() > 1 { 1 } else { d.largest() };
    if d.total_size / u64::from(processes) < least {
        return Err(format!(
            "total_size: {} bytes leave {processes} processes less than one request of {} bytes each",
            d.total_size,
            d.largest()
        ));
    }
    if d.target.direct_io && d.sizes.iter().any(|s| s.size % 512 != 0) {
        return Err("direct_io: request sizes must be multiples of 512 bytes".into());
    }
    Ok(())
}

/// All scenarios of a file: FORGE's JSON or our TOML, told apart by the file's name.
pub fn load(path: &Path) -> Result<Vec<Scenario>, ScenarioError> {
    let file = path.display().to_string();
    let text = std::fs::File::open(path).and_then(input::text);
    let text = text.map_err(|error| ScenarioError::Io { file: file.clone(), error })?;
    let stem = path.file_stem().map_or_else(|| "scenario".into(), |s| s.to_string_lossy().into_owned());
    let parsed = match path.extension().and_then(|e| e.to_str()) {
        Some("json") => forge::parse(&text, &stem).map(|s| vec![s]),
        Some("toml") => native::parse(&text, &stem),
        _ => Err("not .json (FORGE's form) or .toml (ours)".to_owned()),
    };
    let scenarios = parsed.map_err(|what| ScenarioError::Text { file: file.clone(), what })?;
    for s in &scenarios {
        s.check()
            .map_err(|e| ScenarioError::Text { file: file.clone(), what: format!("{}: {e}", s.name) })?;
    }
    Ok(scenarios)
}
