//! The seam: what a request scheduler is to the I/O node.

use crate::{Batch, Request, SchedulerConfig};
use forebay_types::{FlowId, Nanos};

/// Decides which waiting requests go to storage, and when. A plain state machine: it is told the
/// time, never waits, and holds no lock. The node asks [`dispatch`](Scheduler::dispatch) after every
/// arrival, completion and wake-up, as long as it has somebody to do the work.
pub trait Scheduler: Send {
    /// Takes a request in.
    fn enqueue(&mut self, now: Nanos, r: Request);

    /// What may go now. `None`: nothing may, though requests can be waiting.
    fn dispatch(&mut self, now: Nanos) -> Option<Batch>;

    /// After [`dispatch`](Scheduler::dispatch) gave nothing: when to ask again even if nothing arrives or
    /// completes before. `None`: there is no such time, as in schedulers that never wait.
    fn next_wakeup(&self, _now: Nanos) -> Option<Nanos> {
        None
    }

    /// A dispatched batch is done, well or badly. Schedulers that do not bound or learn from what is
    /// outstanding ignore it.
    fn complete(&mut self, _now: Nanos, _batch: &Batch) {}

    /// How many requests wait here, dispatched ones not counted.
    fn len(&self) -> usize;

    /// Whether nothing waits here.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether metadata operations are to wait here, too. Schedulers of bytes let them pass.
    fn wants_metadata(&self) -> bool {
        false
    }

    /// Gives a flow another weight (1 unless told), from its next request on. Schedulers that know
    /// no weights ignore it.
    fn set_weight(&mut self, _flow: FlowId, _weight: u32) {}

    /// Other I/O nodes have served the flow so many more bytes: it waits accordingly here.
    /// Schedulers that do not share in proportion ignore it.
    fn credit_remote(&mut self, _flow: FlowId, _bytes: u64) {}

    /// The flow has ended. What it still has waiting is served, but its weight and its past are
    /// dropped where a scheduler keeps them.
    fn forget(&mut self, _flow: FlowId) {}

    /// Takes over parameters in place, without touching what waits. `false`: they are of another
    /// scheduler, or cannot be changed in place; the caller drains and builds anew.
    fn retune(&mut self, config: &SchedulerConfig) -> bool;

    /// Gives up all that waits, in the order of arrival, to be enqueued elsewhere.
    fn drain(&mut self) -> Vec<Request>;
}
