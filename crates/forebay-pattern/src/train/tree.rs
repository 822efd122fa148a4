//! Growing a decision tree: at each node the split that leaves the purest halves (Gini).

use super::Samples;
use crate::detect::Scores;
use crate::detect::tree::{Node, Tree};
use forebay_types::Pattern;
use rand::seq::index;
use rand_chacha::ChaCha8Rng;

const CLASSES: usize = Pattern::ALL.len();
const MAX_DEPTH: u32 = 16;
/// A leaf stands for at least this many rows.
const LEAST_LEAF: usize = 5;
/// A split must remove at least this share of the impurity of one row.
const LEAST_GAIN: f64 = 1e-6;
/// A split that removes this share of the impurity the best one removes is as good.
const NEARLY: f64 = 0.98;

pub(super) fn train(samples: &Samples) -> Tree {
    let mut rows: Vec<u32> = (0..samples.len() as u32).collect();
    grow(samples, &mut rows, None)
}

/// Grows a tree on `rows`; with `some` each split chooses among that many features, drawn anew.
pub(super) fn grow(samples: &Samples, rows: &mut [u32], some: Option<(usize, &mut ChaCha8Rng)>) -> Tree {
    let all = (0..samples.width).collect();
    let mut grower =
        Grower { samples, some, all, nodes: Vec::new(), column: Vec::new(), candidates: Vec::new() };
    grower.node(rows, 0);
    Tree { nodes: grower.nodes }
}

struct Grower<'a> {
    samples: &'a Samples,
    some: Option<(usize, &'a mut ChaCha8Rng)>,
    all: Vec<usize>,
    nodes: Vec<Node>,
    column: Vec<(f64, u8)>,
    candidates: Vec<Split>,
}

#[derive(Clone, Copy)]
struct Split {
    feature: usize,
    at: f64,
    gain: f64,
    /// The distance between the values on both sides, over the feature's range here.
    gap: f64,
}

impl Grower<'_> {
    fn node(&mut self, rows: &mut [u32], depth: u32) -> u32 {
        let me = self.nodes.len();
        let counts = self.count(rows);
        self.nodes.push(leaf(&counts, rows.len()));
        if depth < MAX_DEPTH
            && rows.len() >= 2 * LEAST_LEAF
            && let Some(split) = self.best_split(rows, &counts)
        {
            let (samples, feature, at) = (self.samples, split.feature, split.at);
            let middle = partition(rows, |&r| samples.row(r as usize)[feature] <= at);
            let (low_rows, high_rows) = rows.split_at_mut(middle);
            let low = self.node(low_rows, depth + 1);
            let high = self.node(high_rows, depth + 1);
            self.nodes[me] = Node::Split { feature: feature as u32, at, low, high };
        }
        me as u32
    }

    fn count(&self, rows: &[u32]) -> [usize; CLASSES] {
        let mut counts = [0; CLASSES];
        rows.iter().for_each(|&r| counts[self.samples.classes[r as usize] as usize] += 1);
        counts
    }

    fn best_split(&mut self, rows: &[u32], counts: &[usize; CLASSES]) -> Option<Split> {
        let impurity = gini(counts, rows.len());
        if impurity == 0.0 {
            return None;
        }
        let features = match &mut self.some {
            Some((n, rng)) => {
                let mut drawn =
                    index::sample(rng, self.samples.width, (*n).min(self.samples.width)).into_vec();
                drawn.sort_unstable();
                drawn
            }
            None => self.all.clone(),
        };
        self.candidates.clear();
        for feature in features {
            self.thresholds(rows, counts, feature, impurity);
        }
        let most = self.candidates.iter().map(|c| c.gain).fold(0.0, f64::max);
        // Of splits that are nearly as good as the best, the one with the widest gap around it: it is
        // the least likely to fall on the wrong side of a case not seen. Then the earlier feature.
        let good = self.candidates.iter().filter(|c| c.gain >= NEARLY * most);
        good.copied().reduce(|a, b| if b.gap > a.gap { b } else { a })
    }

    /// Adds the possible splits by `feature`.
    fn thresholds(&mut self, rows: &[u32], counts: &[usize; CLASSES], feature: usize, impurity: f64) {
        let samples = self.samples;
        self.column.clear();
        self.column
            .extend(rows.iter().map(|&r| (samples.row(r as usize)[feature], samples.classes[r as usize])));
        self.column.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let n = rows.len();
        let range = self.column[n - 1].0 - self.column[0].0;
        let (mut low, mut high) = ([0; CLASSES], *counts);
        for i in 0..n - 1 {
            let (value, class) = self.column[i];
            low[class as usize] += 1;
            high[class as usize] -= 1;
            let next = self.column[i + 1].0;
            let (left, right) = (i + 1, n - i - 1);
            if value == next || left < LEAST_LEAF || right < LEAST_LEAF {
                continue;
            }
            let after = (gini(&low, left) * left as f64 + gini(&high, right) * right as f64) / n as f64;
            let gain = impurity - after;
            if gain * n as f64 > LEAST_GAIN {
                // Halfway, unless rounding puts that onto the upper value.
                let halfway = value + (next - value) / 2.0;
                let at = if halfway < next { halfway } else { value };
                self.candidates.push(Split { feature, at, gain, gap: (next - value) / range });
            }
        }
    }
}

fn gini(counts: &[usize; CLASSES], n: usize) -> f64 {
    1.0 - counts.iter().map(|&c| (c as f64 / n as f64).powi(2)).sum::<f64>()
}

/// Shares of the classes, drawn a little towards even: a leaf of few rows is less sure.
fn leaf(counts: &[usize; CLASSES], n: usize) -> Node {
    let mut scores = Scores::default();
    for (score, &count) in scores.iter_mut().zip(counts) {
        *score = (count as f64 + 1.0 / CLASSES as f64) / (n as f64 + 1.0);
    }
    Node::Leaf(scores)
}

/// Moves the rows `low` wants to the front and says how many they are.
fn partition(rows: &mut [u32], low: impl Fn(&u32) -> bool) -> usize {
    let mut middle = 0;
    for i in 0..rows.len() {
        if low(&rows[i]) {
            rows.swap(i, middle);
            middle += 1;
        }
    }
    middle
}
