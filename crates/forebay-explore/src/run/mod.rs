//! Running scenarios: I/O nodes and client processes are started, led through the steps, measured
//! and ended, run by run.
//!
//! [`Study`] holds it all together; [`machine`] says where processes run; [`work`] and [`machine::serve_agent`] are
//! what those processes do.

mod claims;
mod conductor;
mod drive;
mod files;
mod forwarded;
pub mod launcher;
pub mod machine;
mod nodes;
mod plan;
mod posix;
pub mod prepare;
pub mod protocol;
mod record;
mod results;
mod worker;

pub use drive::{Ending, MEETING_PATIENCE, Request, StudyError, Watch, drive};
pub use nodes::Standing;
pub use plan::{Run, plan, runs};
pub use record::{Latency, Quartiles, RunRecord, StepRecord};
pub use results::Results;
pub use worker::work;

use crate::scenario::Scenario;
use claims::Claims;
use forebay_embed::RunDir;
use machine::{Machine, Role};
use nodes::Nodes;
use protocol::{Access, Task};
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The most processes, I/O nodes and clients together, that a run starts on one machine.
pub const MOST_LOCAL: u32 = 1024;

/// The most runs of a study.
pub const MOST_RUNS: u64 = 1_000_000;

/// Where a worker finds the study's secret.
pub const TOKEN_VARIABLE: &str = "FOREBAY_EXPLORE_TOKEN";

/// What is done if the program ends during a run.
const REMOVAL: &str = "remove the files";

/// How clients reach the I/O nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Via {
    /// Through the client library.
    #[default]
    Client,
    /// As plain POSIX programs under this preloaded library.
    Preload(PathBuf),
}

/// What stays the same for all runs of a study.
pub struct Study<'a> {
    /// Where the scenarios' files are put; absolute.
    pub root: PathBuf,
    /// How clients reach the I/O nodes.
    pub via: Via,
    /// I/O nodes to use instead of starting some.
    pub standing: Option<Standing>,
    /// Where files needed while it runs may be put; all hosts see it.
    pub scratch: PathBuf,
    /// Where workers call.
    pub listener: &'a TcpListener,
    /// What they must know.
    pub token: String,
    /// Set from outside to end the study after Ctrl-C.
    pub stop: &'a AtomicBool,
}

/// Why a run gave no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// Something failed.
    #[error("scenario {scenario}, {io_nodes} I/O nodes, repetition {repetition}: {error}")]
    Failed {
        /// Which scenario.
        scenario: String,
        /// With how many I/O nodes.
        io_nodes: u32,
        /// Which repetition.
        repetition: u32,
        /// What failed.
        error: io::Error,
    },
}

impl Study<'_> {
    /// Carries out one run on `machine`. Whatever it started and wrote is gone afterwards.
    pub fn run(
        &self,
        scenario: &Scenario,
        run: Run,
        number: u64,
        machine: &mut dyn Machine,
    ) -> Result<RunRecord, RunError> {
        let Run { io_nodes, repetition, .. } = run;
        let failed =
            |error| RunError::Failed { scenario: scenario.name.clone(), io_nodes, repetition, error };
        let claims = Claims::of(std::slice::from_ref(scenario), &self.root);
        claims.refuse_existing().map_err(|e| failed(io::Error::other(e)))?;
        let left = claims.clone();
        forebay_embed::before_exit(REMOVAL, move || left.remove());
        // The nodes leave their statistics there at their end: it goes after them.
        let scratch = RunDir::create(&self.scratch);
        let outcome = match &scratch {
            Ok(dir) => self.run_inner(scenario, run, number, machine, dir.path()),
            Err(e) => Err(io::Error::other(e.to_string())),
        };
        let interrupted = self.stop.load(Ordering::Relaxed);
        if interrupted {
            machine.kill_all()
        } else {
            machine.end_all()
        }
        claims.remove();
        // What comes into being from now on is somebody else's.
        forebay_embed::before_exit(REMOVAL, || {});
        outcome.map_err(|error| if interrupted { RunError::Interrupted } else { failed(error) })
    }

    fn run_inner(
        &self,
        scenario: &Scenario,
        run: Run,
        number: u64,
        machine: &mut dyn Machine,
        scratch: &Path,
    ) -> io::Result<RunRecord> {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        let nodes = match (run.io_nodes, &self.standing) {
            (0, _) => None,
            (n, Some(standing)) => Some(Nodes::standing(standing, n, &self.root)),
            (n, None) => Some(Nodes::start(machine, n, &self.root, scenario, scratch, self.stop)?),
        };
        let before = match (&nodes, &self.standing) {
            (Some(nodes), Some(_)) => nodes.statistics()?,
            _ => Vec::new(),
        };
        let mut slot = 0;
        let mut tasks: Vec<Vec<Task>> = Vec::new();
        for job in &scenario.jobs {
            let mut of_job = Vec::new();
            for rank in 0..job.processes() {
                let (access, env) = self.access(
                    nodes.as_ref(),
                    &job.name,
                    rank / job.processes_per_node,
                    job.compute_nodes,
                    scratch,
                )?;
                if self.stop.load(Ordering::Relaxed) {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                self.start_worker(machine, number, slot, env)?;
                slot += 1;
                let root = self.root.to_string_lossy().into_owned();
                of_job.push(Task { job: job.clone(), rank, seed: scenario.seed, root, access });
            }
            tasks.push(of_job);
        }
        let mut workers =
            conductor::assemble(self.listener, &self.token, number, slot, machine, self.stop)?.into_iter();
        let jobs = tasks
            .into_iter()
            .map(|t| {
                let n = t.len();
                (t, workers.by_ref().take(n).collect())
            })
            .collect();
        let outcomes = conductor::conduct(jobs, self.stop)?;
        let steps = scenario
            .jobs
            .iter()
            .zip(&outcomes)
            .flat_map(|(j, o)| record::step_records(scenario, j, o))
            .collect();
        let node_statistics = nodes.as_ref().map(Nodes::statistics).transpose()?.unwrap_or_default();
        // Nodes that were there before have counted other things too: the record has both states.
        let node_statistics = if before.is_empty() {
            node_statistics
        } else {
            before
                .into_iter()
                .zip(node_statistics)
                .map(|(b, a)| serde_json::json!({ "before": b, "after": a }))
                .collect()
        };
        Ok(RunRecord {
            scenario: scenario.name.clone(),
            io_nodes: run.io_nodes,
            repetition: run.repetition,
            started,
            via: match (run.io_nodes, &self.via) {
                (0, _) => "direct",
                (_, Via::Client) => "client",
                (_, Via::Preload(_)) => "preload",
            },
            scheduler: scenario.scheduler.clone(),
            steps,
            node_statistics,
        })
    }

    /// How the processes of a compute node reach the files, and the environment they need for it.
    fn access(
        &self,
        nodes: Option<&Nodes>,
        job: &str,
        compute_node: u32,
        of: u32,
        scratch: &Path,
    ) -> io::Result<(Access, Vec<(String, String)>)> {
        let Some(nodes) = nodes else { return Ok((Access::Posix, Vec::new())) };
        let config = nodes.client_config(job, compute_node, of);
        match &self.via {
            Via::Client => Ok((Access::Client(config), Vec::new())),
            Via::Preload(library) => {
                let file = scratch.join(format!("{job}-{compute_node}.json"));
                let json = serde_json::to_vec(&config)?;
                // Processes that could not use it would not be forwarded.
                forebay_client::Config::from_json(&json).map_err(io::Error::other)?;
                std::fs::write(&file, json)?;
                let text = |p: &Path| p.to_string_lossy().into_owned();
                let env = vec![("LD_PRELOAD".into(), text(library)), ("FOREBAY_CONFIG".into(), text(&file))];
                Ok((Access::Posix, env))
            }
        }
    }

    fn start_worker(
        &self,
        machine: &mut dyn Machine,
        run: u64,
        slot: u32,
        mut env: Vec<(String, String)>,
    ) -> io::Result<()> {
        let port = self.listener.local_addr()?.port();
        let place = Role::Client(slot);
        let conductor = machine.conductor(place, port).to_string();
        let args = [
            "explore-worker",
            "--connect",
            &conductor,
            "--run",
            &run.to_string(),
            "--slot",
            &slot.to_string(),
        ]
        .map(String::from);
        env.push((TOKEN_VARIABLE.into(), self.token.clone()));
        machine.start(place, &args, &env)?;
        Ok(())
    }
}
