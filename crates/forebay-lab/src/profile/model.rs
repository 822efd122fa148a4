//! A storage model of what was measured, and how well it predicts what was not.

use super::{Buffer, Curves, OPS, Op, PASSES, Places, Point, SMALL, Target};
use crate::Progress;
use crate::outcome::{Outcome, Table};
use anyhow::{Result, bail};
use forebay_plot::bytes;
use forebay_sched::emulate::{AccessModel, ServerModel, StorageModel};
use forebay_sim::models::NamedModel;
use forebay_sim::requests::link::LinkModel;
use forebay_sim::requests::{Machine, Span, run};
use forebay_sim::scenarios::Streams;
use forebay_types::stats::median;
use forebay_types::{Nanos, OpKind, Pattern};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// The name that the model has in its file.
const NAME: &str = "here";
/// Distances between consecutive requests at which seeks are measured; the first is none.
const DISTANCES: [u64; 4] = [0, 1 << 20, 8 << 20, 32 << 20];
const LARGE: usize = 1 << 20;
/// Requests outstanding when the storage is to be full.
const FULL: usize = 32;
/// Scenarios that are not fitted to have so many processes.
const PROCESSES: u32 = 4;
const HELD_OUT: [(Pattern, u64); 6] = [
    (Pattern::SharedContiguous, 16 << 10),
    (Pattern::SharedContiguous, 256 << 10),
    (Pattern::SharedStrided, 16 << 10),
    (Pattern::SharedStrided, 256 << 10),
    (Pattern::Random, 16 << 10),
    (Pattern::Random, 256 << 10),
];

fn nanos(seconds: f64) -> Nanos {
    Nanos((seconds.max(0.0) * 1e9) as u64)
}

/// How requests of one kind are served, what of a lone one's time does not keep others waiting, and the distance of
/// half a seek.
struct Fitted {
    access: AccessModel,
    latency: f64,
    half: u64,
}

/// The median of several passes: a hiccup spoils one of them.
fn passes(mut one: impl FnMut() -> Result<f64>) -> Result<f64> {
    let all: Vec<f64> = (0..PASSES).map(|_| one()).collect::<Result<_>>()?;
    Ok(median(&all))
}

/// One operation: a full storage says what requests and bytes cost it, a lone request what else it takes, and
/// requests at distances what seeks do.
fn access(target: &Target, curves: &Curves, o: usize, span: Duration) -> Result<Fitted> {
    let op = OPS[o].1;
    let most = curves.throughput[o].iter().map(Point::y).fold(0.0, f64::max);
    let small = 1.0 / most.max(1e-9);
    let large = 1.0 / passes(|| target.rate(op, FULL, LARGE, span))?.max(1e-9);
    let mut lone = Vec::new();
    for distance in DISTANCES {
        lone.push(passes(|| target.stepping(op, SMALL, SMALL as u64 + distance, span))?);
    }
    let far = lone.iter().copied().fold(0.0, f64::max);
    // Storage that serves many at once hides most of a seek: it cannot cost more than a request does there.
    let seek = (far - lone[0]).clamp(0.0, small * 0.9);
    let reached = lone.iter().position(|t| t - lone[0] >= (far - lone[0]) / 2.0).unwrap_or(1);
    let per_byte = ((large - small) / (LARGE - SMALL) as f64).max(1e-12);
    let per_request = (small - seek - per_byte * SMALL as f64).max(1e-7);
    let bandwidth = ((1.0 / per_byte) as u64).clamp(1000, 1 << 50);
    let access = AccessModel { bandwidth, per_request: nanos(per_request), seek: nanos(seek), penalty: 0.0 };
    let alone = curves.latency[o].first().map_or(far, Point::y);
    Ok(Fitted { access, latency: (alone - small).max(0.0), half: DISTANCES[reached].max(1) })
}

/// Seconds of storage time that making and removing a name costs, with several at it.
fn metadata(dir: &Path, span: Duration) -> Result<f64> {
    let began = Instant::now();
    let worker = |n: usize| -> Result<u64> {
        let name = dir.join(format!("name-{n}"));
        let mut operations = 0;
        while began.elapsed() < span {
            std::fs::create_dir(&name)?;
            std::fs::remove_dir(&name)?;
            operations += 2;
        }
        Ok(operations)
    };
    let counts: Vec<Result<u64>> = std::thread::scope(|s| {
        let threads: Vec<_> = (0..PROCESSES as usize).map(|n| s.spawn(move || worker(n))).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| bail!("a thread failed"))).collect()
    });
    let total = counts.into_iter().sum::<Result<u64>>()?;
    Ok(began.elapsed().as_secs_f64() / total.max(1) as f64)
}

fn fit(target: &Target, curves: &Curves, dir: &Path, span: Duration) -> Result<StorageModel> {
    let [read, write] = [access(target, curves, 0, span)?, access(target, curves, 1, span)?];
    let AccessModel { bandwidth, per_request, seek, penalty } = read.access;
    let server = ServerModel {
        bandwidth,
        per_request,
        // Both kinds have the same: what is between.
        latency: nanos((read.latency + write.latency) / 2.0),
        seek,
        seek_half: read.half,
        penalty,
        penalty_limit: None,
        write: Some(write.access),
        metadata: Some(nanos(metadata(dir, span)?)),
    };
    // What is behind the directory cannot be told apart from here: one server stands for all.
    let model = StorageModel { servers: 1, stripe: 1 << 30, server };
    model.check().map_err(anyhow::Error::msg)?;
    Ok(model)
}

/// Processes that were not used to fit, on the model: MB/s.
fn predicted(model: &StorageModel, streams: &Streams) -> Result<f64> {
    let none = LinkModel { latency: Nanos::ZERO, per_message: Nanos::ZERO, bandwidth: u64::MAX >> 8 };
    let machine = Machine { compute_link: none, ..Machine::new(0, model.clone(), "fifo".parse()?) };
    Ok(run(&machine, streams.processes(), Span::ALL).bandwidth().0)
}

/// The same on the storage: MB/s.
fn real(target: &Target, streams: &Streams) -> Result<f64> {
    let op = if streams.op == OpKind::Read { Op::Read } else { Op::Write };
    let rate = || -> Result<f64> {
        let start = Barrier::new(streams.processes as usize);
        let worker = |rank: u64| -> Result<(Instant, Instant)> {
            let (mut buffer, mut places) = (Buffer::new(streams.size as usize), Places::new(rank + 7));
            start.wait();
            let began = Instant::now();
            for made in 0..streams.requests {
                let block = match streams.pattern {
                    Pattern::SharedStrided => made * u64::from(streams.processes) + rank,
                    Pattern::Random => rank * streams.requests + places.next(streams.requests, 1),
                    _ => rank * streams.requests + made,
                };
                target.once(op, buffer.bytes(), block * streams.size)?;
            }
            Ok((began, Instant::now()))
        };
        let times: Vec<Result<(Instant, Instant)>> = std::thread::scope(|s| {
            let worker = &worker;
            let threads: Vec<_> =
                (0..u64::from(streams.processes)).map(|rank| s.spawn(move || worker(rank))).collect();
            threads.into_iter().map(|t| t.join().unwrap_or_else(|_| bail!("a thread failed"))).collect()
        });
        let times = times.into_iter().collect::<Result<Vec<_>>>()?;
        let began = times.iter().map(|t| t.0).min().unwrap_or_else(Instant::now);
        let ended = times.iter().map(|t| t.1).max().unwrap_or(began);
        let moved = streams.size * streams.requests * u64::from(streams.processes);
        Ok(moved as f64 / 1e6 / ended.duration_since(began).as_secs_f64().max(1e-9))
    };
    passes(rate)
}

/// Fits a model to the storage below `dir` and holds it against scenarios that it was not fitted to.
pub(super) fn model(
    found: &mut Outcome,
    target: &Target,
    curves: &Curves,
    dir: &Path,
    progress: &dyn Progress,
) -> Result<()> {
    progress.doing("a model");
    let storage = fit(target, curves, dir, Duration::from_millis(200))?;
    let mut table = Table::new(["held out", "request", "predicted MB/s", "measured MB/s", "off by"]);
    let mut errors = Vec::new();
    for (pattern, size) in HELD_OUT {
        for (name, op) in OPS {
            progress.doing(&format!("held out: {name} of {}", bytes(size as f64)));
            let requests = (target.size / u64::from(PROCESSES) / size).min(256);
            let op = if op == Op::Read { OpKind::Read } else { OpKind::Write };
            let streams = Streams {
                processes: PROCESSES,
                requests,
                size,
                compute_nodes: 1,
                io_nodes: 0,
                ..Streams::paper(pattern, op)
            };
            let (predicted, real) = (predicted(&storage, &streams)?, real(target, &streams)?);
            let off = predicted / real - 1.0;
            errors.push(off.abs() * 100.0);
            table.row([
                format!("{name}, {}", pattern.name()),
                bytes(size as f64),
                format!("{predicted:.1}"),
                format!("{real:.1}"),
                format!("{:+.0} %", off * 100.0),
            ]);
        }
    }
    found.table(table);
    let mean = errors.iter().sum::<f64>() / errors.len().max(1) as f64;
    let error = format!(
        "off by {mean:.0} % in the mean of {} scenarios that it was not fitted to, {:.0} % at most",
        errors.len(),
        errors.iter().copied().fold(0.0, f64::max)
    );
    found.line(format!("the model: {error}"));
    let note = format!(
        "Measured by `forebay profile --model` from one host, as one server; what further I/O nodes cost cannot be told from \
         there. {error}."
    );
    let named = BTreeMap::from([(NAME, NamedModel { note, storage })]);
    found.file("model.toml", toml::to_string(&named)?);
    Ok(())
}
