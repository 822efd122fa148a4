//! UCB1: the arm whose mean may be the highest, given how seldom it was tried.

use super::{BanditPolicy, highest};
use crate::values::Values;
use rand::RngCore;
use serde::{Deserialize, Serialize};

/// Each arm is tried so often before it is compared: a scheduler that has just been changed may not have
/// settled, and one bad draw would keep the best arm out for very long.
const LEAST_TRIALS: u64 = 3;

/// UCB1 with rewards scaled by their noise: mean + noise · √(2 ln t / n). Published for rewards
/// between 0 and 1; scaled by their range instead, bandwidths that differ by a tenth and scatter by a
/// twentieth would be explored as if they scattered from nothing to full speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ucb1 {}

impl BanditPolicy for Ucb1 {
    fn choose(&self, values: &Values, allowed: &[bool], _: &mut dyn RngCore) -> usize {
        let t = values.weight().max(1.0);
        highest(allowed, |arm| {
            let a = &values.arms()[arm];
            if a.is_blank() || a.seen < LEAST_TRIALS {
                f64::INFINITY
            } else {
                a.mean + values.noise_of(arm) * (2.0 * t.ln() / a.weight).sqrt()
            }
        })
    }
}
