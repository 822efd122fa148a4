//! STATIC: the machine's fixed ratio of compute nodes to I/O nodes, the default everywhere else.

use crate::decision::{Decision, JobDecision, Reason};
use crate::job::{Job, Pool};
use crate::policy::{Policy, PolicyError, PolicyKind};

/// I/O nodes in proportion to compute nodes, decided when the job starts and then left alone.
///
/// `max(1, round(C · F / ΣC))`, rounded down to a count the job may have: this reproduces the
/// thesis's Table 5.3 and its study; `ceil`, which its text has, does not.
#[derive(Clone, Copy, Debug)]
pub struct Static;

impl Policy for Static {
    fn kind(&self) -> PolicyKind {
        PolicyKind::Static
    }

    fn decide(&self, jobs: &[Job], pool: &Pool) -> Result<Decision, PolicyError> {
        let counts = counts(jobs, pool)?;
        let machine = machine(jobs, pool);
        let chosen = jobs.iter().zip(counts).map(|(job, count)| match &job.current {
            Some(current) if !current.shared && (current.io_nodes > 0 || pool.direct) => {
                JobDecision::exclusive(job, current.io_nodes, Reason::Kept)
            }
            _ => {
                let exact = f64::from(job.compute_nodes) * f64::from(pool.available()) / machine;
                JobDecision::exclusive(job, count, Reason::Proportional { of: "compute nodes", exact })
            }
        });
        Ok(Decision::new(self.kind(), jobs, pool, chosen.collect()))
    }
}

fn machine(jobs: &[Job], pool: &Pool) -> f64 {
    match pool.compute_nodes {
        Some(n) => f64::from(n.max(1)),
        None => jobs.iter().map(|j| f64::from(j.compute_nodes)).sum::<f64>().max(1.0),
    }
}

/// What STATIC gives each job that starts now.
pub(crate) fn counts(jobs: &[Job], pool: &Pool) -> Result<Vec<u32>, PolicyError> {
    let available = pool.available();
    if available == 0 {
        return if pool.direct || jobs.is_empty() {
            Ok(vec![0; jobs.len()])
        } else {
            Err(PolicyError::NoIoNodes { jobs: jobs.len() })
        };
    }
    let machine = machine(jobs, pool);
    let count = |job: &Job| {
        let exact = f64::from(job.compute_nodes) * f64::from(available) / machine;
        job.round_down((exact.round() as u32).clamp(1, available))
    };
    Ok(jobs.iter().map(count).collect())
}
