//! Request scheduling on the I/O node, as plain state machines: the seam ([`Scheduler`]), the
//! schedulers of the literature behind it, merging of contiguous requests, and the queue that the
//! node holds ([`DispatchQueue`]). No clock, thread or socket: `now` is an argument.

pub mod aggregate;
mod batch;
mod config;
pub mod fifo;
mod queue;
mod request;
mod scheduler;
pub mod service;
pub mod twins;
mod units;

pub use batch::{Batch, Segment};
pub use config::{Algorithm, ConfigError, Plain, SchedulerConfig, Site, build};
pub use queue::{DispatchQueue, Ticket};
pub use request::{METADATA_COST, Request};
pub use scheduler::Scheduler;
