//! The decision tree: a few comparisons, then a leaf with the shares of the patterns it saw.

use crate::detect::{Detector, Scores};
use serde::{Deserialize, Serialize};

/// A decision tree in one array; children lie behind their parent, so walking it ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tree {
    pub(crate) nodes: Vec<Node>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Node {
    /// Go to `low` if the feature is at most `at`, else to `high`.
    Split { feature: u32, at: f64, low: u32, high: u32 },
    /// The answer.
    Leaf(Scores),
}

impl Tree {
    /// Splits and leaves together.
    pub fn size(&self) -> usize {
        self.nodes.len()
    }
}

impl Detector for Tree {
    fn scores(&self, features: &[f64]) -> Scores {
        let mut at = 0;
        loop {
            match &self.nodes[at] {
                Node::Split { feature, at: threshold, low, high } => {
                    at = if features[*feature as usize] <= *threshold { *low } else { *high } as usize;
                }
                Node::Leaf(scores) => return *scores,
            }
        }
    }

    fn check(&self, features: usize) -> Result<(), String> {
        if self.nodes.is_empty() {
            return Err("the tree is empty".into());
        }
        for (i, node) in self.nodes.iter().enumerate() {
            match node {
                Node::Split { feature, at, low, high } => {
                    let inside = |child: u32| child as usize > i && (child as usize) < self.nodes.len();
                    if *feature as usize >= features || !at.is_finite() || !inside(*low) || !inside(*high) {
                        return Err(format!(
                            "node {i} of the tree splits on a feature or into nodes that are not there"
                        ));
                    }
                }
                Node::Leaf(scores) => {
                    check_scores(scores).map_err(|e| format!("leaf {i} of the tree: {e}"))?
                }
            }
        }
        Ok(())
    }
}

fn check_scores(scores: &Scores) -> Result<(), String> {
    let sum: f64 = scores.iter().sum();
    let sound = scores.iter().all(|p| (0.0..=1.0).contains(p)) && (sum - 1.0).abs() < 1e-6;
    if sound { Ok(()) } else { Err("the probabilities are not between 0 and 1 or do not add up to 1".into()) }
}
