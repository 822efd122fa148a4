//! The command line. Each subcommand is one file in `cmd/`; what it does lives in the crates.

mod arbiter;
mod cmd;
mod output;

use clap::Parser;
use std::process::ExitCode;

/// I/O forwarding on demand: an unmodified program's I/O goes through I/O nodes.
#[derive(Parser)]
#[command(name = "forebay", version = env!("FOREBAY_VERSION"), propagate_version = true)]
#[cfg_attr(
    not(all(feature = "arbiter", feature = "lab", feature = "manual")),
    command(after_help = "This program was built without some commands: cargo build --release builds all.")
)]
struct Cli {
    #[command(subcommand)]
    command: cmd::Command,
}

fn main() -> ExitCode {
    output::guarded(|| match Cli::try_parse() {
        Ok(cli) => cli.command.run(),
        // Help and version go to standard output, which may be full or gone, too.
        Err(e) => Ok(match e.print() {
            // What was not run has no status of its own that could be this.
            Ok(()) if e.exit_code() != 0 && std::env::args_os().nth(1).is_some_and(|c| c == "run") => {
                ExitCode::from(forebay_run::NOT_STARTED)
            }
            Ok(()) => ExitCode::from(u8::try_from(e.exit_code()).unwrap_or(2)),
            Err(cause) => output::lost(&cause),
        }),
    })
}
