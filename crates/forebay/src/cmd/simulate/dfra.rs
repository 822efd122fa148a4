//! `forebay simulate dfra`: a synthetic history through DFRA.

use super::progress;
use crate::cmd::table;
use clap::Args;
use forebay_policy::dfra::DfraConfig;
use forebay_sim::taihulight::{self, TABLE_4};
use forebay_types::Nanos;
use rustix::time::{ClockId, clock_gettime};
use std::process::ExitCode;

/// A synthetic history of a large machine through DFRA
///
/// Draws jobs in the proportions of the DFRA paper's Table 4 (TaihuLight: 40,960 compute nodes, 240
/// I/O nodes) and dispatches them one by one, first come first served. Shows how many passed the
/// test for more I/O nodes or failed it and where, what was decided, and how long a decision took.
#[derive(Args)]
pub(crate) struct Replay {
    /// Jobs to draw
    #[arg(long, value_name = "N", default_value_t = TABLE_4.jobs, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    jobs: u32,

    /// Which jobs are drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

impl Replay {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let bar = progress(self.jobs, "jobs");
        let replay =
            taihulight::replay(self.jobs, self.seed, DfraConfig::default(), cpu_time, || bar.inc(1))?;
        bar.finish_and_clear();
        if self.json {
            println!("{}", serde_json::to_string_pretty(&replay)?);
            return Ok(ExitCode::SUCCESS);
        }
        let mut screening = table::new(&["eligibility", "jobs", "%", "published", "%"], &[]);
        let (ours, theirs) = (&replay.screening, &TABLE_4);
        for (name, a, b) in [
            ("all", ours.jobs, theirs.jobs),
            ("benefits from more I/O nodes", ours.benefit, theirs.benefit),
            ("volume < V_min (20 GB)", ours.volume, theirs.volume),
            ("nodes doing I/O < N_min (32)", ours.parallelism, theirs.parallelism),
            ("metadata queue ≥ W_metadata (32)", ours.metadata, theirs.metadata),
        ] {
            let percent = |n: u32, of: u32| format!("{:.1}", 100.0 * f64::from(n) / f64::from(of));
            screening.add_row([
                name.to_owned(),
                a.to_string(),
                percent(a, ours.jobs),
                b.to_string(),
                percent(b, theirs.jobs),
            ]);
        }
        println!("{screening}\n");
        println!(
            "Decided: {} scaled up, {} isolated, {} left with the default, {} wanted more than was idle",
            replay.scaled, replay.isolated, replay.default, replay.none_idle
        );
        println!(
            "I/O nodes in use: {:.0} in the median, {:.0} at most, of {}; {:.0} jobs at once in the median",
            replay.io_nodes_in_use.median,
            replay.io_nodes_in_use.max,
            taihulight::IO_NODES,
            replay.running.median
        );
        println!(
            "Those who benefit use {:.1} % of the node hours (published: 79.0 % of the core hours)",
            100.0 * replay.benefit_node_hours
        );
        println!(
            "A decision took {:.0} µs of processor time in the median, {:.0} µs at the 99th percentile, {:.0} µs at most",
            replay.decision_us.median, replay.decision_us_p99, replay.decision_us.max
        );
        Ok(ExitCode::SUCCESS)
    }
}

/// What this thread has used of a processor: on a busy machine, waiting for one is no part of a
/// decision.
fn cpu_time() -> Nanos {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    Nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}
