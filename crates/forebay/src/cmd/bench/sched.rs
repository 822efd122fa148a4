//! `forebay bench sched`: what every scheduler costs, by how many requests wait.

use crate::cmd::table;
use anyhow::Result;
use clap::Args;
use forebay_sched::SchedulerConfig;
use forebay_sched::bench::{FILES, QUEUED, lone, measure};
use forebay_types::Nanos;
use indicatif::{ProgressBar, ProgressStyle};
use rustix::time::{ClockId, clock_gettime};
use std::process::ExitCode;

/// Which of [`QUEUED`] the cost is judged at.
const AT: usize = 2;

/// Measure the schedulers: nanoseconds for one request in and out.
///
/// For every scheduler with 10³ to 10⁶ requests waiting, and for a request that finds nothing waiting;
/// in processor time of one thread, the median over blocks of requests, and the lowest of several passes
/// over everything: neighbours on the machine, who take room in its caches, only ever add. Held against
/// 250 ns at 10⁵ and a growth of three from 10³ to 10⁶.
#[derive(Args)]
pub(crate) struct SchedBench {
    /// Only this scheduler, with parameters if wanted.
    #[arg(long, value_name = "SPEC")]
    scheduler: Option<SchedulerConfig>,
    /// How many files the requests are to.
    #[arg(long, value_name = "N", default_value_t = FILES)]
    files: usize,
    /// Requests per measurement.
    #[arg(long, value_name = "N", default_value_t = 400_000)]
    requests: usize,
    /// Passes over everything.
    #[arg(long, value_name = "N", default_value_t = 5)]
    passes: usize,
}

impl SchedBench {
    pub(crate) fn run(self) -> Result<ExitCode> {
        // The time of this thread alone, so that neighbours count less.
        let mut clock = || {
            let t = clock_gettime(ClockId::ThreadCPUTime);
            Nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
        };
        let configs = match self.scheduler {
            Some(one) => vec![one],
            None => SchedulerConfig::NAMES.iter().map(|n| n.parse()).collect::<Result<Vec<_>, _>>()?,
        };
        let passes = self.passes.max(1);
        let bar = ProgressBar::new((passes * configs.len()) as u64);
        bar.set_style(
            ProgressStyle::with_template("{msg:<12} {wide_bar} {pos}/{len}").expect("a valid template"),
        );
        let mut t =
            table::new(&["ns a request", "none", "10³", "10⁴", "10⁵", "10⁶", "growth", "merged", ""], &[""]);
        let mut lowest = vec![([f64::INFINITY; QUEUED.len()], f64::INFINITY, f64::NAN); configs.len()];
        for _ in 0..passes {
            for (config, (waiting, none, merged)) in configs.iter().zip(&mut lowest) {
                bar.set_message(config.name());
                for (i, queued) in QUEUED.into_iter().enumerate() {
                    let cost = measure(config, self.files, queued, self.requests, &mut clock);
                    waiting[i] = waiting[i].min(cost.nanos);
                    if i == AT {
                        *merged = cost.merged;
                    }
                }
                *none = none.min(lone(config, self.requests / 2, &mut clock));
                bar.inc(1);
            }
        }
        for (config, (waiting, none, merged)) in configs.iter().zip(lowest) {
            let mut cells = vec![config.name().to_owned(), format!("{none:.0}")];
            cells.extend(waiting.iter().map(|ns| format!("{ns:.0}")));
            let growth = waiting[QUEUED.len() - 1] / waiting[0];
            cells.extend([format!("{growth:.2}"), format!("{merged:.2}")]);
            cells.push(if waiting[AT] <= 250.0 && growth <= 3.0 { "met" } else { "NOT met" }.to_owned());
            t.add_row(cells);
        }
        bar.finish_and_clear();
        println!("{t}\n\nmet: ≤250 ns with 10⁵ waiting, and ≤3 times as long with 10⁶ as with 10³");
        Ok(ExitCode::SUCCESS)
    }
}
