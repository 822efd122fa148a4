//! Who slowed whom: what the queue of an I/O node saw, and how long each job waited behind which other.

use crate::Request;
use forebay_types::{FlowId, Nanos, OpKind, ServerId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// One request on its way through the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traced {
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
    seen: VecDeque<Traced>,
    most: usize,
}

impl Trace {
    /// Of so many requests.
    pub fn new(most: usize) -> Trace {
        Trace { seen: VecDeque::new(), most }
    }

    /// From now on of so many; 0 is none.
    pub fn keep(&mut self, most: usize) {
        self.seen.drain(..self.seen.len().saturating_sub(most));
        self.most = most;
    }

    /// One more was served.
    pub fn push(&mut self, seen: Traced) {
        if self.most == 0 {
            return;
        }
        if self.seen.len() == self.most {
            self.seen.pop_front();
        }
        self.seen.push_back(seen);
    }

    /// All of them.
    pub fn all(&self) -> Vec<Traced> {
        self.seen.iter().copied().collect()
    }
}

/// Requests of a kind and of about this size.
type Class = (OpKind, u32);

fn class(r: &Request) -> Class {
    (r.op, r.len.max(1).ilog2())
}

/// How often a thing must have been seen to be no accident.
const OFTEN: usize = 5;

/// What requests cost the storage.
#[derive(Debug)]
pub struct Costs {
    /// By their place among those seen: each one's server did nothing else for this long, if it serves one
    /// after the other.
    pub cost: Vec<Nanos>,
    /// And how often that was seen.
    floor: HashMap<Class, (Nanos, usize)>,
}

impl Costs {
    /// As it was seen.
    pub fn of(seen: &[Traced]) -> Costs {
        let mut order: Vec<usize> = (0..seen.len()).collect();
        order.sort_by_key(|i| (seen[*i].done, seen[*i].issued));
        let mut cost = vec![Nanos::ZERO; seen.len()];
        let mut floor: HashMap<Class, (Nanos, usize)> = HashMap::new();
        let mut before: HashMap<ServerId, Nanos> = HashMap::new();
        for i in order {
            let s = &seen[i];
            let last = before.insert(s.request.server, s.done).unwrap_or_default();
            cost[i] = s.done.since(s.issued.max(last));
            // Others in front of it say nothing of what it takes.
            if last <= s.issued {
                let took = s.done.since(s.issued);
                let (least, times) = floor.entry(class(&s.request)).or_insert((took, 0));
                (*least, *times) = (took.min(*least), *times + 1);
            }
        }
        Costs { cost, floor }
    }

    /// What one of this kind and size took at least, where the server had nothing else to do; 0 if that was
    /// never so.
    pub fn least(&self, r: &Request) -> Nanos {
        self.floor.get(&class(r)).map_or(Nanos::ZERO, |(least, _)| *least)
    }

    /// The same if it was seen often enough: the first request to a storage that was at rest may have taken
    /// far longer than any later one.
    pub fn least_often(&self, r: &Request) -> Nanos {
        self.floor
            .get(&class(r))
            .filter(|(_, times)| *times >= OFTEN)
            .map_or(Nanos::ZERO, |(least, _)| *least)
    }
}

/// Where the time of a flow's requests went, in seconds summed over its requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Blame {
    /// How many requests this is about.
    pub requests: u64,
    /// From arrival to the end.
    pub total: f64,
    /// At the storage, as long as its requests take there by themselves.
    pub service: f64,
    /// At the storage beyond that, while nobody else had a request at the same server.
    pub storage: f64,
    /// Held back by a limit.
    pub throttled: f64,
    /// Waiting while requests of this flow were at the storage, before or at the same server; its own among
    /// them.
    pub behind: BTreeMap<FlowId, f64>,
    /// Waiting while nothing was: the scheduler wanted it so.
    pub idle: f64,
}

impl Blame {
    /// So long was waited, which is divided among flows by these parts; whether there are any.
    fn divide(&mut self, waited: Nanos, parts: &BTreeMap<FlowId, f64>) -> bool {
        let all: f64 = parts.values().sum();
        for (other, part) in parts.iter().filter(|_| all > 0.0) {
            *self.behind.entry(*other).or_default() += waited.as_secs_f64() * part / all;
        }
        all > 0.0
    }
}

/// Where a flow's time went.
pub fn blame(seen: &[Traced], flow: FlowId) -> Blame {
    let costs = Costs::of(seen);
    // By when they were issued, so that those that matter to a wait are next to each other.
    let mut order: Vec<usize> = (0..seen.len()).collect();
    order.sort_by_key(|i| seen[*i].issued);
    // The latest end of all up to here: before the first that reaches into a wait nothing matters.
    let mut latest = Vec::with_capacity(order.len());
    let mut end = Nanos::ZERO;
    for i in &order {
        end = end.max(seen[*i].done);
        latest.push(end);
    }
    // How long whose requests were at the storage between two moments; `which` says from when to when one
    // counts.
    let meanwhile = |from: Nanos, to: Nanos, which: &dyn Fn(usize) -> Option<(Nanos, Nanos)>| {
        let mut sums: BTreeMap<FlowId, f64> = BTreeMap::new();
        let first = latest.partition_point(|end| *end <= from);
        for i in order[first..].iter().take_while(|i| seen[**i].issued < to) {
            let Some((begin, end)) = which(*i) else { continue };
            let overlap = end.min(to).since(begin.max(from));
            if overlap > Nanos::ZERO {
                *sums.entry(seen[*i].request.flow).or_default() += overlap.as_secs_f64();
            }
        }
        sums
    };
    let mut blame = Blame::default();
    for (me, s) in seen.iter().enumerate().filter(|(_, s)| s.request.flow == flow) {
        blame.requests += 1;
        blame.total += s.done.since(s.request.arrival).as_secs_f64();
        blame.throttled += s.admitted.since(s.request.arrival).as_secs_f64();
        let took = s.done.since(s.issued);
        let own = took.min(costs.cost[me].max(costs.least(&s.request)));
        blame.service += own.as_secs_f64();
        let beyond = took.since(own);
        if beyond > Nanos::ZERO {
            let beside = |i: usize| {
                let other = &seen[i];
                let there = i != me && other.request.server == s.request.server;
                there.then(|| (other.done.since(costs.cost[i]), other.done))
            };
            if !blame.divide(beyond, &meanwhile(s.issued, s.done, &beside)) {
                blame.storage += beyond.as_secs_f64();
            }
        }
        let waited = s.issued.since(s.admitted);
        if waited > Nanos::ZERO {
            let there = |i: usize| Some((seen[i].issued, seen[i].done));
            if !blame.divide(waited, &meanwhile(s.admitted, s.issued, &there)) {
                blame.idle += waited.as_secs_f64();
            }
        }
    }
    blame
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_types::{FileId, RequestId};

    fn seen(flow: u32, arrival: u64, admitted: u64, issued: u64, done: u64) -> Traced {
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
        Traced { request, admitted: ms(admitted), issued: ms(issued), done: ms(done) }
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
    fn who_is_before_it_at_the_same_server_is_to_blame_too() {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        // All go to the storage at once, which takes 10 ms for each, one after the other.
        let all =
            [seen(2, 0, 0, 0, 10), seen(3, 0, 0, 0, 20), seen(1, 0, 0, 0, 30), seen(1, 90, 90, 90, 115)];
        let b = blame(&all, FlowId(1));
        assert!(near(b.behind[&FlowId(2)], 0.010) && near(b.behind[&FlowId(3)], 0.010), "{b:?}");
        // The last was alone: the storage took its time.
        assert!(near(b.service, 0.035) && near(b.storage, 0.0), "{b:?}");
        // Storage that does many at once: nobody waits for anybody.
        let all = [seen(2, 0, 0, 0, 10), seen(3, 0, 0, 0, 10), seen(1, 0, 0, 0, 10)];
        let b = blame(&all, FlowId(1));
        assert!(near(b.service, 0.010) && b.behind.is_empty(), "{b:?}");
    }

    #[test]
    fn the_trace_is_bounded() {
        let mut trace = Trace::new(3);
        for n in 0..10 {
            trace.push(seen(n, 0, 0, 0, 0));
        }
        assert_eq!(trace.all().iter().map(|s| s.request.flow.0).collect::<Vec<_>>(), [7, 8, 9]);
        trace.keep(2);
        assert_eq!(trace.all().iter().map(|s| s.request.flow.0).collect::<Vec<_>>(), [8, 9]);
        trace.keep(0);
        trace.push(seen(1, 0, 0, 0, 0));
        assert!(trace.all().is_empty());
    }
}
