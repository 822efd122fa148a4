//! The embedded layer: I/O nodes as child processes on this machine, and what their clients need to
//! find them, for the time of one run. A run has one directory that holds everything (sockets, the
//! client configuration, counters) and that goes away with it.

mod error;
mod layer;
#[cfg(feature = "preload")]
mod preload;
mod rundir;

pub use error::EmbedError;
pub use layer::{At, Layer, LayerConfig, NodeReport, Note, Transport, write_config};
#[cfg(feature = "preload")]
pub use preload::PRELOAD;
