//! Playing bandits against recorded rewards: how soon would they have found the best arm, and what
//! would that have brought?
//!
//! The recording is CSV with the columns `scenario`, `arm` and `reward`, one line a measurement. A
//! bandit that tries an arm gets one of that arm's measurements in that scenario, drawn at random.

use crate::guard::Guard;
use crate::learner::Learner;
use crate::policy::{BanditConfig, EpsilonGreedy, Thompson, Ucb1};
use crate::values::Memory;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::io::Read;

/// What can be wrong with a recording.
#[derive(Debug, thiserror::Error)]
pub enum RewardsError {
    /// It cannot be read.
    #[error(transparent)]
    Csv(#[from] csv::Error),
    /// A reward is no reward.
    #[error("line {line}: the reward {reward} is not a finite number above zero")]
    Reward {
        /// Where.
        line: u64,
        /// What stands there.
        reward: f64,
    },
    /// There is nothing in it.
    #[error("there are no measurements")]
    Empty,
    /// Every arm must have been measured in every scenario.
    #[error(
        "scenario `{scenario}` has no measurement of arm `{arm}`: every arm must be measured in every scenario"
    )]
    Missing {
        /// In which scenario.
        scenario: String,
        /// Of which arm.
        arm: String,
    },
    /// The default is none of the arms.
    #[error("the default arm `{0}` does not occur; the arms are {1}")]
    Default(String, String),
}

/// Recorded rewards.
#[derive(Clone, Debug)]
pub struct Rewards {
    /// The arms' names, in the order of their first measurement.
    pub arms: Vec<String>,
    /// The scenarios, in the order of their first measurement.
    pub scenarios: Vec<Scenario>,
}

/// One scenario's rewards.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// Every measurement of every arm.
    rewards: Vec<Vec<f64>>,
    means: Vec<f64>,
    best: usize,
}

impl Rewards {
    /// Reads a recording.
    pub fn read_csv(input: impl Read) -> Result<Rewards, RewardsError> {
        #[derive(Deserialize)]
        struct Line {
            scenario: String,
            arm: String,
            reward: f64,
        }
        let mut arms: Vec<String> = Vec::new();
        let mut found: Vec<(String, Vec<Vec<f64>>)> = Vec::new();
        let mut reader = csv::Reader::from_reader(input);
        let header = reader.headers()?.clone();
        for record in reader.records() {
            let record = record?;
            let Line { scenario, arm, reward } = record.deserialize(Some(&header))?;
            if !reward.is_finite() || reward <= 0.0 {
                let line = record.position().map_or(0, |p| p.line());
                return Err(RewardsError::Reward { line, reward });
            }
            let arm = position(&mut arms, arm, |a, b| a == b, |a| a);
            let at = position(&mut found, scenario, |(name, _), b| name == b, |name| (name, Vec::new()));
            let rewards = &mut found[at].1;
            if rewards.len() <= arm {
                rewards.resize(arm + 1, Vec::new());
            }
            rewards[arm].push(reward);
        }
        if found.is_empty() {
            return Err(RewardsError::Empty);
        }
        let scenarios = found.into_iter().map(|(name, mut rewards)| {
            rewards.resize(arms.len(), Vec::new());
            if let Some(missing) = rewards.iter().position(Vec::is_empty) {
                return Err(RewardsError::Missing { scenario: name, arm: arms[missing].clone() });
            }
            let means: Vec<f64> = rewards.iter().map(|r| r.iter().sum::<f64>() / r.len() as f64).collect();
            let best = (0..means.len()).max_by(|&a, &b| means[a].total_cmp(&means[b])).unwrap_or(0);
            Ok(Scenario { name, rewards, means, best })
        });
        Ok(Rewards { scenarios: scenarios.collect::<Result<_, _>>()?, arms })
    }

    /// The index of the arm called `name`.
    pub fn arm(&self, name: &str) -> Result<usize, RewardsError> {
        let at = self.arms.iter().position(|a| a == name);
        at.ok_or_else(|| RewardsError::Default(name.to_string(), self.arms.join(", ")))
    }
}

impl Scenario {
    /// The index of the arm with the highest mean.
    pub fn best(&self) -> usize {
        self.best
    }

    /// The mean reward of `arm` over the best arm's.
    pub fn performance(&self, arm: usize) -> f64 {
        self.means[arm] / self.means[self.best]
    }
}

fn position<T, K>(list: &mut Vec<T>, key: K, same: impl Fn(&T, &K) -> bool, make: impl Fn(K) -> T) -> usize {
    match list.iter().position(|t| same(t, &key)) {
        Some(at) => at,
        None => {
            list.push(make(key));
            list.len() - 1
        }
    }
}

/// How to play.
#[derive(Clone, Copy, Debug)]
pub struct Play {
    /// Which bandit.
    pub policy: BanditConfig,
    /// How far back experience counts.
    pub memory: Memory,
    /// With which guard.
    pub guard: Option<Guard>,
    /// The arm a guard compares with.
    pub default: usize,
    /// Observations of each scenario.
    pub observations: usize,
    /// How often it is played; the results are means.
    pub repetitions: usize,
    /// The same seed gives the same result.
    pub seed: u64,
}

/// How one scenario went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Which scenario.
    pub scenario: String,
    /// How often the best arm was chosen in the last [`BIN`] observations.
    pub precision: f64,
    /// What those observations brought, over what the best arm brings.
    pub performance: f64,
    /// The same over all observations: what learning cost.
    pub overall: f64,
    /// The worst [`WINDOW`] observations in a row of any repetition, over what the default arm
    /// brings, counting each choice by its arm's mean.
    pub worst_window: f64,
    /// How often the best arm was chosen, by bins of [`BIN`] observations.
    pub curve: Vec<f64>,
}

/// Observations to a bin.
pub const BIN: usize = 10;
/// Observations in a row over which a guard is judged.
pub const WINDOW: usize = 30;

/// Plays every scenario by itself.
pub fn separately(rewards: &Rewards, play: &Play) -> Vec<Outcome> {
    let mut runs: Vec<Vec<Vec<usize>>> = vec![Vec::new(); rewards.scenarios.len()];
    for repetition in 0..play.repetitions {
        for (i, scenario) in rewards.scenarios.iter().enumerate() {
            let mut rng = generator(play.seed, repetition, i);
            let mut learner = Learner::new(rewards.arms.len(), play.default, play.memory);
            runs[i]
                .push((0..play.observations).map(|_| step(&mut learner, scenario, play, &mut rng)).collect());
        }
    }
    outcomes(rewards, play, &runs)
}

/// Plays all scenarios at once: each time one of them, drawn at random, is what the system sees.
pub fn together(rewards: &Rewards, play: &Play) -> Vec<Outcome> {
    let n = rewards.scenarios.len();
    let mut runs: Vec<Vec<Vec<usize>>> = vec![Vec::new(); n];
    for repetition in 0..play.repetitions {
        let mut rng = generator(play.seed, repetition, n);
        let mut learners = vec![Learner::new(rewards.arms.len(), play.default, play.memory); n];
        let mut chosen = vec![Vec::new(); n];
        for _ in 0..play.observations * n {
            let i = rng.random_range(0..n);
            chosen[i].push(step(&mut learners[i], &rewards.scenarios[i], play, &mut rng));
        }
        runs.iter_mut().zip(chosen).for_each(|(all, one)| all.push(one));
    }
    outcomes(rewards, play, &runs)
}

fn generator(seed: u64, repetition: usize, scenario: usize) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(((repetition as u64) << 20) | scenario as u64);
    rng
}

fn step(learner: &mut Learner, scenario: &Scenario, play: &Play, rng: &mut ChaCha8Rng) -> usize {
    let arm = learner.recommend(&play.policy, play.guard.as_ref(), true, rng).arm;
    if let Some(guard) = &play.guard {
        learner.commit(arm, guard);
    }
    if let Some(&reward) = scenario.rewards[arm].choose(rng) {
        learner.observe(arm, &[reward], play.guard.as_ref());
    }
    arm
}

fn outcomes(rewards: &Rewards, play: &Play, runs: &[Vec<Vec<usize>>]) -> Vec<Outcome> {
    rewards.scenarios.iter().zip(runs).map(|(scenario, runs)| outcome(scenario, play.default, runs)).collect()
}

fn outcome(scenario: &Scenario, default: usize, runs: &[Vec<usize>]) -> Outcome {
    let last: Vec<usize> =
        runs.iter().flat_map(|r| r[r.len().saturating_sub(BIN)..].iter().copied()).collect();
    let everything: Vec<usize> = runs.iter().flatten().copied().collect();
    let mean = |arms: &[usize], of: &dyn Fn(usize) -> f64| {
        arms.iter().map(|&a| of(a)).sum::<f64>() / arms.len().max(1) as f64
    };
    let right = |arm: usize| f64::from(u8::from(arm == scenario.best));
    let against_default = |arm: usize| scenario.means[arm] / scenario.means[default];
    let windows = runs.iter().flat_map(|r| r.windows(WINDOW)).map(|w| mean(w, &against_default));
    // Runs may differ in length when scenarios are drawn at random; a bin counts if all have it.
    let bins = runs.iter().map(|r| r.len() / BIN).min().unwrap_or(0);
    let bin = |i: usize| {
        runs.iter().flat_map(move |r| r[i * BIN..(i + 1) * BIN].iter().copied()).collect::<Vec<_>>()
    };
    Outcome {
        scenario: scenario.name.clone(),
        precision: mean(&last, &right),
        performance: mean(&last, &|a| scenario.performance(a)),
        overall: mean(&everything, &|a| scenario.performance(a)),
        worst_window: windows.fold(f64::INFINITY, f64::min).min(f64::MAX),
        curve: (0..bins).map(|i| mean(&bin(i), &right)).collect(),
    }
}

/// How one bandit did.
#[derive(Clone, Debug, Serialize)]
pub struct Played {
    /// Which, in words.
    pub bandit: String,
    /// In each scenario.
    pub outcomes: Vec<Outcome>,
}

/// Plays every kind of bandit as `play` says but for the bandit and the guard: ε-greedy in each scenario and
/// in all in turn, UCB1 with and without the usual guard, Thompson sampling.
pub fn compare(rewards: &Rewards, play: &Play, epsilon: f64) -> Vec<Played> {
    let epsilon = BanditConfig::EpsilonGreedy(EpsilonGreedy { epsilon, half_after: None });
    let ucb1 = BanditConfig::Ucb1(Ucb1::default());
    let thompson = BanditConfig::Thompson(Thompson::default());
    let with = |policy, guard| Play { policy, guard, ..*play };
    [
        (format!("{epsilon}"), separately(rewards, &with(epsilon, None))),
        (format!("{epsilon}, scenarios in turn"), together(rewards, &with(epsilon, None))),
        (format!("{ucb1}"), separately(rewards, &with(ucb1, None))),
        (format!("{thompson}"), separately(rewards, &with(thompson, None))),
        (format!("{ucb1}, guarded"), separately(rewards, &with(ucb1, Some(Guard::default())))),
    ]
    .map(|(bandit, outcomes)| Played { bandit, outcomes })
    .into()
}
