//! `forebay join`: a process of a job on a host that sees nothing of the one on which the job was started.

use crate::arbiter::SecretFile;
use crate::output::{complain, sentence};
use anyhow::Result;
use clap::{Args, ValueHint};
use forebay_run::Signals;
use std::ffi::OsString;
use std::process::ExitCode;

/// Run a process of a job where no directory is shared between the hosts.
///
/// Started by a launcher below `forebay run --arbiter`, in place of the program: it has the library with
/// it, finds the job in the environment, and makes the job's secret from the one in the file, as `forebay
/// run` did. Where the directory of the job is seen, the program is simply started.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  forebay run --arbiter https://arb:7410 --secret-file ~/secret \\
      --job j1 --share /tmp --at /scratch -- \\
      srun -n 64 forebay join --secret-file ~/secret -- ./app

Exit status:
  that of CMD; 128 + N if it was killed by signal N; 127 if it was not found, 126 if it
  could not be executed; 125 if there is no job to join.")]
pub(crate) struct Join {
    #[command(flatten)]
    secret: SecretFile,
    /// The program and its arguments, after `--`.
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

impl Join {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let signals = Signals::watch()?;
        match forebay_run::join(&self.command, || self.secret.read(), &signals) {
            Ok((code, notes)) => {
                for note in notes {
                    complain(&format!(
                        "{}: {}",
                        if note.path.is_empty() { &note.kind } else { &note.path },
                        note.why
                    ));
                }
                Ok(ExitCode::from(code))
            }
            Err(not_run) => {
                complain(&sentence(&not_run.why));
                Ok(ExitCode::from(not_run.code))
            }
        }
    }
}
