//! Five-number summaries.

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
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |q: f64| {
            let exact = q * sorted.len().saturating_sub(1) as f64;
            let (low, part) = (exact.floor() as usize, exact.fract());
            match (sorted.get(low), sorted.get(low + 1)) {
                (Some(a), Some(b)) => a + (b - a) * part,
                (Some(a), None) => *a,
                (None, _) => 0.0,
            }
        };
        Summary { min: at(0.0), q1: at(0.25), median: at(0.5), q3: at(0.75), max: at(1.0) }
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
