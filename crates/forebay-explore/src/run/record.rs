//! What a run left behind: one CSV row per job and step, and JSON with everything.

use super::protocol::Outcome;
use crate::scenario::{Data, Job, Layout, Scenario, Step};
use crate::stats;
use forebay_types::histogram::Counts;
use forebay_types::{Bandwidth, FineHistogram, Nanos, Operation, Spatiality};
use serde::{Serialize, Serializer};

/// A run, as its JSON file has it.
#[derive(Clone, Debug, Serialize)]
pub struct RunRecord {
    /// The scenario.
    pub scenario: String,
    /// I/O nodes; 0 is direct access.
    pub io_nodes: u32,
    /// From 1.
    pub repetition: u32,
    /// Seconds since 1970.
    pub started: f64,
    /// How clients reached the files: `direct`, `client` or `preload`.
    pub via: &'static str,
    /// The I/O nodes' scheduler, where the scenario names one.
    pub scheduler: Option<String>,
    /// Job by job, step by step.
    pub steps: Vec<StepRecord>,
    /// The I/O nodes' own statistics, as they report them.
    pub node_statistics: Vec<serde_json::Value>,
}

/// A step of a job.
#[derive(Clone, Debug, Serialize)]
pub struct StepRecord {
    /// The job.
    pub job: String,
    /// Which of its steps, from 1.
    pub step: usize,
    /// What analysis files it under.
    pub label: String,
    /// What it did.
    pub operation: Operation,
    /// Compute nodes of the job.
    pub compute_nodes: u32,
    /// Processes of the job.
    pub processes: u32,
    /// Whether all share one file.
    pub shared: bool,
    /// In which order; the JSON file has its number.
    #[serde(serialize_with = "code")]
    pub spatiality: Spatiality,
    /// Mean request size, KiB.
    pub request_kb: f64,
    /// Past the page cache?
    pub direct_io: bool,
    /// Was every byte read checked?
    pub validated: bool,
    /// Bytes read by all.
    pub bytes_read: u64,
    /// Bytes written by all.
    pub bytes_written: u64,
    /// Requests or operations of all.
    pub requests: u64,
    /// Whether a stone wall stopped any process.
    pub stone_wall_hit: bool,
    /// The processes' times.
    pub seconds: Quartiles,
    /// Bytes over the slowest process' time.
    pub bandwidth_mbs: f64,
    /// Requests over the slowest process' time.
    pub ops_per_s: f64,
    /// Of single requests, in microseconds.
    pub latency_us: Latency,
    /// Each process' time, by rank.
    pub rank_seconds: Vec<f64>,
}

/// As FORGE sums up times.
#[derive(Clone, Copy, Debug, Serialize)]
#[allow(missing_docs)]
pub struct Quartiles {
    pub min: f64,
    pub q1: f64,
    pub median: f64,
    pub q3: f64,
    pub max: f64,
    pub mean: f64,
}

/// Percentiles of latency.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[allow(missing_docs)]
pub struct Latency {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Quartiles {
    fn of(times: &[f64]) -> Quartiles {
        Quartiles {
            min: stats::quantile(times, 0.0),
            q1: stats::quantile(times, 0.25),
            median: stats::quantile(times, 0.5),
            q3: stats::quantile(times, 0.75),
            max: stats::quantile(times, 1.0),
            mean: stats::mean(times),
        }
    }
}

/// The records of a job's steps that move data or make files; `outcomes[step][rank]`.
pub(super) fn step_records(scenario: &Scenario, job: &Job, outcomes: &[Vec<Outcome>]) -> Vec<StepRecord> {
    let mut out: Vec<StepRecord> = Vec::new();
    let mut seen: Vec<(Operation, Geometry)> = Vec::new();
    for (index, (step, by_rank)) in job.steps.iter().zip(outcomes).enumerate() {
        let (operation, geometry) = match step {
            Step::Data(d) => (d.operation(), Geometry::of(d)),
            Step::Metadata(m) => (m.operation.into(), Geometry::default()),
            _ => continue,
        };
        // Steps of one kind are repetitions of each other; others of the same operation get a number.
        let kinds: Vec<&Geometry> = seen.iter().filter(|(o, _)| *o == operation).map(|(_, g)| g).collect();
        let number = kinds.iter().position(|g| **g == geometry).unwrap_or(kinds.len());
        if number == kinds.len() {
            seen.push((operation, geometry.clone()));
        }
        let mut label = scenario.name.clone();
        if scenario.jobs.len() > 1 {
            label = format!("{label}/{}", job.name);
        }
        if number > 0 {
            label = format!("{label}#{}", number + 1);
        }
        out.push(record(job, index, label, operation, &geometry, step, by_rank));
    }
    out
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Geometry {
    shared: bool,
    spatiality: Spatiality,
    request_kb: f64,
    direct_io: bool,
}

impl Geometry {
    fn of(d: &Data) -> Geometry {
        Geometry {
            shared: d.target.layout == Layout::Shared,
            spatiality: d.spatiality,
            request_kb: d.mean_size() / 1024.0,
            direct_io: d.target.direct_io,
        }
    }
}

fn record(
    job: &Job,
    index: usize,
    label: String,
    operation: Operation,
    geometry: &Geometry,
    step: &Step,
    by_rank: &[Outcome],
) -> StepRecord {
    let rank_seconds: Vec<f64> = by_rank.iter().map(|o| o.seconds).collect();
    let seconds = Quartiles::of(&rank_seconds);
    let sum = |f: fn(&Outcome) -> u64| by_rank.iter().map(f).sum::<u64>();
    let (bytes_read, bytes_written, requests) =
        (sum(|o| o.bytes_read), sum(|o| o.bytes_written), sum(|o| o.requests));
    let makespan = Nanos((seconds.max * 1e9) as u64);
    StepRecord {
        job: job.name.clone(),
        step: index + 1,
        label,
        operation,
        compute_nodes: job.compute_nodes,
        processes: job.processes(),
        shared: geometry.shared,
        spatiality: geometry.spatiality,
        request_kb: geometry.request_kb,
        direct_io: geometry.direct_io,
        validated: matches!(step, Step::Data(d) if d.validation && d.read_share > 0.0),
        bytes_read,
        bytes_written,
        requests,
        stone_wall_hit: by_rank.iter().any(|o| o.hit_wall),
        seconds,
        bandwidth_mbs: Bandwidth::of(bytes_read + bytes_written, makespan).0,
        ops_per_s: if seconds.max > 0.0 { requests as f64 / seconds.max } else { 0.0 },
        latency_us: latency(by_rank),
        rank_seconds,
    }
}

fn code<S: Serializer>(of: &Spatiality, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_u8(of.code())
}

fn latency(by_rank: &[Outcome]) -> Latency {
    let mut all: Option<Counts> = None;
    for o in by_rank {
        let mine = FineHistogram::counts_of(o.latencies.iter().copied(), o.slowest);
        match &mut all {
            Some(all) => all.merge(&mine),
            None => all = Some(mine),
        }
    }
    let Some(all) = all else { return Latency::default() };
    let us = |q: f64| all.quantile(q) as f64 / 1000.0;
    Latency { p50: us(0.5), p90: us(0.9), p99: us(0.99), p999: us(0.999), max: all.max() as f64 / 1000.0 }
}

/// A CSV row: the columns of the FORGE evaluation, then ours.
#[derive(Serialize)]
pub(super) struct Row<'a> {
    scenario: &'a str,
    compute_nodes: u32,
    processes: u32,
    layout: u8,
    spatiality: u8,
    #[serde(serialize_with = "plain")]
    request_kb: f64,
    io_nodes: u32,
    bandwidth_mbs: f64,
    operation: &'static str,
    ops_per_s: f64,
    run: &'a str,
    job: &'a str,
    step: usize,
    repetition: u32,
    started: f64,
    seconds: f64,
    bytes: u64,
    requests: u64,
    min_s: f64,
    q1_s: f64,
    median_s: f64,
    q3_s: f64,
    max_s: f64,
    mean_s: f64,
    stone_wall_hit: u8,
    direct_io: u8,
    validated: u8,
    latency_p50_us: f64,
    latency_p99_us: f64,
    via: &'a str,
    scheduler: &'a str,
}

/// A number as people write it: `32`, not `32.0`.
fn plain<S: Serializer>(v: &f64, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(&v.to_string())
}

impl RunRecord {
    pub(super) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.steps.iter().map(|s| Row {
            scenario: &s.label,
            compute_nodes: s.compute_nodes,
            processes: s.processes,
            layout: u8::from(s.shared),
            spatiality: s.spatiality.code(),
            request_kb: s.request_kb,
            io_nodes: self.io_nodes,
            bandwidth_mbs: s.bandwidth_mbs,
            operation: s.operation.name(),
            ops_per_s: s.ops_per_s,
            run: &self.scenario,
            job: &s.job,
            step: s.step,
            repetition: self.repetition,
            started: self.started,
            seconds: s.seconds.max,
            bytes: s.bytes_read + s.bytes_written,
            requests: s.requests,
            min_s: s.seconds.min,
            q1_s: s.seconds.q1,
            median_s: s.seconds.median,
            q3_s: s.seconds.q3,
            max_s: s.seconds.max,
            mean_s: s.seconds.mean,
            stone_wall_hit: u8::from(s.stone_wall_hit),
            direct_io: u8::from(s.direct_io),
            validated: u8::from(s.validated),
            latency_p50_us: s.latency_us.p50,
            latency_p99_us: s.latency_us.p99,
            via: self.via,
            scheduler: self.scheduler.as_deref().unwrap_or(""),
        })
    }

    /// The run as FORGE's `.time` file has it. Its MB are 2^20 bytes.
    pub fn forge_summary(&self) -> String {
        use std::fmt::Write;
        const RULE: &str = "---------------------------\n";
        let mut out = String::new();
        let _ = write!(out, "{RULE} I/O Forwarding Explorer\n{RULE}");
        let clients = self.steps.iter().map(|s| s.processes).max().unwrap_or(0);
        let _ = write!(
            out,
            " scenario: {}\n forwarders: {}\n clients: {clients}\n{RULE}",
            self.scenario, self.io_nodes
        );
        for s in &self.steps {
            let layout = if s.shared { "shared" } else { "individual" };
            let _ = write!(
                out,
                "\n{RULE} operation: {}\n layout: {layout}\n spatiality: {}\n odirect: {}\n request: {} KB\n{RULE}",
                s.operation,
                s.spatiality,
                u8::from(s.direct_io),
                s.request_kb
            );
            for (rank, t) in s.rank_seconds.iter().enumerate() {
                let _ = writeln!(out, " rank {rank:03}: {t:.5} s");
            }
            let q = s.seconds;
            let mib = (s.bytes_read + s.bytes_written) as f64 / 1048576.0;
            let _ = write!(
                out,
                "{RULE} min: {:.5} s\n Q1: {:.5} s\n Q2: {:.5} s\n Q3: {:.5} s\n max: {:.5} s\n mean: {:.5} s\n{RULE} \
                 data: {mib:.5} MB\n bandwidth: {:.5} MB/s\n{RULE}",
                q.min,
                q.q1,
                q.median,
                q.q3,
                q.max,
                q.mean,
                if q.max > 0.0 { mib / q.max } else { 0.0 }
            );
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::native;

    fn records(text: &str, job: usize) -> Vec<StepRecord> {
        let scenario = native::parse(text, "s").unwrap().remove(0);
        let job = &scenario.jobs[job];
        let outcome = |seconds: f64| Outcome {
            seconds,
            bytes_written: 1_000_000,
            requests: 10,
            latencies: vec![(1_000, 9), (100_000, 1)],
            slowest: 100_000,
            ..Outcome::default()
        };
        let outcomes = vec![vec![outcome(1.0), outcome(4.0)]; job.steps.len()];
        step_records(&scenario, job, &outcomes)
    }

    #[test]
    fn bandwidth_is_that_of_the_slowest_process() {
        let text =
            "compute_nodes = 2\nphase = [{ operation = \"write\", total_size = 8192, request_size = 4096 }]";
        let r = &records(text, 0)[0];
        assert_eq!((r.bandwidth_mbs, r.ops_per_s, r.requests), (0.5, 5.0, 20));
        assert_eq!((r.seconds.min, r.seconds.median, r.seconds.max), (1.0, 2.5, 4.0));
        assert!(
            (r.latency_us.p50 - 1.0).abs() < 1.0 / 32.0 && (r.latency_us.p99 - 100.0).abs() < 100.0 / 32.0,
            "{:?}",
            r.latency_us
        );
    }

    #[test]
    fn like_steps_share_a_label_and_others_do_not() {
        let text = r#"
            [[job]]
            name = "a"
            phase = [
              { operation = "write", total_size = 8192, request_size = 4096, repetitions = 2 },
              { operation = "think", think = 1 },
              { operation = "write", total_size = 8192, request_size = 512 },
              { operation = "read", total_size = 8192, request_size = 512 },
            ]
            [[job]]
            name = "b"
            phase = [{ operation = "stat", files = 3 }]"#;
        let labels: Vec<(String, usize)> = records(text, 0).into_iter().map(|r| (r.label, r.step)).collect();
        let expected = [("s/a", 1), ("s/a", 2), ("s/a#2", 4), ("s/a", 5)];
        assert_eq!(labels, expected.map(|(l, s)| (l.to_owned(), s)));
        assert_eq!(records(text, 1)[0].operation, Operation::Stat);
    }
}
