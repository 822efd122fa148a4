//! What-if simulations that drive the real schedulers, collectors, detector, council and policies:
//! nothing here decides, it only keeps time and counts.
//!
//! | module | what it simulates |
//! |---|---|
//! | [`requests`] | every request: processes, links, I/O nodes, data servers |
//! | [`fluid`] | months of jobs on a large machine, at rates instead of requests |
//! | [`scenarios`] | the sources' experiments on [`requests`] |
//! | [`failslow`] | an I/O node that is stopped again and again, and whoever screens it out |
//! | [`models`], [`fit`] | storage models by name, and how they are fitted to published results |
//! | [`study`] | many random sets of jobs, all policies, all pool sizes |
//! | [`queue`] | a FIFO job queue on a machine, the policy called at every change |
//! | [`decision`] | how long one decision takes |
//! | [`charts`], [`text`] | what was simulated, drawn and in words |
//! | [`taihulight`] | a synthetic history of a large machine, dispatched by DFRA |

pub mod charts;
pub mod decision;
pub mod failslow;
pub mod fit;
pub mod fluid;
mod history;
pub mod models;
pub mod queue;
pub mod requests;
pub mod scenarios;
pub mod stats;
pub mod study;
pub mod taihulight;
pub mod text;
