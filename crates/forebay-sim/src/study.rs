//! The set study: many random sets of jobs drawn from measured curves, every policy on every pool
//! size, the same sets for all of them.

use crate::history;
use crate::stats::Summary;
use forebay_policy::{CurveTable, Job, Mckp, PolicyError, PolicyKind, Pool, Settings};
use forebay_types::IoMode;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use serde::Serialize;

/// How long a run of the measured programs writes: its volume is bandwidth times this.
const STONE_WALL_S: f64 = 60.0;

/// The most sets times pools: their totals under all policies are kept until the end.
const MOST_POOLS: u64 = 10_000_000;

/// What to study.
#[derive(Clone, Debug)]
pub struct StudyConfig {
    /// How many sets are drawn.
    pub sets: u32,
    /// Jobs in a set, drawn with replacement.
    pub set_size: u32,
    /// The pool sizes.
    pub io_nodes: Vec<u32>,
    /// The sets depend on this and nothing else.
    pub seed: u64,
    /// Of the policies. DFRA's two peak bandwidths are taken from the curves instead.
    pub settings: Settings,
}

/// One policy on one pool size, over all sets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// Which policy.
    pub policy: PolicyKind,
    /// Which pool size.
    pub io_nodes: u32,
    /// The sets' total bandwidths, MB/s.
    pub total_mbs: Summary,
    /// Set by set against STATIC on the same pool: 0.5 is 50 % more.
    pub over_static: Summary,
    /// Set by set against ZERO.
    pub over_zero: Summary,
}

/// The outcome.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Study {
    /// Sets drawn.
    pub sets: u32,
    /// Jobs in each.
    pub set_size: u32,
    /// The seed.
    pub seed: u64,
    /// Patterns drawn from.
    pub scenarios: usize,
    /// Compute nodes of a set.
    pub compute_nodes: Summary,
    /// The smallest pool on which MCKP does as well as ORACLE, set by set.
    pub mckp_reaches_oracle: Summary,
    /// By pool size, then policy.
    pub cells: Vec<Cell>,
}

impl Study {
    /// One policy on one pool size.
    pub fn cell(&self, policy: PolicyKind, io_nodes: u32) -> Option<&Cell> {
        self.cells.iter().find(|c| c.policy == policy && c.io_nodes == io_nodes)
    }
}

/// Why there is no study.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// Nothing to draw or to draw from.
    #[error("{0}")]
    Config(String),
    /// A curve lacks a count that every policy needs.
    #[error("scenario {scenario} was not measured at {io_nodes} I/O nodes, which {policy} needs")]
    Unmeasured {
        /// Which curve.
        scenario: String,
        /// Which count.
        io_nodes: u32,
        /// For whom.
        policy: PolicyKind,
    },
    /// A policy refused.
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

/// What one set gives: totals by pool size and policy, and the smallest pool on which MCKP does as well as ORACLE.
struct SetTotals {
    compute_nodes: f64,
    totals: Vec<f64>,
    reaches_oracle: f64,
}

/// Runs the study on all of rayon's threads; the result does not depend on how many those are.
/// `done` is told of every finished set.
pub fn run(table: &CurveTable, config: &StudyConfig, done: impl Fn() + Sync) -> Result<Study, StudyError> {
    check(table, config)?;
    let curves = table.scenarios.iter().map(|s| (&*s.curve, s.facts.compute_nodes));
    let settings = Settings { dfra: history::with_peaks(config.settings.dfra, curves), ..config.settings };
    let kinds = PolicyKind::ALL;
    let policies = kinds.iter().map(|k| k.build(&settings)).collect::<Result<Vec<_>, _>>()?;
    let pools: Vec<Pool> = config.io_nodes.iter().map(|&n| Pool::of(n)).collect();
    let most = most_needed(table).saturating_mul(config.set_size);
    let up_to = config.io_nodes.iter().copied().max().unwrap_or(0).max(most);
    let templates: Vec<Job> = templates(table);

    let one_set = |set: u32| -> Result<SetTotals, StudyError> {
        // A stream of its own for each set, so that any thread can draw it.
        let mut rng = ChaCha8Rng::seed_from_u64(config.seed);
        rng.set_stream(u64::from(set));
        let draw = |_| templates[rng.random_range(0..templates.len())].clone();
        let jobs: Vec<Job> = (0..config.set_size).map(draw).collect();
        let mckp = Mckp::totals(&jobs, up_to)?;
        let mut totals = Vec::with_capacity(pools.len() * kinds.len());
        for pool in &pools {
            for (kind, policy) in kinds.iter().zip(&policies) {
                totals.push(match kind {
                    PolicyKind::Mckp => mckp[pool.nodes.len().min(mckp.len() - 1)],
                    _ => policy.decide(&jobs, pool)?.total.0,
                });
            }
        }
        let oracle = kinds.iter().position(|&k| k == PolicyKind::Oracle).map_or(0.0, |i| totals[i]);
        let compute_nodes = jobs.iter().map(|j| f64::from(j.compute_nodes)).sum();
        done();
        Ok(SetTotals { compute_nodes, totals, reaches_oracle: reaches(&mckp, oracle) })
    };
    let sets = (0..config.sets).into_par_iter().map(one_set).collect::<Result<Vec<_>, _>>()?;

    let place =
        |p: usize, kind: PolicyKind| p * kinds.len() + kinds.iter().position(|&k| k == kind).unwrap_or(0);
    let indices: Vec<(usize, PolicyKind)> =
        (0..pools.len()).flat_map(|p| kinds.iter().map(move |&k| (p, k))).collect();
    let cells = indices.into_par_iter().map(|(p, policy)| {
        let of = |kind| sets.iter().map(move |s| s.totals[place(p, kind)]);
        let over = |base| Summary::of(of(policy).zip(of(base)).map(|(a, b)| a / b - 1.0));
        Cell {
            policy,
            io_nodes: config.io_nodes[p],
            total_mbs: Summary::of(of(policy)),
            over_static: over(PolicyKind::Static),
            over_zero: over(PolicyKind::Zero),
        }
    });
    Ok(Study {
        sets: config.sets,
        set_size: config.set_size,
        seed: config.seed,
        scenarios: table.scenarios.len(),
        compute_nodes: Summary::of(sets.iter().map(|s| s.compute_nodes)),
        cells: cells.collect(),
        mckp_reaches_oracle: Summary::of(sets.iter().map(|s| s.reaches_oracle)),
    })
}

fn check(table: &CurveTable, config: &StudyConfig) -> Result<(), StudyError> {
    let wrong = |what: &str| Err(StudyError::Config(what.to_owned()));
    if config.sets == 0 || config.set_size == 0 {
        return wrong("a study needs at least one set of at least one job");
    }
    if config.io_nodes.is_empty() || config.io_nodes.contains(&0) {
        return wrong("a study needs pools of at least one I/O node");
    }
    if let Some(n) = (1..config.io_nodes.len()).find(|&n| config.io_nodes[..n].contains(&config.io_nodes[n]))
    {
        return wrong(&format!("--io-nodes names {} twice", config.io_nodes[n]));
    }
    if config.io_nodes.iter().any(|&n| n > 100_000)
        || u64::from(config.sets) * config.io_nodes.len() as u64 > MOST_POOLS
    {
        return wrong("the study is too large: at most 100,000 I/O nodes and 10 million sets times pools");
    }
    for s in &table.scenarios {
        for (io_nodes, policy) in [(0, PolicyKind::Zero), (1, PolicyKind::One)] {
            if s.curve.at(io_nodes).is_none() {
                return Err(StudyError::Unmeasured { scenario: s.name.clone(), io_nodes, policy });
            }
        }
    }
    Ok(())
}

/// The most I/O nodes that any scenario was measured with.
fn most_needed(table: &CurveTable) -> u32 {
    let counts = table.scenarios.iter().flat_map(|s| s.curve.points()).map(|p| p.io_nodes);
    counts.max().unwrap_or(0)
}

/// Each scenario as a job.
fn templates(table: &CurveTable) -> Vec<Job> {
    let job = |s: &forebay_policy::Scenario| {
        let mode = if s.facts.shared { IoMode::NTo1 } else { IoMode::NToN };
        let bytes = history::best(&s.curve) * 1e6 * STONE_WALL_S;
        let history = history::profile(&s.curve, s.facts.compute_nodes, mode, bytes);
        let job = Job::new(&s.name, s.facts.compute_nodes, s.facts.processes).with_curve(s.curve.clone());
        Job { history: Some(history), ..job }
    };
    table.scenarios.iter().map(job).collect()
}

/// The smallest pool on which MCKP's total is ORACLE's, up to rounding in the sums.
fn reaches(mckp: &[f64], oracle: f64) -> f64 {
    mckp.partition_point(|&total| total < oracle * (1.0 - 1e-9)) as f64
}
