//! `capped`: every flow has a bandwidth of its own, and is held back when it has used it up even if
//! storage idles. Not work-conserving, and meant so: what one flow leaves is nobody's.

use crate::aggregate::Limits;
use crate::flows::{Flows, left_to_flows};
use crate::heap::SlotHeap;
use crate::{Algorithm, Batch, METADATA_COST, Request, Scheduler, SchedulerConfig};
use forebay_types::{FlowId, Nanos};
use serde::{Deserialize, Serialize};

/// The parameters of `capped`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct CappedConfig {
    /// Bytes a second of a flow of weight 1.
    #[serde(with = "forebay_types::size")]
    pub rate: u64,
    /// What a metadata operation costs.
    #[serde(with = "forebay_types::size")]
    pub metadata_cost: u64,
}

impl Default for CappedConfig {
    fn default() -> CappedConfig {
        CappedConfig { rate: 100_000_000, metadata_cost: METADATA_COST }
    }
}

/// Serves each flow at its own rate at most.
#[derive(Debug)]
pub struct Capped {
    config: CappedConfig,
    /// With when all that a flow has sent is paid for, and it may send again.
    flows: Flows<Nanos>,
    /// Flows that hold something, by when they may send and, on a tie, whose first request came first.
    ready: SlotHeap<(Nanos, Nanos)>,
    merge: Limits,
}

impl Capped {
    /// An empty one.
    pub fn new(config: &CappedConfig, merge: Limits) -> Capped {
        let config = CappedConfig { rate: config.rate.max(1), ..*config };
        Capped { config, flows: Flows::default(), ready: SlotHeap::default(), merge }
    }

    fn price(&self, cost: u64, weight: u64) -> Nanos {
        let rate = u128::from(self.config.rate) * u128::from(weight);
        let nanos = (u128::from(cost) * 1_000_000_000).div_ceil(rate);
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Scheduler for Capped {
    fn enqueue(&mut self, now: Nanos, r: Request) {
        let (slot, idle) = self.flows.push(r);
        if idle {
            let ready = &mut self.flows[slot].state;
            *ready = (*ready).max(now);
            self.ready.set(slot, (*ready, r.arrival));
        }
    }

    fn dispatch(&mut self, now: Nanos) -> Option<Batch> {
        let ((ready, _), slot) = self.ready.peek()?;
        if ready > now {
            return None;
        }
        let batch = self.flows.pop(slot, &self.merge)?;
        let price = self.price(batch.cost(self.config.metadata_cost), self.flows[slot].weight);
        let flow = &mut self.flows[slot];
        // From when it might have sent, not from when somebody asked: late wake-ups cost it nothing.
        flow.state = ready + price;
        match flow.requests.front() {
            Some(next) => self.ready.set(slot, (flow.state, next.arrival)),
            None => self.ready.remove(slot),
        }
        Some(batch)
    }

    fn next_wakeup(&self, _now: Nanos) -> Option<Nanos> {
        self.ready.peek().map(|((ready, _), _)| ready)
    }

    left_to_flows!();

    fn retune(&mut self, config: &SchedulerConfig) -> bool {
        let Algorithm::Capped(capped) = &config.algorithm else { return false };
        self.config = CappedConfig { rate: capped.rate.max(1), ..*capped };
        self.merge = config.merge;
        true
    }

    fn drain(&mut self) -> Vec<Request> {
        self.ready = SlotHeap::default();
        self.flows.drain()
    }
}
