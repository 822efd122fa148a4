//! What Forebay costs, measured on this machine against what bounds it.

mod against;
mod crowd;
mod everyday;
mod front;
mod limit;
mod path;
mod scaling;
mod sched;
mod worker;

pub use against::{Against, AgainstRow, against_table};
pub use crowd::Crowd;
pub use everyday::Everyday;
pub use front::{FrontEnds, FrontRow, front_table};
pub use limit::serve_limit;
pub use path::{PathBench, PathRow, path_table};
pub use scaling::{Records, Scaling};
pub use sched::SchedBench;
pub use worker::{Op, Worker};

fn number(v: f64) -> String {
    match v {
        v if v.is_nan() => "–".to_owned(),
        v if v >= 100.0 => format!("{v:.0}"),
        v => format!("{v:.2}"),
    }
}

fn word(met: bool) -> &'static str {
    if met { "met" } else { "NOT met" }
}
