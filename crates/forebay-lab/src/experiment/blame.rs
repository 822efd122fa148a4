//! Who slowed whom: is a planted aggressor named, and does the prediction for another scheduler come true?

use super::Experiment;
use super::testbed::{Testbed, open, processes};
use crate::machine::load;
use crate::outcome::{Outcome, Table, csv};
use crate::{Progress, Size};
use anyhow::{Context, Result};
use forebay_plot::{Axis, BarSeries, Bars};
use forebay_sim::models;
use forebay_types::JobBlame;
use std::time::{Duration, Instant};

const VICTIMS: usize = 2;
const AGGRESSORS: usize = 12;
const SMALL: usize = 4 << 10;
const LARGE: usize = 64 << 10;
/// Enough that the scheduler, not the number of dispatchers, decides what is at the storage.
const DISPATCHERS: usize = 32;
const SCHEDULERS: [&str; 4] = ["sfq:merge=1", "sfq-d:merge=1", "sfq-d-plus:merge=1", "wfq:merge=1"];
const NOW: &str = "fifo:merge=1";
const MODEL: &str = "disk-lone";

/// A job of small writes beside one of large writes, and what `forebay blame` says about it.
///
/// Two processes write 4 KiB at a time, twelve of another job 64 KiB, all without a pause, through one I/O
/// node onto one emulated data server that takes 1 ms for a request and 25 MB/s. Shows how much of the
/// waiting that the second job causes (what the first one's requests take longer than alone, by its own
/// clocks) is put down to it, and what was predicted for other schedulers against a rerun under each.
#[derive(Clone, Debug)]
pub struct Blame {
    /// How much to do.
    pub size: Size,
    /// How long each measurement lasts; at full size three times as long.
    pub seconds: u64,
}

impl Default for Blame {
    fn default() -> Blame {
        Blame { size: Size::Small, seconds: 6 }
    }
}

/// One run: the small job's own clocks, and what the node said of it.
struct VictimRun {
    requests: u64,
    /// Seconds, all requests together.
    took: f64,
    blame: Vec<JobBlame>,
}

impl VictimRun {
    /// Seconds a request, as the node saw it.
    fn at_node(&self) -> f64 {
        self.blame.first().map_or(f64::NAN, |b| b.total / b.requests.max(1) as f64)
    }
}

impl Experiment for Blame {
    fn run(&self, progress: &dyn Progress) -> Result<Outcome> {
        let span = Duration::from_secs(self.size.choose(2, self.seconds.max(1), self.seconds.max(1) * 3));
        progress.begin(SCHEDULERS.len() + 2);
        let measure = |what: &str, scheduler: &str, aggressors: usize, ask: &[&str]| {
            progress.doing(what);
            let seen = contest(scheduler, aggressors, span, ask);
            progress.advance(1);
            seen
        };
        let alone = measure("the small job alone", NOW, 0, &[])?;
        let now = measure(NOW, NOW, AGGRESSORS, &SCHEDULERS)?;
        let mut found = Outcome::default();
        found.line(format!(
            "{VICTIMS} processes of 4 KiB writes against {AGGRESSORS} of 64 KiB, {} s each, 1 I/O node, {NOW} ({})",
            span.as_secs(),
            load()
        ));
        let (lonely, crowded) = (alone.took / alone.requests as f64, now.took / now.requests as f64);
        let first = now.blame.first().context("the I/O node said nothing")?;
        let remembered = first.requests as f64;
        let caused = (crowded - lonely) * remembered;
        let named = first.behind.get("large").copied().unwrap_or(0.0);
        found.line(format!("a small write: alone {:.2} ms, beside {:.2} ms", lonely * 1e3, crowded * 1e3));
        for (share, what) in first.parts("small") {
            found.line(format!("{:5.1} %  {what}", share * 100.0));
        }
        let part = named / caused;
        found.judge(
            format!("the aggressor is named with ≥80 % of what it caused: {:.0} %", part * 100.0),
            part >= 0.8,
        );
        let mut t = Table::new(["scheduler", "predicted", "in truth", "off by"]);
        let (mut rows, mut worst) = (Vec::new(), 0.0f64);
        for (scheduler, asked) in SCHEDULERS.into_iter().zip(&now.blame) {
            let rerun = measure(scheduler, scheduler, AGGRESSORS, &[])?.at_node() * 1e3;
            let (_, then) = asked.what_if.context("the I/O node predicted nothing")?;
            let predicted = then / asked.requests.max(1) as f64 * 1e3;
            let off = predicted / rerun - 1.0;
            worst = worst.max(off.abs());
            let cells =
                [format!("{predicted:.2} ms"), format!("{rerun:.2} ms"), format!("{:+.1} %", off * 100.0)];
            let [a, b, c] = cells;
            t.row([scheduler.to_owned(), a, b, c]);
            rows.push([scheduler.to_owned(), format!("{predicted:.4}"), format!("{rerun:.4}")]);
        }
        found.table(t);
        found.judge(format!("predictions within 15 %: {:.1} % at worst", worst * 100.0), worst <= 0.15);
        let number =
            |i: usize| rows.iter().map(move |r| r[i].parse().unwrap_or(f64::NAN)).collect::<Vec<f64>>();
        let chart = Bars {
            title: "A small write under another scheduler".into(),
            x_label: "scheduler".into(),
            categories: SCHEDULERS.map(str::to_owned).to_vec(),
            y: Axis::linear("milliseconds"),
            series: vec![BarSeries::new("predicted", number(1)), BarSeries::new("in truth", number(2))],
            labels: true,
            ..Bars::default()
        };
        found.figures("blame", csv(["scheduler", "predicted_ms", "rerun_ms"], &rows), chart.svg());
        Ok(found)
    }
}

/// Both jobs for `span`, on fresh servers; then the node is asked about these schedulers.
fn contest(scheduler: &str, aggressors: usize, span: Duration, ask: &[&str]) -> Result<VictimRun> {
    let testbed = Testbed::start(1, Some(&models::named(MODEL)?.storage), DISPATCHERS)?;
    testbed.schedule(scheduler)?;
    let begin = Instant::now() + Duration::from_millis(500);
    let taken = processes(VICTIMS + aggressors, |rank| {
        let (job, size) = if rank < VICTIMS { ("small", SMALL) } else { ("large", LARGE) };
        let client = testbed.client(job, 0)?;
        let file = open(&client, &format!("{job}-{rank}"))?;
        let data = vec![1u8; size];
        // The small job comes when the others are at work, and goes before them.
        let (from, until) = if rank < VICTIMS { (begin, span) } else { (Instant::now(), span + span / 10) };
        std::thread::sleep(from.saturating_duration_since(Instant::now()));
        let (mut requests, mut took) = (0u64, 0.0);
        while begin.elapsed() < until {
            let sent = Instant::now();
            client.pwrite(&file, &data, requests % 64 * size as u64)?;
            took += sent.elapsed().as_secs_f64();
            requests += 1;
        }
        client.leave();
        Ok((requests, took))
    })?;
    let small = &taken[..VICTIMS];
    let asked = if ask.is_empty() { vec![None] } else { ask.iter().map(|s| Some(*s)).collect() };
    Ok(VictimRun {
        requests: small.iter().map(|t| t.0).sum(),
        took: small.iter().map(|t| t.1).sum(),
        blame: asked.into_iter().map(|spec| testbed.blame("small", spec)).collect::<Result<_>>()?,
    })
}
