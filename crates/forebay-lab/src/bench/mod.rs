//! What Forebay costs, measured on this machine against what bounds it.

mod limit;
mod path;
mod sched;
mod worker;

pub use limit::serve_limit;
pub use path::{PathBench, PathRow};
pub use sched::SchedBench;
pub use worker::{Op, Worker};
