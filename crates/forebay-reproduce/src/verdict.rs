//! The comparison of a figure with what was published.

use crate::groups::Measured;
use crate::index::{PublishedClaim, Tolerance};
use serde::{Deserialize, Serialize};

/// What is to be said of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", content = "because", rename_all = "kebab-case")]
pub enum ClaimVerdict {
    /// Our value is within the tolerance.
    Reproduced,
    /// It is not, and no reason is known.
    Refuted,
    /// It is not, for a known reason.
    Differs(String),
    /// It cannot be tested here.
    NotPossible(String),
    /// It was tried, and the run failed: nothing is known.
    Failed(String),
}

impl ClaimVerdict {
    /// All there are, in the order in which reports count them.
    pub const NAMES: [&'static str; 5] =
        ["reproduced", "refuted", "differs", "not possible here", "the run failed"];

    /// In a word or two.
    pub fn name(&self) -> &'static str {
        match self {
            ClaimVerdict::Reproduced => "reproduced",
            ClaimVerdict::Refuted => "refuted",
            ClaimVerdict::Differs(_) => "differs",
            ClaimVerdict::NotPossible(_) => "not possible here",
            ClaimVerdict::Failed(_) => "the run failed",
        }
    }

    /// The reason, where there is one.
    pub fn because(&self) -> Option<&str> {
        match self {
            ClaimVerdict::Differs(why) | ClaimVerdict::NotPossible(why) | ClaimVerdict::Failed(why) => {
                Some(why)
            }
            ClaimVerdict::Reproduced | ClaimVerdict::Refuted => None,
        }
    }
}

/// Judges a claim by our value.
pub fn judge(entry: &PublishedClaim, measured: &Measured) -> ClaimVerdict {
    let (ours, published) = (measured.value, entry.published);
    let same = match entry.tolerance {
        Tolerance::Relative(part) => (ours - published).abs() <= part * published.abs(),
        Tolerance::Absolute(most) => (ours - published).abs() <= most,
        Tolerance::AtLeast => ours >= published,
        Tolerance::AtMost => ours <= published,
        Tolerance::AtLeastPart(part) => ours >= part * published,
    };
    match &entry.because {
        _ if same => ClaimVerdict::Reproduced,
        Some(b) if (b.seen[0]..=b.seen[1]).contains(&ours) => ClaimVerdict::Differs(b.reason.clone()),
        _ => ClaimVerdict::Refuted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{Because, Setting};

    #[test]
    fn a_reason_holds_only_where_it_was_found() {
        let mut entry = PublishedClaim {
            id: "x".into(),
            source: String::new(),
            figure: String::new(),
            claim: String::new(),
            setting: Setting::ReAnalysis,
            measure: Some("g.x".into()),
            published: 100.0,
            unit: String::new(),
            tolerance: Tolerance::Relative(0.1),
            because: None,
            not_possible: None,
        };
        let at = |entry: &PublishedClaim, value: f64| judge(entry, &Measured::exact(value));
        assert_eq!(at(&entry, 109.0), ClaimVerdict::Reproduced);
        assert_eq!(at(&entry, 111.0), ClaimVerdict::Refuted);
        entry.because = Some(Because { reason: "other disks".into(), seen: [120.0, 130.0] });
        assert_eq!(at(&entry, 125.0), ClaimVerdict::Differs("other disks".into()));
        assert_eq!(at(&entry, 50.0), ClaimVerdict::Refuted, "the reason is not for this");
        assert_eq!(at(&entry, f64::NAN), ClaimVerdict::Refuted);
        for (tolerance, good, bad) in [
            (Tolerance::AtLeast, 100.0, 99.0),
            (Tolerance::AtMost, 100.0, 101.0),
            (Tolerance::Absolute(2.0), 98.0, 97.0),
            (Tolerance::AtLeastPart(0.5), 50.0, 49.0),
        ] {
            let entry = PublishedClaim { tolerance, because: None, ..entry.clone() };
            assert_eq!(
                (at(&entry, good), at(&entry, bad)),
                (ClaimVerdict::Reproduced, ClaimVerdict::Refuted)
            );
        }
    }
}
