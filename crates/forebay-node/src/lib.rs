//! The I/O node: it listens, admits clients, schedules their requests and carries them out on the
//! file system it has mounted.
//!
//! One blocking thread serves each connection ([`client`]); what the scheduler lets go at once it
//! carries out itself, what has to wait is carried out by dispatchers ([`engine`], [`serve`]). Paths
//! are resolved in [`path`] and nowhere else; `unsafe` lives in [`sys`] and nowhere else.

mod announce;
mod buffer;
mod client;
pub mod config;
mod conn;
pub mod control;
mod engine;
mod fail;
mod file;
mod jobs;
mod layout;
mod meta;
mod node;
mod path;
mod peers;
mod probe;
mod replay;
mod rx;
mod serve;
mod session;
pub mod stats;
mod storage;
mod sys;

pub use node::{Node, Running, StartError};
pub use sys::{block_termination, die_with_parent, wait_for_termination};
