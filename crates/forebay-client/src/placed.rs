//! What is written in large pieces is placed in memory that the I/O node of this host has, too: it is copied once on its
//! way there instead of twice, and nobody is woken while it is under way. The memory is one connection's, which has one
//! request under way at a time. A connection that did not bring an answer is never used again, and so is its memory: a
//! node that hangs in a call finds there what it was given, whenever it goes on.

use crate::client::Client;
use crate::conn::{Conn, PING_AFTER};
use crate::stream::Shared;
use crate::sys;
use forebay_types::{Address, Nanos};
use forebay_wire::frame::{Header, Opcode};
use forebay_wire::message::{Meta, Sharing};
use forebay_wire::session::stream::{PLACED, SMALL};
use rustix::fd::AsRawFd;
use std::sync::atomic::Ordering;

/// From here on it pays.
const LARGE: usize = 32 << 10;
/// After so many large writes on a connection it is worth its beginning.
const WORTH: u32 = 4;

/// Where a connection's large writes are placed.
#[derive(Debug)]
pub(crate) enum Placing {
    /// So many were sent as they are.
    NotYet(u32),
    Here(Shared),
    Nowhere,
}

impl Placing {
    /// For a connection to `address`; `sealed`: what is said there is.
    pub(crate) fn new(address: &Address, sealed: bool) -> Placing {
        if matches!(address, Address::Unix(_)) && !sealed { Placing::NotYet(0) } else { Placing::Nowhere }
    }

    /// Places what a write brings, if it may: whether that was done.
    pub(crate) fn put(&mut self, header: &mut Header, data: &[u8]) -> bool {
        let Placing::Here(shared) = self else { return false };
        if !(LARGE..=PLACED).contains(&data.len()) {
            return false;
        }
        if data.len() <= SMALL {
            // All of it was looked at by whoever has it from a program.
            shared.area.put(0..data.len(), data);
        } else if !shared.area.put_by_kernel(data) {
            // It has a hole: the socket says so.
            return false;
        }
        header.set_placed();
        true
    }

    /// A write of so many bytes was sent as it is, and answered: whether it is time to begin.
    pub(crate) fn is_due(&mut self, len: usize) -> bool {
        let Placing::NotYet(seen) = self else { return false };
        *seen += u32::from((LARGE..=PLACED).contains(&len));
        *seen >= WORTH
    }
}

impl Client {
    /// Tells the node of memory for what is written through this connection, before `until`. False: the connection is no
    /// good any more.
    #[cold]
    pub(crate) fn begin_placing(&self, conn: &mut Conn, until: Nanos) -> bool {
        conn.placing = Placing::Nowhere;
        let with = self.serving.load(Ordering::SeqCst);
        let Some((shared, descriptor, nonce)) = Shared::new(0, with, PLACED) else { return true };
        shared.area.keep_from_children();
        let (how, mut body) = (Sharing::Payload { fd: descriptor.as_raw_fd(), nonce }, Vec::new());
        Meta::Share { handle: 0, how }.encode(&mut body);
        let now = sys::now();
        let limit = PING_AFTER.min(until.since(now).into());
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut header = Header::request(Opcode::Meta, id, body.len() as u32);
        header.stamp = now.0.into();
        let told = conn
            .send_request(now, now, limit, &[], &header, &body)
            .and_then(|mut wait| conn.await_reply(&mut wait, id, None))
            .map(|reply| reply.header.status.get() == 0);
        if matches!(told, Ok(true)) {
            conn.placing = Placing::Here(shared);
        }
        told.is_ok()
    }
}
