//! What would have been under another scheduler: what the queue saw goes through it again, in virtual time.
//!
//! Programs wait for their I/O: a request that came after so many of its flow's were answered comes after as
//! many here, and as long after the last of them as it did. Programs that were at it to the end of what was seen
//! would have gone on: whoever has nothing left to send goes on with the second half of what it sent (a program
//! starts only once), until all have sent what they did. Each data server serves one request after the other, as fast
//! as it was seen to, and with the way there and back as it was seen without others; a request over several is done
//! when all of them are done with it.

use crate::blame::{Costs, Traced};
use crate::{DispatchQueue, Request, SchedulerConfig, Site};
use forebay_types::{FlowId, Nanos, RequestId};
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
struct Storage<'a> {
    seen: &'a [Traced],
    costs: Costs,
    /// When each server has done what it was given.
    free: [Nanos; 64],
}

impl Storage<'_> {
    /// When requests that go there together now are done.
    fn serve(&mut self, now: Nanos, requests: &[Request]) -> Nanos {
        let mut done = now + Nanos(1);
        for r in requests {
            let i = r.id.0 as usize % self.seen.len();
            for n in self.seen[i].servers.each() {
                self.free[n] = self.free[n].max(now) + self.costs.cost[i];
                done = done.max(self.free[n]);
            }
            done = done.max(now + self.costs.at_rest(i, &self.seen[i]));
        }
        done
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
    let mut storage = Storage { seen, costs: Costs::of(seen), free: [Nanos::ZERO; 64] };
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
            queue.complete(now, &ticket, &[]);
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
    use crate::layout::{Layout, Stripe};
    use forebay_types::{FileId, OpKind, ServerId};

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
        let (servers, done) = (request.server.into(), issued + Nanos::from_millis(1));
        Traced { request, servers, admitted: request.arrival, issued, done }
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
    /// node with servers that take 300 µs and a microsecond for 40 bytes: what the queue saw in four seconds. Each
    /// writes its own file from the beginning, in pieces of 64 KiB over so many servers; to the storage it is up to
    /// `way`, for each request another part of it.
    fn lived(
        spec: &str,
        (slots, servers, way): NodeShape,
        flows: &[(u32, usize, u64, Nanos)],
    ) -> Vec<Traced> {
        let layout = Layout::Stripe(Stripe { size: 65536, count: servers, first: 0 });
        let mut queue = DispatchQueue::new(spec.parse().unwrap(), Site::default());
        let processes: Vec<(u32, u64, Nanos)> =
            flows.iter().flat_map(|(flow, n, len, rest)| vec![(*flow, *len, *rest); *n]).collect();
        // Who sends when; what is done when.
        let mut sends: BinaryHeap<Reverse<(Nanos, usize)>> =
            (0..processes.len()).map(|p| Reverse((Nanos::from_micros(p as u64 * 7), p))).collect();
        let (mut ends, mut way_to, mut whose) = (Vec::new(), Vec::new(), HashMap::new());
        let mut written = vec![0; processes.len()];
        let (mut now, mut free, mut id) = (Nanos::ZERO, [Nanos::ZERO; 64], 0);
        while now < Nanos::from_secs(4) {
            while let Some(Reverse((at, p))) = sends.peek().copied().filter(|Reverse((at, _))| *at <= now) {
                sends.pop();
                id += 1;
                whose.insert(id, p);
                let (flow, len, _) = processes[p];
                let offset = written[p];
                written[p] += len;
                let request = Request {
                    id: RequestId(id),
                    arrival: at,
                    file: FileId(p as u64),
                    len,
                    offset,
                    server: layout.server(offset),
                    ..one(id, flow, 0, 0).request
                };
                queue.enqueue_over(now, request, layout.servers(offset, len));
            }
            let (done, left): (Vec<_>, Vec<_>) = ends.into_iter().partition(|(at, _)| *at <= now);
            ends = left;
            for (_, ticket) in done {
                queue.complete(now, &ticket, &[]);
                for r in ticket.batch.requests() {
                    let p = whose[&r.id.0];
                    // Programs start with a look at something, and take their time then.
                    let first = r.id.0 <= processes.len() as u64;
                    let start = if first { Nanos::from_millis(350) } else { Nanos::ZERO };
                    sends.push(Reverse((now + start + processes[p].2, p)));
                }
            }
            while ends.len() + way_to.len() < slots {
                let Some(ticket) = queue.dispatch(now) else { break };
                let part = ticket.batch.requests()[0].id.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
                way_to.push((now + Nanos(way.0 / 256 * part), ticket));
            }
            way_to.sort_by_key(|(at, _)| *at);
            while way_to.first().is_some_and(|(at, _)| *at <= now) {
                let (at, ticket) = way_to.remove(0);
                let mut done = at;
                for r in ticket.batch.requests() {
                    let over = layout.servers(r.offset, r.len);
                    let bytes = r.len / u64::from(over.count());
                    for n in over.each() {
                        // At rest before, it takes its time for the first.
                        let first = if free[n] == Nanos::ZERO { Nanos::from_millis(15) } else { Nanos::ZERO };
                        free[n] = free[n].max(at) + Nanos::from_micros(300 + bytes / 40) + first;
                        done = done.max(free[n]);
                    }
                }
                ends.push((done, ticket));
            }
            let next = ends.iter().chain(&way_to).map(|(at, _)| *at);
            let next = next.chain(sends.peek().map(|Reverse((at, _))| *at));
            now = next.chain(queue.next_wakeup(now)).filter(|at| *at > now).min().unwrap();
        }
        queue.trace().all()
    }

    fn mean(seen: &[Traced], flow: FlowId) -> f64 {
        let times = seen.iter().filter(|s| s.request.flow == flow);
        let times: Vec<f64> = times.map(|s| s.done.since(s.request.arrival).as_secs_f64()).collect();
        times.iter().sum::<f64>() / times.len() as f64
    }

    /// A node: so many at a time, so many servers, and the way to them.
    type NodeShape = (usize, u32, Nanos);

    /// Asks under one scheduler what would be under the other, of both flows.
    fn holds(was: &str, other: &str, shape: NodeShape, flows: &[(u32, usize, u64, Nanos)]) {
        let (seen, rerun) = (lived(was, shape, flows), lived(other, shape, flows));
        let predicted = replay(&seen, &other.parse().unwrap(), Site::default(), shape.0, &[]);
        for flow in [FlowId(1), FlowId(2)] {
            let (said, is) = (predicted[&flow].mean() * 1e3, mean(&rerun, flow) * 1e3);
            let what =
                format!("{was} to {other}, {shape:?}, {flow:?}: {said:.2} ms predicted, {is:.2} in truth");
            println!("{what}");
            assert!((said / is - 1.0).abs() <= 0.15, "{what}, {flows:?}");
        }
    }

    const FIFO: &str = "fifo:merge=1";
    /// The first of them has one at the storage at a time.
    const FAIR: [&str; 4] = ["sfq:merge=1", "sfq-d:merge=1", "sfq-d-plus:merge=1", "wfq:merge=1"];

    #[test]
    fn a_prediction_is_within_fifteen_per_cent_of_the_rerun() {
        let rest = Nanos::from_micros(150);
        // Of whoever sends a little, and of the one beside it that sends much, without pauses and with them; whichever of
        // the two was there before.
        for flows in [
            [(1, 12, 65536, rest), (2, 2, 4096, rest)],
            [(1, 8, 65536, rest), (2, 1, 65536, Nanos::from_millis(3))],
            [(1, 4, 262_144, rest), (2, 1, 16384, rest)],
        ] {
            for slots in [1, 4] {
                for spec in FAIR {
                    holds(FIFO, spec, (slots, 1, Nanos::ZERO), &flows);
                    holds(spec, FIFO, (slots, 1, Nanos::ZERO), &flows);
                }
            }
        }
    }

    #[test]
    fn so_it_is_over_several_servers() {
        let rest = Nanos::from_micros(150);
        // Over two of them each time, or over all.
        for (large, slots, servers, way) in
            [(131_072, 2, 2, 0), (131_072, 4, 4, 0), (262_144, 4, 4, 0), (131_072, 4, 4, 300)]
        {
            let flows = [(1, 6, large, rest), (2, 1, 16384, rest)];
            let shape = (slots, servers, Nanos::from_micros(way));
            for (i, spec) in FAIR.into_iter().enumerate() {
                holds(FIFO, spec, shape, &flows);
                // One at a time does not show how much of it all is the way.
                if i > 0 || way == 0 {
                    holds(spec, FIFO, shape, &flows);
                }
            }
            // And a small write by itself takes what it takes alone.
            let b = crate::blame::blame(&lived(FIFO, shape, &flows), FlowId(2));
            let own = b.service / b.requests as f64 * 1e3;
            assert!((0.7..0.95).contains(&own), "{own} ms instead of 0.71 and the way: {b:?}");
            assert!(b.behind[&FlowId(1)] > 0.8 * (b.total - b.service), "{b:?}");
        }
    }
}
