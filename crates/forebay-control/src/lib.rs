//! The control plane's words: what I/O nodes, jobs and tools say to the arbiter, and what they hear
//! from it. JSON over HTTP, and over one WebSocket per I/O node ([`NODE_PATH`]). Types only, but for the
//! client of the HTTP API (feature `client`) and the I/O nodes' end of the WebSocket (feature `socket`).
//!
//! | module | who talks |
//! |---|---|
//! | [`node`] | an I/O node and the arbiter, both ways, over the node's WebSocket |
//! | [`job`] | `forebay run` registers a job, renews its lease and ends it |
//! | [`limit`] | what jobs may have at most, and at least |
//! | [`council`] | what the arbiter shows of its council |
//! | [`view`] | what the arbiter shows to tools and people |
//! | [`status`] | what the status of an answer means |
//!
//! Every request that changes something says who sends it: `Authorization: Bearer SECRET` with the secret that
//! the arbiter and its I/O nodes share (64 hexadecimal digits; only over TLS, or from the arbiter's own
//! machine: [`private`]), or `Authorization: Munge CREDENTIAL` of a user ([`claim`]).

pub mod claim;
#[cfg(feature = "client")]
pub mod client;
pub mod council;
pub mod job;
pub mod limit;
#[cfg(feature = "tls")]
mod listeners;
pub mod node;
#[cfg(feature = "tls")]
pub mod private;
#[cfg(feature = "socket")]
pub mod socket;
pub mod status;
pub mod view;

/// The version of these messages. A node or an arbiter with another one is refused by name.
pub const CONTROL_VERSION: u16 = 4;

/// Where an I/O node opens its WebSocket.
pub const NODE_PATH: &str = "/v1/nodes/connect";

/// Where jobs are registered (POST), and below it renewed (`PUT …/ID/lease`) and ended (`DELETE …/ID`).
pub const JOBS_PATH: &str = "/v1/jobs";
