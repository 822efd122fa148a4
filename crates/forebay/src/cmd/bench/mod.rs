//! `forebay bench`: what Forebay costs, measured on this machine against what bounds it.

mod limit;
mod path;
mod sched;
mod worker;

use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Measure Forebay on this machine.
#[derive(Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Path(path::PathBench),
    Sched(sched::SchedBench),
    #[command(hide = true)]
    Worker(worker::Worker),
    #[command(hide = true)]
    LimitServer(limit::LimitServer),
}

impl Bench {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.what {
            What::Path(b) => b.run(),
            What::Sched(b) => b.run(),
            What::Worker(w) => w.run(),
            What::LimitServer(s) => s.run(),
        }
    }
}
