//! A queue of one file and one operation in offset order. It is served in sweeps from low to high
//! offsets; what arrives behind the sweep waits for the next one, so that nothing waits for ever,
//! and so does a write that overlaps a waiting one, so that the two keep their order.

use crate::aggregate::Limits;
use crate::{Batch, Request};
use forebay_types::OpKind;
use std::collections::{BTreeMap, VecDeque};

/// At most so many requests that were not there when a sweep began may join it, beyond one for each
/// that was.
const JOINERS: usize = 16;

/// A waiting request and a note of its scheduler.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    request: Request,
    stamp: u32,
}

/// Requests of one file and one operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sweep {
    /// By offset, then order of arrival.
    current: BTreeMap<(u64, u32), Waiting>,
    /// In arrival order.
    later: VecDeque<Waiting>,
    /// All of `later` lies within these offsets.
    later_span: (u64, u64),
    position: u64,
    may_join: usize,
    sequence: u32,
}

impl Sweep {
    pub(crate) fn is_empty(&self) -> bool {
        self.current.is_empty() && self.later.is_empty()
    }

    /// Takes a request in, with a stamp that [`choose`](Sweep::choose) sees again.
    pub(crate) fn push(&mut self, request: Request, stamp: u32) {
        let waiting = Waiting { request, stamp };
        if self.is_empty() {
            self.begin(1);
            self.insert(waiting);
        } else if self.joins(&request) {
            self.may_join -= 1;
            self.insert(waiting);
        } else {
            let span = if self.later.is_empty() { (u64::MAX, 0) } else { self.later_span };
            self.later_span = (span.0.min(request.offset), span.1.max(request.end()));
            self.later.push_back(waiting);
        }
    }

    fn begin(&mut self, size: usize) {
        self.position = 0;
        self.sequence = 0;
        self.may_join = size.saturating_add(JOINERS);
    }

    fn insert(&mut self, w: Waiting) {
        self.current.insert((w.request.offset, self.sequence), w);
        self.sequence = self.sequence.wrapping_add(1);
    }

    fn joins(&self, r: &Request) -> bool {
        if r.offset < self.position || self.may_join == 0 {
            return false;
        }
        if r.op != OpKind::Write {
            return true;
        }
        let clear_of_later =
            self.later.is_empty() || r.end() <= self.later_span.0 || r.offset >= self.later_span.1;
        clear_of_later && !self.overlaps_current(r)
    }

    /// Writes in `current` are disjoint, so the neighbours on both sides tell.
    fn overlaps_current(&self, r: &Request) -> bool {
        let below = self.current.range(..=(r.offset, u32::MAX)).next_back();
        let above = self.current.range((r.offset, 0)..).next();
        below.into_iter().chain(above).any(|(_, w)| r.conflicts(&w.request))
    }

    /// Starts the next sweep if this one is over: all that waits, up to a write that overlaps one
    /// before it.
    fn turn(&mut self) {
        if !self.current.is_empty() || self.later.is_empty() {
            return;
        }
        self.begin(self.later.len());
        while let Some(w) = self.later.front().copied() {
            if w.request.op == OpKind::Write && self.overlaps_current(&w.request) {
                break;
            }
            self.later.pop_front();
            self.insert(w);
        }
    }

    /// The lowest request of the sweep.
    pub(crate) fn front(&mut self) -> Option<&Request> {
        self.turn();
        self.current.first_key_value().map(|(_, w)| &w.request)
    }

    /// How many requests, at most `most`, stand without a hole at the front.
    pub(crate) fn contiguous(&mut self, most: usize) -> usize {
        self.turn();
        let mut end = None;
        self.current
            .values()
            .take(most)
            .take_while(|w| {
                let follows = end.is_none_or(|e| e == w.request.offset);
                end = Some(w.request.end());
                follows
            })
            .count()
    }

    /// Takes the lowest request, with those that continue it.
    pub(crate) fn pop(&mut self, limits: &Limits) -> Option<Batch> {
        self.turn();
        let (_, w) = self.current.pop_first()?;
        let batch = self.gather(w.request, limits);
        self.position = w.request.offset + batch.span();
        Some(batch)
    }

    /// Takes the first of the lowest few requests that `fits` (told request and stamp) accepts, with
    /// those that continue it.
    pub(crate) fn choose(
        &mut self,
        limits: &Limits,
        mut fits: impl FnMut(&Request, u32) -> bool,
    ) -> Option<Batch> {
        const FEW: usize = 16;
        self.turn();
        let key = self.current.iter().take(FEW).find(|(_, w)| fits(&w.request, w.stamp)).map(|(k, _)| *k)?;
        // Those passed over keep their place: the position stays below them.
        let lowest = self.current.first_key_value().is_some_and(|(k, _)| *k == key);
        let w = self.current.remove(&key)?;
        let batch = self.gather(w.request, limits);
        if lowest {
            self.position = w.request.offset + batch.span();
        }
        Some(batch)
    }

    fn gather(&mut self, head: Request, limits: &Limits) -> Batch {
        if limits.count <= 1 || head.op == OpKind::Metadata || head.len == 0 {
            return Batch::one(head);
        }
        let sieve = if head.op == OpKind::Read { limits.sieve } else { 0 };
        let mut many: Vec<Request> = Vec::new();
        let mut end = head.end();
        while many.len().max(1) < limits.count {
            let next = self.current.range((end, 0)..).next();
            let Some((key, r)) = next.map(|(k, w)| (*k, w.request)) else { break };
            if r.offset - end > sieve || r.len == 0 || r.end() - head.offset > limits.bytes {
                break;
            }
            if many.is_empty() {
                many.push(head);
            }
            self.current.remove(&key);
            end = r.end();
            many.push(r);
        }
        if many.is_empty() { Batch::one(head) } else { Batch::many(many) }
    }

    /// Takes everything, in no order.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Request> {
        let current = std::mem::take(&mut self.current).into_values();
        current.chain(std::mem::take(&mut self.later)).map(|w| w.request)
    }
}
