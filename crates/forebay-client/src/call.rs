//! The heart of the client: a request is sent where it belongs and its answer brought back, however
//! many connections and nodes that takes, within the deadline.

use crate::client::Client;
use crate::conn::{Conn, Failure, Identity};
use crate::counters::OpIndex;
use crate::error::Error;
use crate::file::File;
use crate::pool::Taken;
use crate::sys;
use forebay_types::Nanos;
use forebay_wire::frame::{Header, Opcode, flag};
use forebay_wire::message::Meta;
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// After a call failed because every node was gone, the next ones are not given their whole deadline.
const GONE_DEADLINE: Duration = Duration::from_millis(500);

/// How often a node that may still carry a request out is looked at.
const FENCE_NAP: Duration = Duration::from_millis(100);

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

/// What a request carries.
#[derive(Clone, Copy)]
pub(crate) enum Body<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// A message that names the file's handle, which differs from node to node.
    ForHandle(&'a dyn Fn(u64, &mut Vec<u8>)),
}

/// The fields of a request that differ.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) opcode: Opcode,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) body: Body<'a>,
    /// Whether others can see that it was carried out, so that a late one would do harm.
    pub(crate) changes: bool,
    /// On a close: a child process may still hold the file.
    pub(crate) linger: bool,
}

impl<'a> Request<'a> {
    pub(crate) fn meta(op: &Meta<'_>, body: Body<'a>) -> Request<'a> {
        Request { opcode: Opcode::Meta, offset: 0, length: 0, body, changes: op.changes(), linger: false }
    }
}

/// One call's progress over its attempts.
pub(crate) struct Call {
    /// The request's id, the same in every attempt.
    pub(crate) id: u64,
    started: Nanos,
    pub(crate) deadline: Duration,
    /// When it was first sent, unless it is known not to have been carried out.
    pub(crate) first_sent: Option<Nanos>,
    /// A node that may still carry it out, and until when.
    fenced: Option<(usize, Nanos)>,
    naps: u32,
    read: usize,
    last: String,
}

impl Call {
    /// Begins the time of `fresh` for what is left to do.
    pub(crate) fn restart(&mut self, fresh: Call) {
        self.started = fresh.started;
        self.deadline = fresh.deadline;
    }

    /// `node` may carry it out until then.
    pub(crate) fn fence(&mut self, node: usize, until: Nanos) {
        self.fenced = Some((node, until));
    }
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
    /// A call that begins at `started`.
    pub(crate) fn begin(&self, started: Nanos) -> Call {
        Call {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            started,
            deadline: if self.nodes.gone() {
                GONE_DEADLINE.min(self.config.deadline())
            } else {
                self.config.deadline()
            },
            first_sent: None,
            fenced: None,
            naps: 0,
            read: 0,
            last: String::new(),
        }
    }

    pub(crate) fn call<T>(
        &self,
        op: OpIndex,
        bound: Bound<'_>,
        started: Nanos,
        request: Request<'_>,
        into: Option<&mut [u8]>,
        done: impl FnMut(usize, &Header, &[u8]) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut call = self.begin(started);
        let result = self.carry(&mut call, bound, request, into, done);
        if let Some(c) = self.counters {
            let bytes = match (&result, request.opcode, request.body) {
                (Ok(_), Opcode::Write | Opcode::Append, Body::Bytes(b)) => b.len(),
                (Ok(_), Opcode::Read, _) => call.read,
                _ => 0,
            };
            c.add(op, sys::now().since(started).0, bytes as u64, result.is_err());
        }
        result
    }

    /// Carries a call to its end, from wherever it stands.
    pub(crate) fn carry<T>(
        &self,
        call: &mut Call,
        bound: Bound<'_>,
        request: Request<'_>,
        mut into: Option<&mut [u8]>,
        mut done: impl FnMut(usize, &Header, &[u8]) -> Result<T, Error>,
    ) -> Result<T, Error> {
        loop {
            self.follow(call.started);
            let (node, handle) = match bound {
                Bound::Free => (self.nodes.pick(sys::now()), 0),
                Bound::Node(n) => (n, 0),
                Bound::File(f) => {
                    let place = self.ensure_here(f, call.started)?;
                    (place.node, place.handle)
                }
            };
            let failure = match self.attempt(node, handle, request, call, into.as_deref_mut(), &mut done) {
                Ok(Outcome::Done(r)) => return r,
                Ok(Outcome::NotDone) => {
                    // Its clock or ours jumped, or it was stopped for a while: not again at once.
                    let _ = sys::nap(Duration::from_millis(1));
                    Failure::Broken("the I/O node was stopped for a while".into())
                }
                Ok(Outcome::Stale) => match bound {
                    Bound::File(f) => {
                        f.lose_place();
                        Failure::Broken("the I/O node does not know this open file any more".into())
                    }
                    _ => return Err(Error::StaleHandle),
                },
                Err(f) => f,
            };
            match failure {
                Failure::Fatal(e) => return Err(e),
                Failure::Deadline => return Err(self.no_node(call)),
                Failure::Broken(why) | Failure::Silent(why) | Failure::Ended(why) => {
                    call.last = why;
                    let bound_to_dead =
                        matches!(bound, Bound::Node(_)) && self.nodes.is_down(node, sys::now());
                    if bound_to_dead || !self.before_retry(call) {
                        return Err(self.no_node(call));
                    }
                }
            }
        }
    }

    /// A connection to `node`; whether it is a new one.
    pub(crate) fn connected(&self, node: usize, call: &mut Call) -> Result<(Taken<'_>, bool), Failure> {
        let until = call.started + call.deadline.into();
        let mut taken = self.pool.take(node, until).ok_or(Failure::Deadline)?;
        if taken.conn().is_some() {
            return Ok((taken, false));
        }
        match self.connect(node, call) {
            Ok(conn) => {
                self.heard_epoch(conn.welcome.epoch);
                taken.put_conn(node, conn);
                // A node that is there again has the whole deadline to answer.
                call.deadline = self.config.deadline();
                Ok((taken, true))
            }
            Err(e) => {
                if matches!(e, Failure::Ended(_)) {
                    self.nodes.mark_ended(node, sys::now());
                } else {
                    self.nodes.mark_down(node, sys::now());
                }
                Err(e)
            }
        }
    }

    /// The header of a request, stamped now; notes that it is being sent.
    pub(crate) fn stamp(&self, call: &mut Call, request: &Request<'_>, handle: u64, body: usize) -> Header {
        let now = sys::now();
        let mut header = Header::request(request.opcode, call.id, body as u32);
        header.handle = handle.into();
        header.offset = request.offset.into();
        header.length = request.length.into();
        header.stamp = now.0.into();
        if request.linger {
            header.set(flag::LINGER);
        }
        if let Some(first) = call.first_sent {
            header.set(flag::REPLAY);
            header.age_ms = u32::try_from(now.since(first).0 / 1_000_000).unwrap_or(u32::MAX).into();
        }
        call.first_sent.get_or_insert(now);
        header
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
        self.keep_fence(node, call)?;
        let (mut taken, fresh) = self.connected(node, call)?;
        let conn = taken.conn().expect("just made sure of it");
        let mut made = Vec::new();
        let body = match request.body {
            Body::Bytes(b) => b,
            Body::ForHandle(build) => {
                build(handle, &mut made);
                &made
            }
        };
        let sent_before = call.first_sent.is_some();
        let ahead = self.take_pending(node);
        let header = self.stamp(call, &request, handle, body.len());
        let fence = conn.fence();
        let answered = conn
            .send_request(call.started, call.deadline, &ahead, &header, body)
            .and_then(|mut wait| conn.await_reply(&mut wait, call.id, into));
        match answered {
            Ok(reply) => {
                let header = reply.header;
                let not_done = header.has(flag::EXPIRED) || header.has(flag::STALE_HANDLE);
                if not_done && !sent_before {
                    call.first_sent = None;
                }
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
                        _ => Err(refused(&header, reply.body)),
                    })
                };
                self.heard_from(node, &header);
                Ok(outcome)
            }
            Err(failure) => {
                if request.changes && !matches!(failure, Failure::Silent(_)) {
                    // A node given up for its silence was waited for long enough already.
                    call.fence(node, sys::now() + fence);
                }
                taken.drop_conn();
                drop(taken);
                self.put_pending_back(node, ahead);
                self.lost_connection(node, fresh, &failure);
                Err(failure)
            }
        }
    }

    /// A request whose connection broke may still be carried out, as long as its lease holds, if the
    /// node lives and only the connection does not. Elsewhere it must not be done before that.
    fn keep_fence(&self, node: usize, call: &mut Call) -> Result<(), Failure> {
        let Some((other, until)) = call.fenced else { return Ok(()) };
        if other == node || self.nodes.has_ended(other) {
            return Ok(());
        }
        let end = call.started + call.deadline.into();
        while sys::now() < until {
            if sys::now() >= end {
                return Err(Failure::Deadline);
            }
            let ended = |e| matches!(e, Errno::CONNREFUSED | Errno::NOENT);
            if sys::connect(self.nodes.address(other), FENCE_NAP).is_err_and(ended) {
                self.nodes.mark_ended(other, sys::now());
                break;
            }
            // A signal only shortens the nap.
            let _ = sys::nap(FENCE_NAP);
        }
        call.fenced = None;
        Ok(())
    }

    /// What a broken connection says about its node.
    pub(crate) fn lost_connection(&self, node: usize, fresh: bool, failure: &Failure) {
        self.drop_idle(node);
        // A connection that had been idle may just have outlived its node: try a new one before
        // calling the node dead.
        if fresh || matches!(failure, Failure::Silent(_)) {
            self.nodes.mark_down(node, sys::now());
        }
    }

    fn connect(&self, node: usize, call: &Call) -> Result<Conn, Failure> {
        let address = self.nodes.address(node);
        let who = Identity {
            session: self.session,
            secret: &self.secret,
            job: &self.config.job,
            host: &self.host,
            epoch: self.nodes.epoch(),
        };
        let conn = Conn::open(address, &who, call.started, call.deadline)?;
        let served = &conn.welcome.exports;
        if let Some(missing) =
            self.config.exports.iter().enumerate().find(|(i, e)| served.get(*i) != Some(&e.export))
        {
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
        self.nodes.note_failure();
        Error::NoNode { deadline_ms: call.deadline.as_millis() as u64, last: call.last.clone() }
    }
}

/// A reply that says no, as an error.
pub(crate) fn refused(header: &Header, body: &[u8]) -> Error {
    if header.has(flag::ESCAPES) {
        return Error::Escapes;
    }
    let errno = i32::try_from(header.status.get()).unwrap_or(libc::EIO);
    Error::Refused { errno, message: String::from_utf8_lossy(body).into_owned() }
}
