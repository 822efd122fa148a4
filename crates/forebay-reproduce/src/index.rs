//! The index: every claim with its published value and what counts as the same.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The index that ships with Forebay.
const BUILT_IN: &str = include_str!("../../../data/reproduce.toml");

/// How a figure is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Setting {
    /// On a real parallel file system.
    FileSystem,
    /// Real I/O nodes and clients on emulated data servers.
    Emulation,
    /// In the simulator, with the production schedulers and policies.
    Simulation,
    /// From data the authors published, or that was recorded here.
    ReAnalysis,
}

impl Setting {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Setting::FileSystem => "real file system",
            Setting::Emulation => "emulation",
            Setting::Simulation => "simulation",
            Setting::ReAnalysis => "re-analysis",
        }
    }
}

/// What counts as the published result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tolerance {
    /// Off by at most this part of the published value.
    Relative(f64),
    /// Off by at most so much.
    Absolute(f64),
    /// No less than the published value.
    AtLeast,
    /// No more than the published value.
    AtMost,
    /// No less than this part of the published value: for "up to" claims.
    AtLeastPart(f64),
}

/// Why our value is another, and where it then lies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Because {
    /// The reason that was found.
    pub reason: String,
    /// The reason holds for values in this range only: another one has another reason, or none.
    pub seen: [f64; 2],
}

/// One claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PublishedClaim {
    /// Its name.
    pub id: String,
    /// Who claims it.
    pub source: String,
    /// Where.
    pub figure: String,
    /// What.
    pub claim: String,
    /// How it is tested.
    pub setting: Setting,
    /// The figure that tests it, as `group.name`; none where it cannot be tested.
    #[serde(default)]
    pub measure: Option<String>,
    /// The published value.
    pub published: f64,
    /// In what.
    #[serde(default)]
    pub unit: String,
    /// What counts as the same.
    pub tolerance: Tolerance,
    /// Why our value differs, where that is known.
    #[serde(default)]
    pub because: Option<Because>,
    /// Why it cannot be tested here.
    #[serde(default)]
    pub not_possible: Option<String>,
}

impl PublishedClaim {
    /// The group that makes its figure.
    pub fn group(&self) -> Option<&str> {
        self.measure.as_deref().and_then(|m| m.split('.').next())
    }

    /// The command that tests it.
    pub fn command(&self) -> String {
        format!("forebay reproduce {}", self.id)
    }
}

/// All claims, and published tables that groups compare row by row.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Index {
    /// The claims.
    pub entry: Vec<PublishedClaim>,
    /// Published tables by name.
    #[serde(default)]
    pub table: BTreeMap<String, toml::Table>,
}

/// What is wrong with an index.
#[derive(Debug)]
pub struct IndexError(String);

impl std::fmt::Display for IndexError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the index of results: {}", self.0)
    }
}

impl std::error::Error for IndexError {}

impl Index {
    /// The one that ships with Forebay.
    pub fn built_in() -> Result<Index, IndexError> {
        Index::parse(BUILT_IN)
    }

    /// Reads and checks an index.
    pub fn parse(text: &str) -> Result<Index, IndexError> {
        let index: Index = toml::from_str(text).map_err(|e| IndexError(e.to_string()))?;
        let mut seen = std::collections::BTreeSet::new();
        for e in &index.entry {
            let fail = |what: &str| Err(IndexError(format!("{}: {what}", e.id)));
            if e.id.is_empty() || !e.id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
                return fail("an id is of letters, digits and dashes");
            }
            if !seen.insert(&e.id) {
                return fail("it is there twice");
            }
            if e.measure.is_some() == e.not_possible.is_some() {
                return fail("it has a measure, or says why none is possible");
            }
            if !e.published.is_finite() || e.because.as_ref().is_some_and(|b| b.seen[0] > b.seen[1]) {
                return fail("values must be numbers, and ranges in order");
            }
        }
        Ok(index)
    }

    /// One claim.
    pub fn find(&self, id: &str) -> Option<&PublishedClaim> {
        self.entry.iter().find(|e| e.id == id)
    }
}
