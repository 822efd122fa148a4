//! ORACLE: everyone's best count. A bound to compare with, not a policy to run.

use crate::arbitrate;
use crate::decision::{Decision, JobDecision, Reason};
use crate::fixed;
use crate::job::{Job, Pool};
use crate::policy::{Policy, PolicyError, PolicyKind};

/// Every job gets the count at which it is fastest, whatever the pool has.
#[derive(Clone, Copy, Debug)]
pub struct Oracle;

impl Policy for Oracle {
    fn kind(&self) -> PolicyKind {
        PolicyKind::Oracle
    }

    fn decide(&self, jobs: &[Job], pool: &Pool) -> Result<Decision, PolicyError> {
        let defaults = fixed::counts(jobs, pool)?;
        let chosen = jobs.iter().zip(defaults).map(|(job, default)| {
            let choices = arbitrate::choices(job, u32::MAX, pool.direct);
            // The first of equals is the smallest count.
            match choices.into_iter().reduce(|a, b| if b.bandwidth.0 > a.bandwidth.0 { b } else { a }) {
                Some(best) => JobDecision::exclusive(job, best.io_nodes, Reason::Best),
                None => JobDecision::exclusive(job, default, Reason::Unknown),
            }
        });
        Ok(Decision::new(self.kind(), jobs, pool, chosen.collect()))
    }
}
