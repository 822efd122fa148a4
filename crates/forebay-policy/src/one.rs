//! ONE: one I/O node each.

use crate::decision::{Decision, JobDecision, Reason};
use crate::job::{Job, Pool};
use crate::policy::{Policy, PolicyError, PolicyKind};

/// Every job gets one I/O node, also when there are fewer I/O nodes than jobs.
#[derive(Clone, Copy, Debug)]
pub struct One;

impl Policy for One {
    fn kind(&self) -> PolicyKind {
        PolicyKind::One
    }

    fn decide(&self, jobs: &[Job], pool: &Pool) -> Result<Decision, PolicyError> {
        if pool.available() == 0 && !jobs.is_empty() {
            return Err(PolicyError::NoIoNodes { jobs: jobs.len() });
        }
        let chosen = jobs.iter().map(|job| JobDecision::exclusive(job, 1, Reason::Same));
        Ok(Decision::new(self.kind(), jobs, pool, chosen.collect()))
    }
}
