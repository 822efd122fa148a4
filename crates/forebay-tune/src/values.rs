//! What is known of each arm in one context: a mean and how sure it is, over all of the past, over
//! its latest part, or with the past fading.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// How far back experience counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Memory {
    /// All of it: for systems that stay as they are.
    #[default]
    All,
    /// The latest so many observations of the context.
    Window(u32),
    /// All of it, but each new observation of the context leaves this share of the old weight.
    Discount(f64),
}

impl Memory {
    /// The longest window.
    pub const MAX_WINDOW: u32 = 100_000;

    pub(crate) fn is_sound(&self) -> bool {
        match *self {
            Memory::All => true,
            Memory::Window(n) => (1..=Memory::MAX_WINDOW).contains(&n),
            Memory::Discount(share) => share > 0.0 && share <= 1.0,
        }
    }
}

/// What is known of one arm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Observations, less what was forgotten.
    pub weight: f64,
    /// Mean reward; 0 without observations.
    pub mean: f64,
    /// Squared deviations from the mean, added up.
    pub squares: f64,
    /// Observations ever.
    pub seen: u64,
}

impl Estimate {
    /// Takes in `reward` with full weight (Welford's method).
    fn add(&mut self, reward: f64) {
        self.weight += 1.0;
        let off = reward - self.mean;
        self.mean += off / self.weight;
        self.squares += off * (reward - self.mean);
    }

    /// Nothing is known that still counts.
    pub fn is_blank(&self) -> bool {
        // What is left of one observation after fading this far says nothing any more.
        self.weight < 0.05
    }

    fn is_sound(&self) -> bool {
        [self.weight, self.mean, self.squares].iter().all(|x| x.is_finite() && *x >= 0.0)
    }
}

/// What is known of every arm in one context.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Values {
    memory: Memory,
    arms: Vec<Estimate>,
    /// The observations of a [`Memory::Window`], oldest first.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    recent: VecDeque<(u32, f64)>,
}

/// Relative noise assumed before any was measured, as if seen so often.
const PRIOR_NOISE: f64 = 0.1;
const PRIOR_WEIGHT: f64 = 3.0;
/// Noise is never taken to be less than this share of the best mean.
const LEAST_NOISE: f64 = 0.01;

impl Values {
    /// Nothing known of `arms` arms.
    pub fn new(arms: usize, memory: Memory) -> Values {
        Values { memory, arms: vec![Estimate::default(); arms], recent: VecDeque::new() }
    }

    /// `arm` brought `reward`. Rewards below zero or not finite are not rewards and are left out.
    pub fn observe(&mut self, arm: usize, reward: f64) {
        if arm >= self.arms.len() || !reward.is_finite() || reward < 0.0 {
            return;
        }
        self.arms[arm].seen += 1;
        match self.memory {
            Memory::All => self.arms[arm].add(reward),
            Memory::Discount(share) => {
                for a in &mut self.arms {
                    a.weight *= share;
                    a.squares *= share;
                }
                self.arms[arm].add(reward);
            }
            Memory::Window(length) => {
                self.recent.push_back((arm as u32, reward));
                let gone = (self.recent.len() > length as usize).then(|| self.recent.pop_front()).flatten();
                self.recount(arm as u32);
                if let Some((other, _)) = gone.filter(|g| g.0 != arm as u32) {
                    self.recount(other);
                }
            }
        }
    }

    fn recount(&mut self, arm: u32) {
        let mut fresh = Estimate { seen: self.arms[arm as usize].seen, ..Estimate::default() };
        self.recent.iter().filter(|r| r.0 == arm).for_each(|r| fresh.add(r.1));
        self.arms[arm as usize] = fresh;
    }

    /// The arms' estimates.
    pub fn arms(&self) -> &[Estimate] {
        &self.arms
    }

    /// All observations that still count.
    pub fn weight(&self) -> f64 {
        self.arms.iter().map(|a| a.weight).sum()
    }

    /// The arm with the highest mean of those that were tried, if any was.
    pub fn best(&self) -> Option<usize> {
        let tried = (0..self.arms.len()).filter(|&a| !self.arms[a].is_blank());
        tried.max_by(|&a, &b| self.arms[a].mean.total_cmp(&self.arms[b].mean).then(b.cmp(&a)))
    }

    /// How much single rewards scatter about their arm's mean, from all arms together. This is the
    /// unit in which a difference between arms is large or small: UCB1's rewards are scaled by it.
    pub fn noise(&self) -> f64 {
        let best = self.best().map_or(0.0, |a| self.arms[a].mean);
        let squares: f64 = self.arms.iter().map(|a| a.squares).sum();
        let freedom: f64 = self.arms.iter().map(|a| (a.weight - 1.0).max(0.0)).sum();
        let prior = PRIOR_NOISE * best;
        let variance = (squares + PRIOR_WEIGHT * prior * prior) / (freedom + PRIOR_WEIGHT);
        variance.sqrt().max(LEAST_NOISE * best)
    }

    /// How much single rewards of one arm scatter: its own scatter, as far as it was seen, and that of
    /// all arms. An arm that is sometimes much better than at other times must not be given up after
    /// a few bad draws only because the others are steady.
    pub fn noise_of(&self, arm: usize) -> f64 {
        let a = &self.arms[arm];
        let shared = self.noise();
        let freedom = (a.weight - 1.0).max(0.0);
        let variance = (a.squares + PRIOR_WEIGHT * shared * shared) / (freedom + PRIOR_WEIGHT);
        variance.sqrt()
    }

    /// A reward that `arm`'s true mean hardly falls short of: `z` standard errors below its estimate.
    pub fn lower(&self, arm: usize, z: f64) -> f64 {
        let a = &self.arms[arm];
        if a.is_blank() { 0.0 } else { (a.mean - z * self.noise() / a.weight.sqrt()).max(0.0) }
    }

    /// A reward that `arm`'s true mean hardly exceeds: `z` standard errors above its estimate.
    pub fn upper(&self, arm: usize, z: f64) -> f64 {
        let a = &self.arms[arm];
        if a.is_blank() { f64::INFINITY } else { a.mean + z * self.noise() / a.weight.sqrt() }
    }

    /// These values with the arms rearranged and another memory: `from[i]` is where the new arm `i`
    /// stands here, or `None` for one that is new.
    pub(crate) fn rearranged(&self, from: &[Option<usize>], memory: Memory) -> Values {
        let mut fresh = Values::new(from.len(), memory);
        for (new, old) in from.iter().enumerate().filter_map(|(n, o)| o.map(|o| (n, o))) {
            fresh.arms[new] = self.arms[old];
        }
        if let Memory::Window(length) = memory {
            // Single rewards are needed: the remembered ones, or else each mean as often as it was
            // seen, as far as there is room for all arms.
            let to = |old: u32| from.iter().position(|f| *f == Some(old as usize));
            let mut recent: VecDeque<(u32, f64)> =
                self.recent.iter().filter_map(|&(a, r)| to(a).map(|n| (n as u32, r))).collect();
            if !matches!(self.memory, Memory::Window(_)) {
                let room = (length as usize / from.len().max(1)).max(1);
                for (arm, e) in fresh.arms.iter().enumerate() {
                    recent.extend(std::iter::repeat_n((arm as u32, e.mean), (e.weight as usize).min(room)));
                }
            }
            recent.drain(..recent.len().saturating_sub(length as usize));
            fresh.recent = recent;
            (0..from.len()).for_each(|arm| fresh.recount(arm as u32));
        }
        fresh
    }

    pub(crate) fn check(&self, arms: usize) -> Result<(), String> {
        if self.arms.len() != arms {
            return Err(format!("{} estimates for {arms} arms", self.arms.len()));
        }
        if !self.memory.is_sound() || !self.arms.iter().all(Estimate::is_sound) {
            return Err("an estimate is negative or not a number".into());
        }
        let sound =
            |&(arm, reward): &(u32, f64)| (arm as usize) < arms && reward.is_finite() && reward >= 0.0;
        if !self.recent.iter().all(sound) || self.recent.len() > Memory::MAX_WINDOW as usize {
            return Err("a remembered reward is of no arm or not a number".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// All three memories against weighted sums over the whole history.
        #[test]
        fn estimates_are_weighted_means(history in prop::collection::vec((0usize..3, 0.0f64..1000.0), 1..60), length in 1u32..20, share in 0.5f64..1.0) {
            for memory in [Memory::All, Memory::Window(length), Memory::Discount(share)] {
                let mut values = Values::new(3, memory);
                history.iter().for_each(|&(arm, r)| values.observe(arm, r));
                for arm in 0..3 {
                    let age = |i: usize| history.len() - 1 - i;
                    let weight = |i: usize| match memory {
                        Memory::All => 1.0,
                        Memory::Window(n) => f64::from(u8::from(age(i) < n as usize)),
                        Memory::Discount(s) => s.powi(age(i) as i32),
                    };
                    let mine: Vec<(f64, f64)> = history.iter().enumerate().filter(|(_, h)| h.0 == arm).map(|(i, h)| (weight(i), h.1)).collect();
                    let total: f64 = mine.iter().map(|m| m.0).sum();
                    let got = values.arms()[arm];
                    prop_assert!((got.weight - total).abs() < 1e-9);
                    prop_assert_eq!(got.seen as usize, mine.len());
                    if total > 0.0 {
                        let mean = mine.iter().map(|m| m.0 * m.1).sum::<f64>() / total;
                        let squares: f64 = mine.iter().map(|m| m.0 * (m.1 - mean).powi(2)).sum();
                        prop_assert!((got.mean - mean).abs() < 1e-6, "{memory:?} {} {mean}", got.mean);
                        prop_assert!((got.squares - squares).abs() < 1e-3, "{memory:?} {} {squares}", got.squares);
                    }
                }
            }
        }
    }

    #[test]
    fn nonsense_is_no_reward() {
        let mut v = Values::new(2, Memory::All);
        for (arm, reward) in [(0, f64::NAN), (0, f64::INFINITY), (0, -1.0), (9, 1.0)] {
            v.observe(arm, reward);
        }
        assert_eq!(v, Values::new(2, Memory::All));
        assert_eq!(v.best(), None);
    }
}
