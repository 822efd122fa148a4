//! What would have been under another scheduler: what the queue saw goes through it again, in virtual time.
//!
//! Programs wait for their I/O: a request that came after so many of its flow's were answered comes after as
//! many here, and as long after the last of them as it did. Programs that were at it to the end of what was seen
//! would have gone on: whoever has nothing left to send goes on with the second half of what it sent (a program
//! starts only once), until all have sent what they did. The storage serves one request of a data server after the
//! other, as fast as it was seen to, and none of a size sooner than the soonest of that size.

use crate::blame::{Costs, Traced};
use crate::{DispatchQueue, Request, SchedulerConfig, Site};
use forebay_types::{FlowId, Nanos, RequestId, ServerId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

/// How often what was seen may be sent again, in all.
const MOST_ROUNDS: usize = 50;

/// How a flow fared.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fared {
    /// Its requests, while all were there that were there in truth.
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

/// The storage as it was seen.
struct Storage {
    seen: Costs,
    /// When each server has done what it was given.
    free: HashMap<ServerId, Nanos>,
}

impl Storage {
    /// When requests that go there together now are done.
    fn serve(&mut self, now: Nanos, requests: &[Request]) -> Nanos {
        let cost = requests
            .iter()
            .fold(Nanos::ZERO, |sum, r| sum + self.seen.cost[r.id.0 as usize % self.seen.cost.len()]);
        let floor = requests.iter().map(|r| self.seen.least_often(r)).max();
        let server = requests.first().map_or(ServerId(0), |r| r.server);
        let free = self.free.entry(server).or_default();
        *free = now.max(*free) + cost;
        (*free).max(now + floor.unwrap_or_default()).max(now + Nanos(1))
    }
}

/// One flow's requests, as they come.
#[derive(Default)]
struct Arrivals {
    /// After how many answers each came, how long after the last of them, and which it is; in that order.
    came: Vec<(usize, Nanos, Request)>,
    /// Which comes after the last: in the second half, the first with as many under way as there mostly were.
    again: usize,
    /// How many have come, and how many of them are answered, here.
    sent: usize,
    answered: usize,
    /// When its last request was done, in truth and here.
    last: (Nanos, Nanos),
    /// Whether it was at it to the end.
    lasting: bool,
    /// When each was done and what it took, the first time.
    fared: Vec<(Nanos, f64)>,
}

impl Arrivals {
    /// What comes now that so many are answered, and when. Requests have the numbers of what was seen the first
    /// time, and the same and so many times `seen` later.
    fn next(&mut self, now: Nanos, seen: usize) -> Vec<(Nanos, Request)> {
        let total = self.came.len();
        let mut out = Vec::new();
        while self.lasting || self.sent < total {
            let over = self.sent.saturating_sub(total) / (total - self.again);
            let round = if self.sent < total { 0 } else { 1 + over };
            // How many had come before when these had, the first time, are as many more by now.
            let more = round * (total - self.again);
            let (before, after, request) = self.came[self.sent - more];
            if before + more > self.answered {
                break;
            }
            let id = RequestId((round * seen) as u64 + request.id.0);
            out.push((now + after, Request { id, ..request }));
            self.sent += 1;
        }
        out
    }

    /// Whether all that was seen of it is done here.
    fn over(&self) -> bool {
        self.answered >= self.came.len()
    }
}

/// The flows of what was seen, and the first moment.
fn arrivals(seen: &[Traced]) -> (BTreeMap<FlowId, Arrivals>, Nanos) {
    let mut flows: BTreeMap<FlowId, Arrivals> = BTreeMap::new();
    let mut done: BTreeMap<FlowId, Vec<Nanos>> = BTreeMap::new();
    for s in seen {
        done.entry(s.request.flow).or_default().push(s.done);
    }
    done.values_mut().for_each(|d| d.sort_unstable());
    let begin = seen.iter().map(|s| s.admitted).min().unwrap_or_default();
    let end = seen.iter().map(|s| s.done).max().unwrap_or_default();
    for (id, s) in seen.iter().enumerate() {
        let flow = flows.entry(s.request.flow).or_default();
        let answers = &done[&s.request.flow];
        let before = answers.partition_point(|d| *d <= s.admitted);
        let since = before.checked_sub(1).map_or(begin, |last| answers[last]);
        let request = Request { id: RequestId(id as u64), ..s.request };
        flow.came.push((before, s.admitted.since(since), request));
        flow.last.0 = flow.last.0.max(s.done);
    }
    for (id, flow) in &mut flows {
        flow.came.sort_by_key(|(before, after, r)| (*before, *after, r.id));
        let under_way = |(i, (before, ..)): (usize, &(usize, Nanos, Request))| i + 1 - (*before).min(i);
        let mut mostly: Vec<usize> = flow.came.iter().enumerate().map(under_way).collect();
        mostly.sort_unstable();
        let mostly = mostly[mostly.len() / 2];
        let half = flow.came.len() / 2;
        let full = flow.came.iter().enumerate().skip(half).position(|one| under_way(one) >= mostly);
        flow.again = half + full.unwrap_or(0);
        let pause = done[id].windows(2).map(|d| d[1].since(d[0])).max().unwrap_or_default();
        flow.lasting = flow.last.0 + pause >= end;
    }
    (flows, begin)
}

/// Serves what was seen again under `config`, so many at a time, with these weights.
pub fn replay(
    seen: &[Traced],
    config: &SchedulerConfig,
    site: Site,
    slots: usize,
    weights: &[(FlowId, u32)],
) -> BTreeMap<FlowId, Fared> {
    let (mut flows, mut now) = arrivals(seen);
    let mut storage = Storage { seen: Costs::of(seen), free: HashMap::new() };
    let mut queue = DispatchQueue::new(config.clone(), site);
    for (flow, weight) in weights {
        queue.set_weight(*flow, *weight);
    }
    let mut coming: BinaryHeap<Reverse<(Nanos, RequestId)>> = BinaryHeap::new();
    let mut requests: HashMap<RequestId, Request> = HashMap::with_capacity(seen.len());
    for flow in flows.values_mut() {
        for (at, request) in flow.next(now, seen.len()) {
            coming.push(Reverse((at, request.id)));
            requests.insert(request.id, request);
        }
    }
    let mut running = Vec::new();
    // When which of them is done.
    let mut ends: BinaryHeap<Reverse<(Nanos, usize)>> = BinaryHeap::new();
    let mut active = 0;
    loop {
        while let Some(Reverse((_, ticket))) = ends.peek().copied().filter(|Reverse((at, _))| *at <= now) {
            ends.pop();
            active -= 1;
            let Some(ticket) = Option::take(&mut running[ticket]) else { continue };
            queue.complete(now, &ticket);
            for r in ticket.batch.requests() {
                let Some(flow) = flows.get_mut(&r.flow) else { continue };
                if (r.id.0 as usize) < seen.len() {
                    flow.fared.push((now, now.since(r.arrival).as_secs_f64()));
                    flow.last.1 = now;
                }
                flow.answered += 1;
                for (at, request) in flow.next(now, seen.len()) {
                    coming.push(Reverse((at, request.id)));
                    requests.insert(request.id, request);
                }
            }
        }
        if flows.values().all(Arrivals::over) || running.len() > MOST_ROUNDS * seen.len() {
            return fared(&flows);
        }
        while let Some(Reverse((at, id))) = coming.peek().copied().filter(|Reverse((at, _))| *at <= now) {
            coming.pop();
            if let Some(request) = requests.remove(&id) {
                queue.enqueue(now, Request { arrival: at, ..request });
            }
        }
        while active < slots.max(1) {
            let Some(ticket) = queue.dispatch(now) else { break };
            ends.push(Reverse((storage.serve(now, ticket.batch.requests()), running.len())));
            running.push(Some(ticket));
            active += 1;
        }
        let wakeup = queue.next_wakeup(now).filter(|at| *at > now && active < slots && !queue.is_empty());
        let next =
            [coming.peek().map(|Reverse((at, _))| *at), ends.peek().map(|Reverse((at, _))| *at), wakeup];
        match next.into_iter().flatten().min() {
            Some(at) => now = at.max(now),
            // Nothing more happens: all is served, or a scheduler waits for what will not come.
            None => return fared(&flows),
        }
    }
}

/// How each fared while those were still there that had outlived it.
fn fared(flows: &BTreeMap<FlowId, Arrivals>) -> BTreeMap<FlowId, Fared> {
    let one = |(id, flow): (&FlowId, &Arrivals)| {
        let outlived = |f: &Arrivals| !f.lasting && f.last.0 >= flow.last.0;
        let others = flows.iter().filter(|(other, f)| *other != id && outlived(f));
        let until = others.map(|(_, f)| f.last.1).min().unwrap_or(flow.last.1);
        let counted = || flow.fared.iter().filter(|(at, _)| *at <= until);
        let all = if counted().count() == 0 { flow.last.1 } else { until };
        let times = flow.fared.iter().filter(|(at, _)| *at <= all).map(|(_, time)| time);
        (*id, Fared { requests: times.clone().count() as u64, time: times.sum() })
    };
    flows.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_types::{FileId, OpKind};

    fn one(id: u64, flow: u32, arrival: u64, issued: u64) -> Traced {
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
        let issued = Nanos::from_millis(issued);
        Traced { request, admitted: request.arrival, issued, done: issued + Nanos::from_millis(1) }
    }

    /// Flow 1 sends much at once, flow 2 a little later; each takes 1 ms, one at a time, in order.
    fn crowd() -> Vec<Traced> {
        let first = (0..100).map(|i| one(i, 1, 0, i));
        first.chain((100..110).map(|i| one(i, 2, 5, i))).collect()
    }

    fn replayed(seen: &[Traced], spec: &str) -> BTreeMap<FlowId, Fared> {
        replay(seen, &spec.parse().unwrap(), Site::default(), 1, &[])
    }

    #[test]
    fn fair_queueing_would_have_helped_whoever_came_late() {
        let (fifo, fair) = (replayed(&crowd(), "fifo:merge=1"), replayed(&crowd(), "sfq:merge=1"));
        assert_eq!((fifo[&FlowId(1)].requests, fifo[&FlowId(2)].requests), (100, 10));
        // Behind a hundred: 95 ms and its own; in turns: about 10 of its own and 10 of the other.
        assert!((fifo[&FlowId(2)].mean() - 0.1005).abs() < 0.002, "{fifo:?}");
        assert!(fair[&FlowId(2)].mean() < 0.025, "{fair:?}");
        assert_eq!(fair[&FlowId(2)].requests, 10);
        // Every scheduler serves everything, or waits for neighbours and then does.
        for spec in
            ["noop", "hbrr", "aioli", "sjf", "mlf", "sw", "wfq", "twins", "sfq-d", "sfq-d-plus", "capped"]
        {
            assert_eq!(replayed(&crowd(), spec)[&FlowId(2)].requests, 10, "{spec}");
        }
    }

    #[test]
    fn who_is_answered_sooner_asks_sooner() {
        // Flow 1 has four under way all the time, flow 2 one: it waits for all four, every time.
        let came = |n: u64| if n < 5 { 0 } else { n - 4 };
        let seen: Vec<Traced> =
            (0..250).map(|n| one(n, if n % 5 == 4 { 2 } else { 1 }, came(n), n)).collect();
        let (fifo, fair) = (replayed(&seen, "fifo:merge=1"), replayed(&seen, "sfq:merge=1"));
        assert!((fifo[&FlowId(2)].mean() - 0.005).abs() < 0.0005, "{fifo:?}");
        // In turns: one of the other's, then its own.
        assert!((fair[&FlowId(2)].mean() - 0.002).abs() < 0.0005, "{fair:?}");
        // Whoever has four under way waits the longer for each, while the other is there.
        assert!((fair[&FlowId(1)].mean() - 0.008).abs() < 0.001, "{fair:?}");
    }
    /// Processes that wait for every answer (flow, how many, bytes, and what they do between two requests) on a
    /// node whose only server takes 300 µs and a microsecond for 40 bytes: what the queue saw in four seconds.
    fn lived(spec: &str, slots: usize, flows: &[(u32, usize, u64, Nanos)]) -> Vec<Traced> {
        let mut queue = DispatchQueue::new(spec.parse().unwrap(), Site::default());
        let processes: Vec<(u32, u64, Nanos)> =
            flows.iter().flat_map(|(flow, n, len, rest)| vec![(*flow, *len, *rest); *n]).collect();
        // Who sends when; what is done when.
        let mut sends: BinaryHeap<Reverse<(Nanos, usize)>> =
            (0..processes.len()).map(|p| Reverse((Nanos::from_micros(p as u64 * 7), p))).collect();
        let (mut ends, mut whose) = (Vec::new(), HashMap::new());
        let (mut now, mut free, mut id) = (Nanos::ZERO, Nanos::ZERO, 0);
        while now < Nanos::from_secs(4) {
            while let Some(Reverse((at, p))) = sends.peek().copied().filter(|Reverse((at, _))| *at <= now) {
                sends.pop();
                id += 1;
                whose.insert(id, p);
                let (flow, len, _) = processes[p];
                let request = Request {
                    id: RequestId(id),
                    arrival: at,
                    len,
                    offset: id << 20,
                    ..one(id, flow, 0, 0).request
                };
                queue.enqueue(now, request);
            }
            let (done, left): (Vec<_>, Vec<_>) = ends.into_iter().partition(|(at, _)| *at <= now);
            ends = left;
            for (_, ticket) in done {
                queue.complete(now, &ticket);
                for r in ticket.batch.requests() {
                    let p = whose[&r.id.0];
                    // Programs start with a look at something, and take their time then.
                    let first = r.id.0 <= processes.len() as u64;
                    let start = if first { Nanos::from_millis(350) } else { Nanos::ZERO };
                    sends.push(Reverse((now + start + processes[p].2, p)));
                }
            }
            while ends.len() < slots {
                let Some(ticket) = queue.dispatch(now) else { break };
                let bytes: u64 = ticket.batch.requests().iter().map(|r| r.len).sum();
                // At rest before, it takes its time for the first.
                let first = if free == Nanos::ZERO { Nanos::from_millis(15) } else { Nanos::ZERO };
                free = free.max(now) + Nanos::from_micros(300 + bytes / 40) + first;
                ends.push((free, ticket));
            }
            let next = ends.iter().map(|(at, _)| *at).chain(sends.peek().map(|Reverse((at, _))| *at));
            now = next.chain(queue.next_wakeup(now)).filter(|at| *at > now).min().unwrap();
        }
        queue.trace().all()
    }

    #[test]
    fn a_prediction_is_within_fifteen_per_cent_of_the_rerun() {
        let mean = |seen: &[Traced], flow: FlowId| {
            let times = seen.iter().filter(|s| s.request.flow == flow);
            let times: Vec<f64> = times.map(|s| s.done.since(s.request.arrival).as_secs_f64()).collect();
            times.iter().sum::<f64>() / times.len() as f64
        };
        let rest = Nanos::from_micros(150);
        // Of whoever sends a little, and of the one beside it that sends much, without pauses and with them; whichever of
        // the two was there before.
        for flows in [
            [(1, 12, 65536, rest), (2, 2, 4096, rest)],
            [(1, 8, 65536, rest), (2, 1, 65536, Nanos::from_millis(3))],
            [(1, 4, 262_144, rest), (2, 1, 16384, rest)],
        ] {
            for slots in [1, 4] {
                let fifo = "fifo:merge=1";
                for spec in ["sfq:merge=1", "sfq-d:merge=1", "sfq-d-plus:merge=1", "wfq:merge=1"] {
                    for (was, other) in [(fifo, spec), (spec, fifo)] {
                        let seen = lived(was, slots, &flows);
                        let predicted = replay(&seen, &other.parse().unwrap(), Site::default(), slots, &[]);
                        let rerun = lived(other, slots, &flows);
                        for flow in [FlowId(1), FlowId(2)] {
                            let (predicted, truth) = (predicted[&flow].mean(), mean(&rerun, flow));
                            let off = predicted / truth - 1.0;
                            let (said, is) = (predicted * 1e3, truth * 1e3);
                            println!(
                                "{was} to {other}, {slots} at a time, {flow:?}: {said:.2} ms predicted, {is:.2} in truth"
                            );
                            assert!(
                                off.abs() <= 0.15,
                                "{was} to {other}, {slots}, {flow:?}, {flows:?}: off by {off:+.3}"
                            );
                        }
                    }
                }
            }
        }
    }
}
