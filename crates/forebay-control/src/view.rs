//! What the arbiter shows of itself: the answers to `GET`, as JSON. No secret is in any of them.

use crate::node::Term;
use forebay_types::{Epoch, JobBlame, Nanos, NodeId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `GET /v1/jobs`: a list of these. `GET /v1/jobs/ID`: one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobView {
    /// Its name.
    pub id: String,
    /// The application.
    pub app: String,
    /// Whose it is.
    pub user: String,
    /// On whose account it runs; empty if nobody said.
    #[serde(default)]
    pub account: String,
    /// Compute nodes it runs on.
    pub compute_nodes: u32,
    /// Their names; none if nobody said.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Processes it runs.
    pub processes: u32,
    /// What a MB/s of it counts.
    pub weight: u32,
    /// Milliseconds since it registered.
    pub age_ms: u64,
    /// Milliseconds until it is taken for dead, unless it renews its lease.
    pub lease_ms: u64,
    /// The version of its mapping.
    pub epoch: Epoch,
    /// Its I/O nodes.
    pub nodes: Vec<NodeId>,
    /// Whether it uses an I/O node that is set aside for sharing.
    pub shared: bool,
    /// MB/s in the last second.
    pub bandwidth_mbs: f64,
    /// Requests in the last second, of data and of metadata.
    #[serde(default)]
    pub operations: f64,
    /// Which part of that second it had requests at the busiest of its I/O nodes that no limit held back.
    #[serde(default)]
    pub busy: f64,
    /// Which part of that second a limit held requests back.
    #[serde(default)]
    pub limited: f64,
    /// Median time its I/O nodes took for a read or a write in that second.
    #[serde(default)]
    pub latency_p50: Nanos,
    /// The 99th percentile.
    #[serde(default)]
    pub latency_p99: Nanos,
    /// MB/s that were predicted when its I/O nodes were chosen.
    pub predicted_mbs: Option<f64>,
    /// Where its bandwidth curve comes from, in a few words.
    pub curve: Option<String>,
    /// The access pattern of late.
    pub pattern: Option<String>,
    /// Bytes it has moved.
    pub bytes: u64,
    /// Whether it may be more: what I/O nodes did while no arbiter heard them is counted by nobody.
    #[serde(default)]
    pub bytes_at_least: bool,
    /// Whether it does its I/O itself, as the policy wanted.
    #[serde(default)]
    pub direct: bool,
    /// The I/O nodes that an admin wants it on; none leaves it to the policy.
    #[serde(default)]
    pub pinned: Vec<NodeId>,
    /// Why it has those I/O nodes, in one sentence.
    pub reason: String,
}

/// How an I/O node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// Jobs are given to it.
    Admitted,
    /// It was screened out: no new jobs, and its jobs are moved.
    Screened,
    /// It ends, and its jobs are moved.
    Draining,
    /// Its connection broke a moment ago, or the arbiter has just started: it may be back soon.
    Awaited,
    /// It has ended, as it was asked to or said it would.
    Drained,
    /// It is gone.
    Lost,
}

impl NodeState {
    /// Every one.
    pub const ALL: [NodeState; 6] = [
        NodeState::Admitted,
        NodeState::Screened,
        NodeState::Draining,
        NodeState::Awaited,
        NodeState::Drained,
        NodeState::Lost,
    ];

    /// Nobody is there any more.
    pub const fn is_gone(self) -> bool {
        matches!(self, NodeState::Drained | NodeState::Lost)
    }

    /// In one word.
    pub const fn name(self) -> &'static str {
        match self {
            NodeState::Admitted => "admitted",
            NodeState::Screened => "screened",
            NodeState::Draining => "draining",
            NodeState::Awaited => "awaited",
            NodeState::Drained => "drained",
            NodeState::Lost => "lost",
        }
    }
}

/// `GET /v1/nodes`: a list of these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeView {
    /// Its number.
    pub id: NodeId,
    /// The machine.
    pub host: String,
    /// Where clients reach it.
    pub addresses: Vec<String>,
    /// How it stands.
    pub state: NodeState,
    /// Why, where that is not plain.
    pub reason: Option<String>,
    /// What the screening thinks of it; nothing before it came to this arbiter.
    pub health: Option<VerdictView>,
    /// The jobs that are on it.
    pub jobs: Vec<String>,
    /// MB/s in its last interval.
    pub bandwidth_mbs: f64,
    /// Requests that waited at the end of its last interval.
    pub waiting: u64,
    /// Median latency in its last interval.
    pub latency_p50: Nanos,
    /// The 99th percentile.
    pub latency_p99: Nanos,
    /// Storage errors in its last interval.
    pub errors: u64,
    /// Open connections.
    pub connections: u64,
    /// Milliseconds since it was last heard of.
    pub heard_ms: u64,
    /// The scheduler it reported last.
    pub scheduler: Option<String>,
}

/// What the health screening thinks of an I/O node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerdictView {
    /// `healthy`, `suspect`, `slow`, `lost` or `drained`.
    pub state: String,
    /// For so many milliseconds.
    pub since_ms: u64,
    /// Why, in a sentence with the numbers.
    pub reason: String,
}

/// `GET /v1/mapping`: where the clients of all jobs belong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MappingView {
    /// The arbiter's term.
    pub term: Term,
    /// The newest epoch of any job, ever.
    pub epoch: Epoch,
    /// The jobs.
    pub jobs: Vec<JobPlace>,
}

/// One job's place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobPlace {
    /// The job.
    pub job: String,
    /// Its compute nodes, where they are known; blocks of neighbours share an I/O node.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// The version of its mapping.
    pub epoch: Epoch,
    /// Its I/O nodes.
    pub nodes: Vec<NodeId>,
    /// Their addresses, in the same order.
    pub addresses: Vec<String>,
    /// Where the site has a fixed map: by host, the one that serves it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fixed: BTreeMap<String, NodeId>,
}

/// `GET /v1/decisions`: a list of these, the newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionView {
    /// Counts up for as long as the database lives.
    pub id: u64,
    /// When, in milliseconds since 1970.
    pub unix_ms: u64,
    /// Who decided.
    pub term: Term,
    /// The policy's name.
    pub policy: String,
    /// What made the arbiter decide.
    pub cause: String,
    /// I/O nodes there were to give.
    pub io_nodes: u32,
    /// The sum of the predicted bandwidths, MB/s, as far as they are known.
    pub total_mbs: f64,
    /// What it took to decide, in microseconds.
    pub took_us: u64,
    /// The jobs.
    pub jobs: Vec<DecidedJob>,
}

/// What was decided for one job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecidedJob {
    /// The job.
    pub id: String,
    /// The I/O nodes it has from now on.
    pub nodes: Vec<NodeId>,
    /// Those it had before.
    pub before: Vec<NodeId>,
    /// Whether it shares an I/O node that is set aside for that.
    pub shared: bool,
    /// Predicted MB/s.
    pub predicted_mbs: Option<f64>,
    /// How many STATIC would have given it.
    pub static_io_nodes: u32,
    /// Predicted MB/s above STATIC's.
    pub gain_mbs: Option<f64>,
    /// The other counts it could have had, and the MB/s of each.
    pub alternatives: Vec<(u32, f64)>,
    /// Where its curve comes from.
    pub curve: Option<String>,
    /// Why, in one sentence.
    pub why: String,
}

/// `GET /v1/history`: a list of these, the oldest first. What one job did on one I/O node in a
/// second, a minute or an hour.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HistoryRow {
    /// The start, in seconds since 1970.
    pub time: u64,
    /// How long it lasted: 1, 60 or 3600 seconds.
    pub seconds: u32,
    /// The job.
    pub job: String,
    /// The I/O node.
    pub node: NodeId,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Metadata requests.
    pub metadata: u64,
    /// Requests waiting or in service, in the mean of the busy time.
    pub queue: f64,
    /// Smallest data request.
    pub size_min: u64,
    /// Mean data request.
    pub size_mean: f64,
    /// Largest data request.
    pub size_max: u64,
    /// Files in use at once, at most.
    pub files: u32,
    /// The I/O mode (`N-N`, `N-1`, `1-1`); the one of most bytes. Empty without data requests.
    pub mode: String,
}

/// `GET /v1/history/jobs`: a list of these, the latest first. Jobs of one name are told apart by when they began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastJob {
    /// Its name.
    pub job: String,
    /// When it began, in milliseconds since 1970.
    #[serde(default)]
    pub began_unix_ms: u64,
    /// When it was first seen at work, in seconds since 1970.
    pub first: u64,
    /// When it was last seen at work.
    pub last: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
}

/// `GET /v1/health`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HealthView {
    /// `leading`, or `standby` while another arbiter leads.
    pub state: String,
    /// The program's version.
    pub version: String,
    /// The arbiter's term; 0 on standby.
    pub term: Term,
    /// The policy's name.
    pub policy: String,
    /// Jobs that run.
    pub jobs: usize,
    /// I/O nodes that jobs are given to.
    pub admitted: usize,
    /// I/O nodes that are known.
    pub nodes: usize,
    /// Milliseconds since the arbiter began to lead.
    pub up_ms: u64,
    /// Rows of history that were dropped because the database could not keep up.
    pub history_dropped: u64,
    /// Where the arbiter that leads is, while this one stands by and knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// Who wants to be an I/O node here and may not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedView>,
}

/// An I/O node that is not let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedView {
    /// The number it gave; none if it does not know the secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// The machine it is on, or the address it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Why.
    pub reason: String,
    /// Milliseconds since it last tried.
    pub ago_ms: u64,
}
/// `GET /v1/jobs/ID/blame`: who slowed a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BlameView {
    /// Whether the job is there; of one that has ended, what is remembered of all of its name.
    pub running: bool,
    /// I/O nodes that did not say what they remember, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unheard: Vec<String>,
    /// What the others do.
    #[serde(flatten)]
    pub blame: JobBlame,
}
