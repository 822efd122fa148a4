//! The guard: learning may cost a bounded share of what the default would have brought.
//!
//! Every decision is booked with what it may lose against the default at worst: nothing for an arm
//! that is surely as good, everything for one never tried. Over the last `window` decisions the
//! bookings stay within `(1 − floor) · window`; a trial that does not fit has to wait.

use crate::values::Values;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// How much may be risked.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Guard {
    /// The share of the default's performance to keep over any `window` decisions.
    pub floor: f64,
    /// Decisions over which it is kept.
    pub window: usize,
    /// Roll back when a trial brings less than the best known by more than this share.
    pub margin: f64,
}

impl Default for Guard {
    fn default() -> Guard {
        Guard { floor: 0.9, window: 30, margin: 0.2 }
    }
}

/// Observations of the default before anything else is tried.
pub(crate) const LEAST_DEFAULT: f64 = 8.0;
/// Decisions for which an arm that was rolled back is not tried again; doubled each time…
const BAR: u64 = 5;
/// …but not more often than this.
const MOST_DOUBLINGS: u32 = 6;
/// Standard errors of doubt about an arm.
const DOUBT: f64 = 1.5;
/// The share of the budget that is kept back for what estimates get wrong.
const RESERVE: f64 = 0.2;

impl Guard {
    pub(crate) fn is_sound(&self) -> bool {
        (0.0..1.0).contains(&self.floor)
            && (1..=10_000).contains(&self.window)
            && (0.0..1.0).contains(&self.margin)
    }

    /// What may be lost over a window, in intervals of the default's performance.
    pub fn budget(&self) -> f64 {
        (1.0 - self.floor) * self.window as f64 * (1.0 - RESERVE)
    }

    /// The share of the default's performance that `arm` may lose, 0 to 1.
    pub fn risk(&self, values: &Values, arm: usize, default: usize) -> f64 {
        // The default may be better than it looked, and the arm worse.
        let reference = values.upper(default, DOUBT);
        if arm == default || reference <= 0.0 {
            return 0.0;
        }
        (1.0 - values.lower(arm, DOUBT) / reference).clamp(0.0, 1.0)
    }

    /// The arm with the highest mean among those that risk nothing; the default is one of them.
    pub fn safest(&self, values: &Values, default: usize) -> usize {
        let arms = values.arms();
        let safe = (0..arms.len()).filter(|&a| self.risk(values, a, default) == 0.0 && !arms[a].is_blank());
        safe.max_by(|&a, &b| arms[a].mean.total_cmp(&arms[b].mean).then(b.cmp(&a))).unwrap_or(default)
    }
}

/// How long an arm that failed so many times in a row of trials stays barred, in decisions.
pub(crate) fn bar_length(failures: u32) -> u64 {
    BAR << failures.min(MOST_DOUBLINGS)
}

/// What the latest decisions risked.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Ledger {
    booked: VecDeque<(usize, f64)>,
}

impl Ledger {
    pub(crate) fn book(&mut self, risk: f64, arm: usize, window: usize) {
        self.booked.push_back((arm, risk));
        while self.booked.len() > window {
            self.booked.pop_front();
        }
    }

    /// The latest decision, if it was for `arm`, turned out to risk `risk`.
    pub(crate) fn settle(&mut self, risk: f64, arm: usize) {
        if let Some(last) = self.booked.back_mut().filter(|b| b.0 == arm) {
            last.1 = risk;
        }
    }

    /// What is booked by the decisions that share a window of `window` with the next one.
    pub(crate) fn risked(&self, window: usize) -> f64 {
        self.booked.iter().rev().take(window.saturating_sub(1)).map(|b| b.1).sum()
    }
}
