//! The laboratory: what is measured on real I/O nodes. Experiments, the measurements that detectors are
//! trained on, benches and storage profiles. Everything here takes plain settings, tells its
//! [`Progress`], and returns what it found; arguments and printing are the command line's.

pub mod bench;
pub mod experiment;
mod fleet;
pub mod learned;
mod machine;
mod outcome;
pub mod profile;
mod progress;
pub mod torture;
pub mod train;

pub use outcome::{Finding, Judgement, Outcome, Table, apart, can_write, can_write_below, no_twins, put};
pub use progress::Progress;

/// How much of an experiment to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Size {
    /// Only see whether it works: a few seconds, and figures that mean nothing.
    Quick,
    /// Less than five minutes.
    #[default]
    Small,
    /// The paper's size.
    Full,
}

impl Size {
    /// What belongs to the size.
    fn choose<T>(self, quick: T, small: T, full: T) -> T {
        match self {
            Size::Quick => quick,
            Size::Small => small,
            Size::Full => full,
        }
    }

    /// The same where there is nothing smaller than small.
    fn full_or<T>(self, full: T, other: T) -> T {
        if self == Size::Full { full } else { other }
    }
}
