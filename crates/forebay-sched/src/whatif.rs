//! What would have been under another scheduler: what the queue saw goes through it again, in virtual time.
//! Requests come when they came and take as long at the storage as they took; what clients would have sent
//! sooner, had they been answered sooner, is not known here.

use crate::blame::Seen;
use crate::{DispatchQueue, Request, SchedulerConfig, Site};
use forebay_types::{FlowId, Nanos, RequestId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

/// How a flow fared.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fared {
    /// Its requests.
    pub requests: u64,
    /// From when no limit held them back to the end, in seconds, summed up.
    pub time: f64,
}

impl Fared {
    /// A request's time, in seconds.
    pub fn mean(&self) -> f64 {
        if self.requests == 0 { 0.0 } else { self.time / self.requests as f64 }
    }
}

/// Serves what was seen again under `config`, so many at a time, with these weights.
pub fn replay(
    seen: &[Seen],
    config: &SchedulerConfig,
    site: Site,
    slots: usize,
    weights: &[(FlowId, u32)],
) -> BTreeMap<FlowId, Fared> {
    let mut arrivals: Vec<Request> = Vec::with_capacity(seen.len());
    let mut service: HashMap<RequestId, Nanos> = HashMap::with_capacity(seen.len());
    for (id, s) in seen.iter().enumerate() {
        let id = RequestId(id as u64);
        arrivals.push(Request { id, arrival: s.admitted, ..s.request });
        service.insert(id, s.done.since(s.issued).max(Nanos(1)));
    }
    arrivals.sort_by_key(|r| (r.arrival, r.id));
    let mut queue = DispatchQueue::new(config.clone(), site);
    for (flow, weight) in weights {
        queue.set_weight(*flow, *weight);
    }
    let mut fared: BTreeMap<FlowId, Fared> = BTreeMap::new();
    let mut running = Vec::new();
    // When which of them is done.
    let mut ends: BinaryHeap<Reverse<(Nanos, usize)>> = BinaryHeap::new();
    let (mut next, mut active) = (0, 0);
    let mut now = arrivals.first().map_or(Nanos::ZERO, |r| r.arrival);
    loop {
        while let Some(Reverse((_, ticket))) = ends.peek().copied().filter(|Reverse((at, _))| *at <= now) {
            ends.pop();
            active -= 1;
            if let Some(ticket) = Option::take(&mut running[ticket]) {
                queue.complete(now, &ticket);
            }
        }
        while let Some(r) = arrivals.get(next).filter(|r| r.arrival <= now) {
            queue.enqueue(now, *r);
            next += 1;
        }
        while active < slots.max(1) {
            let Some(ticket) = queue.dispatch(now) else { break };
            let took = ticket.batch.requests().iter().filter_map(|r| service.get(&r.id)).max();
            let end = now + took.copied().unwrap_or(Nanos(1));
            for r in ticket.batch.requests() {
                let flow = fared.entry(r.flow).or_default();
                flow.requests += 1;
                flow.time += end.since(r.arrival).as_secs_f64();
            }
            ends.push(Reverse((end, running.len())));
            running.push(Some(ticket));
            active += 1;
        }
        let wakeup = queue.next_wakeup(now).filter(|at| *at > now && active < slots && !queue.is_empty());
        let events = [arrivals.get(next).map(|r| r.arrival), ends.peek().map(|Reverse((at, _))| *at), wakeup];
        match events.into_iter().flatten().min() {
            Some(at) => now = at.max(now),
            // Nothing more happens: all is served, or a scheduler waits for what will not come.
            None => return fared,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_types::{FileId, OpKind, ServerId};

    /// Flow 1 sends much at once, flow 2 a little later; each takes 1 ms, one at a time.
    fn crowd() -> Vec<Seen> {
        let one = |id: u64, flow: u32, arrival: u64| {
            let request = Request {
                id: RequestId(id),
                arrival: Nanos::from_millis(arrival),
                file: FileId(flow.into()),
                offset: id << 20,
                len: 65536,
                flow: FlowId(flow),
                server: ServerId(0),
                op: OpKind::Write,
            };
            let issued = Nanos::from_millis(arrival);
            Seen { request, admitted: issued, issued, done: issued + Nanos::from_millis(1) }
        };
        (0..100).map(|i| one(i, 1, 0)).chain((100..110).map(|i| one(i, 2, 5))).collect()
    }

    #[test]
    fn fair_queueing_would_have_helped_whoever_came_late() {
        let replayed = |spec: &str| replay(&crowd(), &spec.parse().unwrap(), Site::default(), 1, &[]);
        let (fifo, fair) = (replayed("fifo:merge=1"), replayed("sfq:merge=1"));
        for all in [&fifo, &fair] {
            assert_eq!((all[&FlowId(1)].requests, all[&FlowId(2)].requests), (100, 10));
        }
        // Behind a hundred: 95 ms and its own; in turns: about 10 of its own and 10 of the other.
        assert!((fifo[&FlowId(2)].mean() - 0.1005).abs() < 0.002, "{fifo:?}");
        assert!(fair[&FlowId(2)].mean() < 0.025, "{fair:?}");
        let total = |all: &BTreeMap<FlowId, Fared>| all.values().map(|f| f.time).sum::<f64>();
        assert!(total(&fair) <= total(&fifo) * 1.001, "a storage serves as much in any order");
        // Every scheduler serves everything, or waits for neighbours and then does.
        for spec in
            ["noop", "hbrr", "aioli", "sjf", "mlf", "sw", "wfq", "twins", "sfq-d", "sfq-d-plus", "capped"]
        {
            let all = replayed(spec);
            assert_eq!(all.values().map(|f| f.requests).sum::<u64>(), 110, "{spec}");
        }
    }
}
