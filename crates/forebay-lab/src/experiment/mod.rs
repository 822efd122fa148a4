//! The experiments of the sources on real I/O nodes. Where no parallel file system is at hand, the nodes
//! answer no faster than emulated data servers would ("emulated storage": the data is really stored, the
//! times are a model's).

mod announcers;
mod arbiter;
mod blame;
mod blocks;
mod dfra;
mod failslow;
mod filesystem;
mod gluster;
mod isolation;
mod metadata;
mod overhead;
mod phases;
mod pool;
mod remap;
mod rewards;
mod storage;
mod testbed;
mod tuning;
mod twins;
mod workload;

pub use announcers::Announcers;
pub use arbiter::ArbiterQueue;
pub use blame::Blame;
pub use dfra::DfraPairs;
pub use failslow::Failslow;
pub use filesystem::RealFileSystem;
pub use gluster::Gluster;
pub use isolation::Isolation;
pub use metadata::Metadata;
pub use overhead::Overhead;
pub use phases::Phases;
pub use remap::{Remap, RemapWorker};
pub use rewards::Rewards;
pub use tuning::Tuning;
pub use twins::{Mounted, Twins};

use crate::{Outcome, Progress};
use anyhow::Result;

/// Something that is set up, measured and judged; its fields are the settings.
pub trait Experiment {
    /// Does it. Whatever it started and wrote is gone afterwards.
    fn run(&self, progress: &dyn Progress) -> Result<Outcome>;
}
