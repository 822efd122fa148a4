//! `forebay experiment overhead`: what scheduling costs against no scheduler.

use super::ground::{Ground, at, open, processes};
use super::{Common, csv, load, median, progress, verdict};
use crate::cmd::fleet::scratch;
use crate::cmd::table;
use anyhow::Result;
use clap::Args;
use forebay_client::{Meta, Target};
use forebay_plot::{Axis, BarSeries, Bars};
use forebay_sched::emulate::StorageModel;
use rustix::time::{ClockId, clock_gettime};
use std::process::ExitCode;
use std::sync::Barrier;
use std::time::Instant;

const PROCESSES: usize = 4;
/// The first is no scheduler: arrival order, nothing merged.
const SCHEDULERS: [&str; 4] = ["noop", "fifo", "sfq-d", "sfq-d-plus"];

/// What one operation is, how many a process does, and how much more it may take.
struct Case {
    what: &'static str,
    /// Bytes of a write; 0 is a metadata operation.
    size: usize,
    count: usize,
    most: f64,
}

const CASES: [Case; 3] = [
    Case { what: "1 MiB writes", size: 1 << 20, count: 16, most: 0.01 },
    Case { what: "4 KiB writes", size: 4 << 10, count: 250, most: 0.03 },
    Case { what: "metadata", size: 0, count: 250, most: 0.03 },
];

/// What scheduling costs: every scheduler of the fair-queueing family against none.
///
/// Four processes write, or stat a file, through one I/O node: on emulated data servers, where what an
/// application loses shows, and on a memory file system, where nothing hides the cost. Shows how much
/// more time an operation takes than under `noop`; on the memory file system processor time, client and
/// node together. Medians of interleaved repetitions.
#[derive(Args)]
pub(super) struct OverheadArgs {
    #[command(flatten)]
    common: Common,
    /// Repetitions.
    #[arg(long, value_name = "N", default_value_t = 15)]
    repeat: usize,
}

impl OverheadArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        let repeat = self.repeat.max(1) * if self.common.full { 4 } else { 1 };
        let emulated = Ground::start(&scratch(), 1, &StorageModel::default(), 16)?;
        let memory = Ground::start_with(&scratch(), 1, |_| ())?;
        let grounds = [("emulated servers", &emulated), ("memory, processor time", &memory)];
        let bar = progress(grounds.len() * CASES.len() * repeat);
        let mut t = table::new(&["against noop", "noop", "fifo", "sfq-d", "sfq-d-plus", "at most"], &[]);
        let (mut rows, mut verdicts, mut series) = (Vec::new(), Vec::new(), Vec::new());
        for (g, (ground_name, ground)) in grounds.into_iter().enumerate() {
            for case in &CASES {
                bar.set_message(format!("{}, {ground_name}", case.what));
                let mut seen = [const { Vec::new() }; SCHEDULERS.len()];
                for round in 0..repeat {
                    for i in 0..SCHEDULERS.len() {
                        let s = (i + round) % SCHEDULERS.len();
                        ground.schedule(SCHEDULERS[s])?;
                        let [time, processor] = operation(ground, case)?;
                        seen[s].push(if g == 0 { time } else { processor });
                    }
                    bar.inc(1);
                }
                let times = seen.map(median);
                let more = times.map(|v| v / times[0] - 1.0);
                let mut cells = vec![format!("{}, {ground_name}", case.what), format!("{:.1} µs", times[0])];
                cells.extend(more[1..].iter().map(|m| format!("{:+.1} %", m * 100.0)));
                cells.push(format!("{:.0} %", case.most * 100.0));
                t.add_row(cells);
                if g == 0 {
                    let worst = more[1..].iter().copied().fold(f64::MIN, f64::max);
                    let line = format!("{} ≤{:.0} %: {:+.1} %", case.what, case.most * 100.0, worst * 100.0);
                    verdicts.push((line, worst <= case.most));
                }
                for (s, time) in SCHEDULERS.iter().zip(times) {
                    rows.push([
                        ground_name.replace(',', ""),
                        case.what.into(),
                        (*s).into(),
                        format!("{time:.3}"),
                    ]);
                }
                series.push((format!("{}, {ground_name}", case.what), more));
            }
        }
        bar.finish_and_clear();
        println!("{PROCESSES} processes, medians of {repeat} ({})\n\n{t}\n", load());
        for (line, met) in verdicts {
            verdict(&line, met);
        }
        let chart = Bars {
            title: "What scheduling adds to an operation".into(),
            size: forebay_plot::Size::new(960.0, 420.0),
            categories: series.iter().map(|(name, _)| name.clone()).collect(),
            y: Axis::linear("% more than without"),
            series: (1..SCHEDULERS.len())
                .map(|i| BarSeries::new(SCHEDULERS[i], series.iter().map(|(_, more)| more[i] * 100.0)))
                .collect(),
            ..Bars::default()
        };
        self.common.write(
            "overhead",
            &csv(["storage", "operation", "scheduler", "us"], &rows),
            &chart.svg(),
        )?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Microseconds of one operation: as the processes see it, and of processor time.
fn operation(ground: &Ground, case: &Case) -> Result<[f64; 2]> {
    let (ready, done) = (Barrier::new(PROCESSES), Barrier::new(PROCESSES));
    let spans = processes(PROCESSES, |rank| {
        let opened = (|| {
            let client = ground.client("overhead", 0)?;
            let file = open(&client, &format!("file-{rank}"))?;
            anyhow::Ok((client, file))
        })();
        // Even one that failed: the others wait for it.
        ready.wait();
        let began = (Instant::now(), processor());
        let worked = opened.and_then(|(client, file)| {
            let (data, name) = (vec![3u8; case.size], format!("file-{rank}"));
            for i in 0..case.count {
                if case.size == 0 {
                    client.meta(Meta::Stat { target: Target::Path(at(&name)) }, |_| Some(()))?;
                } else {
                    client.pwrite(&file, &data, ((i % 16) * case.size) as u64)?;
                }
            }
            Ok((client, file))
        });
        let span = (began.0.elapsed().as_secs_f64(), processor() - began.1);
        done.wait();
        let (client, file) = worked?;
        client.close(&file)?;
        client.leave();
        Ok(span)
    })?;
    let time = spans.iter().map(|s| s.0).sum::<f64>() / spans.len() as f64;
    let work = spans.iter().map(|s| s.1).fold(0.0, f64::max);
    Ok([time * 1e6 / case.count as f64, work * 1e6 / (case.count * PROCESSES) as f64])
}

/// The processor time of this process so far: the clients' and the node's.
fn processor() -> f64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}
