//! What MCKP and fair MCKP share: a job's choices, the jobs nothing is known of, the shared I/O
//! nodes, and the way into the knapsack and back.

use crate::decision::{JobDecision, Reason};
use crate::fixed;
use crate::job::{Job, Pool, SharingRule};
use crate::knapsack::{Item, Knapsack};
use crate::policy::PolicyError;
use forebay_types::Bandwidth;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// One thing a job could be given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Choice {
    pub(crate) io_nodes: u32,
    pub(crate) shared: bool,
    pub(crate) bandwidth: Bandwidth,
}

/// The counts a job may have, ascending: measured, dividing its compute nodes, at most `most`.
pub(crate) fn choices(job: &Job, most: u32, direct: bool) -> Vec<Choice> {
    let points = job.curve.as_ref().map_or(&[][..], |c| c.points());
    let may = |n: u32| n <= most && job.divides(n) && (n > 0 || direct && job.direct);
    let choice = |(io_nodes, bandwidth)| Choice { io_nodes, shared: false, bandwidth };
    points.iter().filter(|p| may(p.io_nodes)).map(|p| choice((p.io_nodes, p.bandwidth))).collect()
}

/// The jobs as the knapsack sees them.
pub(crate) struct Problem {
    /// What each job may choose from; empty for a job nothing is known of.
    pub(crate) choices: Vec<Vec<Choice>>,
    /// What a job nothing is known of is granted beforehand.
    grants: Vec<u32>,
    /// What STATIC would give each job.
    pub(crate) defaults: Vec<u32>,
    /// Left for the knapsack.
    pub(crate) capacity: u32,
    /// Whether I/O nodes are set aside for sharing.
    sharing: bool,
}

impl Problem {
    /// The problems to solve; the best solution of them counts. More than one only where sharing is
    /// allowed without being needed.
    pub(crate) fn of(jobs: &[Job], pool: &Pool) -> Result<Vec<Problem>, PolicyError> {
        let available = pool.available();
        if available == 0 && !pool.direct && !jobs.is_empty() {
            return Err(PolicyError::NoIoNodes { jobs: jobs.len() });
        }
        let defaults = fixed::counts(jobs, pool)?;
        let choices: Vec<_> = jobs.iter().map(|j| choices(j, available, pool.direct)).collect();
        // The fewest I/O nodes the jobs get by with; unknown ones with one each.
        let fewest = |(c, &d): (&Vec<Choice>, &u32)| u64::from(c.first().map_or(d.min(1), |c| c.io_nodes));
        let least: u64 = choices.iter().zip(&defaults).map(fewest).sum();
        if least > u64::from(available) {
            return Ok(vec![Problem::shared(jobs, choices, defaults, available)]);
        }
        let also = (pool.sharing == SharingRule::Better && available > 0)
            .then(|| Problem::shared(jobs, choices.clone(), defaults.clone(), available));
        let own = Problem::own(jobs, choices, defaults, available);
        Ok(std::iter::once(own).chain(also).collect())
    }

    /// Everyone has I/O nodes of their own.
    fn own(jobs: &[Job], choices: Vec<Vec<Choice>>, defaults: Vec<u32>, available: u32) -> Problem {
        let known: u64 = choices.iter().filter_map(|c| c.first()).map(|c| u64::from(c.io_nodes)).sum();
        let room = u64::from(available) - known;
        let grant = |(c, &d): (&Vec<Choice>, &u32)| if c.is_empty() { d } else { 0 };
        let mut grants: Vec<u32> = choices.iter().zip(&defaults).map(grant).collect();
        let mut granted: u64 = grants.iter().map(|&g| u64::from(g)).sum();
        // Unknown jobs keep their default unless that leaves too little for the rest: then the
        // largest grants shrink first, and never below one, for which there is room.
        let mut by_size: BinaryHeap<(u32, Reverse<usize>)> =
            grants.iter().enumerate().map(|(i, &g)| (g, Reverse(i))).collect();
        while granted > room {
            let Some((large, Reverse(i))) = by_size.pop() else { break };
            grants[i] = jobs[i].round_down(large - 1);
            granted -= u64::from(large - grants[i]);
            by_size.push((grants[i], Reverse(i)));
        }
        let capacity = available - granted as u32;
        Problem { choices, grants, defaults, capacity, sharing: false }
    }

    /// One I/O node is set aside; a job on it is valued at its bandwidth with one, by the number of
    /// running jobs: a low guess, so that it is taken only by those who lose little. Jobs nothing is
    /// known of always share: for them as many are set aside as are theirs by their number, so that
    /// they are about as many to an I/O node as under STATIC.
    fn shared(jobs: &[Job], mut choices: Vec<Vec<Choice>>, defaults: Vec<u32>, available: u32) -> Problem {
        let measured = |j: &Job| j.curve.as_ref().is_some_and(|c| c.points().iter().any(|p| p.io_nodes > 0));
        let unknown = jobs.iter().zip(&choices).filter(|(j, c)| c.is_empty() && !measured(j)).count() as u64;
        let theirs = unknown * u64::from(available) / jobs.len().max(1) as u64;
        let capacity = available - (theirs as u32).clamp(1, available);
        for (job, choices) in jobs.iter().zip(&mut choices) {
            let points = job.curve.as_ref().map_or(&[][..], |c| c.points());
            if let Some(p) = points.iter().find(|p| p.io_nodes > 0) {
                choices.retain(|c| c.io_nodes <= capacity);
                let guess = p.bandwidth.0 / f64::from(p.io_nodes) / jobs.len() as f64;
                choices.insert(0, Choice { io_nodes: 0, shared: true, bandwidth: Bandwidth(guess) });
            }
        }
        Problem { grants: vec![0; jobs.len()], choices, defaults, capacity, sharing: true }
    }

    /// Solves it with `value` as the worth of a choice to a job (`None` forbids the choice).
    /// `None` if nothing fits.
    pub(crate) fn solve(
        &self,
        jobs: &[Job],
        value: impl Fn(usize, &Choice) -> Option<f64>,
    ) -> Result<Option<(f64, Vec<JobDecision>)>, PolicyError> {
        let mut knapsack = Knapsack::default();
        // For each class: the job, and the choices offered.
        let mut classes: Vec<(usize, Vec<(&Choice, f64)>)> = Vec::with_capacity(jobs.len());
        for (i, choices) in self.choices.iter().enumerate() {
            if choices.is_empty() {
                continue;
            }
            let offered: Vec<_> = choices.iter().filter_map(|c| Some((c, value(i, c)?))).collect();
            if offered.is_empty() {
                return Ok(None);
            }
            knapsack.class(offered.iter().map(|&(c, value)| Item { weight: c.io_nodes, value }))?;
            classes.push((i, offered));
        }
        let solved = knapsack.solve(self.capacity)?;
        let (Some(best), Some(picks)) = (solved.best(self.capacity), solved.picks(self.capacity)) else {
            return Ok(None);
        };
        let mut chosen: Vec<JobDecision> =
            jobs.iter().zip(&self.grants).map(|(j, &g)| self.unknown(j, g)).collect();
        for ((i, offered), pick) in classes.iter().zip(picks) {
            let (choice, worth) = offered[pick];
            let top = offered.iter().copied().reduce(|a, b| if b.1 > a.1 { b } else { a });
            let (top, most) = top.unwrap_or((choice, worth));
            let more = top.io_nodes.saturating_sub(choice.io_nodes);
            let short = most - worth;
            // Others lose at least what the optimum loses when the pool shrinks by `more`, and at
            // least what this job would gain (else the optimum would have taken it).
            let without = self.capacity.checked_sub(more).and_then(|c| solved.best(c));
            let elsewhere = without.map_or(short, |w| (best - w).max(short));
            let total = Reason::Total { more, short, elsewhere };
            chosen[*i] = JobDecision {
                io_nodes: choice.io_nodes,
                shared: choice.shared,
                bandwidth: Some(choice.bandwidth),
                reason: if choice.shared { Reason::Shared } else { total },
                nodes: None,
            };
        }
        Ok(Some((best, chosen)))
    }

    fn unknown(&self, job: &Job, grant: u32) -> JobDecision {
        if self.sharing {
            JobDecision { io_nodes: 0, shared: true, bandwidth: None, reason: Reason::Shared, nodes: None }
        } else {
            JobDecision::exclusive(job, grant, Reason::Unknown)
        }
    }
}

/// Of several solutions the one worth most; the first of equals.
pub(crate) fn best(solutions: Vec<(f64, Vec<JobDecision>)>) -> Option<Vec<JobDecision>> {
    solutions.into_iter().reduce(|a, b| if b.0 > a.0 { b } else { a }).map(|s| s.1)
}
