//! The event loop. A request is two events: it arrives at its I/O node, and its batch is done there.

use super::link::Link;
use super::program::{Call, Next};
use super::{FlowTotals, Machine, Observer, Outcome, Process, Span};
use forebay_pattern::{Access, Collector};
use forebay_sched::emulate::Emulated;
use forebay_sched::share::{ServiceReport, ServiceSharing};
use forebay_sched::{DispatchQueue, METADATA_COST, Request, Site, Ticket};
use forebay_types::{ClientId, FileId, Nanos, NodeId, OpKind, RequestId};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

/// The size of a request without its data, and of an answer.
const HEADER: u64 = 64;

#[derive(Clone, Copy)]
enum Event {
    /// The process has something to do.
    Process(u32),
    /// The request reaches its I/O node, or the storage if there is none.
    Arrive(u32),
    /// What the slot holds is done at the storage.
    Done(u32),
    /// The node's scheduler wants to be asked.
    Wake(u32),
    /// A report of service reaches a node.
    Heard(u32),
    /// The collectors' intervals end.
    Interval,
}

/// Numbers of things stay below this: there are never so many at once.
const MOST: u32 = 1 << 29;

/// An event and its time in one number, of which the smallest is next: half of a simulation is spent
/// in comparing these. Events of the same time come in the order in which they were made.
fn pack(time: Nanos, sequence: u32, event: Event) -> u128 {
    let (kind, number) = match event {
        Event::Process(n) => (0, n),
        Event::Arrive(n) => (1, n),
        Event::Done(n) => (2, n),
        Event::Wake(n) => (3, n),
        Event::Heard(n) => (4, n),
        Event::Interval => (5, 0),
    };
    debug_assert!(number < MOST);
    u128::from(time.0) << 64 | u128::from(sequence) << 32 | u128::from(kind * MOST + number)
}

fn unpack(packed: u128) -> (Nanos, Event) {
    let low = packed as u32;
    let number = low % MOST;
    let event = match low / MOST {
        0 => Event::Process(number),
        1 => Event::Arrive(number),
        2 => Event::Done(number),
        3 => Event::Wake(number),
        4 => Event::Heard(number),
        _ => Event::Interval,
    };
    (Nanos((packed >> 64) as u64), event)
}

struct Node {
    queue: DispatchQueue,
    collector: Collector,
    sharing: Option<ServiceSharing>,
    active: u32,
    /// The wake-up that is on its way.
    wake: Option<Nanos>,
    up: Link,
    down: Link,
    /// Everything takes so many times as long here.
    slowness: f64,
}

/// A process and its call under way.
struct Running {
    process: Process,
    rng: ChaCha8Rng,
    call: Call,
    began: Nanos,
    /// Bytes of the call that were sent, and pieces without an answer.
    sent: u64,
    open: u32,
}

/// A request under way.
#[derive(Clone, Copy)]
struct Pending {
    process: u32,
    request: Request,
}

/// What is at the storage.
enum Slot {
    /// A batch of a node's scheduler.
    Batch(u32, Ticket),
    /// A request that went around the scheduler of its node, if there is one.
    Lone(u32),
}

/// Things by number, whose numbers are used again.
struct Slab<T> {
    items: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    fn new() -> Slab<T> {
        Slab { items: Vec::new(), free: Vec::new() }
    }

    fn insert(&mut self, item: T) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.items[at as usize] = Some(item);
                at
            }
            None => {
                self.items.push(Some(item));
                (self.items.len() - 1) as u32
            }
        }
    }

    fn remove(&mut self, at: u32) -> Option<T> {
        let item = self.items.get_mut(at as usize)?.take();
        if item.is_some() {
            self.free.push(at);
        }
        item
    }

    fn get(&self, at: u32) -> Option<&T> {
        self.items.get(at as usize)?.as_ref()
    }
}

pub(super) struct World<'a> {
    machine: &'a Machine,
    span: Span,
    storage: Emulated,
    nodes: Vec<Node>,
    processes: Vec<Running>,
    compute: Vec<(Link, Link)>,
    requests: Slab<Pending>,
    slots: Slab<Slot>,
    /// Reports of service on their way, and to whom.
    reports: Slab<(Rc<ServiceReport>, u32)>,
    events: BinaryHeap<Reverse<u128>>,
    sequence: u32,
    outcome: Outcome,
    left: usize,
}

impl<'a> World<'a> {
    pub(super) fn new(machine: &'a Machine, processes: Vec<Process>, span: Span) -> World<'a> {
        let node = |n: u32| {
            let site = Site { node: if machine.same_site { 0 } else { n }, servers: machine.storage.servers };
            let mut queue = DispatchQueue::new(machine.scheduler.clone(), site);
            for &(flow, weight) in &machine.weights {
                queue.set_weight(flow, weight);
            }
            Node {
                queue,
                collector: Collector::new(Nanos::ZERO),
                sharing: machine.share.map(|bytes| ServiceSharing::new(NodeId(n), Nanos::ZERO, bytes)),
                active: 0,
                wake: None,
                up: Link::default(),
                down: Link::default(),
                slowness: machine.slow.iter().find(|(s, _)| s.0 == n).map_or(1.0, |(_, f)| *f),
            }
        };
        let flows = processes.iter().map(|p| p.flow.0 as usize + 1).max().unwrap_or(0);
        let compute = processes.iter().map(|p| p.compute_node as usize + 1).max().unwrap_or(0);
        let running = |(i, process)| {
            let mut rng = ChaCha8Rng::seed_from_u64(machine.seed);
            rng.set_stream(i as u64);
            let call = Call { op: OpKind::Metadata, file: FileId(0), offset: 0, len: 0 };
            Running { process, rng, call, began: Nanos::ZERO, sent: 0, open: 0 }
        };
        let mut world = World {
            machine,
            span,
            storage: Emulated::new(machine.storage.clone()),
            nodes: (0..machine.io_nodes).map(node).collect(),
            left: processes.len(),
            processes: processes.into_iter().enumerate().map(running).collect(),
            compute: vec![Default::default(); compute],
            requests: Slab::new(),
            slots: Slab::new(),
            reports: Slab::new(),
            events: BinaryHeap::new(),
            sequence: 0,
            outcome: Outcome {
                flows: vec![FlowTotals::default(); flows],
                served: vec![0; flows],
                ..Outcome::default()
            },
        };
        for p in 0..world.processes.len() as u32 {
            world.at(Nanos::ZERO, Event::Process(p));
        }
        world
    }

    fn at(&mut self, time: Nanos, event: Event) {
        // After four billion events the numbers begin anew: only those of one moment are compared by it.
        self.sequence = self.sequence.wrapping_add(1);
        self.events.push(Reverse(pack(time, self.sequence, event)));
    }

    pub(super) fn run(mut self, mut observer: Option<&mut dyn Observer>) -> Outcome {
        if observer.is_some() {
            self.at(self.machine.interval, Event::Interval);
        }
        while let Some(Reverse(packed)) = self.events.pop() {
            let (now, event) = unpack(packed);
            if now > self.span.until || self.left == 0 {
                break;
            }
            self.outcome.events += 1;
            self.outcome.end = now;
            if let Some(again) = self.stopped(now, event) {
                self.at(again, event);
                continue;
            }
            match event {
                Event::Process(p) => self.step(now, p),
                Event::Arrive(r) => self.arrive(now, r),
                Event::Done(slot) => self.done(now, slot),
                Event::Wake(n) => {
                    let node = &mut self.nodes[n as usize];
                    // One that came while the node was stopped is late.
                    if node.wake.is_some_and(|at| at <= now) {
                        node.wake = None;
                        self.pump(now, n);
                    }
                }
                Event::Heard(report) => self.heard(now, report),
                Event::Interval => {
                    let intervals: Vec<_> = self.nodes.iter_mut().map(|n| n.collector.close(now)).collect();
                    if let Some(config) = observer.as_mut().and_then(|o| o.observe(now, &intervals)) {
                        for n in 0..self.nodes.len() as u32 {
                            self.nodes[n as usize].queue.reconfigure(now, config.clone());
                            self.pump(now, n);
                        }
                    }
                    let moves = observer.as_mut().map(|o| o.moves()).unwrap_or_default();
                    for running in &mut self.processes {
                        if let Some((_, node)) = moves.iter().find(|(flow, _)| *flow == running.process.flow)
                        {
                            running.process.io_node = node.0;
                        }
                    }
                    self.at(now + self.machine.interval, Event::Interval);
                }
            }
        }
        self.outcome
    }

    /// When the I/O node that an event is for runs again, if it is stopped now.
    fn stopped(&self, now: Nanos, event: Event) -> Option<Nanos> {
        let stops = self.machine.stops?;
        let node = match event {
            Event::Arrive(r) => {
                let pending = self.requests.get(r)?;
                self.processes[pending.process as usize].process.io_node
            }
            Event::Done(slot) => match self.slots.get(slot)? {
                Slot::Batch(n, _) => *n,
                Slot::Lone(r) => self.processes[self.requests.get(*r)?.process as usize].process.io_node,
            },
            Event::Wake(n) => n,
            Event::Process(_) | Event::Heard(_) | Event::Interval => return None,
        };
        stops.runs_again(NodeId(node), now)
    }

    /// Lets a process begin its next call.
    fn step(&mut self, now: Nanos, p: u32) {
        let running = &mut self.processes[p as usize];
        match running.process.program.next(now, &mut running.rng) {
            Next::End => self.left -= 1,
            Next::Compute(span) => self.at(now + span, Event::Process(p)),
            Next::Call(call) => {
                (running.call, running.began, running.sent) = (call, now, 0);
                self.send(now, p);
            }
        }
    }

    /// Sends what may be sent of the process's call: all of a small one, a window's worth of a large one.
    fn send(&mut self, now: Nanos, p: u32) {
        loop {
            let running = &mut self.processes[p as usize];
            let call = running.call;
            let began = running.sent > 0 || running.open > 0;
            if (running.sent >= call.len && began) || running.open >= self.machine.window {
                return;
            }
            let len = (call.len - running.sent).min(self.machine.piece);
            let offset = call.offset + running.sent;
            running.sent += len;
            running.open += 1;
            let (flow, compute) = (running.process.flow, running.process.compute_node as usize);
            let request = Request {
                id: RequestId(0),
                arrival: now,
                file: call.file,
                offset,
                len,
                flow,
                server: self.storage.server_of(offset),
                op: call.op,
            };
            let bytes = HEADER + if call.op == OpKind::Write { len } else { 0 };
            let io_node = running.process.io_node as usize;
            let (up, _) = &mut self.compute[compute];
            let mut there = up.send(&self.machine.compute_link, now, bytes);
            if !self.nodes.is_empty() {
                there = there + self.machine.compute_link.latency;
                there = self.nodes[io_node].down.send(&self.machine.node_link, there, bytes);
            }
            let r = self.requests.insert(Pending { process: p, request });
            self.at(there, Event::Arrive(r));
            if call.len == 0 {
                return;
            }
        }
    }

    fn arrive(&mut self, now: Nanos, r: u32) {
        let Some(pending) = self.requests.get(r).copied() else { return };
        let running = &self.processes[pending.process as usize].process;
        let (n, compute) = (running.io_node, running.compute_node);
        let request = Request { id: RequestId(u64::from(r)), arrival: now, ..pending.request };
        if self.nodes.is_empty() {
            // The compute node is a client of the storage itself.
            return self.lone(now, r, compute, 1.0, &request);
        }
        let node = &mut self.nodes[n as usize];
        let client = ClientId(u64::from(pending.process));
        let Request { flow, file, op, offset, len, .. } = request;
        node.collector.arrive(now, &Access { flow, client, file, op, offset, len });
        if op == OpKind::Metadata && !node.queue.wants_metadata() {
            // As on the production node: who asked carries it out at once.
            let slowness = node.slowness;
            return self.lone(now, r, n, slowness, &request);
        }
        node.queue.enqueue(now, request);
        self.pump(now, n);
    }

    /// A request goes to the storage without a scheduler.
    fn lone(&mut self, now: Nanos, r: u32, from: u32, slowness: f64, request: &Request) {
        self.outcome.batches += 1;
        let done = self.submit(now, from, slowness, request, request.len);
        let slot = self.slots.insert(Slot::Lone(r));
        self.at(done, Event::Done(slot));
    }

    fn submit(&mut self, now: Nanos, from: u32, slowness: f64, r: &Request, span: u64) -> Nanos {
        let done = self.storage.submit(now, NodeId(from), r.op, r.file, r.offset, span);
        now + Nanos((done.since(now).0 as f64 * slowness) as u64)
    }

    /// Lets the node send what its scheduler lets go.
    fn pump(&mut self, now: Nanos, n: u32) {
        loop {
            let node = &mut self.nodes[n as usize];
            if node.active >= self.machine.dispatchers {
                return;
            }
            let Some(ticket) = node.queue.dispatch(now) else { break };
            node.active += 1;
            self.outcome.batches += 1;
            let first = ticket.batch.requests()[0];
            let (slowness, span) = (node.slowness, ticket.batch.span());
            let done = self.submit(now, n, slowness, &first, span);
            let slot = self.slots.insert(Slot::Batch(n, ticket));
            self.at(done, Event::Done(slot));
        }
        let node = &mut self.nodes[n as usize];
        if node.queue.is_empty() {
            return;
        }
        if let Some(at) =
            node.queue.next_wakeup(now).filter(|at| node.wake.is_none_or(|w| *at < w || w < now))
        {
            node.wake = Some(at);
            self.at(at, Event::Wake(n));
        }
    }

    fn done(&mut self, now: Nanos, slot: u32) {
        let (n, ticket) = match self.slots.remove(slot) {
            Some(Slot::Batch(n, ticket)) => (n, ticket),
            Some(Slot::Lone(r)) => {
                let Some(Pending { process, request }) = self.requests.get(r).copied() else { return };
                let n = self.processes[process as usize].process.io_node;
                return self.served(now, n, r, &request);
            }
            None => return,
        };
        for r in ticket.batch.requests() {
            self.served(now, n, r.id.0 as u32, r);
        }
        let node = &mut self.nodes[n as usize];
        node.active -= 1;
        node.queue.complete(now, &ticket, &[]);
        let mut report = None;
        if let Some(sharing) = &mut node.sharing {
            for r in ticket.batch.requests() {
                report = sharing.served(r.flow, r.cost(METADATA_COST)).or(report);
            }
        }
        if let Some(report) = report {
            self.tell(now, n, report);
        }
        self.pump(now, n);
    }

    fn served(&mut self, now: Nanos, n: u32, r: u32, request: &Request) {
        self.outcome.requests += 1;
        if now >= self.span.from {
            self.outcome.served[request.flow.0 as usize] += request.len;
        }
        if let Some(node) = self.nodes.get_mut(n as usize) {
            node.collector.complete(now, request.flow, request.op, request.len);
        }
        self.answer(now, n, r);
    }

    /// Sends the answer on its way; the process goes on when it has all of them.
    fn answer(&mut self, now: Nanos, n: u32, r: u32) {
        let Some(Pending { process: p, request }) = self.requests.remove(r) else { return };
        let bytes = HEADER + if request.op == OpKind::Read { request.len } else { 0 };
        let mut back = now;
        if let Some(node) = self.nodes.get_mut(n as usize) {
            back = node.up.send(&self.machine.node_link, now, bytes) + self.machine.compute_link.latency;
        }
        let running = &mut self.processes[p as usize];
        let (_, down) = &mut self.compute[running.process.compute_node as usize];
        back = down.send(&self.machine.compute_link, back, bytes);
        running.open -= 1;
        if running.sent < running.call.len {
            return self.send(back, p);
        }
        if running.open > 0 {
            return;
        }
        let (call, began, flow) = (running.call, running.began, running.process.flow);
        if began >= self.span.from {
            let seen = &mut self.outcome.flows[flow.0 as usize];
            seen.calls += 1;
            seen.bytes += call.len;
            seen.waited = seen.waited + back.since(began);
            seen.longest = seen.longest.max(back.since(began));
            seen.began = Some(seen.began.map_or(began, |b| b.min(began)));
            seen.ended = seen.ended.max(back);
        }
        self.at(back, Event::Process(p));
    }

    /// A node tells all others what it served.
    fn tell(&mut self, now: Nanos, n: u32, report: ServiceReport) {
        let report = Rc::new(report);
        let there = now + self.machine.node_link.latency;
        for other in (0..self.nodes.len() as u32).filter(|&o| o != n) {
            let message = self.reports.insert((Rc::clone(&report), other));
            self.at(there, Event::Heard(message));
        }
    }

    fn heard(&mut self, now: Nanos, message: u32) {
        let Some((report, n)) = self.reports.remove(message) else { return };
        let node = &mut self.nodes[n as usize];
        if let Some(sharing) = &mut node.sharing {
            for (flow, cost) in sharing.heard(&report) {
                node.queue.credit_remote(flow, cost);
            }
        }
        self.pump(now, n);
    }
}
