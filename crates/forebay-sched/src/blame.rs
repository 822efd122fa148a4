//! Who slowed whom: what the queue of an I/O node saw, and how long each job waited behind which other.

use crate::Request;
use forebay_types::{FlowId, Nanos};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// One request on its way through the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// As it arrived.
    pub request: Request,
    /// When no limit held it back any more.
    pub admitted: Nanos,
    /// When it went to the storage.
    pub issued: Nanos,
    /// When that was done.
    pub done: Nanos,
}

/// The last requests that were served, oldest first.
#[derive(Debug)]
pub struct Trace {
    seen: VecDeque<Seen>,
    most: usize,
}

impl Trace {
    /// Of so many requests.
    pub fn new(most: usize) -> Trace {
        Trace { seen: VecDeque::new(), most: most.max(1) }
    }

    /// One more was served.
    pub fn push(&mut self, seen: Seen) {
        if self.seen.len() == self.most {
            self.seen.pop_front();
        }
        self.seen.push_back(seen);
    }

    /// All of them.
    pub fn all(&self) -> Vec<Seen> {
        self.seen.iter().copied().collect()
    }
}

/// Where the time of a flow's requests went, in seconds summed over its requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Blame {
    /// How many requests this is about.
    pub requests: u64,
    /// From arrival to the end.
    pub total: f64,
    /// At the storage.
    pub service: f64,
    /// Held back by a limit.
    pub throttled: f64,
    /// Waiting while requests of this flow were at the storage; its own among them.
    pub behind: BTreeMap<FlowId, f64>,
    /// Waiting while nothing was: the scheduler wanted it so.
    pub idle: f64,
}

/// Where a flow's time went.
pub fn blame(seen: &[Seen], flow: FlowId) -> Blame {
    // By when they were issued, so that those that matter to a wait are next to each other.
    let mut order: Vec<&Seen> = seen.iter().collect();
    order.sort_by_key(|s| s.issued);
    // The latest end of all up to here: before the first that reaches into a wait nothing matters.
    let mut latest = Vec::with_capacity(order.len());
    let mut end = Nanos::ZERO;
    for s in &order {
        end = end.max(s.done);
        latest.push(end);
    }
    let mut blame = Blame::default();
    for s in seen.iter().filter(|s| s.request.flow == flow) {
        blame.requests += 1;
        blame.total += s.done.since(s.request.arrival).as_secs_f64();
        blame.service += s.done.since(s.issued).as_secs_f64();
        blame.throttled += s.admitted.since(s.request.arrival).as_secs_f64();
        let waited = s.issued.since(s.admitted);
        if waited == Nanos::ZERO {
            continue;
        }
        let first = latest.partition_point(|end| *end <= s.admitted);
        let mut at_storage: BTreeMap<FlowId, f64> = BTreeMap::new();
        for other in order[first..].iter().take_while(|o| o.issued < s.issued) {
            let overlap = other.done.min(s.issued).since(other.issued.max(s.admitted));
            if overlap > Nanos::ZERO {
                *at_storage.entry(other.request.flow).or_default() += overlap.as_secs_f64();
            }
        }
        let all: f64 = at_storage.values().sum();
        if all <= 0.0 {
            blame.idle += waited.as_secs_f64();
        }
        for (other, part) in at_storage {
            *blame.behind.entry(other).or_default() += waited.as_secs_f64() * part / all;
        }
    }
    blame
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_types::{FileId, OpKind, RequestId, ServerId};

    fn seen(flow: u32, arrival: u64, admitted: u64, issued: u64, done: u64) -> Seen {
        let ms = Nanos::from_millis;
        let request = Request {
            id: RequestId(arrival),
            arrival: ms(arrival),
            file: FileId(1),
            offset: 0,
            len: 4096,
            flow: FlowId(flow),
            server: ServerId(0),
            op: OpKind::Write,
        };
        Seen { request, admitted: ms(admitted), issued: ms(issued), done: ms(done) }
    }

    #[test]
    fn whoever_was_at_the_storage_is_to_blame() {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        let all = [
            seen(2, 0, 0, 0, 30),
            seen(3, 0, 0, 30, 40),
            // Waits 10 to 40: 20 ms behind flow 2, 10 ms behind flow 3; held back before.
            seen(1, 5, 10, 40, 45),
            // Waits while nobody is served.
            seen(1, 50, 50, 60, 61),
            // And behind its own.
            seen(1, 60, 60, 61, 62),
        ];
        let b = blame(&all, FlowId(1));
        assert_eq!(b.requests, 3);
        assert!(near(b.throttled, 0.005) && near(b.service, 0.007) && near(b.idle, 0.010), "{b:?}");
        assert!(near(b.behind[&FlowId(2)], 0.020) && near(b.behind[&FlowId(3)], 0.010), "{b:?}");
        assert!(near(b.behind[&FlowId(1)], 0.001), "{b:?}");
        let parts = b.service + b.throttled + b.idle + b.behind.values().sum::<f64>();
        assert!(near(parts, b.total), "nothing is left unexplained: {b:?}");
        assert_eq!(blame(&all, FlowId(9)), Blame::default());
    }

    #[test]
    fn the_trace_is_bounded() {
        let mut trace = Trace::new(3);
        for n in 0..10 {
            trace.push(seen(n, 0, 0, 0, 0));
        }
        assert_eq!(trace.all().iter().map(|s| s.request.flow.0).collect::<Vec<_>>(), [7, 8, 9]);
    }
}
