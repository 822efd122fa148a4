//! Guarantees: each becomes the weight that makes it come true on each of its job's I/O nodes, by the most that a node
//! was seen to do. That is kept for the next arbiter: until it had seen them work, it would tell nodes plain weights.

use super::{Action, Core, Job};
use crate::store::Change;
use forebay_control::limit::Subject;
use forebay_types::{Nanos, NodeId};
use std::collections::BTreeMap;

/// A guarantee takes no more than this part of a node.
const MOST_OF_A_NODE: f64 = 0.95;
/// Weights are multiplied by this where there are guarantees, so that parts of one can be told apart.
const FINE: f64 = 100.0;
/// How much of a node's best bandwidth is remembered from one report to the next.
const FADE: f64 = 0.995;

/// The name among the learned entries.
const KEY: &str = "peaks";
/// How often they are kept, while they change.
const EVERY: Nanos = Nanos::from_secs(1);
/// They change by this part at least.
const NEWS: f64 = 0.1;
/// Of so many nodes: it is one entry, and a store may refuse one that is too large.
const MOST: usize = 5000;

/// The most that each node was seen to do, in bytes a second.
#[derive(Default)]
pub(super) struct Peaks {
    seen: BTreeMap<NodeId, f64>,
    kept: BTreeMap<NodeId, f64>,
    at: Nanos,
}

impl Peaks {
    /// What is among what was learned. An entry that cannot be read is as if it had not been made.
    pub(super) fn restore(learned: &BTreeMap<String, serde_json::Value>) -> Peaks {
        let kept: Option<BTreeMap<NodeId, f64>> =
            learned.get(KEY).and_then(|v| serde_json::from_value(v.clone()).ok());
        let kept = kept.unwrap_or_default();
        Peaks { seen: kept.clone(), kept, at: Nanos::ZERO }
    }

    /// How much a node did in all.
    pub(super) fn worked(&mut self, node: NodeId, bytes_a_second: f64) {
        let peak = self.seen.entry(node).or_default();
        *peak = (*peak * FADE).max(bytes_a_second);
    }

    fn of(&self, node: NodeId) -> f64 {
        self.seen.get(&node).copied().unwrap_or(0.0)
    }
}

impl Core {
    /// Keeps what the nodes were seen to do, now and then.
    pub(super) fn keep_peaks(&mut self, now: Nanos) {
        if now.since(self.limits.peaks.at) >= EVERY {
            self.keep_peaks_now(now);
        }
    }

    /// Keeps it, if a guarantee depends on it.
    pub(super) fn keep_peaks_now(&mut self, now: Nanos) {
        let guarantee = self.limits.guarantee();
        let peaks = &mut self.limits.peaks;
        peaks.at = now;
        let known = peaks.seen.iter().filter(|(id, peak)| self.nodes.contains_key(id) && **peak >= 1.0);
        let all: BTreeMap<NodeId, f64> = known.take(MOST).map(|(id, peak)| (*id, peak.round())).collect();
        let same = |(id, peak): (&NodeId, &f64)| {
            peaks.kept.get(id).is_some_and(|kept| (peak / kept - 1.0).abs() < NEWS)
        };
        if guarantee && (all.len() != peaks.kept.len() || !all.iter().all(same)) {
            let value = serde_json::to_value(&all).ok();
            self.actions.push(Action::Persist(Change::Learned { key: KEY.to_owned(), value }));
            peaks.kept = all;
        }
    }

    /// The weights that make every guarantee on a node come true, if it does what it has been seen to do.
    pub(super) fn weights_on(&self, node: NodeId) -> BTreeMap<String, u32> {
        let capacity = self.limits.peaks.of(node);
        if capacity <= 0.0 || !self.limits.guarantee() {
            return BTreeMap::new();
        }
        let on: Vec<(&String, &Job)> = self.jobs.iter().filter(|(_, j)| j.nodes().contains(&node)).collect();
        let mut parts: BTreeMap<&String, f64> = BTreeMap::new();
        for (id, job) in &on {
            let r = &job.stored.request;
            let own =
                [Subject::Job((*id).clone()), Subject::User(r.user.clone()), Subject::App(r.app.clone())];
            let most = own.iter().filter_map(|s| self.limits.at_least(s)).fold(0.0, f64::max);
            if most > 0.0 {
                parts.insert(id, most / job.nodes().len().max(1) as f64 / capacity);
            }
        }
        let wanted: f64 = parts.values().sum();
        if parts.is_empty() || on.len() == parts.len() && on.len() == 1 {
            return BTreeMap::new();
        }
        // More than there is cannot be had: everybody gets as much less.
        let scale = (MOST_OF_A_NODE / wanted).min(1.0);
        let free = 1.0 - wanted * scale;
        let others: f64 = on
            .iter()
            .filter(|(id, _)| !parts.contains_key(id))
            .map(|(_, j)| f64::from(j.stored.request.weight) * FINE)
            .sum();
        // So much weight stands for the whole node.
        let whole = if others > 0.0 { others / free } else { FINE * FINE };
        let weight = |id: &String, job: &Job| {
            let plain = f64::from(job.stored.request.weight) * FINE;
            let weight = parts.get(id).map_or(plain, |part| (part * scale * whole).max(plain));
            weight.ceil().clamp(1.0, 1e9) as u32
        };
        on.iter().map(|(id, job)| ((*id).clone(), weight(id, job))).collect()
    }
}
