//! The words of detection: access patterns, the certainty of a detection, and I/O modes.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How the processes of a flow reach their files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// A file per process, each read or written front to back.
    FppContiguous,
    /// One shared file in which every process has its own stretch.
    SharedContiguous,
    /// One shared file in which the processes' requests alternate (1D-strided).
    SharedStrided,
    /// Requests without order.
    Random,
    /// None of these, or not sure.
    Unknown,
}

impl Pattern {
    /// Every pattern, in the order of [`Pattern::index`].
    pub const ALL: [Pattern; 5] = [
        Pattern::FppContiguous,
        Pattern::SharedContiguous,
        Pattern::SharedStrided,
        Pattern::Random,
        Pattern::Unknown,
    ];

    /// The place of this pattern in [`Pattern::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name as it stands in files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Pattern::FppContiguous => "fpp-contiguous",
            Pattern::SharedContiguous => "shared-contiguous",
            Pattern::SharedStrided => "shared-strided",
            Pattern::Random => "random",
            Pattern::Unknown => "unknown",
        }
    }

    /// The abbreviation of the literature, for narrow tables.
    pub const fn short(self) -> &'static str {
        match self {
            Pattern::FppContiguous => "FPP",
            Pattern::SharedContiguous => "SC",
            Pattern::SharedStrided => "SS",
            Pattern::Random => "RND",
            Pattern::Unknown => "?",
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a detector says about one interval of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Detection {
    /// The pattern; [`Pattern::Unknown`] when the detector refuses.
    pub pattern: Pattern,
    /// How probable the detector holds the likeliest pattern to be, 0 to 1.
    pub probability: f64,
}

/// How many processes use how many files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum IoMode {
    /// Every process uses files of its own.
    #[serde(rename = "N-N")]
    NToN,
    /// Many processes share a file.
    #[serde(rename = "N-1")]
    NTo1,
    /// One process does all the I/O.
    #[serde(rename = "1-1")]
    OneTo1,
}

impl fmt::Display for IoMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            IoMode::NToN => "N-N",
            IoMode::NTo1 => "N-1",
            IoMode::OneTo1 => "1-1",
        })
    }
}
