//! Health screening of I/O nodes: which of them may be given jobs, and why not.
//!
//! Events come in (a node joined, reported, answered a probe, drains) with `now`, and
//! [`Screen::tick`] says what changed. No clock, no socket: the service calls it, the tests replay
//! traces through it.
//!
//! A node is compared with its peers *now* and with its own *past*, by medians. Three things are
//! measured, each over the last few seconds:
//!
//! | measure | from | shows |
//! |---|---|---|
//! | stall | a probe's round trip without the storage's part | a node that does not run, a sick network |
//! | storage | the storage's part of a probe | a sick storage client |
//! | service | each second's report, by kind of request | requests that take long *and* are served at a low rate |
//!
//! | file | what lives there |
//! |---|---|
//! | `config` | the thresholds |
//! | `robust` | medians and spreads |
//! | `watch` | what is known of one node |
//! | `judge` | one node against its peers and its past |
//! | `screen` | diagnoses over time, for the whole pool |

mod config;
mod judge;
mod robust;
mod screen;
mod watch;

pub use config::ScreenConfig;
pub use screen::{Change, Diagnosis, Screen, State};
