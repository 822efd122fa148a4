//! TWINS in the simulator, on the model that was fitted to a part of the paper's results.

use super::{Break, Figures, Measured, Setup, put};
use anyhow::Result;
use forebay_pattern::Interval;
use forebay_sched::SchedulerConfig;
use forebay_sim::fit::Fit;
use forebay_sim::models;
use forebay_sim::requests::{Machine, Observer, Span, run_observed};
use forebay_sim::scenarios::{Broken, Streams, WINDOWS, twins_window};
use forebay_types::{Nanos, OpKind, Pattern};

const RESULTS: &str = include_str!("../../../../data/twins-paper.toml");

pub(super) fn broken(setup: &Setup<'_>) -> Broken {
    Broken {
        rotation: setup.breaks(Break::Rotation),
        merging: setup.breaks(Break::Merging),
        backfill: setup.breaks(Break::Backfill),
        weights: setup.breaks(Break::Weights),
        concurrency: setup.breaks(Break::Concurrency),
        windows: setup.breaks(Break::Windows),
    }
}

pub(super) fn figures(setup: &Setup<'_>) -> Result<Figures> {
    let mut figures = Figures::new();
    let model = models::named("pvfs-paper")?.storage;
    let broken = broken(setup);
    let requests = if setup.full { 1024 } else { 96 };
    let fit = Fit::parse(RESULTS, requests)?;
    for p in fit.predict(&model, broken) {
        put(&mut figures, &p.target.id, Measured::exact(p.ratio));
    }
    // What leaves an I/O node, on average.
    for (name, pattern) in [("contiguous", Pattern::SharedContiguous), ("strided", Pattern::SharedStrided)] {
        let streams = Streams { requests, ..Streams::paper(pattern, OpKind::Read) };
        let outcome = streams.run(&model, &"fifo".parse()?, 1, broken);
        put(&mut figures, &format!("leaving-kib-{name}"), Measured::exact(32.0 * outcome.merged()));
        put(&mut figures, &format!("distance-mb-{name}"), Measured::exact(distance(&streams, &model)?));
    }
    // Whether the best window for writes is the worst for reads, and the other way round.
    let rate = |op, window: &str| {
        let streams = Streams { requests, ..Streams::paper(Pattern::SharedStrided, op) };
        streams.run(&model, &twins_window(window), 1, broken).bandwidth().0
    };
    let rates = |op| WINDOWS.map(|w| rate(op, w));
    let (reads, writes) = (rates(OpKind::Read), rates(OpKind::Write));
    put(&mut figures, "opposite-windows", Measured::exact(correlation(&reads, &writes)));
    let spread =
        |r: &[f64]| r.iter().copied().fold(0.0, f64::max) / r.iter().copied().fold(f64::INFINITY, f64::min);
    put(&mut figures, "window-matters-reads", Measured::exact(100.0 * (spread(&reads) - 1.0)));
    Ok(figures)
}

/// The mean distance between consecutive requests at an I/O node, in MB (2^20 bytes), by the
/// production collector.
fn distance(streams: &Streams, model: &forebay_sched::emulate::StorageModel) -> Result<f64> {
    struct ServiceLog(Vec<(f64, f64)>);
    impl Observer for ServiceLog {
        fn observe(&mut self, _: Nanos, intervals: &[Interval]) -> Option<SchedulerConfig> {
            let flows = intervals.iter().flat_map(|i| &i.flows);
            self.0.extend(flows.map(|f| (f.offset_distance, f.data_requests() as f64)));
            None
        }
    }
    let mut seen = ServiceLog(Vec::new());
    let machine = Machine {
        interval: Nanos::from_millis(500),
        ..Machine::new(streams.io_nodes, model.clone(), "fifo".parse()?)
    };
    run_observed(&machine, streams.processes(), Span::ALL, &mut seen);
    let (sum, weight) = seen.0.iter().fold((0.0, 0.0), |(s, w), (d, n)| (s + d * n, w + n));
    Ok(sum / weight.max(1.0) / f64::from(1 << 20))
}

/// Spearman's rank correlation: -1 where one's best is the other's worst.
fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let ranks =
        |v: &[f64]| -> Vec<f64> { v.iter().map(|x| v.iter().filter(|y| *y < x).count() as f64).collect() };
    let (a, b) = (ranks(a), ranks(b));
    let n = a.len() as f64;
    let squares: f64 = a.iter().zip(&b).map(|(x, y)| (x - y).powi(2)).sum();
    1.0 - 6.0 * squares / (n * (n * n - 1.0))
}
