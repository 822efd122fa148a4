//! A queue of one file and one operation in offset order. It is served in sweeps from low to high
//! offsets over the requests that came first; what arrives behind the sweep waits for the next one,
//! so that nothing waits for ever, and so does a write that overlaps a waiting one, so that the two
//! keep their order.

use crate::Request;
use crate::aggregate::Limits;
use forebay_types::{FileId, FlowId, Nanos, OpKind, RequestId, ServerId};
use std::collections::VecDeque;

/// At most so many requests that were not there when a sweep began may join it, beyond one for each
/// that was.
const JOINERS: usize = 16;

/// A sweep covers at most so many requests: enough to sort, few enough to insert into.
const WIDEST: usize = 256;

/// Requests of a file come in order but for a few: the place of one is looked for among so many of
/// the last, and only then among all.
const NEAR: usize = 8;

/// A waiting request, less the file and the operation that it shares with its queue: where many wait,
/// what is fetched from memory is what costs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    offset: u64,
    len: u64,
    id: RequestId,
    arrival: Nanos,
    flow: FlowId,
    server: ServerId,
    /// A note of its scheduler.
    pub(crate) stamp: u32,
}

impl Waiting {
    pub(crate) fn new(r: &Request, stamp: u32) -> Waiting {
        let Request { id, arrival, offset, len, flow, server, .. } = *r;
        Waiting { offset, len, id, arrival, flow, server, stamp }
    }

    /// The request again.
    pub(crate) fn request(&self, file: FileId, op: OpKind) -> Request {
        let Waiting { offset, len, id, arrival, flow, server, .. } = *self;
        Request { id, arrival, file, offset, len, flow, server, op }
    }

    fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    /// The first byte after it, where an empty one counts as one byte.
    fn edge(&self) -> u64 {
        self.offset.saturating_add(self.len.max(1))
    }

    fn overlaps(&self, other: &Waiting) -> bool {
        self.offset < other.edge() && other.offset < self.edge()
    }
}

/// Requests of one file and one operation. The operation is an argument where it counts. What most
/// requests need comes first, in few bytes: with many files it has to be fetched from memory.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(crate) struct Sweep {
    /// By offset, then arrival. Those before `done` have left: a sweep is of few requests, and what they
    /// leave is used again by the next.
    current: Vec<Waiting>,
    position: u64,
    /// How many wait in all.
    len: u32,
    /// These two stay small: a sweep is at most [`WIDEST`] requests, as many that join, and [`JOINERS`].
    done: u16,
    may_join: u16,
    /// By arrival.
    later: VecDeque<Waiting>,
    /// All of `later` lies within these offsets.
    later_span: (u64, u64),
}

impl Sweep {
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether nothing waits for the next sweep.
    fn is_last(&self) -> bool {
        self.iter().len() == self.len()
    }

    /// The sweep's requests, the lowest first.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Waiting> {
        self.current[self.done as usize..].iter()
    }

    /// Takes a request in.
    pub(crate) fn push(&mut self, op: OpKind, w: Waiting) {
        if self.is_empty() {
            self.begin(1);
            self.current.push(w);
        } else if let Some(place) = self.joins(op, &w) {
            self.may_join -= 1;
            self.insert(place, w);
        } else {
            let span = if self.is_last() { (u64::MAX, 0) } else { self.later_span };
            self.later_span = (span.0.min(w.offset), span.1.max(w.end()));
            self.later.push_back(w);
        }
        self.len += 1;
    }

    /// Where a request joins the sweep under way, if it may.
    fn joins(&self, op: OpKind, w: &Waiting) -> Option<usize> {
        if w.offset < self.position || self.may_join == 0 || self.iter().len() >= WIDEST {
            return None;
        }
        let place = self.place(w.offset);
        let conflicts = op == OpKind::Write && (self.conflicts(w, place) || self.conflicts_later(w));
        (!conflicts).then_some(place)
    }

    fn begin(&mut self, size: usize) {
        self.current.clear();
        self.done = 0;
        self.position = 0;
        self.may_join = (size.min(WIDEST) + JOINERS) as u16;
    }

    /// Where in the sweep a request of this offset belongs.
    fn place(&self, offset: u64) -> usize {
        let sweep = self.iter().as_slice();
        match sweep.iter().rev().take(NEAR).position(|w| w.offset <= offset) {
            Some(from_end) => sweep.len() - from_end,
            None => sweep.partition_point(|w| w.offset <= offset),
        }
    }

    fn insert(&mut self, place: usize, w: Waiting) {
        self.current.insert(self.done as usize + place, w);
    }

    /// Whether a write overlaps one of the sweep. Those are disjoint, so the neighbours tell.
    fn conflicts(&self, w: &Waiting, place: usize) -> bool {
        let (below, above) = self.iter().as_slice().split_at(place);
        below.last().is_some_and(|b| w.overlaps(b)) || above.first().is_some_and(|a| w.overlaps(a))
    }

    /// Whether a write may overlap one that waits for the next sweep.
    fn conflicts_later(&self, w: &Waiting) -> bool {
        let (low, high) = self.later_span;
        !self.is_last() && low < w.edge() && w.offset < high
    }

    /// Starts the next sweep if this one is over: those that came first, up to a write that overlaps
    /// one before it.
    pub(crate) fn turn(&mut self, op: OpKind) {
        if self.iter().len() > 0 || self.is_last() {
            return;
        }
        self.begin(self.later.len());
        while let Some(w) = self.later.front().copied() {
            let place = self.place(w.offset);
            let conflict = op == OpKind::Write && self.conflicts(&w, place);
            if conflict || self.current.len() >= WIDEST {
                break;
            }
            self.later.pop_front();
            self.insert(place, w);
        }
    }

    /// Takes a request by its place in [`iter`](Sweep::iter), with those that continue it.
    pub(crate) fn take(&mut self, at: usize, op: OpKind, limits: &Limits) -> &[Waiting] {
        self.turn(op);
        let start = self.done as usize;
        let rest = &mut self.current[start..];
        let at = at.min(rest.len());
        let (count, end) = chain(&rest[at..], op, limits);
        if at == 0 && count > 0 {
            self.position = end;
        }
        // Those that were passed over stay in front, in order.
        rest[..at + count].rotate_right(count);
        self.done += count as u16;
        self.len -= count as u32;
        &self.current[start..start + count]
    }

    /// Takes everything, in no order.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Waiting> {
        self.len = 0;
        self.current.drain(self.done as usize..).chain(self.later.drain(..))
    }
}

/// How many from the first on make one batch, and where it ends.
fn chain(run: &[Waiting], op: OpKind, limits: &Limits) -> (usize, u64) {
    let Some((head, run)) = run.split_first() else { return (0, 0) };
    let (mut count, mut end) = (1, head.end());
    if op == OpKind::Metadata || head.len == 0 {
        return (count, end);
    }
    let sieve = if op == OpKind::Read { limits.sieve } else { 0 };
    for w in run.iter().take(limits.count.saturating_sub(1)) {
        let joins = w.offset.checked_sub(end).is_some_and(|hole| hole <= sieve)
            && w.len > 0
            && w.end() - head.offset <= limits.bytes;
        if !joins {
            break;
        }
        (count, end) = (count + 1, w.end());
    }
    (count, end)
}
