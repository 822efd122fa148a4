//! A trained detector as a file: versioned JSON that says what it looks at, where it comes from and
//! when it refuses. Reading one never panics, whatever the bytes are.

use crate::detect::Detector;
use crate::detect::forest::Forest;
use crate::detect::net::{MAX_WIDTH, Net};
use crate::detect::tree::Tree;
use crate::detection::Detection;
use crate::features::Feature;
use crate::kept::{KeptError, KeptFile};
use forebay_types::FlowMetrics;
use forebay_types::Pattern;
use serde::{Deserialize, Serialize};

/// The file of a model.
pub const MODEL_FILE: KeptFile = KeptFile { what: "model file", version: 1, max_bytes: 64 << 20 };

/// Which detector a model is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A decision tree.
    Tree(Tree),
    /// A random forest.
    Forest(Forest),
    /// A neural net.
    Net(Net),
}

impl Kind {
    fn detector(&self) -> &dyn Detector {
        match self {
            Kind::Tree(d) => d,
            Kind::Forest(d) => d,
            Kind::Net(d) => d,
        }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Tree(_) => "decision tree",
            Kind::Forest(_) => "random forest",
            Kind::Net(_) => "neural net",
        }
    }
}

/// A detector, what it looks at, and when it refuses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    version: u32,
    /// What it was trained on, for people.
    pub trained_on: String,
    features: Vec<Feature>,
    /// Below this probability it says unknown.
    pub refuse_below: f64,
    /// With fewer comparable requests in an interval than this it says unknown.
    pub least_judged: u64,
    detector: Kind,
}

impl Model {
    /// A model of `detector`, which was trained with `features`.
    pub fn new(detector: Kind, features: Vec<Feature>, trained_on: String) -> Model {
        Model {
            version: MODEL_FILE.version,
            trained_on,
            features,
            refuse_below: 0.6,
            least_judged: 8,
            detector,
        }
    }

    /// The model that ships with the program: a decision tree. What it was trained on is in its
    /// `trained_on`.
    pub fn builtin() -> Model {
        // The tests read the same bytes.
        Model::from_json(include_bytes!("../models/default.json")).expect("the shipped model is sound")
    }

    /// The pattern of one interval of one flow.
    pub fn detect(&self, m: &FlowMetrics) -> Detection {
        let mut features = [0.0; MAX_WIDTH];
        for (slot, f) in features.iter_mut().zip(&self.features) {
            *slot = f.of(m);
        }
        self.detect_in(m.judged, &features[..self.features.len()])
    }

    /// The same from the features, of which `judged` comparable requests are the ground.
    pub(crate) fn detect_in(&self, judged: u64, features: &[f64]) -> Detection {
        if judged < self.least_judged {
            return Detection { pattern: Pattern::Unknown, probability: 0.0 };
        }
        let scores = self.detector.detector().scores(features);
        let mut best = 0;
        for (i, p) in scores.iter().enumerate() {
            if *p > scores[best] {
                best = i;
            }
        }
        let probability = scores[best];
        let pattern = if probability < self.refuse_below { Pattern::Unknown } else { Pattern::ALL[best] };
        Detection { pattern, probability }
    }

    /// What it looks at.
    pub fn features(&self) -> &[Feature] {
        &self.features
    }

    /// Which detector it is.
    pub fn kind(&self) -> &Kind {
        &self.detector
    }

    /// Reads a model file.
    pub fn from_json(bytes: &[u8]) -> Result<Model, KeptError> {
        let model: Model = MODEL_FILE.read(bytes)?;
        model.check().map_err(|why| MODEL_FILE.damaged(why))?;
        Ok(model)
    }

    /// Writes a model file.
    pub fn to_json(&self) -> Vec<u8> {
        // Plain structs of numbers and strings with string keys: serialising them cannot fail.
        serde_json::to_vec(self).expect("a model is representable as JSON")
    }

    fn check(&self) -> Result<(), String> {
        if self.features.is_empty() || self.features.len() > MAX_WIDTH {
            return Err(format!("it looks at {} features", self.features.len()));
        }
        if !(0.0..=1.0).contains(&self.refuse_below) {
            return Err("refuse_below is not between 0 and 1".into());
        }
        self.detector.detector().check(self.features.len())
    }
}
