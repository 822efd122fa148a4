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

/// Measure the schedulers: nanoseconds for one request in and out.
///
/// For every scheduler with 10³ to 10⁶ requests waiting, and for a request that finds nothing waiting;
/// in processor time of one thread, the median over blocks of requests. Held against 250 ns at 10⁵ and
/// a growth of three from 10³ to 10⁶.
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
        let bar = ProgressBar::new(configs.len() as u64);
        bar.set_style(
            ProgressStyle::with_template("{msg:<12} {wide_bar} {pos}/{len}").expect("a valid template"),
        );
        let mut t =
            table::new(&["ns a request", "none", "10³", "10⁴", "10⁵", "10⁶", "growth", "merged", ""], &[""]);
        for config in &configs {
            bar.set_message(config.name());
            let costs = QUEUED.map(|queued| measure(config, self.files, queued, self.requests, &mut clock));
            let mut cells = vec![config.name().to_owned()];
            cells.push(format!("{:.0}", lone(config, self.requests / 2, &mut clock)));
            cells.extend(costs.iter().map(|c| format!("{:.0}", c.nanos)));
            let growth = costs[3].nanos / costs[0].nanos;
            cells.extend([format!("{growth:.2}"), format!("{:.2}", costs[2].merged)]);
            cells.push(if costs[2].nanos <= 250.0 && growth <= 3.0 { "met" } else { "NOT met" }.to_owned());
            t.add_row(cells);
            bar.inc(1);
        }
        bar.finish_and_clear();
        println!("{t}\n\nmet: ≤250 ns with 10⁵ waiting, and ≤3 times as long with 10⁶ as with 10³");
        Ok(ExitCode::SUCCESS)
    }
}
