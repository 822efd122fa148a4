//! Five-number summaries, of samples and of counts.

use forebay_types::stats::quantile;
use serde::Serialize;
use std::collections::BTreeMap;

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

/// How often each whole number was seen: of any number of samples, in memory for the different ones.
#[derive(Debug, Default)]
pub struct Tally {
    counts: BTreeMap<u64, u64>,
    total: u64,
}

impl Tally {
    /// One more was seen.
    pub fn add(&mut self, value: u64) {
        *self.counts.entry(value).or_default() += 1;
        self.total += 1;
    }

    /// The one at this place of all in order.
    fn at(&self, place: u64) -> f64 {
        let mut before = 0;
        let reaches = |(_, count): &(&u64, &u64)| {
            before += **count;
            before > place
        };
        self.counts.iter().find(reaches).map_or(0.0, |(value, _)| *value as f64)
    }

    /// As [`quantile`] has it; zero of nothing.
    pub fn quantile(&self, q: f64) -> f64 {
        let at = q.clamp(0.0, 1.0) * self.total.saturating_sub(1) as f64;
        let (below, part) = (self.at(at.floor() as u64), at.fract());
        if part == 0.0 { below } else { below + (self.at(at.floor() as u64 + 1) - below) * part }
    }

    /// Of all of them, in parts of `unit`.
    pub fn summary(&self, unit: f64) -> Summary {
        let [min, q1, median, q3, max] = [0.0, 0.25, 0.5, 0.75, 1.0].map(|q| self.quantile(q) / unit);
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

    #[test]
    fn counts_have_the_quantiles_of_what_was_counted() {
        let values = [5u64, 3, 3, 9, 1, 3, 700, 9, 2];
        let mut tally = Tally::default();
        assert_eq!(tally.summary(1.0), Summary::default());
        for (i, value) in values.into_iter().enumerate() {
            tally.add(value);
            let so_far: Vec<f64> = values[..=i].iter().map(|v| *v as f64).collect();
            for q in [0.0, 0.1, 0.25, 0.5, 0.75, 0.99, 1.0] {
                assert_eq!(tally.quantile(q), quantile(&so_far, q), "{q} of {so_far:?}");
            }
            assert_eq!(tally.summary(1.0), Summary::of(so_far));
        }
        assert_eq!(tally.summary(100.0).max, 7.0);
    }
}
