//! `sfq-d-plus`: SFQ(D) in which a request occupies as many of the `depth` slots as its size costs
//! storage, reads and writes apart. While the first in line does not fit, smaller requests may go
//! ahead of it, but never for more slots than it takes itself.

use crate::aggregate::Limits;
use crate::slots::SlotCosts;
use crate::tags::{Head, TagQueue, left_to_the_tags};
use crate::{Algorithm, Batch, METADATA_COST, Request, Scheduler, SchedulerConfig};
use forebay_types::{Nanos, OpKind, RequestId};
use serde::{Deserialize, Serialize};

/// The parameters of `sfq-d-plus`; `forebay profile` finds them for a storage system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct SfqPlusConfig {
    /// How many slots storage has: small requests at a time that saturate it.
    pub depth: u32,
    /// Slots of reads by size.
    pub reads: SlotCosts,
    /// Slots of writes by size.
    pub writes: SlotCosts,
    /// What a metadata operation costs; it occupies one slot.
    #[serde(with = "forebay_types::size")]
    pub metadata_cost: u64,
}

impl Default for SfqPlusConfig {
    fn default() -> SfqPlusConfig {
        SfqPlusConfig {
            depth: 14,
            reads: SlotCosts::default(),
            writes: SlotCosts::default(),
            metadata_cost: METADATA_COST,
        }
    }
}

/// A request that others may go ahead of, for `left` more slots.
#[derive(Clone, Copy, Debug)]
struct Blocked {
    id: RequestId,
    start: u64,
    left: u32,
}

/// Serves the smallest start tag within a budget of slots, and fills gaps.
#[derive(Debug)]
pub struct SfqPlus {
    queue: TagQueue,
    config: SfqPlusConfig,
    used: u32,
    /// Those that did not fit when their turn came; few.
    blocked: Vec<Blocked>,
    merge: Limits,
}

impl SfqPlus {
    /// An empty one.
    pub fn new(config: &SfqPlusConfig, merge: Limits) -> SfqPlus {
        let config = SfqPlusConfig { depth: config.depth.max(1), ..config.clone() };
        let queue = TagQueue::new(config.metadata_cost);
        SfqPlus { queue, config, used: 0, blocked: Vec::new(), merge }
    }

    /// Slots in use now.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// A request's slots and the size a batch may reach for the same number.
    fn slots(&self, op: OpKind, bytes: u64) -> (u32, u64) {
        let (slots, largest) = match op {
            OpKind::Read => self.config.reads.of(bytes),
            OpKind::Write => self.config.writes.of(bytes),
            OpKind::Metadata => (1, 0),
        };
        // One too large for all slots takes them all, alone.
        (slots.min(self.config.depth), largest)
    }

    fn send(&mut self, head: Head) -> Option<Batch> {
        let first = self.queue.first(head)?;
        if !self.blocked.is_empty() {
            self.blocked.retain(|b| b.id != first.id);
            for b in self.blocked.iter_mut().filter(|b| b.start < head.start) {
                b.left = b.left.saturating_sub(head.slots);
            }
        }
        let (_, largest) = self.slots(first.op, first.len);
        let limits = Limits { bytes: self.merge.bytes.min(largest), ..self.merge };
        let batch = self.queue.pop(head, &limits)?;
        self.used += batch.slots();
        Some(batch)
    }
}

impl Scheduler for SfqPlus {
    fn enqueue(&mut self, _now: Nanos, r: Request) {
        let (slots, _) = self.slots(r.op, r.len);
        self.queue.enqueue(r, slots);
    }

    fn dispatch(&mut self, _now: Nanos) -> Option<Batch> {
        let free = self.config.depth.saturating_sub(self.used);
        if free == 0 {
            return None;
        }
        let head = self.queue.head()?;
        // A request tagged under a larger depth than today's goes when nothing else runs.
        if head.slots <= free || self.used == 0 {
            return self.send(head);
        }
        let id = self.queue.first(head)?.id;
        if self.blocked.iter().all(|b| b.id != id) {
            self.blocked.push(Blocked { id, start: head.start, left: head.slots });
        }
        let left = self.blocked.iter().map(|b| b.left).min().unwrap_or(0);
        let small = self.queue.head_within(left.min(free))?;
        self.send(small)
    }

    fn complete(&mut self, _now: Nanos, batch: &Batch) {
        self.used = self.used.saturating_sub(batch.slots());
    }

    left_to_the_tags!();

    /// Requests wait by the slots they cost, so a change of the costs sorts them anew.
    fn retune(&mut self, config: &SchedulerConfig) -> bool {
        let Algorithm::SfqDPlus(plus) = &config.algorithm else { return false };
        let same = plus.depth.max(1) == self.config.depth
            && plus.reads == self.config.reads
            && plus.writes == self.config.writes;
        if same {
            self.config.metadata_cost = plus.metadata_cost;
            self.queue.set_metadata_cost(plus.metadata_cost);
            self.merge = config.merge;
        }
        same
    }

    fn drain(&mut self) -> Vec<Request> {
        self.blocked.clear();
        self.queue.drain()
    }
}
