//! How many I/O nodes does an access pattern want? Scenarios to run, the statistics that answer the
//! question, and the reports people read.
//!
//! | module | what lives there |
//! |---|---|
//! | [`scenario`] | what is to be run: FORGE's JSON, our TOML |
//! | [`darshan`], [`trace`] | scenarios from Darshan logs, and from traces |
//! | [`derived`] | such a scenario as a file, and what to expect of it |
//! | [`workload`] | the requests of each process, and the bytes they carry |
//! | [`run`] | running scenarios, on this machine or under a launcher |
//! | [`stats`] | quantiles, confidence intervals, Kruskal-Wallis, Dunn |
//! | [`analysis`] | measurements in, verdicts and reports out |
//! | [`curves`] | the bandwidth curves of a report |

pub mod analysis;
pub mod curves;
pub mod darshan;
pub mod derived;
pub mod run;
pub mod scenario;
pub mod stats;
pub mod trace;
pub mod workload;
