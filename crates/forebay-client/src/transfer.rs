//! Data: a read or write of one frame, and large ones as a train of frames, several of them under way
//! at once. When anything goes wrong with the train, what has no answer yet is sent piece by piece.

use crate::call::{Body, On, Request, ended, refused};
use crate::client::Client;
use crate::conn::{Conn, Failure};
use crate::counters::OpIndex;
use crate::error::Error;
use crate::file::File;
use crate::hosts::HostSet;
use crate::pool::Taken;
use crate::sys;
use crate::whereabouts::RemoteHandle;
use forebay_types::Nanos;
use forebay_wire::MAX_DATA;
use forebay_wire::frame::{Opcode, flag};
use forebay_wire::session::call::{Bound, Call, Kind, Step};

/// Frames of one transfer that may be unanswered: enough to keep both ends busy, few enough that
/// many clients do not fill a node's memory.
const WINDOW: usize = 4;
const PIECE: usize = MAX_DATA as usize;

/// The program's buffer.
pub(crate) enum Data<'a> {
    In(&'a mut [u8]),
    Out(&'a [u8]),
}

impl Data<'_> {
    fn len(&self) -> usize {
        match self {
            Data::In(b) => b.len(),
            Data::Out(b) => b.len(),
        }
    }

    fn opcode(&self) -> Opcode {
        match self {
            Data::In(_) => Opcode::Read,
            Data::Out(_) => Opcode::Write,
        }
    }
}

/// One frame of a transfer.
struct Piece<'a> {
    call: Call,
    lane: &'a File,
    outcome: Option<Result<usize, Error>>,
}

pub(crate) fn request(opcode: Opcode, offset: u64, length: usize, body: &[u8]) -> Request<'_> {
    let (kind, length) = match opcode {
        Opcode::Write => (Kind::Again, 0),
        _ => (Kind::Look, length as u64),
    };
    Request { opcode, offset, length, body: Body::Bytes(body), kind, linger: false, look: false }
}

impl Client {
    /// One read of at most one frame, which is a call of its own.
    pub(crate) fn read_piece(
        &self,
        call: &mut Call,
        file: &File,
        buf: &mut [u8],
        offset: u64,
    ) -> Result<usize, Error> {
        let got = self.fetch(call, file, buf, offset);
        self.count_call(OpIndex::READ, call, &got);
        got
    }

    /// One write of at most one frame, which is a call of its own.
    pub(crate) fn write_piece(
        &self,
        call: &mut Call,
        file: &File,
        data: &[u8],
        offset: u64,
    ) -> Result<usize, Error> {
        let done = self.put(call, file, data, offset);
        self.count_call(OpIndex::WRITE, call, &done);
        done
    }

    fn fetch(&self, call: &mut Call, file: &File, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        let asked = request(Opcode::Read, offset, buf.len(), &[]);
        self.carry(call, On::File(file), asked, Some(buf), |_, _, data| Ok(data.len()))
    }

    fn put(&self, call: &mut Call, file: &File, data: &[u8], offset: u64) -> Result<usize, Error> {
        let asked = request(Opcode::Write, offset, 0, data);
        let done = self.carry(call, On::File(file), asked, None, |served, header, _| {
            file.mark_unsynced(served.host);
            Ok(usize::try_from(header.length.get()).unwrap_or(usize::MAX).min(data.len()))
        });
        if call.may_be_repeated() {
            self.count_call(OpIndex::REPEATED, call, &done);
        }
        done
    }

    pub(crate) fn count(&self, op: OpIndex, started: Nanos, outcome: &Result<usize, Error>) {
        self.count_took(op, || sys::now().since(started), outcome);
    }

    fn count_call(&self, op: OpIndex, call: &Call, outcome: &Result<usize, Error>) {
        self.count_took(op, || ended(call).since(call.started()), outcome);
    }

    fn count_took(&self, op: OpIndex, took: impl FnOnce() -> Nanos, outcome: &Result<usize, Error>) {
        if let Some(c) = self.counters {
            let bytes = outcome.as_ref().map_or(0, |n| *n as u64);
            c.add(op, took().0, bytes, outcome.is_err());
        }
    }

    /// A transfer of more than one frame: how much of it was done from its beginning on without a gap.
    pub(crate) fn transfer(&self, file: &File, offset: u64, mut data: Data<'_>) -> Result<usize, Error> {
        if file.hears_of_loss() {
            return Err(Error::LockLost(file.place().address.clone()));
        }
        let total = data.len();
        let started = sys::now();
        let kind = request(data.opcode(), 0, 0, &[]).kind;
        let at = |i: usize| offset.saturating_add((i * PIECE) as u64);
        let mut pieces: Vec<Piece<'_>> = (0..total.div_ceil(PIECE))
            .map(|i| Piece {
                call: self.begin(kind, started),
                lane: self.lane(file, at(i), total),
                outcome: None,
            })
            .collect();
        self.trains(offset, &mut data, &mut pieces);
        let mut done = 0;
        let mut outcome = Ok(());
        for (i, piece) in pieces.iter_mut().enumerate() {
            let (from, to) = (i * PIECE, total.min((i + 1) * PIECE));
            let carried = piece.outcome.take().unwrap_or_else(|| {
                // Its own deadline begins now; what it is known by, and that it was sent, stays.
                piece.call.restart(sys::now(), self.limit());
                match &mut data {
                    Data::In(buf) => self.fetch(&mut piece.call, piece.lane, &mut buf[from..to], at(i)),
                    Data::Out(bytes) => self.put(&mut piece.call, piece.lane, &bytes[from..to], at(i)),
                }
            });
            match carried {
                Ok(n) => {
                    done += n;
                    if n < to - from {
                        break;
                    }
                }
                Err(e) => {
                    outcome = Err(e);
                    break;
                }
            }
        }
        pieces.iter().for_each(|piece| file.gather(piece.lane));
        let outcome = if done == 0 { outcome.map(|()| 0) } else { Ok(done) };
        // One call of the program, however many frames it was.
        let op = if data.opcode() == Opcode::Read { OpIndex::READ } else { OpIndex::WRITE };
        self.count(op, started, &outcome);
        outcome
    }

    /// Sends the pieces, a train of them on each lane, and takes the answers as they come. Ends with the
    /// last answer; what something was not as it should be with has none.
    fn trains(&self, offset: u64, data: &mut Data<'_>, pieces: &mut [Piece<'_>]) {
        let mut trains: Vec<Train<'_>> = Vec::new();
        for i in 0..pieces.len() {
            let lane = pieces[i].lane;
            if trains.iter().any(|t| std::ptr::eq(t.lane, lane)) {
                continue;
            }
            let queue = (i..pieces.len()).filter(|&j| std::ptr::eq(pieces[j].lane, lane)).collect();
            // Whoever has a connection does not wait for another one: others may do so for this.
            let patient = trains.is_empty();
            trains.extend(self.couple(lane, queue, &mut pieces[i].call, patient));
        }
        // A piece to each in turn, so that all nodes work at once; then an answer from each in turn.
        let mut load = Load { offset, data, pieces };
        while !trains.is_empty() {
            let mut sent = false;
            for i in (0..trains.len()).rev() {
                match trains[i].send(&mut load) {
                    Ok(more) => sent |= more,
                    Err(failure) => trains.swap_remove(i).derail(&mut load, &failure),
                }
            }
            for i in (0..trains.len()).rev().filter(|_| !sent) {
                if trains[i].is_over() {
                    trains.swap_remove(i);
                } else if let Err(failure) = trains[i].take_answer(&mut load) {
                    trains.swap_remove(i).derail(&mut load, &failure);
                }
            }
        }
    }

    fn couple<'a>(
        &'a self,
        lane: &'a File,
        queue: Vec<usize>,
        first: &mut Call,
        patient: bool,
    ) -> Option<Train<'a>> {
        let started = sys::now();
        let (place, at) = self.at(lane, started);
        // Whatever else is to be done first, is done by a piece that goes alone.
        let Step::Send(node) = first.next(started, &self.nodes, Bound::File(at), self.has_news()) else {
            return None;
        };
        let until = started + self.limit();
        let mut now = started;
        let free = self.pool.take(node, &mut now, if patient { until } else { started })?;
        let (mut taken, fresh) = self.connected_in(free, node, now, until).ok()?;
        let conn = taken.conn().expect("just made sure of it");
        conn.begin();
        let window = WINDOW.min(conn.welcome.credits as usize);
        let host = conn.host;
        Some(Train {
            client: self,
            lane,
            place,
            node,
            host,
            taken,
            fresh,
            window,
            queue,
            next: 0,
            answered: 0,
            stop: false,
        })
    }
}

/// What the trains carry.
struct Load<'l, 'd, 'f> {
    offset: u64,
    data: &'l mut Data<'d>,
    pieces: &'l mut [Piece<'f>],
}

impl Load<'_, '_, '_> {
    fn extent(&self, i: usize) -> std::ops::Range<usize> {
        i * PIECE..self.data.len().min((i + 1) * PIECE)
    }
}

/// The pieces of a transfer that go through one connection, one behind the other.
struct Train<'a> {
    client: &'a Client,
    lane: &'a File,
    place: RemoteHandle,
    node: usize,
    host: HostSet,
    taken: Taken<'a>,
    fresh: bool,
    window: usize,
    /// Which pieces, in their order.
    queue: Vec<usize>,
    next: usize,
    answered: usize,
    stop: bool,
}

impl Train<'_> {
    fn is_over(&self) -> bool {
        self.answered == self.next
    }

    fn conn(&mut self) -> &mut Conn {
        self.taken.conn().expect("a train has its connection")
    }

    /// Sends the next piece, if it may be sent now: whether one was.
    fn send(&mut self, load: &mut Load<'_, '_, '_>) -> Result<bool, Failure> {
        if self.stop || self.next == self.queue.len() || self.next - self.answered >= self.window {
            return Ok(false);
        }
        let i = self.queue[self.next];
        let extent = load.extent(i);
        let body = match load.data {
            Data::Out(bytes) => &bytes[extent.clone()],
            Data::In(_) => &[],
        };
        let at = load.offset.saturating_add(extent.start as u64);
        let asked = request(load.data.opcode(), at, extent.len(), body);
        let now = sys::now();
        let call = &mut load.pieces[i].call;
        let header = self.client.stamp(call, &asked, self.place.handle, body.len(), now);
        self.next += 1;
        let limit = self.client.limit();
        let conn = self.conn();
        let mut wait = conn.wait(now, now, limit.into());
        conn.send_more(&mut wait, &header, body)?;
        Ok(true)
    }

    /// Waits for the next answer to any of the pieces under way.
    fn take_answer(&mut self, load: &mut Load<'_, '_, '_>) -> Result<(), Failure> {
        let (client, lane, place, node, host) = (self.client, self.lane, self.place, self.node, self.host);
        let (opcode, total) = (load.data.opcode(), load.data.len());
        let extent = |i: usize| i * PIECE..total.min((i + 1) * PIECE);
        let under_way = &self.queue[..self.next];
        let pieces = &mut *load.pieces;
        let waiting = |pieces: &[Piece<'_>], id: u64| {
            under_way.iter().copied().find(|&i| pieces[i].call.id == id && pieces[i].outcome.is_none())
        };
        let into = match load.data {
            Data::In(buf) => Some(&mut **buf),
            Data::Out(_) => None,
        };
        let conn = self.taken.conn().expect("a train has its connection");
        let now = sys::now();
        let mut wait = conn.wait(now, now, client.limit().into());
        let reply = conn.await_any(&mut wait, into, &|id| waiting(pieces, id).map(extent))?;
        let header = reply.header;
        let Some(i) = waiting(pieces, header.id.get()).filter(|_| header.has(flag::REPLY)) else {
            return Err(Failure::Broken("an answer to another request".into()));
        };
        self.answered += 1;
        client.heard_from(node, &header);
        let piece = &mut pieces[i];
        let outcome = match header.status.get() {
            _ if header.has(flag::EXPIRED) || header.has(flag::STALE_HANDLE) => {
                // Not carried out: to be sent again, as if for the first time.
                piece.call.not_done();
                if header.has(flag::STALE_HANDLE) {
                    lane.lose_place(place);
                }
                self.stop = true;
                return Ok(());
            }
            0 if opcode == Opcode::Read => Ok(reply.body.len()),
            0 => {
                lane.mark_unsynced(host);
                Ok(usize::try_from(header.length.get()).unwrap_or(usize::MAX).min(extent(i).len()))
            }
            _ => Err(refused(&header, reply.body)),
        };
        let whole = outcome.as_ref().is_ok_and(|n| *n == extent(i).len());
        self.stop |= !whole || header.has(flag::MOVE);
        piece.outcome = Some(outcome);
        Ok(())
    }

    /// The connection is no good any more: what is under way may have been carried out, or not.
    fn derail(mut self, load: &mut Load<'_, '_, '_>, failure: &Failure) {
        let conn = self.taken.conn().expect("a train has its connection");
        for &i in &self.queue[..self.next] {
            let piece = &mut load.pieces[i];
            if piece.outcome.is_none() && piece.call.first_sent().is_some() {
                match conn.last_out() {
                    None => piece.call.not_sent(),
                    Some(last) => piece.call.unanswered(conn.process, last, conn.lease()),
                }
            }
        }
        self.taken.drop_conn();
        let (client, node, fresh) = (self.client, self.node, self.fresh);
        drop(self);
        client.lost_connection(node, fresh, failure);
    }
}
