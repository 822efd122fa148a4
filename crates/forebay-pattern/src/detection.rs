//! What a detector says.

use forebay_types::Pattern;
use serde::{Deserialize, Serialize};

/// What a detector says about one interval of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Detection {
    /// The pattern; [`Pattern::Unknown`] when the detector refuses.
    pub pattern: Pattern,
    /// How probable the detector holds the likeliest pattern to be, 0 to 1.
    pub probability: f64,
}
