//! The frame: a fixed header of 64 little-endian bytes, then `body` bytes.

use crate::session::stream::PLACED;
use crate::{MAX_DATA, MAX_META, WireError};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The size of [`Header`] on the wire.
pub const HEADER_LEN: usize = size_of::<Header>();

const MAGIC: u32 = u32::from_le_bytes(*b"FBAY");

/// What a frame is for. Metadata operations share one opcode; which one it is, the message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Opcode {
    /// Node to client, first thing on a connection.
    Greeting = 1,
    /// Client to node: who I am; the reply is the welcome.
    Hello = 2,
    /// Read `length` bytes at `offset` of `handle`.
    Read = 3,
    /// Write the body at `offset` of `handle`.
    Write = 4,
    /// Write the body at the end of `handle`; `offset` is the end as the client last knew it.
    Append = 5,
    /// A [`crate::message::Meta`] operation.
    Meta = 6,
    /// Are you there? Also renews the session's lease.
    Ping = 7,
    /// The client leaves: release what it holds. From the node, as a reply with a status: the
    /// connection ends here, the body says why, and the id is that of the offending frame (or 0).
    Goodbye = 8,
    /// Control of the node itself (statistics, parameters), JSON in the body.
    Control = 9,
}

impl Opcode {
    /// The opcode's name, for errors and reports.
    pub fn name(self) -> &'static str {
        match self {
            Opcode::Greeting => "greeting",
            Opcode::Hello => "hello",
            Opcode::Read => "read",
            Opcode::Write => "write",
            Opcode::Append => "append",
            Opcode::Meta => "metadata",
            Opcode::Ping => "ping",
            Opcode::Goodbye => "goodbye",
            Opcode::Control => "control",
        }
    }

    fn decode(raw: u16) -> Result<Opcode, WireError> {
        Ok(match raw {
            1 => Opcode::Greeting,
            2 => Opcode::Hello,
            3 => Opcode::Read,
            4 => Opcode::Write,
            5 => Opcode::Append,
            6 => Opcode::Meta,
            7 => Opcode::Ping,
            8 => Opcode::Goodbye,
            9 => Opcode::Control,
            other => return Err(WireError::UnknownOpcode(other)),
        })
    }

    fn body_limit(self, flags: u16) -> u32 {
        let reply = flags & flag::REPLY != 0;
        match self {
            Opcode::Write | Opcode::Append if !reply => MAX_DATA,
            Opcode::Read if reply => MAX_DATA,
            Opcode::Control if reply => MAX_DATA,
            _ => MAX_META,
        }
    }
}

/// Bits of [`Header::flags`].
pub mod flag {
    /// This frame answers the request of the same id.
    pub const REPLY: u16 = 1;
    /// The request was sent before, perhaps to another node, and was not answered.
    pub const REPLAY: u16 = 2;
    /// On a reply: this node is draining; send what comes next to another one.
    pub const MOVE: u16 = 4;
    /// On a reply with `EXDEV`: the path left the export (absolute or upward symbolic link).
    pub const ESCAPES: u16 = 8;
    /// On a reply: the request was not carried out because the session's lease had run out.
    pub const EXPIRED: u16 = 16;
    /// On a reply: the handle is not known here; open the file again.
    pub const STALE_HANDLE: u16 = 32;
    /// On a close or a goodbye: a process forked from this one may still hold the file; keep it open
    /// for [`crate::message::Meta::Adopt`] while the session has a lifeline, and for the node's grace
    /// time. Without it, the last close closes.
    pub const LINGER: u16 = 64;
    /// On the answer to a ping: a limit holds back what was asked for on this connection.
    pub const HELD: u16 = 128;
    /// On a metadata request that changes something: the answer is to be the attributes of what it was about
    /// ([`crate::message::Meta::subject`]), if they can be told.
    pub const LOOK: u16 = 256;
    /// On a write: its bytes have been placed in the memory that was shared for the connection
    /// ([`crate::message::Sharing::Payload`]), from its beginning on; `length` says how many, and there is no body.
    pub const PLACED: u16 = 512;
}

/// The fixed part of every frame. Fields a frame has no use for are zero.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Header {
    magic: U32,
    opcode: U16,
    flags: U16,
    /// Request id, unique in the session; a reply carries its request's.
    pub id: U64,
    /// Open file, on the node.
    pub handle: U64,
    /// File offset. On an append's reply: where the data landed.
    pub offset: U64,
    /// Bytes to read; on a reply, bytes done.
    pub length: U64,
    /// On a request, the client's clock at sending (its lease); on a reply, the epoch of the job's mapping.
    pub stamp: U64,
    body: U32,
    /// On a reply: errno, 0 for success.
    pub status: U32,
    /// Fills the header up to a cache line; 0.
    reserved: U32,
    /// On a replay: milliseconds since the request was first sent.
    pub age_ms: U32,
}

impl Header {
    /// A request of `opcode` with a body of `body` bytes.
    pub fn request(opcode: Opcode, id: u64, body: u32) -> Header {
        Header {
            magic: MAGIC.into(),
            opcode: (opcode as u16).into(),
            flags: 0.into(),
            id: id.into(),
            handle: 0.into(),
            offset: 0.into(),
            length: 0.into(),
            stamp: 0.into(),
            body: body.into(),
            status: 0.into(),
            reserved: 0.into(),
            age_ms: 0.into(),
        }
    }

    /// The reply to the request `id`.
    pub fn reply(opcode: Opcode, id: u64, status: u32, body: u32) -> Header {
        let mut h = Header::request(opcode, id, body);
        h.flags = flag::REPLY.into();
        h.status = status.into();
        h
    }

    /// Reads and checks a header: magic, opcode, and the body's length against the opcode's limit.
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Result<(Header, Opcode), WireError> {
        let h = Header::read_from_bytes(bytes).map_err(|_| WireError::Malformed("header"))?;
        if h.magic.get() != MAGIC {
            return Err(WireError::BadMagic(h.magic.get()));
        }
        let opcode = Opcode::decode(h.opcode.get())?;
        let limit = opcode.body_limit(h.flags.get());
        if h.body.get() > limit {
            return Err(WireError::TooLong {
                opcode: opcode.name(),
                length: h.body.get().into(),
                limit: limit.into(),
            });
        }
        if opcode == Opcode::Read && h.length.get() > u64::from(MAX_DATA) {
            return Err(WireError::TooLong {
                opcode: opcode.name(),
                length: h.length.get(),
                limit: MAX_DATA.into(),
            });
        }
        if h.has(flag::PLACED)
            && (opcode != Opcode::Write || h.body.get() != 0 || h.length.get() > PLACED as u64)
        {
            return Err(WireError::Malformed("placed"));
        }
        Ok((h, opcode))
    }

    /// The header's bytes.
    pub fn as_bytes(&self) -> &[u8; HEADER_LEN] {
        zerocopy::transmute_ref!(self)
    }

    /// How many body bytes follow.
    pub fn body_len(&self) -> usize {
        self.body.get() as usize
    }

    /// How many bytes a write brings, wherever they are.
    pub fn payload_len(&self) -> usize {
        if self.has(flag::PLACED) { self.length.get() as usize } else { self.body_len() }
    }

    /// A write's bytes have been placed: they do not follow.
    pub fn set_placed(&mut self) {
        self.length = u64::from(self.body.get()).into();
        self.body = 0.into();
        self.set(flag::PLACED);
    }

    /// Sets how many body bytes follow.
    pub fn set_body_len(&mut self, n: u32) {
        self.body = n.into();
    }

    /// Whether the flag bit `f` (see [`flag`]) is set.
    pub fn has(&self, f: u16) -> bool {
        self.flags.get() & f != 0
    }

    /// Sets the flag bit `f`.
    pub fn set(&mut self, f: u16) {
        self.flags = (self.flags.get() | f).into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn layout_is_stable() {
        assert_eq!(HEADER_LEN, 64);
        let mut h = Header::request(Opcode::Write, 7, 3);
        h.handle = 9.into();
        let b = h.as_bytes();
        assert_eq!(&b[..8], b"FBAY\x04\x00\x00\x00");
        assert_eq!(b[8], 7);
        assert_eq!(b[16], 9);
        assert_eq!(b[48], 3);
    }

    #[test]
    fn lengths_are_limited() {
        let h = Header::request(Opcode::Write, 1, MAX_DATA + 1);
        assert!(matches!(Header::decode(h.as_bytes()), Err(WireError::TooLong { .. })));
        let h = Header::request(Opcode::Meta, 1, MAX_META + 1);
        assert!(matches!(Header::decode(h.as_bytes()), Err(WireError::TooLong { .. })));
        let mut h = Header::request(Opcode::Read, 1, 0);
        h.length = (u64::from(MAX_DATA) + 1).into();
        assert!(matches!(Header::decode(h.as_bytes()), Err(WireError::TooLong { .. })));
    }

    #[test]
    fn only_writes_are_placed_and_not_more_than_there_is_room_for() {
        let placed = |opcode, len| {
            let mut h = Header::request(opcode, 1, len);
            h.set_placed();
            h
        };
        let h = placed(Opcode::Write, PLACED as u32);
        assert_eq!((h.body_len(), h.payload_len()), (0, PLACED));
        assert!(Header::decode(h.as_bytes()).is_ok());
        let mut with_body = h;
        with_body.set_body_len(1);
        let longer = placed(Opcode::Write, PLACED as u32 + 1);
        for wrong in [longer, placed(Opcode::Append, 1), placed(Opcode::Read, 1), with_body] {
            assert!(matches!(Header::decode(wrong.as_bytes()), Err(WireError::Malformed(_))));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_fail(bytes in prop::array::uniform32(any::<u8>()), opcode in 0u16..12, good in any::<bool>()) {
            let mut all = [0u8; HEADER_LEN];
            all[..32].copy_from_slice(&bytes);
            all[32..].copy_from_slice(&bytes);
            if good {
                all[..4].copy_from_slice(b"FBAY");
                all[4..6].copy_from_slice(&opcode.to_le_bytes());
            }
            if let Ok((h, op)) = Header::decode(&all) {
                prop_assert!(h.body_len() <= MAX_DATA as usize);
                prop_assert_eq!(h.as_bytes(), &all);
                prop_assert!(!op.name().is_empty());
            }
        }
    }
}
