//! What an I/O node sees of a flow, and which access pattern that is.
//!
//! [`Collector`] adds up requests into [`FlowMetrics`] once an interval; a [`Model`] turns those into
//! a [`Pattern`](forebay_types::Pattern); [`Phases`] follows a flow's bursts over time. [`train`] makes models from labelled
//! rows ([`data`]). No clock, no file, no thread: time and data are handed in.

mod collect;
pub mod data;
mod detect;
mod detection;
mod features;
mod metrics;
mod model;
mod phase;
mod score;
pub mod synthetic;
mod table;
pub mod train;

pub use collect::{Access, Collector};
pub use detect::forest::Forest;
pub use detect::net::Net;
pub use detect::tree::Tree;
pub use detect::{Detector, Scores};
pub use detection::Detection;
pub use features::Feature;
pub use metrics::{FlowMetrics, Interval, Load, mode_of_job};
pub use model::{Kind, MODEL_MAX_BYTES, MODEL_VERSION, Model, ModelError};
pub use phase::{PhaseSummary, Phases};
pub use score::Confusion;
