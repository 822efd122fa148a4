//! How good a detector is: confusion matrix, accuracy, Cohen's Kappa, sensitivity and specificity.

use forebay_types::Pattern;
use serde::{Deserialize, Serialize};

const N: usize = Pattern::ALL.len();

/// How often each pattern was taken for which.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confusion {
    /// By what it was, then by what was detected, in the order of [`Pattern::ALL`].
    pub counts: [[u64; N]; N],
}

impl Confusion {
    /// Counts one detection.
    pub fn add(&mut self, was: Pattern, detected: Pattern) {
        self.counts[was.index()][detected.index()] += 1;
    }

    /// Everything counted.
    pub fn total(&self) -> u64 {
        self.counts.iter().flatten().sum()
    }

    /// How many were `pattern`.
    pub fn was(&self, pattern: Pattern) -> u64 {
        self.counts[pattern.index()].iter().sum()
    }

    fn detected(&self, pattern: Pattern) -> u64 {
        self.counts.iter().map(|row| row[pattern.index()]).sum()
    }

    fn right(&self) -> u64 {
        (0..N).map(|i| self.counts[i][i]).sum()
    }

    /// The share that was detected rightly; 0 of nothing.
    pub fn accuracy(&self) -> f64 {
        ratio(self.right() as f64, self.total() as f64)
    }

    /// Cohen's Kappa: how much better than guessing by frequency, at most 1.
    pub fn kappa(&self) -> f64 {
        let total = self.total() as f64;
        let chance: f64 = Pattern::ALL
            .iter()
            .map(|&p| ratio(self.was(p) as f64, total) * ratio(self.detected(p) as f64, total))
            .sum();
        // With a single class, always found, chance is 1 and agreement complete.
        if chance >= 1.0 { 1.0 } else { (self.accuracy() - chance) / (1.0 - chance) }
    }

    /// Of what was `pattern`, the share detected as such.
    pub fn sensitivity(&self, pattern: Pattern) -> f64 {
        ratio(self.counts[pattern.index()][pattern.index()] as f64, self.was(pattern) as f64)
    }

    /// Of what was not `pattern`, the share not detected as such.
    pub fn specificity(&self, pattern: Pattern) -> f64 {
        let others = self.total() - self.was(pattern);
        let wrongly = self.detected(pattern) - self.counts[pattern.index()][pattern.index()];
        ratio((others - wrongly) as f64, others as f64)
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kappa_of_a_textbook_example() {
        // 20 yes/yes, 5 yes/no, 10 no/yes, 15 no/no: accuracy 0.7, chance 0.5, Kappa 0.4.
        let mut c = Confusion::default();
        c.counts[0][0] = 20;
        c.counts[0][1] = 5;
        c.counts[1][0] = 10;
        c.counts[1][1] = 15;
        assert!((c.accuracy() - 0.7).abs() < 1e-12);
        assert!((c.kappa() - 0.4).abs() < 1e-12);
        assert!((c.sensitivity(Pattern::FppContiguous) - 0.8).abs() < 1e-12);
        assert!((c.specificity(Pattern::FppContiguous) - 0.6).abs() < 1e-12);
        assert_eq!(Confusion::default().accuracy(), 0.0);
    }
}
