//! `aioli`: files take turns in order of arrival; at its turn a file is served in offset order until
//! its quantum of bytes is used up, and the quantum adapts to what the file had to send. Most clients
//! send their next request when the last one is answered: where requests of a file could be merged
//! lately and fewer wait than its clients had outstanding, the missing neighbours are likely on their
//! way. The file waits a moment for them, once a batch, while others go on; a wait in vain lowers what
//! is expected and is not tried again for a while.

use crate::aggregate::Limits;
use crate::heap::SlotHeap;
use crate::sweeps::{Key, Sweeps};
use crate::{Algorithm, Batch, METADATA_COST, Request, Scheduler, SchedulerConfig};
use forebay_types::{FileId, Nanos, OpKind};
use rustc_hash::FxBuildHasher;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::num::NonZeroU32;

/// The parameters of `aioli`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AioliConfig {
    /// The first, and smallest, quantum of a file.
    #[serde(with = "forebay_types::size")]
    pub quantum: u64,
    /// How long to wait for a neighbour.
    #[serde(with = "forebay_types::span")]
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
/// After so many batches of one request a file counts as one whose requests are not neighbours.
const LONE: u32 = 4;
/// A wait in vain is not tried again for up to two to the power of this many batches.
const DISCOURAGED: u32 = 6;

/// What is known of a file and operation from before.
#[derive(Clone, Copy, Debug)]
struct Memory {
    key: Key,
    quantum: u64,
    /// Requests of it that storage has now.
    in_flight: usize,
    /// The most that waited or were in flight at a time, since the last wait in vain.
    outstanding: usize,
    /// How many batches of only one request went in a row.
    alone: u32,
    /// How many waits in a row were in vain, and how many batches go before the next is tried.
    vain: u32,
    pause: u32,
}

impl Memory {
    fn new(key: Key, quantum: u64) -> Memory {
        Memory { key, quantum, in_flight: 0, outstanding: 0, alone: LONE, vain: 0, pause: 0 }
    }
}

/// What is noted of a queue.
#[derive(Debug, Default)]
struct Note {
    /// While it waits: how many together end the wait.
    expects: Option<NonZeroU32>,
    /// It has waited since its last batch.
    waited: bool,
}

/// Serves files in turn, each in offset order.
#[derive(Debug)]
pub struct Aioli {
    config: AioliConfig,
    queues: Sweeps<Note>,
    turns: VecDeque<u32>,
    waiting: SlotHeap<Nanos>,
    /// What the first in `turns` has sent in this turn; `None`: its turn is yet to begin.
    used: Option<u64>,
    memory: Vec<Memory>,
    merge: Limits,
}

impl Aioli {
    /// An empty one.
    pub fn new(config: &AioliConfig, merge: Limits) -> Aioli {
        let config = AioliConfig { quantum: config.quantum.max(1), ..*config };
        let nobody = (FileId(u64::MAX), OpKind::Metadata);
        let memory = vec![Memory::new(nobody, config.quantum); MEMORY];
        Aioli {
            config,
            queues: Sweeps::default(),
            turns: VecDeque::new(),
            waiting: SlotHeap::default(),
            used: None,
            memory,
            merge,
        }
    }

    fn memory(&mut self, key: Key) -> &mut Memory {
        let place = FxBuildHasher.hash_one(key) as usize % MEMORY;
        let memory = &mut self.memory[place];
        if memory.key != key {
            *memory = Memory::new(key, self.config.quantum);
        }
        memory
    }

    /// Whether the queue whose turn begins had better wait for neighbours.
    fn anticipates(&mut self, slot: u32) -> bool {
        // The next sweep begins now, so that those waited for join it.
        self.queues.turn(slot);
        let (key, waiting) = (self.queues.key(slot), self.queues.waiting(slot));
        let waited = self.queues.note(slot).waited;
        let most = self.merge.count;
        let memory = self.memory(key);
        let together = memory.outstanding.saturating_sub(memory.in_flight).min(most);
        if waited || memory.alone >= LONE || waiting >= together {
            return false;
        }
        if memory.pause > 0 {
            memory.pause -= 1;
            return false;
        }
        *self.queues.note(slot) = Note { expects: NonZeroU32::new(together as u32), waited: true };
        true
    }

    /// A queue's time to wait is over, and those it waited for did not come.
    fn give_up(&mut self, slot: u32) {
        let waiting = self.queues.waiting(slot);
        let memory = self.memory(self.queues.key(slot));
        memory.outstanding = waiting + memory.in_flight;
        memory.pause = (1 << memory.vain) - 1;
        memory.vain = (memory.vain + 1).min(DISCOURAGED);
        self.resume(slot);
    }

    /// Puts a queue at the front, whether a turn is under way there or not.
    fn resume(&mut self, slot: u32) {
        self.waiting.remove(slot);
        self.queues.note(slot).expects = None;
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
        let slot = self.queues.push(&r, 0);
        let (waiting, complete) = (self.queues.waiting(slot), self.queues.note(slot).expects);
        if waiting == 1 {
            self.turns.push_back(slot);
        }
        let memory = self.memory((r.file, r.op));
        memory.outstanding = memory.outstanding.max(waiting + memory.in_flight);
        if complete.is_some_and(|together| waiting >= together.get() as usize) {
            memory.vain = 0;
            self.resume(slot);
        }
    }

    fn dispatch(&mut self, now: Nanos) -> Option<Batch> {
        while let Some((_, slot)) = self.waiting.peek().filter(|(until, _)| *until <= now) {
            self.give_up(slot);
        }
        let slot = loop {
            let slot = *self.turns.front()?;
            if self.used.is_some() || !self.anticipates(slot) {
                break slot;
            }
            self.turns.pop_front();
            self.waiting.set(slot, now + self.config.wait);
        };
        let batch = self.queues.pop(slot, 0, &self.merge)?;
        self.queues.note(slot).waited = false;
        let count = batch.requests().len();
        let key = (batch.file(), batch.op());
        let cost = batch.cost(METADATA_COST);
        let used = self.used.unwrap_or(0).saturating_add(cost);
        self.used = Some(used);
        let memory = self.memory(key);
        memory.in_flight += count;
        memory.alone = if count > 1 { 0 } else { memory.alone.saturating_add(1) };
        let quantum = memory.quantum;

        let more = self.queues.waiting(slot) > 0;
        if !more || used >= quantum {
            self.turns.pop_front();
            self.end_turn(key, used, more);
            if more {
                self.turns.push_back(slot);
            }
        }
        Some(batch)
    }

    fn next_wakeup(&self, _now: Nanos) -> Option<Nanos> {
        if self.turns.is_empty() { self.waiting.peek().map(|(until, _)| until) } else { None }
    }

    fn complete(&mut self, _now: Nanos, batch: &Batch) {
        // A newer file may have taken the place in between; then this was forgotten.
        let memory = self.memory((batch.file(), batch.op()));
        memory.in_flight = memory.in_flight.saturating_sub(batch.requests().len());
    }

    fn len(&self) -> usize {
        self.queues.len()
    }

    fn retune(&mut self, config: &SchedulerConfig) -> bool {
        let Algorithm::Aioli(aioli) = &config.algorithm else { return false };
        self.config = AioliConfig { quantum: aioli.quantum.max(1), ..*aioli };
        self.merge = config.merge;
        true
    }

    fn drain(&mut self) -> Vec<Request> {
        let all = self.queues.drain();
        *self = Aioli::new(&self.config, self.merge);
        all
    }
}
