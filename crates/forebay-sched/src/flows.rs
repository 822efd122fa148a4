//! The queues of all flows with their weights: what `wfq` and `capped` have in common. They decide whose
//! turn it is, and keep what they need to know of a flow beside its queue.

use crate::aggregate::{Limits, Run};
use crate::table::Table;
use crate::{Batch, Request};
use forebay_types::FlowId;

/// What a scheduler that keeps its requests in [`Flows`] leaves to them.
macro_rules! left_to_flows {
    () => {
        fn len(&self) -> usize {
            self.flows.len()
        }

        fn set_weight(&mut self, flow: FlowId, weight: u32) {
            self.flows.set_weight(flow, weight);
        }

        fn forget(&mut self, flow: FlowId) {
            self.flows.forget(flow);
        }
    };
}
pub(crate) use left_to_flows;

#[derive(Debug)]
pub(crate) struct Flow<S> {
    pub(crate) requests: Run,
    pub(crate) weight: u64,
    /// What the scheduler knows of it.
    pub(crate) state: S,
}

impl<S: Default> Default for Flow<S> {
    fn default() -> Flow<S> {
        Flow { requests: Run::default(), weight: 1, state: S::default() }
    }
}

/// All flows, by slot. A flow stays when its queue is empty, until it is forgotten.
#[derive(Debug)]
pub(crate) struct Flows<S> {
    table: Table<FlowId, Flow<S>>,
    len: usize,
}

impl<S> Default for Flows<S> {
    fn default() -> Flows<S> {
        Flows { table: Table::default(), len: 0 }
    }
}

impl<S: Default> Flows<S> {
    /// How many requests wait.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Takes a request in; says where its flow is, and whether it had nothing waiting.
    pub(crate) fn push(&mut self, r: Request) -> (u32, bool) {
        let slot = self.table.slot(r.flow);
        let requests = &mut self.table[slot].requests;
        let idle = requests.is_empty();
        requests.push(r);
        self.len += 1;
        (slot, idle)
    }

    /// Takes the first request of a flow, with those that continue it.
    pub(crate) fn pop(&mut self, slot: u32, limits: &Limits) -> Option<Batch> {
        let batch = self.table[slot].requests.pop(limits)?;
        self.len -= batch.requests().len();
        Some(batch)
    }

    pub(crate) fn set_weight(&mut self, flow: FlowId, weight: u32) {
        let slot = self.table.slot(flow);
        self.table[slot].weight = u64::from(weight.max(1));
    }

    /// Drops a flow that has ended, unless it still has something waiting.
    pub(crate) fn forget(&mut self, flow: FlowId) {
        if let Some(slot) = self.table.find(&flow).filter(|s| self.table[*s].requests.is_empty()) {
            self.table[slot] = Flow::default();
            self.table.remove(slot);
        }
    }

    /// Takes everything, by arrival; weights and states stay.
    pub(crate) fn drain(&mut self) -> Vec<Request> {
        let mut all: Vec<Request> = self.table.values_mut().flat_map(|f| f.requests.drain()).collect();
        self.len = 0;
        all.sort_by_key(|r| r.arrival);
        all
    }
}

impl<S> std::ops::Index<u32> for Flows<S> {
    type Output = Flow<S>;
    fn index(&self, slot: u32) -> &Flow<S> {
        &self.table[slot]
    }
}

impl<S> std::ops::IndexMut<u32> for Flows<S> {
    fn index_mut(&mut self, slot: u32) -> &mut Flow<S> {
        &mut self.table[slot]
    }
}
