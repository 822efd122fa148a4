//! Two builds of Forebay against each other, interleaved in one run.

use super::path::{Case, Kind, PathBench, all_cpus, measure, pin};
use super::{number, word};
use crate::Progress;
use crate::machine::program;
use anyhow::{Context, Result};
use forebay_embed::{Process, RunDir, Transport};
use forebay_plot::say;
use forebay_types::stats::median;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Measure this build against another one: the same program, through the `run` of each.
///
/// Both start an I/O node of their own for every repetition and process, in turns; the ratio is the median of the
/// repetitions' own ratios, and above 1 where this build is slower.
#[derive(Clone, Debug)]
pub struct Against {
    /// The other build's program.
    pub old: PathBuf,
    /// What is measured, where and how often.
    pub path: PathBench,
}

/// One kind of measurement, by both builds.
#[derive(Clone, Debug, Serialize)]
pub struct AgainstRow {
    /// What was measured.
    pub what: String,
    /// Of both.
    pub unit: &'static str,
    /// The other build.
    pub old: f64,
    /// This build.
    pub new: f64,
    /// How much more time this one takes, median of the repetitions.
    pub ratio: f64,
    /// No more than 3 % more.
    pub met: bool,
}

/// The measurements as a table for people.
pub fn against_table(rows: &[AgainstRow], repeat: usize) -> String {
    let mut out = format!(
        "medians of {repeat} interleaved repetitions; ratio: how much more time this build takes\n\n\
         {:<28} {:>5} {:>10} {:>10} {:>7}\n",
        "", "", "old", "new", "ratio"
    );
    for r in rows {
        let (old, new, ratio) = (number(r.old), number(r.new), number(r.ratio));
        let (what, unit, met) = (&r.what, r.unit, word(r.met));
        say!(out, "{what:<28} {unit:>5} {old:>10} {new:>10} {ratio:>7}  ≤ 1.03   {met}");
    }
    out
}

/// How much slower a row may be.
const MOST: f64 = 1.03;

impl Against {
    /// Measures.
    pub fn run(&self, progress: &dyn Progress) -> Result<Vec<AgainstRow>> {
        let (new, dir, temporary) = (program()?, RunDir::create(&self.path.dir)?, RunDir::for_others()?);
        let builds = [&self.old, &new];
        let cases = self.path.cases(|_| true, &[])?;
        // Before this process is bound to one.
        all_cpus();
        let repeat = self.path.repeat.max(1);
        progress.begin(cases.len() * repeat * 2);
        let mut rows = Vec::new();
        for case in &cases {
            progress.doing(case.what);
            let mut seen = [Vec::new(), Vec::new()];
            for round in 0..repeat {
                for i in 0..2 {
                    let which = (i + round) % 2;
                    let figure = self
                        .once(case, builds[which], &new, [dir.path(), temporary.path()])
                        .with_context(|| format!("{}: {}", builds[which].display(), case.what))?;
                    seen[which].push(figure);
                    progress.advance(1);
                }
            }
            rows.push(row(case, &seen));
        }
        Ok(rows)
    }

    fn once(&self, case: &Case, build: &Path, worker: &Path, [dir, temporary]: [&Path; 2]) -> Result<f64> {
        // Whom this process starts inherits where it may run.
        pin(None, &if case.pinned { vec![0] } else { all_cpus() })?;
        let transport = match self.path.transport {
            Transport::Tcp => "tcp",
            Transport::Unix => "unix",
        };
        let measured = measure(case, dir, |file| {
            let mut run = Command::new(build);
            run.env("TMPDIR", temporary);
            run.args(["run", "--quiet", "--transport", transport, "--at"]).arg(dir).arg("--");
            let inner = case.worker(worker, file);
            run.arg(inner.get_program()).args(inner.get_args());
            Process::start(run.stdin(Stdio::piped()).stdout(Stdio::piped())).context("cannot start a run")
        });
        pin(None, &all_cpus())?;
        measured
    }
}

fn row(case: &Case, seen: &[Vec<f64>; 2]) -> AgainstRow {
    let slower = |(old, new): (&f64, &f64)| match case.kind {
        Kind::Latency(_) => new / old,
        Kind::Throughput(_) | Kind::Rate(_) => old / new,
    };
    let ratio = median(&seen[0].iter().zip(&seen[1]).map(slower).collect::<Vec<_>>());
    let [old, new] = seen.each_ref().map(|times| median(times));
    AgainstRow { what: case.what.into(), unit: case.kind.unit(), old, new, ratio, met: ratio <= MOST }
}
