//! What DFRA remembers of a run, and where it keeps it.

use forebay_types::IoMode;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// What a run did, or is doing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct IoProfile {
    /// Bytes read and written.
    pub bytes: u64,
    /// Compute nodes that did I/O.
    pub io_compute_nodes: u32,
    /// How files were used.
    pub mode: IoMode,
    /// Peak bandwidth, MB/s.
    pub bandwidth_mbs: f64,
    /// Peak data operations a second.
    pub iops: f64,
    /// Peak metadata operations a second.
    pub metadata_rate: f64,
    /// Metadata operations waiting at an I/O node, in the mean.
    pub metadata_waiting: f64,
}

impl IoProfile {
    /// Whether a run so far has done no I/O to speak of.
    pub fn silent(&self) -> bool {
        self.bytes == 0 && self.metadata_rate == 0.0
    }

    /// Whether `self` predicted `actual`: same mode, volume within `tolerance` (0.2 is 20 %).
    pub fn predicted(&self, actual: &IoProfile, tolerance: f64) -> bool {
        let (a, b) = (self.bytes as f64, actual.bytes as f64);
        self.mode == actual.mode && (a - b).abs() <= tolerance * b
    }
}

/// The latest run of each application, by name, user and compute nodes: what its next run will do.
#[derive(Clone, Debug, Default)]
pub struct History {
    latest: HashMap<(String, String, u32), IoProfile>,
}

impl History {
    /// Remembers a run that ended.
    pub fn record(&mut self, app: &str, user: &str, compute_nodes: u32, profile: IoProfile) {
        self.latest.insert((app.to_owned(), user.to_owned(), compute_nodes), profile);
    }

    /// What the next run at this scale will do; `None` if there was none yet.
    pub fn predict(&self, app: &str, user: &str, compute_nodes: u32) -> Option<&IoProfile> {
        self.latest.get(&(app.to_owned(), user.to_owned(), compute_nodes))
    }
}
