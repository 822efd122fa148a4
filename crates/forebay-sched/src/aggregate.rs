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
pub trait HasRequest {
    /// The request.
    fn request(&self) -> &Request;
}

impl HasRequest for Request {
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

impl<T: HasRequest> Run<T> {
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
        let full = limits.count <= 1 || head.len >= limits.bytes;
        if full || self.queue.is_empty() || head.op == OpKind::Metadata {
            return Some(Batch::one(head));
        }
        Some(self.gather(head, limits))
    }

    fn gather(&mut self, head: Request, limits: &Limits) -> Batch {
        let sieve = if head.op == OpKind::Read { limits.sieve } else { 0 };
        let (below, above) = (head.offset.saturating_sub(sieve), head.end().saturating_add(sieve));
        // Twice the batch: room for strangers in between, and a bounded look-up.
        let reach = limits.count.saturating_mul(2);
        let mut near: SmallVec<[Near; 16]> = SmallVec::new();
        let mut touched = false;
        for (i, e) in self.queue.iter().take(reach).enumerate() {
            let r = e.request();
            if r.file == head.file {
                let kin = r.op == head.op;
                near.push(Near { offset: r.offset, end: r.end(), at: i as u32, op: r.op });
                touched |= kin && r.offset <= above && r.end() >= below;
            }
        }
        // Most heads have no neighbour at all.
        if !touched {
            return Batch::one(head);
        }
        near.sort_unstable_by_key(|n| (n.offset, n.at));
        let chosen = extend(&head, &near, sieve, limits);
        if chosen.is_empty() { Batch::one(head) } else { self.take(head, chosen) }
    }

    fn take(&mut self, head: Request, mut chosen: Places) -> Batch {
        chosen.sort_unstable();
        let mut requests = Vec::with_capacity(chosen.len() + 1);
        requests.push(head);
        requests.extend(chosen.iter().map(|&i| *self.queue[i as usize].request()));
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

/// A request of the head's file, by its position in the queue.
struct Near {
    offset: u64,
    end: u64,
    at: u32,
    op: OpKind,
}

/// The positions of those of `near` (in offset order) that go with `head`.
fn extend(head: &Request, near: &[Near], sieve: u64, limits: &Limits) -> Places {
    let mut chosen = Places::new();
    let (mut start, mut end) = (head.offset, head.end());
    let split = near.partition_point(|n| n.offset < head.offset);
    for up in [true, false] {
        let side = if up { &near[split..] } else { &near[..split] };
        for step in 0..side.len() {
            let n = if up { &side[step] } else { &side[side.len() - 1 - step] };
            let hole = if up { n.offset.checked_sub(end) } else { start.checked_sub(n.end) };
            // What overlaps the batch, or does something else, is another batch's affair.
            let Some(hole) = hole.filter(|_| n.op == head.op) else { continue };
            let span = end.max(n.end) - start.min(n.offset);
            let fits = chosen.len() + 1 < limits.count && span <= limits.bytes;
            if hole > sieve || n.offset == n.end || !fits || !may_overtake(n, near, &chosen) {
                break;
            }
            (start, end) = (start.min(n.offset), end.max(n.end));
            chosen.push(n.at);
        }
    }
    chosen
}

/// Whether a request conflicts with none of its file that is ahead of it and stays behind.
fn may_overtake(n: &Near, near: &[Near], chosen: &[u32]) -> bool {
    let conflicts = |ahead: &Near| {
        ahead.at < n.at
            && (ahead.op == OpKind::Write || (n.op == OpKind::Write && ahead.op == OpKind::Read))
            && ahead.offset < n.end
            && n.offset < ahead.end.max(ahead.offset.saturating_add(1))
    };
    // In offset order, those that start past its end are out of it.
    let candidates = near.iter().take_while(|ahead| ahead.offset < n.end);
    candidates.filter(|ahead| conflicts(ahead)).all(|ahead| chosen.contains(&ahead.at))
}
