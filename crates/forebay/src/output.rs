//! What the program says to a person: errors in one sentence, and a quiet end when nobody reads its
//! output any more. Commands print with `println!`; that it failed is found here, in one place.

use forebay_embed::lacks_thread;
pub(crate) use forebay_run::sentence;
use std::any::Any;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// As a shell reports a program that was ended by SIGPIPE.
const CLOSED_PIPE: u8 = 128 + 13;

/// How the standard library begins its panic when standard output or standard error cannot be written to.
const CANNOT_PRINT: [&str; 2] = ["failed printing to stdout: ", "failed printing to stderr: "];

/// Runs a command. If its output cannot be written, it is unwound, so that everything it started is
/// ended: quietly with status 141 where the reader has left, else with one sentence and status 1. Where there is
/// no thread for it, it ends at once with the status of what `failed`.
pub(crate) fn guarded(failed: u8, command: impl FnOnce() -> anyhow::Result<ExitCode>) -> ExitCode {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| match lacks_thread(info.payload()) {
        // Others may wait for this one, and whoever unwinds for them: it ends here.
        Some(why) => {
            complain(why);
            forebay_embed::tidy_and_exit(failed.into());
        }
        None if cannot_print(info.payload()).is_none() => usual(info),
        None => {}
    }));
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(command));
    match outcome {
        Ok(Ok(code)) => match std::io::stdout().flush() {
            // Whoever has failed has said so.
            Err(e) if code == ExitCode::SUCCESS => lost(&e),
            _ => code,
        },
        Ok(Err(e)) => {
            complain(&sentence(&e));
            ExitCode::from(1)
        }
        Err(payload) => match cannot_print(&*payload) {
            Some(why) if why.starts_with("Broken pipe") => ExitCode::from(CLOSED_PIPE),
            Some(why) => full(&why),
            None => std::panic::resume_unwind(payload),
        },
    }
}

/// The exit status when standard output cannot be written to.
pub(crate) fn lost(error: &std::io::Error) -> ExitCode {
    if error.kind() == ErrorKind::BrokenPipe {
        return ExitCode::from(CLOSED_PIPE);
    }
    full(&error.to_string())
}

fn full(why: &str) -> ExitCode {
    let why = if forebay_run::output_was_closed() { "it is closed" } else { why };
    complain(&format!("cannot write to standard output: {why}"));
    ExitCode::from(1)
}

/// An error for a person, on standard error; if nobody reads that, the exit status has to do.
pub(crate) fn complain(what: &str) {
    let _ = writeln!(std::io::stderr(), "forebay: {}", forebay_types::names::shown(what));
}

/// That a service is ready, to whoever may be listening: it serves all the same.
pub(crate) fn announce(to: impl std::os::fd::AsFd, what: &str) {
    let _ = rustix::io::write(to, format!("{what}\n").as_bytes());
}

/// Why printing failed, if that is what the panic is about.
fn cannot_print(payload: &(dyn Any + Send)) -> Option<String> {
    let text = payload.downcast_ref::<String>()?;
    CANNOT_PRINT.iter().find_map(|start| text.strip_prefix(start)).map(str::to_owned)
}
