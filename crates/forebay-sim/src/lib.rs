//! What-if simulations that drive the real policies: nothing here decides, it only counts.
//!
//! | module | what it simulates |
//! |---|---|
//! | [`study`] | many random sets of jobs, all policies, all pool sizes |
//! | [`queue`] | a FIFO job queue on a machine, the policy called at every change |
//! | [`taihulight`] | a synthetic history of a large machine, dispatched by DFRA |

mod history;
pub mod queue;
pub mod stats;
pub mod study;
pub mod taihulight;
