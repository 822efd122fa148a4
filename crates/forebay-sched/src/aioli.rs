//! `aioli`: files take turns in order of arrival; at its turn a file is served in offset order until
//! its quantum of bytes is used up, and the quantum adapts to what the file had to send. When a file
//! lately sent a large batch and what follows has a hole before it, the missing neighbour is likely on
//! its way: the file waits a moment for it, once, while others go on.

use crate::aggregate::Limits;
use crate::heap::SlotHeap;
use crate::sweep::Sweep;
use crate::table::Table;
use crate::{Algorithm, Batch, METADATA_COST, Request, Scheduler, SchedulerConfig, units};
use forebay_types::{FileId, Nanos, OpKind};
use rustc_hash::FxBuildHasher;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::hash::BuildHasher;

/// The parameters of `aioli`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AioliConfig {
    /// The first, and smallest, quantum of a file.
    #[serde(with = "units::size")]
    pub quantum: u64,
    /// How long to wait for a neighbour.
    #[serde(with = "units::span")]
    pub wait: Nanos,
}

impl Default for AioliConfig {
    fn default() -> AioliConfig {
        AioliConfig { quantum: 64 << 10, wait: Nanos::from_micros(900) }
    }
}

/// A quantum grows to at most so many times the first.
const LARGEST: u64 = 16;
/// How many files the memory has room for; a newer one takes an older one's place.
const MEMORY: usize = 512;

type Key = (FileId, OpKind);

/// What is known of a file and operation from before.
#[derive(Clone, Copy, Debug)]
struct Memory {
    key: Key,
    quantum: u64,
    /// Where its last batch ended and how many requests that held.
    end: u64,
    count: usize,
}

#[derive(Debug, Default)]
struct Queue {
    requests: Sweep,
    /// While it waits: where the neighbour is missing, and how many together end the wait.
    expects: Option<(u64, usize)>,
}

/// Serves files in turn, each in offset order.
#[derive(Debug)]
pub struct Aioli {
    config: AioliConfig,
    queues: Table<Key, Queue>,
    turns: VecDeque<u32>,
    waiting: SlotHeap<Nanos>,
    /// What the first in `turns` has sent in this turn; `None`: its turn is yet to begin.
    used: Option<u64>,
    memory: Vec<Memory>,
    len: usize,
    merge: Limits,
}

impl Aioli {
    /// An empty one.
    pub fn new(config: &AioliConfig, merge: Limits) -> Aioli {
        let config = AioliConfig { quantum: config.quantum.max(1), ..*config };
        let nobody = (FileId(u64::MAX), OpKind::Metadata);
        let memory = vec![Memory { key: nobody, quantum: config.quantum, end: 0, count: 0 }; MEMORY];
        Aioli {
            config,
            queues: Table::default(),
            turns: VecDeque::new(),
            waiting: SlotHeap::default(),
            used: None,
            memory,
            len: 0,
            merge,
        }
    }

    fn memory(&mut self, key: Key) -> &mut Memory {
        let place = FxBuildHasher.hash_one(key) as usize % MEMORY;
        let memory = &mut self.memory[place];
        if memory.key != key {
            *memory = Memory { key, quantum: self.config.quantum, end: 0, count: 0 };
        }
        memory
    }

    /// Whether the queue whose turn begins had better wait for a neighbour.
    fn anticipates(&mut self, slot: u32) -> bool {
        let Some(first) = self.queues[slot].requests.front().copied() else { return false };
        let most = self.merge.count;
        let memory = *self.memory((first.file, first.op));
        let queue = &mut self.queues[slot];
        let waits = memory.count > 1
            && first.offset > memory.end
            && queue.requests.contiguous(most) < memory.count.min(most);
        if waits {
            queue.expects = Some((memory.end, memory.count.min(most)));
            // Once for each large batch: nobody waits for ever.
            self.memory((first.file, first.op)).count = 0;
        }
        waits
    }

    /// Puts a queue at the front, whether a turn is under way there or not.
    fn resume(&mut self, slot: u32) {
        self.waiting.remove(slot);
        self.queues[slot].expects = None;
        let at = usize::from(self.used.is_some());
        self.turns.insert(at, slot);
    }

    fn end_turn(&mut self, key: Key, used: u64, more: bool) {
        let (least, most) = (self.config.quantum, self.config.quantum.saturating_mul(LARGEST));
        let memory = self.memory(key);
        let quantum = memory.quantum;
        memory.quantum = match used {
            // It had more to send than it might.
            u if u >= quantum && more => quantum.saturating_mul(2),
            u if u >= quantum / 4 * 3 => quantum,
            _ => quantum / 2,
        }
        .clamp(least, most);
        self.used = None;
    }
}

impl Scheduler for Aioli {
    fn enqueue(&mut self, _now: Nanos, r: Request) {
        let slot = self.queues.slot((r.file, r.op));
        let queue = &mut self.queues[slot];
        if queue.requests.is_empty() {
            self.turns.push_back(slot);
        }
        queue.requests.push(r, 0);
        self.len += 1;
        if let Some((hole, together)) = queue.expects {
            let arrived = queue.requests.front().is_some_and(|f| f.offset <= hole);
            if arrived || queue.requests.contiguous(together) >= together {
                self.resume(slot);
            }
        }
    }

    fn dispatch(&mut self, now: Nanos) -> Option<Batch> {
        while let Some((_, slot)) = self.waiting.peek().filter(|(until, _)| *until <= now) {
            self.resume(slot);
        }
        let slot = loop {
            let slot = *self.turns.front()?;
            if self.used.is_some() || !self.anticipates(slot) {
                break slot;
            }
            self.turns.pop_front();
            self.waiting.set(slot, now + self.config.wait);
        };
        let batch = self.queues[slot].requests.pop(&self.merge)?;
        let count = batch.requests().len();
        let key = (batch.file(), batch.op());
        self.len -= count;
        let cost: u64 = batch.requests().iter().map(|r| r.cost(METADATA_COST)).sum();
        let used = self.used.unwrap_or(0).saturating_add(cost);
        self.used = Some(used);
        let end = batch.offset() + batch.span();
        let memory = self.memory(key);
        (memory.end, memory.count) = (end, count);
        let quantum = memory.quantum;

        let more = !self.queues[slot].requests.is_empty();
        if !more || used >= quantum {
            self.turns.pop_front();
            self.end_turn(key, used, more);
            if more {
                self.turns.push_back(slot);
            } else {
                self.queues.remove(&key);
            }
        }
        Some(batch)
    }

    fn next_wakeup(&self, _now: Nanos) -> Option<Nanos> {
        if self.turns.is_empty() { self.waiting.peek().map(|(until, _)| until) } else { None }
    }

    fn complete(&mut self, _now: Nanos, _batch: &Batch) {}

    fn len(&self) -> usize {
        self.len
    }

    fn retune(&mut self, config: &SchedulerConfig) -> bool {
        let Algorithm::Aioli(aioli) = &config.algorithm else { return false };
        self.config = AioliConfig { quantum: aioli.quantum.max(1), ..*aioli };
        self.merge = config.merge;
        true
    }

    fn drain(&mut self) -> Vec<Request> {
        let mut all: Vec<Request> = self.queues.values_mut().flat_map(|q| q.requests.drain()).collect();
        *self = Aioli::new(&self.config, self.merge);
        all.sort_by_key(|r| r.arrival);
        all
    }
}
