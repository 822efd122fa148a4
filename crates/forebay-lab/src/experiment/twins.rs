//! Time windows: 32 processes on four I/O nodes and four data servers, under arrival
//! order, handle-based round robin and seven time windows.

mod mounted;

pub use mounted::Mounted;

use super::Experiment;
use super::testbed::{Testbed, open, processes};
use crate::machine::load;
use crate::outcome::{Outcome, Table, csv};
use crate::{Progress, Size};
use anyhow::{Result, bail};
use forebay_plot::{BarSeries, Bars};
use forebay_sim::models;
use forebay_types::OpKind;
use forebay_types::stats::median;
use std::sync::Barrier;
use std::time::Instant;

const NODES: usize = 4;
const REQUEST: usize = 32 << 10;
const SCHEDULERS: [&str; 9] = [
    "fifo",
    "hbrr",
    "twins:window=125us",
    "twins:window=250us",
    "twins:window=500us",
    "twins:window=1ms",
    "twins:window=2ms",
    "twins:window=4ms",
    "twins:window=8ms",
];

/// Time windows per data server (TWINS) against arrival order and round robin.
///
/// Processes read and write 32 KiB requests, one at a time, through four I/O nodes onto four emulated
/// data servers: one shared file contiguously or 1D-strided, and a file each. Shows the bandwidth under
/// every scheduler, the median of interleaved repetitions. On a mounted parallel file system, which the I/O nodes
/// ask for its layout, also without I/O nodes, and with two applications at a time.
#[derive(Clone, Debug)]
pub struct Twins {
    /// How much to do.
    pub size: Size,
    /// Repetitions.
    pub repeat: usize,
    /// On this file system, not on emulated storage.
    pub mounted: Option<Mounted>,
}

impl Default for Twins {
    fn default() -> Twins {
        Twins { size: Size::Small, repeat: 3, mounted: None }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Pattern {
    Contiguous,
    Strided,
    Own,
}

const CASES: [(&str, Pattern, OpKind); 6] = [
    ("shared contiguous, read", Pattern::Contiguous, OpKind::Read),
    ("shared 1D-strided, read", Pattern::Strided, OpKind::Read),
    ("file per process, read", Pattern::Own, OpKind::Read),
    ("shared contiguous, write", Pattern::Contiguous, OpKind::Write),
    ("shared 1D-strided, write", Pattern::Strided, OpKind::Write),
    ("file per process, write", Pattern::Own, OpKind::Write),
];

/// How many processes, and how many requests each.
#[derive(Clone, Copy)]
struct Scale {
    processes: usize,
    requests: usize,
}

impl Experiment for Twins {
    fn run(&self, progress: &dyn Progress) -> Result<Outcome> {
        if let Some(on) = &self.mounted {
            return mounted::run(on, self.size, self.repeat, progress);
        }
        let (processes, requests) = self.size.choose((4, 4), (32, 64), (128, 1024));
        let scale = Scale { processes, requests };
        let model = models::named("disk-far")?.storage;
        let testbed = Testbed::start(NODES, Some(&model), 16)?;
        prepare(&testbed, scale)?;
        let repeat = self.size.choose(1, self.repeat.max(1), self.repeat.max(1));
        progress.begin(repeat * CASES.len() * SCHEDULERS.len());
        let mut seen = vec![[const { Vec::new() }; SCHEDULERS.len()]; CASES.len()];
        let mut rows = Vec::new();
        for round in 0..repeat {
            for (c, (what, pattern, op)) in CASES.into_iter().enumerate() {
                // Each repetition begins with another scheduler, so that none always follows the same one.
                for i in 0..SCHEDULERS.len() {
                    let s = (i + round * 4) % SCHEDULERS.len();
                    progress.doing(&format!("{what}, {}", SCHEDULERS[s]));
                    testbed.schedule(SCHEDULERS[s])?;
                    let rate = bandwidth(&testbed, scale, pattern, op)?;
                    seen[c][s].push(rate);
                    let cells = [
                        what.replace(',', ""),
                        SCHEDULERS[s].into(),
                        round.to_string(),
                        format!("{rate:.3}"),
                    ];
                    rows.push(cells);
                    progress.advance(1);
                }
            }
        }
        let medians: Vec<[f64; SCHEDULERS.len()]> =
            seen.into_iter().map(|row| row.map(|rates| median(&rates))).collect();
        let mut found = Outcome::default();
        found.line(format!(
            "MB/s, medians of {repeat}: {} processes, {} requests of 32 KiB each, {NODES} I/O nodes, 4 emulated data servers ({})",
            scale.processes,
            scale.requests,
            load()
        ));
        judge(&mut found, &medians);
        let header = ["pattern", "scheduler", "repetition", "mb_per_s"];
        found.figures("twins", csv(header, &rows), chart(&medians));
        Ok(found)
    }
}

fn short(scheduler: &str) -> &str {
    scheduler.trim_start_matches("twins:window=")
}

fn judge(found: &mut Outcome, medians: &[[f64; SCHEDULERS.len()]]) {
    let header: Vec<&str> = ["MB/s"]
        .into_iter()
        .chain(SCHEDULERS.map(short))
        .chain(["best against fifo, hbrr", "smallest"])
        .collect();
    let mut t = Table::new(header);
    let (mut shared_reads, mut worst) = (f64::MIN, f64::MAX);
    for ((what, pattern, op), row) in CASES.iter().zip(medians) {
        let base = row[0].max(row[1]);
        let best = row[2..].iter().copied().fold(0.0, f64::max) / base - 1.0;
        let smallest = row[2] / base - 1.0;
        if *op == OpKind::Read && *pattern != Pattern::Own {
            shared_reads = shared_reads.max(best);
        }
        worst = worst.min(smallest);
        let mut cells = vec![(*what).to_owned()];
        cells.extend(row.iter().map(|v| format!("{v:.1}")));
        cells.extend([best, smallest].map(|v| format!("{:+.0} %", v * 100.0)));
        t.row(cells);
    }
    found.table(t);
    found.judge(
        format!("a window beats fifo and hbrr by ≥15 % on shared-file reads: {:+.0} %", shared_reads * 100.0),
        shared_reads >= 0.15,
    );
    found.judge(
        format!("the smallest window is never >5 % worse: {:+.1} % at worst", worst * 100.0),
        worst >= -0.05,
    );
}

fn chart(medians: &[[f64; SCHEDULERS.len()]]) -> String {
    let series = SCHEDULERS.iter().enumerate();
    Bars {
        title: "Reads and writes through four I/O nodes, by scheduler".into(),
        size: forebay_plot::Size::new(960.0, 460.0),
        categories: CASES.iter().map(|c| c.0.to_owned()).collect(),
        y: forebay_plot::Axis::linear("MB/s"),
        series: series.map(|(i, s)| BarSeries::new(short(s), medians.iter().map(|m| m[i]))).collect(),
        ..Bars::default()
    }
    .svg()
}

/// Where a process's next request goes: which file, and where in it.
fn place(pattern: Pattern, scale: Scale, rank: usize, step: usize) -> (String, u64) {
    let block = match pattern {
        Pattern::Contiguous => rank * scale.requests + step,
        Pattern::Strided => step * scale.processes + rank,
        Pattern::Own => step,
    };
    let file = if pattern == Pattern::Own { format!("own-{rank}") } else { "shared".into() };
    (file, (block * REQUEST) as u64)
}

fn prepare(testbed: &Testbed, scale: Scale) -> Result<()> {
    let data = testbed.data();
    let own = vec![7u8; scale.requests * REQUEST];
    std::fs::write(data.join("shared"), vec![7u8; scale.processes * own.len()])?;
    for rank in 0..scale.processes {
        std::fs::write(data.join(format!("own-{rank}")), &own)?;
    }
    Ok(())
}

/// Bytes over the time from the common start to the end of the slowest process, in MB/s.
fn bandwidth(testbed: &Testbed, scale: Scale, pattern: Pattern, op: OpKind) -> Result<f64> {
    let start = Barrier::new(scale.processes);
    let times = processes(scale.processes, |rank| {
        let opened = (|| {
            let client = testbed.client("twins", rank * NODES / scale.processes)?;
            let file = open(&client, &place(pattern, scale, rank, 0).0)?;
            Ok::<_, anyhow::Error>((client, file))
        })();
        // Even one that failed: the others wait for it.
        start.wait();
        let (client, file) = opened?;
        let (began, mut buffer) = (Instant::now(), vec![7u8; REQUEST]);
        for step in 0..scale.requests {
            let (_, offset) = place(pattern, scale, rank, step);
            let moved = match op {
                OpKind::Write => client.pwrite(&file, &buffer, offset)?,
                _ => client.pread(&file, &mut buffer, offset)?,
            };
            if moved != REQUEST {
                bail!("process {rank}: {moved} of {REQUEST} bytes moved at {offset}");
            }
        }
        let ended = Instant::now();
        client.close(&file)?;
        client.leave();
        Ok((began, ended))
    })?;
    let began = times.iter().map(|t| t.0).min().unwrap_or_else(Instant::now);
    let ended = times.iter().map(|t| t.1).max().unwrap_or(began);
    Ok((scale.processes * scale.requests * REQUEST) as f64 / ended.duration_since(began).as_secs_f64() / 1e6)
}
