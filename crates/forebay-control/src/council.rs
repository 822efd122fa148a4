//! What the arbiter shows of its council: `GET /v1/council`.

use forebay_types::SchedulerSpec;
use serde::{Deserialize, Serialize};

/// Where what was learned is read (GET, as a file of what was learned), replaced (PUT) and forgotten
/// (DELETE, `?context=…` for one situation).
pub const LEARNED_PATH: &str = "/v1/learned";

/// Where the council's decisions are read.
pub const COUNCIL_PATH: &str = "/v1/council";

/// Where the access pattern detector is read (GET) and replaced (POST, a model file).
pub const MODEL_PATH: &str = "/v1/model";

/// The council as it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CouncilView {
    /// `off`, `shadow` or `on`.
    pub mode: String,
    /// What all I/O nodes are to use; unless the mode is `on`, what they would be to use.
    pub standing: SchedulerSpec,
    /// What the connected I/O nodes say they use, each scheduler once.
    #[serde(default)]
    pub in_force: Vec<SchedulerSpec>,
    /// Decisions so far.
    pub round: u64,
    /// I/O nodes that have reported since the last one.
    pub reported: usize,
    /// What the detector was trained on.
    pub model: String,
    /// The latest decisions, oldest first.
    pub decisions: Vec<CouncilDecision>,
}

/// One decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CouncilDecision {
    /// Its number.
    pub round: u64,
    /// When, in milliseconds since 1970.
    pub unix_ms: u64,
    /// I/O nodes that had reported.
    pub nodes: usize,
    /// What it put in force.
    pub scheduler: SchedulerSpec,
    /// Whether that is something else than before.
    pub changed: bool,
    /// Whether it is a trial.
    pub explores: bool,
    /// Why, in words.
    pub why: String,
}
