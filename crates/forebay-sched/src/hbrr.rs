//! `hbrr`: handle-based round robin. One queue per file and operation; each gets at most `quantum`
//! requests a turn.

use crate::aggregate::{Limits, Run};
use crate::table::Table;
use crate::{Algorithm, Batch, Request, Scheduler, SchedulerConfig};
use forebay_types::{FileId, Nanos, OpKind};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The parameters of `hbrr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HbrrConfig {
    /// How many requests one queue may send before it is the next one's turn.
    pub quantum: u32,
}

impl Default for HbrrConfig {
    fn default() -> HbrrConfig {
        HbrrConfig { quantum: 8 }
    }
}

/// Serves files and operations in turn.
#[derive(Debug)]
pub struct Hbrr {
    quantum: usize,
    queues: Table<(FileId, OpKind), Run>,
    /// Queues that hold something; the first is served.
    turns: VecDeque<u32>,
    /// What the first may still send.
    left: usize,
    len: usize,
    merge: Limits,
}

impl Hbrr {
    /// An empty one.
    pub fn new(config: &HbrrConfig, merge: Limits) -> Hbrr {
        let quantum = config.quantum.max(1) as usize;
        Hbrr { quantum, queues: Table::default(), turns: VecDeque::new(), left: quantum, len: 0, merge }
    }
}

impl Scheduler for Hbrr {
    fn enqueue(&mut self, _now: Nanos, r: Request) {
        let slot = self.queues.slot((r.file, r.op));
        if self.queues[slot].is_empty() {
            self.turns.push_back(slot);
        }
        self.queues[slot].push(r);
        self.len += 1;
    }

    fn dispatch(&mut self, _now: Nanos) -> Option<Batch> {
        let slot = *self.turns.front()?;
        let limits = Limits { count: self.merge.count.min(self.left), ..self.merge };
        let batch = self.queues[slot].pop(&limits)?;
        self.len -= batch.requests().len();
        self.left = self.left.saturating_sub(batch.requests().len());
        let emptied = self.queues[slot].is_empty();
        if emptied || self.left == 0 {
            self.turns.pop_front();
            self.left = self.quantum;
        }
        if emptied {
            self.queues.remove(slot);
        } else if self.left == self.quantum {
            self.turns.push_back(slot);
        }
        Some(batch)
    }

    fn len(&self) -> usize {
        self.len
    }

    fn retune(&mut self, config: &SchedulerConfig) -> bool {
        let Algorithm::Hbrr(hbrr) = &config.algorithm else { return false };
        self.quantum = hbrr.quantum.max(1) as usize;
        self.left = self.left.min(self.quantum);
        self.merge = config.merge;
        true
    }

    fn drain(&mut self) -> Vec<Request> {
        let mut all: Vec<Request> = self.queues.values_mut().flat_map(Run::drain).collect();
        self.queues.clear();
        self.turns.clear();
        (self.left, self.len) = (self.quantum, 0);
        all.sort_by_key(|r| r.arrival);
        all
    }
}
