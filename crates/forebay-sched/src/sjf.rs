//! `sjf`: shortest job first. One queue per file and operation; the one with the fewest bytes is
//! served, in offset order. So that a long queue is not passed over for ever, every so many
//! dispatches the queue that has waited longest for its turn gets one.

use crate::aggregate::Limits;
use crate::heap::SlotHeap;
use crate::list::SlotList;
use crate::sweeps::Sweeps;
use crate::{Algorithm, Batch, METADATA_COST, Request, Scheduler, SchedulerConfig};
use forebay_types::Nanos;
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

/// Serves the shortest queue first.
#[derive(Debug)]
pub struct Sjf {
    patience: u32,
    since_oldest: u32,
    /// With the cost of all that waits there.
    queues: Sweeps<u64>,
    shortest: SlotHeap<u64>,
    /// By when the queue last had the turn of the longest waiting, or began.
    oldest: SlotList,
    merge: Limits,
}

impl Sjf {
    /// An empty one.
    pub fn new(config: &SjfConfig, merge: Limits) -> Sjf {
        Sjf {
            patience: config.patience.max(1),
            since_oldest: 0,
            queues: Sweeps::default(),
            shortest: SlotHeap::default(),
            oldest: SlotList::default(),
            merge,
        }
    }
}

impl Scheduler for Sjf {
    fn enqueue(&mut self, _now: Nanos, r: Request) {
        let slot = self.queues.push(&r, 0);
        if self.queues.waiting(slot) == 1 {
            self.oldest.push(slot);
        }
        let cost = self.queues.note(slot);
        *cost += r.cost(METADATA_COST);
        self.shortest.set(slot, *cost);
    }

    fn dispatch(&mut self, _now: Nanos) -> Option<Batch> {
        self.since_oldest += 1;
        let oldest = self.since_oldest >= self.patience;
        let slot = if oldest { self.oldest.first()? } else { self.shortest.peek()?.1 };
        if oldest {
            self.since_oldest = 0;
            self.oldest.push(slot);
        }
        let batch = self.queues.pop(slot, 0, &self.merge)?;
        let cost = self.queues.note(slot);
        *cost -= batch.cost(METADATA_COST);
        if *cost == 0 {
            self.shortest.remove(slot);
            self.oldest.remove(slot);
        } else {
            self.shortest.set(slot, *cost);
        }
        Some(batch)
    }

    fn len(&self) -> usize {
        self.queues.len()
    }

    fn retune(&mut self, config: &SchedulerConfig) -> bool {
        let Algorithm::Sjf(sjf) = &config.algorithm else { return false };
        self.patience = sjf.patience.max(1);
        self.merge = config.merge;
        true
    }

    fn drain(&mut self) -> Vec<Request> {
        let all = self.queues.drain();
        *self = Sjf::new(&SjfConfig { patience: self.patience }, self.merge);
        all
    }
}
