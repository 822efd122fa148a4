//! What Forebay costs, measured on this machine against what bounds it.

mod against;
mod everyday;
mod limit;
mod path;
mod sched;
mod worker;

pub use against::{Against, AgainstRow};
pub use everyday::Everyday;
pub use limit::serve_limit;
pub use path::{PathBench, PathRow};
pub use sched::SchedBench;
pub use worker::{Op, Worker};
