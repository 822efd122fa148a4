//! Means, and how sure one can be of a mean.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// An interval that holds the true mean with the stated confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The arithmetic mean; `NaN` of nothing.
pub fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len() as f64
}

/// The sample standard deviation (n − 1); zero for fewer than two samples.
pub fn std_dev(samples: &[f64]) -> f64 {
    if samples.len() < 2 {
        return 0.0;
    }
    let m = mean(samples);
    (samples.iter().map(|x| (x - m).powi(2)).sum::<f64>() / (samples.len() - 1) as f64).sqrt()
}

/// Student's interval for the mean at `level` (0.95 for 95 %). `None` for fewer than two samples,
/// whose spread nobody knows.
pub fn t_interval(samples: &[f64], level: f64) -> Option<Interval> {
    let n = samples.len();
    if n < 2 {
        return None;
    }
    let t = StudentsT::new(0.0, 1.0, (n - 1) as f64).ok()?.inverse_cdf(0.5 + level / 2.0);
    let (m, half) = (mean(samples), t * std_dev(samples) / (n as f64).sqrt());
    Some(Interval { low: m - half, high: m + half })
}
