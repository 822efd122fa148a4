//! DFRA's rules and their thresholds: who may be scaled up, and who disturbs whom.

use super::history::IoProfile;
use crate::job::{Job, Pool};
use crate::policy::PolicyError;
use forebay_types::IoMode;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The thresholds, with TaihuLight's as defaults.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DfraConfig {
    /// V_min: bytes below which a job is not worth remapping.
    pub min_bytes: u64,
    /// N_min: compute nodes doing I/O below which a job lacks the parallelism; unset, it is F.
    pub min_io_compute_nodes: Option<u32>,
    /// W_metadata: waiting metadata operations from which a job is bound by the metadata server.
    pub max_metadata_waiting: f64,
    /// B_f: peak bandwidth of an I/O node, MB/s.
    pub io_node_peak_mbs: f64,
    /// B_c: peak bandwidth of a compute node, MB/s.
    pub compute_node_peak_mbs: f64,
    /// The part of an I/O node's peak bandwidth from which a job is called high-bandwidth.
    pub high_bandwidth: f64,
    /// Data operations a second from which a job is called high-IOPS.
    pub high_iops: f64,
    /// Metadata operations a second from which a job is called metadata-heavy.
    pub high_metadata_rate: f64,
    /// Compute nodes per I/O node in the default mapping; unset, it is what STATIC divides by.
    pub compute_per_io_node: Option<u32>,
    /// I/O nodes with a number below this are the default pool, all others the reserve: dedicated I/O nodes
    /// come from the reserve only, and no job's default is there. Unset, any idle I/O node can be dedicated.
    pub default_io_nodes: Option<u32>,
    /// `false`: no job is ever given other I/O nodes than by default; the baseline.
    pub remap: bool,
    /// A job that did no I/O for so long, by what its I/O nodes report, disturbs nobody.
    pub quiet_seconds: f64,
}

impl Default for DfraConfig {
    fn default() -> DfraConfig {
        DfraConfig {
            min_bytes: 20_000_000_000,
            min_io_compute_nodes: None,
            max_metadata_waiting: 32.0,
            io_node_peak_mbs: 2500.0,
            // The paper gives F = 32 and B_f; this is the B_c that follows.
            compute_node_peak_mbs: 80.0,
            high_bandwidth: 0.4,
            high_iops: 10_000.0,
            high_metadata_rate: 200.0,
            compute_per_io_node: None,
            default_io_nodes: None,
            remap: true,
            quiet_seconds: 60.0,
        }
    }
}

/// Why a job keeps its default: the first test that it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// No earlier run to judge by.
    NoHistory,
    /// Too few bytes.
    Volume,
    /// Too few compute nodes doing I/O.
    Parallelism,
    /// Bound by the metadata server.
    Metadata,
    /// It could use no more I/O nodes than it has by default.
    DefaultSuffices,
    /// The default holds for everybody.
    Fixed,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::NoHistory => "no earlier run of this application at this scale",
            Refusal::Volume => "too little I/O to be worth a move",
            Refusal::Parallelism => "too few of its compute nodes do I/O",
            Refusal::Metadata => "its bottleneck is the metadata server",
            Refusal::DefaultSuffices => "it could not use more",
            Refusal::Fixed => "nobody is remapped here",
        })
    }
}

/// Why two jobs should not share an I/O node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// One uses a shared file, which floods the I/O node's threads.
    SharedFile,
    /// One is metadata-heavy.
    Metadata,
    /// One takes a large part of the I/O node's bandwidth.
    Bandwidth,
    /// One makes very many requests.
    Iops,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::SharedFile => "it or a neighbour writes N-1",
            Cause::Metadata => "it or a neighbour is metadata-heavy",
            Cause::Bandwidth => "it or a neighbour is high-bandwidth",
            Cause::Iops => "it or a neighbour is high-IOPS",
        })
    }
}

impl DfraConfig {
    pub(crate) fn check(&self) -> Result<(), PolicyError> {
        let positive = [
            ("io_node_peak_mbs", self.io_node_peak_mbs),
            ("compute_node_peak_mbs", self.compute_node_peak_mbs),
            ("max_metadata_waiting", self.max_metadata_waiting),
            ("high_bandwidth", self.high_bandwidth),
            ("high_iops", self.high_iops),
            ("high_metadata_rate", self.high_metadata_rate),
            ("quiet_seconds", self.quiet_seconds),
        ];
        let at_least_1 = [
            ("compute_per_io_node", self.compute_per_io_node),
            ("default_io_nodes", self.default_io_nodes),
            ("min_io_compute_nodes", self.min_io_compute_nodes),
        ];
        let numbers = at_least_1.into_iter().filter_map(|(name, n)| Some((name, f64::from(n?))));
        match positive.into_iter().chain(numbers).find(|(_, v)| !(v.is_finite() && *v > 0.0)) {
            Some((name, v)) => Err(PolicyError::Settings(format!("dfra: {name} = {v} is not above 0"))),
            None => Ok(()),
        }
    }

    /// F: how many compute nodes at their peak one I/O node can serve.
    pub fn scaling_factor(&self) -> u32 {
        ((self.io_node_peak_mbs / self.compute_node_peak_mbs).ceil() as u32).max(1)
    }

    /// How many I/O nodes a job can use, or the first test that it failed.
    pub fn eligible(&self, history: Option<&IoProfile>) -> Result<u32, Refusal> {
        let f = self.scaling_factor();
        let history = history.ok_or(Refusal::NoHistory)?;
        if history.bytes < self.min_bytes {
            Err(Refusal::Volume)
        } else if history.io_compute_nodes < self.min_io_compute_nodes.unwrap_or(f) {
            Err(Refusal::Parallelism)
        } else if history.metadata_waiting >= self.max_metadata_waiting {
            Err(Refusal::Metadata)
        } else {
            Ok(history.io_compute_nodes.div_ceil(f))
        }
    }

    /// What makes a job a bad neighbour, if anything does.
    fn demanding(&self, p: &IoProfile) -> Option<Cause> {
        if p.mode == IoMode::NTo1 {
            Some(Cause::SharedFile)
        } else if p.metadata_waiting > self.max_metadata_waiting || p.metadata_rate >= self.high_metadata_rate
        {
            Some(Cause::Metadata)
        } else if p.bandwidth_mbs >= self.high_bandwidth * self.io_node_peak_mbs {
            Some(Cause::Bandwidth)
        } else if p.iops >= self.high_iops {
            Some(Cause::Iops)
        } else {
            None
        }
    }

    /// Whether a job (by its history) and a running neighbour would disturb each other. What the
    /// neighbour does now overrules what it did: a silent one disturbs nobody and is not disturbed,
    /// one that does more than it used to is taken by its peak so far.
    pub fn interference(
        &self,
        job: &IoProfile,
        neighbour: Option<&IoProfile>,
        live: Option<&IoProfile>,
    ) -> Option<Cause> {
        if live.is_some_and(IoProfile::silent) {
            return None;
        }
        let of_neighbour =
            || live.and_then(|p| self.demanding(p)).or_else(|| neighbour.and_then(|p| self.demanding(p)));
        self.demanding(job).or_else(of_neighbour)
    }

    /// Compute nodes per I/O node in the default mapping.
    pub(super) fn ratio(&self, jobs: &[Job], pool: &Pool) -> f64 {
        match (self.compute_per_io_node, pool.compute_nodes) {
            (Some(ratio), _) => f64::from(ratio.max(1)),
            (None, machine) => {
                let running = || jobs.iter().map(|j| f64::from(j.compute_nodes)).sum::<f64>();
                (machine.map_or_else(running, f64::from) / f64::from(pool.available().max(1))).max(1.0)
            }
        }
    }

    /// I/O nodes a job has by default.
    pub(super) fn default_count(&self, job: &Job, ratio: f64, pool: &Pool) -> u32 {
        let exact = f64::from(job.compute_nodes) / ratio;
        // A fixed mapping touches every I/O node that one of the job's compute nodes belongs to; the
        // STATIC default rounds, and only to counts that the job may have.
        let count = match self.compute_per_io_node {
            Some(_) => exact.ceil() as u32,
            None if !job.default_nodes.is_empty() => job.default_nodes.len() as u32,
            None => job.round_down((exact.round() as u32).clamp(1, pool.available().max(1))),
        };
        count.clamp(1, pool.available().max(1))
    }
}
