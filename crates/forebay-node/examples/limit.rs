//! How far the I/O node is from the smallest possible forwarder (blocking socket, header, payload,
//! `pwrite`/`pread`, reply; no features), without a client library in between:
//! `cargo run --release -p forebay-node --example limit`. Both are measured in turns, over TCP
//! loopback, on files in /dev/shm.

#[path = "../tests/common/mod.rs"]
mod common;

use common::*;
use forebay_node::Node;
use forebay_node::config::{ActAs, ExportConfig, NodeConfig};
use forebay_types::stats::median;
use forebay_types::{Address, Secret};
use forebay_wire::flags::OpenFlags;
use forebay_wire::frame::{HEADER_LEN, Header, Opcode};
use forebay_wire::message::{Meta, Target};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::time::Instant;

const ROUNDS: usize = 7;

/// The smallest forwarder. `length` says what it is asked to do.
fn forwarder(dir: std::path::PathBuf) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            let dir = dir.clone();
            std::thread::spawn(move || {
                let file = std::fs::File::options().read(true).write(true).open(dir.join("f")).unwrap();
                let mut buffer = rustix_pages(4 << 20);
                let (name, new) = (dir.join("f"), dir.join("limit-new"));
                loop {
                    let mut raw = [0; HEADER_LEN];
                    if stream.read_exact(&mut raw).is_err() {
                        return;
                    }
                    let (h, op) = Header::decode(&raw).unwrap();
                    let mut reply = Header::reply(op, h.id.get(), 0, 0);
                    match op {
                        Opcode::Write => {
                            let n = h.body_len();
                            stream.read_exact(&mut buffer[4096..4096 + n]).unwrap();
                            file.write_all_at(&buffer[4096..4096 + n], h.offset.get()).unwrap();
                            stream.write_all(reply.as_bytes()).unwrap();
                        }
                        Opcode::Read => {
                            let n = h.length.get() as usize;
                            let n = file.read_at(&mut buffer[4096..4096 + n], h.offset.get()).unwrap();
                            reply.set_body_len(n as u32);
                            buffer[4096 - HEADER_LEN..4096].copy_from_slice(reply.as_bytes());
                            stream.write_all(&buffer[4096 - HEADER_LEN..4096 + n]).unwrap();
                        }
                        _ => {
                            let n = h.body_len();
                            stream.read_exact(&mut buffer[4096..4096 + n]).unwrap();
                            match h.length.get() {
                                0 => drop(std::fs::metadata(&name).unwrap()),
                                1 => drop(std::fs::File::create(&new).unwrap()),
                                _ => std::fs::remove_file(&new).unwrap(),
                            }
                            reply.set_body_len(80);
                            stream.write_all(&[&reply.as_bytes()[..], &[0; 80]].concat()).unwrap();
                        }
                    }
                }
            });
        }
    });
    address
}

fn rustix_pages(len: usize) -> Vec<u8> {
    // Large allocations are page-aligned but for the allocator's header.
    let mut v = vec![0u8; len + 8192];
    let skip = 4096 - v.as_ptr() as usize % 4096;
    v.drain(..skip);
    v.shrink_to_fit();
    v
}

/// One client's view of either side.
struct Side {
    stream: TcpStream,
    handle: u64,
    id: u64,
    buffer: Vec<u8>,
}

impl Side {
    fn call(&mut self, mut header: Header, body: &[u8]) {
        self.id += 1;
        header.id = self.id.into();
        header.handle = self.handle.into();
        header.stamp = stamp().into();
        self.buffer[..HEADER_LEN].copy_from_slice(header.as_bytes());
        self.buffer[HEADER_LEN..HEADER_LEN + body.len()].copy_from_slice(body);
        self.stream.write_all(&self.buffer[..HEADER_LEN + body.len()]).unwrap();
        let mut got = self.stream.read(&mut self.buffer).unwrap();
        while got < HEADER_LEN {
            got += self.stream.read(&mut self.buffer[got..]).unwrap();
        }
        let raw: [u8; HEADER_LEN] = self.buffer[..HEADER_LEN].try_into().unwrap();
        let (reply, _) = Header::decode(&raw).unwrap();
        assert_eq!(reply.status.get(), 0);
        let len = HEADER_LEN + reply.body_len();
        if got < len {
            self.stream.read_exact(&mut self.buffer[got..len]).unwrap();
        }
    }
}

fn meta(m: &Meta<'_>, which: u64) -> (Header, Vec<u8>) {
    let mut body = Vec::new();
    m.encode(&mut body);
    let mut h = Header::request(Opcode::Meta, 0, body.len() as u32);
    h.length = which.into();
    (h, body)
}

fn main() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    std::fs::write(dir.path().join("f"), vec![1u8; 8 << 20]).unwrap();
    let limit = forwarder(dir.path().to_owned());
    let running = Node::start(NodeConfig {
        listen: vec!["tcp:127.0.0.1:0".parse().unwrap()],
        exports: vec![ExportConfig::new(dir.path(), "x")],
        secret: Some(Secret::new(SECRET)),
        scheduler: std::env::args().nth(1).unwrap_or("fifo".into()).parse().unwrap(),
        act_as: ActAs::Itself,
        ..NodeConfig::default()
    })
    .unwrap();
    let Address::Tcp(node) = running.addresses()[0] else { unreachable!() };
    let connect = |at, handle| {
        let stream = TcpStream::connect(at).unwrap();
        stream.set_nodelay(true).unwrap();
        Side { stream, handle, id: 100, buffer: rustix_pages(5 << 20) }
    };
    let mut plain = connect(limit, 0);
    // The handshake goes over the same socket that is measured.
    let mut forebay = connect(node, 0);
    let clone = forebay.stream.try_clone().unwrap();
    let mut client = Client::over(Box::new(clone), &SECRET, "bench", new_session(), 1).unwrap();
    forebay.handle = client.open("f", RW).unwrap();
    println!("{:<22}{:>12}{:>12}{:>8}", "operation", "limit µs", "node µs", "ratio");
    let stat = meta(&Meta::Stat { target: Target::Path(path("f")) }, 0);
    let create = meta(
        &Meta::Open {
            path: path("n"),
            flags: OpenFlags::WRITE | OpenFlags::CREATE,
            mode: 0o600,
            identity: 0,
        },
        1,
    );
    let unlink = meta(&Meta::Unlink { path: path("n") }, 2);
    let data = vec![7u8; 4 << 20];
    let read = |len: usize| {
        let mut h = Header::request(Opcode::Read, 0, 0);
        h.length = (len as u64).into();
        h
    };
    type Case<'a> = (&'a str, usize, Box<dyn Fn(&mut Side) + 'a>);
    let cases: Vec<Case<'_>> = vec![
        ("ping-pong stat", 20_000, Box::new(|s: &mut Side| s.call(stat.0, &stat.1))),
        (
            "create+unlink",
            5_000,
            Box::new(|s: &mut Side| {
                s.call(create.0, &create.1);
                s.call(unlink.0, &unlink.1);
            }),
        ),
        (
            "write 4 KiB",
            20_000,
            Box::new(|s: &mut Side| s.call(Header::request(Opcode::Write, 0, 4096), &data[..4096])),
        ),
        ("read 4 KiB", 20_000, Box::new(move |s: &mut Side| s.call(read(4096), &[]))),
        (
            "write 64 KiB",
            5_000,
            Box::new(|s: &mut Side| s.call(Header::request(Opcode::Write, 0, 65536), &data[..65536])),
        ),
        ("read 64 KiB", 5_000, Box::new(move |s: &mut Side| s.call(read(65536), &[]))),
        (
            "write 1 MiB",
            500,
            Box::new(|s: &mut Side| s.call(Header::request(Opcode::Write, 0, 1 << 20), &data[..1 << 20])),
        ),
        ("read 1 MiB", 500, Box::new(move |s: &mut Side| s.call(read(1 << 20), &[]))),
    ];
    for (name, count, case) in &cases {
        let mut medians = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (side, into) in [&mut plain, &mut forebay].into_iter().zip(&mut medians) {
                let times = (0..count / ROUNDS).map(|_| {
                    let start = Instant::now();
                    case(side);
                    start.elapsed().as_secs_f64() * 1e6
                });
                into.push(median(&times.collect::<Vec<_>>()));
            }
        }
        let [a, b] = medians.map(|times| median(&times));
        println!("{name:<22}{a:>12.2}{b:>12.2}{:>8.2}", b / a);
    }
    running.drain();
}
