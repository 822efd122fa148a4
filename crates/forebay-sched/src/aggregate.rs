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

/// A queue in arrival order whose head leaves with its neighbours.
#[derive(Clone, Debug, Default)]
pub struct Run {
    queue: VecDeque<Request>,
}

impl Run {
    /// Appends a request.
    pub fn push(&mut self, r: Request) {
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
    pub fn front(&self) -> Option<&Request> {
        self.queue.front()
    }

    /// Takes everything, in order.
    pub fn drain(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.queue).into()
    }

    /// The head, with those of the next in line that extend it without a hole. A request is left
    /// where it is if taking it would let it overtake one that it conflicts with.
    pub fn pop(&mut self, limits: &Limits) -> Option<Batch> {
        let head = self.queue.pop_front()?;
        if limits.count <= 1 || self.queue.is_empty() || head.op == OpKind::Metadata {
            return Some(Batch::one(head));
        }
        Some(self.gather(head, limits))
    }

    fn gather(&mut self, head: Request, limits: &Limits) -> Batch {
        // Twice the batch: room for strangers in between, and a bounded look-up.
        let reach = self.queue.len().min(limits.count.saturating_mul(2));
        let mut kin: Vec<u32> = Vec::new();
        for (i, r) in self.queue.range(..reach).enumerate() {
            if r.file == head.file && r.op == head.op {
                kin.push(i as u32);
            }
        }
        if kin.is_empty() {
            return Batch::one(head);
        }
        kin.sort_unstable_by_key(|&i| (self.queue[i as usize].offset, i));
        let chosen = self.extend(&head, &kin, limits);
        if chosen.is_empty() {
            return Batch::one(head);
        }
        self.take(head, chosen)
    }

    /// Which of `kin` (queue positions in offset order) go with `head`.
    fn extend(&self, head: &Request, kin: &[u32], limits: &Limits) -> Vec<u32> {
        let gap = if head.op == OpKind::Read { limits.sieve } else { 0 };
        let mut chosen: Vec<u32> = Vec::new();
        let (mut start, mut end) = (head.offset, head.end());
        let split = kin.partition_point(|&i| self.queue[i as usize].offset < head.offset);
        let after = kin[split..].iter().copied();
        let before = kin[..split].iter().rev().copied();
        for (forward, side) in [
            (true, &mut after.into_iter() as &mut dyn Iterator<Item = u32>),
            (false, &mut before.into_iter()),
        ] {
            for i in side {
                let r = &self.queue[i as usize];
                let hole = if forward { r.offset.checked_sub(end) } else { start.checked_sub(r.end()) };
                // Overlapping what is taken already: another batch's affair.
                let Some(hole) = hole else { continue };
                if hole > gap || r.len == 0 {
                    break;
                }
                let (s, e) = (start.min(r.offset), end.max(r.end()));
                if chosen.len() + 1 >= limits.count || e - s > limits.bytes {
                    break;
                }
                if !self.may_overtake(i, &chosen) {
                    break;
                }
                (start, end) = (s, e);
                chosen.push(i);
            }
        }
        chosen
    }

    /// Whether the request at `at` conflicts with none that is ahead of it and stays behind.
    fn may_overtake(&self, at: u32, chosen: &[u32]) -> bool {
        let r = &self.queue[at as usize];
        self.queue
            .range(..at as usize)
            .enumerate()
            .all(|(j, ahead)| !r.conflicts(ahead) || chosen.contains(&(j as u32)))
    }

    fn take(&mut self, head: Request, mut chosen: Vec<u32>) -> Batch {
        chosen.sort_unstable_by(|a, b| b.cmp(a));
        let mut requests = Vec::with_capacity(chosen.len() + 1);
        requests.push(head);
        for i in chosen {
            requests.extend(self.queue.remove(i as usize));
        }
        requests.sort_unstable_by_key(|r| r.offset);
        Batch::many(requests)
    }
}
