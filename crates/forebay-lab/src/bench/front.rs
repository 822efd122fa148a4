//! The front ends against each other, interleaved in one run: the mount, the mount with its accelerator, and the preload
//! library.

use super::path::{Case, Kind, PathBench, all_cpus, measure, pin};
use super::{number, word};
use crate::Progress;
use crate::machine::program;
use anyhow::{Context, Result, bail};
use forebay_embed::{Process, RunDir};
use forebay_plot::say;
use forebay_types::stats::median;
use serde::Serialize;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Measure the front ends against each other.
///
/// An unmodified program through `forebay run --via mount` without and with the accelerator, and `--via preload`, each with an
/// I/O node of its own over a Unix socket, in turns. Ratios are of time, against the preload library, medians of
/// the repetitions' own. Data makes a trip each, as in the other rows (`FOREBAY_STREAMS=off`).
#[derive(Clone, Debug)]
pub struct FrontEnds {
    /// Where and how often.
    pub path: PathBench,
}

/// One kind of measurement, by all three.
#[derive(Clone, Debug, Serialize)]
pub struct FrontRow {
    /// What was measured.
    pub what: String,
    /// Of the three.
    pub unit: &'static str,
    /// Through the mount alone.
    pub mount: f64,
    /// With the accelerator.
    pub accelerated: f64,
    /// Through the preload library.
    pub preload: f64,
    /// How many times the preload library's time the mount takes.
    pub mount_ratio: f64,
    /// And the accelerator.
    pub accelerated_ratio: f64,
    /// What they are held against.
    pub target: String,
    /// Whether they are.
    pub met: bool,
}

/// The measurements as a table for people.
pub fn front_table(rows: &[FrontRow], repeat: usize) -> String {
    let mut out = format!(
        "medians of {repeat} interleaved repetitions; ratios: time, against the preload library\n\n\
         {:<28} {:>5} {:>9} {:>7} {:>12} {:>7} {:>9}  {:<8}\n",
        "", "", "mount", "ratio", "accelerator", "ratio", "preload", "target"
    );
    for r in rows {
        let figures = [r.mount, r.mount_ratio, r.accelerated, r.accelerated_ratio, r.preload].map(number);
        let [mount, mount_ratio, accelerated, accelerated_ratio, preload] = figures;
        let (what, unit, target, met) = (&r.what, r.unit, &r.target, word(r.met));
        say!(
            out,
            "{what:<28} {unit:>5} {mount:>9} {mount_ratio:>7} {accelerated:>12} {accelerated_ratio:>7} {preload:>9}  \
             {target:<8} {met}"
        );
    }
    out
}

/// The arguments of `forebay run`, and what its accelerator is told.
const WAYS: [(&str, &str); 3] = [("mount", "off"), ("mount", "on"), ("preload", "off")];

/// Start-up: no more than this, in milliseconds.
const START_UP: f64 = 60.0;
const START_UP_ROW: &str = "start-up of a run";

/// What is run, where, and where it has its own files.
struct Runs {
    program: PathBuf,
    dir: RunDir,
    temporary: RunDir,
}

impl FrontEnds {
    /// Measures.
    pub fn run(&self, progress: &dyn Progress) -> Result<Vec<FrontRow>> {
        let cases = self.path.cases(is_measured, &[START_UP_ROW])?;
        let runs = Runs {
            program: program()?,
            dir: RunDir::create(&self.path.dir)?,
            temporary: RunDir::for_others()?,
        };
        let repeat = self.path.repeat.max(1);
        progress.begin((cases.len() + 1) * repeat * WAYS.len());
        let mut rows = Vec::new();
        for case in &cases {
            progress.doing(case.what);
            let seen = in_turns(repeat, progress, |way| {
                once(case, &runs, WAYS[way]).with_context(|| format!("{:?}: {}", WAYS[way], case.what))
            })?;
            rows.push(row(case, &seen));
        }
        if !self.path.wants(START_UP_ROW) {
            return Ok(rows);
        }
        progress.doing("start-up");
        let seen = in_turns(repeat, progress, |way| start_up(&runs, WAYS[way]))?;
        let [mount, accelerated, preload] = seen.each_ref().map(|times| median(times));
        rows.push(FrontRow {
            what: START_UP_ROW.into(),
            unit: "ms",
            mount,
            accelerated,
            preload,
            mount_ratio: mount / preload,
            accelerated_ratio: accelerated / preload,
            target: format!("≤ {START_UP} ms"),
            met: mount.max(accelerated) <= START_UP,
        });
        Ok(rows)
    }
}

/// One process, on whatever processor.
fn is_measured(case: &Case) -> bool {
    !case.pinned && case.processes == 1 && case.size != 64 << 10
}

/// Each repetition in another order.
fn in_turns(
    repeat: usize,
    progress: &dyn Progress,
    mut once: impl FnMut(usize) -> Result<f64>,
) -> Result<[Vec<f64>; 3]> {
    let mut seen = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..repeat {
        for i in 0..WAYS.len() {
            let way = (i + round) % WAYS.len();
            seen[way].push(once(way)?);
            progress.advance(1);
        }
    }
    Ok(seen)
}

fn forebay_run(Runs { program, dir, temporary }: &Runs, (via, accelerator): (&str, &str)) -> Command {
    let mut run = Command::new(program);
    run.args(["run", "--quiet", "--via", via, "--at"]).arg(dir.path()).arg("--");
    run.env("FOREBAY_ACCELERATOR", accelerator).env("TMPDIR", temporary.path());
    run
}

fn once(case: &Case, runs: &Runs, way: (&str, &str)) -> Result<f64> {
    pin(None, &all_cpus())?;
    measure(case, runs.dir.path(), |file| {
        let mut run = forebay_run(runs, way);
        let inner = case.worker(&runs.program, file);
        run.arg(inner.get_program()).args(inner.get_args());
        if !matches!(case.kind, Kind::Rate(_)) {
            run.env("FOREBAY_STREAMS", "off");
        }
        Process::start(run.stdin(Stdio::piped()).stdout(Stdio::piped())).context("cannot start a run")
    })
}

fn start_up(runs: &Runs, way: (&str, &str)) -> Result<f64> {
    let began = Instant::now();
    let status = Process::start(forebay_run(runs, way).arg("/bin/true").stdin(Stdio::null()))?.wait()?;
    if !status.success() {
        bail!("/bin/true through {way:?}: {status}");
    }
    Ok(began.elapsed().as_secs_f64() * 1e3)
}

fn row(case: &Case, seen: &[Vec<f64>; 3]) -> FrontRow {
    let more = |(ours, preload): (&f64, &f64)| match case.kind {
        Kind::Latency(_) => ours / preload,
        Kind::Throughput(_) | Kind::Rate(_) => preload / ours,
    };
    let ratio = |way: usize| median(&seen[way].iter().zip(&seen[2]).map(more).collect::<Vec<_>>());
    let (mount_ratio, accelerated_ratio) = (ratio(0), ratio(1));
    let (target, met) = match case.kind {
        Kind::Latency(_) => ("acc. ≤ 1.15".to_owned(), accelerated_ratio <= 1.15),
        Kind::Throughput(_) => ("acc. ≤ 1.05".to_owned(), accelerated_ratio <= 1.0 / 0.95),
        Kind::Rate(_) => ("≤ 4, acc. ≤ 1.3".to_owned(), mount_ratio <= 4.0 && accelerated_ratio <= 1.3),
    };
    let [mount, accelerated, preload] = seen.each_ref().map(|times| median(times));
    let unit = case.kind.unit();
    FrontRow {
        what: case.what.into(),
        unit,
        mount,
        accelerated,
        preload,
        mount_ratio,
        accelerated_ratio,
        target,
        met,
    }
}
