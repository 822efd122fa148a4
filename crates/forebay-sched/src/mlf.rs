//! `mlf`: multilevel feedback. Files take turns; a request runs once its allowance, which starts at
//! `quantum` and doubles at every turn of its file, reaches its size. Small requests go at once,
//! large ones after a few turns.

use crate::aggregate::Limits;
use crate::sweep::Sweep;
use crate::table::Table;
use crate::{Algorithm, Batch, METADATA_COST, Request, Scheduler, SchedulerConfig, units};
use forebay_types::{FileId, Nanos, OpKind};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The parameters of `mlf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MlfConfig {
    /// The allowance at a request's first turn.
    #[serde(with = "units::size")]
    pub quantum: u64,
}

impl Default for MlfConfig {
    fn default() -> MlfConfig {
        MlfConfig { quantum: 8 << 10 }
    }
}

#[derive(Debug, Default)]
struct Queue {
    requests: Sweep,
    turns: u32,
}

/// Serves files in turn, small requests sooner.
#[derive(Debug)]
pub struct Mlf {
    quantum: u64,
    queues: Table<(FileId, OpKind), Queue>,
    turns: VecDeque<u32>,
    len: usize,
    merge: Limits,
}

impl Mlf {
    /// An empty one.
    pub fn new(config: &MlfConfig, merge: Limits) -> Mlf {
        Mlf {
            quantum: config.quantum.max(1),
            queues: Table::default(),
            turns: VecDeque::new(),
            len: 0,
            merge,
        }
    }
}

/// What a request may cost after so many doublings.
fn allowance(quantum: u64, doublings: u32) -> u64 {
    quantum.saturating_mul(1u64.checked_shl(doublings).unwrap_or(u64::MAX))
}

impl Scheduler for Mlf {
    fn enqueue(&mut self, _now: Nanos, r: Request) {
        let slot = self.queues.slot((r.file, r.op));
        let queue = &mut self.queues[slot];
        if queue.requests.is_empty() {
            self.turns.push_back(slot);
        }
        queue.requests.push(r, queue.turns);
        self.len += 1;
    }

    fn dispatch(&mut self, _now: Nanos) -> Option<Batch> {
        // Allowances double at every turn, so some request fits after at most 64 rounds.
        while let Some(slot) = self.turns.pop_front() {
            let queue = &mut self.queues[slot];
            let (quantum, turn) = (self.quantum, queue.turns);
            let batch = queue.requests.choose(&self.merge, |r, stamp| {
                r.cost(METADATA_COST) <= allowance(quantum, turn.wrapping_sub(stamp))
            });
            queue.turns = turn.wrapping_add(1);
            let Some(batch) = batch else {
                self.turns.push_back(slot);
                continue;
            };
            self.len -= batch.requests().len();
            if queue.requests.is_empty() {
                self.queues.remove(&(batch.file(), batch.op()));
            } else {
                self.turns.push_back(slot);
            }
            return Some(batch);
        }
        None
    }

    fn next_wakeup(&self, _now: Nanos) -> Option<Nanos> {
        None
    }

    fn complete(&mut self, _now: Nanos, _batch: &Batch) {}

    fn len(&self) -> usize {
        self.len
    }

    fn retune(&mut self, config: &SchedulerConfig) -> bool {
        let Algorithm::Mlf(mlf) = &config.algorithm else { return false };
        self.quantum = mlf.quantum.max(1);
        self.merge = config.merge;
        true
    }

    fn drain(&mut self) -> Vec<Request> {
        let mut all: Vec<Request> = self.queues.values_mut().flat_map(|q| q.requests.drain()).collect();
        *self = Mlf::new(&MlfConfig { quantum: self.quantum }, self.merge);
        all.sort_by_key(|r| r.arrival);
        all
    }
}
