//! A whole node, fed hostile bytes over a socket: before a handshake, instead of one, or after a
//! proper one, as they come or cut into frames. It must neither crash nor hang, must close the
//! connection when its client does, and must not let anything out of its export.
#![no_main]

use forebay_node::Node;
use forebay_node::config::{ExportConfig, NodeConfig};
use forebay_types::{Address, Epoch, Secret};
use forebay_wire::frame::{HEADER_LEN, Header, Opcode};
use forebay_wire::hello::{Greeting, Hello, SessionId, Side};
use forebay_wire::message::{decode, encode_into};
use libfuzzer_sys::fuzz_target;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const SECRET: [u8; 32] = [7; 32];

struct World {
    node: Arc<Node>,
    dir: tempfile::TempDir,
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        // What the fuzzer makes of fallocate must not fill the disk.
        let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
        // SAFETY: plain calls with valid arguments, before any other thread is there.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
        }
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(dir.path().join("export")).expect("a directory");
        std::fs::write(dir.path().join("outside"), "untouched").expect("a file");
        std::os::unix::fs::symlink("../outside", dir.path().join("export/out")).expect("a link");
        let running = Node::start(NodeConfig {
            listen: vec![Address::Unix(dir.path().join("socket"))],
            grace: Duration::from_millis(10),
            exports: vec![ExportConfig::new(dir.path().join("export"), "x")],
            secret: Some(Secret::new(SECRET)),
            memory: 16 << 20,
            act_as: forebay_node::config::ActAs::Itself,
            ..NodeConfig::default()
        })
        .expect("a node");
        World { node: Arc::clone(running.node()), dir }
    })
}

fn greeting(stream: &mut UnixStream) -> Greeting {
    let mut raw = [0; HEADER_LEN];
    stream.read_exact(&mut raw).expect("a greeting");
    let (header, _) = Header::decode(&raw).expect("a header");
    let mut body = vec![0; header.body_len()];
    stream.read_exact(&mut body).expect("its body");
    decode(&body, "greeting").expect("a greeting")
}

fn shake_hands(stream: &mut UnixStream, greeting: &Greeting) {
    let session = SessionId([1; 16]);
    let mut hello = Hello { version: forebay_wire::VERSION_MAX, session, job: "fuzz", host: "h", pid: 1, rank: None, proof: [0; 32], challenge: [2; 16], credential: "", epoch: Epoch(0), lifeline: false, exports: vec!["x"], protect: forebay_types::Protect::None };
    hello.proof = hello.to_prove(&greeting.challenge).of(Side::Client, &Secret::new(SECRET));
    let mut body = Vec::new();
    encode_into(&hello, &mut body);
    let header = Header::request(Opcode::Hello, 1, body.len() as u32);
    stream.write_all(&[&header.as_bytes()[..], &body].concat()).expect("the hello goes out");
}

/// Cuts bytes into frames that pass the first checks: opcode, flags, lengths from the bytes.
fn framed(mut data: &[u8]) -> Vec<u8> {
    const OPCODES: [Opcode; 8] = [
        Opcode::Meta,
        Opcode::Read,
        Opcode::Write,
        Opcode::Append,
        Opcode::Ping,
        Opcode::Control,
        Opcode::Goodbye,
        Opcode::Hello,
    ];
    let mut out = Vec::new();
    let mut id = 1;
    while let Some((&[op, flags, handle, offset, len], rest)) = data.split_first_chunk::<5>() {
        let (body, rest) = rest.split_at(rest.len().min(len.into()));
        data = rest;
        // Metadata most of the time: there is most to get wrong.
        let opcode = OPCODES[if op < 128 { 0 } else { usize::from(op) % OPCODES.len() }];
        let mut header = Header::request(opcode, id, body.len() as u32);
        id += u64::from(flags & 1);
        header.handle = u64::from(handle).into();
        header.offset = (u64::from(offset) << (offset % 56)).into();
        header.length = (u64::from(len) * 1000).into();
        header.set(u16::from(flags) & !1);
        out.extend_from_slice(header.as_bytes());
        out.extend_from_slice(body);
    }
    out
}

fuzz_target!(|data: &[u8]| {
    let world = world();
    let Some((&how, data)) = data.split_first() else { return };
    let (mut stream, theirs) = UnixStream::pair().expect("a pair of sockets");
    // A hang is a finding, not a fuzzer that waits for ever.
    stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a time-out");
    stream.set_write_timeout(Some(Duration::from_secs(5))).expect("a time-out");
    world.node.serve(theirs.into());
    if how & 3 != 0 {
        let greeting = greeting(&mut stream);
        if how & 3 != 1 {
            shake_hands(&mut stream, &greeting);
        }
    }
    let bytes = if how & 3 == 3 { framed(data) } else { data.to_vec() };
    let mut reader = stream.try_clone().expect("a second descriptor");
    std::thread::scope(|s| {
        s.spawn(|| {
            // The node may close before it has read all.
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
        });
        let mut sink = [0; 65536];
        loop {
            match reader.read(&mut sink) {
                Ok(0) => break,
                Ok(_) => {}
                // The fuzzer's own timer.
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => break,
                Err(e) => panic!("the node does not close the connection: {e}"),
            }
        }
    });
    let outside = std::fs::read(world.dir.path().join("outside")).expect("the file outside is there");
    assert_eq!(outside, b"untouched");
});
