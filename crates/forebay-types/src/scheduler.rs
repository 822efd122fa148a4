//! A request scheduler by name and parameters, for messages that only carry it on.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// As people write it, `twins:window=500us`. What the words mean is known to whoever schedules.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SchedulerSpec(String);

impl SchedulerSpec {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for SchedulerSpec {
    fn from(text: String) -> SchedulerSpec {
        SchedulerSpec(text)
    }
}

impl FromStr for SchedulerSpec {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<SchedulerSpec, Self::Err> {
        Ok(SchedulerSpec(text.to_owned()))
    }
}

impl fmt::Display for SchedulerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
