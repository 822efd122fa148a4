//! ZERO: no forwarding.

use crate::decision::{Decision, JobDecision, Reason};
use crate::job::{Job, Pool};
use crate::policy::{Policy, PolicyError, PolicyKind};

/// Every job goes to the file system directly.
#[derive(Clone, Copy, Debug)]
pub struct Zero;

impl Policy for Zero {
    fn kind(&self) -> PolicyKind {
        PolicyKind::Zero
    }

    fn decide(&self, jobs: &[Job], pool: &Pool) -> Result<Decision, PolicyError> {
        if !pool.direct {
            return Err(PolicyError::NoDirect);
        }
        let chosen = jobs.iter().map(|job| JobDecision::exclusive(job, 0, Reason::Same));
        Ok(Decision::new(self.kind(), jobs, pool, chosen.collect()))
    }
}
