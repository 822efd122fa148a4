//! `forebay train`: detectors from labelled metrics, and how good they are.

use super::args;
use super::lab::watched;
use forebay_lab::train::{self, Course, Plan, Source};
use forebay_pattern::Feature;
use std::path::PathBuf;
use std::process::ExitCode;

/// Train the access pattern detectors and say how good they are.
///
/// Without a CSV file, runs scenarios (operation, layout, spatiality, request size, processes, I/O
/// nodes) through real I/O node processes on this machine, one after the other, and labels what the
/// nodes saw of each with what was run: about 10 minutes, or less than one with --small. The nodes'
/// intervals are 0.1 s instead of the usual second, for ten times as many rows in the same time. The
/// rows are kept (see --save-data) and can be given again as CSV.
///
/// Trains a decision tree, a random forest and a neural net on the request sizes and process counts
/// chosen for training (70 % to learn from, 30 % to test with), and validates them on the sizes and
/// counts they have never seen. Prints accuracy, Cohen's Kappa, confusion matrices, what each detector
/// relies on, and how long training and one prediction take.
///
/// With --out the detector of the kind chosen by --kind is written as a model file, which the arbiter
/// loads while running.
#[derive(clap::Args)]
#[command(after_long_help = "Examples:\n  \
    forebay train --out model.json\n  \
    forebay train --at /mnt/pfs/scratch --save-data metrics.csv.gz\n  \
    forebay train metrics.csv.gz --kind forest --out model.json --json > report.json\n  \
    forebay train --synthetic --features thesis")]
pub(crate) struct Train {
    /// Labelled metrics (CSV, .gz or not; one row per interval, flow and I/O node) instead of new
    /// runs; several files are read as one.
    #[arg(value_name = "CSV", conflicts_with = "synthetic")]
    files: Vec<PathBuf>,

    /// Use rows from a small model of processes and I/O nodes instead of measurements: a stand-in,
    /// and the model file says so.
    #[arg(long)]
    synthetic: bool,

    /// The directory where the scenarios' files go while they run [default: a memory file system].
    #[arg(long, value_name = "DIR", conflicts_with_all = ["files", "synthetic"])]
    at: Option<PathBuf>,

    /// Run only so few scenarios that it takes less than a minute.
    #[arg(long, conflicts_with_all = ["files", "synthetic"])]
    small: bool,

    /// Write the rows as CSV, compressed if the name ends in .gz [default: metrics.csv.gz for new runs,
    /// else nowhere].
    #[arg(long, value_name = "CSV")]
    save_data: Option<PathBuf>,

    /// Write the trained model here.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Which detector to write.
    #[arg(long, default_value = "tree", value_parser = ["tree", "forest", "net"])]
    kind: String,

    /// Request sizes to train on, a plain number in KiB; rows of other sizes validate.
    #[arg(long, value_name = "KIB,...", value_delimiter = ',', default_value = "32,256", value_parser = args::kib)]
    train_kib: Vec<u64>,

    /// Process counts to train on; rows of other counts validate [default: every other count in the
    /// data, from the smallest].
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = args::count::<u32>(1..=100_000_000))]
    train_processes: Vec<u32>,

    /// What the detectors look at: what does not depend on request size and process count, the five
    /// metrics of the thesis (which do), or both.
    #[arg(long, default_value = "scale-free", value_parser = ["scale-free", "thesis", "all"])]
    features: String,

    /// Seed of everything random; the same seed and data give the same models.
    #[arg(long, default_value_t = 1, value_parser = args::seed)]
    seed: u64,

    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

impl Train {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let source = self.source();
        let measured = matches!(source, Source::Runs { .. });
        if measured {
            forebay_run::not_within()?;
        }
        let kept = self.save_data.clone().or_else(|| measured.then(|| "metrics.csv.gz".into()));
        let course = Course {
            sizes: self.train_kib.iter().map(|k| k.saturating_mul(1024)).collect(),
            processes: self.train_processes.iter().copied().collect(),
            features: Feature::called(&self.features).to_vec(),
            seed: self.seed,
        };
        for path in kept.iter().chain(&self.out) {
            forebay_lab::can_write(path, &self.files)?;
        }
        if let (Some(out), Some(rows)) = (&self.out, &kept) {
            forebay_lab::apart(("--out", out), ("--save-data", rows))?;
        }
        forebay_lab::no_twins(&self.files)?;
        let report = watched(|progress| {
            let (rows, from) = source.rows(self.seed, progress)?;
            if let Some(path) = &kept {
                train::write(path, &rows)?;
            }
            course.run(rows, from, progress, |trainer, model| match &self.out {
                Some(path) if trainer.name() == self.kind => forebay_lab::put(path, model.to_json()),
                _ => Ok(()),
            })
        })?;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            print!("{}", train::text(&report));
            for (what, path) in [("rows", &kept), ("model", &self.out)] {
                if let Some(path) = path {
                    println!("\n{what}: {}", path.display());
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn source(&self) -> Source {
        if self.synthetic {
            Source::Synthetic
        } else if self.files.is_empty() {
            let plan = if self.small { Plan::small() } else { Plan::full() };
            Source::Runs { plan, at: self.at.clone().unwrap_or_else(forebay_embed::memory) }
        } else {
            Source::Files(self.files.clone())
        }
    }
}
