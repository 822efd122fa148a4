//! `forebay experiment`: the experiments of the sources on real I/O nodes, each in one command.

mod announcers;
mod arbiter;
mod failslow;
mod gluster;
mod ground;
mod isolation;
mod metadata;
mod overhead;
mod phases;
mod pool;
mod remap;
mod rewards;
mod storage;
mod tuning;
mod twins;
mod workload;

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueHint};
use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Repeat the experiments behind the request schedulers.
///
/// Each experiment runs real I/O nodes and real clients, prints its table and says whether the figures
/// it is held against were reached. Where no parallel file system is at hand, the nodes answer no
/// faster than emulated data servers would ("emulated storage": the data is really stored, the times
/// are a model's).
#[derive(Args)]
pub(crate) struct Experiment {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Twins(twins::TwinsArgs),
    Isolation(isolation::IsolationArgs),
    Metadata(metadata::MetadataArgs),
    Overhead(overhead::OverheadArgs),
    Gluster(gluster::GlusterArgs),
    Arbiter(arbiter::ArbiterArgs),
    Failslow(failslow::FailslowArgs),
    Phases(phases::PhasesArgs),
    Rewards(rewards::RewardsArgs),
    Tuning(tuning::TuningArgs),
    Announcers(announcers::AnnouncersArgs),
    Remap(remap::RemapArgs),
    #[command(hide = true)]
    RemapWorker(remap::RemapWorker),
}

impl Experiment {
    pub(crate) fn run(self) -> Result<ExitCode> {
        super::scratch::tidy_when_interrupted()?;
        match self.what {
            What::Twins(e) => e.run(),
            What::Isolation(e) => e.run(),
            What::Metadata(e) => e.run(),
            What::Overhead(e) => e.run(),
            What::Gluster(e) => e.run(),
            What::Arbiter(e) => e.run(),
            What::Failslow(e) => e.run(),
            What::Phases(e) => e.run(),
            What::Rewards(e) => e.run(),
            What::Tuning(e) => e.run(),
            What::Announcers(e) => e.run(),
            What::Remap(e) => e.run(),
            What::RemapWorker(w) => w.run(),
        }
    }
}

/// What every experiment is told.
#[derive(Args)]
struct Common {
    /// Write the figures (CSV) and the chart (SVG) here.
    #[arg(long, value_name = "DIR", default_value = "experiments", value_hint = ValueHint::DirPath)]
    out: PathBuf,
    /// The paper's size instead of the small setting, which takes less than five minutes.
    #[arg(long)]
    full: bool,
}

impl Common {
    /// Writes the figures and the chart, and says where.
    fn write(&self, name: &str, csv: &str, svg: &str) -> Result<()> {
        std::fs::create_dir_all(&self.out).with_context(|| format!("cannot make {}", self.out.display()))?;
        for (ending, text) in [("csv", csv), ("svg", svg)] {
            let path = self.out.join(format!("{name}.{ending}"));
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        println!("\nwritten: {}", self.out.join(format!("{name}.{{csv,svg}}")).display());
        Ok(())
    }
}

/// What an experiment with three sizes is told.
#[derive(Args)]
struct Scaled {
    #[command(flatten)]
    common: Common,
    /// Only see whether it works: a few seconds, and figures that mean nothing.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
}

impl Scaled {
    /// What belongs to the size asked for.
    fn sized<T>(&self, quick: T, small: T, full: T) -> T {
        match (self.quick, self.common.full) {
            (true, _) => quick,
            (_, true) => full,
            _ => small,
        }
    }
}

/// Rows of figures as CSV.
fn csv<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let mut text = header.join(",") + "\n";
    for row in rows {
        // Only parameters hold commas; they are quoted.
        let cell = |c: &String| if c.contains(',') { format!("\"{c}\"") } else { c.clone() };
        let _ = writeln!(text, "{}", row.iter().map(cell).collect::<Vec<_>>().join(","));
    }
    text
}

fn progress(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    let style = ProgressStyle::with_template("{msg:<40} {wide_bar} {pos}/{len} {eta} left");
    bar.set_style(style.expect("a valid template"));
    bar
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// One line of what was to be shown.
fn verdict(what: &str, met: bool) {
    println!("{} {what}", if met { "met:    " } else { "NOT met:" });
}

/// How busy the machine was: experiments with real time depend on it.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("load {} on {cores} cores", text.split(' ').next().unwrap_or("?"))
}
