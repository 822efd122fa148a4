//! How what goes over a network is protected.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How the data of a connection between hosts is protected, from least to most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protect {
    /// Not at all: for networks that only the cluster is on.
    #[default]
    None,
    /// It cannot be changed on the way without being noticed.
    Integrity,
    /// And it cannot be read.
    Privacy,
}

impl Protect {
    /// All, from least to most.
    pub const ALL: [Protect; 3] = [Protect::None, Protect::Integrity, Protect::Privacy];

    /// What this number stands for on the wire; more than there is means the most.
    pub fn numbered(number: u64) -> Protect {
        Protect::ALL.into_iter().find(|p| *p as u64 >= number).unwrap_or(Protect::Privacy)
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Protect::None => "none",
            Protect::Integrity => "integrity",
            Protect::Privacy => "privacy",
        }
    }
}

impl fmt::Display for Protect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Protect {
    type Err = String;

    fn from_str(text: &str) -> Result<Protect, String> {
        let found = Protect::ALL.into_iter().find(|p| p.name() == text);
        found.ok_or_else(|| format!("`{text}` is no protection: none, integrity or privacy"))
    }
}
