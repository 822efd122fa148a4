//! The bandwidth of patterns nobody measured, from those that were.

use crate::table::{CurveTable, Facts, Scenario};
use forebay_types::stats;
use serde::Serialize;
use std::collections::BTreeMap;

/// How many of the nearest curves an estimate is made of.
const NEIGHBOURS: usize = 4;

/// How well the estimate does on patterns it has not seen: each curve in turn is estimated from all
/// others.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LeaveOneOut {
    /// Curves that took part.
    pub curves: usize,
    /// Median of |estimate / truth − 1|.
    pub median_error: f64,
    /// Its 90 % quantile.
    pub p90_error: f64,
    /// How often the number of I/O nodes that the estimate prefers is the best one.
    pub right_choice: f64,
    /// Bandwidth with the preferred number, as a share of the best, in the mean.
    pub share_of_best: f64,
}

/// In a sentence, below what it is about.
impl std::fmt::Display for LeaveOneOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "  a pattern estimated from the others: error {:.1} % in the median, {:.1} % or less for nine of ten;\n  \
             the number of I/O nodes it suggests is the best for {:.1} % and gives {:.1} % of the best bandwidth",
            self.median_error * 100.0,
            self.p90_error * 100.0,
            self.right_choice * 100.0,
            self.share_of_best * 100.0
        )
    }
}

impl CurveTable {
    /// The bandwidth that `facts` would have with each number of I/O nodes, MB/s: a mean of the
    /// logarithms of the nearest curves, the nearer the weightier. Empty if there are no curves.
    pub fn estimate(&self, facts: &Facts) -> BTreeMap<u32, f64> {
        estimate(self.scenarios.iter(), facts)
    }

    /// How well [`CurveTable::estimate`] does on patterns it has not seen.
    pub fn leave_one_out(&self) -> Option<LeaveOneOut> {
        if self.scenarios.len() < 2 {
            return None;
        }
        let (mut errors, mut shares) = (Vec::new(), Vec::new());
        for (i, truth) in self.scenarios.iter().enumerate() {
            let others = self.scenarios.iter().enumerate().filter(|(k, _)| *k != i).map(|(_, c)| c);
            let guess = estimate(others, &truth.facts);
            let points = truth.curve.points().iter();
            let known: Vec<(f64, f64)> =
                points.filter_map(|p| Some((*guess.get(&p.io_nodes)?, p.bandwidth.0))).collect();
            errors.extend(known.iter().filter(|(_, t)| *t > 0.0).map(|(g, t)| (g / t - 1.0).abs()));
            let best = known.iter().map(|(_, t)| *t).fold(0.0, f64::max);
            if let Some((_, got)) = known.iter().max_by(|a, b| a.0.total_cmp(&b.0)).filter(|_| best > 0.0) {
                shares.push(got / best);
            }
        }
        Some(LeaveOneOut {
            curves: self.scenarios.len(),
            median_error: stats::median(&errors),
            p90_error: stats::quantile(&errors, 0.9),
            right_choice: shares.iter().filter(|s| **s == 1.0).count() as f64 / shares.len() as f64,
            share_of_best: shares.iter().sum::<f64>() / shares.len() as f64,
        })
    }
}

fn estimate<'a>(curves: impl Iterator<Item = &'a Scenario>, facts: &Facts) -> BTreeMap<u32, f64> {
    let mut near: Vec<(f64, &Scenario)> = curves.map(|c| (distance(&c.facts, facts), c)).collect();
    near.sort_by(|a, b| a.0.total_cmp(&b.0));
    if let Some((_, c)) = near.first().filter(|(d, _)| *d == 0.0) {
        return c.curve.points().iter().map(|p| (p.io_nodes, p.bandwidth.0)).collect();
    }
    let mut sums: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    for (d, c) in near.iter().take(NEIGHBOURS) {
        for p in c.curve.points().iter().filter(|p| p.bandwidth.0 > 0.0) {
            let weight = d.powi(-2);
            let sum = sums.entry(p.io_nodes).or_default();
            *sum = (sum.0 + weight * p.bandwidth.0.ln(), sum.1 + weight);
        }
    }
    sums.into_iter().map(|(n, (sum, weight))| (n, (sum / weight).exp())).collect()
}

/// How unlike two patterns are, in octaves. Layout, order and operation outweigh all sizes; the
/// request size counts more than nodes and processes, as leave-one-out on the MareNostrum 4 data
/// has it.
fn distance(a: &Facts, b: &Facts) -> f64 {
    let octaves = |x: f64, y: f64| (x.max(0.001) / y.max(0.001)).log2().powi(2);
    let nodes = octaves(f64::from(a.compute_nodes), f64::from(b.compute_nodes));
    let processes = octaves(f64::from(a.processes), f64::from(b.processes));
    let sizes = (0.5 * nodes + 0.5 * processes + octaves(a.request_kb, b.request_kb)).sqrt();
    let kind = [a.shared != b.shared, a.spatiality != b.spatiality, a.operation != b.operation];
    sizes + 100.0 * kind.iter().filter(|differs| **differs).count() as f64
}
