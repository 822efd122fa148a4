//! Who was served how much: per-flow counters and Jain's index over them.

use crate::{Batch, METADATA_COST};
use forebay_types::{FlowId, Nanos, OpKind};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// What one flow has had of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowService {
    /// Its share against others: twice the weight, twice the service.
    pub weight: u32,
    /// Data requests served.
    pub requests: u64,
    /// Metadata operations served.
    pub metadata: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// The cost of all of it, as schedulers count: bytes that were asked for, and a constant for metadata.
    pub cost: u64,
    /// The cost of what other I/O nodes have told to have served it.
    #[serde(default)]
    pub elsewhere: u64,
    /// From arrival to completion, summed over requests.
    pub latency: Nanos,
}

impl Default for FlowService {
    fn default() -> FlowService {
        FlowService {
            weight: 1,
            requests: 0,
            metadata: 0,
            read_bytes: 0,
            written_bytes: 0,
            cost: 0,
            elsewhere: 0,
            latency: Nanos::ZERO,
        }
    }
}

/// The counters of all flows.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    flows: FxHashMap<FlowId, FlowService>,
}

impl Accounts {
    /// Books a completed batch, each request of which has moved so many bytes: those that are not told of
    /// what they asked for.
    pub fn served(&mut self, now: Nanos, batch: &Batch, moved: &[u64]) {
        for (i, r) in batch.requests().iter().enumerate() {
            let moved = moved.get(i).copied().unwrap_or(r.len);
            let f = self.flows.entry(r.flow).or_default();
            match r.op {
                OpKind::Read => f.read_bytes += moved,
                OpKind::Write => f.written_bytes += moved,
                OpKind::Metadata => f.metadata += 1,
            }
            f.requests += u64::from(r.op != OpKind::Metadata);
            f.cost += r.cost(METADATA_COST);
            f.latency = f.latency + now.since(r.arrival);
        }
    }

    /// Books what other nodes have served a flow.
    pub fn served_elsewhere(&mut self, flow: FlowId, cost: u64) {
        let f = self.flows.entry(flow).or_default();
        f.elsewhere = f.elsewhere.saturating_add(cost);
    }

    /// Sets a flow's weight; at least 1.
    pub fn set_weight(&mut self, flow: FlowId, weight: u32) {
        self.flows.entry(flow).or_default().weight = weight.max(1);
    }

    /// Drops a flow that has ended.
    pub fn forget(&mut self, flow: FlowId) {
        self.flows.remove(&flow);
    }

    /// Every flow and its counters, by id.
    pub fn flows(&self) -> Vec<(FlowId, FlowService)> {
        let mut all: Vec<_> = self.flows.iter().map(|(f, s)| (*f, *s)).collect();
        all.sort_unstable_by_key(|(f, _)| *f);
        all
    }

    /// Jain's index over the flows' cost by weight since the node started.
    pub fn jain(&self) -> f64 {
        jain(self.flows.values().map(|f| f.cost as f64 / f64::from(f.weight)))
    }
}

/// Jain's fairness index: 1 when all are equal, 1/n when one has everything. 1 for none, or for
/// nothing but zeros.
pub fn jain(shares: impl IntoIterator<Item = f64>) -> f64 {
    let (n, sum, squares) =
        shares.into_iter().fold((0.0, 0.0, 0.0), |(n, s, q), x: f64| (n + 1.0, s + x, q + x * x));
    if squares == 0.0 { 1.0 } else { sum * sum / (n * squares) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_runs_from_one_over_n_to_one() {
        assert_eq!(jain([]), 1.0);
        assert_eq!(jain([0.0, 0.0]), 1.0);
        assert_eq!(jain([3.0, 3.0, 3.0]), 1.0);
        assert_eq!(jain([5.0, 0.0, 0.0, 0.0]), 0.25);
        assert!((jain([2.0, 1.0]) - 0.9).abs() < 1e-12);
    }
}
