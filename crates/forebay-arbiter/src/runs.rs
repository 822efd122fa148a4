//! The latest run of each application at each scale, from which the next one is predicted.

use crate::activity::Activity;
use crate::store::Change;
use forebay_policy::dfra::IoProfile;
use forebay_types::AccessPattern;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Runs that are remembered; the one that ended longest ago goes first.
const MOST: usize = 10_000;

/// What stands before the name of a run among the learned entries.
const PREFIX: &str = "run/";

/// Whose runs resemble each other: application, user, compute nodes.
pub type Scale = (String, String, u32);

/// A run that ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What it did.
    pub profile: IoProfile,
    /// How it used its files at the end.
    pub shape: Option<AccessPattern>,
    /// When it ended, in milliseconds since 1970.
    pub ended_unix_ms: u64,
}

/// The latest runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Runs {
    latest: BTreeMap<Scale, Run>,
}

impl Runs {
    /// Those among what was learned. An entry that cannot be read is as if it had not been made.
    pub fn restore(learned: &BTreeMap<String, serde_json::Value>) -> Runs {
        let mut runs = Runs::default();
        for (key, value) in learned {
            let scale = key.strip_prefix(PREFIX).and_then(|k| serde_json::from_str(k).ok());
            if let (Some(scale), Ok(run)) = (scale, serde_json::from_value(value.clone())) {
                runs.latest.insert(scale, run);
            }
        }
        runs
    }

    /// What the next run at this scale will do, if there was one that did I/O.
    pub fn predict(&self, scale: &Scale) -> Option<&Run> {
        self.latest.get(scale)
    }

    /// A run has ended; what is to be kept of it.
    pub fn record(&mut self, unix_ms: u64, scale: Scale, activity: &Activity) -> Vec<Change> {
        let Some(profile) = activity.profile(scale.2) else { return Vec::new() };
        let run = Run { profile, shape: activity.shape, ended_unix_ms: unix_ms };
        let name = |s: &Scale| PREFIX.to_owned() + &serde_json::to_string(s).expect("strings and a number");
        let mut changes = vec![Change::Learned { key: name(&scale), value: serde_json::to_value(&run).ok() }];
        self.latest.insert(scale, run);
        if self.latest.len() > MOST
            && let Some(oldest) =
                self.latest.iter().min_by_key(|(_, r)| r.ended_unix_ms).map(|(s, _)| s.clone())
        {
            self.latest.remove(&oldest);
            changes.push(Change::Learned { key: name(&oldest), value: None });
        }
        changes
    }
}
