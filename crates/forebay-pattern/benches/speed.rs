//! What the hot path costs: `cargo bench -p forebay-pattern`. With an argument (`observe`, `predict`)
//! only that part runs, so that `valgrind --tool=callgrind` sees it alone.

use forebay_pattern::data::Split;
use forebay_pattern::train::Trainer;
use forebay_pattern::{Access, Collector, Feature, synthetic};
use forebay_types::{ClientId, FileId, FlowId, Nanos, OpKind};
use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::Instant;

fn main() {
    let part = std::env::args().skip(1).find(|a| !a.starts_with("--"));
    let wanted = |name: &str| part.as_deref().is_none_or(|p| p == name);
    if wanted("observe") {
        for clients in [1, 16, 128, 1024] {
            observe(clients, false);
            observe(clients, true);
        }
    }
    if wanted("predict") {
        predict();
    }
}

/// Arrival and completion of a request, with an interval closed every 100,000 requests.
fn observe(clients: u64, shared: bool) {
    const ROUND: usize = 100_000;
    let requests: Vec<Access> = (0..ROUND as u64)
        .map(|i| {
            let client = i.wrapping_mul(0x9e37_79b9) % clients;
            Access {
                flow: FlowId(1),
                client: ClientId(client),
                file: FileId(if shared { 1 } else { client }),
                op: if i % 3 == 0 { OpKind::Read } else { OpKind::Write },
                offset: i * 32768,
                len: 32768,
            }
        })
        .collect();
    let mut collector = Collector::new(Nanos::ZERO);
    let (mut arrive, mut both) = (f64::MAX, f64::MAX);
    let mut now = 0;
    for round in 0..40 {
        let start = Instant::now();
        if round % 2 == 0 {
            for r in &requests {
                now += 1000;
                collector.arrive(Nanos(now), black_box(r));
            }
        } else {
            for r in &requests {
                now += 1000;
                collector.arrive(Nanos(now), black_box(r));
                collector.complete(Nanos(now + 500), r.flow, r.op, r.len);
            }
        }
        let spent = start.elapsed().as_nanos() as f64 / ROUND as f64;
        let best = if round % 2 == 0 { &mut arrive } else { &mut both };
        *best = best.min(spent);
        black_box(collector.close(Nanos(now)));
    }
    let layout = if shared { "one shared file" } else { "a file each" };
    println!(
        "observe: {clients:4} clients, {layout:15}  arrive {arrive:5.1} ns  arrive + complete {both:5.1} ns"
    );
}

fn predict() {
    let plan = synthetic::Plan { processes: vec![16, 64], io_nodes: vec![1, 4], ..Default::default() };
    let rows = synthetic::rows(&plan, 1);
    let split = Split::new(rows, BTreeSet::from([32 << 10, 256 << 10]), BTreeSet::from([16, 64]), 1);
    for trainer in Trainer::ALL {
        let model = trainer
            .train(&split.train, &Feature::ALL, "synthetic", 1, &mut |_| {})
            .expect("rows of all classes");
        let mut best = f64::MAX;
        for _ in 0..20 {
            let start = Instant::now();
            for row in &split.validation {
                black_box(model.detect(black_box(&row.metrics)));
            }
            best = best.min(start.elapsed().as_nanos() as f64 / split.validation.len() as f64);
        }
        println!("predict: {:14} {:8.3} µs", model.kind().name(), best / 1000.0);
    }
}
