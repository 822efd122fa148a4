//! `forebay train`: detectors from labelled metrics, and how good they are.

mod measure;
mod report;

use anyhow::{Context, bail};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use forebay_pattern::data::{self, Row, Split};
use forebay_pattern::train::Trainer;
use forebay_pattern::{Feature, Model, synthetic};
use indicatif::{ProgressBar, ProgressStyle};
use report::{Report, assess, print};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

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
    #[arg(long, value_enum, default_value = "tree")]
    kind: KindArg,

    /// Request sizes to train on, in KiB; rows of other sizes validate.
    #[arg(long, value_name = "KIB,...", value_delimiter = ',', default_value = "32,256")]
    train_kib: Vec<u64>,

    /// Process counts to train on; rows of other counts validate [default: every other count in the
    /// data, from the smallest].
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    train_processes: Vec<u32>,

    /// What the detectors look at: what does not depend on request size and process count, the five
    /// metrics of the thesis (which do), or both.
    #[arg(long, value_enum, default_value = "scale-free")]
    features: FeaturesArg,

    /// Seed of everything random; the same seed and data give the same models.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum KindArg {
    Tree,
    Forest,
    Net,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum FeaturesArg {
    ScaleFree,
    Thesis,
    All,
}

impl Train {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let Some((rows, source)) = self.rows()? else { return Ok(ExitCode::from(130)) };
        let measured = !self.synthetic && self.files.is_empty();
        let kept = self.save_data.clone().or_else(|| measured.then(|| "metrics.csv.gz".into()));
        if let Some(path) = &kept {
            write(path, &rows).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let sizes: BTreeSet<u64> = self.train_kib.iter().map(|k| k.saturating_mul(1024)).collect();
        let processes = match self.train_processes.as_slice() {
            [] => data::alternate_processes(&rows),
            given => given.iter().copied().collect(),
        };
        let split = Split::new(rows, sizes, processes, self.seed);
        if split.train.is_empty() {
            bail!(
                "no row has a request size and a process count to train on: see --train-kib and --train-processes"
            );
        }
        let features: &[Feature] = match self.features {
            FeaturesArg::ScaleFree => &Feature::SCALE_FREE,
            FeaturesArg::All => &Feature::ALL,
            FeaturesArg::Thesis => &Feature::THESIS,
        };
        let mut report = Report {
            source: source.clone(),
            train_rows: split.train.len(),
            test_rows: split.test.len(),
            validation_rows: split.validation.len(),
            train_sizes: split.sizes.clone(),
            train_processes: split.processes.clone(),
            detectors: Vec::new(),
        };
        for (trainer, kind) in Trainer::ALL.into_iter().zip([KindArg::Tree, KindArg::Forest, KindArg::Net]) {
            let (model, seconds) = train(trainer, &split, features, &source, self.seed)?;
            report.detectors.push(assess(&model, seconds, &split, self.seed));
            if let Some(path) = self.out.as_ref().filter(|_| kind == self.kind) {
                std::fs::write(path, model.to_json())
                    .with_context(|| format!("cannot write {}", path.display()))?;
            }
        }
        if self.json {
            println!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            print(&report);
            for (what, path) in [("rows", &kept), ("model", &self.out)] {
                if let Some(path) = path {
                    println!("\n{what}: {}", path.display());
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The rows and where they come from; `None` after Ctrl-C.
    fn rows(&self) -> anyhow::Result<Option<(Vec<Row>, String)>> {
        if self.synthetic {
            let rows = synthetic::rows(&synthetic::Plan::default(), self.seed);
            return Ok(Some((rows, format!("synthetic rows, seed {}", self.seed))));
        }
        if self.files.is_empty() {
            let plan = if self.small { measure::Plan::small() } else { measure::Plan::full() };
            let at = self.at.clone().unwrap_or_else(super::scratch::memory);
            let measured = measure::measure(&plan, &at, self.seed)?;
            return Ok(measured.map(|(rows, runs)| {
                let source = format!(
                    "{} intervals of {} ms from {runs} runs through real I/O nodes",
                    rows.len(),
                    measure::INTERVAL_MS
                );
                (rows, source)
            }));
        }
        let mut rows = Vec::new();
        for path in &self.files {
            rows.extend(read(path)?);
        }
        let names: Vec<String> = self.files.iter().map(|f| f.display().to_string()).collect();
        Ok(Some((rows, names.join(", "))))
    }
}

fn read(path: &Path) -> anyhow::Result<Vec<Row>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let file = BufReader::new(file);
    let text: Box<dyn Read> = if is_gz(path) { Box::new(GzDecoder::new(file)) } else { Box::new(file) };
    data::read_csv(text).with_context(|| {
        format!(
            "{} is not a file of labelled metrics (columns: {})",
            path.display(),
            data::COLUMNS.join(", ")
        )
    })
}

fn is_gz(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "gz")
}

fn write(path: &Path, rows: &[Row]) -> anyhow::Result<()> {
    let file = BufWriter::new(File::create(path)?);
    if is_gz(path) {
        let mut packed = GzEncoder::new(file, Compression::best());
        data::write_csv(&mut packed, rows)?;
        packed.finish()?;
    } else {
        data::write_csv(file, rows)?;
    }
    Ok(())
}

fn train(
    trainer: Trainer,
    split: &Split,
    features: &[Feature],
    source: &str,
    seed: u64,
) -> anyhow::Result<(Model, f64)> {
    let bar = ProgressBar::new(100);
    let what = match trainer {
        Trainer::Tree => "decision tree",
        Trainer::Forest => "random forest",
        Trainer::Net => "neural net",
    };
    if let Ok(style) = ProgressStyle::with_template("training the {msg} {wide_bar} {percent} %") {
        bar.set_style(style);
    }
    bar.set_message(what);
    let start = Instant::now();
    let model = trainer
        .train(&split.train, features, source, seed, &mut |done| bar.set_position((done * 100.0) as u64))?;
    let seconds = start.elapsed().as_secs_f64();
    bar.finish_and_clear();
    Ok((model, seconds))
}
