//! Total-service sharing: I/O nodes tell one another what each flow was served, so that a flow that
//! gets much on one node waits accordingly on the others. A node speaks up when it has served a
//! threshold's worth since it last did; what is unknown to the others, and so the unfairness that
//! remains, is bounded by that. Messages go in and out; who carries them is not decided here.

use forebay_types::{FlowId, Nanos, NodeId};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

/// What a node has served, told to all others. Totals, so that a lost report is made good by the next
/// and one that comes twice does nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceReport {
    /// Who tells.
    pub node: NodeId,
    /// When that node began to count: after a restart its totals begin anew.
    pub since: Nanos,
    /// The total cost served to each flow that has changed.
    pub served: Vec<(FlowId, u64)>,
}

/// One node's view of what all nodes serve.
#[derive(Clone, Debug)]
pub struct ServiceSharing {
    node: NodeId,
    since: Nanos,
    threshold: u64,
    served: FxHashMap<FlowId, u64>,
    /// Served since the last report: how much, and to whom.
    untold: u64,
    changed: FxHashSet<FlowId>,
    others: FxHashMap<NodeId, Peer>,
}

#[derive(Clone, Debug, Default)]
struct Peer {
    since: Nanos,
    served: FxHashMap<FlowId, u64>,
}

impl ServiceSharing {
    /// For the node `node`, which begins to count at `now` and reports after every `threshold` of cost.
    pub fn new(node: NodeId, now: Nanos, threshold: u64) -> ServiceSharing {
        ServiceSharing {
            node,
            since: now,
            threshold: threshold.max(1),
            served: FxHashMap::default(),
            untold: 0,
            changed: FxHashSet::default(),
            others: FxHashMap::default(),
        }
    }

    /// This node has served a flow; perhaps it is time to tell the others.
    pub fn served(&mut self, flow: FlowId, cost: u64) -> Option<ServiceReport> {
        let total = self.served.entry(flow).or_default();
        *total = total.saturating_add(cost);
        self.untold = self.untold.saturating_add(cost);
        self.changed.insert(flow);
        if self.untold >= self.threshold { self.report() } else { None }
    }

    /// What the others do not know yet, if anything: for a node that falls silent.
    pub fn report(&mut self) -> Option<ServiceReport> {
        self.untold = 0;
        let mut served: Vec<(FlowId, u64)> =
            self.changed.drain().filter_map(|f| self.served.get(&f).map(|total| (f, *total))).collect();
        served.sort_unstable();
        (!served.is_empty()).then_some(ServiceReport { node: self.node, since: self.since, served })
    }

    /// A report did not reach somebody: what it told goes into the next one, too.
    pub fn not_heard(&mut self, report: &ServiceReport) {
        let known = report.served.iter().map(|(flow, _)| *flow).filter(|f| self.served.contains_key(f));
        self.changed.extend(known);
    }

    /// Another node has reported: what each flow has got there that was not known, to be handed to
    /// [`Scheduler::credit_remote`](crate::Scheduler::credit_remote).
    pub fn heard(&mut self, report: &ServiceReport) -> Vec<(FlowId, u64)> {
        if report.node == self.node {
            return Vec::new();
        }
        let peer = self.others.entry(report.node).or_default();
        if report.since < peer.since {
            return Vec::new();
        }
        if report.since > peer.since {
            *peer = Peer { since: report.since, served: FxHashMap::default() };
        }
        let mut credits = Vec::new();
        for (flow, total) in &report.served {
            let known = peer.served.entry(*flow).or_default();
            if total > known {
                credits.push((*flow, total - *known));
                *known = *total;
            }
        }
        credits
    }

    /// A flow has ended.
    pub fn forget(&mut self, flow: FlowId) {
        self.served.remove(&flow);
        self.changed.remove(&flow);
        for peer in self.others.values_mut() {
            peer.served.remove(&flow);
        }
    }

    /// A node has gone for good.
    pub fn forget_node(&mut self, node: NodeId) {
        self.others.remove(&node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: FlowId = FlowId(1);
    const B: FlowId = FlowId(2);

    #[test]
    fn a_node_reports_after_a_threshold_and_what_changed() {
        let mut s = ServiceSharing::new(NodeId(0), Nanos(5), 100);
        assert_eq!(s.served(A, 60), None);
        let first = s.served(B, 40).unwrap();
        assert_eq!(first.served, [(A, 60), (B, 40)]);
        let second = s.served(B, 100).unwrap();
        assert_eq!(second.served, [(B, 140)]);
        assert_eq!(s.report(), None);
        s.served(A, 1);
        let third = s.report().unwrap();
        assert_eq!(third.served, [(A, 61)]);
        // It got lost, and nothing more is served: the next one tells all the same.
        s.not_heard(&third);
        assert_eq!(s.report().unwrap().served, [(A, 61)]);
        assert_eq!(s.report(), None);
    }

    #[test]
    fn lost_repeated_and_late_reports_do_no_harm() {
        let mut teller = ServiceSharing::new(NodeId(0), Nanos(5), 10);
        let mut hearer = ServiceSharing::new(NodeId(1), Nanos(6), 10);
        let first = teller.served(A, 10).unwrap();
        let _lost = teller.served(A, 10).unwrap();
        let third = teller.served(A, 15).unwrap();
        assert_eq!(hearer.heard(&first), [(A, 10)]);
        assert_eq!(hearer.heard(&third), [(A, 25)], "the lost one is in it");
        assert_eq!(hearer.heard(&third), []);
        assert_eq!(hearer.heard(&first), []);
        assert_eq!(teller.heard(&first), [], "its own");
        // The teller restarts and counts anew; a straggler from before is void.
        let mut again = ServiceSharing::new(NodeId(0), Nanos(9), 10);
        assert_eq!(hearer.heard(&again.served(A, 12).unwrap()), [(A, 12)]);
        assert_eq!(hearer.heard(&third), []);
    }
}
