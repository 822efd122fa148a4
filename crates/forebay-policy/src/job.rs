//! What a policy is handed: the running jobs and the pool of I/O nodes.

use crate::curve::BandwidthCurve;
use crate::dfra::IoProfile;
use forebay_types::{Bandwidth, Nanos, NodeId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What a running job holds now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Current {
    /// How many I/O nodes the job was granted; 0 is direct access or, with `shared`, one with others.
    pub io_nodes: u32,
    /// Whether the job uses an I/O node set aside for sharing.
    #[serde(default)]
    pub shared: bool,
    /// Whether DFRA gave it these I/O nodes for itself.
    #[serde(default)]
    pub dedicated: bool,
    /// Which I/O nodes those are, where the caller knows.
    #[serde(default)]
    pub nodes: Vec<NodeId>,
}

/// How far a running job is with its I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Since it started, or started its I/O.
    pub elapsed: Nanos,
    /// Bytes read and written so far.
    pub served_bytes: u64,
    /// Bytes it will have read and written in the end, where its history tells.
    pub volume_bytes: Option<u64>,
}

/// One job that runs or is about to.
#[derive(Clone, Debug)]
pub struct Job {
    /// The job's name, unique among the jobs of one decision.
    pub id: String,
    /// The application, for the history.
    pub app: String,
    /// Whose it is, for the history.
    pub user: String,
    /// Compute nodes it runs on; at least 1.
    pub compute_nodes: u32,
    /// Processes it runs.
    pub processes: u32,
    /// Its bandwidth by I/O nodes; `None` if nothing is known, and then it gets the default (STATIC).
    pub curve: Option<Arc<BandwidthCurve>>,
    /// What a MB/s of this job counts against one of another. Only fair MCKP looks at it.
    pub weight: f64,
    /// What it holds now; `None` before its first decision.
    pub current: Option<Current>,
    /// How far it is; with it, fair MCKP's promise is about the whole run instead of every moment.
    pub progress: Option<Progress>,
    /// The I/O nodes that its compute nodes belong to, where the machine has a fixed map of them. Only
    /// DFRA looks at it.
    pub default_nodes: Vec<NodeId>,
    /// What the latest run of the same application at this scale did. Only DFRA looks at it.
    pub history: Option<IoProfile>,
    /// The peak of what this run has done so far. Only DFRA looks at it, to judge a neighbour.
    pub live: Option<IoProfile>,
    /// Whether it may go to the file system directly, where the pool allows that.
    pub direct: bool,
    /// Live reports say that it does no I/O now. Only DFRA looks at it, for the same.
    pub quiet: bool,
}

impl Job {
    /// A job of weight 1 that holds nothing yet and of which nothing more is known.
    pub fn new(id: impl Into<String>, compute_nodes: u32, processes: u32) -> Job {
        Job {
            id: id.into(),
            app: String::new(),
            user: String::new(),
            compute_nodes,
            processes,
            curve: None,
            weight: 1.0,
            current: None,
            progress: None,
            default_nodes: Vec::new(),
            history: None,
            live: None,
            direct: true,
            quiet: false,
        }
    }

    /// The same with a curve.
    pub fn with_curve(self, curve: impl Into<Arc<BandwidthCurve>>) -> Job {
        Job { curve: Some(curve.into()), ..self }
    }

    /// What the curve says of this count.
    pub fn bandwidth(&self, io_nodes: u32) -> Option<Bandwidth> {
        self.curve.as_ref()?.at(io_nodes)
    }

    /// Whether the job can be spread evenly over so many I/O nodes; direct access always can.
    pub fn divides(&self, io_nodes: u32) -> bool {
        io_nodes == 0 || self.compute_nodes.is_multiple_of(io_nodes)
    }

    /// The largest count up to `io_nodes` (at least 1) that the job may have: one that divides its
    /// compute nodes, and a measured one where there is such.
    pub(crate) fn round_down(&self, io_nodes: u32) -> u32 {
        let points = self.curve.as_ref().map_or(&[][..], |c| c.points());
        let mut measured = points.iter().rev().map(|p| p.io_nodes);
        measured.find(|&n| n > 0 && n <= io_nodes && self.divides(n)).unwrap_or_else(|| {
            let most = io_nodes.clamp(1, self.compute_nodes.max(1));
            (1..=most).rev().find(|&n| self.divides(n)).unwrap_or(1)
        })
    }

    /// Whether direct access is a choice: it may, and nothing is known of it, or 0 is on its curve.
    pub(crate) fn knows_direct(&self) -> bool {
        self.direct && self.curve.as_ref().is_none_or(|c| c.at(0).is_some())
    }
}

/// One I/O node of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoNode {
    /// Which.
    pub id: NodeId,
    /// Whether jobs may be put on it: `false` while it is down, fail-slow or drained.
    pub admitted: bool,
}

/// When I/O nodes may be set aside for jobs that share them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SharingRule {
    /// Only when the jobs cannot all have one of their own.
    #[default]
    Needed,
    /// Also when it raises the total.
    Better,
}

/// The I/O nodes there are, and the rules of the machine.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// All I/O nodes, also those not admitted.
    pub nodes: Vec<IoNode>,
    /// Compute nodes of the whole machine, over which STATIC divides the I/O nodes; `None` divides
    /// over those of the jobs given.
    pub compute_nodes: Option<u32>,
    /// Whether a job may go to the file system directly (0 I/O nodes).
    pub direct: bool,
    /// When jobs may share.
    pub sharing: SharingRule,
}

impl Pool {
    /// A pool of `n` admitted I/O nodes, numbered from 0, with direct access allowed.
    pub fn of(n: u32) -> Pool {
        Pool {
            nodes: (0..n).map(|i| IoNode { id: NodeId(i), admitted: true }).collect(),
            direct: true,
            ..Pool::default()
        }
    }

    /// How many I/O nodes there are to give.
    pub fn available(&self) -> u32 {
        self.nodes.iter().filter(|n| n.admitted).count() as u32
    }

    /// The admitted I/O nodes.
    pub fn admitted(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.iter().filter(|n| n.admitted).map(|n| n.id)
    }
}
