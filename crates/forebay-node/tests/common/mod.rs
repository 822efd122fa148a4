//! A small blocking client and a node in a temporary directory, for the tests.
#![allow(dead_code, unreachable_pub)] // every test uses its own part

pub mod users;

use forebay_node::config::{ActAs, ExportConfig, NodeConfig};
use forebay_node::control::{Command, Reply};
use forebay_node::{Node, Running};
use forebay_types::Epoch;
use forebay_types::{Address, Secret};
use forebay_wire::flags::OpenFlags;
use forebay_wire::frame::{HEADER_LEN, Header, Opcode, flag};
use forebay_wire::hello::{Greeting, Hello, Incarnation, Proof, SessionId, Side, Welcome};
use forebay_wire::message::{Answer, Attr, ExportId, Meta, Path, decode, encode_into};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub const SECRET: [u8; 32] = [7; 32];
pub const RW: OpenFlags = OpenFlags(3);

/// A node and its directory; drained and removed when dropped.
pub struct TestNode {
    pub dir: tempfile::TempDir,
    pub address: SocketAddr,
    pub unix: PathBuf,
    pub running: Option<Running>,
}

impl TestNode {
    pub fn start() -> TestNode {
        TestNode::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut NodeConfig)) -> TestNode {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("export")).unwrap();
        let unix = dir.path().join("sock");
        let mut config = NodeConfig {
            listen: vec!["tcp:127.0.0.1:0".parse().unwrap(), Address::Unix(unix.clone())],
            exports: vec![ExportConfig::new(dir.path().join("export"), "x")],
            secret: Some(Secret::new(SECRET)),
            ledger_dir: Some(dir.path().join("ledgers")),
            drain_timeout: Duration::from_secs(2),
            act_as: ActAs::Itself,
            ..NodeConfig::default()
        };
        change(&mut config);
        let running = Node::start(config).unwrap();
        let Address::Tcp(address) = running.addresses()[0] else { panic!("tcp comes first") };
        TestNode { dir, address, unix, running: Some(running) }
    }

    pub fn path(&self, rel: &str) -> PathBuf {
        self.dir.path().join("export").join(rel)
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address, &SECRET, "job", new_session()).unwrap()
    }

    pub fn report(&self) -> forebay_node::stats::NodeStatistics {
        self.running.as_ref().unwrap().node().report()
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.drain();
        }
    }
}

/// A session id nobody else has.
pub fn new_session() -> SessionId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut id = [0; 16];
    id[..8].copy_from_slice(&n.to_le_bytes());
    id[8..].copy_from_slice(&std::process::id().to_le_bytes().repeat(2));
    SessionId(id)
}

/// The process id that the client of a session says to have.
pub fn pid(session: SessionId) -> u32 {
    4711 + u32::from(session.0[0])
}

/// The clock that stamps requests.
pub fn stamp() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// A reply: header, and body.
#[derive(Debug)]
pub struct Response {
    pub header: Header,
    pub body: Vec<u8>,
}

impl Response {
    pub fn status(&self) -> i32 {
        self.header.status.get() as i32
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// Both kinds of sockets.
pub trait Socket: Read + Write + Send {}
impl<T: Read + Write + Send> Socket for T {}

pub struct Client {
    pub stream: Box<dyn Socket>,
    pub session: SessionId,
    pub incarnation: Incarnation,
    pub welcome: Welcome,
    pub next: u64,
    /// Added to the stamps, to lie about the time.
    pub skew: i64,
    pub flags: u16,
    pub age_ms: u32,
}

impl Client {
    /// Connects and shakes hands; the node's refusal otherwise.
    pub fn connect(
        to: SocketAddr,
        secret: &[u8; 32],
        job: &str,
        session: SessionId,
    ) -> Result<Client, Response> {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Client::over(Box::new(stream), secret, job, session, forebay_wire::VERSION_MAX)
    }

    /// A connection that only keeps the session's files open.
    pub fn lifeline(to: SocketAddr, session: SessionId) -> Client {
        let stream = Box::new(TcpStream::connect(to).unwrap());
        Client::shake_hands(stream, &SECRET, "job", session, forebay_wire::VERSION_MAX, true).unwrap()
    }

    pub fn over(
        stream: Box<dyn Socket>,
        secret: &[u8; 32],
        job: &str,
        session: SessionId,
        version: u16,
    ) -> Result<Client, Response> {
        Client::shake_hands(stream, secret, job, session, version, false)
    }

    /// Begins a job with a MUNGE credential that carries its secret.
    pub fn begin(to: SocketAddr, secret: &[u8; 32], job: &str, credential: &str) -> Result<Client, Response> {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let (session, version) = (new_session(), forebay_wire::VERSION_MAX);
        Client::introduce(Box::new(stream), secret, job, session, version, false, credential, &["x"])
    }

    fn shake_hands(
        stream: Box<dyn Socket>,
        secret: &[u8; 32],
        job: &str,
        session: SessionId,
        version: u16,
        lifeline: bool,
    ) -> Result<Client, Response> {
        Client::introduce(stream, secret, job, session, version, lifeline, "", &["x"])
    }

    /// As [`Client::over`], naming other exports than `x`, or none.
    pub fn naming(stream: Box<dyn Socket>, session: SessionId, exports: &[&str]) -> Result<Client, Response> {
        Client::introduce(stream, &SECRET, "job", session, forebay_wire::VERSION_MAX, false, "", exports)
    }

    #[allow(clippy::too_many_arguments)] // what a hello has
    fn introduce(
        mut stream: Box<dyn Socket>,
        secret: &[u8; 32],
        job: &str,
        session: SessionId,
        version: u16,
        lifeline: bool,
        credential: &str,
        exports: &[&str],
    ) -> Result<Client, Response> {
        let greeting = receive(&mut stream).unwrap();
        if greeting.status() != 0 {
            return Err(greeting);
        }
        let g: Greeting = decode(&greeting.body, "greeting").unwrap();
        let challenge = [session.0[0]; 16];
        let protect = g.protect;
        let what = Proof { node: &g.challenge, client: &challenge, session, job, protect, exports };
        let secret = Secret::new(*secret);
        let proof = what.of(Side::Client, &secret);
        let pid = pid(session);
        let (host, rank, epoch) = ("here", None, Epoch(0));
        let hello = Hello {
            version,
            session,
            job,
            host,
            pid,
            rank,
            proof,
            challenge,
            credential,
            epoch,
            lifeline,
            exports: exports.to_vec(),
            protect,
        };
        let mut body = Vec::new();
        encode_into(&hello, &mut body);
        let mut h = Header::request(Opcode::Hello, 1, body.len() as u32);
        h.stamp = stamp().into();
        stream.write_all(&[&h.as_bytes()[..], &body].concat()).unwrap();
        let answer = receive(&mut stream).unwrap();
        if answer.status() != 0 {
            return Err(answer);
        }
        let welcome: Welcome = decode(&answer.body, "welcome").unwrap();
        what.verify(Side::Node, &secret, &welcome.proof).unwrap();
        let incarnation = g.incarnation;
        Ok(Client { stream, session, incarnation, welcome, next: 2, skew: 0, flags: 0, age_ms: 0 })
    }

    pub fn header(&mut self, opcode: Opcode, body: usize) -> Header {
        let mut h = Header::request(opcode, self.next, body as u32);
        self.next += 1;
        h.stamp = stamp().wrapping_add_signed(self.skew).into();
        if self.flags != 0 {
            h.set(self.flags);
        }
        h.age_ms = self.age_ms.into();
        h
    }

    pub fn send(&mut self, header: &Header, body: &[u8]) {
        self.stream.write_all(&[&header.as_bytes()[..], body].concat()).unwrap();
    }

    pub fn receive(&mut self) -> Response {
        self.next_frame().expect("a reply")
    }

    /// Skips the node's signs of life.
    fn next_frame(&mut self) -> Option<Response> {
        loop {
            let r = receive(&mut self.stream)?;
            if r.header.id.get() != 0 || r.status() != 0 {
                return Some(r);
            }
        }
    }

    /// Whether the node has closed the connection.
    pub fn closed(&mut self) -> bool {
        self.next_frame().is_none()
    }

    pub fn exchange(&mut self, header: &Header, body: &[u8]) -> Response {
        self.send(header, body);
        let r = self.receive();
        assert_eq!(r.header.id.get(), header.id.get());
        r
    }

    pub fn raw_meta(&mut self, meta: &Meta<'_>) -> Response {
        let mut body = Vec::new();
        meta.encode(&mut body);
        let h = self.header(Opcode::Meta, body.len());
        self.exchange(&h, &body)
    }

    /// The answer's bytes, or errno.
    pub fn meta(&mut self, meta: &Meta<'_>) -> Result<Vec<u8>, i32> {
        let r = self.raw_meta(meta);
        if r.status() == 0 { Ok(r.body) } else { Err(r.status()) }
    }

    /// For operations that just succeed or fail.
    pub fn done(&mut self, meta: &Meta<'_>) -> Result<(), i32> {
        let body = self.meta(meta)?;
        assert_eq!(Answer::decode(&body), Ok(Answer::Done));
        Ok(())
    }

    pub fn open_attr(&mut self, rel: &str, flags: OpenFlags, mode: u32) -> Result<(u64, Attr), i32> {
        let body = self.meta(&Meta::Open { path: path(rel), flags, mode, identity: 0 })?;
        match Answer::decode(&body) {
            Ok(Answer::Opened { handle, attr, .. }) => Ok((handle, attr)),
            other => panic!("{other:?}"),
        }
    }

    pub fn open(&mut self, rel: &str, flags: OpenFlags) -> Result<u64, i32> {
        self.open_attr(rel, flags, 0o644).map(|o| o.0)
    }

    pub fn create(&mut self, rel: &str) -> u64 {
        self.open(rel, RW | OpenFlags::CREATE).unwrap()
    }

    pub fn stat(&mut self, target: forebay_wire::message::Target<'_>) -> Result<Attr, i32> {
        let body = self.meta(&Meta::Stat { target })?;
        match Answer::decode(&body) {
            Ok(Answer::Attr(attr)) => Ok(attr),
            other => panic!("{other:?}"),
        }
    }

    pub fn close(&mut self, handle: u64) -> Result<(), i32> {
        self.done(&Meta::Close { handle })
    }

    pub fn data(&mut self, opcode: Opcode, handle: u64, offset: u64, body: &[u8]) -> Response {
        let mut h = self.header(opcode, body.len());
        h.handle = handle.into();
        h.offset = offset.into();
        self.exchange(&h, body)
    }

    pub fn write(&mut self, handle: u64, offset: u64, data: &[u8]) -> Result<usize, i32> {
        let r = self.data(Opcode::Write, handle, offset, data);
        if r.status() == 0 { Ok(r.header.length.get() as usize) } else { Err(r.status()) }
    }

    /// Where the data landed.
    pub fn append(&mut self, handle: u64, known_end: u64, data: &[u8]) -> Result<u64, i32> {
        let r = self.data(Opcode::Append, handle, known_end, data);
        if r.status() == 0 { Ok(r.header.offset.get()) } else { Err(r.status()) }
    }

    pub fn read_header(&mut self, handle: u64, offset: u64, len: usize) -> Header {
        let mut h = self.header(Opcode::Read, 0);
        h.handle = handle.into();
        h.offset = offset.into();
        h.length = (len as u64).into();
        h
    }

    pub fn read(&mut self, handle: u64, offset: u64, len: usize) -> Result<Vec<u8>, i32> {
        let h = self.read_header(handle, offset, len);
        let r = self.exchange(&h, &[]);
        if r.status() != 0 {
            return Err(r.status());
        }
        assert_eq!(r.header.length.get() as usize, r.body.len());
        Ok(r.body)
    }

    pub fn ping(&mut self) -> Response {
        let h = self.header(Opcode::Ping, 0);
        self.exchange(&h, &[])
    }

    pub fn goodbye(&mut self, linger: bool) {
        let mut h = self.header(Opcode::Goodbye, 0);
        if linger {
            h.set(flag::LINGER);
        }
        assert_eq!(self.exchange(&h, &[]).status(), 0);
    }

    pub fn control(&mut self, command: &Command) -> Reply {
        let json = serde_json::to_vec(command).unwrap();
        let h = self.header(Opcode::Control, json.len());
        serde_json::from_slice(&self.exchange(&h, &json).body).unwrap()
    }
}

/// The next frame, or `None` at the end.
pub fn receive(stream: &mut impl Read) -> Option<Response> {
    let mut raw = [0; HEADER_LEN];
    stream.read_exact(&mut raw).ok()?;
    let (header, _) = Header::decode(&raw).unwrap();
    let mut body = vec![0; header.body_len()];
    stream.read_exact(&mut body).ok()?;
    Some(Response { header, body })
}

pub fn path(rel: &str) -> Path<'_> {
    Path { export: ExportId(0), rel: rel.as_bytes() }
}

/// Waits until `f` holds; for what happens in the node's own time.
pub fn eventually(what: &str, f: impl Fn() -> bool) {
    for _ in 0..2000 {
        if f() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("never: {what}");
}
