//! Who this process is, and what it asks a node to prove.

use forebay_types::{Epoch, Protect, Secret};
use forebay_wire::hello::SessionId;
use rustix::rand::{GetRandomFlags, getrandom};
use std::sync::atomic::AtomicU8;
use std::time::Duration;

/// Who this process is, for the handshake.
pub(crate) struct Identity<'a> {
    pub(crate) session: SessionId,
    pub(crate) secret: &'a Secret,
    /// A MUNGE credential that carries it, where a job begins.
    pub(crate) credential: &'a str,
    pub(crate) job: &'a str,
    pub(crate) host: &'a str,
    pub(crate) rank: Option<(u32, u32)>,
    pub(crate) epoch: Epoch,
    /// The connection is not for requests, but for children to hold the session by.
    pub(crate) lifeline: bool,
    /// How a connection to another host is protected at least.
    pub(crate) protect: Protect,
    /// Where it is noted that a node asks for more, for what this process names.
    pub(crate) asked: &'a AtomicU8,
    /// The exports that it uses.
    pub(crate) exports: &'a [&'a str],
    /// How late a deadline may be noticed.
    pub(crate) tick: Duration,
}

/// Something that no node can have seen before.
pub(crate) fn challenge() -> Result<[u8; 16], &'static str> {
    let mut bytes = [0; 16];
    let got = getrandom(&mut bytes[..], GetRandomFlags::empty());
    if got == Ok(bytes.len()) { Ok(bytes) } else { Err("there are no random numbers to challenge it with") }
}
