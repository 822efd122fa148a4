//! What a scheduler hands out: one request, or several that the node issues as a single vectored
//! read or write.

use crate::Request;
use forebay_types::{FileId, OpKind};

/// Requests to be issued together. Never empty; several requests are of one file and one operation,
/// in offset order, disjoint, and contiguous except for the gaps a sieved read may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    body: Body,
    slots: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Body {
    One(Request),
    Many(Vec<Request>),
}

/// A stretch of a batch, in offset order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment<'a> {
    /// Bytes of a request.
    Request(&'a Request),
    /// So many bytes nobody asked for, read to keep the batch in one piece.
    Gap(u64),
}

impl Batch {
    /// A request on its own.
    pub fn one(r: Request) -> Batch {
        Batch { body: Body::One(r), slots: 1 }
    }

    /// Requests that go together: see the type for what they must be.
    ///
    /// # Panics
    /// If there are none.
    pub(crate) fn many(requests: Vec<Request>) -> Batch {
        assert!(!requests.is_empty(), "a batch holds at least one request");
        debug_assert!(
            requests
                .windows(2)
                .all(|w| w[0].end() <= w[1].offset && w[0].file == w[1].file && w[0].op == w[1].op)
        );
        Batch { body: Body::Many(requests), slots: 1 }
    }

    /// Notes how many depth slots the scheduler holds for it until it completes.
    pub(crate) fn with_slots(mut self, slots: u32) -> Batch {
        self.slots = slots;
        self
    }

    /// The depth slots it occupies; 1 where the scheduler does not count them.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Its requests, in offset order.
    pub fn requests(&self) -> &[Request] {
        match &self.body {
            Body::One(r) => std::slice::from_ref(r),
            Body::Many(v) => v,
        }
    }

    /// Its request, if it is exactly one.
    pub fn sole(&self) -> Option<&Request> {
        match self.requests() {
            [r] => Some(r),
            _ => None,
        }
    }

    fn first(&self) -> &Request {
        &self.requests()[0]
    }

    /// The file all its requests concern.
    pub fn file(&self) -> FileId {
        self.first().file
    }

    /// What all its requests do.
    pub fn op(&self) -> OpKind {
        self.first().op
    }

    /// Where it starts.
    pub fn offset(&self) -> u64 {
        self.first().offset
    }

    /// From its first to its last byte, gaps included: what the one system call moves.
    pub fn span(&self) -> u64 {
        self.requests().last().map_or(0, Request::end) - self.offset()
    }

    /// What its requests cost in bytes of service; see [`Request::cost`].
    pub fn cost(&self, metadata: u64) -> u64 {
        self.requests().iter().map(|r| r.cost(metadata)).sum()
    }

    /// The bytes that were asked for.
    pub fn bytes(&self) -> u64 {
        self.requests().iter().map(|r| r.len).sum()
    }

    /// Its requests and the gaps between them, in offset order: the shape of the I/O vector.
    pub fn segments(&self) -> impl Iterator<Item = Segment<'_>> {
        let mut at = self.offset();
        self.requests().iter().flat_map(move |r| {
            let gap = r.offset - at;
            at = r.end();
            let gap = (gap > 0).then_some(Segment::Gap(gap));
            gap.into_iter().chain(std::iter::once(Segment::Request(r)))
        })
    }
}
