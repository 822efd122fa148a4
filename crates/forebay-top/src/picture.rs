//! What is shown: one moment of the arbiter's.

use forebay_control::client::{Client, in_path};
use forebay_control::limit::LimitView;
use forebay_control::node::Term;
use forebay_control::status::Unanswered;
use forebay_control::view::{DecisionView, HealthView, HistoryRow, JobView, NodeState, NodeView};
use forebay_types::{ClientReport, NodeId};
use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

/// Decisions that are shown at most.
const DECISIONS: usize = 20;
/// Of so many seconds of a job a mean is made.
const SECONDS: u64 = 4;

/// One moment.
#[derive(Clone, Debug)]
pub struct Picture {
    /// The arbiter.
    pub health: HealthView,
    /// The jobs.
    pub jobs: Vec<JobView>,
    /// The I/O nodes.
    pub nodes: Vec<NodeView>,
    /// The newest decisions, the newest first.
    pub decisions: Vec<DecisionView>,
    /// The limits.
    pub limits: Vec<LimitView>,
    /// What the job that is looked at does on each of its I/O nodes.
    pub places: Vec<JobOnNode>,
    /// Its ranks, as far as the I/O nodes could be asked for them.
    pub ranks: Vec<ClientReport>,
}

/// Asks I/O nodes, by their addresses, for the ranks of a job: they tell only those who know their secret.
pub type AskRanks = dyn Fn(&str, &[String]) -> Vec<ClientReport> + Send + Sync;

/// What a job did on one I/O node, a second, in the mean of the last few.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct JobOnNode {
    /// The I/O node.
    pub node: NodeId,
    /// Bytes read.
    pub read: f64,
    /// Bytes written.
    pub written: f64,
    /// Reads and writes.
    pub operations: f64,
    /// Metadata operations.
    pub metadata: f64,
    /// Requests waiting or in service while it was busy.
    pub queue: f64,
    /// Files in use at once.
    pub files: u32,
}

impl Picture {
    /// Asks the arbiter; also for one job on each of its I/O nodes.
    pub fn take(arbiter: &Client, job: Option<&str>, ask: Option<&AskRanks>) -> Result<Picture, Unanswered> {
        let places = match job {
            None => Vec::new(),
            Some(job) => {
                let now = UNIX_EPOCH.elapsed().map_or(0, |t| t.as_secs());
                let from = now.saturating_sub(SECONDS + 1);
                let path = format!("/v1/history?job={}&from={from}&limit=10000", in_path(job));
                places(&allowed(arbiter.get::<Vec<HistoryRow>>(&path))?)
            }
        };
        let jobs: Vec<JobView> = arbiter.get("/v1/jobs")?;
        let nodes: Vec<NodeView> = allowed(arbiter.get("/v1/nodes"))?;
        let ranks = match (ask, jobs.iter().find(|j| Some(j.id.as_str()) == job)) {
            (Some(ask), Some(job)) => {
                let own = nodes.iter().filter(|n| job.nodes.contains(&n.id) && n.state != NodeState::Lost);
                let addresses: Vec<String> = own.filter_map(|n| n.addresses.first().cloned()).collect();
                together(ask(&job.id, &addresses))
            }
            _ => Vec::new(),
        };
        Ok(Picture {
            health: arbiter.get("/v1/health")?,
            jobs,
            nodes,
            ranks,
            decisions: allowed(arbiter.get(&format!("/v1/decisions?limit={DECISIONS}")))?,
            limits: allowed(arbiter.limits())?,
            places,
        })
    }

    /// A job of which no arbiter knows.
    pub fn alone(job: JobView, ranks: Vec<ClientReport>) -> Picture {
        Picture {
            health: HealthView {
                state: "no arbiter".to_owned(),
                version: String::new(),
                term: Term::default(),
                policy: String::new(),
                jobs: 1,
                admitted: 0,
                nodes: 0,
                up_ms: 0,
                history_dropped: 0,
                leader: None,
                refused: Vec::new(),
            },
            jobs: vec![job],
            nodes: Vec::new(),
            decisions: Vec::new(),
            limits: Vec::new(),
            places: Vec::new(),
            ranks: together(ranks),
        }
    }

    /// MB/s of all jobs.
    pub fn total(&self) -> f64 {
        // From 0.0, since the sum of nothing is -0.0.
        self.jobs.iter().fold(0.0, |sum, j| sum + j.bandwidth_mbs)
    }

    /// Requests that wait anywhere.
    pub fn waiting(&self) -> u64 {
        self.nodes.iter().map(|n| n.waiting).sum()
    }
}

/// Where the arbiter tells users apart, they see their own jobs, and nothing of what concerns everybody.
fn allowed<T>(answer: Result<Vec<T>, Unanswered>) -> Result<Vec<T>, Unanswered> {
    match answer {
        Err(Unanswered::Refused(_)) => Ok(Vec::new()),
        answer => answer,
    }
}

/// What several I/O nodes know of a rank is one row.
fn together(all: Vec<ClientReport>) -> Vec<ClientReport> {
    let mut by: BTreeMap<(Option<u32>, String), ClientReport> = BTreeMap::new();
    for one in all {
        let row = by.entry((one.rank, one.host.clone())).or_insert_with(|| ClientReport {
            host: one.host.clone(),
            rank: one.rank,
            ..ClientReport::default()
        });
        row.processes = row.processes.max(one.processes);
        row.requests += one.requests;
        row.errors += one.errors;
        row.read += one.read;
        row.written += one.written;
        row.busy_ns += one.busy_ns;
    }
    by.into_values().collect()
}

fn places(rows: &[HistoryRow]) -> Vec<JobOnNode> {
    let mut nodes: BTreeMap<NodeId, Vec<&HistoryRow>> = BTreeMap::new();
    for row in rows {
        nodes.entry(row.node).or_default().push(row);
    }
    let mean = |rows: &[&HistoryRow], of: fn(&HistoryRow) -> f64| {
        rows.iter().map(|r| of(r)).sum::<f64>() / rows.len().max(1) as f64
    };
    let place = |(node, rows): (NodeId, Vec<&HistoryRow>)| JobOnNode {
        node,
        read: mean(&rows, |r| r.bytes_read as f64),
        written: mean(&rows, |r| r.bytes_written as f64),
        operations: mean(&rows, |r| (r.reads + r.writes) as f64),
        metadata: mean(&rows, |r| r.metadata as f64),
        queue: mean(&rows, |r| r.queue),
        files: rows.iter().map(|r| r.files).max().unwrap_or(0),
    };
    nodes.into_iter().map(place).collect()
}
