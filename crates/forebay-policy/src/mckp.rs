//! MCKP: the largest total bandwidth the pool allows, exactly.

use crate::arbitrate::{self, Problem};
use crate::decision::Decision;
use crate::job::{Job, Pool};
use crate::knapsack::{Item, Knapsack};
use crate::policy::{Policy, PolicyError, PolicyKind};

/// One choice for each job, the sum of the bandwidths as large as the pool allows: the
/// multiple-choice knapsack. It minds nobody in particular; see [`crate::Fair`] for that.
#[derive(Clone, Copy, Debug)]
pub struct Mckp;

impl Mckp {
    /// The total on every pool from 0 I/O nodes to `most`, in one pass, with direct access allowed.
    /// Every job must have a curve with 0 on it.
    pub fn totals(jobs: &[Job], most: u32) -> Result<Vec<f64>, PolicyError> {
        let mut knapsack = Knapsack::default();
        for job in jobs {
            let choices = arbitrate::choices(job, most, true);
            knapsack.class(choices.iter().map(|c| Item { weight: c.io_nodes, value: c.bandwidth.0 }))?;
        }
        let solved = knapsack.solve(most)?;
        Ok((0..=most).map_while(|n| solved.best(n)).collect())
    }
}

impl Policy for Mckp {
    fn kind(&self) -> PolicyKind {
        PolicyKind::Mckp
    }

    fn decide(&self, jobs: &[Job], pool: &Pool) -> Result<Decision, PolicyError> {
        let mut solutions = Vec::new();
        for problem in Problem::of(jobs, pool)? {
            solutions.extend(problem.solve(jobs, |_, c| Some(c.bandwidth.0))?);
        }
        let chosen = arbitrate::best(solutions).ok_or(PolicyError::NoIoNodes { jobs: jobs.len() })?;
        Ok(Decision::new(self.kind(), jobs, pool, chosen))
    }
}
