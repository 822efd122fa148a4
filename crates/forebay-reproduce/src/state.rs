//! A session that can be resumed: every group's figures are kept in a directory as soon as they are made.

use crate::groups::{self, Figures, Measured, Setup};
use crate::index::{Index, PublishedClaim};
use crate::verdict::{ClaimVerdict, judge};
use anyhow::{Context, Result};
use forebay_types::output;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What became of one claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// Which.
    pub id: String,
    /// Our value.
    pub measured: Option<Measured>,
    /// What is to be said.
    #[serde(flatten)]
    pub verdict: ClaimVerdict,
}

/// A group's figures as they are kept.
#[derive(Serialize, Deserialize)]
struct Kept {
    full: bool,
    seconds: f64,
    figures: Production,
}

/// Figures, or why there are none.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Production {
    Figures(Figures),
    Failed(String),
}

/// Figures that were made, and where they are kept.
pub struct Session {
    directory: Option<PathBuf>,
    groups: BTreeMap<String, (Production, f64)>,
}

impl Session {
    /// Goes on with what the directory holds; with none, nothing is kept.
    pub fn open(directory: Option<&Path>) -> Result<Session> {
        if let Some(dir) = directory {
            std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        Ok(Session { directory: directory.map(Path::to_owned), groups: BTreeMap::new() })
    }

    fn file(&self, group: &str) -> Option<PathBuf> {
        self.directory.as_ref().map(|d| d.join(format!("{group}.json")))
    }

    /// Whether the group's figures are there already.
    pub fn has(&mut self, group: &str, full: bool) -> bool {
        if self.groups.contains_key(group) {
            return true;
        }
        let text = self.file(group).and_then(|f| std::fs::read_to_string(f).ok());
        let kept = text.and_then(|t| serde_json::from_str::<Kept>(&t).ok());
        match kept {
            // What failed is tried again.
            Some(Kept { full: f, seconds, figures: made @ Production::Figures(_) }) if f == full => {
                self.groups.insert(group.to_owned(), (made, seconds));
                true
            }
            _ => false,
        }
    }

    /// Makes the group's figures unless they are there.
    pub fn make(&mut self, group: &str, setup: &Setup<'_>) -> Result<()> {
        if self.has(group, setup.full) {
            return Ok(());
        }
        let began = Instant::now();
        let figures = match groups::make(group, setup) {
            Ok(figures) => Production::Figures(figures),
            Err(e) => Production::Failed(format!("{e:#}")),
        };
        let seconds = began.elapsed().as_secs_f64();
        let kept = Kept { full: setup.full, seconds, figures: figures.clone() };
        self.groups.insert(group.to_owned(), (figures, seconds));
        if let Some(file) = self.file(group) {
            output::write(&file, serde_json::to_vec_pretty(&kept)?)
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(())
    }

    /// How long the group's figures took to make, in seconds.
    pub fn seconds(&self, group: &str) -> Option<f64> {
        self.groups.get(group).map(|g| g.1)
    }

    /// What is to be said of a claim, if its figures were made.
    pub fn verdict(&self, entry: &PublishedClaim) -> Option<Tried> {
        let tried = |measured, verdict| Some(Tried { id: entry.id.clone(), measured, verdict });
        if let Some(why) = &entry.not_possible {
            return tried(None, ClaimVerdict::NotPossible(why.clone()));
        }
        let (group, name) = entry.measure.as_deref()?.split_once('.')?;
        match &self.groups.get(group)?.0 {
            Production::Failed(why) => tried(None, ClaimVerdict::Failed(why.clone())),
            Production::Figures(figures) => match figures.get(name) {
                Some(m) => tried(Some(m.clone()), judge(entry, m)),
                None => tried(None, ClaimVerdict::Failed(format!("{group} made no figure {name:?}"))),
            },
        }
    }

    /// The verdicts of all claims whose figures were made.
    pub fn verdicts(&self, index: &Index) -> Vec<Tried> {
        index.entry.iter().filter_map(|e| self.verdict(e)).collect()
    }
}
