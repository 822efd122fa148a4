//! What an I/O node sees of a flow, and which access pattern that is.
//!
//! [`Collector`] adds up requests into [`FlowMetrics`] once an interval; a [`Model`] turns those into
//! a [`Pattern`]; [`Phases`] follows a flow's bursts over time. [`train`] makes models from labelled
//! rows ([`data`]). No clock, no file, no thread: time and data are handed in.

mod collect;
mod metrics;
mod pattern;
mod sizes;
mod table;

pub use collect::{Access, Collector};
pub use metrics::{FlowMetrics, Interval, Load, mode_of_job};
pub use pattern::{Detection, IoMode, Pattern};
