//! A program's I/O forwarded on this machine, from the first look at the program to the report.
//!
//! | module | what it does |
//! |---|---|
//! | `program` | [`Program::run`]: I/O nodes or a job at the arbiter, the program, its end |
//! | [`launch`] | parallel programs on several hosts: who starts them, where, and whether all came |
//! | `join` | a process of a job on a host that sees nothing of the first one |
//! | `known` | how I/O nodes without an arbiter know whose job comes |
//! | `registration` | a job at the arbiter for as long as the program runs |
//! | `route` | preload library or mount, and starting the program behind it |
//! | `darshan`, `record` | what it did with each file, as a Darshan log; every call, as a trace |
//! | `watch` | what the program does, while it runs |
//! | `signals` | who a signal is for |
//! | `sentence` | errors for a person |
//! | `report`, `report_file` | what the run did, for a person and as JSON |
//! | [`mount`] | forwarded directories mounted on the machine until told otherwise |
//! | [`doctor`] | what works here, before anything is run |

mod darshan;
pub mod doctor;
mod join;
mod known;
pub mod launch;
pub mod mount;
mod not_run;
mod program;
mod record;
mod registration;
mod report;
mod report_file;
mod route;
mod sentence;
mod signals;
mod survivors;
mod sys;
mod watch;

pub use join::{job_secret, join};
pub use known::known_to;
pub use not_run::{NOT_STARTED, NotRun};
pub use program::{Ended, Forward, IoNodes, Program, name};
pub use report::RunReport;
pub use report_file::{ReportFile, RunFiles};
pub use route::{Via, inside, not_within};
pub use sentence::sentence;
pub use signals::Signals;
pub use survivors::{rest, stand_by};
pub use sys::output_was_closed;
