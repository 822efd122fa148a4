//! A virtual machine for schedulers: random requests, workers that take time, no clock.

use crate::common::SERVERS;
use forebay_sched::{Batch, Request, Scheduler};
use forebay_types::{FileId, FlowId, Nanos, OpKind, RequestId, ServerId};
use rand::Rng;
use rand::rngs::StdRng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const STRIPE: u64 = 64 << 10;

/// A random request: a few files and flows, aligned and odd offsets, all sizes, some metadata.
pub(crate) fn random(rng: &mut StdRng, id: u64, now: Nanos) -> Request {
    let op = match rng.random_range(0..10) {
        0 => OpKind::Metadata,
        1..=5 => OpKind::Write,
        _ => OpKind::Read,
    };
    let len = match rng.random_range(0..20) {
        _ if op == OpKind::Metadata => 0,
        0 => 0,
        1 => rng.random_range(1..400),
        2 => 4 << 20,
        3..=5 => 1 << 20,
        6..=8 => 128 << 10,
        _ => 32 << 10,
    };
    let offset = match rng.random_range(0..4) {
        0 => rng.random_range(0..1 << 24),
        _ => rng.random_range(0..512) * (32 << 10),
    };
    Request {
        id: RequestId(id),
        arrival: now,
        file: FileId(rng.random_range(0..40)),
        offset,
        len,
        flow: FlowId(rng.random_range(0..6)),
        server: ServerId((offset / STRIPE % u64::from(SERVERS)) as u32),
        op,
    }
}

/// How long a batch takes on the virtual storage: not quite the same every time, as in life, so that
/// no two clocks stay in step.
pub(crate) fn service(batch: &Batch) -> Nanos {
    let jitter = batch.requests()[0].id.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
    Nanos((20_000 + batch.span()) * (32 + jitter) / 32)
}

/// Workers in virtual time. `seen` is told of every dispatch.
pub(crate) struct Machine {
    pub(crate) now: Nanos,
    pub(crate) scheduler: Box<dyn Scheduler>,
    pub(crate) idle: usize,
    running: BinaryHeap<Reverse<(Nanos, u64)>>,
    batches: Vec<Option<Batch>>,
}

impl Machine {
    pub(crate) fn new(scheduler: Box<dyn Scheduler>, workers: usize) -> Machine {
        Machine {
            now: Nanos::from_secs(1),
            scheduler,
            idle: workers,
            running: BinaryHeap::new(),
            batches: vec![],
        }
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.running.len()
    }

    pub(crate) fn enqueue(&mut self, r: Request, seen: &mut impl FnMut(Nanos, &Batch)) {
        self.scheduler.enqueue(self.now, r);
        self.dispatch(seen);
    }

    pub(crate) fn dispatch(&mut self, seen: &mut impl FnMut(Nanos, &Batch)) {
        while self.idle > 0 {
            let Some(batch) = self.scheduler.dispatch(self.now) else { break };
            seen(self.now, &batch);
            self.idle -= 1;
            self.running.push(Reverse((self.now + service(&batch), self.batches.len() as u64)));
            self.batches.push(Some(batch));
        }
    }

    /// The next completion or wake-up.
    pub(crate) fn next_event(&self) -> Option<Nanos> {
        let done = self.running.peek().map(|Reverse((at, _))| *at);
        let wake = if self.idle > 0 && !self.scheduler.is_empty() {
            self.scheduler.next_wakeup(self.now)
        } else {
            None
        };
        assert!(wake.is_none_or(|w| w > self.now), "a wake-up in the past would spin");
        done.into_iter().chain(wake).min()
    }

    /// Goes on to `until`, or to the end of all work.
    pub(crate) fn run(&mut self, until: Nanos, seen: &mut impl FnMut(Nanos, &Batch)) {
        while let Some(at) = self.next_event().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            while let Some(Reverse((at, index))) = self.running.peek().copied() {
                if at > self.now {
                    break;
                }
                self.running.pop();
                let batch = self.batches[index as usize].take().expect("a batch runs once");
                self.idle += 1;
                self.scheduler.complete(self.now, &batch);
            }
            self.dispatch(seen);
        }
        if until < Nanos(u64::MAX) {
            self.now = self.now.max(until);
        }
    }
}
