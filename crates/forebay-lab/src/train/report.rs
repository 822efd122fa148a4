//! What is said about trained detectors.

use forebay_pattern::data::{Row, Split};
use forebay_pattern::train::{importance, judge};
use forebay_pattern::{Confusion, Feature, Model};
use std::collections::BTreeSet;
use std::time::Instant;

/// What detectors were trained on, and how good they are.
#[derive(Debug, serde::Serialize)]
pub struct TrainingReport {
    /// Where the rows come from.
    pub source: String,
    /// Rows to learn from.
    pub train_rows: usize,
    /// Rows of the same kinds to test with.
    pub test_rows: usize,
    /// Rows of other kinds.
    pub validation_rows: usize,
    /// Request sizes to train on.
    pub train_sizes: BTreeSet<u64>,
    /// Process counts to train on.
    pub train_processes: BTreeSet<u32>,
    /// One by one.
    pub detectors: Vec<DetectorReport>,
}

/// How good a detector is.
#[derive(Debug, serde::Serialize)]
pub struct DetectorReport {
    /// Its kind.
    pub detector: &'static str,
    /// Time to train it.
    pub seconds_to_train: f64,
    /// Time of one prediction.
    pub microseconds_to_predict: f64,
    /// On the rows it learned from.
    pub train: Score,
    /// On others of the same kinds.
    pub test: Score,
    /// On those of other kinds.
    pub validation: Score,
    /// Validation rows of trained process counts but unseen request sizes.
    pub unseen_sizes: Score,
    /// The other way round.
    pub unseen_processes: Score,
    /// What it relies on: the accuracy lost without it.
    pub importance: Vec<(Feature, f64)>,
}

/// How often a detector is right.
#[derive(Debug, serde::Serialize)]
pub struct Score {
    /// Share of rows.
    pub accuracy: f64,
    /// Cohen's.
    pub kappa: f64,
    /// What was taken for what.
    pub confusion: Confusion,
}

/// Tries a trained detector on all rows.
pub fn assess(model: &Model, seconds_to_train: f64, split: &Split, seed: u64) -> DetectorReport {
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
