//! The I/O node: it listens, admits clients, schedules their requests and carries them out on the
//! file system it has mounted.
//!
//! One blocking thread serves each connection ([`connection`]); what the scheduler lets go at once it
//! carries out itself, what has to wait is carried out by dispatchers ([`engine`], [`serve`]). Paths
//! are resolved in [`path`] and nowhere else; `unsafe` lives in [`sys`] and nowhere else.

mod announce;
mod areas;
pub mod blame;
mod buffer;
mod clients;
pub mod config;
mod connection;
pub mod control;
pub mod daemon;
mod directories;
mod engine;
mod fail;
mod file;
mod identity;
mod job;
mod jobs;
mod kept;
mod later;
mod layout;
mod ledger;
mod lent;
mod link;
mod meta;
mod metrics;
mod node;
mod path;
mod peers;
mod probe;
mod protection;
mod ranges;
mod receiver;
mod reply;
mod room;
mod running;
mod scrape;
mod serve;
mod session;
mod shares;
mod space;
mod spinners;
pub mod stats;
mod storage;
mod sys;

pub use node::{Node, StartError};
pub use running::Running;
pub use sys::die_with_parent;
