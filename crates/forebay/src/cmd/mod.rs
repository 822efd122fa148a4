//! The subcommands. To add one: a file here with a clap `Args` struct that has
//! `run(self) -> anyhow::Result<ExitCode>`, a `mod` line, a variant, and an arm.

use std::process::ExitCode;

/// What the user asked for.
#[derive(clap::Subcommand)]
pub(crate) enum Command {}

impl Command {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {}
    }
}
