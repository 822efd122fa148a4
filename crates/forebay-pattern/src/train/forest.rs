//! Growing a random forest: each tree on rows drawn with replacement, each split among a few
//! features.

use super::{Samples, tree};
use crate::detect::forest::Forest;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

const TREES: usize = 100;
/// Features tried at a split; the thesis found 3 best.
const FEATURES: usize = 3;
/// Rows a tree sees at most: beyond, more rows cost time and change nothing.
const MAX_ROWS: usize = 20_000;

pub(super) fn train(samples: &Samples, rng: &mut ChaCha8Rng, progress: &mut dyn FnMut(f64)) -> Forest {
    let trees = (0..TREES)
        .map(|i| {
            progress(i as f64 / TREES as f64);
            let n = samples.len().min(MAX_ROWS);
            let mut rows: Vec<u32> = (0..n).map(|_| rng.random_range(0..samples.len() as u32)).collect();
            tree::grow(samples, &mut rows, Some((FEATURES, rng)))
        })
        .collect();
    Forest { trees }
}
