//! Measurements in, verdicts out: for each scenario the bandwidth by number of I/O nodes, the best
//! number, which numbers really differ, and what to be wary of.

mod html;
mod measurements;
mod text;
mod verdict;
mod wary;

pub use forebay_policy::Facts;
pub use html::html;
pub use measurements::{MeasurementError, Measurements, Scenario};
pub use text::text;
pub use verdict::{Best, Count, Pair, Rule, ScenarioVerdict, StudyReport, assess};
pub use wary::Warning;
