//! Overhead: what scheduling costs against no scheduler.

use super::Experiment;
use super::testbed::{Testbed, at, open, processes};
use crate::machine::load;
use crate::outcome::{Judgement, Outcome, Table, csv};
use crate::{Progress, Size};
use anyhow::Result;
use forebay_client::{Meta, Target};
use forebay_plot::{Axis, BarSeries, Bars};
use forebay_sim::models;
use forebay_types::stats::{median, quantile};
use rustix::time::{ClockId, clock_gettime};
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
    /// How many, on emulated servers and in memory.
    counts: [usize; 2],
    most: f64,
}

const CASES: [Case; 3] = [
    Case { what: "1 MiB writes", size: 1 << 20, counts: [16, 200], most: 0.01 },
    Case { what: "4 KiB writes", size: 4 << 10, counts: [120, 4000], most: 0.03 },
    Case { what: "metadata", size: 0, counts: [250, 4000], most: 0.03 },
];

/// What scheduling costs: every scheduler of the fair-queueing family against none.
///
/// Four processes write, or stat a file, through one I/O node: on emulated data servers, where what an
/// application loses shows, and on a memory file system, where nothing hides the cost; there also in
/// processor time, client and node together. Shows how much more an operation takes than under `noop`
/// in the same repetition: the median of the repetitions, and half the distance of their quartiles; where
/// that is more than what is allowed, nothing can be said.
#[derive(Clone, Debug)]
pub struct Overhead {
    /// How much to do.
    pub size: Size,
    /// Repetitions; at full size four times as many.
    pub repeat: usize,
}

impl Default for Overhead {
    fn default() -> Overhead {
        Overhead { size: Size::Small, repeat: 31 }
    }
}

/// What is looked at: the time processes see on emulated servers and in memory, and processor time.
const VIEWS: [&str; 3] = ["emulated servers", "memory", "memory, processor time"];

impl Experiment for Overhead {
    fn run(&self, progress: &dyn Progress) -> Result<Outcome> {
        let repeat = self.size.choose(1, self.repeat.max(1), self.repeat.max(1) * 4);
        let emulated = Testbed::start(1, Some(&models::named("disk")?.storage), 16)?;
        let memory = Testbed::start(1, None, 16)?;
        progress.begin(2 * CASES.len() * repeat);
        // Of every view and case: microseconds under every scheduler, in every repetition.
        let mut seen = vec![vec![[const { Vec::new() }; SCHEDULERS.len()]; CASES.len()]; VIEWS.len()];
        for (g, testbed) in [&emulated, &memory].into_iter().enumerate() {
            for (c, case) in CASES.iter().enumerate() {
                progress.doing(&format!("{}, {}", case.what, VIEWS[g]));
                let count = if self.size == Size::Quick { 4 } else { case.counts[g] };
                for round in 0..repeat {
                    for i in 0..SCHEDULERS.len() {
                        let s = (i + round) % SCHEDULERS.len();
                        testbed.schedule(SCHEDULERS[s])?;
                        let [time, processor] = operation(testbed, case.size, count)?;
                        seen[g][c][s].push(time);
                        if g == 1 {
                            seen[2][c][s].push(processor);
                        }
                    }
                    progress.advance(1);
                }
            }
        }
        let mut t = Table::new(["against noop", "noop", "fifo", "sfq-d", "sfq-d-plus", "at most"]);
        let (mut rows, mut verdicts, mut series) = (Vec::new(), Vec::new(), Vec::new());
        for (view, cases) in VIEWS.iter().zip(&seen) {
            for (case, times) in CASES.iter().zip(cases) {
                let what = format!("{}, {view}", case.what);
                let more: Vec<[f64; 3]> = times[1..].iter().map(|s| against(s, &times[0])).collect();
                let mut cells = vec![what.clone(), format!("{:.1} µs", median(&times[0]))];
                cells.extend(more.iter().map(|[low, middle, high]| {
                    format!("{:+.1} % ±{:.1}", middle * 100.0, (high - low) * 50.0)
                }));
                cells.push(format!("{:.0} %", case.most * 100.0));
                t.row(cells);
                let by_middle = |a: &&[f64; 3], b: &&[f64; 3]| a[1].total_cmp(&b[1]);
                let [low, worst, high] = more.iter().max_by(by_middle).copied().unwrap_or([f64::NAN; 3]);
                let line = format!("{what} ≤{:.0} %: {:+.1} %", case.most * 100.0, worst * 100.0);
                verdicts.push((line, worst <= case.most, (high - low) / 2.0 > case.most));
                for (s, all) in SCHEDULERS.iter().zip(times) {
                    for (round, us) in all.iter().enumerate() {
                        rows.push([
                            view.replace(',', ""),
                            case.what.into(),
                            (*s).into(),
                            round.to_string(),
                            format!("{us:.3}"),
                        ]);
                    }
                }
                series.push((what, more));
            }
        }
        let mut found = Outcome::default();
        found.line(format!("{PROCESSES} processes, {repeat} repetitions ({})", load()));
        found.table(t);
        for (line, met, blurred) in verdicts {
            if blurred {
                let line = format!("{line}, but the repetitions lie further apart than that");
                found.judged(line, Judgement::Unclear);
            } else {
                found.judge(line, met);
            }
        }
        let chart = Bars {
            title: "What scheduling adds to an operation".into(),
            size: forebay_plot::Size::new(1120.0, 440.0),
            categories: series.iter().map(|(name, _)| name.clone()).collect(),
            y: Axis::linear("% more than without"),
            series: (1..SCHEDULERS.len())
                .map(|i| BarSeries::new(SCHEDULERS[i], series.iter().map(|(_, more)| more[i - 1][1] * 100.0)))
                .collect(),
            ..Bars::default()
        };
        let header = ["storage", "operation", "scheduler", "repetition", "us"];
        found.figures("overhead", csv(header, &rows), chart.svg());
        Ok(found)
    }
}

/// How much more than the other, repetition by repetition: the quartiles.
fn against(times: &[f64], without: &[f64]) -> [f64; 3] {
    let more: Vec<f64> = times.iter().zip(without).map(|(t, w)| t / w - 1.0).collect();
    [0.25, 0.5, 0.75].map(|q| quantile(&more, q))
}

/// Microseconds of one operation: as the processes see it, and of processor time.
fn operation(testbed: &Testbed, size: usize, count: usize) -> Result<[f64; 2]> {
    let (ready, done) = (Barrier::new(PROCESSES), Barrier::new(PROCESSES));
    let spans = processes(PROCESSES, |rank| {
        let opened = (|| {
            let client = testbed.client("overhead", 0)?;
            let file = open(&client, &format!("file-{rank}"))?;
            anyhow::Ok((client, file))
        })();
        // Even one that failed: the others wait for it.
        ready.wait();
        let began = (Instant::now(), processor() + testbed.processor());
        let worked = opened.and_then(|(client, file)| {
            let (data, name) = (vec![3u8; size], format!("file-{rank}"));
            for i in 0..count {
                if size == 0 {
                    client.meta(Meta::Stat { target: Target::Path(at(&name)) }, |_| Some(()))?;
                } else {
                    client.pwrite(&file, &data, ((i % 16) * size) as u64)?;
                }
            }
            Ok((client, file))
        });
        let span = (began.0.elapsed().as_secs_f64(), processor() + testbed.processor() - began.1);
        done.wait();
        let (client, file) = worked?;
        client.close(&file)?;
        client.leave();
        Ok(span)
    })?;
    let time = spans.iter().map(|s| s.0).sum::<f64>() / spans.len() as f64;
    let work = spans.iter().map(|s| s.1).fold(0.0, f64::max);
    Ok([time * 1e6 / count as f64, work * 1e6 / (count * PROCESSES) as f64])
}

/// The processor time of this process so far: the clients'.
fn processor() -> f64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}
