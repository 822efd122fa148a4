//! Scenarios from Darshan logs: how many processes, shared files or files of their own, request
//! sizes, order and volume.

mod derive;
mod log;

pub use derive::{derive, to_toml};
pub use log::{DarshanError, Log, PosixRecord, read};
