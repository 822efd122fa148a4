//! `forebay train`: detectors from labelled metrics, and how good they are.

use super::table;
use anyhow::{Context, bail};
use forebay_pattern::data::{self, Row, Split};
use forebay_pattern::train::{Trainer, importance, judge};
use forebay_pattern::{Confusion, Feature, Model, Pattern, synthetic};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Train the access pattern detectors and say how good they are.
///
/// Reads labelled metrics (CSV, one row per interval, flow and I/O node), trains a decision tree, a
/// random forest and a neural net on the request sizes and process counts chosen for training (70 %
/// to learn from, 30 % to test with), and validates them on the sizes and counts they have never
/// seen. Prints accuracy, Cohen's Kappa, confusion matrices, what each detector relies on, and how
/// long training and one prediction take.
///
/// With --out the detector of the kind chosen by --kind is written as a model file, which I/O nodes
/// and the arbiter load while running.
#[derive(clap::Args)]
#[command(after_long_help = "Examples:\n  \
    forebay train metrics.csv --out model.json\n  \
    forebay train metrics.csv --kind forest --out model.json --json > report.json\n  \
    forebay train --synthetic --features thesis")]
pub(crate) struct Train {
    /// Labelled metrics; several files are read as one.
    #[arg(value_name = "CSV", required_unless_present = "synthetic", conflicts_with = "synthetic")]
    files: Vec<PathBuf>,

    /// Use rows from a small model of processes and I/O nodes instead of measurements: a stand-in,
    /// and the model file says so.
    #[arg(long)]
    synthetic: bool,

    /// Write the rows as CSV, too.
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

#[derive(serde::Serialize)]
struct Report {
    source: String,
    train_rows: usize,
    test_rows: usize,
    validation_rows: usize,
    train_sizes: BTreeSet<u64>,
    train_processes: BTreeSet<u32>,
    detectors: Vec<DetectorReport>,
}

#[derive(serde::Serialize)]
struct DetectorReport {
    detector: &'static str,
    seconds_to_train: f64,
    microseconds_to_predict: f64,
    train: Score,
    test: Score,
    validation: Score,
    /// Validation rows of trained process counts but unseen request sizes, and the other way round.
    unseen_sizes: Score,
    unseen_processes: Score,
    importance: Vec<(Feature, f64)>,
}

#[derive(serde::Serialize)]
struct Score {
    accuracy: f64,
    kappa: f64,
    confusion: Confusion,
}

impl Train {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let (rows, source) = self.rows()?;
        if let Some(path) = &self.save_data {
            let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
            data::write_csv(BufWriter::new(file), &rows)
                .with_context(|| format!("cannot write {}", path.display()))?;
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
            if let Some(path) = &self.out {
                println!("\nmodel: {}", path.display());
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn rows(&self) -> anyhow::Result<(Vec<Row>, String)> {
        if self.synthetic {
            let rows = synthetic::rows(&synthetic::Plan::default(), self.seed);
            return Ok((rows, format!("synthetic rows, seed {}", self.seed)));
        }
        let mut rows = Vec::new();
        for path in &self.files {
            rows.extend(read(path)?);
        }
        let names: Vec<String> = self.files.iter().map(|f| f.display().to_string()).collect();
        Ok((rows, names.join(", ")))
    }
}

fn read(path: &Path) -> anyhow::Result<Vec<Row>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    data::read_csv(BufReader::new(file)).with_context(|| {
        format!(
            "{} is not a file of labelled metrics (columns: {})",
            path.display(),
            data::COLUMNS.join(", ")
        )
    })
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

fn assess(model: &Model, seconds_to_train: f64, split: &Split, seed: u64) -> DetectorReport {
    let all: Vec<&Row> = split.train.iter().chain(&split.test).chain(&split.validation).collect();
    let start = Instant::now();
    for row in &all {
        std::hint::black_box(model.detect(std::hint::black_box(&row.metrics)));
    }
    let microseconds_to_predict = start.elapsed().as_secs_f64() * 1e6 / all.len().max(1) as f64;
    let known_size = |r: &&Row| split.sizes.contains(&r.label.request_size);
    let known_count = |r: &&Row| split.processes.contains(&r.label.processes);
    DetectorReport {
        detector: model.kind().name(),
        seconds_to_train,
        microseconds_to_predict,
        train: score(judge(model, &split.train)),
        test: score(judge(model, &split.test)),
        validation: score(judge(model, &split.validation)),
        unseen_sizes: score(judge(model, split.validation.iter().filter(known_count))),
        unseen_processes: score(judge(model, split.validation.iter().filter(known_size))),
        importance: importance(model, &split.test, seed),
    }
}

fn score(confusion: Confusion) -> Score {
    Score { accuracy: confusion.accuracy(), kappa: confusion.kappa(), confusion }
}

fn print(report: &Report) {
    let sizes: Vec<String> = report.train_sizes.iter().map(|s| format!("{} KiB", s >> 10)).collect();
    let counts: Vec<String> = report.train_processes.iter().map(u32::to_string).collect();
    println!("data: {}", report.source);
    println!(
        "{} rows to train on, {} to test with (requests of {}; {} processes), {} to validate with (all others)\n",
        report.train_rows,
        report.test_rows,
        sizes.join(" and "),
        counts.join(", "),
        report.validation_rows
    );
    let header = [
        "detector",
        "train",
        "test",
        "validation",
        "Kappa",
        "unseen sizes",
        "unseen counts",
        "to train",
        "to predict",
    ];
    let mut summary = table::new(&header, &[]);
    let percent = |s: &Score| {
        if s.confusion.total() == 0 { "–".into() } else { format!("{:.2} %", s.accuracy * 100.0) }
    };
    for d in &report.detectors {
        summary.add_row([
            d.detector.to_string(),
            percent(&d.train),
            percent(&d.test),
            percent(&d.validation),
            format!("{:.4}", d.validation.kappa),
            percent(&d.unseen_sizes),
            percent(&d.unseen_processes),
            format!("{:.2} s", d.seconds_to_train),
            format!("{:.2} µs", d.microseconds_to_predict),
        ]);
    }
    println!("{summary}");
    for d in &report.detectors {
        let what = format!("{}: validation", d.detector);
        let mut header = vec![what.as_str()];
        header.extend(Pattern::ALL.iter().map(|p| p.short()));
        header.extend(["sensitivity", "specificity"]);
        let mut matrix = table::new(&header, &[]);
        let c = &d.validation.confusion;
        for was in Pattern::ALL.into_iter().filter(|&p| c.was(p) > 0) {
            let mut row = vec![format!("{was} ({})", was.short())];
            row.extend(c.counts[was.index()].iter().map(u64::to_string));
            row.extend([c.sensitivity(was), c.specificity(was)].map(|x| format!("{x:.4}")));
            matrix.add_row(row);
        }
        println!("\n{matrix}");
        let relied: Vec<String> = d
            .importance
            .iter()
            .filter(|(_, loss)| *loss > 0.001)
            .map(|(f, loss)| format!("{f} {:.1} %", loss * 100.0))
            .collect();
        println!("relies on (accuracy lost without it): {}", relied.join(", "));
    }
}
