//! Data: a read or write of one frame, and large ones as a train of frames, several of them under way
//! at once. When anything goes wrong with the train, what has no answer yet is sent piece by piece.

use crate::call::{Body, On, Request, refused};
use crate::client::Client;
use crate::conn::Failure;
use crate::counters::OpIndex;
use crate::error::Error;
use crate::file::File;
use crate::sys;
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

/// One frame of a train.
struct Piece {
    call: Call,
    outcome: Option<Result<usize, Error>>,
}

fn request(opcode: Opcode, offset: u64, length: usize, body: &[u8]) -> Request<'_> {
    let (kind, length) = match opcode {
        Opcode::Write => (Kind::Again, 0),
        _ => (Kind::Look, length as u64),
    };
    Request { opcode, offset, length, body: Body::Bytes(body), kind, linger: false }
}

impl Client {
    /// One read of at most one frame.
    pub(crate) fn read_piece(
        &self,
        call: &mut Call,
        file: &File,
        buf: &mut [u8],
        offset: u64,
    ) -> Result<usize, Error> {
        let started = sys::now();
        let asked = request(Opcode::Read, offset, buf.len(), &[]);
        let got = self.carry(call, On::File(file), asked, Some(buf), |_, _, data| Ok(data.len()));
        self.count(OpIndex::READ, started, &got);
        got
    }

    /// One write of at most one frame.
    pub(crate) fn write_piece(
        &self,
        call: &mut Call,
        file: &File,
        data: &[u8],
        offset: u64,
    ) -> Result<usize, Error> {
        let started = sys::now();
        let asked = request(Opcode::Write, offset, 0, data);
        let done = self.carry(call, On::File(file), asked, None, |served, header, _| {
            file.mark_unsynced(served.host);
            Ok(usize::try_from(header.length.get()).unwrap_or(usize::MAX).min(data.len()))
        });
        self.count(OpIndex::WRITE, started, &done);
        done
    }

    fn count(&self, op: OpIndex, started: forebay_types::Nanos, outcome: &Result<usize, Error>) {
        if let Some(c) = self.counters {
            let bytes = outcome.as_ref().map_or(0, |n| *n as u64);
            c.add(op, sys::now().since(started).0, bytes, outcome.is_err());
        }
    }

    /// A transfer of more than one frame: how much of it was done from its beginning on without a gap.
    pub(crate) fn transfer(&self, file: &File, offset: u64, mut data: Data<'_>) -> Result<usize, Error> {
        let total = data.len();
        let started = sys::now();
        let kind = request(data.opcode(), 0, 0, &[]).kind;
        let mut pieces: Vec<Piece> = (0..total.div_ceil(PIECE))
            .map(|_| Piece { call: self.begin(kind, started), outcome: None })
            .collect();
        self.train(file, offset, &mut data, &mut pieces);
        let mut done = 0;
        for (i, piece) in pieces.into_iter().enumerate() {
            let (from, to) = (i * PIECE, total.min((i + 1) * PIECE));
            let at = offset.saturating_add(from as u64);
            let outcome = piece.outcome.unwrap_or_else(|| {
                // Its own deadline begins now; what it is known by, and that it was sent, stays.
                let mut call = piece.call;
                call.restart(sys::now(), self.limit());
                match &mut data {
                    Data::In(buf) => self.read_piece(&mut call, file, &mut buf[from..to], at),
                    Data::Out(bytes) => self.write_piece(&mut call, file, &bytes[from..to], at),
                }
            });
            match outcome {
                Ok(n) => {
                    done += n;
                    if n < to - from {
                        break;
                    }
                }
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Sends the pieces one behind the other and takes the answers as they come, in any order. Ends
    /// with the last answer, or as soon as something is not as it should be.
    fn train(&self, file: &File, offset: u64, data: &mut Data<'_>, pieces: &mut [Piece]) {
        let started = sys::now();
        let Some(first) = pieces.first_mut() else { return };
        let (place, at) = self.at(file);
        // Whatever else is to be done first, is done by a piece that goes alone.
        let Step::Send(node) = first.call.next(started, &self.nodes, Bound::File(at), self.has_news()) else {
            return;
        };
        let limit = self.limit();
        let Ok((mut taken, fresh)) = self.connected(node, started + limit) else { return };
        let conn = taken.conn().expect("just made sure of it");
        conn.begin();
        let (total, opcode) = (data.len(), data.opcode());
        let op = if opcode == Opcode::Read { OpIndex::READ } else { OpIndex::WRITE };
        let extent = |i: usize| i * PIECE..total.min((i + 1) * PIECE);
        let window = WINDOW.min(conn.welcome.credits as usize);
        let host = conn.host;
        let (mut next, mut answered, mut stop) = (0, 0, false);
        let failure = 'train: loop {
            while !stop && next < pieces.len() && next - answered < window {
                let body = match data {
                    Data::Out(bytes) => &bytes[extent(next)],
                    Data::In(_) => &[],
                };
                let asked = request(
                    opcode,
                    offset.saturating_add(extent(next).start as u64),
                    extent(next).len(),
                    body,
                );
                let header = self.stamp(&mut pieces[next].call, &asked, place.handle, body.len());
                next += 1;
                let mut wait = conn.wait(sys::now(), limit.into());
                if let Err(failure) = conn.send_more(&mut wait, &header, body) {
                    break 'train failure;
                }
            }
            if answered == next {
                return;
            }
            let waiting =
                |id: u64| pieces[..next].iter().position(|p| p.call.id == id && p.outcome.is_none());
            let into = match data {
                Data::In(buf) => Some(&mut **buf),
                Data::Out(_) => None,
            };
            let mut wait = conn.wait(sys::now(), limit.into());
            let reply = match conn.await_any(&mut wait, into, &|id| waiting(id).map(extent)) {
                Ok(reply) => reply,
                Err(failure) => break failure,
            };
            let header = reply.header;
            let Some(i) = waiting(header.id.get()).filter(|_| header.has(flag::REPLY)) else {
                break Failure::Broken("an answer to another request".into());
            };
            answered += 1;
            self.heard_from(node, &header);
            let piece = &mut pieces[i];
            let outcome = match header.status.get() {
                _ if header.has(flag::EXPIRED) || header.has(flag::STALE_HANDLE) => {
                    // Not carried out: to be sent again, as if for the first time.
                    piece.call.not_done();
                    if header.has(flag::STALE_HANDLE) {
                        file.lose_place(place);
                    }
                    stop = true;
                    continue;
                }
                0 if opcode == Opcode::Read => Ok(reply.body.len()),
                0 => {
                    file.mark_unsynced(host);
                    Ok(usize::try_from(header.length.get()).unwrap_or(usize::MAX).min(extent(i).len()))
                }
                _ => Err(refused(&header, reply.body)),
            };
            let whole = outcome.as_ref().is_ok_and(|n| *n == extent(i).len());
            stop |= !whole || header.has(flag::MOVE);
            self.count(op, piece.call.first_sent().unwrap_or(started), &outcome);
            piece.outcome = Some(outcome);
        };
        let under_way = pieces.iter_mut().filter(|p| p.outcome.is_none() && p.call.first_sent().is_some());
        for piece in under_way {
            match conn.last_out() {
                None => piece.call.not_sent(),
                Some(last) => piece.call.unanswered(conn.process, last, conn.lease()),
            }
        }
        taken.drop_conn();
        drop(taken);
        self.lost_connection(node, fresh, &failure);
    }
}
