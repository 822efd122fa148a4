//! The command line. Each subcommand is one file in `cmd/`; what it does lives in the crates.

mod cmd;
mod report;

use clap::Parser;
use std::process::ExitCode;

/// I/O forwarding on demand: an unmodified program's I/O goes through I/O nodes.
#[derive(Parser)]
#[command(name = "forebay", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: cmd::Command,
}

fn main() -> ExitCode {
    match Cli::parse().command.run() {
        Ok(code) => code,
        Err(e) => {
            eprintln!("forebay: {e:#}");
            ExitCode::from(1)
        }
    }
}
