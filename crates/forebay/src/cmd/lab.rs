//! What all commands of the laboratory share: progress on the terminal, and what was found.

use anyhow::{Context, Result};
use forebay_lab::Progress;
use forebay_lab::experiment::Experiment;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::Path;
use std::process::ExitCode;

/// A bar on the terminal.
pub(super) struct Bar(ProgressBar);

impl Bar {
    pub(super) fn new() -> Bar {
        let bar = ProgressBar::new(1);
        let style = ProgressStyle::with_template("{msg:<40} {wide_bar} {pos}/{len} {eta} left");
        bar.set_style(style.expect("a valid template"));
        Bar(bar)
    }
}

impl Progress for Bar {
    fn begin(&self, steps: usize) {
        self.0.reset();
        self.0.set_length(steps as u64);
    }

    fn doing(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    fn advance(&self, steps: usize) {
        self.0.inc(steps as u64);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Runs something, with its progress on the terminal. Whoever interrupts it finds nothing left behind.
pub(super) fn watched<T>(run: impl FnOnce(&dyn Progress) -> Result<T>) -> Result<T> {
    forebay_embed::tidy_when_interrupted().context("cannot watch for Ctrl-C")?;
    run(&Bar::new())
}

/// Carries out an experiment, prints what it found, and writes its files to `out`, if anywhere.
pub(super) fn carry_out(experiment: &dyn Experiment, out: Option<&Path>) -> Result<ExitCode> {
    if let Some(out) = out {
        forebay_lab::can_write_below(out)?;
    }
    forebay_run::not_within()?;
    let found = watched(|progress| experiment.run(progress))?;
    // What is promised is kept before anything is said: whoever listens may be gone.
    let written = out.map(|out| found.write(out)).transpose()?;
    print!("{found}");
    if let Some(written) = written {
        println!("\nwritten: {written}");
    }
    Ok(ExitCode::SUCCESS)
}
