//! The driver of [`forebay_wire::session::call`]: does what the state machine says, one exchange after
//! the other, on the connections of the pool.

use crate::client::Client;
use crate::conn::{Conn, Failure, PING_AFTER, last_held};
use crate::counters::OpIndex;
use crate::error::Error;
use crate::file::File;
use crate::hosts::HostSet;
use crate::identity::Identity;
use crate::pool::Taken;
use crate::sys;
use crate::whereabouts::RemoteHandle;
use forebay_types::{Nanos, Protect};
use forebay_wire::frame::{Header, Opcode, flag};
use forebay_wire::message::{Answer, Meta};
use forebay_wire::session::call::{Bound, Call, FileAt, Kind, Process, Step, Why};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// After a call failed because every node was gone, the next ones are not given their whole deadline.
const GONE_DEADLINE: Duration = Duration::from_millis(500);

/// How long somebody else's doing with the same file is waited for before looking again.
pub(crate) const TURN: Duration = Duration::from_micros(200);

/// What a request is about.
#[derive(Clone, Copy)]
pub(crate) enum On<'a> {
    /// Names: any node will do.
    Names,
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
    pub(crate) kind: Kind,
    /// On a close: a child process may still hold the file.
    pub(crate) linger: bool,
    /// On a change: the attributes afterwards are wanted.
    pub(crate) look: bool,
}

impl<'a> Request<'a> {
    pub(crate) fn meta(op: &Meta<'_>, body: Body<'a>) -> Request<'a> {
        let kind = op.kind();
        Request { opcode: Opcode::Meta, offset: 0, length: 0, body, kind, linger: false, look: false }
    }
}

/// Who answered.
#[derive(Clone, Copy)]
pub(crate) struct Served {
    pub(crate) node: usize,
    pub(crate) host: HostSet,
}

/// How an attempt ended that brought an answer.
enum Outcome<T> {
    Done(Result<T, Error>),
    /// The node does not know the handle.
    Stale,
    /// Not carried out; the state machine was told why.
    Again,
}

fn millis(span: Nanos) -> u32 {
    u32::try_from(span.0 / 1_000_000).unwrap_or(u32::MAX)
}

impl Client {
    /// The longest a call may take now.
    pub(crate) fn limit(&self) -> Nanos {
        let whole = self.config.deadline();
        if self.nodes.gone() { GONE_DEADLINE.min(whole) } else { whole }.into()
    }

    /// A call that begins at `started`.
    pub(crate) fn begin(&self, kind: Kind, started: Nanos) -> Call {
        Call::new(self.next_id.fetch_add(1, Ordering::Relaxed), kind, started, self.limit())
    }

    pub(crate) fn call<T>(
        &self,
        op: OpIndex,
        on: On<'_>,
        request: Request<'_>,
        into: Option<&mut [u8]>,
        done: impl FnMut(Served, &Header, &[u8]) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let started = sys::now();
        let mut call = self.begin(request.kind, started);
        let result = self.carry(&mut call, on, request, into, done);
        if let Some(c) = self.counters {
            let bytes = match (&result, request.opcode, request.body) {
                (Ok(_), Opcode::Append, Body::Bytes(b)) => b.len(),
                _ => 0,
            };
            let (took, failed) = (ended(&call).since(started).0, result.is_err());
            c.add(op, took, bytes as u64, failed);
            if call.may_be_repeated() {
                // What has no bytes is counted as one, or it would not show: see [`Counters::repeated`].
                c.add(OpIndex::REPEATED, took, (bytes as u64).max(1), failed);
            }
        }
        result
    }

    /// What the state machine is to know of a file.
    pub(crate) fn at(&self, file: &File, now: Nanos) -> (RemoteHandle, FileAt) {
        let mut place = file.place();
        if place.node == usize::MAX {
            place.node = self.node_at(place.address);
        }
        let ours = place.session == self.session;
        let at = FileAt::new(place.node, ours, place.lost, file.ties(), &self.nodes, now);
        (place, at)
    }

    /// Carries a call that has just begun, or goes on, to its end, from wherever it stands.
    pub(crate) fn carry<T>(
        &self,
        call: &mut Call,
        on: On<'_>,
        request: Request<'_>,
        mut into: Option<&mut [u8]>,
        mut done: impl FnMut(Served, &Header, &[u8]) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if matches!(on, On::Names) && self.foreign.load(Ordering::Relaxed) {
            return Err(Error::Refused {
                errno: libc::EACCES,
                message: "the program became another user: the job's I/O nodes serve who started it".into(),
            });
        }
        if let On::File(file) = on
            && file.hears_of_loss()
        {
            return Err(Error::LockLost(file.place().address.clone()));
        }
        let mut last = String::new();
        // A look at the clock costs more than most of what is done between two of them here.
        let mut now = call.started();
        loop {
            let mut place = None;
            let bound = match on {
                On::Names => Bound::Free,
                On::Node(node) => Bound::Node(node),
                On::File(file) => {
                    let (here, at) = self.at(file, now);
                    place = Some(here);
                    Bound::File(at)
                }
            };
            // What a limit holds back does not fail, nor what has to be done first or waits for its connection.
            if now >= call.deadline()
                && let Some(held) = last_held()
            {
                call.held_until(held, self.config.deadline().into());
            }
            let failure = match (call.next(now, &self.nodes, bound, self.has_news()), on) {
                (Step::Send(node), _) => {
                    let handle = place.map_or(0, |p| p.handle);
                    match self.attempt(node, handle, request, call, now, into.as_deref_mut(), &mut done) {
                        Ok(Outcome::Done(r)) => return r,
                        Ok(Outcome::Again) => Ok(()),
                        Ok(Outcome::Stale) => match (on, place) {
                            (On::File(file), Some(place)) => {
                                file.lose_place(place);
                                Ok(())
                            }
                            _ => return Err(Error::StaleHandle),
                        },
                        Err(f) => Err(f),
                    }
                }
                (Step::Look(node), _) => self.look(node, call),
                (Step::Ask { via, about, age_ms }, _) => self.ask(via, about, age_ms, call),
                (Step::Map(node), _) => self.follow(node, call),
                (Step::Adopt(node), On::File(file)) => self.adopt_on(node, file, call)?,
                (Step::Open(node), On::File(file)) => self.open_again(node, file, call)?,
                (Step::Nap(until), _) => {
                    self.look_elsewhere();
                    // A signal only shortens the nap.
                    let _ = sys::nap(until.since(sys::now()).into());
                    Ok(())
                }
                (Step::Done { by, errno, values }, _) => return settled(request, by, errno, values, done),
                (Step::Fail(why), _) => return Err(self.failed(why, call, last)),
                (Step::Adopt(_) | Step::Open(_), _) => return Err(Error::StaleHandle),
            };
            match failure {
                Ok(()) | Err(Failure::Deadline) => {}
                Err(Failure::Fatal(e)) => return Err(e),
                Err(Failure::Broken(why) | Failure::Silent(why)) => {
                    last = why;
                    self.look_elsewhere();
                }
            }
            now = sys::now();
        }
    }

    fn failed(&self, why: Why, call: &Call, last: String) -> Error {
        // Only who waited for all of his time has found that no node is there: a close that cannot reach
        // its node, or what cannot be told, ends earlier.
        if why == Why::NoNode && sys::now() >= call.deadline() {
            self.nodes.note_failure();
        }
        match why {
            Why::NoNode => {
                let waited_ms = sys::now().since(call.started()).0 / 1_000_000;
                Error::NoNode { waited_ms, last }
            }
            Why::Unknown(process) => Error::Unknown((*self.nodes.address(process.node)).clone(), last),
        }
    }

    /// A connection to `node`; whether it is a new one.
    pub(crate) fn connected(&self, node: usize, until: Nanos) -> Result<(Taken<'_>, bool), Failure> {
        self.connected_at(node, &mut sys::now(), until)
    }

    /// The same, by whoever has just looked at the clock; it is looked at again if that took time.
    fn connected_at(&self, node: usize, now: &mut Nanos, until: Nanos) -> Result<(Taken<'_>, bool), Failure> {
        let taken = self.pool.take(node, now, until).ok_or(Failure::Deadline)?;
        let (taken, fresh) = self.connected_in(taken, node, *now, until)?;
        if fresh {
            *now = sys::now();
        }
        Ok((taken, fresh))
    }

    /// The same, in this place of the pool.
    pub(crate) fn connected_in<'a>(
        &self,
        mut taken: Taken<'a>,
        node: usize,
        now: Nanos,
        until: Nanos,
    ) -> Result<(Taken<'a>, bool), Failure> {
        if taken.conn().is_some_and(|conn| conn.died_idle(now)) {
            taken.drop_conn();
            self.drop_idle(node);
        }
        if taken.conn().is_some() {
            return Ok((taken, false));
        }
        match self.connect(node, until, false) {
            Ok(conn) => {
                self.heard_epoch(conn.welcome.epoch);
                self.nodes.mark_host(node, conn.process.host);
                self.serves(&conn);
                taken.put_conn(node, conn);
                Ok((taken, true))
            }
            Err(e) => {
                self.nodes.mark_down(node, sys::now());
                Err(e)
            }
        }
    }

    /// The header of a request, stamped `now` or a little earlier, never later; notes that it is being sent.
    pub(crate) fn stamp(
        &self,
        call: &mut Call,
        request: &Request<'_>,
        handle: u64,
        body: usize,
        now: Nanos,
    ) -> Header {
        let mut header = Header::request(request.opcode, call.id, body as u32);
        header.handle = handle.into();
        header.offset = request.offset.into();
        header.length = request.length.into();
        header.stamp = now.0.into();
        if request.linger {
            header.set(flag::LINGER);
        }
        if request.look {
            header.set(flag::LOOK);
        }
        if let Some(first) = call.first_sent() {
            header.set(flag::REPLAY);
            header.age_ms = millis(now.since(first)).into();
        } else if call.troubled() {
            // For whoever asks where a job's time has gone.
            header.age_ms = millis(now.since(call.started())).into();
        }
        call.sending(now);
        header
    }

    #[allow(clippy::too_many_arguments)] // one call, from `carry`
    fn attempt<T>(
        &self,
        node: usize,
        handle: u64,
        request: Request<'_>,
        call: &mut Call,
        mut now: Nanos,
        into: Option<&mut [u8]>,
        done: &mut impl FnMut(Served, &Header, &[u8]) -> Result<T, Error>,
    ) -> Result<Outcome<T>, Failure> {
        let connected = self.connected_at(node, &mut now, call.deadline());
        let (mut taken, fresh) = connected.inspect_err(|_| call.not_sent())?;
        if fresh {
            // A node that is there again has the whole deadline to answer.
            call.extend(self.config.deadline().into());
        }
        let conn = taken.conn().expect("just made sure of it");
        if !call.may_send(conn.process) {
            return Ok(Outcome::Again);
        }
        let mut made = Vec::new();
        let body = match request.body {
            Body::Bytes(b) => b,
            Body::ForHandle(build) => {
                build(handle, &mut made);
                &made
            }
        };
        let ahead = self.take_pending(node);
        let mut header = self.stamp(call, &request, handle, body.len(), now);
        let writes = request.opcode == Opcode::Write;
        let placed = writes && conn.placing.put(&mut header, body);
        let sent = if placed { &[] } else { body };
        let limit = call.deadline().since(call.started()).into();
        let served = Served { node, host: conn.host };
        let answered = conn
            .send_request(now, call.started(), limit, &ahead, &header, sent)
            .and_then(|mut wait| conn.await_reply(&mut wait, call.id, into));
        match answered {
            Ok(reply) => {
                let header = reply.header;
                let outcome = if header.has(flag::EXPIRED) || header.has(flag::STALE_HANDLE) {
                    call.not_done();
                    if header.has(flag::STALE_HANDLE) { Outcome::Stale } else { Outcome::Again }
                } else {
                    call.answered(reply.at);
                    Outcome::Done(match header.status.get() {
                        0 => done(served, &header, reply.body),
                        _ => Err(refused(&header, reply.body)),
                    })
                };
                if writes && conn.placing.is_due(body.len()) && !self.begin_placing(conn, call.deadline()) {
                    taken.drop_conn();
                }
                self.heard_from(node, &header);
                drop(taken);
                if header.has(flag::MOVE) && self.has_pending(node) {
                    // Nothing else may go there any more: files that were closed must not stay open.
                    let _ = self.exchange(node, &Meta::Mapping, call.deadline());
                }
                Ok(outcome)
            }
            Err(failure) => {
                match conn.last_out() {
                    None => call.not_sent(),
                    Some(last) => call.unanswered(conn.process, last, conn.lease()),
                }
                taken.drop_conn();
                drop(taken);
                self.put_pending_back(node, ahead);
                self.lost_connection(node, fresh, &failure);
                Err(failure)
            }
        }
    }

    /// Who is at the address of a node that may have a request of ours.
    fn look(&self, node: usize, call: &mut Call) -> Result<(), Failure> {
        let until = call.deadline().min(sys::now() + PING_AFTER.into());
        match self.connected(node, until) {
            Ok((mut taken, _)) => {
                call.looked(taken.conn().map(|c| c.process));
                Ok(())
            }
            Err(e) => {
                call.looked(None);
                Err(e)
            }
        }
    }

    /// One request on a connection of its own choice, and its answer: for the steps of a call that are
    /// not its request. Nothing is tried again here.
    pub(crate) fn exchange(
        &self,
        node: usize,
        op: &Meta<'_>,
        until: Nanos,
    ) -> Result<(Process, Header, Vec<u8>), Failure> {
        self.exchange_as(node, op, until, false)
    }

    /// The same; `linger`: what it closes may be wanted by a child process.
    pub(crate) fn exchange_as(
        &self,
        node: usize,
        op: &Meta<'_>,
        until: Nanos,
        linger: bool,
    ) -> Result<(Process, Header, Vec<u8>), Failure> {
        let (mut taken, fresh) = self.connected(node, until)?;
        let conn = taken.conn().expect("just made sure of it");
        let mut body = Vec::with_capacity(64);
        op.encode(&mut body);
        let now = sys::now();
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut header = Header::request(Opcode::Meta, id, body.len() as u32);
        header.stamp = now.0.into();
        if linger {
            header.set(flag::LINGER);
        }
        let process = conn.process;
        let ahead = self.take_pending(node);
        let answered = conn
            .send_request(now, now, until.since(now).into(), &ahead, &header, &body)
            .and_then(|mut wait| conn.await_reply(&mut wait, id, None))
            .map(|reply| (process, reply.header, reply.body.to_vec()));
        match answered {
            Ok(reply) => {
                self.heard_from(node, &reply.1);
                Ok(reply)
            }
            Err(failure) => {
                taken.drop_conn();
                drop(taken);
                self.put_pending_back(node, ahead);
                self.lost_connection(node, fresh, &failure);
                Err(failure)
            }
        }
    }

    /// What a broken connection says about its node.
    pub(crate) fn lost_connection(&self, node: usize, fresh: bool, failure: &Failure) {
        self.drop_idle(node);
        // A connection that had been idle may just have outlived its node: try a new one before
        // calling the node dead.
        if fresh && !matches!(failure, Failure::Fatal(_)) || matches!(failure, Failure::Silent(_)) {
            self.nodes.mark_down(node, sys::now());
        }
    }

    /// Connects to a node within that time, so that it knows of this process; or why none could be reached.
    ///
    /// # Errors
    /// What the last of the nodes said, or that there was no time.
    pub fn announce(&self, patience: Duration) -> Result<(), String> {
        let until = sys::now() + patience.into();
        let mut why = "there was no time".to_owned();
        for _ in 0..self.nodes.len() {
            let node = self.nodes.pick(sys::now());
            let Some(mut taken) = self.pool.take(node, &mut sys::now(), until) else { break };
            if taken.conn().is_some() {
                return Ok(());
            }
            match self.connect(node, until, false) {
                Ok(conn) => {
                    self.serves(&conn);
                    taken.put_conn(node, conn);
                    return Ok(());
                }
                Err(failure) => {
                    self.lost_connection(node, true, &failure);
                    why = match failure {
                        Failure::Broken(why) | Failure::Silent(why) => {
                            format!("{}: {why}", self.nodes.address(node))
                        }
                        Failure::Deadline => continue,
                        Failure::Fatal(e) => e.to_string(),
                    };
                }
            }
            drop(taken);
        }
        Err(why)
    }

    pub(crate) fn connect(&self, node: usize, until: Nanos, lifeline: bool) -> Result<Conn, Failure> {
        let address = *self.nodes.address(node);
        let exports: Vec<&str> = self.config.exports.iter().map(|e| e.export.as_str()).collect();
        let conn = loop {
            let made = self.config.vouch.as_ref().map(|vouch| (vouch.0)()).transpose();
            let credential = made
                .map_err(|why| Failure::Fatal(Error::Protocol(address.clone(), why)))?
                .unwrap_or_default();
            let protect = self.protect();
            let who = Identity {
                session: self.session,
                secret: &self.secret,
                credential: &credential,
                job: &self.config.job,
                host: &self.host,
                rank: self.task.map(|t| (t.rank, t.ranks)),
                epoch: self.nodes.epoch(),
                lifeline,
                protect,
                asked: &self.asked,
                exports: &exports,
                tick: PING_AFTER.min(self.config.deadline() / 2).max(Duration::from_millis(1)),
            };
            match Conn::open(node, address, &who, until) {
                // It asks for more; how much more, is known now.
                Err(_) if self.protect() > protect => {}
                done => break done?,
            }
        };
        let served = &conn.welcome.exports;
        if let Some(missing) = exports.iter().find(|e| !served.iter().any(|s| s == *e)) {
            let why = format!(
                "it does not serve {missing:?} (it serves {served:?}): name one of these after the `=` of --at; all I/O nodes of a job need the same --export"
            );
            // One that came back as something else is as good as gone, while there are others.
            let now = sys::now();
            return Err(
                match (0..self.nodes.len()).any(|other| other != node && !self.nodes.is_down(other, now)) {
                    true => Failure::Broken(format!("I/O node {address}: {why}")),
                    false => Failure::Fatal(Error::Protocol(address.clone(), why)),
                },
            );
        }
        Ok(conn)
    }

    /// How connections to other hosts are protected: as was asked for here, or more where a node has asked for that.
    fn protect(&self) -> Protect {
        Protect::numbered(self.asked.load(Ordering::Relaxed).into()).max(self.config.protect)
    }

    /// The node's other connections are no better.
    fn drop_idle(&self, node: usize) {
        self.pool.for_each_idle(|t| {
            if t.is_to(node) {
                t.drop_conn();
            }
        });
    }
}

/// When a call ended: with its answer, or now.
pub(crate) fn ended(call: &Call) -> Nanos {
    call.answered_at().unwrap_or_else(sys::now)
}

/// The answer that a process gave which is gone, as its ledger has it.
fn settled<T>(
    request: Request<'_>,
    by: Process,
    errno: u32,
    values: [u64; 4],
    mut done: impl FnMut(Served, &Header, &[u8]) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut header = Header::reply(request.opcode, 0, errno, 0);
    if errno != 0 {
        return Err(refused(&header, &[]));
    }
    (header.offset, header.length) = (values[0].into(), values[1].into());
    let mut body = Vec::new();
    Answer::Done.encode(&mut body);
    done(Served { node: by.node, host: HostSet::of(by.host) }, &header, &body)
}

/// A reply that says no, as an error.
pub(crate) fn refused(header: &Header, body: &[u8]) -> Error {
    if header.has(flag::ESCAPES) {
        return Error::Escapes;
    }
    let errno = i32::try_from(header.status.get()).unwrap_or(libc::EIO);
    Error::Refused { errno, message: String::from_utf8_lossy(body).into_owned() }
}
