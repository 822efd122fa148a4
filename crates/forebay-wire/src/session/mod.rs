//! The two ends of a session as state machines. The client's: [`call`] decides where a request goes and
//! what to do when no answer comes, [`wait`] how long to wait for it on one connection, [`nodes`] which
//! node is used, [`news`] whether the job's mapping is asked for, [`place`] what becomes of an open file that
//! moves, or that a parent left, and with it of its [`locks`], [`duty`] who syncs what other hosts have taken,
//! [`common`] what the processes that share an open file know of it together.
//! The node's: [`lease`] keeps a request from being carried out after its client gave up
//! on it, [`replies`] answers a repeated request without doing it again, [`writes`] keeps its tries in order,
//! [`ledger`] lets another process answer for a node that is gone, [`held`] keeps what is open as long as anybody
//! may want it, [`presence`] says when a session is over, and a drain, [`waits`] who waits for whose locks. Both count by the same [`fence`], and [`spin`] through short waits; [`board`], [`later`]
//! and [`stream`] are what they share where they run on one host. [`gate`] is between a mount and the programs that use its
//! files past it.

pub mod ample;
pub mod board;
pub mod call;
pub mod common;
pub mod duty;
pub mod fence;
pub mod gate;
pub mod held;
pub mod later;
pub mod lease;
pub mod ledger;
pub mod locks;
pub mod news;
pub mod nodes;
pub mod owed;
pub mod place;
pub mod presence;
pub mod replies;
pub mod spin;
pub mod stream;
pub mod wait;
pub mod waits;
pub mod writes;
