//! What a policy answers: a count for each job, and why.

use crate::dfra::Conclusion;
use crate::fixed;
use crate::job::{Current, Job, Pool};
use crate::policy::PolicyKind;
use forebay_types::{Bandwidth, Nanos, NodeId};
use serde::Serialize;

/// One decision for all jobs.
#[derive(Clone, Debug)]
pub struct Decision {
    /// Who decided.
    pub policy: PolicyKind,
    /// I/O nodes there were to give.
    pub io_nodes: u32,
    /// The jobs, in the order they were given.
    pub jobs: Vec<JobDecision>,
    /// The sum of the jobs' predicted bandwidths, as far as they are known.
    pub total: Bandwidth,
    /// Fair MCKP: the share of STATIC's bandwidth that every job is left with. Smaller than the one
    /// asked for when the pool does not allow that one.
    pub share: Option<f64>,
    /// Fair MCKP: decide again after so long even if nothing changes, since by then some job has used
    /// up what it can do without.
    pub review: Option<Nanos>,
}

/// What one job gets.
#[derive(Clone, Debug, PartialEq)]
pub struct JobDecision {
    /// I/O nodes of its own; 0 is direct access or, with `shared`, an I/O node shared with others.
    pub io_nodes: u32,
    /// Whether it uses an I/O node set aside for sharing.
    pub shared: bool,
    /// What it should get; `None` if its curve does not say.
    pub bandwidth: Option<Bandwidth>,
    /// Why.
    pub reason: Reason,
    /// Which I/O nodes, where the policy itself chooses them (DFRA).
    pub nodes: Option<Vec<NodeId>>,
}

/// Why a job gets what it gets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// The policy gives everyone the same.
    Same,
    /// By size: `exact` I/O nodes before rounding.
    Proportional {
        /// Of what the size is counted.
        of: &'static str,
        /// The job's part of the pool.
        exact: f64,
    },
    /// STATIC does not touch a running job.
    Kept,
    /// It is the job's best count.
    Best,
    /// Nothing is known of the job: the default.
    Unknown,
    /// The largest total is reached so. The job would have been `short` MB/s faster with `more`
    /// further I/O nodes; without those the other jobs would lose at least `elsewhere`.
    Total {
        /// Further I/O nodes up to the job's best affordable count; 0 if it has that.
        more: u32,
        /// What the job would gain with them, MB/s (weighted, where jobs have weights).
        short: f64,
        /// What they are worth to the others, at least.
        elsewhere: f64,
    },
    /// Fair MCKP: held up by its floor, `floor` MB/s; without it, it would have had less.
    Floor {
        /// The least bandwidth the job is owed.
        floor: f64,
    },
    /// It shares an I/O node with others.
    Shared,
    /// What DFRA concluded.
    Dfra(Conclusion),
}

impl JobDecision {
    /// `io_nodes` of its own, valued by the job's curve.
    pub(crate) fn exclusive(job: &Job, io_nodes: u32, reason: Reason) -> JobDecision {
        JobDecision { io_nodes, shared: false, bandwidth: job.bandwidth(io_nodes), reason, nodes: None }
    }

    /// What the job holds once this decision is in effect on `nodes`: its [`Job::current`] from then.
    pub fn held(&self, nodes: Vec<NodeId>) -> Current {
        let dedicated = matches!(self.reason, Reason::Dfra(conclusion) if conclusion.dedicated());
        Current { io_nodes: self.io_nodes, shared: self.shared, dedicated, nodes }
    }
}

impl Job {
    /// Somebody else has chosen its I/O nodes.
    pub fn pinned_to(&self, nodes: Vec<NodeId>) -> JobDecision {
        let count = nodes.len() as u32;
        JobDecision { nodes: Some(nodes), ..JobDecision::exclusive(self, count, Reason::Kept) }
    }
}

/// Another count the job could have had.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Alternative {
    /// I/O nodes; 0 is direct access.
    pub io_nodes: u32,
    /// What the curve says of it.
    pub bandwidth: Bandwidth,
}

/// A decision for one job with everything that led to it, for a log, an API or a person.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The job.
    pub id: String,
    /// I/O nodes of its own; 0 is direct access or, with `shared`, an I/O node shared with others.
    pub io_nodes: u32,
    /// Whether it uses an I/O node set aside for sharing.
    pub shared: bool,
    /// Predicted MB/s.
    pub bandwidth: Option<Bandwidth>,
    /// Input: compute nodes.
    pub compute_nodes: u32,
    /// Input: processes.
    pub processes: u32,
    /// Input: weight.
    pub weight: f64,
    /// Input: what it held before.
    pub current: Option<Current>,
    /// What STATIC would give it now.
    pub static_io_nodes: u32,
    /// And the bandwidth of that.
    pub static_bandwidth: Option<Bandwidth>,
    /// Predicted MB/s above STATIC's.
    pub gain: Option<f64>,
    /// The other counts on its curve that it may have.
    pub alternatives: Vec<Alternative>,
    /// In a sentence.
    pub why: String,
}

impl Decision {
    pub(crate) fn new(policy: PolicyKind, jobs: &[Job], pool: &Pool, chosen: Vec<JobDecision>) -> Decision {
        debug_assert_eq!(jobs.len(), chosen.len());
        // From 0.0, since the sum of nothing is -0.0.
        let total = chosen.iter().filter_map(|j| j.bandwidth).fold(0.0, |sum, b| sum + b.0);
        Decision {
            policy,
            io_nodes: pool.available(),
            jobs: chosen,
            total: Bandwidth(total),
            share: None,
            review: None,
        }
    }

    /// About no job.
    pub fn nothing(policy: PolicyKind, pool: &Pool) -> Decision {
        Decision::new(policy, &[], pool, Vec::new())
    }

    /// I/O nodes handed out, each shared one counted once. More than [`Decision::io_nodes`] under a
    /// policy that does not mind the pool: then jobs share I/O nodes, and get less than predicted.
    pub fn used(&self) -> u64 {
        let own: u64 = self.jobs.iter().map(|j| u64::from(j.io_nodes)).sum();
        let sharing = self.jobs.iter().filter(|j| j.shared).count() as u64;
        own + sharing.min(u64::from(self.io_nodes).saturating_sub(own).max(1))
    }

    /// Jobs whose bandwidth could not be predicted and is missing from the total.
    pub fn unpredicted(&self) -> usize {
        self.jobs.iter().filter(|j| j.bandwidth.is_none()).count()
    }

    /// The decision with all that led to it, job by job. `jobs` and `pool` are those it was made for.
    pub fn explain(&self, jobs: &[Job], pool: &Pool) -> Vec<Explanation> {
        let defaults = fixed::counts(jobs, pool).unwrap_or_else(|_| vec![0; jobs.len()]);
        let of_job = |((job, chosen), default): ((&Job, &JobDecision), u32)| {
            let points = job.curve.as_ref().map_or(&[][..], |c| c.points());
            let static_bandwidth = job.bandwidth(default);
            Explanation {
                id: job.id.clone(),
                io_nodes: chosen.io_nodes,
                shared: chosen.shared,
                bandwidth: chosen.bandwidth,
                compute_nodes: job.compute_nodes,
                processes: job.processes,
                weight: job.weight,
                current: job.current.clone(),
                static_io_nodes: default,
                static_bandwidth,
                gain: chosen.bandwidth.zip(static_bandwidth).map(|(b, s)| b.0 - s.0),
                alternatives: points
                    .iter()
                    .filter(|p| job.divides(p.io_nodes) && (p.io_nodes > 0 || pool.direct && job.direct))
                    .filter(|p| p.io_nodes != chosen.io_nodes || chosen.shared)
                    .map(|p| Alternative { io_nodes: p.io_nodes, bandwidth: p.bandwidth })
                    .collect(),
                why: self.why(job, chosen),
            }
        };
        jobs.iter().zip(&self.jobs).zip(defaults).map(of_job).collect()
    }

    fn why(&self, job: &Job, chosen: &JobDecision) -> String {
        let pool = self.io_nodes;
        match chosen.reason {
            Reason::Same => format!("{} gives every job the same", self.policy),
            Reason::Proportional { of, exact } => {
                let size = if of == "processes" { job.processes } else { job.compute_nodes };
                format!("{size} {of} are worth {exact:.2} of {pool} I/O nodes")
            }
            Reason::Kept => "running: STATIC leaves it as many as it started with".to_owned(),
            Reason::Best if chosen.io_nodes == 0 => "direct access is its best".to_owned(),
            Reason::Best => "its best count".to_owned(),
            Reason::Unknown if job.curve.is_some() => {
                "no count of its curve divides its compute nodes: the default of STATIC".to_owned()
            }
            Reason::Unknown => "no curve known: the default of STATIC".to_owned(),
            Reason::Total { more: 0, .. } if chosen.io_nodes == 0 => "direct access is its best".to_owned(),
            Reason::Total { more: 0, .. } => "its best count".to_owned(),
            Reason::Total { more, short, elsewhere } => format!(
                "{more} more would give it +{}, others at least +{}",
                Bandwidth(short),
                Bandwidth(elsewhere)
            ),
            Reason::Floor { floor } => format!("kept at or above its share, {}", Bandwidth(floor)),
            Reason::Shared => "shares an I/O node: too few for one each".to_owned(),
            Reason::Dfra(conclusion) => conclusion.to_string(),
        }
    }
}
