//! The two ends of a session as state machines: [`lease`] keeps a request from being carried out
//! after its client gave up on it, [`wait`] tells a client how long to wait and when to give up,
//! [`replies`] lets a node answer a repeated request without doing it again, [`ledger`] lets another
//! process answer for a node that is gone.

pub mod lease;
pub mod ledger;
pub mod replies;
pub mod wait;
