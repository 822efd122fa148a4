//! Carrying data requests out: alone, where they were received, or as a batch.

use crate::conn::{Conn, Frame};
use crate::engine::{Work, appends, with_payload};
use crate::fail::{Failure, Outcome};
use crate::file::OpenFile;
use crate::meta::Call;
use crate::node::Node;
use crate::replay;
use crate::session::Session;
use crate::stats::Op;
use crate::storage::Target;
use crate::sys;
use forebay_sched::{Segment, Ticket};
use forebay_types::{Epoch, OpKind};
use forebay_wire::flags::OpenFlags;
use forebay_wire::frame::{HEADER_LEN, Header, Opcode, flag};
use forebay_wire::message::Meta;
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What a data request came to: bytes done, and where they begin.
pub(crate) type Moved = Outcome<(usize, u64)>;

/// Whether the handle was opened for this.
pub(crate) fn permitted(file: &OpenFile, opcode: Opcode) -> Outcome<()> {
    let needed = if opcode == Opcode::Read { OpenFlags::READ } else { OpenFlags::WRITE };
    if !file.flags().has(needed) || file.flags().has(OpenFlags::PATH) {
        return Err(Errno::BADF.into());
    }
    if file.directory { Err(Errno::ISDIR.into()) } else { Ok(()) }
}

/// A request that was carried out and is to be answered.
enum Done {
    Data(Work, Moved),
    /// The reply's frame.
    Meta(Work, Vec<u8>),
}

impl Node {
    fn target<'a>(&self, file: &'a OpenFile, offset: u64) -> Target<'a> {
        Target { fd: file.fd(), offset, file: file.file_id() }
    }

    /// Reads into `into`.
    pub(crate) fn read(&self, file: &OpenFile, header: &Header, into: &mut [u8]) -> Moved {
        let offset = header.offset.get();
        if offset > i64::MAX as u64 {
            return Err(Errno::INVAL.into());
        }
        let n = self.storage.read(self.target(file, offset), &mut [IoSliceMut::new(into)])?;
        self.stats.issued_read.record(n as u64);
        Ok((n, offset))
    }

    /// Writes or appends `data`.
    pub(crate) fn write(
        &self,
        conn: &Conn,
        session: &Session,
        file: &OpenFile,
        header: &Header,
        opcode: Opcode,
        data: &[u8],
    ) -> Moved {
        let offset = header.offset.get();
        if offset > i64::MAX as u64 {
            return Err(Errno::INVAL.into());
        }
        if !appends(file, opcode) {
            session.begin_write(conn, header, sys::now())?;
            let written = self.storage.write(self.target(file, offset), &[IoSlice::new(data)]);
            session.end_write(header);
            let n = written?;
            self.stats.issued_write.record(n as u64);
            return Ok((n, offset));
        }
        let _position = file.position();
        if opcode == Opcode::Append
            && header.has(flag::REPLAY)
            && let Some(at) = replay::find_append(file, offset, data)?
        {
            return Ok((data.len(), at));
        }
        session.may_change(conn, sys::now())?;
        let (n, end) = self.storage.append(self.target(file, offset), data)?;
        self.stats.issued_write.record(n as u64);
        Ok((n, end.saturating_sub(n as u64)))
    }

    /// The header that answers a data request.
    pub(crate) fn data_reply(&self, epoch: Epoch, request: &Header, opcode: Opcode, moved: &Moved) -> Header {
        match moved {
            Ok((n, offset)) => {
                let mut h = self.reply(epoch, opcode, request.id.get(), 0, 0);
                h.length = (*n as u64).into();
                h.offset = (*offset).into();
                h
            }
            Err(failure) => self.failed(epoch, opcode, request.id.get(), failure),
        }
    }

    /// The header of a reply that says no; the reason's text is its body.
    pub(crate) fn failed(&self, epoch: Epoch, opcode: Opcode, id: u64, failure: &Failure) -> Header {
        let status = failure.errno.raw_os_error().unsigned_abs();
        let mut h = self.reply(epoch, opcode, id, status, failure.why.len() as u32);
        h.set(failure.flags);
        if failure.flags & flag::EXPIRED != 0 {
            self.stats.expired.fetch_add(1, Relaxed);
        }
        h
    }

    /// Remembers an append's answer, so that it is not done twice.
    pub(crate) fn remember(&self, session: &Session, opcode: Opcode, reply: &Header, moved: &Moved) {
        if opcode == Opcode::Append {
            let tried = !moved.as_ref().is_err_and(Failure::not_tried);
            // What is remembered stands alone, without a reason's text.
            let mut header = *reply;
            header.set_body_len(0);
            session.end(header.id.get(), tried.then_some(&header.as_bytes()[..]));
        }
    }

    /// Carries out what a ticket stands for, and gives the ticket back.
    pub(crate) fn serve_batch(self: &Arc<Node>, ticket: &Ticket, mut batch: Vec<Work>) {
        self.stats.dispatched.fetch_add(batch.len() as u64, Relaxed);
        // What can no longer be merged is done one by one.
        let mergeable = batch.len() > 1
            && batch.len() == ticket.batch.requests().len()
            && batch.windows(2).all(|w| match (&w[0].file, &w[1].file) {
                (Some(a), Some(b)) => a.same(b),
                _ => false,
            });
        let together = match ticket.batch.op() {
            _ if !mergeable => batch.iter().map(|_| None).collect(),
            OpKind::Read => self.read_together(ticket, &mut batch),
            _ => self.write_together(ticket, &batch),
        };
        if mergeable {
            self.stats.merged.fetch_add(batch.len() as u64, Relaxed);
        }
        // What was not, or not wholly, done together gets its own try and its own error.
        let done: Vec<Done> = batch
            .into_iter()
            .zip(together)
            .map(|(work, moved)| match moved {
                Some(moved) => Done::Data(work, moved),
                None => self.carry_out(work),
            })
            .collect();
        // Whoever has an answer finds the work booked.
        self.engine.complete(self, ticket, None);
        for done in done {
            match done {
                Done::Data(work, moved) => self.answer_data(work, moved),
                Done::Meta(work, frame) => work.conn.post(Frame::Bytes(frame)),
            }
        }
    }

    /// One `preadv` for all; gaps between the requests are read into memory nobody looks at.
    fn read_together(&self, ticket: &Ticket, batch: &mut [Work]) -> Vec<Option<Moved>> {
        let lens: Vec<(u64, usize)> = batch.iter().map(|w| (w.header.offset.get(), w.len())).collect();
        let largest =
            ticket.batch.segments().map(|s| if let Segment::Gap(n) = s { n } else { 0 }).max().unwrap_or(0);
        let gaps = ticket.batch.segments().filter(|s| matches!(s, Segment::Gap(_))).count();
        let mut hole = vec![0u8; largest as usize * gaps];
        let mut hole_rest = &mut hole[..];
        let Some(file) = batch.first().and_then(|w| w.file.clone()) else { return vec![None; batch.len()] };
        let mut vector: Vec<IoSliceMut<'_>> = Vec::with_capacity(batch.len() + gaps);
        let mut works = batch.iter_mut();
        for segment in ticket.batch.segments() {
            match segment {
                Segment::Gap(n) => {
                    let (gap, rest) = std::mem::take(&mut hole_rest).split_at_mut(n as usize);
                    hole_rest = rest;
                    vector.push(IoSliceMut::new(gap));
                }
                Segment::Request(_) => {
                    let Some(work) = works.next() else { return vec![None; lens.len()] };
                    let len = work.len();
                    vector.push(IoSliceMut::new(work.payload.payload_mut(len)));
                }
            }
        }
        let start = ticket.batch.offset();
        let Ok(n) = self.storage.read(self.target(&file, start), &mut vector) else {
            return vec![None; lens.len()];
        };
        self.stats.issued_read.record(n as u64);
        let end = start + n as u64;
        lens.iter()
            .map(|&(offset, len)| Some(Ok((end.saturating_sub(offset).min(len as u64) as usize, offset))))
            .collect()
    }

    /// One `pwritev` for all whose lease holds; what did not go as a whole is tried alone.
    fn write_together(&self, ticket: &Ticket, batch: &[Work]) -> Vec<Option<Moved>> {
        let now = sys::now();
        let none = || batch.iter().map(|_| None).collect();
        let Some(file) = batch.first().and_then(|w| w.file.clone()) else { return none() };
        let allowed =
            batch.iter().take_while(|w| w.session.begin_write(&w.conn, &w.header, now).is_ok()).count();
        let end = || batch[..allowed].iter().for_each(|w| w.session.end_write(&w.header));
        if allowed < batch.len() {
            end();
            return none();
        }
        let vector: Vec<IoSlice<'_>> =
            batch.iter().map(|w| IoSlice::new(w.payload.payload(w.len()))).collect();
        let written = self.storage.write(self.target(&file, ticket.batch.offset()), &vector);
        end();
        let Ok(n) = written else { return none() };
        self.stats.issued_write.record(n as u64);
        let end = ticket.batch.offset() + n as u64;
        batch
            .iter()
            .map(|w| {
                let offset = w.header.offset.get();
                (offset + w.len() as u64 <= end).then_some(Ok((w.len(), offset)))
            })
            .collect()
    }

    fn carry_out(&self, mut work: Work) -> Done {
        let len = work.len();
        let Some(file) = work.file.clone() else { return self.carry_out_meta(work) };
        let start = sys::now();
        let moved = match work.opcode {
            Opcode::Read => self.read(&file, &work.header, work.payload.payload_mut(len)),
            opcode => {
                let data = work.payload.payload(len);
                self.write(&work.conn, &work.session, &file, &work.header, opcode, data)
            }
        };
        self.engine.took(sys::now().since(start));
        Done::Data(work, moved)
    }

    fn carry_out_meta(&self, work: Work) -> Done {
        let mut frame = Vec::with_capacity(256);
        // It was decoded once already, when it came.
        if let Ok(meta) = Meta::decode(work.payload.payload(work.header.body_len())) {
            let failed = self.run_meta(&work.conn, &work.session, &work.header, &meta, &mut frame);
            let latency = sys::now().since(work.received);
            work.session.job.stats.record(Op::meta(&meta), 0, latency, failed);
        }
        Done::Meta(work, frame)
    }

    fn answer_data(self: &Arc<Node>, work: Work, moved: Moved) {
        let Work { conn, session, header, opcode, payload, received, .. } = work;
        let reply = self.data_reply(session.job.epoch(), &header, opcode, &moved);
        self.remember(&session, opcode, &reply, &moved);
        let frame = match &moved {
            Ok((n, _)) if opcode == Opcode::Read => with_payload(payload, reply, *n),
            Ok(_) => Frame::Bytes(reply.as_bytes().to_vec()),
            Err(failure) => Frame::Bytes([&reply.as_bytes()[..], failure.why.as_bytes()].concat()),
        };
        let n = moved.as_ref().map_or(0, |m| m.0);
        session.job.stats.record(data_op(opcode), n as u64, sys::now().since(received), moved.is_err());
        conn.post(frame);
    }

    /// Carries out a metadata operation and leaves the reply frame in `frame`; whether it failed.
    pub(crate) fn run_meta(
        &self,
        conn: &Conn,
        session: &Arc<Session>,
        header: &Header,
        meta: &Meta<'_>,
        frame: &mut Vec<u8>,
    ) -> bool {
        frame.clear();
        let (id, epoch) = (header.id.get(), session.job.epoch());
        let cached = meta.needs_reply_cache();
        if cached {
            match session.begin(id) {
                Ok(None) => {}
                Ok(Some(answer)) => {
                    self.stats.replayed.fetch_add(1, Relaxed);
                    *frame = answer;
                    return false;
                }
                Err(failure) => {
                    frame.extend_from_slice(self.failed(epoch, Opcode::Meta, id, &failure).as_bytes());
                    frame.extend_from_slice(failure.why.as_bytes());
                    return true;
                }
            }
        }
        frame.extend_from_slice(&[0; HEADER_LEN]);
        let done = Call { node: self, conn, session, header }.run(meta, frame);
        if !matches!(meta, Meta::Close { .. } | Meta::Adopt { .. } | Meta::SetFlags { .. } | Meta::Mapping) {
            self.storage.metadata();
        }
        let reply = match &done {
            Ok(()) => self.reply(epoch, Opcode::Meta, id, 0, (frame.len() - HEADER_LEN) as u32),
            Err(failure) => {
                frame.truncate(HEADER_LEN);
                frame.extend_from_slice(failure.why.as_bytes());
                self.failed(epoch, Opcode::Meta, id, failure)
            }
        };
        frame[..HEADER_LEN].copy_from_slice(reply.as_bytes());
        if cached {
            let tried = !done.as_ref().is_err_and(Failure::not_tried);
            session.end(id, tried.then_some(&frame[..]));
        }
        done.is_err()
    }
}

/// How a data request is counted.
pub(crate) fn data_op(opcode: Opcode) -> Op {
    match opcode {
        Opcode::Read => Op::READ,
        Opcode::Append => Op::APPEND,
        _ => Op::WRITE,
    }
}
