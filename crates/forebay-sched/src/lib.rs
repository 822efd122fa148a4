//! Request scheduling on the I/O node, as plain state machines: the seam ([`Scheduler`]), the
//! schedulers of the literature behind it, merging of contiguous requests, and the queue that the
//! node holds ([`DispatchQueue`]). No clock, thread or socket: `now` is an argument.

pub mod aggregate;
pub mod aioli;
mod batch;
pub mod bench;
pub mod blame;
pub mod capped;
mod config;
pub mod emulate;
pub mod fifo;
mod flows;
pub mod hbrr;
mod heap;
pub mod layout;
pub mod limit;
mod list;
pub mod mlf;
mod queue;
mod request;
mod scheduler;
pub mod service;
pub mod sfq;
pub mod sfq_plus;
pub mod share;
pub mod sjf;
pub mod slots;
pub mod sw;
mod sweep;
mod sweeps;
mod table;
mod tags;
pub mod twins;
pub mod wfq;
pub mod whatif;

pub use batch::{Batch, Segment};
pub use config::{Algorithm, ConfigError, Plain, SchedulerConfig, Site, build};
pub use queue::{DispatchQueue, Ticket};
pub use request::{METADATA_COST, Request};
pub use scheduler::Scheduler;
