//! Months of jobs on a large machine: not requests but rates. Jobs compute and do I/O in phases; an I/O
//! node's time is shared among the streams on it, and rates change only when a stream begins or ends.
//! A job's compute nodes reach the file system by a fixed map, round robin, or as DFRA decides.
//!
//! | module | what lives there |
//! |---|---|
//! | [`behaviour`] | what jobs there are, drawn without regard to any policy |
//! | [`place`] | compute nodes, and the fixed maps from them to I/O nodes |
//! | `forwarding` | how an I/O node's time is shared |
//! | `run` | the event loop |

pub mod behaviour;
mod forwarding;
pub mod place;
mod run;

use crate::stats::Summary;
use crate::taihulight::Screening;
use behaviour::{Population, Submitted};
use forebay_policy::PolicyError;
use forebay_policy::dfra::DfraConfig;
use forebay_types::NodeId;
use place::FixedMap;
use serde::Serialize;
use std::time::{Duration, Instant};

/// What an I/O node can do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct IoNodeModel {
    /// Bytes a second of large requests. The DFRA paper's: 2.5 GB/s.
    pub bandwidth: f64,
    /// Requests a second of small ones. The paper saw 80,000 of less than 1 KB.
    pub requests: f64,
    /// Metadata operations a second: 200 are 0.4 of it, says the paper.
    pub metadata_peak: f64,
    /// The most of an I/O node's time that metadata takes: it goes first, but not alone. Assumed.
    pub metadata_most: f64,
    /// How many times as long a request to a file that all processes share holds its thread. Assumed.
    pub shared_file: f64,
}

/// The machine.
#[derive(Clone, Debug, PartialEq)]
pub struct LargeMachine {
    /// Compute nodes.
    pub compute_nodes: u32,
    /// All I/O nodes.
    pub io_nodes: u32,
    /// The default map.
    pub default: FixedMap,
    /// Of each.
    pub io_node: IoNodeModel,
    /// Bytes a second that a compute node can do at most.
    pub compute_node_peak: f64,
    /// I/O nodes that are slow: the part of their time that is of use.
    pub slow: Vec<(NodeId, f64)>,
}

impl LargeMachine {
    /// TaihuLight as the DFRA paper describes it.
    pub fn taihulight() -> LargeMachine {
        LargeMachine {
            compute_nodes: 40_960,
            io_nodes: 240,
            default: FixedMap { group: 512, io_nodes: 80 },
            io_node: IoNodeModel {
                bandwidth: 2.5e9,
                requests: 80_000.0,
                metadata_peak: 500.0,
                metadata_most: 0.95,
                shared_file: 10.0,
            },
            compute_node_peak: 80e6,
            slow: Vec::new(),
        }
    }
}

/// How compute nodes find their I/O nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum Mapping {
    /// The default map, whoever runs there (FFM).
    Fixed,
    /// Groups of so many compute nodes in turn over all I/O nodes.
    RoundRobin(u32),
    /// The default map, and what DFRA grants beside it.
    Dfra(DfraConfig),
}

/// How one job fared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Fared {
    /// When it got its compute nodes, seconds.
    pub start: f64,
    /// When it ended.
    pub end: f64,
    /// How long it did I/O.
    pub io_seconds: f64,
    /// I/O nodes.
    pub io_nodes: u32,
    /// Whether for itself.
    pub dedicated: bool,
    /// Whether it shared one with another job when it started.
    pub shared: bool,
}

/// What came out.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Month {
    /// Table 4.
    pub screening: Screening,
    /// The node hours of those who benefit, of all.
    pub benefit_node_hours: f64,
    /// The part of all jobs whose mode and volume the run before at the same scale predicted.
    pub predicted: f64,
    /// Jobs given more I/O nodes than by default.
    pub scaled: u32,
    /// Jobs given the default number for themselves.
    pub isolated: u32,
    /// Jobs that were to be scaled or isolated when there were too few.
    pub short: u32,
    /// Jobs that were given fewer than they could use.
    pub cut: u32,
    /// Dedicated I/O nodes, in the mean over time, and at most.
    pub dedicated_mean: f64,
    /// See `dedicated_mean`.
    pub dedicated_most: u32,
    /// Default I/O nodes with a job on them, in the mean over time.
    pub default_mean: f64,
    /// Compute nodes in use, of all, in the mean over time.
    pub utilisation: f64,
    /// Of the jobs on at least 512 compute nodes, the part that shared an I/O node.
    pub large_shared: f64,
    /// Hours from submission to start.
    pub waited_hours: Summary,
    /// Rates that were worked out.
    pub events: u64,
    /// The jobs, in order of submission.
    #[serde(skip)]
    pub jobs: Vec<Fared>,
}

/// Runs the jobs on the machine.
pub fn run(machine: &LargeMachine, mapping: &Mapping, jobs: &[Submitted]) -> Result<Month, PolicyError> {
    run::Run::new(machine, mapping, jobs)?.run()
}

/// How many times as fast the I/O of jobs was in `other` as in `base`, job by job: the summary, and the
/// geometric mean. Of those that `of` holds for.
pub fn speedup(base: &Month, other: &Month, of: fn(&Fared) -> bool) -> (Summary, f64) {
    let both = base.jobs.iter().zip(&other.jobs).filter(|(_, b)| of(b) && b.io_seconds > 0.0);
    let ratios: Vec<f64> = both.map(|(a, b)| a.io_seconds / b.io_seconds).collect();
    let mean = ratios.iter().map(|r| r.max(1e-9).ln()).sum::<f64>() / (ratios.len() as f64).max(1.0);
    (Summary::of(ratios), mean.exp())
}

/// The same jobs on TaihuLight under three mappings.
pub struct Compared {
    /// Over how long.
    pub days: f64,
    /// Which jobs were drawn.
    pub seed: u64,
    /// They.
    pub jobs: Vec<Submitted>,
    /// Under the fixed map.
    pub fixed: Month,
    /// Round robin, 32 compute nodes to an I/O node.
    pub round_robin: Month,
    /// Under DFRA.
    pub dfra: Month,
    /// What the simulation took.
    pub took: Duration,
}

impl Compared {
    /// Draws the jobs and runs them.
    pub fn of(days: f64, seed: u64) -> Result<Compared, PolicyError> {
        let began = Instant::now();
        let jobs = Population::default().draw(days, seed);
        let machine = LargeMachine::taihulight();
        let fixed = run(&machine, &Mapping::Fixed, &jobs)?;
        let round_robin = run(&machine, &Mapping::RoundRobin(32), &jobs)?;
        let dfra = run(&machine, &Mapping::Dfra(DfraConfig::default()), &jobs)?;
        Ok(Compared { days, seed, jobs, fixed, round_robin, dfra, took: began.elapsed() })
    }

    /// How many times as fast I/O was as under the fixed map: of the jobs that DFRA gave I/O nodes of their own, of all
    /// jobs under DFRA, and of all round robin.
    pub fn speedups(&self) -> [(Summary, f64); 3] {
        [
            speedup(&self.fixed, &self.dfra, |f| f.dedicated),
            speedup(&self.fixed, &self.dfra, |_| true),
            speedup(&self.fixed, &self.round_robin, |_| true),
        ]
    }

    /// For programs.
    pub fn to_json(&self) -> serde_json::Value {
        let [dedicated, all, round_robin] = self.speedups();
        serde_json::json!({
            "jobs": self.jobs.len(), "days": self.days, "seed": self.seed, "seconds": self.took.as_secs_f64(),
            "ffm": self.fixed, "round_robin": self.round_robin, "dfra": self.dfra,
            "dfra_speedup_of_dedicated": dedicated,
            "dfra_speedup_of_all": all,
            "round_robin_speedup_of_all": round_robin,
        })
    }
}
