//! Training the neural net: transformation by maximum likelihood, then RMSProp with momentum on the
//! cross-entropy, batches of 32, as in the thesis.

use super::Samples;
use crate::detect::Scores;
use crate::detect::net::{Layer, Net, Normal, softmax, yeo_johnson};
use forebay_types::Pattern;
use rand::Rng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

const CLASSES: usize = Pattern::ALL.len();
const EPOCHS: usize = 50;
const BATCH: usize = 32;
const RATE: f64 = 0.001;
const MOMENTUM: f64 = 0.9;
/// How fast RMSProp forgets squared gradients.
const DECAY: f64 = 0.9;
/// Rows used to choose a transformation: it hardly changes with more.
const NORMAL_ROWS: usize = 5_000;

pub(super) fn train(samples: &Samples, rng: &mut ChaCha8Rng, progress: &mut dyn FnMut(f64)) -> Net {
    let inputs: Vec<Normal> = (0..samples.width).map(|f| fit_normal(samples, f)).collect();
    let width = samples.width;
    let values: Vec<f64> = (0..samples.len())
        .flat_map(|i| samples.row(i).iter().zip(&inputs).map(|(&x, n)| n.apply(x)))
        .collect();
    let mut net = Net { inputs, hidden: layer(width, width, rng), output: layer(width, CLASSES, rng) };
    let mut steps = (Step::new(&net.hidden), Step::new(&net.output));
    let mut order: Vec<usize> = (0..samples.len()).collect();
    for epoch in 0..EPOCHS {
        progress(epoch as f64 / EPOCHS as f64);
        order.shuffle(rng);
        // Smaller steps towards the end settle the last rows.
        let rate = RATE / (1.0 + 4.0 * epoch as f64 / EPOCHS as f64);
        for batch in order.chunks(BATCH) {
            let (mut hidden, mut output) = (Gradient::new(&net.hidden), Gradient::new(&net.output));
            for &i in batch {
                let input = &values[i * width..(i + 1) * width];
                backward(&net, input, samples.classes[i] as usize, &mut hidden, &mut output);
            }
            steps.0.take(&mut net.hidden, &hidden, batch.len(), rate);
            steps.1.take(&mut net.output, &output, batch.len(), rate);
        }
    }
    net
}

/// Adds one row's gradient.
fn backward(net: &Net, input: &[f64], class: usize, hidden_grad: &mut Gradient, output_grad: &mut Gradient) {
    let mut hidden = vec![0.0; input.len()];
    net.hidden.apply(input, &mut hidden);
    hidden.iter_mut().for_each(|h| *h = h.max(0.0));
    let mut error = Scores::default();
    net.output.apply(&hidden, &mut error);
    softmax(&mut error);
    error[class] -= 1.0;
    output_grad.add(&error, &hidden);
    let mut back = vec![0.0; input.len()];
    for (row, e) in net.output.weights.iter().zip(error) {
        back.iter_mut().zip(row).for_each(|(b, w)| *b += w * e);
    }
    back.iter_mut().zip(&hidden).for_each(|(b, h)| {
        if *h <= 0.0 {
            *b = 0.0;
        }
    });
    hidden_grad.add(&back, input);
}

/// Weights from a normal distribution that keeps the signal's size (He).
fn layer(inputs: usize, units: usize, rng: &mut ChaCha8Rng) -> Layer {
    let scale = (2.0 / inputs as f64).sqrt();
    let weights = (0..units).map(|_| (0..inputs).map(|_| normal(rng) * scale).collect()).collect();
    Layer { weights, biases: vec![0.0; units] }
}

fn normal(rng: &mut ChaCha8Rng) -> f64 {
    let (u, v): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

struct Gradient {
    weights: Vec<Vec<f64>>,
    biases: Vec<f64>,
}

impl Gradient {
    fn new(layer: &Layer) -> Gradient {
        Gradient {
            weights: layer.weights.iter().map(|r| vec![0.0; r.len()]).collect(),
            biases: vec![0.0; layer.biases.len()],
        }
    }

    fn add(&mut self, errors: &[f64], inputs: &[f64]) {
        for ((row, bias), &e) in self.weights.iter_mut().zip(&mut self.biases).zip(errors) {
            *bias += e;
            row.iter_mut().zip(inputs).for_each(|(g, x)| *g += e * x);
        }
    }
}

/// RMSProp's memory for one layer.
struct Step {
    squares: Gradient,
    momentum: Gradient,
}

impl Step {
    fn new(layer: &Layer) -> Step {
        Step { squares: Gradient::new(layer), momentum: Gradient::new(layer) }
    }

    fn take(&mut self, layer: &mut Layer, gradient: &Gradient, batch: usize, rate: f64) {
        let step = |weight: &mut f64, g: f64, square: &mut f64, momentum: &mut f64| {
            let g = g / batch as f64;
            *square = DECAY * *square + (1.0 - DECAY) * g * g;
            *momentum = MOMENTUM * *momentum + rate * g / (square.sqrt() + 1e-7);
            *weight -= *momentum;
        };
        for unit in 0..layer.biases.len() {
            let (squares, momenta) = (&mut self.squares.weights[unit], &mut self.momentum.weights[unit]);
            for (i, w) in layer.weights[unit].iter_mut().enumerate() {
                step(w, gradient.weights[unit][i], &mut squares[i], &mut momenta[i]);
            }
            let (square, momentum) = (&mut self.squares.biases[unit], &mut self.momentum.biases[unit]);
            step(&mut layer.biases[unit], gradient.biases[unit], square, momentum);
        }
    }
}

/// The Yeo-Johnson exponent of greatest likelihood for one feature, with the mean and deviation
/// after it.
fn fit_normal(samples: &Samples, feature: usize) -> Normal {
    let stride = samples.len().div_ceil(NORMAL_ROWS).max(1);
    let xs: Vec<f64> = (0..samples.len()).step_by(stride).map(|i| samples.row(i)[feature]).collect();
    // Golden-section search: the likelihood has a single peak.
    let golden = (5f64.sqrt() - 1.0) / 2.0;
    let (mut low, mut high) = (-2.0, 2.0);
    for _ in 0..40 {
        let (a, b) = (high - golden * (high - low), low + golden * (high - low));
        if likelihood(&xs, a) > likelihood(&xs, b) { high = b } else { low = a }
    }
    let lambda = (low + high) / 2.0;
    let (mean, variance) = moments(&xs, lambda);
    // A feature that never varies says nothing; any scale will do.
    let deviation = if variance > 1e-18 { variance.sqrt() } else { 1.0 };
    Normal { lambda, mean, deviation }
}

fn moments(xs: &[f64], lambda: f64) -> (f64, f64) {
    let n = xs.len() as f64;
    let mean = xs.iter().map(|&x| yeo_johnson(x, lambda)).sum::<f64>() / n;
    let variance = xs.iter().map(|&x| (yeo_johnson(x, lambda) - mean).powi(2)).sum::<f64>() / n;
    (mean, variance)
}

fn likelihood(xs: &[f64], lambda: f64) -> f64 {
    let (_, variance) = moments(xs, lambda);
    let jacobian: f64 = xs.iter().map(|x| x.signum() * x.abs().ln_1p()).sum();
    -(xs.len() as f64) / 2.0 * variance.max(1e-300).ln() + (lambda - 1.0) * jacobian
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn a_log_normal_feature_is_made_normal() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let values: Vec<f64> = (0..4000).map(|_| normal(&mut rng).exp() * 1000.0).collect();
        let samples = Samples { width: 1, classes: vec![0; values.len()], values };
        let fitted = fit_normal(&samples, 0);
        assert!(fitted.lambda.abs() < 0.05, "a logarithm has exponent 0, not {}", fitted.lambda);
        let z: Vec<f64> = samples.values.iter().map(|&x| fitted.apply(x)).collect();
        let mean = z.iter().sum::<f64>() / z.len() as f64;
        let variance = z.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / z.len() as f64;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.05);
    }

    #[test]
    fn the_gradient_is_the_slope_of_the_loss() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let inputs = vec![Normal { lambda: 1.0, mean: 0.0, deviation: 1.0 }; 3];
        let mut net = Net { inputs, hidden: layer(3, 3, &mut rng), output: layer(3, CLASSES, &mut rng) };
        let input = [0.3, -0.7, 1.1];
        let loss = |net: &Net| {
            let mut hidden = [0.0; 3];
            net.hidden.apply(&input, &mut hidden);
            let hidden = hidden.map(|h| h.max(0.0));
            let mut sums = Scores::default();
            net.output.apply(&hidden, &mut sums);
            softmax(&mut sums);
            -sums[2].ln()
        };
        let (mut hidden, mut output) = (Gradient::new(&net.hidden), Gradient::new(&net.output));
        backward(&net, &input, 2, &mut hidden, &mut output);
        let h = 1e-6;
        for unit in 0..3 {
            for i in 0..3 {
                net.hidden.weights[unit][i] += h;
                let up = loss(&net);
                net.hidden.weights[unit][i] -= 2.0 * h;
                let down = loss(&net);
                net.hidden.weights[unit][i] += h;
                let slope = (up - down) / (2.0 * h);
                assert!(
                    (slope - hidden.weights[unit][i]).abs() < 1e-6,
                    "{slope} {}",
                    hidden.weights[unit][i]
                );
            }
        }
    }
}
