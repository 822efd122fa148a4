//! The law of each algorithm, on random requests and against what its authors promise.

mod common;
#[path = "common/machine.rs"]
mod machine;

use common::{SERVERS, request, rng, scheduler};
use forebay_sched::aggregate::Limits;
use forebay_sched::sfq_plus::{SfqPlus, SfqPlusConfig};
use forebay_sched::twins::{Twins, TwinsConfig};
use forebay_sched::{Batch, Request, Scheduler, Site};
use forebay_types::{FileId, FlowId, Nanos, OpKind, RequestId, ServerId};
use machine::{Machine, random};
use proptest::prelude::*;
use rand::Rng;
use std::collections::{HashMap, VecDeque};

const T: Nanos = Nanos::from_secs(1);

/// Everything, in the order it leaves when every batch completes at once.
fn outcome(s: &mut dyn Scheduler, now: Nanos) -> Vec<Batch> {
    std::iter::from_fn(|| {
        let b = s.dispatch(now)?;
        s.complete(now, &b);
        Some(b)
    })
    .collect()
}

fn ids(batches: &[Batch]) -> Vec<u64> {
    batches.iter().flat_map(|b| b.requests()).map(|r| r.id.0).collect()
}

#[test]
fn noop_and_unmerged_fifo_serve_in_order_of_arrival() {
    for name in ["noop", "fifo:merge=1"] {
        let (mut s, mut rng) = (scheduler(name), rng(1));
        for id in 0..1000 {
            s.enqueue(T, random(&mut rng, id, T));
        }
        assert_eq!(ids(&outcome(&mut *s, T)), (0..1000).collect::<Vec<_>>());
    }
}

#[test]
fn merging_fifo_always_serves_the_oldest() {
    let (mut s, mut rng) = (scheduler("fifo"), rng(2));
    let mut waiting: VecDeque<u64> = (0..2000).collect();
    for id in 0..2000 {
        s.enqueue(T, random(&mut rng, id, T));
    }
    for b in outcome(&mut *s, T) {
        assert!(b.requests().iter().any(|r| r.id.0 == waiting[0]));
        waiting.retain(|id| b.requests().iter().all(|r| r.id.0 != *id));
    }
    assert!(waiting.is_empty());
}

#[test]
fn a_strided_burst_becomes_one_write() {
    let mut s = scheduler("fifo");
    for (id, rank) in [5u64, 2, 7, 0, 3, 6, 1, 4].into_iter().enumerate() {
        let r = Request { offset: rank * 32768, len: 32768, op: OpKind::Write, ..request(id as u64) };
        s.enqueue(T, r);
    }
    let out = outcome(&mut *s, T);
    assert_eq!(out.len(), 1);
    assert_eq!((out[0].offset(), out[0].span(), out[0].requests().len()), (0, 8 * 32768, 8));
}

#[test]
fn sieving_joins_reads_over_small_holes_and_never_writes() {
    for (op, batches) in [(OpKind::Read, 2), (OpKind::Write, 4)] {
        let mut s = scheduler("fifo:sieve=1KiB");
        for (id, offset) in [0u64, 2048, 4096, 16384].into_iter().enumerate() {
            s.enqueue(T, Request { offset, len: 1024, op, ..request(id as u64) });
        }
        let out = outcome(&mut *s, T);
        assert_eq!(out.len(), batches, "{op:?}");
        assert_eq!(out[0].span() - out[0].bytes(), if op == OpKind::Read { 2048 } else { 0 });
    }
}

#[test]
fn hbrr_gives_no_queue_more_than_its_quantum_in_a_row() {
    for (name, quantum) in [("hbrr:quantum=3", 3), ("hbrr:quantum=8,merge=1", 8)] {
        let (mut s, mut rng) = (scheduler(name), rng(3));
        let mut left: HashMap<(FileId, OpKind), usize> = HashMap::new();
        for id in 0..3000 {
            let r = random(&mut rng, id, T);
            *left.entry((r.file, r.op)).or_default() += 1;
            s.enqueue(T, r);
        }
        let (mut last, mut row) = (None, 0);
        for b in outcome(&mut *s, T) {
            let key = (b.file(), b.op());
            let others = left.iter().any(|(k, n)| *k != key && *n > 0);
            row = if last == Some(key) { row + b.requests().len() } else { b.requests().len() };
            assert!(row <= quantum || !others, "{name}: {row} in a row");
            last = Some(key);
            *left.get_mut(&key).unwrap() -= b.requests().len();
        }
    }
}

#[test]
fn sjf_serves_the_shortest_queue_but_for_one_dispatch_in_patience() {
    let (mut s, mut rng) = (scheduler("sjf:patience=10,merge=1"), rng(4));
    let mut queues: HashMap<(FileId, OpKind), Vec<Request>> = HashMap::new();
    for id in 0..2000 {
        let r = random(&mut rng, id, T);
        queues.entry((r.file, r.op)).or_default().push(r);
        s.enqueue(T, r);
    }
    let cost = |q: &Vec<Request>| q.iter().map(|r| r.cost(10_000)).sum::<u64>();
    for n in 1.. {
        let Some(b) = s.dispatch(T) else { break };
        let key = (b.file(), b.op());
        let shortest = queues.values().map(cost).min().unwrap();
        assert!(n % 10 == 0 || cost(&queues[&key]) == shortest, "dispatch {n}");
        let queue = queues.get_mut(&key).unwrap();
        queue.retain(|r| r.id != b.requests()[0].id);
        if queue.is_empty() {
            queues.remove(&key);
        }
    }
    assert!(queues.is_empty());
}

#[test]
fn offset_order_within_a_file_under_sjf_and_aioli() {
    for name in ["sjf", "aioli"] {
        let (mut s, mut rng) = (scheduler(name), rng(5));
        for id in 0..500 {
            s.enqueue(T, Request { offset: rng.random_range(0..1 << 30), len: 512, ..request(id) });
        }
        let out = outcome(&mut *s, T);
        let offsets: Vec<u64> = out.iter().flat_map(|b| b.requests()).map(|r| r.offset).collect();
        // A sweep covers 256 requests, the first one fewer: it began with the first arrival.
        let falls = offsets.windows(2).filter(|w| w[1] < w[0]).count();
        assert!(offsets.len() == 500 && falls <= 2, "{name}: {falls} turns back");
    }
}

#[test]
fn mlf_makes_a_request_wait_one_turn_for_every_doubling() {
    let mut s = scheduler("mlf:quantum=8KiB,merge=1");
    // A file with one large request against files of small ones.
    s.enqueue(T, Request { len: 64 << 10, ..request(0) });
    for id in 1..=20 {
        s.enqueue(T, Request { file: FileId(1), offset: id * 8192, len: 8192, ..request(id) });
    }
    // 8, 16, 32, 64 KiB: it goes at its fourth turn, after three turns of the other file.
    assert_eq!(ids(&outcome(&mut *s, T))[..5], [1, 2, 3, 0, 4]);
}

#[test]
fn sw_sorts_by_window_then_application_then_arrival() {
    let (mut s, mut rng) = (scheduler("sw:window=1ms,merge=1"), rng(6));
    let mut all = Vec::new();
    for id in 0..3000 {
        let at = T + Nanos(id * 7_000);
        let r = random(&mut rng, id, at);
        s.enqueue(at, r);
        all.push(r);
    }
    all.sort_by_key(|r| (r.arrival.0 / 1_000_000, r.flow, r.arrival));
    assert_eq!(ids(&outcome(&mut *s, T)), all.iter().map(|r| r.id.0).collect::<Vec<_>>());
}

/// Serves `n` requests of always backlogged flows and checks the difference in service by weight.
fn fair_share(name: &str, weights: &[u32], slack: impl Fn(usize, usize, &[u64]) -> f64, seed: u64) {
    let (mut s, mut rng) = (scheduler(name), rng(seed));
    let largest: Vec<u64> = weights.iter().map(|_| 1 << rng.random_range(9..22)).collect();
    let (mut id, mut served) = (0, vec![0u64; weights.len()]);
    let draw = |flow: usize, id: u64, rng: &mut rand::rngs::StdRng| Request {
        file: FileId(flow as u64),
        flow: FlowId(flow as u32),
        offset: id << 22,
        len: rng.random_range(1..=largest[flow]),
        op: if rng.random_bool(0.5) { OpKind::Read } else { OpKind::Write },
        ..request(id)
    };
    for (flow, w) in weights.iter().enumerate() {
        s.set_weight(FlowId(flow as u32), *w);
        for _ in 0..40 {
            s.enqueue(T, draw(flow, id, &mut rng));
            id += 1;
        }
    }
    let largest = largest.clone();
    for _ in 0..4000 {
        let b = s.dispatch(T).unwrap();
        s.complete(T, &b);
        for r in b.requests() {
            let flow = r.flow.0 as usize;
            served[flow] += r.len;
            s.enqueue(T, draw(flow, id, &mut rng));
            id += 1;
        }
        for i in 0..weights.len() {
            for j in 0..i {
                let share = |k: usize| served[k] as f64 / f64::from(weights[k]);
                let bound = slack(i, j, &largest);
                let apart = (share(i) - share(j)).abs();
                assert!(
                    apart <= bound,
                    "{name} {weights:?}: flows {i} and {j} are {apart} apart, {bound} allowed"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Goyal's bound: c_i/w_i + c_j/w_j, plus rounding of the tags.
    #[test]
    fn sfq_keeps_backlogged_flows_within_its_bound(weights in prop::collection::vec(1u32..9, 2..5), seed in 0u64..1000) {
        for name in ["sfq:merge=1", "sfq-d:depth=4,merge=1"] {
            let bound = |i: usize, j: usize, c: &[u64]| {
                c[i] as f64 / f64::from(weights[i]) + c[j] as f64 / f64::from(weights[j]) + 64.0
            };
            fair_share(name, &weights, bound, seed);
        }
    }

    /// Deficit round robin: a turn's credit and the largest request of each.
    #[test]
    fn wfq_keeps_backlogged_flows_within_its_bound(weights in prop::collection::vec(1u32..9, 2..5), seed in 0u64..1000) {
        let quantum = 65_536.0;
        let bound = |i: usize, j: usize, c: &[u64]| {
            quantum + c[i] as f64 / f64::from(weights[i]) + c[j] as f64 / f64::from(weights[j])
        };
        fair_share("wfq:quantum=64KiB,merge=1", &weights, bound, seed);
    }
}

#[test]
fn an_idle_flow_forfeits() {
    let mut s = scheduler("sfq:merge=1");
    for id in 0..100 {
        s.enqueue(T, Request { offset: id << 20, ..request(id) });
    }
    for _ in 0..50 {
        let b = s.dispatch(T).unwrap();
        s.complete(T, &b);
    }
    // Flow 1 comes late: from now on it takes turns, and gets nothing for the time it was away.
    for id in 100..200 {
        s.enqueue(T, Request { flow: FlowId(1), offset: id << 20, ..request(id) });
    }
    let flows: Vec<u32> = outcome(&mut *s, T)[..40].iter().map(|b| b.requests()[0].flow.0).collect();
    assert_eq!(flows.iter().filter(|f| **f == 1).count(), 20);
}

#[test]
fn metadata_is_shared_by_weight_at_a_constant_cost() {
    for name in ["sfq", "sfq-d", "sfq-d-plus", "wfq:quantum=10KB"] {
        let mut s = scheduler(name);
        s.set_weight(FlowId(0), 2);
        for id in 0..3000u64 {
            s.enqueue(
                T,
                Request { flow: FlowId((id % 2) as u32), op: OpKind::Metadata, len: 0, ..request(id) },
            );
        }
        let first: Vec<Batch> = outcome(&mut *s, T).into_iter().take(1500).collect();
        let of = |f: u32| first.iter().filter(|b| b.requests()[0].flow.0 == f).count() as f64;
        let jain = forebay_sched::service::jain([of(0) / 2.0, of(1)]);
        assert!(jain > 0.9999, "{name}: {} to {}", of(0), of(1));
    }
}

#[test]
fn twins_serves_one_server_per_window_and_no_two_nodes_the_same() {
    let window = Nanos::from_micros(250);
    for nodes in 1..=SERVERS {
        let site = |node| Site { node, servers: SERVERS };
        let config = TwinsConfig { window };
        let mut all: Vec<Twins> =
            (0..nodes).map(|n| Twins::new(&config, Limits::default(), site(n))).collect();
        let mut rng = rng(8);
        for id in 0..40_000 {
            let r = random(&mut rng, id, T);
            if r.op != OpKind::Metadata {
                all[(id % u64::from(nodes)) as usize].enqueue(T, r);
            }
        }
        let mut now = T;
        let mut served = 0;
        while all.iter().any(|s| !s.is_empty()) {
            let mut busy: Vec<ServerId> = Vec::new();
            for s in &mut all {
                let mine = s.server_at(now);
                assert!(!busy.contains(&mine), "two nodes on one server");
                busy.push(mine);
                for _ in 0..3 {
                    let Some(b) = s.dispatch(now) else { break };
                    assert!(b.requests().iter().all(|r| r.server == mine));
                    served += b.requests().len();
                }
            }
            now = now + Nanos(window.0 / 5 + 1);
        }
        assert!(served > 30_000);
    }
}

#[test]
fn twins_waits_on_an_empty_queue_and_says_until_when() {
    let mut s =
        Twins::new(&TwinsConfig { window: Nanos(1000) }, Limits::default(), Site { node: 1, servers: 4 });
    s.enqueue(Nanos(8_000), Request { server: ServerId(0), ..request(1) });
    // Window 8 is server 1's here; server 0's comes with window 11.
    assert_eq!(s.server_at(Nanos(8_000)), ServerId(1));
    assert_eq!((s.dispatch(Nanos(8_000)), s.next_wakeup(Nanos(8_000))), (None, Some(Nanos(11_000))));
    s.enqueue(Nanos(8_500), Request { op: OpKind::Metadata, len: 0, ..request(2) });
    assert_eq!(s.dispatch(Nanos(8_500)).unwrap().requests()[0].id, RequestId(2), "metadata needs no window");
    assert_eq!(s.dispatch(Nanos(10_999)), None);
    assert_eq!(s.dispatch(Nanos(11_000)).unwrap().requests()[0].id, RequestId(1));
    assert_eq!(s.next_wakeup(Nanos(11_000)), None);
}

#[test]
fn sfq_d_never_has_more_than_depth_outstanding() {
    let mut rng = rng(9);
    let mut machine = Machine::new(scheduler("sfq-d:depth=5"), 64);
    let mut seen = |_: Nanos, _: &Batch| {};
    for id in 0..5000 {
        machine.enqueue(random(&mut rng, id, machine.now), &mut seen);
        assert!(machine.outstanding() <= 5);
        assert!(machine.outstanding() == 5 || machine.scheduler.is_empty(), "a free slot stays empty");
        machine.run(machine.now + Nanos(rng.random_range(0..400_000)), &mut seen);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Never more than D slots; a head that does not fit is overtaken for at most its own slots; and
    /// when even that is used up, it is the next to go.
    #[test]
    fn sfq_d_plus_keeps_to_its_slots_and_protects_the_head(seed in 0u64..10_000, depth in 1u32..20) {
        let config = SfqPlusConfig { depth, ..SfqPlusConfig::default() };
        let mut s = SfqPlus::new(&config, Limits::OFF);
        let mut rng = rng(seed);
        let slots = |r: &Request| match r.op {
            OpKind::Metadata => 1,
            _ => config.reads.of(r.len).0.min(depth),
        };
        // The model: every waiting request with its tag, in units of a byte by weight 1.
        let mut waiting: Vec<(u64, Request)> = Vec::new();
        let mut finish: HashMap<FlowId, u64> = HashMap::new();
        let mut overtaken: HashMap<RequestId, u32> = HashMap::new();
        let (mut virtual_time, mut used, mut running) = (0u64, 0u32, Vec::new());
        for id in 0..600 {
            let r = random(&mut rng, id, T);
            let start = virtual_time.max(finish.get(&r.flow).copied().unwrap_or(0));
            finish.insert(r.flow, start + r.cost(10_000));
            waiting.push((start, r));
            s.enqueue(T, r);
            while rng.random_bool(0.7) {
                let Some(b) = s.dispatch(T) else {
                    let fits = waiting.iter().min_by_key(|(t, _)| *t).is_some_and(|(_, r)| used + slots(r) <= depth);
                    prop_assert!(!fits, "the head fits and does not go");
                    break;
                };
                let r = b.requests()[0];
                let at = waiting.iter().position(|(_, w)| w.id == r.id).unwrap();
                let (start, _) = waiting.remove(at);
                virtual_time = virtual_time.max(start);
                used += b.slots();
                prop_assert!(b.slots() == slots(&r) && used <= depth && used == s.used());
                for (t, w) in &waiting {
                    let heads = waiting.iter().all(|(o, other)| o > t || other.id == w.id);
                    if *t < start && heads {
                        let ahead = overtaken.entry(w.id).or_default();
                        *ahead += b.slots();
                        prop_assert!(*ahead <= slots(w), "{} slots went ahead of {w:?}", *ahead);
                    }
                }
                running.push(b);
            }
            while !running.is_empty() && rng.random_bool(0.6) {
                let b = running.swap_remove(rng.random_range(0..running.len()));
                used -= b.slots();
                s.complete(T, &b);
            }
        }
    }
}

#[test]
fn backfill_uses_idle_slots() {
    let config = SfqPlusConfig { depth: 6, ..SfqPlusConfig::default() };
    let mut s = SfqPlus::new(&config, Limits::OFF);
    for id in 0..2 {
        s.enqueue(T, Request { len: 2 << 20, offset: id << 21, ..request(id) });
    }
    for id in 2..9 {
        s.enqueue(T, Request { flow: FlowId(1), len: 4096, offset: id << 21, ..request(id) });
    }
    // The second large one has the largest tag of all.
    let out: Vec<Batch> = std::iter::from_fn(|| s.dispatch(T)).collect();
    assert_eq!(ids(&out), [2, 0], "one large and one small fill the six slots");
    s.complete(T, &out[1]);
    let next: Vec<Batch> = std::iter::from_fn(|| s.dispatch(T)).collect();
    assert_eq!(ids(&next), [3, 4, 5, 6, 7]);
}

#[test]
fn capped_holds_a_flow_to_its_rate_even_alone() {
    let mut machine = Machine::new(scheduler("capped:rate=100MB,merge=1"), 64);
    machine.scheduler.set_weight(FlowId(1), 3);
    let start = machine.now;
    let mut sent = [0u64; 2];
    let mut seen = |now: Nanos, b: &Batch| {
        let flow = b.requests()[0].flow.0 as usize;
        sent[flow] += b.bytes();
        let rate = [1e8, 3e8][flow];
        let allowed = rate * now.since(start).as_secs_f64() + b.bytes() as f64;
        assert!(sent[flow] as f64 <= allowed + 1.0, "flow {flow}: {} of {allowed}", sent[flow]);
    };
    for id in 0..2000 {
        let r = Request { flow: FlowId((id % 2) as u32), offset: id << 20, len: 100_000, ..request(id) };
        machine.enqueue(r, &mut seen);
    }
    machine.run(start + Nanos::from_millis(100), &mut seen);
    // 10 MB and 30 MB in a tenth of a second, and one request on credit, less what rounding costs.
    assert_eq!(sent, [10_100_000, 30_000_000]);
}

#[test]
fn aioli_waits_once_for_likely_neighbours() {
    let wait = Nanos::from_micros(900);
    let write = |id: u64| Request { offset: id * 4096, op: OpKind::Write, ..request(id) };
    let mut s = scheduler("aioli");
    for id in 0..4 {
        s.enqueue(T, write(id));
    }
    let four = s.dispatch(T).unwrap();
    assert_eq!(four.requests().len(), 4);
    // While storage has all there are, there is nobody to wait for.
    s.enqueue(T, write(4));
    let one = s.dispatch(T).unwrap();
    for batch in [four, one] {
        s.complete(T, &batch);
    }
    // Five were answered: four wait for the fifth, a moment, and meanwhile others go on.
    for id in [6, 7, 8, 9] {
        s.enqueue(T, write(id));
    }
    assert_eq!((s.dispatch(T), s.next_wakeup(T)), (None, Some(T + wait)));
    s.enqueue(T, Request { file: FileId(9), ..request(99) });
    assert_eq!(ids(&[s.dispatch(T).unwrap()]), [99]);
    // It comes: all go as one.
    s.enqueue(T, write(5));
    let five = s.dispatch(T).unwrap();
    assert_eq!(ids(std::slice::from_ref(&five)), [5, 6, 7, 8, 9]);
    s.complete(T, &five);
    // They do not come: the two go when the time is up, and no more than two are expected next.
    s.enqueue(T, write(11));
    s.enqueue(T, write(12));
    assert_eq!((s.dispatch(T), s.next_wakeup(T)), (None, Some(T + wait)));
    let two = s.dispatch(T + wait).unwrap();
    assert_eq!(ids(std::slice::from_ref(&two)), [11, 12]);
    s.complete(T + wait, &two);
    s.enqueue(T + wait, write(13));
    s.enqueue(T + wait, write(14));
    assert_eq!(ids(&[s.dispatch(T + wait).unwrap()]), [13, 14]);
}

#[test]
fn aioli_does_not_wait_where_requests_are_no_neighbours() {
    // Eight clients, each in a region of its own: nothing can be merged, so nothing is waited for.
    let mut s = scheduler("aioli");
    let write = |id: u64| Request { offset: id % 8 * (1 << 30), op: OpKind::Write, ..request(id) };
    for round in 0..20 {
        for client in 0..8 {
            s.enqueue(T, write(round * 8 + client));
        }
        for _ in 0..8 {
            let batch = s.dispatch(T).expect("nobody is waited for");
            s.complete(T, &batch);
        }
    }
}

#[test]
fn aioli_gives_a_file_its_quantum_and_lets_it_grow() {
    let mut s = scheduler("aioli:quantum=64KiB,merge=1");
    for id in 0..200 {
        let file = FileId(id % 2);
        s.enqueue(T, Request { file, offset: (id / 2) * 16384, len: 16384, ..request(id) });
    }
    let files: Vec<u64> = outcome(&mut *s, T).iter().map(|b| b.file().0).collect();
    let turns: Vec<usize> = files.chunk_by(|a, b| a == b).map(<[u64]>::len).collect();
    assert_eq!(turns[..6], [4, 4, 8, 8, 16, 16]);
}
