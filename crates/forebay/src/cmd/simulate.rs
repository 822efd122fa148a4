//! `forebay simulate`: what-if without a machine.

mod decision;
mod dfra;
mod fit;
mod month;
mod policies;
mod queue;
mod requests;

use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Try schedulers and policies without a machine: requests, set studies, job queues, months of jobs
#[derive(Args)]
pub(crate) struct Simulate {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Requests(requests::Requests),
    Fit(fit::FitModel),
    Month(month::Simulated),
    Policies(policies::Policies),
    Queue(queue::Queue),
    Dfra(dfra::Replay),
    Decision(decision::Timed),
}

impl Simulate {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.what {
            What::Requests(c) => c.run(),
            What::Fit(c) => c.run(),
            What::Month(c) => c.run(),
            What::Policies(c) => c.run(),
            What::Queue(c) => c.run(),
            What::Dfra(c) => c.run(),
            What::Decision(c) => c.run(),
        }
    }
}

/// A progress bar on standard error; nothing where that is not a terminal.
fn progress(steps: u32, what: &str) -> indicatif::ProgressBar {
    let bar = indicatif::ProgressBar::new(u64::from(steps));
    let style = indicatif::ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len} ({eta})");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.set_message(what.to_owned());
    bar
}
