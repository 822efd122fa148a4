//! What is foreseen against what then is, in virtual time.

use super::*;
use crate::blame::Origin;
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
    Traced { request, client: ClientId(0), servers, admitted: request.arrival, issued, done }
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
/// Processes that wait for every answer (flow, how many, bytes, and what they do between two requests) on a
/// node with servers that take 300 µs and a microsecond for 40 bytes: what the queue saw in four seconds. Each
/// writes its own file from the beginning, in pieces of 64 KiB over so many servers; to the storage it is up to
/// `way`, for each request another part of it.
fn lived(spec: &str, (slots, servers, way): NodeShape, flows: &[(u32, usize, u64, Nanos)]) -> Vec<Traced> {
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
            let servers = layout.servers(offset, len);
            queue.enqueue_from(now, request, Origin { client: ClientId(p as u64), servers });
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

/// What a flow's requests took each in `rerun`, if every process had sent as many as in `seen`.
fn mean(seen: &[Traced], rerun: &[Traced], flow: FlowId) -> f64 {
    let mut times: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for s in rerun.iter().filter(|s| s.request.flow == flow) {
        times.entry(s.client.0).or_default().push(s.done.since(s.request.arrival).as_secs_f64());
    }
    let each: BTreeMap<u64, f64> =
        times.iter().map(|(p, t)| (*p, t.iter().sum::<f64>() / t.len() as f64)).collect();
    let all: Vec<f64> = seen.iter().filter(|s| s.request.flow == flow).map(|s| each[&s.client.0]).collect();
    all.iter().sum::<f64>() / all.len() as f64
}

/// A node: so many at a time, so many servers, and the way to them.
type NodeShape = (usize, u32, Nanos);

/// Asks under one scheduler what would be under the other, of both flows.
fn holds(was: &str, other: &str, shape: NodeShape, flows: &[(u32, usize, u64, Nanos)]) {
    let (seen, rerun) = (lived(was, shape, flows), lived(other, shape, flows));
    let predicted = replay(&seen, &other.parse().unwrap(), Site::default(), shape.0, &[]);
    for flow in [FlowId(1), FlowId(2)] {
        let (said, is) = (predicted[&flow].mean() * 1e3, mean(&seen, &rerun, flow) * 1e3);
        let what = format!("{was} to {other}, {shape:?}, {flow:?}: {said:.2} ms predicted, {is:.2} in truth");
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
fn processes_of_a_job_need_not_be_alike() {
    let (rest, long) = (Nanos::from_micros(150), Nanos::from_millis(40));
    for flows in [
        // One that writes a lot beside many that look in now and then, against a few small ones.
        vec![(1, 2, 262_144, rest), (1, 10, 4096, long), (2, 2, 16384, rest)],
        // The other way round, and all of three kinds.
        vec![(1, 12, 65536, rest), (2, 1, 262_144, Nanos::from_millis(5)), (2, 6, 4096, long)],
        vec![
            (1, 3, 4096, Nanos::from_micros(10)),
            (1, 3, 131_072, long),
            (2, 1, 65536, rest),
            (2, 5, 8192, long),
        ],
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
