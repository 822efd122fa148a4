//! What a detector looks at: numbers taken from a flow's metrics. The first five do not depend on how
//! large the requests are or how many processes there are; the last five are the thesis's.

use forebay_types::FlowMetrics;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One number a detector looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Feature {
    /// Share of requests that begin where their client's last one on the file ended.
    SequentialShare,
    /// Share of jumps as wide as the client's last jump.
    RegularShare,
    /// Clients to a file.
    ClientsPerFile,
    /// Files to a client.
    FilesPerClient,
    /// Share of jumps that go forward.
    ForwardShare,
    /// Mean width of a jump over mean request size, as a power of two.
    JumpRatio,
    /// Mean offset distance over mean request size, as a power of two.
    DistanceRatio,
    /// Largest over smallest request, as a power of two.
    SizeSpread,
    /// Files in use (the thesis's file handles).
    Files,
    /// Smallest request.
    SizeMin,
    /// Mean request.
    SizeMean,
    /// Largest request.
    SizeMax,
    /// Mean absolute distance between the offsets of consecutive requests to a file.
    OffsetDistance,
}

impl Feature {
    /// Every feature. Where two tell the classes apart equally well, training takes the earlier one,
    /// so those that carry over to other request sizes and process counts come first.
    pub const ALL: [Feature; 13] = [
        Feature::SequentialShare,
        Feature::RegularShare,
        Feature::ClientsPerFile,
        Feature::FilesPerClient,
        Feature::ForwardShare,
        Feature::JumpRatio,
        Feature::DistanceRatio,
        Feature::SizeSpread,
        Feature::Files,
        Feature::SizeMin,
        Feature::SizeMean,
        Feature::SizeMax,
        Feature::OffsetDistance,
    ];

    /// Those that do not depend on how large the requests are or how many processes there are.
    pub const SCALE_FREE: [Feature; 5] = [
        Feature::SequentialShare,
        Feature::RegularShare,
        Feature::ClientsPerFile,
        Feature::FilesPerClient,
        Feature::ForwardShare,
    ];

    /// The five the thesis uses.
    pub const THESIS: [Feature; 5] =
        [Feature::Files, Feature::SizeMin, Feature::SizeMean, Feature::SizeMax, Feature::OffsetDistance];

    /// A set by the name that people give it: `thesis`, `all`, or else `scale-free`.
    pub fn called(set: &str) -> &'static [Feature] {
        match set {
            "thesis" => &Feature::THESIS,
            "all" => &Feature::ALL,
            _ => &Feature::SCALE_FREE,
        }
    }

    /// This feature of `m`; always finite.
    pub fn of(self, m: &FlowMetrics) -> f64 {
        let jumps = m.judged.saturating_sub(m.sequential);
        let value = match self {
            Feature::SequentialShare => share(m.sequential as f64, m.judged as f64),
            Feature::RegularShare => share(m.regular as f64, m.jumps as f64),
            Feature::ClientsPerFile => share(f64::from(m.streams), f64::from(m.files)),
            Feature::FilesPerClient => share(f64::from(m.streams), f64::from(m.clients)),
            Feature::ForwardShare => share(m.forward as f64, jumps as f64),
            Feature::JumpRatio => (1.0 + share(m.jump_width, m.size_mean)).log2(),
            Feature::DistanceRatio => (1.0 + share(m.offset_distance, m.size_mean)).log2(),
            Feature::SizeSpread => share(m.size_max as f64, m.size_min as f64).max(1.0).log2(),
            Feature::Files => f64::from(m.files),
            Feature::SizeMin => m.size_min as f64,
            Feature::SizeMean => m.size_mean,
            Feature::SizeMax => m.size_max as f64,
            Feature::OffsetDistance => m.offset_distance,
        };
        // Metrics that come from a file may hold anything.
        if value.is_finite() { value } else { 0.0 }
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Feature::SequentialShare => "sequential_share",
            Feature::RegularShare => "regular_share",
            Feature::ClientsPerFile => "clients_per_file",
            Feature::FilesPerClient => "files_per_client",
            Feature::ForwardShare => "forward_share",
            Feature::JumpRatio => "jump_ratio",
            Feature::DistanceRatio => "distance_ratio",
            Feature::SizeSpread => "size_spread",
            Feature::Files => "files",
            Feature::SizeMin => "size_min",
            Feature::SizeMean => "size_mean",
            Feature::SizeMax => "size_max",
            Feature::OffsetDistance => "offset_distance",
        })
    }
}
