//! What to be wary of: values far off their like, bandwidth that changes as the study goes on, and
//! too few repetitions to say anything.

use crate::stats;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Something a reader should know before trusting a verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Warning {
    /// One repetition is far off the others.
    Outlier {
        /// With this many I/O nodes.
        io_nodes: u32,
        /// Which repetition, from 1.
        repetition: usize,
        /// MB/s.
        value: f64,
        /// MB/s of the others, in the median.
        median: f64,
    },
    /// Later repetitions are steadily faster or slower.
    Drift {
        /// With this many I/O nodes.
        io_nodes: u32,
        /// From the first to the last third of the repetitions, as a share of the median.
        change: f64,
    },
    /// Fewer than three repetitions.
    FewRepetitions {
        /// With this many I/O nodes.
        io_nodes: u32,
        /// How many there are.
        samples: usize,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::Outlier { io_nodes, repetition, value, median } => write!(
                f,
                "{io_nodes} I/O nodes: repetition {repetition} at {value:.1} MB/s is far off the median, {median:.1}"
            ),
            Warning::Drift { io_nodes, change } => {
                let way = if *change > 0.0 { "faster" } else { "slower" };
                write!(f, "{io_nodes} I/O nodes: later repetitions are {:.0} % {way}", change.abs() * 100.0)
            }
            Warning::FewRepetitions { io_nodes, samples } => {
                write!(f, "{io_nodes} I/O nodes: only {samples} repetition(s)")
            }
        }
    }
}

/// The warnings about one scenario's repetitions, which are in the order they were made.
pub(super) fn warnings(runs: &BTreeMap<u32, Vec<f64>>) -> Vec<Warning> {
    let mut out = Vec::new();
    for (&io_nodes, values) in runs {
        if values.len() < 3 {
            out.push(Warning::FewRepetitions { io_nodes, samples: values.len() });
            continue;
        }
        let median = stats::median(values);
        let off: Vec<f64> = values.iter().map(|v| (v - median).abs()).collect();
        // Iglewicz and Hoaglin's modified z score; more than half of equal values leaves no scale. Few
        // values that happen to lie close together make it small, so the distance must also matter.
        let scale = stats::median(&off) / 0.6745;
        for (i, v) in values.iter().enumerate() {
            let far = (v - median).abs();
            if scale > 0.0 && values.len() >= 5 && far / scale > 5.0 && far > 0.2 * median {
                out.push(Warning::Outlier { io_nodes, repetition: i + 1, value: *v, median });
            }
        }
        let order: Vec<f64> = (0..values.len()).map(|i| i as f64).collect();
        let third = values.len() / 3;
        let (early, late) = (&values[..third], &values[values.len() - third..]);
        let change = if median > 0.0 { (stats::mean(late) - stats::mean(early)) / median } else { 0.0 };
        if values.len() >= 5 && stats::spearman(&order, values).abs() >= 0.9 && change.abs() >= 0.1 {
            out.push(Warning::Drift { io_nodes, change });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Vec<Warning> {
        warnings(&BTreeMap::from([(2, values.to_vec())]))
    }

    #[test]
    fn steady_runs_raise_nothing() {
        assert_eq!(of(&[100.0, 101.0, 99.0, 100.5, 99.5]), []);
        assert_eq!(of(&[100.0; 6]), []);
    }

    #[test]
    fn outliers_drift_and_few_runs_are_told() {
        let w = of(&[100.0, 101.0, 99.0, 10.0, 100.5, 99.5]);
        assert!(matches!(w[..], [Warning::Outlier { io_nodes: 2, repetition: 4, .. }]), "{w:?}");
        let w = of(&[100.0, 95.0, 90.0, 84.0, 80.0, 74.0]);
        assert!(matches!(w[..], [Warning::Drift { change, .. }] if change < -0.2), "{w:?}");
        assert_eq!(of(&[1.0, 2.0]), [Warning::FewRepetitions { io_nodes: 2, samples: 2 }]);
    }
}
