//! Start-time tags, the heart of the SFQ family. A request's start tag is the finish tag of its flow's
//! previous request, or the virtual time if that is later (an idle flow forfeits); its finish tag
//! adds its cost by the flow's weight. What is served next is the smallest start tag. Requests are
//! kept apart by the depth slots they will occupy, so that the smallest tag among those that fit
//! is found without a search.

use crate::aggregate::{HasRequest, Limits, Run};
use crate::heap::SlotHeap;
use crate::table::Table;
use crate::{Batch, Request};
use forebay_types::FlowId;

/// Tags count bytes by weight in parts of a byte, so that division by a weight loses little.
const PARTS: u64 = 256;

/// How far service elsewhere may put a flow behind the others, and what waits further back: it is served
/// now and then whatever it gets elsewhere, and its distant past is forgiven.
const FURTHEST_BACK: u64 = (256 << 20) * PARTS;

/// Past this the tags are set back as soon as nothing waits.
const FAR: u64 = 1 << 62;

/// A request with its start tag, less what its flow had been put back by then: what is served elsewhere
/// later puts back those that wait already, too.
#[derive(Clone, Copy, Debug)]
struct Tagged {
    request: Request,
    start: u64,
    /// What its flow had been put back by then.
    put_back: u64,
}

impl HasRequest for Tagged {
    fn request(&self) -> &Request {
        &self.request
    }
}

#[derive(Debug)]
struct Flow {
    weight: u64,
    /// The finish tag of its last request.
    finish: u64,
    /// What its tags were put back in all for service elsewhere; wraps.
    put_back: u64,
    waiting: usize,
}

impl Default for Flow {
    fn default() -> Flow {
        Flow { weight: 1, finish: 0, put_back: 0, waiting: 0 }
    }
}

/// Requests that occupy the same number of slots.
#[derive(Debug, Default)]
struct Class {
    slots: u32,
    /// By flow slot.
    runs: Vec<Run<Tagged>>,
    /// Flows by the start tag of their first request here; on a tie, by who came first.
    heads: SlotHeap<(u64, u32)>,
}

/// A candidate for dispatch: the first request of a flow within a class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) start: u64,
    /// The slots it will occupy.
    pub(crate) slots: u32,
    class: usize,
    flow: u32,
}

/// The waiting requests of all flows in tag order.
#[derive(Debug)]
pub(crate) struct TagQueue {
    flows: Table<FlowId, Flow>,
    /// Few, in order of `slots`.
    classes: Vec<Class>,
    virtual_time: u64,
    metadata_cost: u64,
    len: usize,
}

impl TagQueue {
    pub(crate) fn new(metadata_cost: u64) -> TagQueue {
        TagQueue { flows: Table::default(), classes: Vec::new(), virtual_time: 0, metadata_cost, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn set_metadata_cost(&mut self, cost: u64) {
        self.metadata_cost = cost;
    }

    pub(crate) fn set_weight(&mut self, flow: FlowId, weight: u32) {
        let slot = self.flows.slot(flow);
        self.flows[slot].weight = u64::from(weight.max(1));
    }

    /// The flow was served elsewhere: all its tags move back by as much.
    pub(crate) fn credit_remote(&mut self, flow: FlowId, bytes: u64) {
        let slot = self.flows.slot(flow);
        let flow = &mut self.flows[slot];
        let mut room = self.virtual_time.saturating_add(FURTHEST_BACK).saturating_sub(flow.finish);
        for first in self.classes.iter().filter_map(|c| c.runs.get(slot as usize)?.front()) {
            let since = flow.put_back.wrapping_sub(first.put_back);
            room = room.min(FURTHEST_BACK.saturating_sub(since));
        }
        let by = (bytes.saturating_mul(PARTS) / flow.weight).min(room);
        flow.finish = flow.finish.saturating_add(by);
        flow.put_back = flow.put_back.wrapping_add(by);
        for class in &mut self.classes {
            if let Some(first) = class.runs.get(slot as usize).and_then(Run::front) {
                class.heads.set(slot, (first.start.wrapping_add(flow.put_back), slot));
            }
        }
    }

    pub(crate) fn forget(&mut self, flow: FlowId) {
        if let Some(slot) = self.flows.find(&flow).filter(|s| self.flows[*s].waiting == 0) {
            self.flows[slot] = Flow::default();
            self.flows.remove(slot);
        }
    }

    /// Tags a request that will occupy `slots`, and takes it in.
    pub(crate) fn enqueue(&mut self, request: Request, slots: u32) {
        if self.len == 0 && self.virtual_time > FAR {
            self.virtual_time = 0;
            self.flows.values_mut().for_each(|f| f.finish = 0);
        }
        let slot = self.flows.slot(request.flow);
        let flow = &mut self.flows[slot];
        let cost = request.cost(self.metadata_cost).saturating_mul(PARTS) / flow.weight;
        let start = flow.finish.max(self.virtual_time);
        flow.finish = start.saturating_add(cost.max(1));
        let put_back = flow.put_back;
        flow.waiting += 1;
        self.len += 1;

        let class = self.class(slots);
        let class = &mut self.classes[class];
        if class.runs.len() <= slot as usize {
            class.runs.resize_with(slot as usize + 1, Run::default);
        }
        let run = &mut class.runs[slot as usize];
        if run.is_empty() {
            class.heads.set(slot, (start, slot));
        }
        run.push(Tagged { request, start: start.wrapping_sub(put_back), put_back });
    }

    fn class(&mut self, slots: u32) -> usize {
        let at = self.classes.partition_point(|c| c.slots < slots);
        if self.classes.get(at).is_none_or(|c| c.slots != slots) {
            self.classes.insert(at, Class { slots, ..Class::default() });
        }
        at
    }

    /// The smallest tag of all.
    pub(crate) fn head(&self) -> Option<Head> {
        self.head_within(u32::MAX)
    }

    /// The smallest tag among requests of at most `slots`.
    pub(crate) fn head_within(&self, slots: u32) -> Option<Head> {
        let fitting = self.classes.iter().enumerate().take_while(|(_, c)| c.slots <= slots);
        fitting
            .filter_map(|(class, c)| {
                let ((start, _), flow) = c.heads.peek()?;
                Some(Head { start, slots: c.slots, class, flow })
            })
            .min_by_key(|h| h.start)
    }

    /// The request at a head.
    pub(crate) fn first(&self, head: Head) -> Option<Request> {
        self.classes[head.class].runs[head.flow as usize].front().map(|t| t.request)
    }

    /// Takes a head out, with those of its flow and class that continue it.
    pub(crate) fn pop(&mut self, head: Head, limits: &Limits) -> Option<Batch> {
        let class = &mut self.classes[head.class];
        let run = &mut class.runs[head.flow as usize];
        let batch = run.pop(limits)?;
        match run.front() {
            Some(next) => {
                let start = next.start.wrapping_add(self.flows[head.flow].put_back);
                class.heads.set(head.flow, (start, head.flow));
            }
            None => class.heads.remove(head.flow),
        }
        self.virtual_time = self.virtual_time.max(head.start);
        self.flows[head.flow].waiting -= batch.requests().len();
        self.len -= batch.requests().len();
        Some(batch.with_slots(head.slots))
    }

    /// Takes everything, by arrival; weights and tags stay.
    pub(crate) fn drain(&mut self) -> Vec<Request> {
        let runs = std::mem::take(&mut self.classes).into_iter().flat_map(|c| c.runs);
        let mut all: Vec<Request> = runs.flat_map(|mut r| r.drain()).map(|t| t.request).collect();
        self.flows.values_mut().for_each(|f| f.waiting = 0);
        self.len = 0;
        all.sort_by_key(|r| r.arrival);
        all
    }
}

/// What schedulers by tags leave to their `queue`: everything about flows.
macro_rules! left_to_the_tags {
    () => {
        fn len(&self) -> usize {
            self.queue.len()
        }

        fn wants_metadata(&self) -> bool {
            true
        }

        fn set_weight(&mut self, flow: forebay_types::FlowId, weight: u32) {
            self.queue.set_weight(flow, weight);
        }

        fn credit_remote(&mut self, flow: forebay_types::FlowId, bytes: u64) {
            self.queue.credit_remote(flow, bytes);
        }

        fn forget(&mut self, flow: forebay_types::FlowId) {
            self.queue.forget(flow);
        }
    };
}
pub(crate) use left_to_the_tags;
