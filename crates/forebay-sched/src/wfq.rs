//! `wfq`: byte credits. Flows take turns; at its turn a flow gets `quantum` bytes times its weight to
//! spend, and keeps what is left while it has requests waiting.

use crate::aggregate::Limits;
use crate::flows::{Flows, left_to_flows};
use crate::{Algorithm, Batch, METADATA_COST, Request, Scheduler, SchedulerConfig};
use forebay_types::{FlowId, Nanos};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The parameters of `wfq`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct WfqConfig {
    /// The credit of a flow of weight 1 at each turn.
    #[serde(with = "forebay_types::size")]
    pub quantum: u64,
    /// What a metadata operation costs.
    #[serde(with = "forebay_types::size")]
    pub metadata_cost: u64,
}

impl Default for WfqConfig {
    fn default() -> WfqConfig {
        WfqConfig { quantum: 64 << 10, metadata_cost: METADATA_COST }
    }
}

/// Shares bytes among flows in proportion to their weights.
#[derive(Debug)]
pub struct Wfq {
    config: WfqConfig,
    /// With each flow's credit.
    flows: Flows<u64>,
    /// Flows that hold something; the first has its turn.
    turns: VecDeque<u32>,
    /// Whether the first has had this turn's credit.
    credited: bool,
    merge: Limits,
}

impl Wfq {
    /// An empty one.
    pub fn new(config: &WfqConfig, merge: Limits) -> Wfq {
        let config = WfqConfig { quantum: config.quantum.max(1), ..*config };
        Wfq { config, flows: Flows::default(), turns: VecDeque::new(), credited: false, merge }
    }

    fn head_cost(&self, slot: u32) -> u64 {
        self.flows[slot].requests.front().map_or(0, |r| r.cost(self.config.metadata_cost))
    }

    /// Gives every waiting flow the credit of the rounds in which nobody could send, so that large
    /// requests do not cost a walk for each.
    fn skip_idle_rounds(&mut self) {
        let rounds = |slot: &u32| {
            let flow = &self.flows[*slot];
            let missing = self.head_cost(*slot).saturating_sub(flow.state);
            missing.div_ceil(self.config.quantum.saturating_mul(flow.weight))
        };
        let idle = self.turns.iter().map(rounds).min().unwrap_or(0).saturating_sub(1);
        if idle > 0 {
            for slot in self.turns.iter() {
                let flow = &mut self.flows[*slot];
                let credit = self.config.quantum.saturating_mul(flow.weight).saturating_mul(idle);
                flow.state = flow.state.saturating_add(credit);
            }
        }
    }

    fn next_turn(&mut self) {
        self.turns.rotate_left(1);
        self.credited = false;
    }

    fn send(&mut self, slot: u32) -> Option<Batch> {
        // A merged batch stays within the credit.
        let credit = self.flows[slot].state;
        let limits = Limits { bytes: self.merge.bytes.min(credit), ..self.merge };
        let batch = self.flows.pop(slot, &limits)?;
        let flow = &mut self.flows[slot];
        flow.state = credit.saturating_sub(batch.cost(self.config.metadata_cost));
        if flow.requests.is_empty() {
            flow.state = 0;
            self.turns.pop_front();
            self.credited = false;
        }
        Some(batch)
    }
}

impl Scheduler for Wfq {
    fn enqueue(&mut self, _now: Nanos, r: Request) {
        let (slot, idle) = self.flows.push(r);
        if idle {
            self.turns.push_back(slot);
        }
    }

    fn dispatch(&mut self, _now: Nanos) -> Option<Batch> {
        let mut passed = 0;
        loop {
            let slot = *self.turns.front()?;
            if !self.credited {
                let flow = &mut self.flows[slot];
                flow.state = flow.state.saturating_add(self.config.quantum.saturating_mul(flow.weight));
                self.credited = true;
            }
            if self.head_cost(slot) <= self.flows[slot].state {
                return self.send(slot);
            }
            self.next_turn();
            passed += 1;
            if passed == self.turns.len() {
                self.skip_idle_rounds();
                passed = 0;
            }
        }
    }

    left_to_flows!();

    fn retune(&mut self, config: &SchedulerConfig) -> bool {
        let Algorithm::Wfq(wfq) = &config.algorithm else { return false };
        self.config = WfqConfig { quantum: wfq.quantum.max(1), ..*wfq };
        self.merge = config.merge;
        true
    }

    fn drain(&mut self) -> Vec<Request> {
        self.turns.clear();
        self.credited = false;
        self.flows.drain()
    }
}
