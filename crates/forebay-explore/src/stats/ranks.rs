//! Tests on ranks: no assumption about how bandwidths are distributed.

use serde::Serialize;
use statrs::distribution::{ChiSquared, ContinuousCDF, Normal};

/// Whether any of several groups differs from the others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct KruskalWallis {
    /// The statistic, corrected for ties.
    pub h: f64,
    /// The chance of such an `h` if all groups were alike.
    pub p: f64,
}

/// Dunn's comparison of two groups. Its p values are two-sided.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Index of the first group.
    pub a: usize,
    /// Index of the second group, larger than `a`.
    pub b: usize,
    /// Mean rank of `a` minus that of `b`, in standard errors: negative where `b` is larger.
    pub z: f64,
    /// Not adjusted for the number of comparisons.
    pub p: f64,
    /// Bonferroni's adjustment.
    pub bonferroni: f64,
    /// Holm's adjustment.
    pub holm: f64,
}

/// All pairs of groups, in order: (0,1), (0,2), … (1,2), …
pub type Dunn = Vec<Comparison>;

/// The ranks of `values`, from 1; equal values share the mean of their ranks.
pub fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&i, &j| values[i].total_cmp(&values[j]));
    let mut out = vec![0.0; values.len()];
    let mut start = 0;
    while start < order.len() {
        let same = order[start..].iter().take_while(|&&i| values[i] == values[order[start]]).count();
        // A NaN is not even equal to itself.
        let end = start + same.max(1);
        let shared = (start + 1 + end) as f64 / 2.0;
        for &i in &order[start..end] {
            out[i] = shared;
        }
        start = end;
    }
    out
}

/// Σ(t³ − t) over the runs of equal values.
fn tie_sum(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.chunk_by(|a, b| a == b).map(|run| (run.len() as f64).powi(3) - run.len() as f64).sum()
}

struct Ranked {
    n: f64,
    ties: f64,
    /// Mean rank and size of each group.
    groups: Vec<(f64, f64)>,
}

fn rank_groups(groups: &[&[f64]]) -> Ranked {
    let all: Vec<f64> = groups.concat();
    let ranks = ranks(&all);
    let mut at = 0;
    let mut means = Vec::with_capacity(groups.len());
    for g in groups {
        let size = g.len() as f64;
        means.push((ranks[at..at + g.len()].iter().sum::<f64>() / size, size));
        at += g.len();
    }
    Ranked { n: all.len() as f64, ties: tie_sum(&all), groups: means }
}

/// Kruskal and Wallis' test. `None` for fewer than two groups or an empty one; groups that hold one
/// value only are alike (p = 1).
pub fn kruskal_wallis(groups: &[&[f64]]) -> Option<KruskalWallis> {
    if groups.len() < 2 || groups.iter().any(|g| g.is_empty()) {
        return None;
    }
    let r = rank_groups(groups);
    let correction = 1.0 - r.ties / (r.n.powi(3) - r.n);
    if correction <= 0.0 {
        return Some(KruskalWallis { h: 0.0, p: 1.0 });
    }
    let sum: f64 = r.groups.iter().map(|(mean, size)| size * mean * mean).sum();
    let h = (12.0 / (r.n * (r.n + 1.0)) * sum - 3.0 * (r.n + 1.0)) / correction;
    let p = ChiSquared::new((groups.len() - 1) as f64).ok()?.sf(h.max(0.0));
    Some(KruskalWallis { h, p })
}

/// Dunn's test of every pair, corrected for ties. Empty for fewer than two groups or an empty one.
pub fn dunn(groups: &[&[f64]]) -> Dunn {
    if groups.len() < 2 || groups.iter().any(|g| g.is_empty()) {
        return Vec::new();
    }
    let r = rank_groups(groups);
    let variance = r.n * (r.n + 1.0) / 12.0 - if r.n > 1.0 { r.ties / (12.0 * (r.n - 1.0)) } else { 0.0 };
    let normal = Normal::standard();
    let mut out = Vec::new();
    for a in 0..groups.len() {
        for b in a + 1..groups.len() {
            let ((mean_a, n_a), (mean_b, n_b)) = (r.groups[a], r.groups[b]);
            let error = (variance * (1.0 / n_a + 1.0 / n_b)).sqrt();
            let z = if error > 0.0 { (mean_a - mean_b) / error } else { 0.0 };
            let p = (2.0 * normal.sf(z.abs())).min(1.0);
            out.push(Comparison { a, b, z, p, bonferroni: p, holm: p });
        }
    }
    let m = out.len() as f64;
    let mut order: Vec<usize> = (0..out.len()).collect();
    order.sort_by(|&i, &j| out[i].p.total_cmp(&out[j].p));
    let mut floor = 0.0_f64;
    for (k, &i) in order.iter().enumerate() {
        floor = floor.max((out[i].p * (m - k as f64)).min(1.0));
        out[i].holm = floor;
        out[i].bonferroni = (out[i].p * m).min(1.0);
    }
    out
}

/// Spearman's rank correlation of two equally long samples; 0 where one of them does not vary.
pub fn spearman(x: &[f64], y: &[f64]) -> f64 {
    let (rx, ry) = (ranks(x), ranks(y));
    let (mx, my) = (super::mean(&rx), super::mean(&ry));
    let (mut xy, mut xx, mut yy) = (0.0, 0.0, 0.0);
    for (a, b) in rx.iter().zip(&ry) {
        xy += (a - mx) * (b - my);
        xx += (a - mx).powi(2);
        yy += (b - my).powi(2);
    }
    if xx > 0.0 && yy > 0.0 { xy / (xx * yy).sqrt() } else { 0.0 }
}
