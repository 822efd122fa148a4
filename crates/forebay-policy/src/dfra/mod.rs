//! DFRA: grants by the application's own history. Scale a job up that can use it, isolate one that
//! would disturb its neighbours (or be disturbed), skip I/O nodes that are not well; otherwise the
//! default mapping. Decided once, when the job is dispatched.

mod history;
mod rules;

pub use history::{History, IoProfile};
pub use rules::{Cause, DfraConfig, Refusal};

use crate::decision::{Decision, JobDecision, Reason};
use crate::job::{Job, Pool};
use crate::policy::{Policy, PolicyError, PolicyKind};
use forebay_types::NodeId;
use std::collections::BTreeMap;
use std::fmt;

/// What DFRA concluded about a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Conclusion {
    /// It runs, and keeps what it was given at dispatch.
    Kept {
        /// Whether for itself.
        dedicated: bool,
    },
    /// It runs, and some of its I/O nodes were replaced because they are no longer admitted.
    Skipped {
        /// How many.
        replaced: u32,
        /// Whether it still has its I/O nodes for itself.
        dedicated: bool,
    },
    /// It gets more I/O nodes than by default, all its own.
    Scale {
        /// What its I/O parallelism can use.
        wanted: u32,
        /// What was idle of that.
        granted: u32,
    },
    /// It gets the default number, but of its own.
    Isolate(Cause),
    /// It should be scaled or isolated, but too few I/O nodes are idle.
    NoneIdle,
    /// It keeps the default, and would not gain from more.
    Default(Refusal),
}

impl Conclusion {
    /// Whether the job has its I/O nodes for itself.
    pub fn dedicated(self) -> bool {
        match self {
            Conclusion::Kept { dedicated } | Conclusion::Skipped { dedicated, .. } => dedicated,
            Conclusion::Scale { .. } | Conclusion::Isolate(_) => true,
            Conclusion::NoneIdle | Conclusion::Default(_) => false,
        }
    }
}

impl fmt::Display for Conclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Conclusion::Kept { .. } => write!(f, "running: DFRA decides at dispatch"),
            Conclusion::Skipped { replaced, .. } => {
                write!(f, "{replaced} of its I/O nodes are not admitted and were replaced")
            }
            Conclusion::Scale { wanted, granted } if wanted == granted => {
                write!(f, "scaled up: enough I/O for {wanted} I/O nodes")
            }
            Conclusion::Scale { wanted, granted } => {
                write!(f, "scaled up: enough I/O for {wanted} I/O nodes, {granted} are idle")
            }
            Conclusion::Isolate(cause) => write!(f, "isolated: {cause}"),
            Conclusion::NoneIdle => write!(f, "default: too few I/O nodes are idle to scale or isolate it"),
            Conclusion::Default(refusal) => write!(f, "default: {refusal}"),
        }
    }
}

/// The policy. See the module.
#[derive(Clone, Copy, Debug)]
pub struct Dfra {
    config: DfraConfig,
}

/// Who is on an I/O node.
#[derive(Clone, Debug, Default)]
struct Load {
    /// Compute nodes mapped to it by default.
    compute_nodes: f64,
    /// Jobs on it, by their place in the decision.
    jobs: Vec<usize>,
    /// Whether it is one job's own.
    dedicated: bool,
    /// Whether it may become a job's own, and whether it may be a job's default: both, where the pool
    /// is not divided.
    reserve: bool,
    default: bool,
}

impl Dfra {
    /// With these thresholds.
    pub fn new(config: DfraConfig) -> Result<Dfra, PolicyError> {
        config.check()?;
        Ok(Dfra { config })
    }

    /// The thresholds.
    pub fn config(&self) -> &DfraConfig {
        &self.config
    }

    /// What a job that is dispatched now gets.
    fn dispatch(
        &self,
        jobs: &[Job],
        i: usize,
        default: u32,
        ratio: f64,
        loads: &BTreeMap<NodeId, Load>,
    ) -> (Conclusion, Vec<NodeId>) {
        let job = &jobs[i];
        let idle = idle_reserve(loads);
        let own = |n: u32| idle.iter().copied().take(n as usize).collect::<Vec<_>>();
        let mapped = default_nodes(job, default, ratio, loads);
        if !self.config.remap {
            return (Conclusion::Default(Refusal::Fixed), mapped);
        }
        let refusal = match self.config.eligible(job.history.as_ref()) {
            Ok(wanted) if wanted > default => {
                let idle = wanted.min(idle.len() as u32);
                // Where the curve is known, a count on it.
                let granted = if job.curve.is_some() { job.round_down(idle.max(1)) } else { idle };
                return if granted > default {
                    (Conclusion::Scale { wanted, granted }, own(granted))
                } else {
                    (Conclusion::NoneIdle, mapped)
                };
            }
            Ok(_) => Refusal::DefaultSuffices,
            Err(refusal) => refusal,
        };
        let Some(history) = &job.history else { return (Conclusion::Default(refusal), mapped) };
        let neighbours = mapped.iter().filter_map(|n| loads.get(n)).flat_map(|l| &l.jobs);
        let cause = neighbours.filter(|&&n| !jobs[n].quiet).find_map(|&n| {
            self.config.interference(history, jobs[n].history.as_ref(), jobs[n].live.as_ref())
        });
        match cause {
            Some(cause) if idle.len() >= default as usize => (Conclusion::Isolate(cause), own(default)),
            Some(_) => (Conclusion::NoneIdle, mapped),
            None => (Conclusion::Default(refusal), mapped),
        }
    }
}

impl Policy for Dfra {
    fn kind(&self) -> PolicyKind {
        PolicyKind::Dfra
    }

    fn decide(&self, jobs: &[Job], pool: &Pool) -> Result<Decision, PolicyError> {
        if pool.available() == 0 && !jobs.is_empty() {
            return Err(PolicyError::NoIoNodes { jobs: jobs.len() });
        }
        let ratio = self.config.ratio(jobs, pool);
        let divided = self.config.default_io_nodes;
        let load = |n: NodeId| {
            let default = divided.is_none_or(|first| n.0 < first);
            Load { default, reserve: divided.is_none() || !default, ..Load::default() }
        };
        let mut loads: BTreeMap<NodeId, Load> = pool.admitted().map(|n| (n, load(n))).collect();
        let mut chosen: Vec<Option<JobDecision>> = vec![None; jobs.len()];
        let decided = |job: &Job, conclusion, nodes: Vec<NodeId>| {
            let count = nodes.len() as u32;
            JobDecision { nodes: Some(nodes), ..JobDecision::exclusive(job, count, Reason::Dfra(conclusion)) }
        };

        // Those that run come first: they hold what newcomers may not take.
        let mut crippled = Vec::new();
        for (i, job) in jobs.iter().enumerate() {
            let Some(current) = job.current.as_ref().filter(|c| !c.nodes.is_empty()) else { continue };
            let nodes: Vec<_> = current.nodes.iter().copied().filter(|n| loads.contains_key(n)).collect();
            occupy(&mut loads, i, job, &nodes, current.dedicated);
            if nodes.len() < current.nodes.len() {
                crippled.push((i, nodes));
            } else {
                chosen[i] = Some(decided(job, Conclusion::Kept { dedicated: current.dedicated }, nodes));
            }
        }
        for (i, mut nodes) in crippled {
            let job = &jobs[i];
            let Some(current) = &job.current else { continue };
            let missing = current.nodes.len() - nodes.len();
            // A job's own are replaced by idle ones, a default by what may be one: nobody's own.
            let mut new: Vec<NodeId> = if current.dedicated {
                idle_reserve(&loads)
            } else {
                let open = |(n, l): &(&NodeId, &Load)| l.default && !l.dedicated && !nodes.contains(n);
                let mut open: Vec<_> = loads.iter().filter(open).collect();
                open.sort_by_key(|(_, l)| l.jobs.len());
                open.into_iter().map(|(&n, _)| n).collect()
            };
            new.truncate(missing);
            let mut dedicated = current.dedicated;
            if nodes.is_empty() && new.is_empty() {
                dedicated = false;
                new = default_nodes(job, missing as u32, ratio, &loads);
            }
            let conclusion = Conclusion::Skipped { replaced: missing as u32, dedicated };
            occupy(&mut loads, i, job, &new, dedicated);
            nodes.extend(&new);
            chosen[i] = Some(decided(job, conclusion, nodes));
        }
        for (i, job) in jobs.iter().enumerate() {
            if chosen[i].is_some() {
                continue;
            }
            let default = self.config.default_count(job, ratio, pool);
            let (conclusion, nodes) = self.dispatch(jobs, i, default, ratio, &loads);
            occupy(&mut loads, i, job, &nodes, conclusion.dedicated());
            chosen[i] = Some(decided(job, conclusion, nodes));
        }
        let chosen = chosen.into_iter().flatten().collect();
        Ok(Decision::new(self.kind(), jobs, pool, chosen))
    }
}

fn occupy(loads: &mut BTreeMap<NodeId, Load>, i: usize, job: &Job, nodes: &[NodeId], dedicated: bool) {
    for node in nodes {
        if let Some(load) = loads.get_mut(node) {
            load.compute_nodes += f64::from(job.compute_nodes) / nodes.len() as f64;
            load.jobs.push(i);
            load.dedicated |= dedicated;
        }
    }
}

/// What can be given to a job as its own: nobody is there, and somewhere is left for everybody else.
fn idle_reserve(loads: &BTreeMap<NodeId, Load>) -> Vec<NodeId> {
    let idle = |l: &Load| l.jobs.is_empty() && l.reserve;
    let others = loads.values().any(|l| l.default && !l.dedicated && !idle(l));
    loads.iter().filter(|(_, l)| idle(l)).skip(usize::from(!others)).map(|(&n, _)| n).collect()
}

/// The default mapping: the fixed one where there is such. Else every I/O node serves `ratio` compute
/// nodes, so a job fills up one that has room before it opens another, and shares with whoever is there.
/// What is one job's own is nobody's default: rather there are fewer.
fn default_nodes(job: &Job, count: u32, ratio: f64, loads: &BTreeMap<NodeId, Load>) -> Vec<NodeId> {
    let theirs = |n: &NodeId| loads.get(n).is_some_and(|l| !l.dedicated);
    let fixed: Vec<NodeId> = job.default_nodes.iter().copied().filter(theirs).collect();
    if !fixed.is_empty() {
        return fixed;
    }
    let part = f64::from(job.compute_nodes) / f64::from(count.max(1));
    let mut open: Vec<_> = loads.iter().filter(|(_, l)| l.default && !l.dedicated).collect();
    if open.is_empty() {
        // None of the default pool is admitted: one of the reserve stands in.
        open = loads.iter().filter(|(_, l)| !l.dedicated).collect();
    }
    if open.is_empty() {
        // Every one that is left is somebody's own: better to share than not to run.
        open = loads.iter().collect();
    }
    let order = |load: &Load| {
        let after = load.compute_nodes + part;
        if after <= ratio { (false, ratio - after) } else { (true, after) }
    };
    open.sort_by(|a, b| {
        let (a, b) = (order(a.1), order(b.1));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    open.into_iter().take(count as usize).map(|(&n, _)| n).collect()
}
