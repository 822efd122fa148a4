//! A queue of one file and one operation in offset order. It is served in sweeps from low to high
//! offsets over the requests that came first; what arrives behind the sweep waits for the next one,
//! so that nothing waits for ever, and so does a write that overlaps a waiting one, so that the two
//! keep their order.

use crate::aggregate::Limits;
use crate::{Batch, Request};
use forebay_types::OpKind;
use std::collections::VecDeque;

/// At most so many requests that were not there when a sweep began may join it, beyond one for each
/// that was.
const JOINERS: usize = 16;

/// A sweep covers at most so many requests: enough to sort, few enough to insert into.
const WIDEST: usize = 256;

/// A waiting request and a note of its scheduler.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    request: Request,
    stamp: u32,
}

/// Requests of one file and one operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sweep {
    /// By offset, then arrival.
    current: VecDeque<Waiting>,
    /// By arrival.
    later: VecDeque<Waiting>,
    /// All of `later` lies within these offsets.
    later_span: (u64, u64),
    position: u64,
    may_join: usize,
}

impl Sweep {
    pub(crate) fn len(&self) -> usize {
        self.current.len() + self.later.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.current.is_empty() && self.later.is_empty()
    }

    /// Takes a request in, with a stamp that [`peek`](Sweep::peek) shows again.
    pub(crate) fn push(&mut self, request: Request, stamp: u32) {
        let waiting = Waiting { request, stamp };
        if self.is_empty() {
            self.begin(1);
            self.current.push_back(waiting);
            return;
        }
        if request.offset >= self.position && self.may_join > 0 && self.current.len() < WIDEST {
            let at = self.place(request.offset);
            if request.op != OpKind::Write || self.fits(&request, at) {
                self.may_join -= 1;
                self.current.insert(at, waiting);
                return;
            }
        }
        let span = if self.later.is_empty() { (u64::MAX, 0) } else { self.later_span };
        self.later_span = (span.0.min(request.offset), span.1.max(request.end()));
        self.later.push_back(waiting);
    }

    fn begin(&mut self, size: usize) {
        self.position = 0;
        self.may_join = size.saturating_add(JOINERS);
    }

    /// Where a request of this offset stands among the current ones. Often at the end.
    fn place(&self, offset: u64) -> usize {
        match self.current.back() {
            Some(last) if last.request.offset > offset => {
                self.current.partition_point(|w| w.request.offset <= offset)
            }
            _ => self.current.len(),
        }
    }

    /// Whether a write overlaps neither what waits for later nor, at its place, a current one. Current
    /// writes are disjoint, so the neighbours tell.
    fn fits(&self, r: &Request, at: usize) -> bool {
        let (low, high) = self.later_span;
        let clear_of_later =
            self.later.is_empty() || r.offset.saturating_add(r.len.max(1)) <= low || r.offset >= high;
        clear_of_later && !self.overlaps(r, at)
    }

    fn overlaps(&self, r: &Request, at: usize) -> bool {
        let below = at.checked_sub(1).and_then(|b| self.current.get(b));
        let above = self.current.get(at);
        below.into_iter().chain(above).any(|w| r.conflicts(&w.request))
    }

    /// Starts the next sweep if this one is over: those that came first, up to a write that overlaps
    /// one before it.
    fn turn(&mut self) {
        if !self.current.is_empty() || self.later.is_empty() {
            return;
        }
        self.begin(self.later.len().min(WIDEST));
        while let Some(w) = self.later.front().copied() {
            let at = self.place(w.request.offset);
            let conflict = w.request.op == OpKind::Write && self.overlaps(&w.request, at);
            if conflict || self.current.len() >= WIDEST {
                break;
            }
            self.later.pop_front();
            self.current.insert(at, w);
        }
    }

    /// The lowest requests of the sweep, and their stamps.
    pub(crate) fn peek(&mut self) -> impl Iterator<Item = (&Request, u32)> {
        self.turn();
        self.current.iter().map(|w| (&w.request, w.stamp))
    }

    /// The lowest request of the sweep.
    pub(crate) fn front(&mut self) -> Option<&Request> {
        self.peek().next().map(|(r, _)| r)
    }

    /// Takes the lowest request, with those that continue it.
    pub(crate) fn pop(&mut self, limits: &Limits) -> Option<Batch> {
        self.pop_at(0, limits)
    }

    /// Takes a request by its place in [`peek`](Sweep::peek), with those that continue it.
    pub(crate) fn pop_at(&mut self, at: usize, limits: &Limits) -> Option<Batch> {
        self.turn();
        let head = self.current.get(at)?.request;
        let end = at + self.chain(at, limits);
        let batch = if end == at + 1 {
            Batch::one(head)
        } else {
            Batch::many(self.current.range(at..end).map(|w| w.request).collect())
        };
        if at == 0 {
            self.position = head.offset + batch.span();
        }
        self.current.drain(at..end);
        Some(batch)
    }

    /// How many from `at` on make one batch.
    fn chain(&self, at: usize, limits: &Limits) -> usize {
        let mut run = self.current.range(at..).map(|w| &w.request);
        let Some(head) = run.next() else { return 0 };
        if head.op == OpKind::Metadata || head.len == 0 {
            return 1;
        }
        let sieve = if head.op == OpKind::Read { limits.sieve } else { 0 };
        let mut end = head.end();
        let joined = run.take(limits.count.saturating_sub(1)).take_while(|r| {
            let hole = r.offset.checked_sub(end);
            let joins =
                hole.is_some_and(|h| h <= sieve) && r.len > 0 && r.end() - head.offset <= limits.bytes;
            end = r.end();
            joins
        });
        1 + joined.count()
    }

    /// Takes everything, in no order.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Request> {
        let current = std::mem::take(&mut self.current);
        current.into_iter().chain(std::mem::take(&mut self.later)).map(|w| w.request)
    }
}
