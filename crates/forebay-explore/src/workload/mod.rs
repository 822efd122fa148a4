//! The requests of each process, and the bytes they carry: pure functions of scenario and rank.

mod payload;
mod requests;

pub use payload::{Mismatch, Payload};
pub use requests::{Request, Requests};
