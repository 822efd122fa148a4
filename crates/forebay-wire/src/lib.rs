//! Forebay's data plane, without I/O: what a frame looks like ([`frame`]), what the messages in it
//! say ([`message`], [`hello`], [`flags`]), how they are sealed ([`seal`]) and how both ends of a session behave ([`session`]).
//!
//! Nothing here opens a socket or reads a clock. Decoding hostile bytes gives a [`WireError`],
//! never a panic, and no length is trusted before it was checked against a limit.

pub mod flags;
pub mod frame;
pub mod hello;
pub mod message;
pub mod seal;
pub mod session;

mod error;

pub use error::WireError;

/// The oldest protocol version this build speaks.
pub const VERSION_MIN: u16 = 8;
/// The newest protocol version this build speaks.
pub const VERSION_MAX: u16 = 8;

/// The largest data payload of one frame. Larger reads and writes are split by the client.
pub const MAX_DATA: u32 = 4 << 20;
/// The largest body of a metadata or control frame.
pub const MAX_META: u32 = 256 << 10;
/// The longest path a request may carry, as Linux's `PATH_MAX`.
pub const MAX_PATH: usize = 4096;
/// The longest single name.
pub const MAX_NAME: usize = 255;
