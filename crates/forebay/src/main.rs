//! The command line. Each subcommand is one file in `cmd/`; what it does lives in the crates.

mod arbiter;
mod cmd;
mod output;

use clap::{Arg, Command, CommandFactory, FromArgMatches, Parser};
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

/// The command line. A negative number is an option's value, which may be out of its range, and no option.
fn parsed() -> Result<Cli, clap::Error> {
    fn numbers(command: Command) -> Command {
        let number = |arg: Arg| {
            let valued = !arg.is_positional() && arg.get_action().takes_values();
            arg.allow_negative_numbers(valued)
        };
        command.mut_args(number).mut_subcommands(numbers)
    }
    let mut command = numbers(Cli::command());
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    Cli::from_arg_matches(&matches).map_err(|e| e.format(&mut command))
}

fn main() -> ExitCode {
    forebay_embed::heed_file_size_limit();
    // What was not run has no status of its own that could be this.
    let failed = |code: i32| match std::env::args_os().nth(1) {
        Some(command) if command == "run" || command == "join" => forebay_run::NOT_STARTED,
        _ => u8::try_from(code).unwrap_or(2),
    };
    output::guarded(|| match parsed() {
        Ok(cli) => match forebay_types::switches::check(|name| std::env::var_os(name)) {
            Ok(()) => cli.command.run(),
            Err(why) => {
                output::complain(&why);
                Ok(failed(2).into())
            }
        },
        // Help and version go to standard output, which may be full or gone, too.
        Err(e) => Ok(match e.print() {
            Ok(()) if e.exit_code() == 0 => ExitCode::SUCCESS,
            Ok(()) => failed(e.exit_code()).into(),
            Err(cause) => output::lost(&cause),
        }),
    })
}
