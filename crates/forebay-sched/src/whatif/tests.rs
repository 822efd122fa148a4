//! Predictions against reruns, in virtual time.

use super::*;
use crate::emulate::{Emulated, ServerModel, StorageModel};
use crate::layout::{Layout, Stripe};
use forebay_types::{FileId, NodeId, OpKind, ServerId};

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
    for spec in ["noop", "hbrr", "aioli", "sjf", "mlf", "sw", "wfq", "twins", "sfq-d", "sfq-d-plus", "capped"]
    {
        assert_eq!(replayed(&crowd(), spec)[&FlowId(2)].requests, 10, "{spec}");
    }
}

#[test]
fn who_is_answered_sooner_asks_sooner() {
    // Flow 1 has four under way all the time, flow 2 one: it waits for all four, every time.
    let came = |n: u64| if n < 5 { 0 } else { n - 4 };
    let seen: Vec<Traced> = (0..250).map(|n| one(n, if n % 5 == 4 { 2 } else { 1 }, came(n), n)).collect();
    let (fifo, fair) = (replayed(&seen, "fifo:merge=1"), replayed(&seen, "sfq:merge=1"));
    assert!((fifo[&FlowId(2)].mean() - 0.005).abs() < 0.0005, "{fifo:?}");
    // In turns: one of the other's, then its own.
    assert!((fair[&FlowId(2)].mean() - 0.002).abs() < 0.0005, "{fair:?}");
    // Whoever has four under way waits the longer for each, while the other is there.
    assert!((fair[&FlowId(1)].mean() - 0.008).abs() < 0.001, "{fair:?}");
}
/// Processes that wait for every answer: flow, how many, bytes, and what they do between two requests.
type Flows = [(u32, usize, u64, Nanos)];

/// Servers that take 300 µs and a microsecond for 40 bytes, and longer for the first after a rest.
fn plain(layout: Layout) -> impl FnMut(Nanos, &Request) -> Nanos {
    let mut free = [Nanos::ZERO; 64];
    move |at, r| {
        let over = layout.servers(r.offset, r.len);
        let bytes = r.len / u64::from(over.count());
        let mut done = at;
        for n in over.each() {
            // At rest before, it takes its time for the first.
            let first = if free[n] == Nanos::ZERO { Nanos::from_millis(15) } else { Nanos::ZERO };
            free[n] = free[n].max(at) + Nanos::from_micros(300 + bytes / 40) + first;
            done = done.max(free[n]);
        }
        done
    }
}

/// What the queue of a node saw in four seconds. Each process writes its own file from the beginning, in pieces of
/// 64 KiB over so many servers; to the storage it is up to `way`, for each request another part of it.
fn lived(spec: &str, (slots, servers, way): Ground, flows: &Flows) -> Vec<Traced> {
    let layout = Layout::Stripe(Stripe { size: 65536, count: servers, first: 0 });
    lived_with(spec, slots, layout.clone(), way, flows, plain(layout))
}

/// The same with a storage that says when a request that goes there then is done.
fn lived_with(
    spec: &str,
    slots: usize,
    layout: Layout,
    way: Nanos,
    flows: &Flows,
    mut storage: impl FnMut(Nanos, &Request) -> Nanos,
) -> Vec<Traced> {
    let mut queue = DispatchQueue::new(spec.parse().unwrap(), Site::default());
    let processes: Vec<(u32, u64, Nanos)> =
        flows.iter().flat_map(|(flow, n, len, rest)| vec![(*flow, *len, *rest); *n]).collect();
    // Who sends when; what is done when.
    let mut sends: BinaryHeap<Reverse<(Nanos, usize)>> =
        (0..processes.len()).map(|p| Reverse((Nanos::from_micros(p as u64 * 7), p))).collect();
    let (mut ends, mut way_to, mut whose) = (Vec::new(), Vec::new(), HashMap::new());
    let mut written = vec![0; processes.len()];
    let (mut now, mut id) = (Nanos::ZERO, 0);
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
            let done = ticket.batch.requests().iter().map(|r| storage(at, r)).max();
            ends.push((done.unwrap_or(at), ticket));
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
type Ground = (usize, u32, Nanos);

/// Asks under one scheduler what would be under the other, of both flows.
fn holds(was: &str, other: &str, ground: Ground, flows: &Flows) {
    let (seen, rerun) = (lived(was, ground, flows), lived(other, ground, flows));
    let predicted = replay(&seen, &other.parse().unwrap(), Site::default(), ground.0, &[]);
    for flow in [FlowId(1), FlowId(2)] {
        let (said, is) = (predicted[&flow].mean() * 1e3, mean(&rerun, flow) * 1e3);
        let what =
            format!("{was} to {other}, {ground:?}, {flow:?}: {said:.2} ms predicted, {is:.2} in truth");
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
        let ground = (slots, servers, Nanos::from_micros(way));
        for (i, spec) in FAIR.into_iter().enumerate() {
            holds(FIFO, spec, ground, &flows);
            // One at a time does not show how much of it all is the way.
            if i > 0 || way == 0 {
                holds(spec, FIFO, ground, &flows);
            }
        }
        // And a small write by itself takes what it takes alone.
        let b = crate::blame::blame(&lived(FIFO, ground, &flows), FlowId(2));
        let own = b.service / b.requests as f64 * 1e3;
        assert!((0.7..0.95).contains(&own), "{own} ms instead of 0.71 and the way: {b:?}");
        assert!(b.behind[&FlowId(1)] > 0.8 * (b.total - b.service), "{b:?}");
    }
}

/// Over four servers of the model that nodes emulate, with seeks and time on the way, as `forebay blame` says it: what it
/// was in truth, times what the two schedulers make of it.
#[test]
fn so_it_is_with_seeks_and_time_on_the_way() {
    const SHORT: &str = "sjf:merge=1";
    const TWO: &str = "sfq-d:depth=2,merge=1";
    let rest = Nanos::from_micros(150);
    let layout = Layout::Stripe(Stripe { size: 65536, count: 4, first: 0 });
    for (bandwidth, seek, way, large, small, processes) in [
        (50_000_000, 2000, 200, 262_144, 16384, 4),
        (50_000_000, 0, 200, 262_144, 16384, 4),
        (50_000_000, 0, 200, 1 << 20, 4096, 4),
        (200_000_000, 2000, 200, 1 << 20, 4096, 4),
        (200_000_000, 0, 0, 262_144, 16384, 4),
        (200_000_000, 0, 0, 65536, 4096, 8),
        (200_000_000, 0, 300, 262_144, 16384, 4),
        (200_000_000, 0, 300, 65536, 4096, 8),
    ] {
        let flows = [(1, processes, large, rest), (2, 1, small, rest)];
        let (seek, latency) = (Nanos::from_micros(seek), Nanos::from_micros(way));
        let server = ServerModel { bandwidth, seek, latency, ..ServerModel::default() };
        let live = |spec: &str| {
            let mut model = Emulated::new(StorageModel { servers: 4, stripe: 65536, server });
            lived_with(spec, 4, layout.clone(), Nanos::ZERO, &flows, move |at, r| {
                model.submit(at, NodeId(0), r.op, r.file, r.offset, r.len)
            })
        };
        let mut cases = vec![(FIFO, FAIR[0]), (FIFO, SHORT), (FIFO, TWO)];
        // Not from SJF with small requests and time on the way: the victim is foreseen 15.6 % too fast (docs/STEER.md).
        if way == 0 || large > 65536 {
            cases.push((SHORT, FIFO));
        }
        // One at a time does not show how much of it all is the way.
        if way == 0 {
            cases.push((FAIR[0], FIFO));
        }
        for (was, other) in cases {
            let (seen, rerun) = (live(was), live(other));
            let under = |spec: &str| replay(&seen, &spec.parse().unwrap(), Site::default(), 4, &[]);
            let (now, then) = (under(was), under(other));
            for flow in [FlowId(1), FlowId(2)] {
                let said = mean(&seen, flow) * then[&flow].mean() / now[&flow].mean() * 1e3;
                let is = mean(&rerun, flow) * 1e3;
                let what = format!("{was} to {other}, {flow:?} of {flows:?} on {server:?}");
                println!("{said:6.2} ms foreseen, {is:6.2} in truth: {what}");
                assert!((said / is - 1.0).abs() <= 0.15, "{said:.2} foreseen, {is:.2} in truth: {what}");
            }
        }
    }
}
