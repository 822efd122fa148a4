//! The seam between what is known and what is tried next: one trait, with ε-greedy, UCB1 and
//! Thompson sampling beside it. Sliding windows and discounting are not here but in the
//! [`Memory`](crate::Memory) of the values, so that every policy has them.

mod epsilon;
mod thompson;
mod ucb1;

pub use epsilon::EpsilonGreedy;
pub use thompson::Thompson;
pub use ucb1::Ucb1;

use crate::values::Values;
use rand::RngCore;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Chooses the arm to try next in one context.
pub trait BanditPolicy {
    /// The arm to try, of those that are `allowed`, of which there is at least one.
    fn choose(&self, values: &Values, allowed: &[bool], rng: &mut dyn RngCore) -> usize;
}

/// A policy with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "name")]
pub enum BanditConfig {
    /// The best known arm, but now and then any.
    EpsilonGreedy(EpsilonGreedy),
    /// The arm that may be the best, given how little is known of it.
    Ucb1(Ucb1),
    /// Each arm as often as it is likely to be the best.
    Thompson(Thompson),
}

impl Default for BanditConfig {
    fn default() -> BanditConfig {
        BanditConfig::Ucb1(Ucb1::default())
    }
}

impl BanditConfig {
    /// The policy.
    pub fn policy(&self) -> &dyn BanditPolicy {
        match self {
            BanditConfig::EpsilonGreedy(p) => p,
            BanditConfig::Ucb1(p) => p,
            BanditConfig::Thompson(p) => p,
        }
    }

    pub(crate) fn is_sound(&self) -> bool {
        match self {
            BanditConfig::EpsilonGreedy(p) => {
                (0.0..=1.0).contains(&p.epsilon) && p.half_after.is_none_or(|h| h > 0.0 && h.is_finite())
            }
            BanditConfig::Ucb1(_) | BanditConfig::Thompson(_) => true,
        }
    }
}

impl fmt::Display for BanditConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BanditConfig::EpsilonGreedy(p) => write!(f, "ε-greedy (ε = {})", p.epsilon),
            BanditConfig::Ucb1(_) => write!(f, "UCB1"),
            BanditConfig::Thompson(_) => write!(f, "Thompson sampling"),
        }
    }
}

/// The allowed arm with the highest score; of equal ones the first.
fn highest(allowed: &[bool], mut score: impl FnMut(usize) -> f64) -> usize {
    let mut best: Option<(usize, f64)> = None;
    for arm in (0..allowed.len()).filter(|&a| allowed[a]) {
        let s = score(arm);
        if best.is_none_or(|(_, b)| s > b) {
            best = Some((arm, s));
        }
    }
    best.map_or(0, |(arm, _)| arm)
}

/// A draw from the standard normal distribution (Box and Muller).
fn normal(rng: &mut dyn RngCore) -> f64 {
    use rand::Rng;
    let (u, v): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}
