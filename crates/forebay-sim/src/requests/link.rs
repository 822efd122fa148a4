//! Network links: each end has one for each direction, on which messages go one after the other.

use forebay_types::Nanos;
use serde::{Deserialize, Serialize};

/// What a link is like.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct LinkModel {
    /// From one end to the other, nanoseconds.
    pub latency: Nanos,
    /// What every message costs the end, nanoseconds: its system calls and interrupts.
    pub per_message: Nanos,
    /// Bytes a second.
    pub bandwidth: u64,
}

impl Default for LinkModel {
    /// 10 Gbit/s Ethernet, as in the TWINS paper's clusters.
    fn default() -> LinkModel {
        LinkModel {
            latency: Nanos::from_micros(25),
            per_message: Nanos::from_micros(2),
            bandwidth: 1_250_000_000,
        }
    }
}

/// One direction of a link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Link {
    free: Nanos,
}

impl Link {
    /// A message is handed over at `now`: when its last byte is through this end.
    pub(super) fn send(&mut self, model: &LinkModel, now: Nanos, bytes: u64) -> Nanos {
        let span = model.per_message.0 + bytes.saturating_mul(1_000_000_000) / model.bandwidth.max(1);
        self.free = self.free.max(now) + Nanos(span);
        self.free
    }
}
