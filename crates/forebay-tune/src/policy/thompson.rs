//! Thompson sampling: each arm as often as it is likely to be the best.

use super::{BanditPolicy, highest, normal};
use crate::values::Values;
use rand::RngCore;
use serde::{Deserialize, Serialize};

/// Thompson sampling with normal rewards: a draw from what each arm's mean may be; the highest wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thompson {}

impl BanditPolicy for Thompson {
    fn choose(&self, values: &Values, allowed: &[bool], rng: &mut dyn RngCore) -> usize {
        let noise = values.noise();
        highest(allowed, |arm| {
            let a = &values.arms()[arm];
            let draw = normal(rng);
            if a.is_blank() { f64::INFINITY } else { a.mean + noise * draw / a.weight.sqrt() }
        })
    }
}
