//! Replies: what each of them tells, and the one way in which the outcome of a data request becomes one,
//! whoever carried it out.

use crate::buffer::Buffer;
use crate::fail::Failure;
use crate::link::Frame;
use crate::node::Node;
use crate::serve::{Moved, data_op};
use crate::session::Session;
use forebay_types::{Epoch, Nanos};
use forebay_wire::frame::{Header, Opcode, flag};
use std::sync::atomic::Ordering::Relaxed;

/// The reply to a data request.
pub(crate) struct DataReply {
    pub(crate) header: Header,
    pub(crate) body: ReplyBody,
}

/// What follows the header.
#[derive(Clone, Copy)]
pub(crate) enum ReplyBody {
    /// So many bytes that were read.
    Read(usize),
    /// A sentence, or nothing.
    Text(&'static str),
}

impl DataReply {
    /// The reply on its own feet; `payload` holds what was read.
    pub(crate) fn into_frame(self, mut payload: Buffer) -> Frame {
        match self.body {
            ReplyBody::Read(n) => {
                payload.set_header(self.header.as_bytes());
                Frame::Buffer(payload, n)
            }
            ReplyBody::Text(text) => Frame::Bytes([&self.header.as_bytes()[..], text.as_bytes()].concat()),
        }
    }
}

impl Node {
    /// A reply's header, with what every reply tells: the epoch of the job's mapping (0 to those
    /// who have none), and whether to move.
    pub(crate) fn reply(&self, epoch: Epoch, opcode: Opcode, id: u64, status: u32, body: u32) -> Header {
        let mut header = Header::reply(opcode, id, status, body);
        header.stamp = epoch.0.into();
        if self.draining() {
            header.set(flag::MOVE);
        }
        header
    }

    /// The header of a reply that says no; the reason's text is its body.
    fn failed(&self, epoch: Epoch, opcode: Opcode, id: u64, failure: &Failure) -> Header {
        let status = failure.errno.raw_os_error().unsigned_abs();
        let mut header = self.reply(epoch, opcode, id, status, failure.why.len() as u32);
        header.set(failure.flags);
        if failure.flags & flag::EXPIRED != 0 {
            self.stats.expired.fetch_add(1, Relaxed);
            tracing::debug!("fenced: {} {id} came after its client's lease: {}", opcode.name(), failure.why);
        }
        header
    }

    /// A reply that says no, in place of what `frame` holds.
    pub(crate) fn refusal(
        &self,
        epoch: Epoch,
        opcode: Opcode,
        id: u64,
        failure: &Failure,
        frame: &mut Vec<u8>,
    ) {
        frame.clear();
        frame.extend_from_slice(self.failed(epoch, opcode, id, failure).as_bytes());
        frame.extend_from_slice(failure.why.as_bytes());
    }

    /// The reply to a data request that came at `received` and to which storage said `moved`. It is
    /// counted, and an append's is remembered, so that it is not done twice.
    pub(crate) fn data_reply(
        &self,
        session: &Session,
        request: &Header,
        opcode: Opcode,
        moved: &Moved,
        took: Nanos,
    ) -> DataReply {
        let (epoch, id) = (session.job.epoch(), request.id.get());
        let (header, body) = match moved {
            Ok((n, offset)) => {
                let read = opcode == Opcode::Read;
                let mut header = self.reply(epoch, opcode, id, 0, if read { *n as u32 } else { 0 });
                header.length = (*n as u64).into();
                header.offset = (*offset).into();
                (header, if read { ReplyBody::Read(*n) } else { ReplyBody::Text("") })
            }
            Err(failure) => (self.failed(epoch, opcode, id, failure), ReplyBody::Text(failure.why)),
        };
        if opcode == Opcode::Append {
            let tried = !moved.as_ref().is_err_and(Failure::not_tried);
            // What is remembered stands alone, without a reason's text.
            let mut alone = header;
            alone.set_body_len(0);
            session.end(id, tried.then_some(&alone.as_bytes()[..]));
        }
        let bytes = moved.as_ref().map_or(0, |m| m.0 as u64);
        session.record(data_op(opcode), bytes, took, moved.is_err());
        DataReply { header, body }
    }
}
