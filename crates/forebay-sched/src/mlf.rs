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
    /// The round in which the first of its requests may go.
    due: u32,
}

/// How many of a file's lowest requests are tried at its turn.
const TRIED: usize = 4;
/// A turn lies at most so many rounds ahead: one, and a doubling for every bit of a size.
const ROUNDS: usize = 66;

/// Serves files in turn, small requests sooner.
#[derive(Debug)]
pub struct Mlf {
    quantum: u64,
    queues: Table<(FileId, OpKind), Queue>,
    /// The round under way. Every file has one turn in it; turns in which nothing fits are not taken.
    round: u32,
    /// Whose turn it is in this round and in those to come, in order.
    turns: Vec<VecDeque<u32>>,
    len: usize,
    merge: Limits,
}

impl Mlf {
    /// An empty one.
    pub fn new(config: &MlfConfig, merge: Limits) -> Mlf {
        let turns = vec![VecDeque::new(); ROUNDS];
        Mlf { quantum: config.quantum.max(1), queues: Table::default(), round: 0, turns, len: 0, merge }
    }

    /// How many times the allowance must double for this request.
    fn doublings(&self, r: &Request) -> u32 {
        let quanta = r.cost(METADATA_COST).div_ceil(self.quantum);
        quanta.checked_next_power_of_two().map_or(u64::BITS, u64::trailing_zeros)
    }

    /// How many rounds from now a request may go whose first turn is in round `stamp`.
    fn wait(&self, r: &Request, stamp: u32) -> u32 {
        let due = stamp.wrapping_add(self.doublings(r));
        // Rounds wrap: what lies far ahead is past.
        let ahead = due.wrapping_sub(self.round);
        if ahead < ROUNDS as u32 { ahead } else { 0 }
    }

    fn schedule(&mut self, slot: u32, wait: u32) {
        let due = self.round.wrapping_add(wait);
        self.queues[slot].due = due;
        self.turns[due as usize % ROUNDS].push_back(slot);
    }

    /// The next file whose turn comes.
    fn next_turn(&mut self) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        loop {
            match self.turns[self.round as usize % ROUNDS].pop_front() {
                // A turn that was moved forward leaves its old place behind.
                Some(slot) if self.queues[slot].due == self.round => return Some(slot),
                Some(_) => {}
                None => self.round = self.round.wrapping_add(1),
            }
        }
    }
}

impl Scheduler for Mlf {
    fn enqueue(&mut self, _now: Nanos, r: Request) {
        let slot = self.queues.slot((r.file, r.op));
        // Its first turn is in the next round, so that this one ends.
        let stamp = self.round.wrapping_add(1);
        let wait = self.wait(&r, stamp);
        let queue = &mut self.queues[slot];
        let idle = queue.requests.is_empty();
        queue.requests.push(r, stamp);
        self.len += 1;
        if idle || wait < queue.due.wrapping_sub(self.round) {
            self.schedule(slot, wait);
        }
    }

    fn dispatch(&mut self, _now: Nanos) -> Option<Batch> {
        loop {
            let slot = self.next_turn()?;
            let mut queue = std::mem::take(&mut self.queues[slot].requests);
            let fits = queue.peek().take(TRIED).position(|(r, stamp)| self.wait(r, stamp) == 0);
            let batch = fits.and_then(|at| queue.pop_at(at, &self.merge));
            // Its next turn is in a later round, when the first of its requests may go.
            let next = queue.peek().take(TRIED).map(|(r, stamp)| self.wait(r, stamp)).min();
            self.queues[slot].requests = queue;
            if let Some(wait) = next {
                self.schedule(slot, wait.max(1));
            }
            let Some(batch) = batch else { continue };
            if next.is_none() {
                self.queues.remove(&(batch.file(), batch.op()));
            }
            self.len -= batch.requests().len();
            return Some(batch);
        }
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
