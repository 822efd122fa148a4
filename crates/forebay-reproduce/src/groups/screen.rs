//! The arbiter's health screening over simulated I/O nodes.

use forebay_arbiter::health::{Screen, ScreenConfig, State};
use forebay_control::node::NodeReport;
use forebay_sim::failslow::NodeScreen;
use forebay_types::{Interval, Nanos, NodeId};
use std::collections::BTreeMap;

/// With the thresholds that an arbiter has unless told otherwise.
pub(super) struct Screened(Screen);

impl Default for Screened {
    fn default() -> Screened {
        Screened(Screen::new(ScreenConfig::default()))
    }
}

impl NodeScreen for Screened {
    fn joined(&mut self, node: NodeId, now: Nanos) {
        self.0.joined(node, now);
    }

    fn probe(&mut self, node: NodeId, now: Nanos) -> u64 {
        self.0.probe(node, now)
    }

    fn probed(&mut self, node: NodeId, id: u64, took: Nanos, now: Nanos) {
        self.0.probed(node, id, took, None, now);
    }

    fn reported(&mut self, node: NodeId, interval: &Interval, now: Nanos) {
        let report = NodeReport {
            interval: interval.clone(),
            jobs: BTreeMap::new(),
            present: Vec::new(),
            waiting: 0,
            connections: 0,
            latency_p50: Nanos::ZERO,
            latency_p99: Nanos::ZERO,
            job_latencies: BTreeMap::new(),
            job_hosts: BTreeMap::new(),
            errors: 0,
            scheduler: None,
        };
        self.0.reported(node, &report, now);
    }

    fn tick(&mut self, now: Nanos) -> Vec<NodeId> {
        self.0.tick(now);
        self.0.diagnoses().filter(|(_, d)| d.state == State::Slow).map(|(node, _)| node).collect()
    }
}
