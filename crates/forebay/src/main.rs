//! The command line. Each subcommand is one file in `cmd/`; what it does lives in the crates.

mod arbiter;
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
    let command = Cli::parse().command;
    if command.only_prints() {
        die_of_broken_pipes();
    }
    match command.run() {
        Ok(code) => code,
        Err(e) => {
            eprintln!("forebay: {e:#}");
            ExitCode::from(1)
        }
    }
}

/// `forebay analyze … | head` ends quietly, as other programs do. Not for commands that have I/O
/// nodes to take down first.
fn die_of_broken_pipes() {
    // SAFETY: before any thread is started; the default action needs no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}
