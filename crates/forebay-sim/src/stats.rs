//! Five-number summaries.

use forebay_types::stats::quantile;
use serde::Serialize;

/// Minimum, quartiles and maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// The smallest.
    pub min: f64,
    /// A quarter lies below.
    pub q1: f64,
    /// Half lies below.
    pub median: f64,
    /// Three quarters lie below.
    pub q3: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// Of these values; all zero if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Summary {
        let values: Vec<f64> = values.into_iter().collect();
        if values.is_empty() {
            return Summary::default();
        }
        let [min, q1, median, q3, max] = [0.0, 0.25, 0.5, 0.75, 1.0].map(|q| quantile(&values, q));
        Summary { min, q1, median, q3, max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_interpolate() {
        let s = Summary::of([4.0, 1.0, 3.0, 2.0]);
        assert_eq!((s.min, s.q1, s.median, s.q3, s.max), (1.0, 1.75, 2.5, 3.25, 4.0));
        assert_eq!(Summary::of([7.0]).q3, 7.0);
        assert_eq!(Summary::of([]), Summary::default());
    }
}
