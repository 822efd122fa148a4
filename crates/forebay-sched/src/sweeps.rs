//! The queues of all files, one for each operation, each served in sweeps ([`Sweep`]): what `aioli`,
//! `sjf` and `mlf` have in common. They decide whose turn it is, and note what they need beside a queue.

use crate::aggregate::Limits;
use crate::sweep::{Sweep, Waiting};
use crate::table::Table;
use crate::{Batch, Request};
use forebay_types::{FileId, OpKind};

/// What a queue is of.
pub(crate) type Key = (FileId, OpKind);

/// In this order, so that a small note and what is in front of a sweep share a line of the cache.
#[derive(Debug, Default)]
#[repr(C)]
struct Queue<N> {
    note: N,
    sweep: Sweep,
}

/// All queues, by slot. `N` is what the scheduler notes of each; a queue that is given to another file
/// keeps the note it had.
#[derive(Debug)]
pub(crate) struct Sweeps<N> {
    queues: Table<Key, Queue<N>>,
    len: usize,
}

impl<N> Default for Sweeps<N> {
    fn default() -> Sweeps<N> {
        Sweeps { queues: Table::default(), len: 0 }
    }
}

impl<N: Default> Sweeps<N> {
    /// How many requests wait.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many requests wait in a queue.
    pub(crate) fn waiting(&self, slot: u32) -> usize {
        self.queues[slot].sweep.len()
    }

    /// What a queue is of.
    pub(crate) fn key(&self, slot: u32) -> Key {
        self.queues.key(slot)
    }

    /// What the scheduler notes of a queue.
    pub(crate) fn note(&mut self, slot: u32) -> &mut N {
        &mut self.queues[slot].note
    }

    /// Takes a request in, with a stamp that [`stamps`](Sweeps::stamps) shows again; says into which
    /// queue.
    pub(crate) fn push(&mut self, r: &Request, stamp: u32) -> u32 {
        let slot = self.queues.slot((r.file, r.op));
        self.queues[slot].sweep.push(r.op, Waiting::new(r, stamp));
        self.len += 1;
        slot
    }

    /// Begins a queue's next sweep if one is over.
    pub(crate) fn turn(&mut self, slot: u32) {
        let (_, op) = self.key(slot);
        self.queues[slot].sweep.turn(op);
    }

    /// The stamps of a queue's lowest requests. A sweep that is over gives way to the next.
    pub(crate) fn stamps(&mut self, slot: u32) -> impl Iterator<Item = u32> {
        self.turn(slot);
        self.queues[slot].sweep.iter().map(|w| w.stamp)
    }

    /// Takes a queue's request by its place in [`stamps`](Sweeps::stamps), with those that continue it.
    /// An empty queue gives up its slot.
    pub(crate) fn pop(&mut self, slot: u32, at: usize, limits: &Limits) -> Option<Batch> {
        let (file, op) = self.key(slot);
        let sweep = &mut self.queues[slot].sweep;
        let batch = match sweep.take(at, op, limits) {
            [] => return None,
            [one] => Batch::one(one.request(file, op)),
            many => Batch::many(many.iter().map(|w| w.request(file, op)).collect()),
        };
        if sweep.is_empty() {
            self.queues.remove(slot);
        }
        self.len -= batch.requests().len();
        Some(batch)
    }

    /// Takes everything, by arrival.
    pub(crate) fn drain(&mut self) -> Vec<Request> {
        let mut all = Vec::with_capacity(self.len);
        for ((file, op), queue) in self.queues.iter_mut() {
            all.extend(queue.sweep.drain().map(|w| w.request(file, op)));
        }
        *self = Sweeps::default();
        all.sort_by_key(|r| r.arrival);
        all
    }
}
