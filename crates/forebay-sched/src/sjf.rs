//! `sjf`: shortest job first. One queue per file and operation; the one with the fewest bytes is
//! served, in offset order. So that a long queue is not passed over for ever, every so many
//! dispatches the queue that has waited longest for its turn gets one.

use crate::aggregate::Limits;
use crate::heap::SlotHeap;
use crate::sweep::Sweep;
use crate::table::Table;
use crate::{Algorithm, Batch, METADATA_COST, Request, Scheduler, SchedulerConfig};
use forebay_types::{FileId, Nanos, OpKind};
use serde::{Deserialize, Serialize};

/// The parameters of `sjf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SjfConfig {
    /// One dispatch in so many goes to the queue that has waited longest, whatever its length.
    pub patience: u32,
}

impl Default for SjfConfig {
    fn default() -> SjfConfig {
        SjfConfig { patience: 16 }
    }
}

#[derive(Debug, Default)]
struct Queue {
    requests: Sweep,
    cost: u64,
}

/// Serves the shortest queue first.
#[derive(Debug)]
pub struct Sjf {
    patience: u32,
    since_oldest: u32,
    queues: Table<(FileId, OpKind), Queue>,
    shortest: SlotHeap<u64>,
    /// By when the queue last had the turn of the longest waiting, or began.
    oldest: SlotHeap<u64>,
    ticks: u64,
    len: usize,
    merge: Limits,
}

impl Sjf {
    /// An empty one.
    pub fn new(config: &SjfConfig, merge: Limits) -> Sjf {
        Sjf {
            patience: config.patience.max(1),
            since_oldest: 0,
            queues: Table::default(),
            shortest: SlotHeap::default(),
            oldest: SlotHeap::default(),
            ticks: 0,
            len: 0,
            merge,
        }
    }
}

impl Scheduler for Sjf {
    fn enqueue(&mut self, _now: Nanos, r: Request) {
        let slot = self.queues.slot((r.file, r.op));
        let queue = &mut self.queues[slot];
        if queue.requests.is_empty() {
            self.ticks += 1;
            self.oldest.set(slot, self.ticks);
        }
        queue.requests.push(r, 0);
        queue.cost += r.cost(METADATA_COST);
        self.shortest.set(slot, queue.cost);
        self.len += 1;
    }

    fn dispatch(&mut self, _now: Nanos) -> Option<Batch> {
        self.since_oldest += 1;
        let oldest = self.since_oldest >= self.patience;
        let (_, slot) = if oldest { self.oldest.peek()? } else { self.shortest.peek()? };
        if oldest {
            self.since_oldest = 0;
            self.ticks += 1;
            self.oldest.set(slot, self.ticks);
        }
        let queue = &mut self.queues[slot];
        let batch = queue.requests.pop(&self.merge)?;
        queue.cost -= batch.requests().iter().map(|r| r.cost(METADATA_COST)).sum::<u64>();
        self.len -= batch.requests().len();
        if queue.requests.is_empty() {
            self.shortest.remove(slot);
            self.oldest.remove(slot);
            self.queues.remove(&(batch.file(), batch.op()));
        } else {
            self.shortest.set(slot, queue.cost);
        }
        Some(batch)
    }

    fn next_wakeup(&self, _now: Nanos) -> Option<Nanos> {
        None
    }

    fn complete(&mut self, _now: Nanos, _batch: &Batch) {}

    fn len(&self) -> usize {
        self.len
    }

    fn retune(&mut self, config: &SchedulerConfig) -> bool {
        let Algorithm::Sjf(sjf) = &config.algorithm else { return false };
        self.patience = sjf.patience.max(1);
        self.merge = config.merge;
        true
    }

    fn drain(&mut self) -> Vec<Request> {
        let mut all: Vec<Request> = self.queues.values_mut().flat_map(|q| q.requests.drain()).collect();
        *self = Sjf::new(&SjfConfig { patience: self.patience }, self.merge);
        all.sort_by_key(|r| r.arrival);
        all
    }
}
