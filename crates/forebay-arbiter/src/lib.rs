//! The arbiter: I/O nodes are given to jobs by what they gain, and moved while the jobs run.
//!
//! | module | what lives there |
//! |---|---|
//! | [`core`] | all decisions, without I/O: jobs, leases, nodes, mapping, epochs |
//! | [`council`] | scheduler parameters are learned from the nodes' reports |
//! | [`curves`] | which bandwidth a job has with how many I/O nodes |
//! | [`activity`], [`runs`] | what a job does, and what its next run will do |
//! | [`store`] | the control state and the seam to where it is kept |
//! | [`health`] | which I/O nodes may be given jobs, and why not |
//! | [`ha`] | the control state in etcd, and one leader among several arbiters |
//! | [`history`] | what jobs did on I/O nodes, by second, minute and hour; the decisions |
//! | [`service`] | the thread in which the core lives, and the way to it |
//! | [`api`], [`serve`] | HTTP: routes, the nodes' WebSockets, metrics; taking connections |
//! | [`daemon`] | the process: state, sockets, signals |
//! | [`config`] | settings |
//! | [`model_file`] | the detector, which may be replaced at any time |

pub mod activity;
pub mod api;
pub mod config;
pub mod core;
pub mod council;
pub mod curves;
pub mod daemon;
pub mod ha;
pub mod health;
pub mod history;
pub mod model_file;
mod questions;
mod refusals;
pub mod runs;
pub mod serve;
pub mod service;
pub mod store;
