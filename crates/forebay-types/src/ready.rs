//! What an I/O node tells whoever started it.

use serde::{Deserialize, Serialize};

/// Written once the node listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Its process.
    pub pid: u32,
    /// Its number.
    pub node: u32,
    /// Where it listens.
    pub addresses: Vec<String>,
    /// Where it serves its metrics, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<String>,
}
