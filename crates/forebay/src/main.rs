//! The command line. Each subcommand is one file in `cmd/`; what it does lives in the crates.

mod arbiter;
mod cmd;
mod output;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches, Parser};
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
            let counts = arg.get_value_parser().type_id() == std::any::TypeId::of::<u32>();
            let valued = counts || (!arg.is_positional() && arg.get_action().takes_values());
            arg.allow_negative_numbers(valued)
        };
        command.mut_args(number).mut_subcommands(numbers)
    }
    let mut command = numbers(Cli::command());
    let matches = command.try_get_matches_from_mut(std::env::args_os());
    let matches = matches.map_err(|e| without_hidden(&command, e))?;
    if is_of_person(&command, &matches) {
        warn_of_slips();
    }
    Cli::from_arg_matches(&matches).map_err(|e| e.format(&mut command))
}

/// An error that does not suggest what is no person's business.
fn without_hidden(command: &Command, mut error: clap::Error) -> clap::Error {
    fn hides(command: &Command, option: &str) -> bool {
        let mut args = command.get_arguments();
        args.any(|arg| arg.is_hide_set() && arg.get_long().is_some_and(|l| option == format!("--{l}")))
            || command.get_subcommands().any(|command| hides(command, option))
    }
    let shown = |name: &String| command.find_subcommand(name).is_none_or(|c| !c.is_hide_set());
    let mut names = match error.remove(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(names)) => names.into_iter().filter(shown).collect(),
        _ => Vec::new(),
    };
    // Of short ones it knows little.
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
        && names.is_empty()
        && std::env::args_os().nth(1).is_some_and(|first| first == word.as_str())
    {
        let all = command.get_subcommands().filter(|c| !c.is_hide_set()).map(|c| c.get_name().to_owned());
        names.extend(all.filter(|name| forebay_types::switches::slips_between(name, word) == 1));
    }
    if !names.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names));
    }
    if let Some(ContextValue::String(option)) = error.get(ContextKind::SuggestedArg)
        && hides(command, option)
    {
        error.remove(ContextKind::SuggestedArg);
    }
    error
}

/// Whether a person typed this: no other command of Forebay's started it, nor a launcher at each rank.
fn is_of_person(command: &Command, matches: &ArgMatches) -> bool {
    let Some((name, below)) = matches.subcommand() else { return true };
    let Some(found) = command.find_subcommand(name) else { return true };
    let ours = ["die_with_parent", "end_with_input", "announce"];
    let set = |flag: &str| matches!(below.try_get_one::<bool>(flag), Ok(Some(true)));
    !found.is_hide_set() && name != "join" && !ours.into_iter().any(set) && is_of_person(found, below)
}

/// Of variables that nobody reads, but that are nearly one that is.
fn warn_of_slips() {
    for name in std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()) {
        if let Some(known) = forebay_types::switches::meant(&name) {
            output::complain(&format!("warning: nothing reads {name}: is {known} meant?"));
        }
    }
}

/// Names go to I/O nodes and arbiters as text.
fn not_text() -> String {
    let odd = std::env::args_os().find(|arg| arg.to_str().is_none()).unwrap_or_default();
    format!("{odd:?} is not UTF-8, as names of directories, exports and jobs must be: give it another name")
}

fn main() -> ExitCode {
    forebay_embed::heed_file_size_limit();
    // What was not run has no status of its own that could be this.
    let failed = |code: i32| match std::env::args_os().nth(1) {
        Some(command) if command == "run" || command == "join" => forebay_run::NOT_STARTED,
        _ => u8::try_from(code).unwrap_or(2),
    };
    output::guarded(failed(1), || match parsed() {
        Ok(cli) => match forebay_types::switches::check(|name| std::env::var_os(name)) {
            Ok(()) => cli.command.run(),
            Err(why) => {
                output::complain(&why);
                Ok(failed(2).into())
            }
        },
        Err(e) if e.kind() == ErrorKind::InvalidUtf8 => {
            output::complain(&not_text());
            Ok(failed(2).into())
        }
        // Help and version go to standard output, which may be full or gone, too.
        Err(e) => Ok(match (e.exit_code(), e.print()) {
            (0, Ok(())) => ExitCode::SUCCESS,
            (0, Err(cause)) => output::lost(&cause),
            (code, _) => failed(code).into(),
        }),
    })
}
