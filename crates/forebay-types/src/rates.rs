//! What a job may have a second.

use serde::{Deserialize, Serialize};

/// How many kinds of rates there are.
pub const KINDS: usize = 3;

/// At most so much a second; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rates {
    /// Bytes read and written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<f64>,
    /// Reads and writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<f64>,
    /// Metadata operations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<f64>,
}

impl Rates {
    /// As a list: bandwidth, data operations, metadata operations.
    pub fn all(&self) -> [Option<f64>; KINDS] {
        [self.bandwidth, self.iops, self.metadata]
    }

    /// From such a list.
    pub fn of([bandwidth, iops, metadata]: [Option<f64>; KINDS]) -> Rates {
        Rates { bandwidth, iops, metadata }
    }

    /// Whether nothing is limited.
    pub fn is_none(&self) -> bool {
        self.all().iter().all(Option::is_none)
    }

    /// The stricter of both, kind by kind.
    pub fn min(&self, other: &Rates) -> Rates {
        let (a, b) = (self.all(), other.all());
        Rates::of(std::array::from_fn(|i| match (a[i], b[i]) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }))
    }
}
