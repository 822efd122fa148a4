//! The seam between metrics and patterns: one trait, with the decision tree, the random forest and
//! the neural net beside it.

pub(crate) mod forest;
pub(crate) mod net;
pub(crate) mod tree;

use forebay_types::Pattern;

/// How probable each pattern is, in the order of [`Pattern::ALL`]; the sum is 1.
pub type Scores = [f64; Pattern::ALL.len()];

/// Tells access patterns apart.
pub trait Detector {
    /// How probable each pattern is for `features`, which are as many as the detector was trained
    /// with and in the same order.
    fn scores(&self, features: &[f64]) -> Scores;

    /// Says what is wrong with a detector that was read from outside, if anything is: after `Ok`,
    /// [`scores`](Detector::scores) with `features` numbers returns and does not panic.
    fn check(&self, features: usize) -> Result<(), String>;
}
