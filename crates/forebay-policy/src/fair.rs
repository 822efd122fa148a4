//! Fair MCKP: the largest weighted total that sacrifices nobody and moves nobody for little.
//!
//! Every job is owed a share of the bandwidth S that STATIC would give it. Of a job whose progress is
//! not known, that is a floor at every moment. Where the progress is known, it is about the run:
//!
//! - volume V known: the job must be done after V / (share · S). It may be held back as long as it
//!   would still make that at S, which is always to be had; then S is its floor.
//! - volume unknown: the job may be held back as long as it has been served more than its share so
//!   far; then its share is its floor.
//!
//! So jobs can take turns on many I/O nodes, which raises the total, and nobody ends below its share.
//! The decision says when the first job will have used up its allowance ([`Decision::review`]).

use crate::arbitrate::{Choice, Problem};
use crate::decision::{Decision, JobDecision, Reason};
use crate::job::{Job, Pool};
use crate::policy::{Policy, PolicyError, PolicyKind};
use forebay_types::Nanos;
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
    /// How long a job does no I/O while it is moved, s. An allowance is never used up further than
    /// what a few moves may take.
    pub move_seconds: f64,
}

impl Default for FairConfig {
    fn default() -> FairConfig {
        FairConfig { share: 0.8, move_cost: 0.05, move_seconds: 0.1 }
    }
}

/// Moves that an allowance keeps in reserve.
const RESERVED_MOVES: f64 = 3.0;

/// Allowances shorter than this are none, s: it bounds how soon a review may follow a decision.
const SHORTEST: f64 = 0.01;

/// MCKP with a floor under every job, job weights, and a cost for moving. Where the pool cannot keep
/// all floors, all are lowered by the same factor, the largest that it can keep.
#[derive(Clone, Copy, Debug)]
pub struct Fair {
    config: FairConfig,
}

/// What a job is owed now.
#[derive(Clone, Copy, Debug)]
struct Owed {
    /// MB/s that it must have from now on.
    floor: f64,
    /// Seconds that it can do without I/O, and the MB/s at which those do not become fewer.
    allowance: Option<(f64, f64)>,
}

impl Fair {
    /// With these settings.
    pub fn new(config: FairConfig) -> Result<Fair, PolicyError> {
        for (name, value) in [("share", config.share), ("move_cost", config.move_cost)] {
            if !(0.0..=1.0).contains(&value) {
                return Err(PolicyError::Settings(format!("{name} = {value} is not between 0 and 1")));
            }
        }
        if !(config.move_seconds.is_finite() && config.move_seconds >= 0.0) {
            return Err(PolicyError::Settings(format!("move_seconds = {} is no time", config.move_seconds)));
        }
        Ok(Fair { config })
    }

    fn reserve(&self) -> f64 {
        RESERVED_MOVES * self.config.move_seconds
    }

    /// What a job is owed for whom STATIC means `fixed` MB/s and whose best choice is `best` MB/s.
    fn owed(&self, job: &Job, fixed: f64, best: f64) -> Owed {
        let share = self.config.share * fixed;
        let nothing = Owed { floor: share, allowance: None };
        let Some(progress) = job.progress.filter(|_| share > 0.0) else { return nothing };
        let elapsed = progress.elapsed.as_secs_f64();
        let served = progress.served_bytes as f64 / 1e6;
        let volume = progress.volume_bytes.map(|v| v as f64 / 1e6).filter(|&v| v > served);
        let (left, line, required) = match volume {
            Some(volume) => {
                let (rest, due) = (volume - served, volume / share - elapsed);
                // Behind already: what it takes to be done in time after all.
                (due - rest / fixed, fixed, rest / (due - self.reserve()).max(SHORTEST))
            }
            None => (served / share - elapsed, share, share),
        };
        if left > self.reserve() + SHORTEST {
            Owed { floor: 0.0, allowance: Some((left - self.reserve(), line)) }
        } else {
            Owed { floor: required.max(line).min(best.max(line)), allowance: None }
        }
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
        let mut best: Option<(f64, f64, Vec<JobDecision>, Vec<Owed>)> = None;
        for problem in Problem::of(jobs, pool)? {
            let owed: Vec<Owed> = (jobs.iter().zip(&problem.defaults).zip(&problem.choices))
                .map(|((job, &default), choices)| {
                    let fixed = job.bandwidth(default).map_or(0.0, |b| b.0);
                    let best = choices.iter().map(|c| c.bandwidth.0).fold(0.0, f64::max);
                    self.owed(job, fixed, best)
                })
                .collect();
            let kept = kept_part(&problem, &owed);
            let floor = |i: usize| kept * owed[i].floor;
            let value = |i: usize, c: &Choice| reaches(c, floor(i)).then(|| self.worth(&jobs[i], c));
            if let Some((total, mut chosen)) = problem.solve(jobs, value)? {
                for (i, (choices, chosen)) in problem.choices.iter().zip(&mut chosen).enumerate() {
                    mark_floor(choices, chosen, floor(i));
                }
                // What everyone is left with comes before the sum.
                if best.as_ref().is_none_or(|b| (kept, total) > (b.0, b.1)) {
                    best = Some((kept, total, chosen, owed));
                }
            }
        }
        let (kept, _, chosen, owed) = best.ok_or(PolicyError::NoIoNodes { jobs: jobs.len() })?;
        Ok(Decision {
            share: Some(kept * self.config.share),
            review: review(&chosen, &owed),
            ..Decision::new(self.kind(), jobs, pool, chosen)
        })
    }
}

/// When the first allowance is used up, if all goes as decided.
fn review(chosen: &[JobDecision], owed: &[Owed]) -> Option<Nanos> {
    let lasts = |(chosen, owed): (&JobDecision, &Owed)| {
        let (seconds, line) = owed.allowance?;
        let rate = chosen.bandwidth.map_or(0.0, |b| b.0);
        (rate < line).then(|| seconds / (1.0 - rate / line))
    };
    let soonest = chosen.iter().zip(owed).filter_map(lasts).min_by(f64::total_cmp)?;
    Some(Nanos((soonest * 1e9) as u64))
}

/// Whether a choice keeps a floor, up to what rounding makes of one.
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

/// The largest factor up to 1 by which all floors can be kept at once: a floor is a least count, and
/// the counts must fit.
fn kept_part(problem: &Problem, owed: &[Owed]) -> f64 {
    let fits = |part: f64| {
        let least = |(choices, owed): (&Vec<Choice>, &Owed)| {
            let floor = part * owed.floor;
            choices.iter().filter(|c| reaches(c, floor)).map(|c| u64::from(c.io_nodes)).min()
        };
        let known = problem.choices.iter().zip(owed).filter(|(c, _)| !c.is_empty());
        known
            .map(least)
            .try_fold(0u64, |sum, n| Some(sum + n?))
            .is_some_and(|n| n <= u64::from(problem.capacity))
    };
    if fits(1.0) {
        return 1.0;
    }
    // The answer is the ratio of some choice to its job's floor: nothing changes between them.
    let ratios = |(choices, owed): (&Vec<Choice>, &Owed)| {
        let floor = Some(owed.floor).filter(|&f| f > 0.0);
        let ratio = |c: &Choice| floor.map(|f| c.bandwidth.0 / f).filter(|&r| r < 1.0);
        choices.iter().filter_map(ratio).collect::<Vec<_>>()
    };
    let mut candidates: Vec<f64> = problem.choices.iter().zip(owed).flat_map(ratios).collect();
    candidates.sort_by(f64::total_cmp);
    let fitting = candidates.partition_point(|&part| fits(part));
    fitting.checked_sub(1).map_or(0.0, |i| candidates[i])
}
