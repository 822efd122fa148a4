//! Compute processes, I/O nodes and the emulated storage in virtual time: the daemon's dispatch loop
//! without the daemon.

use forebay_sched::emulate::{Emulated, StorageModel};
use forebay_sched::{DispatchQueue, Request, Site, Ticket};
use forebay_types::{FileId, FlowId, Nanos, NodeId, OpKind, RequestId};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// One way between a process and its I/O node.
const HOP: Nanos = Nanos::from_micros(20);

/// What a process does next.
pub(crate) enum Act {
    /// Sends these and waits for all.
    Io(Vec<Io>),
    Think(Nanos),
}

#[derive(Clone, Copy)]
pub(crate) struct Io {
    pub(crate) op: OpKind,
    pub(crate) file: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

pub(crate) struct Process {
    pub(crate) node: usize,
    pub(crate) flow: u32,
    pub(crate) next: Box<dyn FnMut() -> Option<Act>>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Process(usize),
    Arrive(usize, usize),
    Done(usize, usize),
    Wake(usize),
}

struct Node {
    queue: DispatchQueue,
    idle: usize,
    wake: Option<Nanos>,
}

/// What was seen of one flow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) bytes: u64,
    pub(crate) requests: u64,
    /// Of its processes together, waiting for I/O.
    pub(crate) io_time: Nanos,
    /// When its last process ended.
    pub(crate) end: Nanos,
}

pub(crate) struct World {
    pub(crate) now: Nanos,
    start: Nanos,
    storage: Emulated,
    nodes: Vec<Node>,
    processes: Vec<Process>,
    /// How many answers each process waits for, and since when.
    waiting: Vec<(usize, Nanos)>,
    requests: Vec<(Request, usize)>,
    tickets: Vec<Option<Ticket>>,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    sequence: u64,
    pub(crate) seen: Vec<Seen>,
    pub(crate) batches: u64,
}

impl World {
    pub(crate) fn new(
        model: StorageModel,
        scheduler: &str,
        nodes: usize,
        workers: usize,
        processes: Vec<Process>,
    ) -> World {
        let servers = model.servers;
        let node = |n| Node {
            queue: DispatchQueue::new(scheduler.parse().unwrap(), Site { node: n as u32, servers }),
            idle: workers,
            wake: None,
        };
        let flows = processes.iter().map(|p| p.flow + 1).max().unwrap_or(0) as usize;
        let now = Nanos::from_secs(1);
        World {
            now,
            start: now,
            storage: Emulated::new(model),
            nodes: (0..nodes).map(node).collect(),
            waiting: vec![(0, now); processes.len()],
            processes,
            requests: Vec::new(),
            tickets: Vec::new(),
            events: BinaryHeap::new(),
            sequence: 0,
            seen: vec![Seen::default(); flows],
            batches: 0,
        }
    }

    pub(crate) fn set_weight(&mut self, flow: u32, weight: u32) {
        self.nodes.iter_mut().for_each(|n| n.queue.set_weight(FlowId(flow), weight));
    }

    pub(crate) fn accounts(&self, node: usize) -> &forebay_sched::service::Accounts {
        self.nodes[node].queue.accounts()
    }

    fn at(&mut self, when: Nanos, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((when, self.sequence, event)));
    }

    /// Runs until every process has ended, or to `until`; the time that took.
    pub(crate) fn run(&mut self, until: Nanos) -> Nanos {
        let until = self.start + until;
        for p in 0..self.processes.len() {
            self.at(self.now, Event::Process(p));
        }
        while let Some(Reverse((when, _, event))) = self.events.pop() {
            if when > until {
                self.now = until;
                break;
            }
            self.now = when;
            match event {
                Event::Process(p) => self.proceed(p),
                Event::Arrive(n, r) => {
                    let (request, _) = self.requests[r];
                    self.nodes[n].queue.enqueue(self.now, Request { arrival: self.now, ..request });
                    self.dispatch(n);
                }
                Event::Done(n, t) => self.done(n, t),
                Event::Wake(n) => {
                    self.nodes[n].wake = None;
                    self.dispatch(n);
                }
            }
        }
        self.now.since(self.start)
    }

    fn proceed(&mut self, p: usize) {
        let flow = self.processes[p].flow;
        match (self.processes[p].next)() {
            None => self.seen[flow as usize].end = self.now.since(self.start),
            Some(Act::Think(time)) => self.at(self.now + time, Event::Process(p)),
            Some(Act::Io(ios)) => {
                self.waiting[p] = (ios.len(), self.now);
                let node = self.processes[p].node;
                for io in ios {
                    let id = self.requests.len();
                    let request = Request {
                        id: RequestId(id as u64),
                        arrival: self.now,
                        file: FileId(io.file),
                        offset: io.offset,
                        len: io.len,
                        flow: FlowId(flow),
                        server: self.storage.server_of(io.offset),
                        op: io.op,
                    };
                    self.requests.push((request, p));
                    self.at(self.now + HOP, Event::Arrive(node, id));
                }
            }
        }
    }

    fn dispatch(&mut self, n: usize) {
        while self.nodes[n].idle > 0 {
            let Some(ticket) = self.nodes[n].queue.dispatch(self.now) else { break };
            self.nodes[n].idle -= 1;
            self.batches += 1;
            let b = &ticket.batch;
            let done =
                self.storage.submit(self.now, NodeId(n as u32), b.op(), b.file(), b.offset(), b.span());
            self.tickets.push(Some(ticket));
            self.at(done, Event::Done(n, self.tickets.len() - 1));
        }
        let node = &mut self.nodes[n];
        if node.idle > 0 && !node.queue.is_empty() {
            let wake = node.queue.next_wakeup(self.now);
            if let Some(w) = wake.filter(|w| node.wake.is_none_or(|old| *w < old)) {
                node.wake = Some(w);
                self.at(w, Event::Wake(n));
            }
        }
    }

    fn done(&mut self, n: usize, t: usize) {
        let ticket = self.tickets[t].take().expect("a ticket is done once");
        self.nodes[n].idle += 1;
        self.nodes[n].queue.complete(self.now, &ticket, &[]);
        for r in ticket.batch.requests() {
            let (_, p) = self.requests[r.id.0 as usize];
            let seen = &mut self.seen[r.flow.0 as usize];
            seen.bytes += r.len;
            seen.requests += 1;
            let (left, since) = &mut self.waiting[p];
            *left -= 1;
            if *left == 0 {
                seen.io_time = seen.io_time + (self.now + HOP).since(*since);
                self.at(self.now + HOP, Event::Process(p));
            }
        }
        self.dispatch(n);
    }
}
