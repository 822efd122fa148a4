//! Bandwidth curves: pattern → bandwidth by number of I/O nodes, as the arbiter reads them, and an
//! estimate for patterns nobody measured.
//!
//! The file is CSV with the columns of the measurements (so whatever reads those reads this): one
//! row per pattern and number of I/O nodes, `bandwidth_mbs` being the mean, and `low_mbs`,
//! `high_mbs`, `std_dev_mbs`, `samples` its spread.

use crate::analysis::{Facts, StudyReport};
use crate::stats;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{Read, Write};

/// Why curves cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CurveFileError {
    /// Not such a file.
    #[error("{0}")]
    Csv(#[from] csv::Error),
    /// A value out of its range.
    #[error("line {line}: {what}")]
    Value {
        /// Where.
        line: u64,
        /// What is wrong.
        what: String,
    },
    /// Nothing but, at best, a header.
    #[error("there are no curves in it")]
    Empty,
}

/// Bandwidth with one number of I/O nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// The mean, MB/s.
    pub mean: f64,
    /// The slowest repetition, MB/s.
    pub low: f64,
    /// The fastest repetition, MB/s.
    pub high: f64,
    /// Standard deviation, MB/s.
    pub std_dev: f64,
    /// Repetitions.
    pub samples: u32,
}

/// One pattern's curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The scenario it comes from.
    pub name: String,
    /// The pattern.
    pub facts: Facts,
    /// By number of I/O nodes.
    pub levels: BTreeMap<u32, Level>,
}

/// Curves of many patterns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curves {
    /// In the order they were measured.
    pub curves: Vec<Curve>,
}

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

#[derive(Serialize, Deserialize)]
struct Row {
    scenario: String,
    compute_nodes: u32,
    processes: u32,
    layout: u8,
    spatiality: u8,
    #[serde(serialize_with = "crate::run::plain")]
    request_kb: f64,
    io_nodes: u32,
    bandwidth_mbs: f64,
    operation: String,
    low_mbs: f64,
    high_mbs: f64,
    std_dev_mbs: f64,
    samples: u32,
}

const SPATIALITIES: [&str; 3] = ["contiguous", "strided", "random"];

/// How many of the nearest curves an estimate is made of.
const NEIGHBOURS: usize = 4;

impl Curves {
    /// The curves of all scenarios of a report.
    pub fn of(report: &StudyReport) -> Curves {
        let curve = |v: &crate::analysis::Verdict| {
            let levels = v.counts.iter().map(|c| {
                let samples = u32::try_from(c.samples).unwrap_or(u32::MAX);
                (c.io_nodes, Level { mean: c.mean, low: c.min, high: c.max, std_dev: c.std_dev, samples })
            });
            // One name per curve, though a scenario may both write and read.
            let name = match v.facts.operation.as_str() {
                "write" => v.scenario.clone(),
                other => format!("{}/{other}", v.scenario),
            };
            Curve { name, facts: v.facts.clone(), levels: levels.collect() }
        };
        Curves { curves: report.verdicts.iter().map(curve).collect() }
    }

    /// Writes the file.
    pub fn to_csv(&self, out: impl Write) -> Result<(), CurveFileError> {
        let mut writer = csv::Writer::from_writer(out);
        for c in &self.curves {
            for (&io_nodes, l) in &c.levels {
                let spatiality = SPATIALITIES.iter().position(|s| *s == c.facts.spatiality).unwrap_or(0);
                writer.serialize(Row {
                    scenario: c.name.clone(),
                    compute_nodes: c.facts.compute_nodes,
                    processes: c.facts.processes,
                    layout: u8::from(c.facts.shared),
                    spatiality: spatiality as u8,
                    request_kb: c.facts.request_kb,
                    io_nodes,
                    bandwidth_mbs: l.mean,
                    operation: c.facts.operation.clone(),
                    low_mbs: l.low,
                    high_mbs: l.high,
                    std_dev_mbs: l.std_dev,
                    samples: l.samples,
                })?;
            }
        }
        writer.flush().map_err(csv::Error::from)?;
        Ok(())
    }

    /// Reads the file.
    pub fn from_csv(input: impl Read) -> Result<Curves, CurveFileError> {
        let mut curves: Vec<Curve> = Vec::new();
        let mut index: BTreeMap<String, usize> = BTreeMap::new();
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(input);
        let headers = reader.headers()?.clone();
        for record in reader.records() {
            let record = record?;
            let line = record.position().map_or(0, |p| p.line());
            let row: Row = record.deserialize(Some(&headers))?;
            let bad = |what: String| CurveFileError::Value { line, what };
            let numbers = [row.bandwidth_mbs, row.low_mbs, row.high_mbs, row.std_dev_mbs, row.request_kb];
            if let Some(v) = numbers.iter().find(|v| !v.is_finite() || **v < 0.0) {
                return Err(bad(format!("{v} is negative or no number")));
            }
            let Some(spatiality) = SPATIALITIES.get(usize::from(row.spatiality)) else {
                return Err(bad(format!("spatiality is {}, not 0, 1 or 2", row.spatiality)));
            };
            if row.layout > 1 {
                return Err(bad(format!("layout is {}, not 0 or 1", row.layout)));
            }
            let facts = Facts {
                compute_nodes: row.compute_nodes,
                processes: row.processes,
                shared: row.layout == 1,
                spatiality: (*spatiality).to_owned(),
                request_kb: row.request_kb,
                operation: row.operation,
            };
            let at = *index.entry(row.scenario.clone()).or_insert_with(|| {
                curves.push(Curve {
                    name: row.scenario.clone(),
                    facts: facts.clone(),
                    levels: BTreeMap::new(),
                });
                curves.len() - 1
            });
            if curves[at].facts != facts {
                return Err(bad(format!("{} is described in another way further up", row.scenario)));
            }
            let level = Level {
                mean: row.bandwidth_mbs,
                low: row.low_mbs,
                high: row.high_mbs,
                std_dev: row.std_dev_mbs,
                samples: row.samples,
            };
            if curves[at].levels.insert(row.io_nodes, level).is_some() {
                return Err(bad(format!("{} has {} I/O nodes twice", row.scenario, row.io_nodes)));
            }
        }
        if curves.is_empty() {
            return Err(CurveFileError::Empty);
        }
        Ok(Curves { curves })
    }

    /// The bandwidth that `facts` would have with each number of I/O nodes, MB/s: a mean of the
    /// logarithms of the nearest curves, the nearer the weightier. Empty if there are no curves.
    pub fn estimate(&self, facts: &Facts) -> BTreeMap<u32, f64> {
        estimate(self.curves.iter(), facts)
    }

    /// How well [`Curves::estimate`] does on patterns it has not seen.
    pub fn leave_one_out(&self) -> Option<LeaveOneOut> {
        if self.curves.len() < 2 {
            return None;
        }
        let (mut errors, mut shares) = (Vec::new(), Vec::new());
        for (i, truth) in self.curves.iter().enumerate() {
            let others = self.curves.iter().enumerate().filter(|(k, _)| *k != i).map(|(_, c)| c);
            let guess = estimate(others, &truth.facts);
            let known: Vec<(f64, f64)> =
                truth.levels.iter().filter_map(|(n, l)| Some((*guess.get(n)?, l.mean))).collect();
            errors.extend(known.iter().filter(|(_, t)| *t > 0.0).map(|(g, t)| (g / t - 1.0).abs()));
            let best = known.iter().map(|(_, t)| *t).fold(0.0, f64::max);
            if let Some((_, got)) = known.iter().max_by(|a, b| a.0.total_cmp(&b.0)).filter(|_| best > 0.0) {
                shares.push(got / best);
            }
        }
        Some(LeaveOneOut {
            curves: self.curves.len(),
            median_error: stats::median(&errors),
            p90_error: stats::quantile(&errors, 0.9),
            right_choice: shares.iter().filter(|s| **s == 1.0).count() as f64 / shares.len() as f64,
            share_of_best: stats::mean(&shares),
        })
    }
}

fn estimate<'a>(curves: impl Iterator<Item = &'a Curve>, facts: &Facts) -> BTreeMap<u32, f64> {
    let mut near: Vec<(f64, &Curve)> = curves.map(|c| (distance(&c.facts, facts), c)).collect();
    near.sort_by(|a, b| a.0.total_cmp(&b.0));
    if let Some((_, c)) = near.first().filter(|(d, _)| *d == 0.0) {
        return c.levels.iter().map(|(n, l)| (*n, l.mean)).collect();
    }
    let mut sums: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    for (d, c) in near.iter().take(NEIGHBOURS) {
        for (n, l) in c.levels.iter().filter(|(_, l)| l.mean > 0.0) {
            let weight = d.powi(-2);
            let sum = sums.entry(*n).or_default();
            *sum = (sum.0 + weight * l.mean.ln(), sum.1 + weight);
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
