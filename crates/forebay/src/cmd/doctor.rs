//! `forebay doctor`: what works on this machine for this program, before it is run.

use anyhow::Result;
use clap::{Args, ValueHint};
use forebay_client::Address;
use std::ffi::OsString;
use std::process::ExitCode;

/// Look whether a program's I/O can be forwarded on this machine, and how.
///
/// Every line says what was found and, where something is missing, what to do about it. Nothing is
/// changed and the program is not run.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  forebay doctor
  forebay doctor -- ./simulation
  forebay doctor --node tcp:10.0.0.7:7411 -- mpirun ./app

Exit status:
  0 if the program can be run with its I/O forwarded, 1 if not.")]
pub(crate) struct Doctor {
    /// See whether this I/O node can be reached. May be repeated.
    #[arg(long, value_name = "ADDRESS")]
    node: Vec<Address>,
    /// The program to look at.
    #[arg(value_name = "CMD", trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

impl Doctor {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let diagnosis = forebay_run::doctor::examine(&self.node, &self.command);
        for f in &diagnosis.findings {
            let sign = if f.good { "ok" } else { "no" };
            let then = if f.then.is_empty() { String::new() } else { format!(": {}", f.then) };
            println!("{sign}  {}{then}", f.what);
        }
        Ok(ExitCode::from(u8::from(!diagnosis.works)))
    }
}
