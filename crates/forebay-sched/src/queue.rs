//! What the I/O node holds: the scheduler in force, the flows' weights and counters, and the change
//! from one scheduler to another while requests wait and run.

use crate::service::Accounts;
use crate::{Batch, Request, Scheduler, SchedulerConfig, Site, build};
use forebay_types::{FlowId, Nanos};

/// A batch on its way to storage, to be given back when it is done.
#[derive(Debug)]
pub struct Ticket {
    /// What to issue.
    pub batch: Batch,
    generation: u64,
}

/// The request queue of one I/O node. Every request enqueued comes out in exactly one [`Ticket`].
pub struct DispatchQueue {
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
            .field("waiting", &self.scheduler.len())
            .finish_non_exhaustive()
    }
}

impl DispatchQueue {
    /// An empty queue under the scheduler that `config` names.
    pub fn new(config: SchedulerConfig, site: Site) -> DispatchQueue {
        DispatchQueue {
            scheduler: build(&config, site),
            config,
            site,
            accounts: Accounts::default(),
            generation: 0,
        }
    }

    /// Takes a request in.
    pub fn enqueue(&mut self, now: Nanos, r: Request) {
        self.scheduler.enqueue(now, r);
    }

    /// What may go now; see [`Scheduler::dispatch`].
    pub fn dispatch(&mut self, now: Nanos) -> Option<Ticket> {
        let batch = self.scheduler.dispatch(now)?;
        Some(Ticket { batch, generation: self.generation })
    }

    /// When to ask again without an event; see [`Scheduler::next_wakeup`].
    pub fn next_wakeup(&self, now: Nanos) -> Option<Nanos> {
        self.scheduler.next_wakeup(now)
    }

    /// What a ticket asked for is done, well or badly.
    pub fn complete(&mut self, now: Nanos, ticket: &Ticket) {
        self.accounts.served(now, &ticket.batch);
        // Slots taken from an earlier scheduler are no longer counted by anybody.
        if ticket.generation == self.generation {
            self.scheduler.complete(now, &ticket.batch);
        }
    }

    /// How many requests wait.
    pub fn len(&self) -> usize {
        self.scheduler.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.scheduler.is_empty()
    }

    /// Whether metadata operations go through the queue; see [`Scheduler::wants_metadata`].
    pub fn wants_metadata(&self) -> bool {
        self.scheduler.wants_metadata()
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
            self.scheduler.enqueue(now, r);
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
    pub fn forget(&mut self, flow: FlowId) {
        self.accounts.forget(flow);
        self.scheduler.forget(flow);
    }

    /// The flows' counters.
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_types::{FileId, OpKind, RequestId, ServerId};

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
        queue.complete(Nanos(10), &early);
        assert!(queue.dispatch(Nanos(10)).is_none(), "both slots are in use");
        queue.complete(Nanos(10), &late[0]);
        assert!(queue.dispatch(Nanos(10)).is_some());
        assert_eq!(queue.accounts().flows()[0].1.requests, 2);
        assert_eq!(queue.len(), 1);
    }
}
