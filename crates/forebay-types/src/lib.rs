//! The words every Forebay crate shares. Plain values and what is said about them; what touches
//! files here is [`Secret::read`], [`input`], [`output`] and [`kernel`].
//!
//! | module | words |
//! |---|---|
//! | `identity` | whom an I/O node acts as |
//! | `id` | who: flow, node, server, file, request, client, and the epoch of a mapping |
//! | `time`, `bandwidth` | when and how fast |
//! | [`access`] | how programs use files: layout, spatiality, I/O mode, operation |
//! | `address` | where an I/O node or an arbiter listens |
//! | [`rates`] | what a job may have a second |
//! | `blame` | where the time of a job's requests went |
//! | `ready` | what an I/O node tells whoever started it |
//! | `metrics` | what one interval of a flow looked like on one I/O node |
//! | `scheduler` | a request scheduler as text, for messages |
//! | `task` | which process of a parallel program, and which I/O node is its own |
//! | [`hostlist`] | lists of hosts as launchers write them |
//! | `secret` | what a job's clients and its I/O nodes share |
//! | [`input`], [`output`] | files that people name: read up to a limit, written whole or not at all |
//! | [`names`] | characters in names that a person cannot see |
//! | [`kernel`] | file systems whose files are made as they are read |
//! | [`size`], [`span`], [`rate`] | quantities as people write them: `64K`, `10ms`, `500MB/s` |
//! | [`options`] | options with a range |
//! | [`switches`] | variables of the environment: what they may be set to, and which there are |
//! | [`trace`] | every call of a run, as a file |
//! | [`histogram`], [`stats`] | distributions, medians and quantiles |
//! | [`exposition`] | all of them as Prometheus reads them |

pub mod access;
mod address;
mod bandwidth;
mod blame;
pub mod exposition;
pub mod histogram;
pub mod hostlist;
mod id;
mod identity;
pub mod input;
pub mod kernel;
mod metrics;
pub mod names;
pub mod options;
pub mod output;
mod protect;
pub mod rates;
mod ready;
mod scheduler;
mod secret;
pub mod stats;
pub mod switches;
mod task;
mod time;
pub mod trace;
pub mod units;

pub use access::{AccessPattern, IoMode, Layout, OpKind, Operation, Pattern, Spatiality};
pub use address::{Address, AddressError, SOCKET_PATH};
pub use bandwidth::Bandwidth;
pub use blame::{Beside, Elsewhere, JobBlame, MOMENT, Moment, Neighbour, SLOW_STORAGE};
pub use histogram::{FineHistogram, Histogram};
pub use id::{ClientId, Epoch, FileId, FlowId, NodeId, RequestId, ServerId};
pub use identity::Identity;
pub use metrics::{FlowMetrics, Interval, Load, mode_of_job};
pub use protect::Protect;
pub use ready::Ready;
pub use scheduler::SchedulerSpec;
pub use secret::{Secret, SecretError};
pub use task::{ClientReport, Seat, Starter, Task, host_number, same_host};
pub use time::Nanos;
pub use units::{UnitError, rate, size, span};
