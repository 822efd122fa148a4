//! Carrying requests out: alone, where they were received, or as a batch.

use crate::engine::{Carrier, Work, meta_access};
use crate::fail::{Failure, Outcome};
use crate::file::OpenFile;
use crate::lent::Pipe;
use crate::link::{Frame, Link};
use crate::meta::Call;
use crate::node::Node;
use crate::session::Session;
use crate::stats::Op;
use crate::storage::{Storage, Target};
use crate::sys::{self, acting};
use forebay_pattern::Access;
use forebay_sched::layout::Servers;
use forebay_sched::{Request, Segment, Ticket};
use forebay_types::{FileId, Nanos, OpKind, RequestId, ServerId};
use forebay_wire::flags::OpenFlags;
use forebay_wire::frame::{HEADER_LEN, Header, Opcode, flag};
use forebay_wire::message::{Meta, Sharing};
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What a data request came to: bytes done, and where they begin.
pub(crate) type Moved = Outcome<(usize, u64)>;

/// How many bytes that are.
pub(crate) fn bytes(moved: &Moved) -> u64 {
    moved.as_ref().map_or(0, |m| m.0 as u64)
}

/// Whether the handle was opened for this.
pub(crate) fn permitted(file: &OpenFile, opcode: Opcode) -> Outcome<()> {
    let needed = if opcode == Opcode::Read { OpenFlags::READ } else { OpenFlags::WRITE };
    if !file.flags().has(needed) || file.flags().has(OpenFlags::PATH) {
        return Err(Errno::BADF.into());
    }
    if file.directory { Err(Errno::ISDIR.into()) } else { Ok(()) }
}

/// Whether the data goes to the end of the file, wherever that is.
fn appends(file: &OpenFile, opcode: Opcode) -> bool {
    opcode == Opcode::Append || opcode == Opcode::Write && file.flags().has(OpenFlags::APPEND)
}

/// A request that was carried out and is to be answered.
enum Done {
    Data(Work, Moved),
    /// The reply's frame.
    Meta(Work, Vec<u8>),
}

impl Done {
    fn bytes(&self) -> u64 {
        match self {
            Done::Data(_, moved) => bytes(moved),
            Done::Meta(..) => 0,
        }
    }
}

impl Node {
    /// A metadata operation as the scheduler and as the pattern metrics see it.
    pub(crate) fn describe_meta(&self, session: &Session, received: Nanos) -> (Request, Access) {
        let request = Request {
            id: RequestId(0),
            arrival: self.engine.at(received),
            file: FileId(0),
            offset: 0,
            len: 0,
            flow: session.job.flow(),
            server: ServerId(0),
            op: OpKind::Metadata,
        };
        (request, meta_access(session))
    }

    /// A write that does not go through the scheduler, as the pattern metrics see it.
    pub(crate) fn write_access(&self, session: &Session, file: &OpenFile, offset: u64, len: u64) -> Access {
        let (flow, client) = (session.job.flow(), session.client);
        Access { flow, client, file: file.file_id(), op: OpKind::Write, offset, len }
    }

    /// The request, all of which was there at `arrived`, as the scheduler and as the pattern metrics see it. Appends go
    /// where the end is:
    /// they are never contiguous to anything, so to the scheduler each is a file of its own.
    pub(crate) fn describe(
        &self,
        session: &Session,
        file: &OpenFile,
        header: &Header,
        opcode: Opcode,
        arrived: Nanos,
    ) -> (Request, Servers, Access) {
        let (op, len) = match opcode {
            Opcode::Read => (OpKind::Read, header.length.get()),
            _ => (OpKind::Write, header.payload_len() as u64),
        };
        let (id, offset, flow) = (file.file_id(), header.offset.get(), session.job.flow());
        let access = Access { flow, client: session.client, file: id, op, offset, len };
        let (server, servers) = self.config.layout.servers_of(file, offset, len);
        let unique = header.id.get().wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let request = Request {
            id: RequestId(0),
            arrival: self.engine.at(arrived),
            file: if appends(file, opcode) { FileId(id.0 ^ unique) } else { id },
            offset,
            len,
            flow,
            server,
            op,
        };
        (request, servers, access)
    }

    /// Asks the storage on behalf of a session, and notes how long it takes of late.
    pub(crate) fn at_storage<T>(
        &self,
        session: &Session,
        ask: impl FnOnce(&dyn Storage) -> Result<T, Errno>,
    ) -> Outcome<T> {
        self.at_storage_from(session, &mut sys::now(), ask)
    }

    /// The same by whoever has just looked at the clock, and will want to know when it was done.
    fn at_storage_from<T>(
        &self,
        session: &Session,
        now: &mut Nanos,
        ask: impl FnOnce(&dyn Storage) -> Result<T, Errno>,
    ) -> Outcome<T> {
        act_for(session)?;
        let began = *now;
        let done = ask(&*self.storage);
        *now = sys::now();
        self.engine.took(now.since(began));
        Ok(done?)
    }

    /// What a ticket asked for was done at `ended`, its requests having moved so many bytes (as many as asked for, if
    /// not told).
    pub(crate) fn complete(&self, ticket: &Ticket, moved: &[u64], ended: Nanos) {
        self.engine.complete(ticket, moved, ended);
        self.peers.served(&ticket.batch);
    }

    pub(crate) fn target<'a>(&self, file: &'a OpenFile, offset: u64) -> Target<'a> {
        Target { fd: file.fd(), offset, file: file.file_id() }
    }

    /// Reads into `into`; `now` is when that was done.
    pub(crate) fn read(
        &self,
        session: &Session,
        file: &OpenFile,
        header: &Header,
        into: &mut [u8],
        now: &mut Nanos,
    ) -> Moved {
        let offset = header.offset.get();
        if offset > i64::MAX as u64 {
            return Err(Errno::INVAL.into());
        }
        self.settle(Some(file));
        *now = sys::now();
        let read = |s: &dyn Storage| s.read(self.target(file, offset), &mut [IoSliceMut::new(into)]);
        let n = self.at_storage_from(session, now, read)?;
        self.stats.read(n);
        Ok((n, offset))
    }

    /// Lends to `pipe` what a read asks for; `None`: it can only be read. `now` is when that was done.
    pub(crate) fn read_lent(
        &self,
        session: &Session,
        file: &OpenFile,
        header: &Header,
        pipe: &Pipe,
        now: &mut Nanos,
    ) -> Option<Moved> {
        let (offset, len) = (header.offset.get(), header.length.get() as usize);
        if offset > i64::MAX as u64 || file.flags().has(OpenFlags::DIRECT) {
            return None;
        }
        self.settle(Some(file));
        *now = sys::now();
        let lend = |s: &dyn Storage| Ok(s.lend(self.target(file, offset), len, pipe));
        let lent = self.at_storage_from(session, now, lend);
        match lent {
            Ok(None) => None,
            Ok(Some(Ok(n))) => {
                self.stats.read(n);
                Some(Ok((n, offset)))
            }
            Ok(Some(Err(e))) => Some(Err(e.into())),
            Err(failure) => Some(Err(failure)),
        }
    }

    /// Writes or appends `data`; `now` is when that was done.
    #[allow(clippy::too_many_arguments)] // a request, and where it came from
    pub(crate) fn write(
        &self,
        link: &Link,
        session: &Session,
        file: &OpenFile,
        header: &Header,
        opcode: Opcode,
        data: &[u8],
        now: &mut Nanos,
    ) -> Moved {
        let offset = header.offset.get();
        if offset > i64::MAX as u64 {
            return Err(Errno::INVAL.into());
        }
        self.settle(Some(file));
        let _changing = self.areas.change(file);
        if !appends(file, opcode) {
            // A new session does not know that an earlier try is at the storage: the client is to ask.
            let id = header.id.get();
            if header.has(flag::REPLAY) && !session.is_writing(id) && self.ledgers.is_writing(session.id, id)
            {
                return Err(Failure::EXPIRED);
            }
            // Noted as under way before its lease is looked at: see [`Call::may_change`].
            let under_way = self.ledgers.begin_write(session.id, header.id.get()).ok_or(Failure::BUSY)?;
            let ended = || self.ledgers.ended(session.id, header.id.get());
            *now = sys::now();
            if let Some(done) = session.begin_write(link, header, *now, ended)? {
                return Ok((done?, offset));
            }
            if header.has(flag::REPLAY) {
                // It may have waited for an earlier try.
                *now = sys::now();
            }
            file.mark_written();
            let write = |s: &dyn Storage| s.write(self.target(file, offset), &[IoSlice::new(data)]);
            let written = self.at_storage_from(session, now, write);
            // Whoever waits for its end looks there.
            under_way.done(offset, written.map_err(|failure| failure.errno), *now);
            session.end_write(header);
            let n = written?;
            self.stats.wrote(n);
            return Ok((n, offset));
        }
        let _position = file.position();
        // In the ledger before its lease is looked at: see [`Call::may_change`].
        let begun = self.ledgers.begin(session.id, header.id.get()).ok_or(Failure::BUSY)?;
        *now = sys::now();
        if let Err(expired) = session.may_change(link, *now) {
            self.ledgers.withdraw(begun);
            return Err(expired);
        }
        file.mark_written();
        let append = |s: &dyn Storage| s.append(self.target(file, offset), data);
        let appended = self.at_storage_from(session, now, append);
        let (errno, at, n) = match &appended {
            Ok((n, end)) => (0, end.saturating_sub(*n as u64), *n as u64),
            Err(e) => (e.errno.raw_os_error().unsigned_abs(), 0, 0),
        };
        self.ledgers.done(begun, errno, [at, n, 0, 0], *now);
        let (n, _) = appended?;
        self.stats.wrote(n);
        Ok((n, at))
    }

    /// One `preadv` for all; gaps between the requests are read into memory nobody looks at.
    fn read_together(&self, ticket: &Ticket, batch: &mut [Work]) -> Vec<Option<Moved>> {
        let lens: Vec<(u64, usize)> = batch.iter().map(|w| (w.header.offset.get(), w.len())).collect();
        let largest =
            ticket.batch.segments().map(|s| if let Segment::Gap(n) = s { n } else { 0 }).max().unwrap_or(0);
        let gaps = ticket.batch.segments().filter(|s| matches!(s, Segment::Gap(_))).count();
        let mut hole = vec![0u8; largest as usize * gaps];
        let mut hole_rest = &mut hole[..];
        let Some((session, file)) = batch.first().and_then(first) else { return vec![None; batch.len()] };
        self.settle(Some(&file));
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
        let Ok(n) = self.at_storage(&session, |s| s.read(self.target(&file, start), &mut vector)) else {
            return vec![None; lens.len()];
        };
        self.stats.read(n);
        let end = start + n as u64;
        lens.iter()
            .map(|&(offset, len)| Some(Ok((end.saturating_sub(offset).min(len as u64) as usize, offset))))
            .collect()
    }

    /// One `pwritev` for all whose lease holds; what did not go as a whole, and what may have been done
    /// before, is tried alone.
    fn write_together(&self, ticket: &Ticket, batch: &[Work]) -> Vec<Option<Moved>> {
        let none = || batch.iter().map(|_| None).collect();
        let Some((session, file)) = batch.first().and_then(first) else { return none() };
        if batch.iter().any(|w| w.header.has(flag::REPLAY)) {
            return none();
        }
        let begin = |w: &Work| self.ledgers.begin_write(w.session.id, w.header.id.get());
        let Some(under_way) = batch.iter().map(begin).collect::<Option<Vec<_>>>() else { return none() };
        let mut now = sys::now();
        let allowed = batch
            .iter()
            .take_while(|w| matches!(w.session.begin_write(&w.link, &w.header, now, || None::<()>), Ok(None)))
            .count();
        if allowed < batch.len() {
            batch[..allowed].iter().for_each(|w| w.session.end_write(&w.header));
            return none();
        }
        self.settle(Some(&file));
        let _changing = self.areas.change(&file);
        let vector: Vec<IoSlice<'_>> = batch.iter().map(|w| IoSlice::new(w.data())).collect();
        batch.iter().flat_map(|w| &w.file).for_each(|file| file.mark_written());
        let write = |s: &dyn Storage| s.write(self.target(&file, ticket.batch.offset()), &vector);
        let written = self.at_storage_from(&session, &mut now, write);
        // Nothing ends before the first byte.
        let end = written.as_ref().map_or(0, |n| ticket.batch.offset() + *n as u64);
        let whole = |w: &Work| (w.header.offset.get() + w.len() as u64 <= end).then_some(w.len());
        for (w, under_way) in batch.iter().zip(under_way) {
            if let Some(n) = whole(w) {
                under_way.done(w.header.offset.get(), Ok(n), now);
            }
            w.session.end_write(&w.header);
        }
        if let Ok(n) = written {
            self.stats.wrote(n);
        }
        batch.iter().map(|w| whole(w).map(|n| Ok((n, w.header.offset.get())))).collect()
    }

    fn carry_out_one(&self, mut work: Work) -> Done {
        let (len, mut now) = (work.len(), work.received);
        let Some(file) = work.file.clone() else { return self.carry_out_meta(work) };
        let moved = match work.opcode {
            Opcode::Read => {
                let into = work.payload.payload_mut(len);
                self.read(&work.session, &file, &work.header, into, &mut now)
            }
            opcode => {
                let data = work.data();
                self.write(&work.link, &work.session, &file, &work.header, opcode, data, &mut now)
            }
        };
        Done::Data(work, moved)
    }

    fn carry_out_meta(&self, work: Work) -> Done {
        let mut frame = Vec::with_capacity(256);
        // It was decoded once already, when it came.
        if let Ok(meta) = Meta::decode(work.payload.payload(work.header.body_len())) {
            self.run_meta(&work.link, &work.session, &work.header, &meta, work.received, &mut frame);
        }
        Done::Meta(work, frame)
    }

    /// Carries out a metadata operation and leaves the reply frame in `frame`. When it was done.
    pub(crate) fn run_meta(
        &self,
        link: &Link,
        session: &Arc<Session>,
        header: &Header,
        meta: &Meta<'_>,
        received: Nanos,
        frame: &mut Vec<u8>,
    ) -> Nanos {
        let failed = self.meta_once(link, session, header, meta, frame);
        let ended = sys::now();
        session.record(Op::meta(meta), 0, ended.since(received), failed);
        ended
    }

    /// As [`Node::run_meta`], unless it was done before: then the answer it had. Whether it failed.
    fn meta_once(
        &self,
        link: &Link,
        session: &Arc<Session>,
        header: &Header,
        meta: &Meta<'_>,
        frame: &mut Vec<u8>,
    ) -> bool {
        let (id, epoch) = (header.id.get(), session.job.epoch());
        let cached = meta.needs_reply_cache();
        if cached {
            match session.begin(link, id) {
                Ok(None) if header.has(flag::REPLAY) && self.ledgers.knows(session.id, header) => {
                    session.end(id, None);
                    self.refusal(epoch, Opcode::Meta, id, &Failure::EXPIRED, frame);
                    return true;
                }
                Ok(None) => {}
                Ok(Some(answer)) => {
                    self.stats.replayed.fetch_add(1, Relaxed);
                    *frame = answer;
                    return false;
                }
                Err(failure) => {
                    self.refusal(epoch, Opcode::Meta, id, &failure, frame);
                    return true;
                }
            }
        }
        frame.clear();
        frame.extend_from_slice(&[0; HEADER_LEN]);
        self.settle_for(meta);
        let changing = self.areas.change_by(session, meta);
        let call = Call::new(self, link, session, header, changing.scope);
        let done = act_for(session).and_then(|()| call.run(meta, frame));
        drop(changing);
        if reaches_storage(meta) {
            self.storage.metadata();
        }
        match &done {
            Ok(()) => {
                let reply = self.reply(epoch, Opcode::Meta, id, 0, (frame.len() - HEADER_LEN) as u32);
                frame[..HEADER_LEN].copy_from_slice(reply.as_bytes());
            }
            Err(failure) => self.refusal(epoch, Opcode::Meta, id, failure, frame),
        }
        if cached {
            let tried = !done.as_ref().is_err_and(Failure::not_tried);
            session.end(id, tried.then_some(&frame[..]));
        }
        done.is_err()
    }
}

impl Carrier for Node {
    fn carry_out(&self, ticket: &Ticket, mut batch: Vec<Work>) {
        self.stats.dispatched.fetch_add(batch.len() as u64, Relaxed);
        // What can no longer be merged is done one by one.
        let mergeable = batch.len() > 1
            && batch.len() == ticket.batch.requests().len()
            // Where an append goes is not known before: nothing follows it.
            && batch.iter().all(|w| w.file.as_ref().is_some_and(|file| !appends(file, w.opcode)))
            && batch.windows(2).all(|w| match (&w[0].file, &w[1].file) {
                (Some(a), Some(b)) => a.same(b) && w[0].session.job.whom() == w[1].session.job.whom(),
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
                None => self.carry_out_one(work),
            })
            .collect();
        let moved: Vec<u64> = done.iter().map(Done::bytes).collect();
        // Without memory for one of them it is not known which the others are.
        let known = moved.len() == ticket.batch.requests().len();
        // Whoever has an answer finds the work booked.
        let ended = sys::now();
        self.complete(ticket, if known { &moved } else { &[] }, ended);
        for done in done {
            match done {
                Done::Data(work, moved) => {
                    let took = ended.since(work.received);
                    let reply = self.data_reply(&work.session, &work.header, work.opcode, &moved, took);
                    work.link.post(reply.into_frame(work.payload));
                }
                Done::Meta(work, frame) => work.link.post(Frame::Bytes(frame)),
            }
        }
    }
}

/// From here on this thread acts as the session's user.
fn act_for(session: &Session) -> Outcome<()> {
    acting::act_as(session.job.whom()).map_err(|_| Failure::NOBODY)
}

/// On whose behalf requests that go together are carried out, and on what: they are all of one user.
fn first(work: &Work) -> Option<(Arc<Session>, Arc<OpenFile>)> {
    Some((Arc::clone(&work.session), work.file.clone()?))
}

/// Whether it waits behind others' work. Closing a file must not, and who brings memory for what is written does not wait
/// for long.
pub(crate) fn may_wait(meta: &Meta<'_>) -> bool {
    !matches!(meta, Meta::Close { .. } | Meta::Share { how: Sharing::Payload { .. }, .. })
}

/// Whether the file system has to do with it.
fn reaches_storage(meta: &Meta<'_>) -> bool {
    !matches!(
        meta,
        Meta::Close { .. }
            | Meta::Adopt { .. }
            | Meta::SetFlags { .. }
            | Meta::Mapping
            | Meta::Verdict { .. }
            | Meta::LockWait { .. }
            | Meta::LockHolder { .. }
            | Meta::Share { .. }
    )
}

/// How a data request is counted.
pub(crate) fn data_op(opcode: Opcode) -> Op {
    match opcode {
        Opcode::Read => Op::READ,
        Opcode::Append => Op::APPEND,
        _ => Op::WRITE,
    }
}
