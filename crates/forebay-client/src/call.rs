//! The heart of the client: a request is sent where it belongs and its answer brought back, however
//! many connections and nodes that takes, within the deadline.

use crate::client::Client;
use crate::conn::{Conn, Failure, Identity};
use crate::counters::OpIndex;
use crate::error::Error;
use crate::file::{File, Place};
use crate::sys;
use forebay_types::{Epoch, Nanos};
use forebay_wire::flags::OpenFlags;
use forebay_wire::frame::{Header, Opcode, flag};
use forebay_wire::message::{Answer, ExportId, Meta, Path};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// After a call failed because every node was gone, the next ones are not given their whole deadline.
const GONE_DEADLINE: Duration = Duration::from_millis(500);

/// What a request is bound to.
#[derive(Clone, Copy)]
pub(crate) enum Bound<'a> {
    /// Any node will do.
    Free,
    /// The open file must be open there.
    File(&'a File),
    /// This node and no other.
    Node(usize),
}

/// The fields of a request that differ.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) opcode: Opcode,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) body: &'a [u8],
}

impl<'a> Request<'a> {
    pub(crate) fn meta(body: &'a [u8]) -> Request<'a> {
        Request { opcode: Opcode::Meta, offset: 0, length: 0, body }
    }
}

/// One call's progress over its attempts.
struct Call {
    id: u64,
    started: Nanos,
    deadline: Duration,
    first_sent: Option<Nanos>,
    naps: u32,
    read: usize,
    last: String,
}

/// How an attempt ended that brought an answer.
enum Outcome<T> {
    Done(Result<T, Error>),
    /// Not carried out, by the node's own word.
    NotDone,
    /// The node does not know the handle.
    Stale,
}

impl Client {
    pub(crate) fn call<T>(
        &self,
        op: OpIndex,
        bound: Bound<'_>,
        started: Nanos,
        request: Request<'_>,
        mut into: Option<&mut [u8]>,
        mut done: impl FnMut(usize, &Header, &[u8]) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut call = Call {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            started,
            deadline: if self.nodes.gone() { GONE_DEADLINE } else { self.config.deadline() },
            first_sent: None,
            naps: 0,
            read: 0,
            last: String::new(),
        };
        let result = loop {
            let (node, handle) = match bound {
                Bound::Free => (self.nodes.pick(sys::now()), 0),
                Bound::Node(n) => (n, 0),
                Bound::File(f) => match self.ensure_here(f, started) {
                    Ok(place) => (place.node, place.handle),
                    Err(e) => break Err(e),
                },
            };
            let failure = match self.attempt(node, handle, request, &mut call, into.as_deref_mut(), &mut done) {
                Ok(Outcome::Done(r)) => break r,
                Ok(Outcome::NotDone) => Failure::Broken("the I/O node was stopped for a while".into()),
                Ok(Outcome::Stale) => match bound {
                    Bound::File(f) => {
                        f.lose_place();
                        continue;
                    }
                    _ => break Err(Error::StaleHandle),
                },
                Err(f) => f,
            };
            match failure {
                Failure::Fatal(e) => break Err(e),
                Failure::Deadline => break Err(self.no_node(&call)),
                Failure::Broken(why) | Failure::Silent(why) => {
                    call.last = why;
                    let bound_to_dead = matches!(bound, Bound::Node(_)) && self.nodes.is_down(node, sys::now());
                    if bound_to_dead || !self.before_retry(&mut call) {
                        break Err(self.no_node(&call));
                    }
                }
            }
        };
        if let Some(c) = self.counters {
            let bytes = match (&result, request.opcode) {
                (Ok(_), Opcode::Write | Opcode::Append) => request.body.len(),
                (Ok(_), Opcode::Read) => call.read,
                _ => 0,
            };
            c.add(op, sys::now().since(started).0, bytes as u64, result.is_err());
        }
        result
    }

    fn attempt<T>(
        &self,
        node: usize,
        handle: u64,
        request: Request<'_>,
        call: &mut Call,
        into: Option<&mut [u8]>,
        done: &mut impl FnMut(usize, &Header, &[u8]) -> Result<T, Error>,
    ) -> Result<Outcome<T>, Failure> {
        let until = call.started + call.deadline.into();
        let mut taken = self.pool.take(node, until).ok_or(Failure::Deadline)?;
        let mut fresh = false;
        if taken.conn().is_none() {
            match self.connect(node, call) {
                Ok(conn) => taken.put_conn(node, conn),
                Err(e) => {
                    self.nodes.mark_down(node, sys::now());
                    return Err(e);
                }
            };
            fresh = true;
        }
        let conn = taken.conn().expect("just made sure of it");
        let ahead = self.take_pending(node);
        let now = sys::now();
        let mut header = Header::request(request.opcode, call.id, request.body.len() as u32);
        header.handle = handle.into();
        header.offset = request.offset.into();
        header.length = request.length.into();
        header.stamp = now.0.into();
        if let Some(first) = call.first_sent {
            header.set(flag::REPLAY);
            header.age_ms = u32::try_from(now.since(first).0 / 1_000_000).unwrap_or(u32::MAX).into();
        }
        call.first_sent.get_or_insert(now);
        let answered = conn
            .send_request(call.started, &ahead, &header, request.body)
            .and_then(|mut wait| conn.await_reply(&mut wait, call.id, into));
        match answered {
            Ok(reply) => {
                let header = reply.header;
                let outcome = if header.has(flag::EXPIRED) {
                    Outcome::NotDone
                } else if header.has(flag::STALE_HANDLE) {
                    Outcome::Stale
                } else {
                    Outcome::Done(match header.status.get() {
                        0 => {
                            call.read = reply.body.len();
                            done(node, &header, reply.body)
                        }
                        _ if header.has(flag::ESCAPES) => Err(Error::Escapes),
                        errno => Err(Error::Refused {
                            errno: errno as i32,
                            message: String::from_utf8_lossy(reply.body).into_owned(),
                        }),
                    })
                };
                self.nodes.mark_up(node);
                if header.has(flag::MOVE) {
                    self.nodes.mark_draining(node);
                }
                Ok(outcome)
            }
            Err(failure) => {
                taken.drop_conn();
                drop(taken);
                self.drop_idle(node);
                // A connection that had been idle may just have outlived its node: try a new one
                // before calling the node dead.
                if fresh || matches!(failure, Failure::Silent(_)) {
                    self.nodes.mark_down(node, sys::now());
                }
                Err(failure)
            }
        }
    }

    fn connect(&self, node: usize, call: &Call) -> Result<Conn, Failure> {
        let address = &self.config.nodes[node];
        let who = Identity {
            session: self.session,
            secret: &self.secret,
            job: &self.config.job,
            host: &self.host,
            epoch: Epoch(0),
        };
        let conn = Conn::open(address, &who, call.started, call.deadline)?;
        let served = &conn.welcome.exports;
        if let Some(missing) = self.config.exports.iter().enumerate().find(|(i, e)| served.get(*i) != Some(&e.export)) {
            return Err(Failure::Fatal(Error::Protocol(
                address.clone(),
                format!(
                    "it does not serve {:?} as export {} (it serves {served:?}): start the I/O nodes with the same --export list",
                    missing.1.export, missing.0
                ),
            )));
        }
        Ok(conn)
    }

    /// The node's other connections are no better.
    fn drop_idle(&self, node: usize) {
        self.pool.for_each_idle(|t| {
            if t.is_to(node) {
                t.drop_conn();
            }
        });
    }

    /// Whether there is time for another try; sleeps a little when every node is down.
    fn before_retry(&self, call: &mut Call) -> bool {
        let now = sys::now();
        if now.since(call.started) >= call.deadline.into() {
            return false;
        }
        if self.nodes.all_down(now) {
            let nap = Duration::from_millis(10 << call.naps.min(4));
            call.naps += 1;
            // A signal only shortens the nap.
            let _ = sys::nap(nap);
        }
        true
    }

    fn no_node(&self, call: &Call) -> Error {
        self.nodes.set_gone();
        Error::NoNode { deadline_ms: call.deadline.as_millis() as u64, last: call.last.clone() }
    }

    /// Makes sure that `file` is open on a node that lives, and says where.
    pub(crate) fn ensure_here(&self, file: &File, started: Nanos) -> Result<Place, Error> {
        let place = file.place();
        let now = sys::now();
        let alive = !self.nodes.is_down(place.node, now);
        if !place.lost && place.session == self.session && alive {
            let current = self.nodes.pick(now);
            if place.node == current || file.is_bound() {
                return Ok(place);
            }
        }
        if !place.lost && place.session != self.session && alive {
            let adopt = Meta::Adopt { session: place.session, handle: place.handle };
            let adopted = self.meta_bound(Bound::Node(place.node), started, adopt, |a| match a {
                Answer::Opened { handle, attr } => Some((handle, attr)),
                _ => None,
            });
            match adopted {
                Ok((handle, attr)) => {
                    let here = Place { node: place.node, handle, session: self.session, lost: false };
                    file.end.store(attr.size, Ordering::Relaxed);
                    file.set_place(here);
                    return Ok(here);
                }
                Err(Error::StaleHandle | Error::NoNode { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        self.open_again(file, place, started)
    }

    fn open_again(&self, file: &File, old: Place, started: Nanos) -> Result<Place, Error> {
        let path = Path { export: ExportId(file.export), rel: file.rel() };
        // The name was resolved before; a link that stands in its place now is another file.
        let flags = file.flags().without(OpenFlags::NOFOLLOW);
        let usable = !old.lost && old.session == self.session && !self.nodes.is_down(old.node, sys::now());
        match self.open_on(Bound::Free, path, flags, 0, file.ino, started) {
            Ok((node, handle, _)) => {
                let here = Place { node, handle, session: self.session, lost: false };
                file.set_place(here);
                if usable {
                    let _ = self.meta_bound(Bound::Node(old.node), started, Meta::Close { handle: old.handle }, |_| Some(()));
                }
                self.take_locks_again(file, here, old, started)?;
                Ok(here)
            }
            Err(Error::Refused { errno: libc::ENOENT | libc::ESTALE | libc::ENOTDIR | libc::ELOOP, .. }) if usable => {
                file.set_stays();
                Ok(old)
            }
            Err(Error::Refused { errno: libc::ENOENT | libc::ESTALE | libc::ENOTDIR | libc::ELOOP, .. }) => {
                Err(Error::Lost(self.config.nodes[old.node % self.config.nodes.len()].clone()))
            }
            Err(e) => Err(e),
        }
    }

    fn take_locks_again(&self, file: &File, here: Place, old: Place, started: Nanos) -> Result<(), Error> {
        let lost = |_| Error::LockLost(self.config.nodes[old.node].clone());
        for &(owner, range) in file.locks() {
            let op = Meta::Lock { handle: here.handle, owner, range };
            self.meta_bound(Bound::Node(here.node), started, op, |_| Some(())).map_err(lost)?;
        }
        if let Some(kind) = file.flock() {
            let op = Meta::Flock { handle: here.handle, kind };
            self.meta_bound(Bound::Node(here.node), started, op, |_| Some(())).map_err(lost)?;
        }
        Ok(())
    }
}
