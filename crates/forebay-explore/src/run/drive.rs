//! A whole study from scenarios to results: prepared, planned, and run after run carried out.

use super::claims::Claims;
use super::launcher::{self, Rank};
use super::machine::{Launched, Local, Machine};
use super::prepare::{self, CannotRun, Library};
use super::{Results, RunError, Standing, Study, Via, plan};
use crate::scenario::Scenario;
use forebay_embed::RunDir;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long the ranks of a launcher wait for each other.
pub const MEETING_PATIENCE: Duration = Duration::from_secs(120);

/// What to study.
pub struct Request<'a> {
    /// What is run.
    pub scenarios: Vec<Scenario>,
    /// With how many I/O nodes, where not as the scenarios say.
    pub io_nodes: Option<&'a [u32]>,
    /// How often, where not as the scenarios say.
    pub repetitions: Option<u32>,
    /// Where the scenarios' files go, where not as they say.
    pub at: Option<&'a Path>,
    /// Where results go; there, absolute, and seen by all hosts.
    pub out: &'a Path,
    /// Whether to go on with the results that are there.
    pub resume: bool,
    /// Whether what a study that was interrupted has left is removed first.
    pub clean: bool,
    /// Client processes of scenarios that leave it to the launcher.
    pub processes: Option<u32>,
    /// I/O nodes that run already.
    pub standing: Option<Standing>,
    /// The preload library, if clients are to be programs under it.
    pub preload: Option<&'a [u8]>,
    /// Of the order of runs.
    pub seed: u64,
    /// Our place among the processes of a launcher: the first.
    pub rank: Option<Rank>,
    /// Set from outside to end the study.
    pub stop: &'a AtomicBool,
}

/// Is told how far a study is.
pub trait Watch {
    /// So many runs are ahead, so many were done before.
    fn begin(&self, runs: usize, done: usize);
    /// This one is now carried out.
    fn doing(&self, what: String);
    /// It is done.
    fn advance(&self);
}

/// How a study ended.
pub enum Ending {
    /// All runs are done.
    Complete(Box<Results>),
    /// It was interrupted after so many of its runs; they are kept.
    Interrupted {
        /// Runs done.
        done: usize,
        /// Of so many.
        of: usize,
    },
}

/// Why a study ended early.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// It cannot be run at all.
    #[error(transparent)]
    Cannot(#[from] CannotRun),
    /// Too few I/O nodes run already.
    #[error("a run wants {wanted} I/O nodes, and --nodes names {named}")]
    TooFew {
        /// Wanted by a run.
        wanted: u32,
        /// There.
        named: usize,
    },
    /// A file, or the meeting with other ranks.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The results cannot be kept.
    #[error(transparent)]
    Results(io::Error),
    /// A run failed.
    #[error(transparent)]
    Run(RunError),
}

/// Carries out a study.
pub fn drive(request: Request<'_>, watch: &dyn Watch) -> Result<Ending, StudyError> {
    let Request { mut scenarios, io_nodes, repetitions, standing, out, rank, stop, .. } = request;
    let io = |what| move |source| StudyError::Io { what, path: out.to_owned(), source };
    prepare::check(&scenarios, io_nodes, repetitions)?;
    let root = prepare::relocate(&mut scenarios, request.at)?;
    Claims::of(&scenarios, &root).directories_are_there()?;
    prepare::fit_storage(&scenarios, &root)?;
    let library = request.preload.map(|bytes| Library::unpack(bytes, out)).transpose();
    let library = library.map_err(io("cannot write the preload library to"))?;
    let via = library.as_ref().map_or(Via::Client, |l| Via::Preload(l.path().to_owned()));

    let mut results = Results::open(out, request.resume).map_err(StudyError::Results)?;
    results.hold_against(&scenarios, &root)?;
    let runs = plan(&scenarios, io_nodes, repetitions, request.seed, results.done());
    let wanted = runs.iter().map(|r| r.io_nodes).max().unwrap_or(0);
    if let Some(s) = standing.as_ref().filter(|s| s.addresses.len() < wanted as usize) {
        return Err(StudyError::TooFew { wanted, named: s.addresses.len() });
    }

    let listener = TcpListener::bind(if rank.is_some() { "0.0.0.0:0" } else { "127.0.0.1:0" })
        .map_err(io("cannot listen for the clients of"))?;
    let token = format!("{:032x}", rand::random::<u128>());
    let started = if standing.is_some() { 0 } else { wanted };
    let mut machine: Box<dyn Machine> = match &rank {
        None => Box::new(Local::default()),
        Some(rank) => {
            let agents = launcher::gather(rank, out, &listener, &token, MEETING_PATIENCE)
                .map_err(io("the launcher's ranks do not meet in"))?;
            Box::new(Launched::new(agents, started))
        }
    };
    prepare::fit_processes(&mut scenarios, request.processes, machine.clients())?;
    if rank.is_none() {
        prepare::fit_machine(&scenarios, started)?;
    }

    let claims = Claims::of(&scenarios, &root);
    let unfinished = results.begin().map_err(StudyError::Results)?;
    // Nobody else has anything there.
    let scratch = results.runs();
    RunDir::sweep(&scratch);
    if unfinished && request.clean {
        claims.remove();
    }
    claims.refuse_existing().map_err(|e| match e {
        // Only whoever looks can tell whether somebody else has made it since.
        CannotRun::Exists(path) if unfinished => CannotRun::Left(path),
        e => {
            results.end();
            e
        }
    })?;

    let study = Study { root, via, standing, scratch, listener: &listener, token, stop };
    watch.begin(runs.len(), results.done().len());
    for (number, run) in runs.iter().enumerate() {
        let scenario = &scenarios[run.scenario];
        watch.doing(format!("{}, {} I/O nodes, repetition {}", scenario.name, run.io_nodes, run.repetition));
        match study.run(scenario, *run, number as u64, &mut *machine) {
            Ok(record) => results.add(&record).map_err(io("cannot write the results to"))?,
            Err(RunError::Interrupted) => {
                results.end();
                return Ok(Ending::Interrupted { done: number, of: runs.len() });
            }
            Err(e) => {
                results.end();
                return Err(StudyError::Run(e));
            }
        }
        watch.advance();
    }
    results.end();
    Ok(Ending::Complete(Box::new(results)))
}
