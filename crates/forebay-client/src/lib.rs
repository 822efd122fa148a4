//! Forebay's client: one [`Client`] per process, blocking, without threads of its own, so that it
//! can live inside a preloaded library. It keeps a few connections to the I/O node the mapping
//! gives this process and pipelines large transfers. What happens when a node dies, stops answering or
//! drains is decided by [`forebay_wire::session`], and done here.
//!
//! All system calls go through rustix's raw backend: a preloaded library may call this code from
//! inside its own replacements of libc's functions.

mod call;
mod client;
mod commons;
mod config;
mod conn;
mod counters;
mod durable;
mod error;
mod file;
mod files;
mod guarded;
mod handshake;
mod hosts;
mod identity;
mod ids;
mod lanes;
mod late;
mod later;
mod lifeline;
mod locks;
mod look;
mod moving;
mod placed;
mod pool;
mod seen;
mod shape;
mod sleep;
mod socket;
mod spin;
mod stream;
mod sys;
mod trace;
mod transfer;
mod whereabouts;

pub use client::Client;
pub use commons::{CommonAt, meet_in};
pub use config::{Config, ConfigError, DIRECT_MARK, ExportMap, Fallback, LONGEST_CONFIG, Reread, Vouch};
pub use counters::{Counters, HOUSEKEEPING, OpTotals};
pub use error::Error;
pub use file::{File, FileRecord};
pub use files::{DirectionTotals, FileCounters, FileTotals, name_id};
pub use forebay_types::{Address, Starter, Task};
pub use ids::{IDS, Ids};
pub use locks::LockWait;
pub use seen::Moment;
pub use shape::{stat, statx};
pub use sleep::before_sleep;
pub use spin::{Watch, may_spin, processors};
pub use sys::{gates_at, high_descriptor, hostname, remember_mount};
pub use trace::{MOST_TRACED, Traced, prepare_trace};

pub use forebay_types::Nanos;
pub use forebay_wire::flags::OpenFlags;
pub use forebay_wire::message::{
    Answer, Attr, Entry, ExportId, FsStat, LockKind, LockOwner, LockRange, LockRecord, Meta, Path, SeekKind,
    SetTime, Target, UMASK_SHIFT,
};
pub use forebay_wire::session::gate;
pub use forebay_wire::session::waits::Waits;
