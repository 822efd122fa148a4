//! What all commands of the laboratory share: progress on the terminal, and what was found.

use anyhow::{Context, Result};
use forebay_lab::experiment::Experiment;
use forebay_lab::{Finding, Outcome, Progress, Verdict};
use forebay_plot::table;
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
    let found = watched(|progress| experiment.run(progress))?;
    print(&found.findings);
    if let Some(out) = out {
        write(&found, out)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Sentences and verdicts line by line, tables with a blank line around them.
fn print(findings: &[Finding]) {
    let mut after_table = false;
    for (i, finding) in findings.iter().enumerate() {
        let is_table = matches!(finding, Finding::Table(_));
        if i > 0 && (is_table || after_table) {
            println!();
        }
        after_table = is_table;
        match finding {
            Finding::Line(text) => println!("{text}"),
            Finding::Verdict(verdict, what) => println!("{} {what}", word(*verdict)),
            Finding::Table(t) => {
                let words: Vec<&str> = t.words.iter().map(String::as_str).collect();
                let mut table = table::new(&t.header, &words);
                for row in &t.rows {
                    table.add_row(row);
                }
                println!("{table}");
            }
        }
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Met => "met:    ",
        Verdict::NotMet => "NOT met:",
        Verdict::Unclear => "unclear:",
    }
}

/// Writes the files, and says where.
fn write(found: &Outcome, out: &Path) -> Result<()> {
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    for (name, text) in &found.files {
        let path = out.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let names: Vec<&str> = found.files.iter().map(|(name, _)| name.as_str()).collect();
    println!("\nwritten: {}", out.join(format!("{{{}}}", names.join(","))).display());
    Ok(())
}
