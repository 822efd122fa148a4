//! What is said about trained detectors.

use crate::cmd::table;
use forebay_pattern::data::{Row, Split};
use forebay_pattern::train::{importance, judge};
use forebay_pattern::{Confusion, Feature, Model, Pattern};
use std::collections::BTreeSet;
use std::time::Instant;

#[derive(serde::Serialize)]
pub(super) struct Report {
    pub(super) source: String,
    pub(super) train_rows: usize,
    pub(super) test_rows: usize,
    pub(super) validation_rows: usize,
    pub(super) train_sizes: BTreeSet<u64>,
    pub(super) train_processes: BTreeSet<u32>,
    pub(super) detectors: Vec<DetectorReport>,
}

#[derive(serde::Serialize)]
pub(super) struct DetectorReport {
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

pub(super) fn assess(model: &Model, seconds_to_train: f64, split: &Split, seed: u64) -> DetectorReport {
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

pub(super) fn print(report: &Report) {
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
