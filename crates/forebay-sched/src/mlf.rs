//! `mlf`: multilevel feedback. Files take turns; a request runs once its allowance, which starts at
//! `quantum` and doubles at every turn of its file, reaches its size. Small requests go at once,
//! large ones after a few turns.

use crate::aggregate::Limits;
use crate::sweeps::Sweeps;
use crate::{Algorithm, Batch, METADATA_COST, Request, Scheduler, SchedulerConfig};
use forebay_types::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The parameters of `mlf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MlfConfig {
    /// The allowance at a request's first turn.
    #[serde(with = "forebay_types::size")]
    pub quantum: u64,
}

impl Default for MlfConfig {
    fn default() -> MlfConfig {
        MlfConfig { quantum: 8 << 10 }
    }
}

/// How many of a file's lowest requests are tried at its turn.
const TRIED: usize = 4;
/// A turn lies at most so many rounds ahead: one, and a doubling for every bit of a size.
const ROUNDS: usize = 66;

/// How far the turns have come, and how fast an allowance grows.
#[derive(Clone, Copy, Debug)]
struct Pace {
    quantum: u64,
    /// The round under way. Every file has one turn in it; turns in which nothing fits are not taken.
    round: u32,
}

impl Pace {
    /// The round in which a request of this cost that comes now may go. Its first turn is in the next
    /// one, so that this one ends.
    fn due(self, cost: u64) -> u32 {
        let quanta = cost.div_ceil(self.quantum);
        let doublings = quanta.checked_next_power_of_two().map_or(u64::BITS, u64::trailing_zeros);
        self.round.wrapping_add(1).wrapping_add(doublings)
    }

    /// How many rounds from now what is due in that round may go.
    fn wait(self, due: u32) -> u32 {
        // Rounds wrap: what lies far ahead is past.
        let ahead = due.wrapping_sub(self.round);
        if ahead < ROUNDS as u32 { ahead } else { 0 }
    }
}

/// Serves files in turn, small requests sooner.
#[derive(Debug)]
pub struct Mlf {
    pace: Pace,
    /// With the round in which the first of its requests may go.
    queues: Sweeps<u32>,
    /// Whose turn it is in this round and in those to come, in order.
    turns: Vec<VecDeque<u32>>,
    merge: Limits,
}

impl Mlf {
    /// An empty one.
    pub fn new(config: &MlfConfig, merge: Limits) -> Mlf {
        let pace = Pace { quantum: config.quantum.max(1), round: 0 };
        Mlf { pace, queues: Sweeps::default(), turns: vec![VecDeque::new(); ROUNDS], merge }
    }

    fn schedule(&mut self, slot: u32, wait: u32) {
        let due = self.pace.round.wrapping_add(wait);
        *self.queues.note(slot) = due;
        self.turns[due as usize % ROUNDS].push_back(slot);
    }

    /// The next file whose turn comes.
    fn next_turn(&mut self) -> Option<u32> {
        if self.queues.len() == 0 {
            return None;
        }
        loop {
            let round = self.pace.round;
            match self.turns[round as usize % ROUNDS].pop_front() {
                // A turn that was moved forward leaves its old place behind.
                Some(slot) if *self.queues.note(slot) == round => return Some(slot),
                Some(_) => {}
                None => self.pace.round = round.wrapping_add(1),
            }
        }
    }
}

impl Scheduler for Mlf {
    fn enqueue(&mut self, _now: Nanos, r: Request) {
        let due = self.pace.due(r.cost(METADATA_COST));
        let wait = self.pace.wait(due);
        let slot = self.queues.push(&r, due);
        let idle = self.queues.waiting(slot) == 1;
        if idle || wait < self.queues.note(slot).wrapping_sub(self.pace.round) {
            self.schedule(slot, wait);
        }
    }

    fn dispatch(&mut self, _now: Nanos) -> Option<Batch> {
        loop {
            let slot = self.next_turn()?;
            let pace = self.pace;
            let fits = self.queues.stamps(slot).take(TRIED).position(|due| pace.wait(due) == 0);
            let batch = fits.and_then(|at| self.queues.pop(slot, at, &self.merge));
            // Its next turn is in a later round, when the first of its requests may go.
            if let Some(wait) = self.queues.stamps(slot).take(TRIED).map(|due| pace.wait(due)).min() {
                self.schedule(slot, wait.max(1));
            }
            if batch.is_some() {
                return batch;
            }
        }
    }

    fn len(&self) -> usize {
        self.queues.len()
    }

    /// What waits keeps the round that it was given.
    fn retune(&mut self, config: &SchedulerConfig) -> bool {
        let Algorithm::Mlf(mlf) = &config.algorithm else { return false };
        self.pace.quantum = mlf.quantum.max(1);
        self.merge = config.merge;
        true
    }

    fn drain(&mut self) -> Vec<Request> {
        let all = self.queues.drain();
        *self = Mlf::new(&MlfConfig { quantum: self.pace.quantum }, self.merge);
        all
    }
}
