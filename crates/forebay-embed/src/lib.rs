//! Starting Forebay's own processes on this machine: I/O nodes and arbiters are given directories,
//! secrets and configurations, made ready, and ended here and nowhere else. The embedded layer is the I/O
//! nodes of one run and what their clients need to find them. What is started and made here goes with
//! the program that started it.

mod agent;
mod balance;
mod error;
mod etcd;
mod files;
mod interrupt;
mod launcher;
mod layer;
mod lease;
#[cfg(feature = "preload")]
mod preload;
mod process;
mod rundir;
mod sys;
mod using;

pub use agent::Agent;
pub use balance::{Imbalance, Totals, imbalance};
pub use error::EmbedError;
pub use etcd::Etcd;
pub use files::write_config;
pub use interrupt::{
    before_exit, ending_signals, heed_file_size_limit, interrupted_status, lacks_thread,
    stop_when_interrupted, tidy_and_exit, tidy_when_interrupted,
};
pub use launcher::{ArbiterProcess, ArbiterSpec, Launcher, Log, NodeEnd, NodeProcess, NodeSpec, await_ready};
pub use layer::{Across, At, Layer, LayerConfig, NodeOutcome, Note, Transport};
#[cfg(feature = "preload")]
pub use preload::{ACCELERATOR, ACCELERATOR_FILE, PRELOAD};
pub use process::{Process, stands_still};
pub use rundir::{RunDir, can_load_library, can_preload, memory, run_base};
pub use sys::{end_with_parent, own_network};
pub use using::{User, using};
