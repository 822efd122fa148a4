//! Nodes are probed and judged, and verdicts carried out: a slow node's jobs are moved.

use super::{Action, Core};
use crate::health::State;
use forebay_control::node::ToNode;
use forebay_control::view::VerdictView;
use forebay_types::{Nanos, NodeId};

impl Core {
    /// Once per probe period: judges all nodes by what they answered, and probes them again.
    pub(super) fn judge(&mut self, now: Nanos) {
        let period = Nanos((self.config.health.probe_every * 1e9) as u64);
        if now.since(self.judged) < period {
            return;
        }
        // Evenly, unless time has jumped.
        self.judged = if now.since(self.judged) < period + period { self.judged + period } else { now };
        for change in self.screening.tick(now) {
            let (node, from, to) = (change.node, change.from, change.verdict.state);
            self.actions.push(Action::Judged(change));
            if from == State::Slow && to.usable() {
                self.screen(now, node, None);
            }
        }
        let slow = |id: &NodeId| Some((*id, self.screening.verdict(*id).filter(|v| v.state == State::Slow)?));
        let slow: Vec<(NodeId, String)> =
            self.nodes.keys().filter_map(slow).map(|(id, v)| (id, v.reason.clone())).collect();
        for (id, reason) in slow {
            self.screen(now, id, Some(reason));
        }
        let connected: Vec<NodeId> =
            self.nodes.iter().filter(|(_, n)| n.connection.is_some()).map(|(id, _)| *id).collect();
        for to in connected {
            let id = self.screening.probe(to, now);
            self.actions.push(Action::Send { to, message: ToNode::Probe { id } });
        }
    }

    /// What is thought of a node.
    pub(super) fn verdict_view(&self, id: NodeId, now: Nanos) -> Option<VerdictView> {
        self.screening.verdict(id).map(|v| VerdictView {
            state: v.state.to_string(),
            since_ms: now.since(v.since).0 / 1_000_000,
            reason: v.reason.clone(),
        })
    }
}
