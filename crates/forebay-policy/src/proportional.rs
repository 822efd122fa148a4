//! SIZE and PROCESS: the pool divided among the running jobs by how large they are.

use crate::decision::{Decision, JobDecision, Reason};
use crate::job::{Job, Pool};
use crate::policy::{Policy, PolicyError, PolicyKind};

/// What a job's size is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Its compute nodes (SIZE).
    ComputeNodes,
    /// Its processes (PROCESS).
    Processes,
}

/// `round(F · c / Σc)` I/O nodes each, rounded down to a count the job may have; re-divided whenever
/// the jobs change. A job whose part rounds to none goes direct where that is allowed.
#[derive(Clone, Copy, Debug)]
pub struct Proportional(
    /// By what.
    pub By,
);

impl Policy for Proportional {
    fn kind(&self) -> PolicyKind {
        match self.0 {
            By::ComputeNodes => PolicyKind::Size,
            By::Processes => PolicyKind::Process,
        }
    }

    fn decide(&self, jobs: &[Job], pool: &Pool) -> Result<Decision, PolicyError> {
        let available = pool.available();
        if available == 0 && !pool.direct && !jobs.is_empty() {
            return Err(PolicyError::NoIoNodes { jobs: jobs.len() });
        }
        let (of, size): (_, fn(&Job) -> u32) = match self.0 {
            By::ComputeNodes => ("compute nodes", |j| j.compute_nodes),
            By::Processes => ("processes", |j| j.processes),
        };
        let all = jobs.iter().map(|j| f64::from(size(j))).sum::<f64>().max(1.0);
        let chosen = jobs.iter().map(|job| {
            let exact = f64::from(available) * f64::from(size(job)) / all;
            let rounded = (exact.round() as u32).min(available);
            let direct = pool.direct && (job.knows_direct() || job.direct && available == 0);
            let count = if rounded == 0 && direct { 0 } else { job.round_down(rounded.max(1)) };
            JobDecision::exclusive(job, count, Reason::Proportional { of, exact })
        });
        Ok(Decision::new(self.kind(), jobs, pool, chosen.collect()))
    }
}
