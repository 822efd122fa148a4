//! From scenarios as they were read to scenarios that can be run here: where their files go, how many
//! processes they have, and whether the machine has room for them.

use super::plan::runs;
use super::{MOST_LOCAL, MOST_RUNS};
use crate::scenario::{self, Scenario, Step};
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

/// Why scenarios cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum CannotRun {
    /// More runs than anybody waits for.
    #[error("{0} runs (scenarios × numbers of I/O nodes × repetitions): at most {MOST_RUNS} are possible")]
    Runs(u64),
    /// A number of I/O nodes that no machine has.
    #[error("{0}")]
    IoNodes(String),
    /// Two that results could not tell apart.
    #[error("two scenarios are called {0:?}: give each a name of its own")]
    SameName(String),
    /// Results of other scenarios of that name are there.
    #[error(
        "scenario {0:?} was another one, or elsewhere, when the results that are there were made: go on with that one, \
         or give another --out"
    )]
    Changed(String),
    /// The directory for the scenarios' files is none.
    #[error("{}: the directory for the scenario's files (see --at): {source}", dir.display())]
    Directory {
        /// Which.
        dir: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// There is less room than its files take.
    #[error("scenario {scenario}: its files take {needed} bytes, and below {} there is room for {room}", root.display())]
    Room {
        /// Which scenario.
        scenario: String,
        /// What it takes.
        needed: u64,
        /// What is there.
        room: u64,
        /// Where.
        root: PathBuf,
    },
    /// A file of a scenario is there, and nobody knows whose it is.
    #[error(
        "{} is there already, and explore uses and removes no file that it did not make: remove it, or give \
         another directory with --at", _0.display()
    )]
    Exists(PathBuf),
    /// A file of a scenario is there, and the study has not removed all of its own.
    #[error(
        "{} is there already: most likely a study that was interrupted has left it. --resume --clean removes the files of \
         that name, whoever made them", _0.display()
    )]
    Left(PathBuf),
    /// A file of a scenario that would be elsewhere.
    #[error("{path} is not below {}: say where files go with --at", root.display())]
    Elsewhere {
        /// The file.
        path: String,
        /// Where it should be.
        root: PathBuf,
    },
    /// The launcher started too few processes.
    #[error(
        "scenario {scenario} has {wanted} processes, and the launcher started {room} besides the I/O nodes"
    )]
    Processes {
        /// Which scenario.
        scenario: String,
        /// Its processes.
        wanted: u32,
        /// The launcher's.
        room: u32,
    },
    /// More processes than a machine should have.
    #[error(
        "scenario {scenario} would start {io_nodes} I/O nodes and {clients} client processes on this machine: \
         at most {MOST_LOCAL} together are possible (under srun or mpirun, more)"
    )]
    Local {
        /// Which scenario.
        scenario: String,
        /// I/O nodes that it would start.
        io_nodes: u32,
        /// Its clients.
        clients: u32,
    },
    /// The scenario contradicts itself.
    #[error("scenario {scenario}: {why}")]
    Scenario {
        /// Which.
        scenario: String,
        /// How.
        why: String,
    },
}

/// Refuses what would start or make more than any machine has room for.
pub fn check(
    scenarios: &[Scenario],
    io_nodes: Option<&[u32]>,
    repetitions: Option<u32>,
) -> Result<(), CannotRun> {
    let mut names = HashSet::new();
    for s in scenarios {
        if s.name.chars().any(char::is_control) {
            let why = "its name has control characters".to_owned();
            return Err(CannotRun::Scenario { scenario: s.name.escape_debug().to_string(), why });
        }
        if !names.insert(&s.name) {
            return Err(CannotRun::SameName(s.name.clone()));
        }
        let mut counts = HashSet::new();
        if let Some(n) = io_nodes.unwrap_or(&s.io_nodes).iter().find(|n| !counts.insert(**n)) {
            return Err(CannotRun::IoNodes(format!(
                "{n} I/O nodes are named twice: repetitions are --repeat"
            )));
        }
    }
    scenario::check_io_nodes(io_nodes.unwrap_or_default()).map_err(CannotRun::IoNodes)?;
    match runs(scenarios, io_nodes, repetitions) {
        all if all > MOST_RUNS => Err(CannotRun::Runs(all)),
        _ => Ok(()),
    }
}

/// Puts every file of the scenarios below one directory and gives its name: `at`, or the one that the
/// scenarios' own paths name, or the current one.
pub fn relocate(scenarios: &mut [Scenario], at: Option<&Path>) -> Result<PathBuf, CannotRun> {
    let mut paths: Vec<&mut String> = Vec::new();
    for step in scenarios.iter_mut().flat_map(|s| &mut s.jobs).flat_map(|j| &mut j.steps) {
        match step {
            Step::Open(t) | Step::Close(t) => paths.push(&mut t.path),
            Step::Data(d) => paths.push(&mut d.target.path),
            Step::Metadata(m) => paths.push(&mut m.path),
            Step::Think(_) => {}
        }
    }
    let named = paths.iter().map(|p| Path::new(p.as_str())).find(|p| p.is_absolute()).and_then(Path::parent);
    let dir = at.or(named).unwrap_or(Path::new("."));
    let root = dir.canonicalize().map_err(|source| CannotRun::Directory { dir: dir.to_owned(), source })?;
    for path in paths {
        let old = Path::new(path.as_str());
        if !old.is_absolute() {
            continue;
        }
        let below = old.strip_prefix(&root).ok().or(old.file_name().filter(|_| at.is_some()).map(Path::new));
        match below.and_then(Path::to_str) {
            Some(below) => *path = below.to_owned(),
            None => return Err(CannotRun::Elsewhere { path: path.clone(), root }),
        }
    }
    Ok(root)
}

/// What its files take at most at a time, but those of which a step may end before it has moved all.
fn bytes(scenario: &Scenario) -> u64 {
    let data = || {
        let all = scenario.jobs.iter().flat_map(|j| &j.steps);
        all.filter_map(|step| if let Step::Data(d) = step { Some(d) } else { None })
    };
    let mut largest: HashMap<&str, u64> = HashMap::new();
    for d in data() {
        let size = largest.entry(&d.target.path).or_default();
        *size = d.total_size.max(*size);
    }
    for d in data().filter(|d| !d.stone_wall.is_zero()) {
        largest.remove(&*d.target.path);
    }
    largest.values().fold(0, |sum, size| sum.saturating_add(*size))
}

/// Refuses what there is no room for, where the file system says how much there is.
pub(super) fn fit_storage(scenarios: &[Scenario], root: &Path) -> Result<(), CannotRun> {
    let Ok(of) = rustix::fs::statvfs(root) else { return Ok(()) };
    let room = of.f_bavail.saturating_mul(of.f_frsize);
    match scenarios.iter().find(|s| of.f_blocks > 0 && bytes(s) > room) {
        Some(s) => {
            Err(CannotRun::Room { scenario: s.name.clone(), needed: bytes(s), room, root: root.to_owned() })
        }
        None => Ok(()),
    }
}

/// FORGE's files leave the number of processes to the launcher; other scenarios must fit the `room` it has.
pub fn fit_processes(
    scenarios: &mut [Scenario],
    processes: Option<u32>,
    room: Option<u32>,
) -> Result<(), CannotRun> {
    for s in scenarios {
        if let [job] = &mut s.jobs[..]
            && job.name == "forge"
            && let Some(n) = processes.or(room)
        {
            job.compute_nodes = n;
        }
        let wanted: u32 = s.jobs.iter().map(|j| j.processes()).sum();
        if let Some(room) = room.filter(|room| wanted > *room) {
            return Err(CannotRun::Processes { scenario: s.name.clone(), wanted, room });
        }
        s.check().map_err(|why| CannotRun::Scenario { scenario: s.name.clone(), why: why.to_string() })?;
    }
    Ok(())
}

/// Without a launcher everything runs here.
pub fn fit_machine(scenarios: &[Scenario], io_nodes: u32) -> Result<(), CannotRun> {
    for s in scenarios {
        let clients = s.jobs.iter().fold(0u32, |sum, j| sum.saturating_add(j.processes()));
        if io_nodes.saturating_add(clients) > MOST_LOCAL {
            return Err(CannotRun::Local { scenario: s.name.clone(), io_nodes, clients });
        }
    }
    Ok(())
}

/// The preloaded library, as a file that all hosts see while the study runs.
pub struct Library(PathBuf);

impl Library {
    /// Puts it into `dir`.
    pub fn unpack(content: &[u8], dir: &Path) -> io::Result<Library> {
        let path = dir.join(format!(".libforebay-{}.so", std::process::id()));
        if !forebay_embed::can_preload(&path) {
            let why = "the loader takes no library below a directory with a space, `:` or `$` in its name";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let left = path.clone();
        forebay_embed::before_exit("remove the library", move || drop(std::fs::remove_file(left)));
        std::fs::write(&path, content)?;
        Ok(Library(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
