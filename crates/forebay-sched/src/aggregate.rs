//! Aggregation: out of the requests next in line, those that continue one another in the same file
//! with the same operation leave as one batch. Every scheduler keeps its requests in [`Run`]s and so
//! merges alike, after its own decision which run to serve.

use crate::{Batch, Request};
use forebay_types::OpKind;
use std::collections::VecDeque;

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
        // Twice the batch: room for strangers in between, and a bounded look-up.
        let reach = self.queue.len().min(limits.count.saturating_mul(2));
        let kin = |r: &Request| r.file == head.file && r.op == head.op;
        let Some(first) = self.queue.range(..reach).position(|e| kin(e.request())) else {
            return Batch::one(head);
        };
        let mut near: Vec<u32> = Vec::with_capacity(reach - first);
        near.extend((first as u32..reach as u32).filter(|&i| kin(self.at(i))));
        near.sort_unstable_by_key(|&i| (self.at(i).offset, i));
        let chosen = self.extend(&head, &near, limits);
        if chosen.is_empty() { Batch::one(head) } else { self.take(head, chosen) }
    }

    /// Which of `near` (positions in offset order) go with `head`.
    fn extend(&self, head: &Request, near: &[u32], limits: &Limits) -> Vec<u32> {
        let sieve = if head.op == OpKind::Read { limits.sieve } else { 0 };
        let mut chosen: Vec<u32> = Vec::new();
        let (mut start, mut end) = (head.offset, head.end());
        let split = near.partition_point(|&i| self.at(i).offset < head.offset);
        let upwards = near[split..].iter().map(|&i| (i, true));
        let downwards = near[..split].iter().rev().map(|&i| (i, false));
        let mut upwards_done = false;
        for (i, up) in upwards.chain(downwards) {
            if up && upwards_done {
                continue;
            }
            let r = self.at(i);
            let hole = if up { r.offset.checked_sub(end) } else { start.checked_sub(r.end()) };
            // What overlaps the batch is another batch's affair.
            let Some(hole) = hole else { continue };
            let span = end.max(r.end()) - start.min(r.offset);
            let fits = chosen.len() + 1 < limits.count && span <= limits.bytes;
            if hole > sieve || r.len == 0 || !fits || !self.may_overtake(i, &chosen) {
                if up {
                    upwards_done = true;
                    continue;
                }
                break;
            }
            (start, end) = (start.min(r.offset), end.max(r.end()));
            chosen.push(i);
        }
        chosen
    }

    /// Whether the request at `i` conflicts with none that is ahead of it and stays behind.
    fn may_overtake(&self, i: u32, chosen: &[u32]) -> bool {
        let r = self.at(i);
        (0..i).all(|ahead| !r.conflicts(self.at(ahead)) || chosen.contains(&ahead))
    }

    fn take(&mut self, head: Request, mut chosen: Vec<u32>) -> Batch {
        chosen.sort_unstable_by(|a, b| b.cmp(a));
        let mut requests = Vec::with_capacity(chosen.len() + 1);
        requests.push(head);
        for i in chosen {
            requests.extend(self.queue.remove(i as usize).map(|e| *e.request()));
        }
        requests.sort_unstable_by_key(|r| r.offset);
        Batch::many(requests)
    }
}
