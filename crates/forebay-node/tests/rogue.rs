//! Somebody who listens where an I/O node was: without the job's secret nothing is said to them.

use forebay_client::{Client, Config, OpenFlags, Path};
use forebay_types::{Address, Epoch, FlowId, NodeId, Secret};
use forebay_wire::frame::{HEADER_LEN, Header, Opcode, flag};
use forebay_wire::hello::{Greeting, Hello, HostBoot, Incarnation, Side, Welcome};
use forebay_wire::message::{ExportId, decode, encode_into};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

const SECRET: [u8; 32] = [0x42; 32];

/// What came after the welcome, and how many connections have ended.
type Heard = (Vec<u8>, u32);

fn send(stream: &mut TcpStream, mut header: Header, body: &[u8]) {
    header.set_body_len(body.len() as u32);
    stream.write_all(&[&header.as_bytes()[..], body].concat()).unwrap();
}

fn receive(stream: &mut TcpStream) -> Option<(Header, Vec<u8>)> {
    let mut raw = [0; HEADER_LEN];
    stream.read_exact(&mut raw).ok()?;
    let (header, _) = Header::decode(&raw).ok()?;
    let mut body = vec![0; header.body_len()];
    stream.read_exact(&mut body).ok()?;
    Some((header, body))
}

/// Greets, hears the hello, welcomes with a proof made by `prove`; what came after that.
fn impostor(
    prove: impl Fn(&Hello<'_>, &[u8; 16]) -> [u8; 32] + Send + 'static,
) -> (Address, Arc<Mutex<Heard>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    let heard: Arc<Mutex<Heard>> = Arc::default();
    let all = Arc::clone(&heard);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let challenge = [9; 16];
            let greeting = Greeting {
                version_min: forebay_wire::VERSION_MIN,
                version_max: forebay_wire::VERSION_MAX,
                node: NodeId(0),
                host_boot: HostBoot::default(),
                incarnation: Incarnation([1; 16]),
                challenge,
                protect: forebay_types::Protect::None,
            };
            let mut body = Vec::new();
            encode_into(&greeting, &mut body);
            send(&mut stream, Header::request(Opcode::Greeting, 0, 0), &body);
            let Some((header, said)) = receive(&mut stream) else { continue };
            assert!(!said.windows(32).any(|w| w == SECRET), "the secret itself");
            let hello: Hello<'_> = decode(&said, "hello").unwrap();
            let welcome = Welcome {
                version: forebay_wire::VERSION_MAX,
                flow: FlowId(1),
                credits: 8,
                max_data: 4096,
                lease_ms: 2000,
                exports: vec!["x".into()],
                epoch: Epoch(0),
                resumed: false,
                board: None,
                proof: prove(&hello, &challenge),
            };
            body.clear();
            encode_into(&welcome, &mut body);
            let mut reply = Header::request(Opcode::Hello, header.id.get(), 0);
            reply.set(flag::REPLY);
            send(&mut stream, reply, &body);
            let _ = stream.set_read_timeout(Some(std::time::Duration::from_secs(20)));
            let mut piece = [0; 4096];
            while let Ok(n @ 1..) = stream.read(&mut piece) {
                all.lock().unwrap().0.extend_from_slice(&piece[..n]);
            }
            all.lock().unwrap().1 += 1;
        }
    });
    (address, heard)
}

fn open(node: Address) -> Result<(), String> {
    let mut config = Config::new("job", Secret::new(SECRET).to_hex(), vec![node]);
    config.deadline_ms = 1500;
    config.exports = vec![forebay_client::ExportMap { dir: "/x".into(), export: "x".into(), local: None }];
    let client = Client::new(config, None).unwrap();
    let path = Path { export: ExportId(0), rel: b"private" };
    client.open(path, OpenFlags::READ, 0).map(drop).map_err(|e| e.to_string())
}

#[test]
fn who_does_not_know_the_secret_hears_nothing() {
    // No proof, one under another secret, and the client's own thrown back.
    let (address, heard) = impostor(|_, _| [0; 32]);
    let said = open(address).unwrap_err();
    assert!(said.contains("does not know the job's secret"), "{said}");
    assert!(after_the_welcome(&heard).is_empty());
    let (address, heard) = impostor(|h, c| h.to_prove(c).of(Side::Node, &Secret::new([1; 32])));
    open(address).unwrap_err();
    assert!(after_the_welcome(&heard).is_empty());
    let (address, heard) = impostor(|h, _| h.proof);
    open(address).unwrap_err();
    assert!(after_the_welcome(&heard).is_empty());
    // Who knows it is talked to: this test can tell.
    let (address, heard) = impostor(|h, c| h.to_prove(c).of(Side::Node, &Secret::new(SECRET)));
    open(address).unwrap_err();
    assert!(!after_the_welcome(&heard).is_empty());
}

/// All that was said, once a connection has ended.
fn after_the_welcome(heard: &Mutex<Heard>) -> Vec<u8> {
    let patience = std::time::Duration::from_secs(30);
    forebay_testkit::until(patience, "a connection has ended", || {
        let heard = heard.lock().unwrap();
        (heard.1 > 0).then(|| heard.0.clone())
    })
}
