//! Aggregation: out of the requests next in line, those that continue one another in the same file
//! with the same operation leave as one batch. Every scheduler keeps its requests in [`Run`]s and so
//! merges alike, after its own decision which run to serve.

use crate::{Batch, Request};
use forebay_types::OpKind;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Positions in a queue; as many as usual on the stack.
type Places = SmallVec<[u32; 32]>;

/// How far merging may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// At most so many requests in a batch; 1 turns merging off.
    pub count: usize,
    /// At most so many bytes in a batch of several, gaps included.
    pub bytes: u64,
    /// Reads may be joined over gaps of at most so many bytes (read sieving).
    pub sieve: u64,
}

impl Limits {
    /// No merging.
    pub const OFF: Limits = Limits { count: 1, bytes: 0, sieve: 0 };
    /// More requests in one vectored call than the kernel takes make no sense (IOV_MAX, and a gap
    /// beside each).
    pub const MAX_COUNT: usize = 512;
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { count: 16, bytes: 1 << 20, sieve: 0 }
    }
}

/// What a [`Run`] holds: a request, perhaps with something a scheduler notes beside it.
pub trait Entry {
    /// The request.
    fn request(&self) -> &Request;
}

impl Entry for Request {
    fn request(&self) -> &Request {
        self
    }
}

/// A queue in arrival order whose head leaves with its neighbours.
#[derive(Clone, Debug)]
pub struct Run<T = Request> {
    queue: VecDeque<T>,
}

impl<T> Default for Run<T> {
    fn default() -> Run<T> {
        Run { queue: VecDeque::new() }
    }
}

impl<T: Entry> Run<T> {
    /// Appends a request.
    pub fn push(&mut self, r: T) {
        self.queue.push_back(r);
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The next in line.
    pub fn front(&self) -> Option<&T> {
        self.queue.front()
    }

    /// Takes everything, in order.
    pub fn drain(&mut self) -> Vec<T> {
        std::mem::take(&mut self.queue).into()
    }

    /// The head, with those of the next in line that extend it without a hole. A request is left
    /// where it is if taking it would let it overtake one that it conflicts with.
    pub fn pop(&mut self, limits: &Limits) -> Option<Batch> {
        let head = *self.queue.pop_front()?.request();
        if limits.count <= 1 || self.queue.is_empty() || head.op == OpKind::Metadata {
            return Some(Batch::one(head));
        }
        Some(self.gather(head, limits))
    }

    fn at(&self, i: u32) -> &Request {
        self.queue[i as usize].request()
    }

    fn gather(&mut self, head: Request, limits: &Limits) -> Batch {
        let sieve = if head.op == OpKind::Read { limits.sieve } else { 0 };
        // Twice the batch: room for strangers in between, and a bounded look-up.
        let reach = self.queue.len().min(limits.count.saturating_mul(2));
        let kin = |r: &Request| r.file == head.file && r.op == head.op;
        // Most heads have no neighbour at all, and then this is the whole cost.
        let (below, above) = (head.offset.saturating_sub(sieve), head.end().saturating_add(sieve));
        let touches = |r: &Request| kin(r) && r.offset <= above && r.end() >= below;
        if !self.queue.range(..reach).any(|e| touches(e.request())) {
            return Batch::one(head);
        }
        let mut near: Places = (0..reach as u32).filter(|&i| kin(self.at(i))).collect();
        near.sort_unstable_by_key(|&i| (self.at(i).offset, i));
        let chosen = self.extend(&head, &near, sieve, limits);
        if chosen.is_empty() { Batch::one(head) } else { self.take(head, chosen) }
    }

    /// Which of `near` (in offset order) go with `head`.
    fn extend(&self, head: &Request, near: &[u32], sieve: u64, limits: &Limits) -> Places {
        let mut chosen = Places::new();
        let (mut start, mut end) = (head.offset, head.end());
        let split = near.partition_point(|&i| self.at(i).offset < head.offset);
        for up in [true, false] {
            let side = if up { &near[split..] } else { &near[..split] };
            for step in 0..side.len() {
                let i = if up { side[step] } else { side[side.len() - 1 - step] };
                let r = self.at(i);
                let hole = if up { r.offset.checked_sub(end) } else { start.checked_sub(r.end()) };
                // What overlaps the batch is another batch's affair.
                let Some(hole) = hole else { continue };
                let span = end.max(r.end()) - start.min(r.offset);
                let fits = chosen.len() + 1 < limits.count && span <= limits.bytes;
                if hole > sieve || r.len == 0 || !fits || !self.may_overtake(i, &chosen) {
                    break;
                }
                (start, end) = (start.min(r.offset), end.max(r.end()));
                chosen.push(i);
            }
        }
        chosen
    }

    /// Whether the request at `i` conflicts with none that is ahead of it and stays behind.
    fn may_overtake(&self, i: u32, chosen: &[u32]) -> bool {
        let r = self.at(i);
        (0..i).all(|ahead| !r.conflicts(self.at(ahead)) || chosen.contains(&ahead))
    }

    fn take(&mut self, head: Request, mut chosen: Places) -> Batch {
        chosen.sort_unstable();
        let mut requests = Vec::with_capacity(chosen.len() + 1);
        requests.push(head);
        requests.extend(chosen.iter().map(|&i| *self.at(i)));
        requests.sort_unstable_by_key(|r| r.offset);
        // Those that stay move up, in order, to close the gaps; the front is then free.
        let taken = chosen.len();
        let mut free = chosen.pop();
        while let Some(to) = free {
            // Between this gap and the next one below lie the requests to move.
            let below = chosen.pop();
            let shift = (taken - chosen.len() - usize::from(below.is_some())) as u32;
            for i in (below.map_or(0, |b| b + 1)..to).rev() {
                self.queue.swap(i as usize, (i + shift) as usize);
            }
            free = below;
        }
        self.queue.drain(..taken);
        Batch::many(requests)
    }
}
