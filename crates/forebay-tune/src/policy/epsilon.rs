//! ε-greedy: the best known arm, but with probability ε any.

use super::{BanditPolicy, highest};
use crate::values::Values;
use rand::seq::IteratorRandom;
use rand::{Rng, RngCore};
use serde::{Deserialize, Serialize};

/// ε-greedy, whose ε may fall as the context becomes known.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EpsilonGreedy {
    /// How probable it is to try any arm.
    pub epsilon: f64,
    /// After so many observations ε is half of what it was, after three times as many a quarter.
    pub half_after: Option<f64>,
}

impl Default for EpsilonGreedy {
    fn default() -> EpsilonGreedy {
        EpsilonGreedy { epsilon: 0.1, half_after: None }
    }
}

impl BanditPolicy for EpsilonGreedy {
    fn choose(&self, values: &Values, allowed: &[bool], rng: &mut dyn RngCore) -> usize {
        let fallen = self.half_after.map_or(1.0, |h| 1.0 + values.weight() / h);
        let any = |rng: &mut dyn RngCore| (0..allowed.len()).filter(|&a| allowed[a]).choose(rng).unwrap_or(0);
        if rng.random::<f64>() < self.epsilon / fallen || values.best().is_none() {
            return any(rng);
        }
        highest(allowed, |a| values.arms()[a].mean)
    }
}
