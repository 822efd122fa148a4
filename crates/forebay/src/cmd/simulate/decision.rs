//! `forebay simulate decision`: how long one decision takes.

use clap::Args;
use std::process::ExitCode;

/// How long one decision takes at scale
///
/// Draws random jobs (8 to 1,024 compute nodes, bandwidths at 0, 1, 2, 4 and 8 I/O nodes) and times
/// one decision of every policy. MCKP and FAIR are exact: dynamic programming over the pool size, two
/// rolling rows of totals and two bytes a cell for the way back.
#[derive(Args)]
pub(crate) struct Timed {
    /// Jobs to draw
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = crate::cmd::args::count::<u32>(1..=100_000))]
    jobs: u32,

    /// I/O nodes
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = crate::cmd::args::count::<u32>(1..=1_000_000))]
    io_nodes: u32,

    /// Which jobs are drawn
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = crate::cmd::args::seed)]
    seed: u64,
}

impl Timed {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let timed = forebay_sim::decision::time(self.jobs, self.io_nodes, self.seed)?;
        println!("One decision for {} jobs and {} I/O nodes", self.jobs, self.io_nodes);
        print!("{}", forebay_sim::text::decisions(&timed));
        Ok(ExitCode::SUCCESS)
    }
}
