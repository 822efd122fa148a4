//! Making detectors from labelled rows, and judging them. The trainers are our own, small ones: a
//! model must be readable from untrusted bytes and checkable node by node, which the model types of
//! the usual crates do not allow.

mod forest;
mod net;
mod tree;

use crate::data::Row;
use crate::features::Feature;
use crate::model::{Kind, Model};
use crate::score::Confusion;
use forebay_types::Pattern;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

/// Why no detector can be made.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// There is too little to learn from.
    #[error("{rows} rows are too few to train on: at least {} are needed", TrainError::LEAST_ROWS)]
    TooFew {
        /// How many there are.
        rows: usize,
    },
    /// There is nothing to tell apart.
    #[error("all rows are {0}: there is nothing to tell apart")]
    OneClass(Pattern),
}

impl TrainError {
    const LEAST_ROWS: usize = 50;
}

/// Which detector to train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trainer {
    /// A decision tree.
    Tree,
    /// A random forest.
    Forest,
    /// A neural net.
    Net,
}

impl Trainer {
    /// All of them.
    pub const ALL: [Trainer; 3] = [Trainer::Tree, Trainer::Forest, Trainer::Net];

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Trainer::Tree => "tree",
            Trainer::Forest => "forest",
            Trainer::Net => "net",
        }
    }

    /// Trains on `rows`, looking at `features`; `progress` is told the share done, 0 to 1. The same
    /// rows and seed give the same model.
    pub fn train(
        self,
        rows: &[Row],
        features: &[Feature],
        trained_on: &str,
        seed: u64,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Model, TrainError> {
        let samples = Samples::new(rows, features)?;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let kind = match self {
            Trainer::Tree => Kind::Tree(tree::train(&samples)),
            Trainer::Forest => Kind::Forest(forest::train(&samples, &mut rng, progress)),
            Trainer::Net => Kind::Net(net::train(&samples, &mut rng, progress)),
        };
        progress(1.0);
        Ok(Model::new(kind, features.to_vec(), trained_on.to_string()))
    }
}

/// Numbers and classes, row by row.
struct Samples {
    width: usize,
    values: Vec<f64>,
    classes: Vec<u8>,
}

impl Samples {
    fn new(rows: &[Row], features: &[Feature]) -> Result<Samples, TrainError> {
        if rows.len() < TrainError::LEAST_ROWS {
            return Err(TrainError::TooFew { rows: rows.len() });
        }
        let first = rows[0].label.class;
        if rows.iter().all(|r| r.label.class == first) {
            return Err(TrainError::OneClass(first));
        }
        Ok(Samples {
            width: features.len(),
            values: rows.iter().flat_map(|r| features.iter().map(|f| f.of(&r.metrics))).collect(),
            classes: rows.iter().map(|r| r.label.class.index() as u8).collect(),
        })
    }

    fn len(&self) -> usize {
        self.classes.len()
    }

    fn row(&self, i: usize) -> &[f64] {
        &self.values[i * self.width..(i + 1) * self.width]
    }
}

/// Judges `model` by `rows`, with its refusals.
pub fn judge<'a>(model: &Model, rows: impl IntoIterator<Item = &'a Row>) -> Confusion {
    let mut confusion = Confusion::default();
    for row in rows {
        confusion.add(row.label.class, model.detect(&row.metrics).pattern);
    }
    confusion
}

/// How much accuracy on `rows` is lost when one feature's values are shuffled among the rows, for
/// each feature of `model`, largest first: what the detector really relies on.
pub fn importance(model: &Model, rows: &[Row], seed: u64) -> Vec<(Feature, f64)> {
    let width = model.features().len();
    let values: Vec<Vec<f64>> =
        rows.iter().map(|r| model.features().iter().map(|f| f.of(&r.metrics)).collect()).collect();
    let accuracy = |values: &[Vec<f64>]| {
        let right =
            |(row, v): &(&Row, &Vec<f64>)| model.detect_in(row.metrics.judged, v).pattern == row.label.class;
        rows.iter().zip(values).filter(right).count() as f64 / rows.len().max(1) as f64
    };
    let whole = accuracy(&values);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut losses: Vec<(Feature, f64)> = (0..width)
        .map(|f| {
            let mut column: Vec<f64> = values.iter().map(|v| v[f]).collect();
            column.shuffle(&mut rng);
            let mut shuffled = values.clone();
            shuffled.iter_mut().zip(column).for_each(|(row, x)| row[f] = x);
            (model.features()[f], whole - accuracy(&shuffled))
        })
        .collect();
    losses.sort_by(|a, b| b.1.total_cmp(&a.1));
    losses
}
