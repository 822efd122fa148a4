//! What an I/O node sees of a flow, and which access pattern that is.
//!
//! [`Collector`] adds up requests into [`FlowMetrics`] once an interval; a [`Model`] turns those into
//! a [`Pattern`](forebay_types::Pattern). Feature `train`: `train` makes models from labelled rows (`data`); who only
//! watches or detects does without. No clock, no file, no thread: time and data are handed in.

mod collect;
#[cfg(feature = "train")]
pub mod data;
mod detect;
mod detection;
mod features;
mod kept;
mod model;
#[cfg(feature = "train")]
mod score;
#[cfg(feature = "train")]
pub mod synthetic;
mod table;
#[cfg(feature = "train")]
pub mod train;

pub use collect::{Access, Collector};
pub use detect::forest::Forest;
pub use detect::net::Net;
pub use detect::tree::Tree;
pub use detect::{Detector, Scores};
pub use detection::Detection;
pub use features::Feature;
pub use forebay_types::{FlowMetrics, Interval, Load, mode_of_job};
pub use kept::{KeptError, KeptFile};
pub use model::{Kind, MODEL_FILE, Model};
#[cfg(feature = "train")]
pub use score::Confusion;
