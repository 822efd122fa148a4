//! Between the I/O nodes of a limited job: who has more than it uses gives it to those that are held back.
//!
//! What a job may have is divided among its I/O nodes, and its clients are not always where their part is:
//! they move, they rest, and whoever divides may be dead. So each node tells the others of the job
//! that it is held back, again and again while it is, and each that is not gives what it has saved to
//! those, a few times in [`BURST`](super::bucket::BURST): nothing is lost, and nothing is had twice.

use super::{Gate, KINDS};
use forebay_types::{FlowId, Nanos, NodeId};
use std::collections::BTreeMap;

/// How often [`Lender::tick`] wants to be asked.
pub const TICK: Nanos = Nanos::from_millis(10);
/// Who is held back says so again after this long,
const AGAIN: Nanos = Nanos::from_millis(50);
/// is believed for so long,
const BELIEVED: Nanos = Nanos::from_millis(160);
/// and is no longer, if it was not for this long.
const CALM: Nanos = Nanos::from_millis(30);

/// What one I/O node says to another about a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Word {
    /// The job.
    pub flow: FlowId,
    /// What holds it back here: bytes, operations, metadata operations.
    pub hungry: [bool; KINDS],
    /// What the other may have in this node's place.
    pub given: [f64; KINDS],
}

#[derive(Debug, Default)]
struct Shared {
    /// The other I/O nodes of the job: what holds it back there, and until when that is believed.
    others: BTreeMap<NodeId, ([bool; KINDS], Nanos)>,
    /// What held it back here, when each was last seen to, and when the others were told.
    hungry: [bool; KINDS],
    seen: [Nanos; KINDS],
    told: Nanos,
}

/// What a node knows of the others that have its limited jobs.
#[derive(Debug, Default)]
pub struct Lender {
    flows: BTreeMap<FlowId, Shared>,
}

impl Lender {
    /// The other I/O nodes of a job, from now on.
    pub fn set(&mut self, flow: FlowId, others: &[NodeId]) {
        if others.is_empty() {
            self.flows.remove(&flow);
            return;
        }
        let shared = self.flows.entry(flow).or_default();
        if !shared.others.keys().eq(others) {
            let before = std::mem::take(&mut shared.others);
            let known = |node: &NodeId| (*node, before.get(node).copied().unwrap_or_default());
            shared.others = others.iter().map(known).collect();
            // Who is new has heard nothing.
            shared.told = Nanos::ZERO;
        }
    }

    /// Whether no job has other I/O nodes.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Another node has said something.
    pub fn heard(&mut self, now: Nanos, from: NodeId, word: &Word, gate: &mut Gate) {
        if let Some(other) = self.flows.get_mut(&word.flow).and_then(|s| s.others.get_mut(&from)) {
            *other = (word.hungry, now + BELIEVED);
        }
        gate.put(now, word.flow, word.given);
    }

    /// What is to be said to whom. What is given is no more at this gate.
    pub fn tick(&mut self, now: Nanos, gate: &mut Gate) -> Vec<(NodeId, Word)> {
        let mut words = Vec::new();
        for (flow, shared) in &mut self.flows {
            let Some(wants) = gate.take_wants(*flow) else { continue };
            let before = shared.hungry;
            for (kind, wants) in wants.into_iter().enumerate() {
                if wants {
                    shared.seen[kind] = now;
                }
                shared.hungry[kind] = wants || before[kind] && now.since(shared.seen[kind]) < CALM;
            }
            let hungry = shared.hungry;
            let any = hungry.contains(&true);
            let tell = hungry != before || any && now.since(shared.told) >= AGAIN;
            if tell {
                shared.told = now;
            }
            let there = |kind: usize, other: &([bool; KINDS], Nanos)| other.0[kind] && now < other.1;
            // Each gets the same of what this node does not need.
            let mut each = [0.0; KINDS];
            for (kind, each) in each.iter_mut().enumerate() {
                let takers = shared.others.values().filter(|o| there(kind, o)).count();
                if takers > 0 && !hungry[kind] {
                    *each = gate.take_spare(now, *flow, kind) / takers as f64;
                }
            }
            for (node, other) in &shared.others {
                let given = std::array::from_fn(|k| if there(k, other) { each[k] } else { 0.0 });
                if tell || given.iter().any(|g| *g > 0.0) {
                    words.push((*node, Word { flow: *flow, hungry, given }));
                }
            }
        }
        words
    }
}
