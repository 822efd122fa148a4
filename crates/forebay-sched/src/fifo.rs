//! `noop` and `fifo`: arrival order. `noop` never merges; `fifo` merges contiguous neighbours among
//! the requests next in line (AGIOS calls the two forms TO and TO-agg).

use crate::aggregate::{Limits, Run};
use crate::{Algorithm, Batch, Request, Scheduler, SchedulerConfig};
use forebay_types::Nanos;

/// Serves requests as they came.
#[derive(Debug)]
pub struct Fifo {
    queue: Run,
    merge: Limits,
}

impl Fifo {
    /// An empty one that merges within `merge`.
    pub fn new(merge: Limits) -> Fifo {
        Fifo { queue: Run::default(), merge }
    }
}

impl Scheduler for Fifo {
    fn enqueue(&mut self, _now: Nanos, r: Request) {
        self.queue.push(r);
    }

    fn dispatch(&mut self, _now: Nanos) -> Option<Batch> {
        self.queue.pop(&self.merge)
    }

    fn len(&self) -> usize {
        self.queue.len()
    }

    fn retune(&mut self, config: &SchedulerConfig) -> bool {
        let merge = match config.algorithm {
            Algorithm::Noop(_) => Limits::OFF,
            Algorithm::Fifo(_) => config.merge,
            _ => return false,
        };
        self.merge = merge;
        true
    }

    fn drain(&mut self) -> Vec<Request> {
        self.queue.drain()
    }
}
