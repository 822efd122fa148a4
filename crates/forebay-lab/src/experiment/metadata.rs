//! Sharing: two jobs of metadata operations that share two to one.

use super::Experiment;
use super::testbed::{Testbed, at, processes};
use crate::machine::load;
use crate::outcome::{Outcome, Table, csv};
use crate::{Progress, Size};
use anyhow::Result;
use forebay_client::{Meta, Target};
use forebay_plot::{Axis, BarSeries, Bars};
use forebay_sim::models;
use std::time::{Duration, Instant};

const PROCESSES: usize = 32;
const JOBS: [(&str, u32); 2] = [("two", 2), ("one", 1)];
const SCHEDULERS: [&str; 3] = ["fifo", "sfq-d", "sfq-d-plus"];

/// Two jobs of nothing but metadata operations, with weights 2 and 1.
///
/// Thirty-two processes each make, stat and remove files through one I/O node onto emulated servers.
/// Shows how many operations each job gets, and Jain's index of what they get by weight: 1 is exactly
/// by weight, 0.5 is all for one.
#[derive(Clone, Debug)]
pub struct Metadata {
    /// How much to do.
    pub size: Size,
    /// How long each measurement lasts; at full size three times as long.
    pub seconds: u64,
}

impl Default for Metadata {
    fn default() -> Metadata {
        Metadata { size: Size::Small, seconds: 10 }
    }
}

impl Experiment for Metadata {
    fn run(&self, progress: &dyn Progress) -> Result<Outcome> {
        let span = Duration::from_secs(self.size.choose(1, self.seconds.max(1), self.seconds.max(1) * 3));
        progress.begin(SCHEDULERS.len());
        let mut rates = Vec::new();
        for scheduler in SCHEDULERS {
            progress.doing(scheduler);
            rates.push(share(scheduler, span)?);
            progress.advance(1);
        }
        let mut found = Outcome::default();
        found.line(format!(
            "{PROCESSES} processes a job, weights 2 and 1, {} s each, 1 I/O node ({})",
            span.as_secs(),
            load()
        ));
        let mut t = Table::new(["scheduler", "job of weight 2", "job of weight 1", "ratio", "Jain's index"]);
        let mut rows = Vec::new();
        for (scheduler, [a, b]) in SCHEDULERS.into_iter().zip(&rates) {
            let index = jain(*a, *b);
            t.row([
                scheduler.to_owned(),
                format!("{a:.0}/s"),
                format!("{b:.0}/s"),
                format!("{:.2}", a / b),
                format!("{index:.4}"),
            ]);
            rows.push([scheduler.to_owned(), format!("{a:.1}"), format!("{b:.1}"), format!("{index:.5}")]);
        }
        found.table(t);
        for (scheduler, [a, b]) in SCHEDULERS.into_iter().zip(&rates).skip(1) {
            let index = jain(*a, *b);
            found.judge(format!("{scheduler}: Jain's index ≥0.98: {index:.4}"), index >= 0.98);
        }
        let chart = Bars {
            title: "Metadata operations of two jobs, weights 2 and 1".into(),
            x_label: "scheduler".into(),
            categories: SCHEDULERS.map(str::to_owned).to_vec(),
            y: Axis::linear("operations a second"),
            series: [0, 1]
                .map(|j| BarSeries::new(format!("weight {}", JOBS[j].1), rates.iter().map(|r| r[j])))
                .to_vec(),
            labels: true,
            ..Bars::default()
        };
        let header = ["scheduler", "weight2_per_s", "weight1_per_s", "jain"];
        found.figures("metadata", csv(header, &rows), chart.svg());
        Ok(found)
    }
}

/// Jain's index of the two jobs' operations by weight.
fn jain(a: f64, b: f64) -> f64 {
    let [x, y] = [a / f64::from(JOBS[0].1), b / f64::from(JOBS[1].1)];
    (x + y).powi(2) / (2.0 * (x * x + y * y))
}

/// Operations a second of both jobs.
fn share(scheduler: &str, span: Duration) -> Result<[f64; 2]> {
    let testbed = Testbed::start(1, Some(&models::named("disk")?.storage), 8)?;
    testbed.schedule(scheduler)?;
    for (job, weight) in JOBS {
        // The node learns a job's name when its first client comes.
        let client = testbed.client(job, 0)?;
        client.meta(Meta::Stat { target: Target::Path(at("")) }, |_| Some(()))?;
        testbed.weigh(job, weight)?;
        client.leave();
    }
    let begin = Instant::now() + Duration::from_secs(1);
    let counts = processes(2 * PROCESSES, |rank| {
        let client = testbed.client(JOBS[rank % 2].0, 0)?;
        let name = format!("dir-{rank}");
        let mut count = 0u64;
        'span: loop {
            for op in [
                Meta::Mkdir { path: at(&name), mode: 0o700 },
                Meta::Stat { target: Target::Path(at(&name)) },
                Meta::Rmdir { path: at(&name) },
            ] {
                client.meta(op, |_| Some(()))?;
                if begin.elapsed() >= span {
                    break 'span;
                }
                count += u64::from(Instant::now() >= begin);
            }
        }
        client.leave();
        Ok(count)
    })?;
    let rate = |job: usize| counts.iter().skip(job).step_by(2).sum::<u64>() as f64 / span.as_secs_f64();
    Ok([rate(0), rate(1)])
}
