//! Why a program did not run, and the exit status that says so.

use std::io::ErrorKind;

/// The exit status of a run whose program was not started.
pub const NOT_STARTED: u8 = 125;

/// The program did not run.
#[derive(Debug)]
pub struct NotRun {
    /// The exit status that says so: 125, or as [`not_executed`] has it where it was the program's fault.
    pub code: u8,
    /// Why.
    pub why: anyhow::Error,
}

impl From<anyhow::Error> for NotRun {
    fn from(why: anyhow::Error) -> NotRun {
        NotRun { code: NOT_STARTED, why }
    }
}

/// The exit status of a program that could not be executed, as shells, `env` and `timeout` have it: 127 if it was not
/// found, 126 if it was.
pub(crate) fn not_executed(why: &anyhow::Error) -> u8 {
    let missing = |e: &std::io::Error| e.kind() == ErrorKind::NotFound;
    if why.root_cause().downcast_ref().is_some_and(missing) { 127 } else { 126 }
}
