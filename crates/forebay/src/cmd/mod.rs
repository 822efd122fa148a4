//! The subcommands. To add one: a file here with a clap `Args` struct that has
//! `run(self) -> anyhow::Result<ExitCode>`, a `mod` line, a variant, and an arm.

mod allocate;
mod analyze;
mod simulate;

use std::process::ExitCode;

/// What the user asked for.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    Allocate(allocate::Allocate),
    Simulate(simulate::Simulate),
    Analyze(analyze::Analyze),
}

impl Command {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Command::Allocate(c) => c.run(),
            Command::Simulate(c) => c.run(),
            Command::Analyze(c) => c.run(),
        }
    }
}
