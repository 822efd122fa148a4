//! `forebay simulate month`: months of jobs on a large machine.

use crate::cmd::args;
use clap::Args;
use forebay_sim::fluid::Compared;
use forebay_sim::text;
use std::process::ExitCode;

/// Months of jobs on a machine like TaihuLight, under three mappings
///
/// Draws jobs from distributions of sizes, run times, volumes and modes that know nothing of any policy,
/// and runs them on 40,960 compute nodes and 240 I/O nodes: with the fixed map of 512 compute nodes to an
/// I/O node (80 of them), round robin over all 240, and DFRA with 160 in reserve. Prints what the DFRA
/// paper counted, beside its counts. Which of the distributions are published and which are assumed
/// stands in the source (`fluid/behaviour.rs`).
#[derive(Args)]
pub(crate) struct Simulated {
    /// How long
    #[arg(long, value_name = "DAYS", default_value_t = 30.0, value_parser = args::number(0.01..=2000.0))]
    days: f64,

    /// Which jobs are drawn
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = args::seed)]
    seed: u64,

    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

impl Simulated {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let compared = Compared::of(self.days, self.seed)?;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&compared.to_json())?);
        } else {
            print!("{}", text::month(&compared));
        }
        Ok(ExitCode::SUCCESS)
    }
}
