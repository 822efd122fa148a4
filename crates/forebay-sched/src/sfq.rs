//! `sfq` and `sfq-d`: start-time fair queueing. Flows are served in proportion to their weights, data
//! and metadata alike; at most `depth` requests are outstanding (one under `sfq`).

use crate::aggregate::Limits;
use crate::tags::{TagQueue, left_to_the_tags};
use crate::{Algorithm, Batch, METADATA_COST, Request, Scheduler, SchedulerConfig};
use forebay_types::Nanos;
use serde::{Deserialize, Serialize};

/// The parameters of `sfq`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct SfqConfig {
    /// What a metadata operation costs.
    #[serde(with = "forebay_types::size")]
    pub metadata_cost: u64,
}

impl Default for SfqConfig {
    fn default() -> SfqConfig {
        SfqConfig { metadata_cost: METADATA_COST }
    }
}

/// The parameters of `sfq-d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct SfqDConfig {
    /// How many requests storage may have at a time.
    pub depth: u32,
    /// What a metadata operation costs.
    #[serde(with = "forebay_types::size")]
    pub metadata_cost: u64,
}

impl Default for SfqDConfig {
    fn default() -> SfqDConfig {
        SfqDConfig { depth: 14, metadata_cost: METADATA_COST }
    }
}

/// Serves the smallest start tag, with a bounded number outstanding.
#[derive(Debug)]
pub struct Sfq {
    queue: TagQueue,
    depth: u32,
    outstanding: u32,
    merge: Limits,
}

impl Sfq {
    /// An empty `sfq`: one request outstanding.
    pub fn new(config: &SfqConfig, merge: Limits) -> Sfq {
        Sfq { queue: TagQueue::new(config.metadata_cost), depth: 1, outstanding: 0, merge }
    }

    /// An empty `sfq-d`.
    pub fn with_depth(config: &SfqDConfig, merge: Limits) -> Sfq {
        let queue = TagQueue::new(config.metadata_cost);
        Sfq { queue, depth: config.depth.max(1), outstanding: 0, merge }
    }
}

impl Scheduler for Sfq {
    fn enqueue(&mut self, _now: Nanos, r: Request) {
        self.queue.enqueue(r, 1);
    }

    fn dispatch(&mut self, _now: Nanos) -> Option<Batch> {
        if self.outstanding >= self.depth {
            return None;
        }
        let head = self.queue.head()?;
        let batch = self.queue.pop(head, &self.merge)?;
        self.outstanding += batch.slots();
        Some(batch)
    }

    fn complete(&mut self, _now: Nanos, batch: &Batch) {
        self.outstanding = self.outstanding.saturating_sub(batch.slots());
    }

    left_to_the_tags!();

    fn retune(&mut self, config: &SchedulerConfig) -> bool {
        let (depth, metadata_cost) = match &config.algorithm {
            Algorithm::Sfq(c) => (1, c.metadata_cost),
            Algorithm::SfqD(c) => (c.depth.max(1), c.metadata_cost),
            _ => return false,
        };
        self.depth = depth;
        self.queue.set_metadata_cost(metadata_cost);
        self.merge = config.merge;
        true
    }

    fn drain(&mut self) -> Vec<Request> {
        self.queue.drain()
    }
}
