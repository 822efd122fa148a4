//! Isolation: a job of small requests beside a job that writes 32 MiB at a time.

use super::Experiment;
use super::testbed::{Testbed, open, processes};
use crate::machine::load;
use crate::outcome::{Outcome, Table, csv};
use crate::{Progress, Size};
use anyhow::Result;
use forebay_plot::{Axis, BarSeries, Bars};
use forebay_sched::emulate::StorageModel;
use forebay_sim::models;
use std::time::{Duration, Instant};

const SMALL: usize = 8;
const LARGE: usize = 16;
const LARGE_REQUEST: usize = 32 << 20;
const BURST: u64 = 32;
const THINK: Duration = Duration::from_millis(100);
/// Enough that the scheduler, not the number of dispatchers, decides what is at the storage.
const DISPATCHERS: usize = 64;
const SCHEDULERS: [&str; 4] = ["fifo", "sfq-d", "sfq-d-plus", "capped:rate=10MB"];

/// A small-I/O job against a writer of large requests, under four schedulers.
///
/// Eight processes write bursts of 320 B to 32 KiB with pauses of 100 ms, sixteen others write 32 MiB
/// requests without end, all through one I/O node onto four emulated data servers. Shows what a small
/// request takes, against the small job alone, and what both jobs move together.
#[derive(Clone, Debug)]
pub struct Isolation {
    /// How much to do.
    pub size: Size,
    /// How long each measurement lasts; at full size three times as long.
    pub seconds: u64,
}

impl Default for Isolation {
    fn default() -> Isolation {
        Isolation { size: Size::Small, seconds: 12 }
    }
}

/// What was seen of a job.
#[derive(Clone, Copy, Default)]
struct JobTally {
    requests: u64,
    bytes: u64,
    waited: Duration,
}

impl JobTally {
    /// What one request takes, in milliseconds.
    fn wait(&self) -> f64 {
        self.waited.as_secs_f64() * 1e3 / self.requests.max(1) as f64
    }

    fn rate(&self, span: Duration) -> f64 {
        self.bytes as f64 / span.as_secs_f64() / 1e6
    }
}

struct Row {
    scheduler: &'static str,
    small: JobTally,
    large: JobTally,
}

impl Experiment for Isolation {
    fn run(&self, progress: &dyn Progress) -> Result<Outcome> {
        let span = Duration::from_secs(self.size.choose(1, self.seconds.max(1), self.seconds.max(1) * 3));
        // Slow servers: the machine that emulates them must not be the bottleneck.
        let model = models::named("disk-slow")?.storage;
        progress.begin(SCHEDULERS.len() + 2);
        let measure = |what: &'static str, scheduler: &'static str, small: usize, large: usize| {
            progress.doing(what);
            let large = large.min(self.size.choose(2, LARGE, LARGE));
            let row = contest(&model, scheduler, small, large, span)?;
            progress.advance(1);
            anyhow::Ok(row)
        };
        let alone = measure("the small job alone", "fifo", SMALL, 0)?.small;
        let writer = measure("the large writer alone", "fifo", 0, LARGE)?.large;
        let rows =
            SCHEDULERS.map(|s| measure(s, s, SMALL, LARGE)).into_iter().collect::<Result<Vec<Row>>>()?;
        let mut found = Outcome::default();
        found.line(format!(
            "{SMALL} processes of small bursts against {LARGE} writers of 32 MiB, {} s each, 1 I/O node, 4 emulated data servers ({})",
            span.as_secs(),
            load()
        ));
        let (small, large) = (alone.wait(), writer.rate(span));
        found.line(format!("alone: small {small:.2} ms a request, large {large:.1} MB/s"));
        judge(&mut found, &rows, alone, span);
        let line = |name: &str, small: &JobTally, large: &JobTally| {
            [
                name.to_owned(),
                format!("{:.4}", small.wait()),
                format!("{:.3}", small.wait() / alone.wait()),
                format!("{:.4}", small.rate(span)),
                format!("{:.3}", large.rate(span)),
            ]
        };
        let mut lines = vec![line("alone", &alone, &writer)];
        lines.extend(rows.iter().map(|r| line(r.scheduler, &r.small, &r.large)));
        let header = ["scheduler", "small_ms", "small_slowdown", "small_mb_per_s", "large_mb_per_s"];
        found.figures("isolation", csv(header, &lines), chart(&rows, alone));
        Ok(found)
    }
}

fn judge(found: &mut Outcome, rows: &[Row], alone: JobTally, span: Duration) {
    let header = ["scheduler", "small request", "slowdown", "small MB/s", "large MB/s", "total MB/s"];
    let mut t = Table::new(header);
    for r in rows {
        let (a, b) = (r.small.rate(span), r.large.rate(span));
        t.row([
            r.scheduler.to_owned(),
            format!("{:.2} ms", r.small.wait()),
            format!("{:.2} ×", r.small.wait() / alone.wait()),
            format!("{a:.3}"),
            format!("{b:.1}"),
            format!("{:.1}", a + b),
        ]);
    }
    found.table(t);
    let [fifo, sfq, plus, _] = rows else { return };
    let better = |r: &Row| r.small.wait() / plus.small.wait();
    let total = |r: &Row| r.small.rate(span) + r.large.rate(span);
    let lost = 1.0 - total(plus) / total(sfq).max(total(fifo));
    found.judge(
        format!("sfq-d-plus ≥3.35× better for the small job than sfq-d: {:.2}×", better(sfq)),
        better(sfq) >= 3.35,
    );
    found.judge(format!("sfq-d-plus ≥8× better than fifo: {:.2}×", better(fifo)), better(fifo) >= 8.0);
    found.judge(format!("losing ≤11 % of the total: {:.1} %", lost * 100.0), lost <= 0.11);
}

fn chart(rows: &[Row], alone: JobTally) -> String {
    Bars {
        title: "Slowdown of a small job beside a 32 MiB writer".into(),
        x_label: "scheduler".into(),
        categories: rows.iter().map(|r| r.scheduler.to_owned()).collect(),
        y: Axis::log10("times as long as alone"),
        series: vec![BarSeries::new("slowdown", rows.iter().map(|r| r.small.wait() / alone.wait()))],
        labels: true,
        ..Bars::default()
    }
    .svg()
}

/// Both jobs for `span`, on fresh servers.
fn contest(
    model: &StorageModel,
    scheduler: &'static str,
    small: usize,
    large: usize,
    span: Duration,
) -> Result<Row> {
    let testbed = Testbed::start(1, Some(model), DISPATCHERS)?;
    testbed.schedule(scheduler)?;
    // Until the writers fill the queues.
    let begin = Instant::now() + Duration::from_secs(1);
    let seen = processes(small + large + 1, |rank| match rank {
        r if r < small => bursts(&testbed, r, begin, span),
        r if r < small + large => writer(&testbed, r, begin + span),
        _ => watch(&testbed, begin, span),
    })?;
    let sum = seen[..small].iter().fold(JobTally::default(), |a, b| JobTally {
        requests: a.requests + b.requests,
        bytes: a.bytes + b.bytes,
        waited: a.waited + b.waited,
    });
    Ok(Row { scheduler, small: sum, large: seen[small + large] })
}

/// What the node has written for the large job within the span, whose writes are longer than that.
fn watch(testbed: &Testbed, begin: Instant, span: Duration) -> Result<JobTally> {
    std::thread::sleep(begin.saturating_duration_since(Instant::now()));
    let before = testbed.written("large")?;
    std::thread::sleep((begin + span).saturating_duration_since(Instant::now()));
    Ok(JobTally { bytes: testbed.written("large")? - before, ..JobTally::default() })
}

/// The small job: what ends within the span counts.
fn bursts(testbed: &Testbed, rank: usize, begin: Instant, span: Duration) -> Result<JobTally> {
    let client = testbed.client("small", 0)?;
    let file = open(&client, "small")?;
    let (data, mut seen) = (vec![1u8; 32 << 10], JobTally::default());
    let mut step = 0u64;
    while begin.elapsed() < span {
        step += 1;
        if step.is_multiple_of(BURST + 1) {
            std::thread::sleep(THINK);
            continue;
        }
        let len = [320, 1024, 4096, 32 << 10][(step % 4) as usize];
        // A window of the file per process, so that it stays small.
        let offset = ((rank as u64) << 24) + ((step % 512) << 15);
        let sent = Instant::now();
        client.pwrite(&file, &data[..len], offset)?;
        if sent >= begin {
            seen.requests += 1;
            seen.bytes += len as u64;
            seen.waited += sent.elapsed();
        }
    }
    client.leave();
    Ok(seen)
}

/// The large job, which the client sends in pieces.
fn writer(testbed: &Testbed, rank: usize, end: Instant) -> Result<JobTally> {
    let client = testbed.client("large", 0)?;
    let file = open(&client, &format!("large-{rank}"))?;
    let data = vec![2u8; LARGE_REQUEST];
    for step in 0u64.. {
        if Instant::now() >= end {
            break;
        }
        // Over and over the same part of the file, so that it stays small.
        client.pwrite(&file, &data, (step % 2) * LARGE_REQUEST as u64)?;
    }
    client.leave();
    Ok(JobTally::default())
}
