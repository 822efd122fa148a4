//! The thread of one connection: handshake, then frame after frame until it ends.

use crate::buffer::Buffer;
use crate::engine::{Turn, Work};
use crate::fail::Failure;
use crate::file::OpenFile;
use crate::lent::{Lender, Pipe};
use crate::link::{Link, SEND_SLICE, Stop};
use crate::node::Node;
use crate::path::Reach;
use crate::receiver::{Body, ROOM, Receiver};
use crate::reply::ReplyBody;
use crate::room::Taken;
use crate::serve::{self, data_op};
use crate::session::{Arrival, Session};
use crate::sys::acting::Whom;
use crate::{control, sys};
use forebay_sched::Request;
use forebay_types::{Epoch, Nanos, Protect, names};
use forebay_wire::frame::{HEADER_LEN, Header, Opcode, flag};
use forebay_wire::hello::{Greeting, Hello, Side, Welcome};
use forebay_wire::message::{Meta, append_to, decode};
use forebay_wire::session::held::Lifeline;
use forebay_wire::{MAX_DATA, VERSION_MAX, VERSION_MIN, WireError};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// A hello is short; nobody who has not proved anything gets more memory than this.
const HELLO_LIMIT: usize = 56 << 10;

/// One connection, as its thread sees it.
pub(crate) struct Connection {
    node: Arc<Node>,
    link: Arc<Link>,
    rx: Receiver,
    /// The reply being made.
    frame: Vec<u8>,
    /// Answers that nobody waits for yet: they go out with the next one.
    held: Vec<u8>,
    lender: Lender,
    /// It has one of those places that users share.
    place: Option<Taken>,
    /// The frame being handled, for the error that ends the connection.
    current: (Opcode, u64),
}

/// Serves a connection to its end.
pub(crate) fn serve(node: Arc<Node>, link: Arc<Link>) {
    let stall = node.config.stall_timeout;
    let tick = (stall / 4).clamp(Duration::from_millis(10), Duration::from_secs(1));
    let ready = set_socket_timeout(link.fd(), Timeout::Recv, Some(tick))
        .and_then(|()| set_socket_timeout(link.fd(), Timeout::Send, Some(SEND_SLICE)))
        .and_then(|()| Receiver::new(stall));
    let rx = match ready {
        Ok(rx) => rx,
        Err(e) => return tracing::warn!("cannot set a connection up: {e}"),
    };
    let current = (Opcode::Goodbye, 0);
    let mut connection = Connection {
        node,
        link,
        rx,
        frame: Vec::with_capacity(256),
        held: Vec::new(),
        lender: Lender::default(),
        place: None,
        current,
    };
    let (session, lifeline) = match connection.shake_hands() {
        Ok(shaken) => shaken,
        Err(stop) => return connection.end(&stop),
    };
    let stop = if lifeline.is_some() { connection.hold() } else { connection.requests(&session) };
    tracing::debug!("a connection ends: job {}, process {}: {stop}", session.job.stats.job, session.pid);
    connection.leave(&session, lifeline, &stop);
    connection.end(&stop);
}

impl Connection {
    /// Whose connection it is, and whether it is a lifeline.
    fn shake_hands(&mut self) -> Result<(Arc<Session>, Option<Lifeline>), Stop> {
        let local = sys::is_local(self.link.fd());
        let mut challenge = [0u8; 16];
        sys::getrandom(&mut challenge).map_err(Stop::Broken)?;
        let greeting = Greeting {
            version_min: VERSION_MIN,
            version_max: VERSION_MAX,
            node: self.node.config.id,
            host_boot: self.node.host_boot,
            incarnation: self.node.incarnation,
            challenge,
            protect: if local { Protect::None } else { self.node.config.protect },
        };
        self.send_message(Header::request(Opcode::Greeting, 0, 0), &greeting)?;
        let greeted = self.frame[HEADER_LEN..].to_vec();
        self.rx.expect_within(self.node.config.handshake_timeout);
        let (header, opcode) = self.next_header()?;
        if opcode != Opcode::Hello || header.has(flag::REPLY) {
            return Err(WireError::Unexpected("the first frame must be a hello").into());
        }
        if header.body_len() > HELLO_LIMIT {
            let length = header.body_len() as u64;
            return Err(
                WireError::TooLong { opcode: opcode.name(), length, limit: HELLO_LIMIT as u64 }.into()
            );
        }
        // Short enough for the connection's own buffer.
        let nobody = Arc::default();
        let body = self.rx.body(self.link.fd(), &header, opcode, (&self.node.pool, &nobody))?;
        let Body::Here(at, len) = body else { return Err(WireError::Malformed("hello").into()) };
        let heard = self.rx.bytes(at, len).to_vec();
        let hello: Hello<'_> = decode(&heard, "hello")?;
        if !(VERSION_MIN..=VERSION_MAX).contains(&hello.version) {
            return Err(
                WireError::Version { theirs: hello.version, min: VERSION_MIN, max: VERSION_MAX }.into()
            );
        }
        let known = self.node.jobs.authenticate(&challenge, &hello);
        let (job, admin, shown) = known.inspect_err(|e| {
            let Hello { job, host, pid, .. } = &hello;
            tracing::debug!("handshake refused: job {job:?}, process {pid} of {host:?}: {e}");
        })?;
        if hello.protect < greeting.protect {
            return Err(WireError::Unprotected(greeting.protect).into());
        }
        let whom = if admin { &Whom::Node } else { job.whom() };
        self.place = Some(self.node.places.take(whom).ok_or(Stop::Crowded)?);
        let reach = Reach::new(&self.node.exports, &hello.exports, hello.protect, local)?;
        let _ = self.link.reach.set(reach);
        let version = hello.version;
        let client = job.clients.arrive(hello.session.run(), hello.host, hello.rank, hello.pid);
        let who = Arrival {
            job,
            id: hello.session,
            pid: hello.pid,
            client,
            admin,
            stamp: header.stamp.get(),
            lease: self.node.config.lease.into(),
            lifeline: hello.lifeline,
        };
        let (flow, epoch) = (who.job.flow(), who.job.epoch());
        let (session, resumed, lifeline) = self.node.sessions.join(who, &self.link, sys::now());
        let (how, what) = (
            if resumed { "goes on" } else { "begins" },
            if lifeline.is_some() { "a lifeline" } else { "a connection" },
        );
        tracing::debug!(
            "a session {how}: job {}, process {} of {}, {what}",
            hello.job,
            hello.pid,
            names::shown(hello.host)
        );
        let _ = self.link.session.set(Arc::downgrade(&session));
        let welcome = Welcome {
            version,
            flow,
            credits: self.node.config.credits,
            max_data: MAX_DATA,
            lease_ms: u32::try_from(self.node.config.lease.as_millis()).unwrap_or(u32::MAX),
            exports: self.node.exports.iter().map(|e| e.name.clone()).collect(),
            epoch,
            resumed,
            board: self.node.areas.board_at(),
            proof: shown.proof,
        };
        let sent = self.send_message(self.node.reply(epoch, Opcode::Hello, header.id.get(), 0, 0), &welcome);
        let protected = sent.and_then(|()| {
            let handshake = [&greeted[..], &heard, &self.frame[HEADER_LEN..]];
            match shown.seed.ends(Side::Node, hello.protect, handshake) {
                None => Ok(()),
                Some((sealer, opener)) => {
                    self.link.protect(sealer);
                    self.rx.protect(opener)
                }
            }
        });
        if let Err(stop) = protected {
            self.leave(&session, lifeline, &stop);
            return Err(stop);
        }
        Ok((session, lifeline))
    }

    /// The session goes on without this connection.
    fn leave(&self, session: &Session, lifeline: Option<Lifeline>, stop: &Stop) {
        let now = sys::now();
        if let Some(line) = lifeline {
            session.lifeline_ended(line, now + self.node.config.grace.into());
        } else if !matches!(stop, Stop::Goodbye) {
            let lost = matches!(stop, Stop::Broken(_) | Stop::Stalled);
            session.disconnected(&self.link, now, lost || self.link.unanswered.load(Relaxed) > 0);
        }
    }

    /// A lifeline says nothing; it ends when the last process that holds it does.
    fn hold(&mut self) -> Stop {
        match self.next_header() {
            Ok(_) => WireError::Unexpected("a lifeline carries no requests").into(),
            Err(stop) => stop,
        }
    }

    fn send_message(&mut self, mut header: Header, message: &impl serde::Serialize) -> Result<(), Stop> {
        self.frame.clear();
        self.frame.extend_from_slice(&[0; HEADER_LEN]);
        append_to(message, &mut self.frame);
        header.set_body_len((self.frame.len() - HEADER_LEN) as u32);
        self.frame[..HEADER_LEN].copy_from_slice(header.as_bytes());
        self.link.send(&self.frame)
    }

    fn next_header(&mut self) -> Result<(Header, Opcode), Stop> {
        let raw = self.rx.header(self.link.fd())?;
        let decoded = Header::decode(&raw);
        self.current = match &decoded {
            Ok((header, opcode)) => (*opcode, header.id.get()),
            // The id stands where it always does; the answer to nonsense is a goodbye.
            Err(WireError::BadMagic(_)) => (Opcode::Goodbye, 0),
            Err(_) => (Opcode::Goodbye, u64::from_le_bytes(raw[8..16].try_into().unwrap_or_default())),
        };
        Ok(decoded?)
    }

    fn requests(&mut self, session: &Arc<Session>) -> Stop {
        loop {
            let done = self.request(session);
            self.link.busy_since.store(0, Relaxed);
            let heard = Nanos(self.link.heard.load(Relaxed));
            let done = done.and_then(|()| self.rx.expect(self.link.fd(), &self.node.spinners, heard));
            if let Err(stop) = done {
                return stop;
            }
        }
    }

    fn request(&mut self, session: &Arc<Session>) -> Result<(), Stop> {
        let (header, opcode) = self.next_header()?;
        let received = sys::now();
        self.link.came(received, header.stamp.get());
        if header.has(flag::REPLY) {
            return Err(WireError::Unexpected("a client sends no replies").into());
        }
        let credits = self.node.config.credits;
        if self.link.unanswered.fetch_add(1, Relaxed) >= credits {
            return Err(Stop::Credits(credits));
        }
        match opcode {
            Opcode::Read | Opcode::Write | Opcode::Append => self.data(session, &header, opcode, received),
            Opcode::Meta => self.meta(session, &header, received),
            Opcode::Ping => {
                session.observe(received, header.stamp.get());
                self.body(session, &header, opcode)?;
                let mut pong = self.node.reply(session.job.epoch(), Opcode::Ping, header.id.get(), 0, 0);
                if self.node.engine.holds_back(session.job.flow(), &self.link) {
                    pong.set(flag::HELD);
                }
                self.reply(pong)
            }
            Opcode::Control => self.control(session, &header, received),
            Opcode::Goodbye => {
                self.body(session, &header, opcode)?;
                let linger = header.has(flag::LINGER).then(|| received + self.node.config.grace.into());
                // It does not wait to be told how the last of its writes went.
                let _ = self.node.stop_sharing(session, None);
                let left = self.node.sessions.leave(session, linger);
                for other in left.connections.iter().filter(|c| !Arc::ptr_eq(c, &self.link)) {
                    other.stop_receiving();
                }
                drop(left);
                self.reply(self.node.reply(session.job.epoch(), Opcode::Goodbye, header.id.get(), 0, 0))?;
                Err(Stop::Goodbye)
            }
            Opcode::Greeting | Opcode::Hello => Err(WireError::Unexpected("the handshake is over").into()),
        }
    }

    /// Sends the reply that stands in `self.frame`, and what was held back.
    fn send_frame(&mut self) -> Result<(), Stop> {
        let sent = if self.held.is_empty() {
            self.link.send(&self.frame)
        } else {
            self.held.extend_from_slice(&self.frame);
            self.flush()
        };
        self.link.unanswered.fetch_sub(1, Relaxed);
        sent
    }

    fn flush_held(&mut self) -> Result<(), Stop> {
        if self.held.is_empty() { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), Stop> {
        let sent = self.link.send(&self.held);
        self.held.clear();
        sent
    }

    fn reply(&mut self, header: Header) -> Result<(), Stop> {
        self.frame.clear();
        self.frame.extend_from_slice(header.as_bytes());
        self.send_frame()
    }

    /// For whoever asks where a job's time has gone.
    fn note_replay(&self, header: &Header, request: impl FnOnce() -> Request) {
        if header.age_ms.get() > 0 {
            self.node.replays.note(request(), Nanos::from_millis(header.age_ms.get().into()));
        }
    }

    fn refuse(&mut self, session: &Session, opcode: Opcode, id: u64, failure: &Failure) -> Result<(), Stop> {
        self.node.refusal(session.job.epoch(), opcode, id, failure, &mut self.frame);
        self.send_frame()
    }

    fn body(&mut self, session: &Session, header: &Header, opcode: Opcode) -> Result<Body, Stop> {
        self.rx.body(self.link.fd(), header, opcode, (&self.node.pool, &session.job.memory))
    }

    fn data(
        &mut self,
        session: &Arc<Session>,
        header: &Header,
        opcode: Opcode,
        received: Nanos,
    ) -> Result<(), Stop> {
        let body = self.body(session, header, opcode)?;
        if header.has(flag::PLACED) && !self.link.shares() {
            return Err(WireError::Unexpected("nothing is shared where that is said to be").into());
        }
        let found = session
            .observe_and_find(received, header.stamp.get(), header.handle.get())
            .and_then(|file| self.link.carries(file))
            .and_then(|file| serve::permitted(&file, opcode).map(|()| file));
        let file = match found {
            Ok(file) => file,
            Err(failure) => {
                session.record(data_op(opcode), 0, Nanos::ZERO, true);
                return self.refuse(session, opcode, header.id.get(), &failure);
            }
        };
        // What is large took its time to come.
        let arrived = if matches!(body, Body::Own(_)) { sys::now() } else { received };
        let (request, servers, access) = self.node.describe(session, &file, header, opcode, arrived);
        self.note_replay(header, || request);
        if opcode == Opcode::Append {
            match session.begin(&self.link, header.id.get()) {
                // A new session does not know of an earlier try, but the ledger does: the client is to ask.
                Ok(None) if header.has(flag::REPLAY) && self.node.ledgers.knows(session.id, header) => {
                    session.end(header.id.get(), None);
                    return self.refuse(session, opcode, header.id.get(), &Failure::EXPIRED);
                }
                Ok(None) => {}
                Ok(Some(answer)) => {
                    self.node.stats.replayed.fetch_add(1, Relaxed);
                    self.frame = answer;
                    return self.send_frame();
                }
                Err(failure) => return self.refuse(session, opcode, header.id.get(), &failure),
            }
        }
        // An append that cannot be carried out was not tried: it may be sent again.
        let no_memory = |e| {
            if opcode == Opcode::Append {
                session.end(header.id.get(), None);
            }
            Stop::NoMemory(e)
        };
        let node = Arc::clone(&self.node);
        let own = |payload: Buffer| {
            Box::new(Work {
                link: Arc::clone(&self.link),
                session: Arc::clone(session),
                header: *header,
                opcode,
                file: Some(Arc::clone(&file)),
                payload,
                received,
            })
        };
        // Memory of its own is needed by what is large, and by what will have to wait; what was placed stays where it is.
        let size = if opcode == Opcode::Read { header.length.get() as usize } else { header.body_len() };
        let (mut at, mut prepared) = (0, None);
        // A client that pipelines wants its requests at the storage together.
        let inline = !(node.engine.is_slow() && self.rx.more(self.link.fd()));
        match body {
            Body::Own(payload) => prepared = Some(own(payload)),
            Body::Here(start, _) => {
                at = start;
                let here = size <= ROOM && (opcode != Opcode::Read || self.rx.is_empty());
                if !here || !inline || node.engine.contended() {
                    let mut payload = node
                        .pool
                        .take(&session.job.memory, size, 3 * node.config.stall_timeout)
                        .map_err(no_memory)?;
                    if opcode != Opcode::Read {
                        payload.payload_mut(size).copy_from_slice(self.rx.bytes(at, size));
                    }
                    prepared = Some(own(payload));
                }
            }
        }
        let rx = &self.rx;
        let turn = node.engine.arrive(request, servers, &access, inline, prepared, || {
            let mut payload = node.pool.take_over_budget(&session.job.memory, size).ok()?;
            if opcode != Opcode::Read {
                payload.payload_mut(size).copy_from_slice(rx.bytes(at, size));
            }
            Some(own(payload))
        });
        let (ticket, prepared) = match turn {
            Ok(Turn::Queued) => return self.flush_held(),
            Ok(Turn::Inline(ticket, prepared)) => (ticket, prepared),
            Err(e) => return Err(no_memory(e)),
        };
        node.stats.inline.fetch_add(1, Relaxed);
        self.inline(session, &file, header, opcode, at, prepared, &ticket, received)
    }

    #[allow(clippy::too_many_arguments)] // one call, from `data`
    fn inline(
        &mut self,
        session: &Arc<Session>,
        file: &OpenFile,
        header: &Header,
        opcode: Opcode,
        at: usize,
        mut prepared: Option<Box<Work>>,
        ticket: &forebay_sched::Ticket,
        received: Nanos,
    ) -> Result<(), Stop> {
        let node = Arc::clone(&self.node);
        let (from, len) = (header.offset.get(), header.length.get() as usize);
        let large = opcode == Opcode::Read && len > ROOM && self.link.takes_pages();
        let mut now = received;
        let lend = |pipe: &Pipe| node.read_lent(session, file, header, pipe, &mut now);
        let lent = large.then(|| self.lender.lend(from, len, lend)).flatten();
        let (lent, pipe) = lent.map_or((None, None), |(moved, pipe)| (Some(moved), Some(pipe)));
        let moved = match (lent, &mut prepared, opcode) {
            (Some(moved), ..) => moved,
            (_, Some(work), Opcode::Read) => {
                let len = work.len();
                node.read(session, file, header, work.payload.payload_mut(len), &mut now)
            }
            (_, None, Opcode::Read) => match self.rx.scratch() {
                Some(into) => node.read(session, file, header, &mut into[..len], &mut now),
                None => Err(rustix::io::Errno::NOMEM.into()),
            },
            (_, Some(work), _) => {
                node.write(&self.link, session, file, header, opcode, work.data(), &mut now)
            }
            (_, None, _) => {
                let here = || self.rx.bytes(at, header.body_len());
                let data = self.link.placed(header).unwrap_or_else(here);
                node.write(&self.link, session, file, header, opcode, data, &mut now)
            }
        };
        node.complete(ticket, &[serve::bytes(&moved)], now);
        let reply = node.data_reply(session, header, opcode, &moved, now.since(received));
        let sent = match (reply.body, prepared, pipe) {
            (ReplyBody::Read(n), _, Some(pipe)) => {
                self.flush_held()?;
                let sent = self.link.send_lent(reply.header.as_bytes(), &pipe, n);
                if sent.is_ok() {
                    self.lender.keep(pipe);
                }
                sent
            }
            (ReplyBody::Read(n), Some(mut work), None) => {
                work.payload.set_header(reply.header.as_bytes());
                self.flush_held()?;
                self.link.send(work.payload.frame(n))
            }
            (ReplyBody::Read(n), None, None) => {
                self.flush_held()?;
                self.link.send(self.rx.scratch_frame(reply.header.as_bytes(), n))
            }
            (ReplyBody::Text(text), ..) => {
                self.frame.clear();
                self.frame.extend_from_slice(reply.header.as_bytes());
                self.frame.extend_from_slice(text.as_bytes());
                return self.send_frame();
            }
        };
        self.link.unanswered.fetch_sub(1, Relaxed);
        sent
    }

    fn meta(&mut self, session: &Arc<Session>, header: &Header, received: Nanos) -> Result<(), Stop> {
        let body = self.body(session, header, Opcode::Meta)?;
        session.observe(received, header.stamp.get());
        let bytes = match &body {
            Body::Here(at, len) => self.rx.bytes(*at, *len),
            Body::Own(buffer) => buffer.payload(header.body_len()),
        };
        let meta = Meta::decode(bytes)?;
        let node = Arc::clone(&self.node);
        let scheduled = node.engine.schedules_metadata() && serve::may_wait(&meta);
        let mut ticket = None;
        self.note_replay(header, || node.describe_meta(session, received).0);
        if scheduled {
            let own = || {
                let mut payload = node.pool.take_over_budget(&session.job.memory, bytes.len()).ok()?;
                payload.payload_mut(bytes.len()).copy_from_slice(bytes);
                Some(Box::new(Work {
                    link: Arc::clone(&self.link),
                    session: Arc::clone(session),
                    header: *header,
                    opcode: Opcode::Meta,
                    file: None,
                    payload,
                    received,
                }))
            };
            let (request, access) = node.describe_meta(session, received);
            match node.engine.arrive(request, request.server.into(), &access, true, None, own) {
                Ok(Turn::Queued) => return self.flush_held(),
                Ok(Turn::Inline(granted, _)) => ticket = Some(granted),
                Err(e) => return Err(Stop::NoMemory(e)),
            }
        }
        if ticket.is_none() {
            node.engine.meta_arrives(session, received);
        }
        let ended = node.run_meta(&self.link, session, header, &meta, received, &mut self.frame);
        match &ticket {
            Some(ticket) => node.complete(ticket, &[], ended),
            None => node.engine.meta_done(session, ended),
        }
        // Clients send a close along with their next request and wait only for that.
        if matches!(meta, Meta::Close { .. }) && self.rx.holds_frame() {
            self.held.extend_from_slice(&self.frame);
            self.link.unanswered.fetch_sub(1, Relaxed);
            return Ok(());
        }
        self.send_frame()
    }

    fn control(&mut self, session: &Arc<Session>, header: &Header, received: Nanos) -> Result<(), Stop> {
        let body = self.body(session, header, Opcode::Control)?;
        session.observe(received, header.stamp.get());
        let bytes = match &body {
            Body::Here(at, len) => self.rx.bytes(*at, *len),
            Body::Own(buffer) => buffer.payload(header.body_len()),
        };
        let answer = control::answer(&self.node, session, bytes);
        let json = serde_json::to_vec(&answer).unwrap_or_default();
        let status = if answer.error.is_some() { libc::EINVAL as u32 } else { 0 };
        let reply =
            self.node.reply(session.job.epoch(), Opcode::Control, header.id.get(), status, json.len() as u32);
        self.frame.clear();
        self.frame.extend_from_slice(reply.as_bytes());
        self.frame.extend_from_slice(&json);
        self.send_frame()
    }

    /// Tells the client why, if it can still hear it, and closes.
    fn end(&mut self, stop: &Stop) {
        let Some(errno) = stop.errno() else {
            return self.link.cut();
        };
        // Whoever has shown nothing fills no log.
        tracing::debug!("connection cut off: {stop}");
        self.node.stats.cut_off.fetch_add(1, Relaxed);
        let why = stop.to_string();
        let _ = self.flush_held();
        let (opcode, id) = self.current;
        let opcode = if opcode == Opcode::Hello { Opcode::Hello } else { Opcode::Goodbye };
        let mut header =
            self.node.reply(Epoch(0), opcode, id, errno.raw_os_error().unsigned_abs(), why.len() as u32);
        if matches!(stop, Stop::Crowded | Stop::Wire(WireError::UnknownJob | WireError::NameTaken)) {
            // Another node may know it or have room, and this one later.
            header.set(flag::MOVE);
        }
        if let Stop::Wire(WireError::Unprotected(asked)) = stop {
            header.length = (*asked as u64).into();
        }
        let frame = [&header.as_bytes()[..], why.as_bytes()].concat();
        if self.link.send(&frame).is_ok() {
            // Closing with unread bytes would reset the connection and take the sentence with it.
            let _ = shutdown(self.link.fd(), Shutdown::Write);
            let until = Instant::now() + Duration::from_millis(500);
            let mut sink = [0u8; 4096];
            while Instant::now() < until {
                match recv(self.link.fd(), &mut sink[..], RecvFlags::empty()) {
                    Ok((0, _)) => break,
                    Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                    Err(_) => break,
                }
            }
        }
        self.link.cut();
    }
}
