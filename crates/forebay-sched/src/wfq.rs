//! `wfq`: byte credits. In every round a flow gets `quantum` bytes to spend, times its weight, divided by the smallest
//! weight of those that wait. What is left it keeps while it has requests waiting, and otherwise to the end of
//! the round. Flows take turns. One that has come back goes before those whose turn it is, as long as it has credit in
//! this round: with few requests under way it would find its turn past time and again, and never get its share.

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
    /// The credit of the flow of the smallest weight in each round.
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

/// Credits count bytes in parts of one, so that the division by a weight loses little.
const PARTS: u64 = 256;

/// What a flow may still send.
#[derive(Clone, Copy, Debug, Default)]
struct Credit {
    /// In parts of a byte.
    left: u64,
    /// The round that it was last given any in.
    round: u64,
}

/// Shares bytes among flows in proportion to their weights.
#[derive(Debug)]
pub struct Wfq {
    config: WfqConfig,
    flows: Flows<Credit>,
    /// Flows that hold something again after they had nothing, in order; each until its credit is spent.
    back: VecDeque<u32>,
    /// The others that hold something; the first has its turn.
    turns: VecDeque<u32>,
    /// Counts from 1: a flow that never had credit is in none.
    round: u64,
    /// The smallest weight of those that waited when the round began.
    least: u64,
    merge: Limits,
}

impl Wfq {
    /// An empty one.
    pub fn new(config: &WfqConfig, merge: Limits) -> Wfq {
        let config = WfqConfig { quantum: config.quantum.max(1), ..*config };
        let flows = Flows::default();
        Wfq { config, flows, back: VecDeque::new(), turns: VecDeque::new(), round: 1, least: 1, merge }
    }

    /// What the first request of a flow costs, in parts of a byte.
    fn head_cost(&self, slot: u32) -> u64 {
        let first = self.flows[slot].requests.front();
        first.map_or(0, |r| r.cost(self.config.metadata_cost)).saturating_mul(PARTS)
    }

    /// What a flow gets in a round.
    fn share(&self, slot: u32) -> u64 {
        let parts = u128::from(self.config.quantum) * u128::from(PARTS * self.flows[slot].weight);
        u64::try_from(parts / u128::from(self.least)).unwrap_or(u64::MAX).max(1)
    }

    /// All that wait have spent their credit.
    fn next_round(&mut self) {
        self.round += 1;
        self.least = self.turns.iter().map(|slot| self.flows[*slot].weight).min().unwrap_or(1);
        // The rounds in which nobody could send are passed at once, so that large requests do not cost a walk for each.
        let rounds = |slot: &u32| {
            self.head_cost(*slot).saturating_sub(self.flows[*slot].state.left).div_ceil(self.share(*slot))
        };
        let idle = self.turns.iter().map(rounds).min().unwrap_or(0).saturating_sub(1);
        for at in (0..self.turns.len()).filter(|_| idle > 0) {
            let slot = self.turns[at];
            let credit = self.share(slot).saturating_mul(idle);
            let state = &mut self.flows[slot].state;
            state.left = state.left.saturating_add(credit);
        }
    }

    /// Sends what a flow has first if its credit allows it; it has had that of this round afterwards.
    fn send(&mut self, slot: u32) -> Option<Batch> {
        if self.flows[slot].state.round != self.round {
            let left = self.flows[slot].state.left.saturating_add(self.share(slot));
            self.flows[slot].state = Credit { left, round: self.round };
        }
        let left = self.flows[slot].state.left;
        if self.head_cost(slot) > left {
            return None;
        }
        // A merged batch stays within the credit.
        let limits = Limits { bytes: self.merge.bytes.min(left / PARTS), ..self.merge };
        let batch = self.flows.pop(slot, &limits)?;
        let cost = batch.cost(self.config.metadata_cost).saturating_mul(PARTS);
        self.flows[slot].state.left = left.saturating_sub(cost);
        Some(batch)
    }
}

impl Scheduler for Wfq {
    fn enqueue(&mut self, _now: Nanos, r: Request) {
        let (slot, idle) = self.flows.push(r);
        if idle {
            let state = &mut self.flows[slot].state;
            if state.round != self.round {
                state.left = 0;
            }
            self.back.push_back(slot);
        }
    }

    fn dispatch(&mut self, _now: Nanos) -> Option<Batch> {
        while let Some(slot) = self.back.front().copied() {
            let batch = self.send(slot);
            let waits = !self.flows[slot].requests.is_empty();
            if batch.is_none() || !waits {
                self.back.pop_front();
            }
            if batch.is_none() && waits {
                self.turns.push_back(slot);
            }
            if batch.is_some() {
                return batch;
            }
        }
        let mut passed = 0;
        loop {
            let slot = *self.turns.front()?;
            if let Some(batch) = self.send(slot) {
                if self.flows[slot].requests.is_empty() {
                    self.turns.pop_front();
                }
                return Some(batch);
            }
            self.turns.rotate_left(1);
            passed += 1;
            if passed == self.turns.len() {
                self.next_round();
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
        self.back.clear();
        self.turns.clear();
        self.flows.drain()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_types::{FileId, OpKind, RequestId, ServerId};
    use proptest::prelude::*;

    /// What is served.
    const ALL: u64 = 256 << 20;

    /// A flow whose processes wait for their answers: its weight, how many they are, and what each sends.
    type Company = (u32, usize, u64);

    /// Which part of all bytes the first flow gets when so many requests are at the storage at a time. Whoever is
    /// answered sends its next one when the storage has something else to do already: after this one, or every
    /// eighth time after so many `late` ones.
    fn part_of_first(scheduler: &str, flows: [Company; 2], slots: usize, late: usize) -> f64 {
        let config: SchedulerConfig = scheduler.parse().unwrap();
        let mut s = crate::build(&config, crate::Site::default());
        let (mut running, mut served, mut id) = (VecDeque::new(), [0u64; 2], 0);
        let mut request = |flow: usize| {
            id += 1;
            Request {
                id: RequestId(id),
                arrival: Nanos(id),
                file: FileId(flow as u64),
                offset: id << 24,
                len: flows[flow].2,
                flow: FlowId(flow as u32),
                server: ServerId(0),
                op: OpKind::Write,
            }
        };
        for (flow, (weight, processes, _)) in flows.into_iter().enumerate() {
            s.set_weight(FlowId(flow as u32), weight);
            (0..processes).for_each(|_| s.enqueue(Nanos::ZERO, request(flow)));
        }
        // What comes after so many more answers.
        let mut coming: Vec<(usize, Request)> = Vec::new();
        while served.iter().sum::<u64>() < ALL {
            let done: Option<Batch> = running.pop_front();
            done.iter().for_each(|batch| s.complete(Nanos::ZERO, batch));
            while let Some(batch) = (running.len() < slots).then(|| s.dispatch(Nanos::ZERO)).flatten() {
                running.push_back(batch);
            }
            for r in done.iter().flat_map(Batch::requests) {
                served[r.flow.0 as usize] += r.len;
                coming.push((if r.id.0 % 8 == 0 { late } else { 0 }, request(r.flow.0 as usize)));
            }
            for (_, r) in coming.extract_if(.., |(after, _)| *after == 0) {
                s.enqueue(Nanos::ZERO, r);
            }
            coming.iter_mut().for_each(|(after, _)| *after -= 1);
        }
        served[0] as f64 / (served[0] + served[1]) as f64
    }

    const PLAIN: &str = "wfq:merge=1";

    #[test]
    fn few_requests_under_way_keep_their_share() {
        // 60 of 80 MB/s, in the weights that an arbiter gives for it; four requests, two at a time at the storage, and
        // processes that take their time now and then.
        for late in 0..6 {
            let part = |spec: &str| part_of_first(spec, [(300, 4, 64 << 10), (100, 16, 64 << 10)], 2, late);
            let (wfq, sfq) = (part(PLAIN), part("sfq-d:depth=2,merge=1"));
            println!("{late} late: {wfq:.3}, of sfq-d {sfq:.3}");
            assert!(wfq > 0.7, "{late} late: {wfq} instead of 0.75, and {sfq} of sfq-d");
        }
    }

    proptest! {
        /// One more under way than may be at the storage is enough, whatever the weights, sizes and numbers of the two.
        #[test]
        fn whoever_has_something_waiting_gets_its_share(
            weights in (1u32..1000, 1u32..1000),
            (slots, more, others) in (1usize..6, 1usize..4, 1usize..40),
            sizes in (12u32..20, 12u32..20),
        ) {
            let first = (weights.0, slots + more, 1 << sizes.0);
            let part = part_of_first(PLAIN, [first, (weights.1, others, 1 << sizes.1)], slots, 0);
            let due = f64::from(weights.0) / f64::from(weights.0 + weights.1);
            // At the end it may be about to have its turn.
            let rest = (WfqConfig::default().quantum + 2 * first.2) as f64 / ALL as f64;
            prop_assert!(part + rest >= due * 0.99, "{part} of {due}");
        }
    }
}
