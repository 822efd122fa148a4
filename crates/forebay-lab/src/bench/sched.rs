//! Schedulers: what every scheduler costs, by how many requests wait.

use crate::Progress;
use crate::experiment::Experiment;
use crate::outcome::{Outcome, Table};
use anyhow::Result;
use forebay_sched::SchedulerConfig;
use forebay_sched::bench::{FILES, QUEUED, lone, measure};
use forebay_types::Nanos;
use rustix::time::{ClockId, clock_gettime};

/// Which of [`QUEUED`] the cost is judged at.
const AT: usize = 2;

/// Measure the schedulers: nanoseconds for one request in and out.
///
/// For every scheduler with 10³ to 10⁶ requests waiting, and for a request that finds nothing waiting;
/// in processor time of one thread, the median over blocks of requests, and the lowest of several passes
/// over everything: neighbours on the machine, who take room in its caches, only ever add. Held against
/// 250 ns at 10⁵ and a growth of three from 10³ to 10⁶.
#[derive(Clone, Debug)]
pub struct SchedBench {
    /// Only this scheduler.
    pub scheduler: Option<SchedulerConfig>,
    /// How many files the requests are to.
    pub files: usize,
    /// Requests per measurement.
    pub requests: usize,
    /// Passes over everything.
    pub passes: usize,
}

impl Default for SchedBench {
    fn default() -> SchedBench {
        SchedBench { scheduler: None, files: FILES, requests: 400_000, passes: 5 }
    }
}

impl Experiment for SchedBench {
    fn run(&self, progress: &dyn Progress) -> Result<Outcome> {
        // The time of this thread alone, so that neighbours count less.
        let mut clock = || {
            let t = clock_gettime(ClockId::ThreadCPUTime);
            Nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
        };
        let configs = match self.scheduler.clone() {
            Some(one) => vec![one],
            None => SchedulerConfig::NAMES.iter().map(|n| n.parse()).collect::<Result<Vec<_>, _>>()?,
        };
        let passes = self.passes.max(1);
        progress.begin(passes * configs.len());
        let mut t = Table::new(["ns a request", "none", "10³", "10⁴", "10⁵", "10⁶", "growth", "merged", ""])
            .words("");
        let mut lowest = vec![([f64::INFINITY; QUEUED.len()], f64::INFINITY, f64::NAN); configs.len()];
        for _ in 0..passes {
            for (config, (waiting, none, merged)) in configs.iter().zip(&mut lowest) {
                progress.doing(config.name());
                for (i, queued) in QUEUED.into_iter().enumerate() {
                    let cost = measure(config, self.files, queued, self.requests, &mut clock);
                    waiting[i] = waiting[i].min(cost.nanos);
                    if i == AT {
                        *merged = cost.merged;
                    }
                }
                *none = none.min(lone(config, self.requests / 2, &mut clock));
                progress.advance(1);
            }
        }
        for (config, (waiting, none, merged)) in configs.iter().zip(lowest) {
            let mut cells = vec![config.name().to_owned(), format!("{none:.0}")];
            cells.extend(waiting.iter().map(|ns| format!("{ns:.0}")));
            let growth = waiting[QUEUED.len() - 1] / waiting[0];
            cells.extend([format!("{growth:.2}"), format!("{merged:.2}")]);
            cells.push(if waiting[AT] <= 250.0 && growth <= 3.0 { "met" } else { "NOT met" }.to_owned());
            t.row(cells);
        }
        let mut found = Outcome::default();
        found.table(t);
        found.line("met: ≤250 ns with 10⁵ waiting, and ≤3 times as long with 10⁶ as with 10³");
        Ok(found)
    }
}
