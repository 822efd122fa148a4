//! What the I/O node holds: the scheduler in force, the flows' weights and counters, and the change
//! from one scheduler to another while requests wait and run.

use crate::blame::{Origin, Trace, Traced};
use crate::limit::{Gate, Lender, Part, Rates, Throttled, Used, Word};
use crate::service::Accounts;
use crate::{Batch, Request, Scheduler, SchedulerConfig, Site, build};
use forebay_types::{FlowId, Nanos, NodeId, OpKind, RequestId};
use rustc_hash::FxHashMap;
use std::collections::{HashMap, VecDeque};

/// A batch on its way to storage, to be given back when it is done.
#[derive(Debug)]
pub struct Ticket {
    /// What to issue.
    pub batch: Batch,
    /// Of the scheduler that gave it out; none did if it was held back at the gate alone.
    generation: Option<u64>,
    issued: Nanos,
}

/// So many requests are remembered.
const REMEMBERED: usize = 8192;

/// The request queue of one I/O node. Every request enqueued comes out in exactly one [`Ticket`].
pub struct DispatchQueue {
    gate: Gate,
    lender: Lender,
    /// Metadata that came through the gate, and that the scheduler does not want to see.
    passed: VecDeque<Request>,
    /// When the gate let those go that it held back.
    let_go: HashMap<RequestId, Nanos>,
    /// What is remembered of those that wait and run, and schedulers need not know.
    origins: FxHashMap<RequestId, Origin>,
    /// That of the last one that came: most are done before the next one comes.
    latest: Option<(RequestId, Origin)>,
    trace: Trace,
    scheduler: Box<dyn Scheduler>,
    config: SchedulerConfig,
    site: Site,
    accounts: Accounts,
    generation: u64,
}

impl std::fmt::Debug for DispatchQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DispatchQueue")
            .field("scheduler", &self.config.to_string())
            .field("site", &self.site)
            .field("waiting", &self.len())
            .finish_non_exhaustive()
    }
}

impl DispatchQueue {
    /// An empty queue under the scheduler that `config` names.
    pub fn new(config: SchedulerConfig, site: Site) -> DispatchQueue {
        DispatchQueue {
            gate: Gate::default(),
            lender: Lender::default(),
            passed: VecDeque::new(),
            let_go: HashMap::new(),
            origins: FxHashMap::default(),
            latest: None,
            trace: Trace::new(REMEMBERED),
            scheduler: build(&config, site),
            config,
            site,
            accounts: Accounts::default(),
            generation: 0,
        }
    }

    /// Takes a request in.
    pub fn enqueue(&mut self, now: Nanos, r: Request) {
        if self.gate.is_open() {
            self.admit(now, r);
        } else if let Some(r) = self.gate.enter(now, r) {
            self.admit(now, r);
        }
    }

    /// Takes a request in of which this is to be remembered.
    pub fn enqueue_from(&mut self, now: Nanos, r: Request, origin: Origin) {
        if self.trace.keeps()
            && let Some((id, origin)) = self.latest.replace((r.id, origin))
        {
            self.origins.insert(id, origin);
        }
        self.enqueue(now, r);
    }

    /// Nothing limits the request any more.
    fn admit(&mut self, now: Nanos, r: Request) {
        if r.op == OpKind::Metadata && !self.gate.is_open() && !self.scheduler.wants_metadata() {
            self.passed.push_back(r);
        } else {
            self.scheduler.enqueue(now, r);
        }
    }

    /// What may go now; see [`Scheduler::dispatch`].
    pub fn dispatch(&mut self, now: Nanos) -> Option<Ticket> {
        while let Some(r) = self.gate.leave(now) {
            self.let_go.insert(r.id, now);
            self.admit(now, r);
        }
        if let Some(r) = self.passed.pop_front() {
            return Some(Ticket { batch: Batch::one(r), generation: None, issued: now });
        }
        let batch = self.scheduler.dispatch(now)?;
        Some(Ticket { batch, generation: Some(self.generation), issued: now })
    }

    /// When to ask again without an event; see [`Scheduler::next_wakeup`].
    pub fn next_wakeup(&self, now: Nanos) -> Option<Nanos> {
        let scheduled = if self.scheduler.is_empty() { None } else { self.scheduler.next_wakeup(now) };
        scheduled.into_iter().chain(self.gate.next()).min()
    }

    /// From now on the flow has no more than this here, and no more than the whole with what it has on the
    /// `others`; what it may have had before is paid for all the same.
    pub fn set_limit(&mut self, now: Nanos, flow: FlowId, part: Part, others: &[NodeId]) {
        self.lender.set(flow, others);
        for r in self.gate.set(now, flow, part) {
            self.let_go.insert(r.id, now);
            self.admit(now, r);
        }
    }

    /// The flow has no limit any more.
    pub fn lift_limit(&mut self, now: Nanos, flow: FlowId) {
        self.set_limit(now, flow, Part::default(), &[]);
    }

    /// What is to be said to other I/O nodes about what limited flows need and do not need here; every
    /// [`TICK`](crate::limit::TICK).
    pub fn lend(&mut self, now: Nanos) -> Vec<(NodeId, Word)> {
        self.lender.tick(now, &mut self.gate)
    }

    /// Whether any limited flow has other I/O nodes.
    pub fn lends(&self) -> bool {
        !self.lender.is_empty()
    }

    /// Another I/O node has said so of a flow here.
    pub fn heard(&mut self, now: Nanos, from: NodeId, word: &Word) {
        self.lender.heard(now, from, word, &mut self.gate);
    }

    /// What was to be said could not be: what it gave is still here.
    pub fn unsaid(&mut self, now: Nanos, word: &Word) {
        self.gate.put(now, word.flow, word.given);
    }

    /// Requests of the flow that a limit holds back.
    pub fn held_back(&self, flow: FlowId) -> impl Iterator<Item = RequestId> {
        self.gate.waiting(flow)
    }

    /// The flows that are limited.
    pub fn limits(&self) -> impl Iterator<Item = (FlowId, Rates)> {
        self.gate.limits()
    }

    /// What they have used since this was last asked.
    pub fn take_used(&mut self) -> Vec<(FlowId, Used)> {
        self.gate.take_used()
    }

    /// Which of them have been held back since then.
    pub fn held(&self) -> Vec<FlowId> {
        self.gate.held().collect()
    }

    /// What limits have held back.
    pub fn throttled(&self) -> (usize, Throttled) {
        (self.gate.len(), self.gate.throttled())
    }

    /// What a ticket asked for is done, well or badly. `moved`: how many bytes each of its requests has moved;
    /// those that are not told of have moved what they asked for.
    pub fn complete(&mut self, now: Nanos, ticket: &Ticket, moved: &[u64]) {
        for (i, r) in ticket.batch.requests().iter().enumerate() {
            let missing = moved.get(i).map_or(0, |moved| r.len.saturating_sub(*moved));
            if missing > 0 && !self.gate.is_open() {
                self.gate.give_back(now, r, missing);
            }
            let let_go = if self.let_go.is_empty() { None } else { self.let_go.remove(&r.id) };
            let admitted = let_go.unwrap_or(r.arrival);
            let origin = match self.latest.take_if(|(id, _)| *id == r.id) {
                Some((_, origin)) => Some(origin),
                None if self.origins.is_empty() => None,
                None => self.origins.remove(&r.id),
            };
            let Origin { client, servers } = origin.unwrap_or_else(|| Origin::unknown(r));
            let (request, issued) = (*r, ticket.issued);
            self.trace.push(Traced { request, client, servers, admitted, issued, done: now });
        }
        if ticket.generation.is_some() {
            self.accounts.served(now, &ticket.batch, moved);
        }
        // Slots taken from an earlier scheduler are no longer counted by anybody.
        if ticket.generation == Some(self.generation) {
            self.scheduler.complete(now, &ticket.batch);
        }
    }

    /// How many requests wait.
    pub fn len(&self) -> usize {
        self.scheduler.len() + self.gate.len() + self.passed.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.scheduler.is_empty() && self.gate.is_empty() && self.passed.is_empty()
    }

    /// Whether metadata operations go through the queue; see [`Scheduler::wants_metadata`].
    pub fn wants_metadata(&self) -> bool {
        self.scheduler.wants_metadata() || self.gate.limits_metadata()
    }

    /// The scheduler in force.
    pub fn config(&self) -> &SchedulerConfig {
        &self.config
    }

    /// Goes on under another scheduler or other parameters. Waiting requests move over in arrival
    /// order; running ones finish as they are.
    pub fn reconfigure(&mut self, now: Nanos, config: SchedulerConfig) {
        if !self.scheduler.retune(&config) {
            let waiting = self.scheduler.drain();
            self.rebuild(now, config, waiting);
        } else {
            self.config = config;
        }
    }

    /// Puts everything in anew. For a clock that was set: no scheduler goes on waiting for a time of
    /// the old one.
    pub fn restart(&mut self, now: Nanos) {
        self.gate.restart(now);
        let waiting = self.scheduler.drain();
        self.rebuild(now, self.config.clone(), waiting);
    }

    fn rebuild(&mut self, now: Nanos, config: SchedulerConfig, waiting: Vec<Request>) {
        self.scheduler = build(&config, self.site);
        self.config = config;
        self.generation += 1;
        for (flow, service) in self.accounts.flows() {
            self.scheduler.set_weight(flow, service.weight);
        }
        for r in waiting {
            self.admit(now, r);
        }
    }

    /// Gives a flow another weight, at least 1.
    pub fn set_weight(&mut self, flow: FlowId, weight: u32) {
        self.accounts.set_weight(flow, weight);
        self.scheduler.set_weight(flow, weight.max(1));
    }

    /// Other I/O nodes have served the flow so many more bytes.
    pub fn credit_remote(&mut self, flow: FlowId, bytes: u64) {
        self.accounts.served_elsewhere(flow, bytes);
        self.scheduler.credit_remote(flow, bytes);
    }

    /// Drops a flow that has ended: its counters and its weight.
    pub fn forget(&mut self, now: Nanos, flow: FlowId) {
        self.lift_limit(now, flow);
        self.accounts.forget(flow);
        self.scheduler.forget(flow);
    }

    /// From now on so many requests are remembered.
    pub fn remember(&mut self, most: usize) {
        self.trace.keep(most);
    }

    /// The last requests that were served.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The flows' counters.
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_types::{FileId, ServerId};

    #[test]
    fn what_an_earlier_scheduler_sent_frees_no_slot_of_a_later_one() {
        let config = |depth: u32| format!("sfq-d-plus:depth={depth},merge=1").parse().unwrap();
        let mut queue = DispatchQueue::new(config(1), Site::default());
        for id in 0..5 {
            let r = Request {
                id: RequestId(id),
                arrival: Nanos(id),
                file: FileId(1),
                offset: id << 20,
                len: 4096,
                flow: FlowId(1),
                server: ServerId(0),
                op: OpKind::Write,
            };
            queue.enqueue(Nanos(9), r);
        }
        let early = queue.dispatch(Nanos(9)).unwrap();
        assert!(queue.dispatch(Nanos(9)).is_none());
        queue.reconfigure(Nanos(9), config(2));
        let late = [queue.dispatch(Nanos(9)).unwrap(), queue.dispatch(Nanos(9)).unwrap()];
        queue.complete(Nanos(10), &early, &[]);
        assert!(queue.dispatch(Nanos(10)).is_none(), "both slots are in use");
        queue.complete(Nanos(10), &late[0], &[1000]);
        assert!(queue.dispatch(Nanos(10)).is_some());
        let served = queue.accounts().flows()[0].1;
        assert_eq!((served.requests, served.written_bytes), (2, 4096 + 1000));
        assert_eq!(queue.len(), 1);
    }
}
