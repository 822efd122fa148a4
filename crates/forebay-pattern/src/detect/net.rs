//! The neural net: each feature made normal (Yeo-Johnson), centred and scaled; one hidden layer of
//! as many rectified units as there are features; softmax over the patterns.

use crate::detect::{Detector, Scores};
use serde::{Deserialize, Serialize};

/// More features than any net has; keeps a hostile file from asking for much.
pub(crate) const MAX_WIDTH: usize = 64;
/// Standard deviations beyond which a feature is taken as at the edge of what was trained.
const REACH: f64 = 4.0;

/// A small multi-layer perceptron with its input transformation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Net {
    pub(crate) inputs: Vec<Normal>,
    pub(crate) hidden: Layer,
    pub(crate) output: Layer,
}

/// Makes one feature roughly standard normal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Normal {
    pub(crate) lambda: f64,
    pub(crate) mean: f64,
    pub(crate) deviation: f64,
}

impl Normal {
    pub(crate) fn apply(&self, x: f64) -> f64 {
        let z = (yeo_johnson(x, self.lambda) - self.mean) / self.deviation;
        // An unseen extreme must not drive the net further than training ever did.
        if z.is_nan() { 0.0 } else { z.clamp(-REACH, REACH) }
    }
}

/// The Yeo-Johnson power transformation.
pub(crate) fn yeo_johnson(x: f64, lambda: f64) -> f64 {
    const NEAR: f64 = 1e-8;
    if x >= 0.0 {
        if lambda.abs() < NEAR { x.ln_1p() } else { ((x + 1.0).powf(lambda) - 1.0) / lambda }
    } else if (lambda - 2.0).abs() < NEAR {
        -(-x).ln_1p()
    } else {
        -((1.0 - x).powf(2.0 - lambda) - 1.0) / (2.0 - lambda)
    }
}

/// A dense layer: one row of weights and one bias to a unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Layer {
    pub(crate) weights: Vec<Vec<f64>>,
    pub(crate) biases: Vec<f64>,
}

impl Layer {
    /// The units' sums for `input`, written to `out`, which is as long as there are units.
    pub(crate) fn apply(&self, input: &[f64], out: &mut [f64]) {
        for ((sum, row), bias) in out.iter_mut().zip(&self.weights).zip(&self.biases) {
            *sum = bias + row.iter().zip(input).map(|(w, x)| w * x).sum::<f64>();
        }
    }

    fn check(&self, inputs: usize, units: usize) -> Result<(), String> {
        let shaped = self.weights.len() == units
            && self.biases.len() == units
            && self.weights.iter().all(|r| r.len() == inputs);
        let finite = self.weights.iter().flatten().chain(&self.biases).all(|w| w.is_finite());
        match (shaped, finite) {
            (true, true) => Ok(()),
            (false, _) => Err(format!("a layer of the net is not {inputs} × {units}")),
            (_, false) => Err("a weight of the net is not a finite number".into()),
        }
    }
}

pub(crate) fn softmax(sums: &mut Scores) {
    let largest = sums.iter().copied().fold(f64::MIN, f64::max);
    sums.iter_mut().for_each(|s| *s = (*s - largest).exp());
    let total: f64 = sums.iter().sum();
    sums.iter_mut().for_each(|s| *s /= total);
}

impl Detector for Net {
    fn scores(&self, features: &[f64]) -> Scores {
        let (mut input, mut hidden) = ([0.0; MAX_WIDTH], [0.0; MAX_WIDTH]);
        let width = self.inputs.len();
        for ((slot, normal), &x) in input.iter_mut().zip(&self.inputs).zip(features) {
            *slot = normal.apply(x);
        }
        self.hidden.apply(&input[..width], &mut hidden[..width]);
        hidden[..width].iter_mut().for_each(|h| *h = h.max(0.0));
        let mut sums = Scores::default();
        self.output.apply(&hidden[..width], &mut sums);
        softmax(&mut sums);
        sums
    }

    fn check(&self, features: usize) -> Result<(), String> {
        if self.inputs.len() != features || features > MAX_WIDTH {
            return Err(format!("the net takes {} numbers, not {features}", self.inputs.len()));
        }
        let sound = |n: &Normal| {
            (-10.0..=10.0).contains(&n.lambda)
                && n.mean.is_finite()
                && n.deviation.is_finite()
                && n.deviation > 0.0
        };
        if !self.inputs.iter().all(sound) {
            return Err("an input transformation of the net is out of range".into());
        }
        // Bounded inputs times bounded weights stay finite, so softmax never sees infinities.
        if self.hidden.weights.iter().chain(&self.output.weights).flatten().any(|w| w.abs() > 1e9) {
            return Err("a weight of the net is out of range".into());
        }
        self.hidden.check(features, features)?;
        self.output.check(features, Scores::default().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yeo_johnson_is_as_published() {
        // Values by the definition: ((x+1)^λ - 1)/λ and -((1-x)^(2-λ) - 1)/(2-λ).
        assert!((yeo_johnson(3.0, 0.5) - 2.0).abs() < 1e-12);
        assert!((yeo_johnson(3.0, 0.0) - 4f64.ln()).abs() < 1e-12);
        assert!((yeo_johnson(-3.0, 1.0) + 3.0).abs() < 1e-12);
        assert!((yeo_johnson(-3.0, 2.0) + 4f64.ln()).abs() < 1e-12);
        assert!((yeo_johnson(-3.0, 1.5) + 2.0).abs() < 1e-12);
    }
}
