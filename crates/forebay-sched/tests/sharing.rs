//! Total-service sharing over several nodes: the bound on unfairness that the threshold sets.

mod common;

use common::{request, rng, scheduler};
use forebay_sched::share::{ServiceReport, ServiceSharing};
use forebay_sched::{Request, Scheduler};
use forebay_types::{FlowId, Nanos, NodeId};
use proptest::prelude::*;
use rand::Rng;
use std::collections::VecDeque;

const T: Nanos = Nanos::from_secs(1);
const LARGEST: u64 = 64 << 10;

/// Nodes that serve one request each in turn; flow `f` keeps `depth` requests waiting at every node of
/// `places[f]`.
struct Nodes {
    schedulers: Vec<Box<dyn Scheduler>>,
    sharing: Vec<ServiceSharing>,
    mail: VecDeque<(usize, ServiceReport)>,
    /// How many turns a report is under way.
    delay: usize,
    /// Requests are of all sizes up to the largest, or all of that size.
    varied: bool,
    totals: Vec<u64>,
    next: u64,
    rng: rand::rngs::StdRng,
}

impl Nodes {
    fn new(weights: &[u32], places: &[Vec<usize>], threshold: u64, depth: usize, varied: bool) -> Nodes {
        let nodes = places[0].len();
        let sharing = |n| ServiceSharing::new(NodeId(n as u32), T, threshold);
        let mut all = Nodes {
            schedulers: (0..nodes).map(|_| scheduler("sfq:merge=1")).collect(),
            sharing: (0..nodes).map(sharing).collect(),
            mail: VecDeque::new(),
            delay: 0,
            varied,
            totals: vec![0; weights.len()],
            next: 0,
            rng: rng(1),
        };
        for (flow, nodes) in places.iter().enumerate() {
            for node in nodes {
                all.schedulers[*node].set_weight(FlowId(flow as u32), weights[flow]);
                for _ in 0..depth {
                    all.arrive(*node, flow as u32);
                }
            }
        }
        all
    }

    fn arrive(&mut self, node: usize, flow: u32) {
        self.next += 1;
        let len = if self.varied { self.rng.random_range(1..=LARGEST) } else { LARGEST };
        let r = Request { flow: FlowId(flow), offset: self.next << 17, len, ..request(self.next) };
        self.schedulers[node].enqueue(T, r);
    }

    /// One request at every node; reports are delivered, or not, afterwards.
    fn turn(&mut self, share: bool) {
        for node in 0..self.schedulers.len() {
            let Some(batch) = self.schedulers[node].dispatch(T) else { continue };
            self.schedulers[node].complete(T, &batch);
            let r = batch.requests()[0];
            self.totals[r.flow.0 as usize] += r.len;
            self.mail.extend(self.sharing[node].served(r.flow, r.len).map(|report| (self.delay, report)));
            self.arrive(node, r.flow.0);
        }
        for (wait, _) in &mut self.mail {
            *wait = wait.saturating_sub(1);
        }
        while let Some((0, report)) = self.mail.front().cloned() {
            self.mail.pop_front();
            for node in 0..self.schedulers.len() {
                for (flow, bytes) in self.sharing[node].heard(&report) {
                    if share {
                        self.schedulers[node].credit_remote(flow, bytes);
                    }
                }
            }
        }
    }
}

/// Flow 0, of weight 2, has requests at both nodes, flow 1 at the second only: how far apart they are, by
/// weight, at the end.
fn apart(share: bool, threshold: u64) -> f64 {
    let mut nodes = Nodes::new(&[2, 1], &[vec![0, 1], vec![1]], threshold, 2, true);
    for _ in 0..4000 {
        nodes.turn(share);
    }
    nodes.totals[0] as f64 / 2.0 - nodes.totals[1] as f64
}

#[test]
fn without_sharing_the_flow_on_two_nodes_gets_more_than_its_share() {
    // Per turn: one request at the first node and two thirds at the second, by 2, against one third.
    let mean = LARGEST as f64 / 2.0;
    assert!((apart(false, 1 << 20) / (4000.0 * mean) - 0.5).abs() < 0.05);
    assert!(apart(true, 1 << 20).abs() < 2.0 * (1 << 20) as f64);
}

#[test]
fn a_lower_threshold_keeps_totals_closer() {
    let [low, high] = [64 << 10, 16 << 20].map(|t| apart(true, t).abs());
    assert!(low < high, "{low} and {high}");
}

#[test]
fn whatever_a_flow_got_elsewhere_it_is_not_shut_out() {
    let mut s = scheduler("sfq:merge=1");
    for id in 0..2000 {
        s.enqueue(
            T,
            Request { flow: FlowId((id % 2) as u32), offset: id << 20, len: 1 << 20, ..request(id) },
        );
    }
    s.credit_remote(FlowId(0), 1 << 50);
    let mut flows = Vec::new();
    while let Some(b) = s.dispatch(T) {
        s.complete(T, &b);
        flows.push(b.requests()[0].flow.0);
    }
    // Flow 1 goes first for as long as the other may be put back, less what it had waiting; then in turn.
    let first = flows.iter().position(|f| *f == 0).unwrap();
    assert!(first <= 256, "it waited for {first} requests of 1 MiB");
}

#[test]
fn whatever_a_flow_goes_on_getting_elsewhere_it_is_not_shut_out() {
    let mut s = scheduler("sfq:merge=1");
    let one = |id: u64, flow| Request { flow: FlowId(flow), offset: id << 20, len: 1 << 20, ..request(id) };
    s.enqueue(T, one(0, 0));
    // Whenever the other is served here, it gets as much elsewhere.
    let waited = (1..4000u64).find(|id| {
        s.enqueue(T, one(*id, 1));
        s.credit_remote(FlowId(0), 1 << 20);
        let batch = s.dispatch(T).expect("something waits");
        s.complete(T, &batch);
        batch.requests()[0].flow == FlowId(0)
    });
    assert!(waited.is_some_and(|n| n <= 515), "it waited for {waited:?} requests of 1 MiB");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Two flows that share the last node; the first also has requests at the others, the second nowhere
    /// else. As long as the last node can make up for the difference, what they got in all, by weight,
    /// stays within: what the others may have served unknown to it (a threshold each, a request over,
    /// and what goes out while a report is under way), and SFQ's own bound.
    #[test]
    fn totals_by_weight_stay_within_the_bound(
        weights in (1u32..5, 1u32..5),
        threshold in 1u64..(4 << 20),
        depth in 1usize..5,
        delay in 0usize..4,
        elsewhere in 1usize..4,
    ) {
        // What the first gets elsewhere must be less than its share of the whole.
        let weights = (elsewhere as u32 * weights.1 + weights.0, weights.1);
        let w = [f64::from(weights.0), f64::from(weights.1)];
        let places = [(0..=elsewhere).collect(), vec![elsewhere]];
        let mut nodes = Nodes::new(&[weights.0, weights.1], &places, threshold, depth, false);
        nodes.delay = delay;
        let c = LARGEST as f64;
        let unknown = elsewhere as f64 * (threshold as f64 + c * (2 + delay) as f64) / w[0];
        let bound = unknown + 2.0 * (c / w[0] + c / w[1]);
        for turn in 0..3000 {
            nodes.turn(true);
            let apart = (nodes.totals[0] as f64 / w[0] - nodes.totals[1] as f64 / w[1]).abs();
            prop_assert!(apart <= bound, "{apart} apart after {turn} turns, {bound} allowed");
        }
    }
}
