//! Who slowed whom: is a planted aggressor named, and does the prediction for another scheduler come true?

mod mixes;

use self::mixes::Plan;
use super::Experiment;
use super::testbed::{Testbed, open, processes};
use crate::machine::load;
use crate::outcome::{Outcome, Table, csv};
use crate::{Progress, Size};
use anyhow::Result;
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
const NOW: &str = "fifo:merge=1";
const MODEL: &str = "disk-lone";

/// A job of small writes beside one of large writes, and what `forebay blame` says about it.
///
/// Two processes write 4 KiB at a time, twelve of another job 64 KiB, all without a pause, through one I/O
/// node onto one emulated data server that takes 1 ms for a request and 25 MB/s. Shows how much of the
/// waiting that the second job causes (what the first one's requests take longer than alone, by its own
/// clocks) is put down to it. Then what is predicted for other schedulers against a rerun under each, for the mixes
/// of jobs in `data/what-if.toml`.
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

/// One run: the small job's own clocks, and what the I/O node said of it.
struct VictimRun {
    requests: u64,
    /// Seconds, all requests together.
    took: f64,
    blame: JobBlame,
}

impl Experiment for Blame {
    fn run(&self, progress: &dyn Progress) -> Result<Outcome> {
        let span = Duration::from_secs(self.size.choose(2, self.seconds.max(1), self.seconds.max(1) * 3));
        let mut plan = Plan::new()?;
        plan.mix.truncate(self.size.choose(1, usize::MAX, usize::MAX));
        progress.begin(plan.runs() * plan.mix.len() + 2);
        let measure = |what: &str, aggressors: usize| {
            progress.doing(what);
            let seen = contest(NOW, aggressors, span);
            progress.advance(1);
            seen
        };
        let alone = measure("the small job alone", 0)?;
        let now = measure(NOW, AGGRESSORS)?;
        let mut found = Outcome::default();
        found.line(format!(
            "{VICTIMS} processes of 4 KiB writes against {AGGRESSORS} of 64 KiB, {} s each, 1 I/O node, {NOW} ({})",
            span.as_secs(),
            load()
        ));
        let (lonely, crowded) = (alone.took / alone.requests as f64, now.took / now.requests as f64);
        let first = &now.blame;
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
        let mut rows = Vec::new();
        let (mut categories, mut predicted, mut truth) = (Vec::new(), Vec::new(), Vec::new());
        for (n, mix) in plan.mix.iter().enumerate() {
            let all = plan.run(mix, span, |what| {
                progress.doing(what);
                progress.advance(1);
            })?;
            found.line(format!("{}:", mix.name));
            let mut t = Table::new(["from", "to", "job", "predicted", "in truth", "off by"]);
            t.words.extend(["to", "job"].map(str::to_owned));
            for f in &all {
                let (said, is) = (format!("{:.4}", f.predicted), format!("{:.4}", f.truth));
                let (off, ms) = (format!("{:+.1} %", f.off() * 100.0), |ms: f64| format!("{ms:.2} ms"));
                t.row([&f.was, &f.other, &f.job, &ms(f.predicted), &ms(f.truth), &off]);
                rows.push([mix.name.clone(), f.was.clone(), f.other.clone(), f.job.clone(), said, is]);
                if n == 0 {
                    categories.push(format!("{}, {} to {}", f.job, f.was, f.other).replace(":merge=1", ""));
                    predicted.push(f.predicted);
                    truth.push(f.truth);
                }
            }
            found.table(t);
            let worst = all.iter().map(|f| f.off().abs()).fold(0.0, f64::max);
            let (most, worst_said) = (plan.tolerance * 100.0, worst * 100.0);
            found.judge(
                format!("{}: predictions within {most:.0} %: {worst_said:.1} % at worst", mix.name),
                worst <= plan.tolerance,
            );
        }
        let chart = Bars {
            title: "A request under another scheduler".into(),
            x_label: "job and scheduler".into(),
            categories,
            y: Axis::linear("milliseconds"),
            series: vec![BarSeries::new("predicted", predicted), BarSeries::new("in truth", truth)],
            labels: true,
            ..Bars::default()
        };
        let header = ["mix", "from", "to", "job", "predicted_ms", "rerun_ms"];
        found.figures("blame", csv(header, &rows), chart.svg());
        Ok(found)
    }
}

/// Both jobs for `span`, on fresh servers; then the I/O node is asked about the small one.
fn contest(scheduler: &str, aggressors: usize, span: Duration) -> Result<VictimRun> {
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
    Ok(VictimRun {
        requests: small.iter().map(|t| t.0).sum(),
        took: small.iter().map(|t| t.1).sum(),
        blame: testbed.blame("small", None)?,
    })
}
