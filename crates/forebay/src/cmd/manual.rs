//! `forebay completions` and `forebay man`: what a shell and a manual reader need.

use anyhow::{Context, Result};
use clap::{Args, Command, CommandFactory, ValueHint};
use std::path::PathBuf;
use std::process::ExitCode;

/// Print the completion script for a shell.
///
/// For bash: `forebay completions bash > ~/.local/share/bash-completion/completions/forebay`.
#[derive(Args)]
pub(crate) struct Completions {
    /// Which shell.
    shell: clap_complete::Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Result<ExitCode> {
        // In memory first: the generator takes it ill when its output cannot be written.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut shown(&crate::Cli::command()), "forebay", &mut script);
        print!("{}", String::from_utf8_lossy(&script));
        Ok(ExitCode::SUCCESS)
    }
}

/// A command without what is hidden.
fn shown(all: &Command) -> Command {
    let about = all.get_about().cloned().unwrap_or_default();
    Command::new(all.get_name().to_owned())
        .about(about)
        .args(all.get_arguments().filter(|arg| !arg.is_hide_set()).cloned())
        .subcommands(all.get_subcommands().filter(|command| !command.is_hide_set()).map(shown))
}

/// Write the manual pages, one for each command.
#[derive(Args)]
pub(crate) struct Man {
    /// The directory to write them to, for example ~/.local/share/man/man1.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    dir: PathBuf,
}

impl Man {
    pub(crate) fn run(self) -> Result<ExitCode> {
        std::fs::create_dir_all(&self.dir)
            .and_then(|()| clap_mangen::generate_to(crate::Cli::command(), &self.dir))
            .with_context(|| format!("cannot write to {}", self.dir.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}
