//! Nodes are probed and judged, and diagnoses carried out: a slow node's jobs are moved.

use super::{Action, Core};
use crate::health::State;
use forebay_control::node::ToNode;
use forebay_control::view::VerdictView;
use forebay_types::{Nanos, NodeId};

impl Core {
    /// Probes the nodes whose turn it is, and once per probe period judges all by what they answered.
    pub(super) fn judge(&mut self, now: Nanos) {
        let period = Nanos((self.config.health.probe_every * 1e9) as u64);
        // Each has its own turn, by when it came: a probe to all at once would hold up everything else.
        for (&to, node) in self.nodes.iter_mut().filter(|(_, n)| n.connection.is_some()) {
            if due(&mut node.probed, now, period) {
                let id = self.screening.probe(to, now);
                self.actions.push(Action::Send { to, message: ToNode::Probe { id } });
            }
        }
        if !due(&mut self.judged, now, period) {
            return;
        }
        for change in self.screening.tick(now) {
            let (node, from, to) = (change.node, change.from, change.diagnosis.state);
            self.actions.push(Action::Judged(change));
            if from == State::Slow && to.usable() {
                self.screen(now, node, None);
            }
        }
        let slow =
            |id: &NodeId| Some((*id, self.screening.diagnosis(*id).filter(|v| v.state == State::Slow)?));
        let slow: Vec<(NodeId, String)> =
            self.nodes.keys().filter_map(slow).map(|(id, v)| (id, v.reason.clone())).collect();
        for (id, reason) in slow {
            self.screen(now, id, Some(reason));
        }
    }

    /// What is thought of a node.
    pub(super) fn diagnosis_view(&self, id: NodeId, now: Nanos) -> Option<VerdictView> {
        self.screening.diagnosis(id).map(|v| VerdictView {
            state: v.state.to_string(),
            since_ms: now.since(v.since).0 / 1_000_000,
            reason: v.reason.clone(),
        })
    }
}

/// Whether it is time again; evenly, unless time has jumped.
fn due(last: &mut Nanos, now: Nanos, period: Nanos) -> bool {
    let passed = now.since(*last);
    if passed < period {
        return false;
    }
    *last = if passed < period + period { *last + period } else { now };
    true
}
