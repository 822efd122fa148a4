//! The random forest: the mean of many trees, each grown on other rows and other features.

use crate::detect::tree::Tree;
use crate::detect::{Detector, Scores};
use serde::{Deserialize, Serialize};

/// Many trees that are asked together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Forest {
    pub(crate) trees: Vec<Tree>,
}

impl Forest {
    /// How many trees there are.
    pub fn size(&self) -> usize {
        self.trees.len()
    }
}

impl Detector for Forest {
    fn scores(&self, features: &[f64]) -> Scores {
        let mut mean = Scores::default();
        for tree in &self.trees {
            for (sum, p) in mean.iter_mut().zip(tree.scores(features)) {
                *sum += p;
            }
        }
        mean.map(|sum| sum / self.trees.len() as f64)
    }

    fn check(&self, features: usize) -> Result<(), String> {
        if self.trees.is_empty() {
            return Err("the forest is empty".into());
        }
        self.trees
            .iter()
            .enumerate()
            .try_for_each(|(i, t)| t.check(features).map_err(|e| format!("tree {i}: {e}")))
    }
}
