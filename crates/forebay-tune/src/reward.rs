//! What an interval was worth.

use forebay_pattern::Load;
use forebay_types::Nanos;
use serde::{Deserialize, Serialize};

/// When an interval counts, and for how much.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RewardRule {
    /// Bytes an interval must have served.
    pub least_bytes: u64,
    /// Share of the interval that must have been busy.
    pub least_busy: f64,
}

impl Default for RewardRule {
    fn default() -> RewardRule {
        RewardRule { least_bytes: 1 << 20, least_busy: 0.2 }
    }
}

impl RewardRule {
    /// The reward of an interval of length `span`: MB/s while there was anything to do. So an
    /// application that asks for little does not make a parameter look bad: the rate is that of the
    /// work offered, and an interval with too little of it says nothing (`None`).
    pub fn reward(&self, load: &Load, span: Nanos) -> Option<f64> {
        let busy_enough = load.busy.0 as f64 >= self.least_busy * span.0 as f64;
        let rate = load.service_rate().0;
        (load.served >= self.least_bytes && busy_enough && rate > 0.0).then_some(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(served: u64, busy_ms: u64) -> Load {
        Load { offered: served, served, busy: Nanos::from_millis(busy_ms), outstanding: 1.0 }
    }

    #[test]
    fn half_the_demand_is_the_same_reward() {
        let rule = RewardRule::default();
        let second = Nanos::from_secs(1);
        assert_eq!(rule.reward(&load(100_000_000, 1000), second), Some(100.0));
        assert_eq!(rule.reward(&load(50_000_000, 500), second), Some(100.0));
        assert_eq!(rule.reward(&load(5_000_000, 50), second), None, "hardly busy");
        assert_eq!(rule.reward(&load(1000, 900), second), None, "hardly any bytes");
        assert_eq!(rule.reward(&Load::default(), second), None);
    }
}
