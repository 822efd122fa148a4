//! From rows to detectors: where rows come from, how they are divided, training and judging.

use super::{INTERVAL_MS, Plan, TrainingReport, assess, measure, read};
use crate::Progress;
use anyhow::{Result, bail};
use forebay_pattern::data::{self, Row, Split};
use forebay_pattern::train::Trainer;
use forebay_pattern::{Feature, Model, synthetic};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;

/// Where the labelled rows come from.
pub enum Source {
    /// A small model of processes and I/O nodes.
    Synthetic,
    /// Files, read as one.
    Files(Vec<PathBuf>),
    /// Runs through real I/O nodes.
    Runs {
        /// Which.
        plan: Plan,
        /// Where the scenarios' files go while they run.
        at: PathBuf,
    },
}

impl Source {
    /// The rows, and a sentence that says where they come from.
    pub fn rows(&self, seed: u64, progress: &dyn Progress) -> Result<(Vec<Row>, String)> {
        match self {
            Source::Synthetic => {
                let rows = synthetic::rows(&synthetic::Plan::default(), seed);
                Ok((rows, format!("synthetic rows, seed {seed}")))
            }
            Source::Files(files) => {
                let mut rows = Vec::new();
                for path in files {
                    rows.extend(read(path)?);
                }
                let names: Vec<String> = files.iter().map(|f| f.display().to_string()).collect();
                Ok((rows, names.join(", ")))
            }
            Source::Runs { plan, at } => {
                let (rows, runs) = measure(plan, at, seed, progress)?;
                let n = rows.len();
                let from =
                    format!("{n} intervals of {INTERVAL_MS} ms from {runs} runs through real I/O nodes");
                Ok((rows, from))
            }
        }
    }
}

/// How rows are divided, and what detectors look at.
pub struct Course {
    /// Request sizes to train on, in bytes; rows of other sizes validate.
    pub sizes: BTreeSet<u64>,
    /// Process counts to train on; none: every other count in the rows, from the smallest.
    pub processes: BTreeSet<u32>,
    /// What the detectors look at.
    pub features: Vec<Feature>,
    /// Of everything random.
    pub seed: u64,
}

impl Course {
    /// Trains every kind of detector on the rows and judges it; `each` is given the models one by one.
    pub fn run(
        &self,
        rows: Vec<Row>,
        source: String,
        progress: &dyn Progress,
        mut each: impl FnMut(Trainer, &Model) -> Result<()>,
    ) -> Result<TrainingReport> {
        let processes =
            if self.processes.is_empty() { data::alternate_processes(&rows) } else { self.processes.clone() };
        let split = Split::new(rows, self.sizes.clone(), processes, self.seed);
        if split.train.is_empty() {
            bail!(
                "no row has a request size and a process count to train on: see --train-kib and --train-processes"
            );
        }
        let mut report = TrainingReport {
            source,
            train_rows: split.train.len(),
            test_rows: split.test.len(),
            validation_rows: split.validation.len(),
            train_sizes: split.sizes.clone(),
            train_processes: split.processes.clone(),
            detectors: Vec::new(),
        };
        for trainer in Trainer::ALL {
            let (model, seconds) = self.fit(trainer, &split, &report.source, progress)?;
            report.detectors.push(assess(&model, seconds, &split, self.seed));
            each(trainer, &model)?;
        }
        Ok(report)
    }

    /// A trained detector, and how many seconds it took.
    fn fit(
        &self,
        trainer: Trainer,
        split: &Split,
        source: &str,
        progress: &dyn Progress,
    ) -> Result<(Model, f64)> {
        progress.begin(100);
        progress.doing(match trainer {
            Trainer::Tree => "training the decision tree",
            Trainer::Forest => "training the random forest",
            Trainer::Net => "training the neural net",
        });
        let (start, mut at) = (Instant::now(), 0);
        let mut tell = |done: f64| {
            let now = ((done * 100.0) as usize).max(at);
            progress.advance(now - std::mem::replace(&mut at, now));
        };
        let model = trainer.train(&split.train, &self.features, source, self.seed, &mut tell)?;
        Ok((model, start.elapsed().as_secs_f64()))
    }
}
