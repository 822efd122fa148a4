//! `forebay simulate dfra`: a synthetic history through DFRA.

use super::progress;
use clap::Args;
use forebay_policy::dfra::DfraConfig;
use forebay_sim::taihulight::{self, TABLE_4};
use forebay_sim::text;
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
    #[arg(long, value_name = "N", default_value_t = TABLE_4.jobs, value_parser = crate::cmd::args::count::<u32>(1..=10_000_000))]
    jobs: u32,

    /// Which jobs are drawn
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = crate::cmd::args::seed)]
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
        print!("{}", text::dfra(&replay));
        Ok(ExitCode::SUCCESS)
    }
}

/// What this thread has used of a processor: on a busy machine, waiting for one is no part of a
/// decision.
pub(super) fn cpu_time() -> Nanos {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    Nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}
