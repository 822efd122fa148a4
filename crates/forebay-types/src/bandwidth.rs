//! A rate of data.

use crate::Nanos;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A rate of data, in MB/s (10^6 bytes a second), as the sources report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bandwidth(pub f64);

impl Bandwidth {
    /// `bytes` in `span`; zero for an empty span.
    pub fn of(bytes: u64, span: Nanos) -> Bandwidth {
        if span.0 == 0 { Bandwidth(0.0) } else { Bandwidth(bytes as f64 / span.as_secs_f64() / 1e6) }
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 >= 1000.0 {
            write!(f, "{:.2} GB/s", self.0 / 1000.0)
        } else {
            write!(f, "{:.1} MB/s", self.0)
        }
    }
}
