//! One context's bandit with its guard: what to do next here, and why.

use crate::guard::{Guard, LEAST_DEFAULT, Ledger, bar_length};
use crate::policy::BanditConfig;
use crate::values::{Memory, Values};
use rand::RngCore;
use serde::{Deserialize, Serialize};

/// Why an arm is recommended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "because")]
pub enum Why {
    /// The default is not known well enough yet to compare others with it.
    LearningDefault,
    /// It has the highest mean reward.
    Best {
        /// That mean.
        mean: f64,
        /// From so many observations.
        weight: f64,
    },
    /// It is tried to learn more about it.
    Exploring {
        /// The share of the default's performance that may be lost by it, at worst.
        risk: f64,
    },
    /// Trying `wanted` would risk more than is left of the budget.
    BudgetSpent {
        /// The arm the policy asked for.
        wanted: usize,
        /// What it may lose.
        risk: f64,
        /// What may still be lost.
        left: f64,
    },
    /// A job asked not to be experimented with.
    NoExploring,
    /// The last trial of `from` fell short of the best known by more than the margin.
    RolledBack {
        /// The arm that was tried.
        from: usize,
        /// What it brought.
        reward: f64,
        /// What the best known arm brings.
        best: f64,
    },
}

/// An arm and why.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recommendation {
    /// The arm's index.
    pub arm: usize,
    /// Why this one.
    pub why: Why,
}

/// What is known and risked in one context.
#[derive(Clone, Debug, PartialEq)]
pub struct Learner {
    values: Values,
    default: usize,
    ledger: Ledger,
    /// The arm that was just found wanting, and by what reward.
    failed: Option<(usize, f64)>,
    /// For each arm, the decision until which it is not tried again, and how often it failed.
    barred: Vec<(u64, u32)>,
    decisions: u64,
}

impl Learner {
    /// Nothing known of `arms` arms, of which `default` is the one to beat.
    pub fn new(arms: usize, default: usize, memory: Memory) -> Learner {
        Learner::resume(Values::new(arms, memory), default, None)
    }

    /// Goes on with `values`. What is known to fall short is not tried anew: each time it was seen counts
    /// as a trial that failed.
    pub(crate) fn resume(values: Values, default: usize, guard: Option<&Guard>) -> Learner {
        let best = values.best().map_or(0.0, |b| values.arms()[b].mean);
        let short = |mean: f64| guard.is_some_and(|g| mean < (1.0 - g.margin) * best);
        let barred = values.arms().iter().map(|arm| match u32::try_from(arm.seen).unwrap_or(u32::MAX) {
            failures @ 1.. if short(arm.mean) => (bar_length(failures - 1), failures),
            _ => (0, 0),
        });
        let barred = barred.collect();
        Learner { values, default, ledger: Ledger::default(), failed: None, barred, decisions: 0 }
    }

    /// What is known.
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// These `rewards` were observed, each by a node, with `arm` in force since the last decision. The
    /// nodes saw the same storage at the same time, so they are one observation: their mean.
    pub fn observe(&mut self, arm: usize, rewards: &[f64], guard: Option<&Guard>) {
        if arm >= self.values.arms().len() || rewards.is_empty() {
            return;
        }
        let best_before = self.values.best().map(|b| (b, self.values.arms()[b].mean));
        let reward = rewards.iter().sum::<f64>() / rewards.len() as f64;
        self.values.observe(arm, reward);
        let Some(guard) = guard else { return };
        self.ledger.settle(guard.risk(&self.values, arm, self.default), arm);
        if let Some((best, mean)) = best_before
            && best != arm
            && reward < (1.0 - guard.margin) * mean
        {
            self.failed = Some((arm, reward));
            let (until, failures) = &mut self.barred[arm];
            *until = self.decisions + bar_length(*failures);
            *failures = failures.saturating_add(1);
        }
    }

    /// What to do next. Without a guard, what the policy says.
    pub fn recommend(
        &mut self,
        policy: &BanditConfig,
        guard: Option<&Guard>,
        may_explore: bool,
        rng: &mut dyn RngCore,
    ) -> Recommendation {
        self.decisions += 1;
        let everything = vec![true; self.values.arms().len()];
        let Some(guard) = guard else {
            let arm = policy.policy().choose(&self.values, &everything, rng);
            return self.plain(arm, 0.0);
        };
        if self.values.arms()[self.default].weight < LEAST_DEFAULT {
            return Recommendation { arm: self.default, why: Why::LearningDefault };
        }
        let safe = guard.safest(&self.values, self.default);
        let failed = self.failed.take();
        if !may_explore {
            return Recommendation { arm: safe, why: Why::NoExploring };
        }
        if let Some((from, reward)) = failed {
            let best = self.values.best().map_or(0.0, |b| self.values.arms()[b].mean);
            return Recommendation { arm: safe, why: Why::RolledBack { from, reward, best } };
        }
        let decisions = self.decisions;
        let mut allowed: Vec<bool> = self.barred.iter().map(|&(until, _)| until < decisions).collect();
        allowed[self.default] = true;
        allowed[safe] = true;
        let arm = policy.policy().choose(&self.values, &allowed, rng);
        let risk = guard.risk(&self.values, arm, self.default);
        let left = guard.budget() - self.ledger.risked(guard.window);
        if risk > left {
            return Recommendation { arm: safe, why: Why::BudgetSpent { wanted: arm, risk, left } };
        }
        self.plain(arm, risk)
    }

    fn plain(&self, arm: usize, risk: f64) -> Recommendation {
        let e = self.values.arms()[arm];
        let why = if self.values.best() == Some(arm) {
            Why::Best { mean: e.mean, weight: e.weight }
        } else {
            Why::Exploring { risk }
        };
        Recommendation { arm, why }
    }

    /// `arm` is put in force: what it may lose is booked until it is known.
    pub fn commit(&mut self, arm: usize, guard: &Guard) {
        self.ledger.book(guard.risk(&self.values, arm, self.default), arm, guard.window);
    }
}

impl Why {
    /// In words, with the arms by their `names`.
    pub fn explain(&self, names: &[String]) -> String {
        let name = |arm: usize| names.get(arm).map_or("an arm no longer declared", String::as_str);
        let percent = |share: f64| format!("{:.0} %", share.max(0.0) * 100.0);
        match *self {
            Why::LearningDefault => "learning what the default brings".into(),
            Why::Best { mean, weight } => format!("best known, {mean:.1} MB/s over {weight:.0} observations"),
            Why::Exploring { risk } => format!("exploring, risking {} of one interval", percent(risk)),
            Why::BudgetSpent { wanted, risk, left } => format!(
                "trying {} would risk {} of an interval, and only {} may still be lost",
                name(wanted),
                percent(risk),
                percent(left)
            ),
            Why::NoExploring => "best known; a job asked not to be experimented with".into(),
            Why::RolledBack { from, reward, best } => {
                format!(
                    "rolled back from {}, which brought {reward:.1} MB/s where {best:.1} are known",
                    name(from)
                )
            }
        }
    }
}
