//! Fair MCKP: the largest weighted total that sacrifices nobody and moves nobody for little.

use crate::arbitrate::{Choice, Problem};
use crate::decision::{Decision, JobDecision, Reason};
use crate::job::{Job, Pool};
use crate::policy::{Policy, PolicyError, PolicyKind};
use serde::{Deserialize, Serialize};

/// What fair MCKP owes a job, and what it takes to move one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FairConfig {
    /// No job gets less than this part of the bandwidth that STATIC would give it, 0 to 1.
    pub share: f64,
    /// The part of its bandwidth that a running job is thought to lose by being moved, 0 to 1: a
    /// move must gain more than that.
    pub move_cost: f64,
}

impl Default for FairConfig {
    fn default() -> FairConfig {
        FairConfig { share: 0.5, move_cost: 0.05 }
    }
}

/// MCKP with a floor under every job (a share of what STATIC would give it), job weights, and a cost
/// for moving. Where the pool cannot keep the share for all, the largest share that it can keep for
/// all is kept.
#[derive(Clone, Copy, Debug)]
pub struct Fair {
    config: FairConfig,
}

impl Fair {
    /// With these settings.
    pub fn new(config: FairConfig) -> Result<Fair, PolicyError> {
        for (name, value) in [("share", config.share), ("move_cost", config.move_cost)] {
            if !(0.0..=1.0).contains(&value) {
                return Err(PolicyError::Settings(format!("{name} = {value} is not between 0 and 1")));
            }
        }
        Ok(Fair { config })
    }

    /// What a choice is worth for a job.
    fn worth(&self, job: &Job, choice: &Choice) -> f64 {
        let moved =
            job.current.as_ref().is_some_and(|c| (c.io_nodes, c.shared) != (choice.io_nodes, choice.shared));
        let kept = if moved { 1.0 - self.config.move_cost } else { 1.0 };
        job.weight * choice.bandwidth.0 * kept
    }
}

impl Policy for Fair {
    fn kind(&self) -> PolicyKind {
        PolicyKind::Fair
    }

    fn decide(&self, jobs: &[Job], pool: &Pool) -> Result<Decision, PolicyError> {
        if let Some(job) = jobs.iter().find(|j| !(j.weight.is_finite() && j.weight > 0.0)) {
            return Err(PolicyError::Settings(format!(
                "job {}: weight {} is not above 0",
                job.id, job.weight
            )));
        }
        let mut best: Option<(f64, f64, Vec<JobDecision>)> = None;
        for problem in Problem::of(jobs, pool)? {
            let owed: Vec<Option<f64>> =
                jobs.iter().zip(&problem.defaults).map(|(j, &d)| Some(j.bandwidth(d)?.0)).collect();
            let share = largest_share(&problem, &owed, self.config.share);
            let floor = |i: usize| owed[i].map_or(0.0, |b| share * b);
            let value = |i: usize, c: &Choice| reaches(c, floor(i)).then(|| self.worth(&jobs[i], c));
            if let Some((total, mut chosen)) = problem.solve(jobs, value)? {
                for (i, (choices, chosen)) in problem.choices.iter().zip(&mut chosen).enumerate() {
                    mark_floor(choices, chosen, floor(i));
                }
                // What everyone is left with comes before the sum.
                if best.as_ref().is_none_or(|b| (share, total) > (b.0, b.1)) {
                    best = Some((share, total, chosen));
                }
            }
        }
        let (share, _, chosen) = best.ok_or(PolicyError::NoIoNodes { jobs: jobs.len() })?;
        Ok(Decision { share: Some(share), ..Decision::new(self.kind(), jobs, pool, chosen) })
    }
}

/// Whether a choice keeps a floor, up to what rounding makes of `share * bandwidth`.
fn reaches(choice: &Choice, floor: f64) -> bool {
    choice.bandwidth.0 >= floor * (1.0 - 1e-12)
}

/// The job has the cheapest choice that its floor allows, and the floor forbids a cheaper one.
fn mark_floor(choices: &[Choice], chosen: &mut JobDecision, floor: f64) {
    let cheaper = |c: &Choice| !c.shared && c.io_nodes < chosen.io_nodes;
    let has_cheaper = choices.iter().any(cheaper);
    let all_forbidden = choices.iter().filter(|c| cheaper(c)).all(|c| !reaches(c, floor));
    let short = matches!(chosen.reason, Reason::Total { more, .. } if more > 0);
    if has_cheaper && all_forbidden && short {
        chosen.reason = Reason::Floor { floor };
    }
}

/// The largest share up to `wanted` that the pool can keep for every job at once: a share is a floor
/// for each job, a floor is a least count, and the counts must fit.
fn largest_share(problem: &Problem, owed: &[Option<f64>], wanted: f64) -> f64 {
    let fits = |share: f64| {
        let least = |(choices, owed): (&Vec<Choice>, &Option<f64>)| {
            let floor = owed.map_or(0.0, |b| share * b);
            choices.iter().filter(|c| reaches(c, floor)).map(|c| u64::from(c.io_nodes)).min()
        };
        let known = problem.choices.iter().zip(owed).filter(|(c, _)| !c.is_empty());
        known
            .map(least)
            .try_fold(0u64, |sum, n| Some(sum + n?))
            .is_some_and(|n| n <= u64::from(problem.capacity))
    };
    if fits(wanted) {
        return wanted;
    }
    // The answer is the ratio of some choice to what its job is owed: nothing changes between them.
    let ratios = |(choices, owed): (&Vec<Choice>, &Option<f64>)| {
        let owed = owed.filter(|&b| b > 0.0);
        let ratio = |c: &Choice| owed.map(|b| c.bandwidth.0 / b).filter(|&r| r < wanted);
        choices.iter().filter_map(ratio).collect::<Vec<_>>()
    };
    let mut candidates: Vec<f64> = problem.choices.iter().zip(owed).flat_map(ratios).collect();
    candidates.sort_by(f64::total_cmp);
    let fitting = candidates.partition_point(|&share| fits(share));
    fitting.checked_sub(1).map_or(0.0, |i| candidates[i])
}
