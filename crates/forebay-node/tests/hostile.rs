//! Clients that lie, stall, flood and try to get out.

mod common;

use common::*;
use forebay_wire::flags::OpenFlags;
use forebay_wire::frame::{HEADER_LEN, Header, Opcode, flag};
use forebay_wire::message::*;
use forebay_wire::{MAX_DATA, MAX_META};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::time::Duration;

/// What the node says before it closes the connection.
fn last_words(c: &mut Client) -> (i32, String) {
    let r = c.receive();
    assert!(c.closed());
    (r.status(), r.text().to_owned())
}

#[test]
fn nonsense_is_told_so_and_cut_off() {
    let node = TestNode::start();
    let mut good = node.client();
    let h = good.create("f");
    let patched = |at: usize, bytes: &[u8]| {
        let mut raw = *Header::request(Opcode::Ping, 5, 0).as_bytes();
        raw[at..at + bytes.len()].copy_from_slice(bytes);
        raw
    };
    for (raw, errno, word) in [
        (patched(0, b"HTTP"), libc::EPROTO, "Forebay"),
        (patched(4, &77u16.to_le_bytes()), libc::EOPNOTSUPP, "opcode 77"),
        (patched(48, &(MAX_META + 1).to_le_bytes()), libc::EMSGSIZE, "limit"),
        (*Header::request(Opcode::Write, 5, MAX_DATA + 1).as_bytes(), libc::EMSGSIZE, "limit"),
        (*Header::request(Opcode::Write, 5, u32::MAX).as_bytes(), libc::EMSGSIZE, "limit"),
        (*Header::request(Opcode::Hello, 5, 0).as_bytes(), libc::EPROTO, "handshake"),
        (*Header::reply(Opcode::Ping, 5, 0, 0).as_bytes(), libc::EPROTO, "replies"),
    ] {
        let mut c = node.client();
        c.stream.write_all(&raw).unwrap();
        let (status, text) = last_words(&mut c);
        assert_eq!(status, errno, "{text}");
        assert!(text.contains(word), "{text}");
        assert_eq!(good.write(h, 0, b"served"), Ok(6));
    }
    let mut c = node.client();
    let mut header = c.header(Opcode::Read, 0);
    header.length = u64::MAX.into();
    c.send(&header, &[]);
    assert_eq!(last_words(&mut c).0, libc::EMSGSIZE);
    for body in [&b""[..], b"\xff", b"\x00\x00\x00\xff\xff\xff\xff\xff\xff", &[0xff; 1000], &[0; 3]] {
        let mut c = node.client();
        let header = c.header(Opcode::Meta, body.len());
        c.send(&header, body);
        let (status, text) = last_words(&mut c);
        assert_eq!(status, libc::EPROTO);
        assert!(text.contains("metadata"));
    }
    // Before the handshake, too, and with no more memory than a hello needs.
    for header in [Header::request(Opcode::Write, 5, 1000), Header::request(Opcode::Hello, 5, 100_000)] {
        let mut stream = TcpStream::connect(node.address).unwrap();
        receive(&mut stream).unwrap();
        stream.write_all(header.as_bytes()).unwrap();
        assert_ne!(receive(&mut stream).unwrap().status(), 0);
    }
}

#[test]
fn a_client_that_stalls_is_cut_off_while_others_are_served() {
    let node = TestNode::with(|c| {
        c.stall_timeout = Duration::from_millis(300);
        c.memory = 8 << 20;
    });
    let mut good = node.client();
    let h = good.create("f");
    let mut stalling: Vec<Client> = (0..6).map(|_| node.client()).collect();
    for (i, c) in stalling.iter_mut().enumerate() {
        let len = [0usize, 10, 5000, 65_536, 100_000, 4 << 20][i];
        let header = c.header(Opcode::Write, len.max(1));
        if i == 0 {
            // Half a header.
            c.stream.write_all(&header.as_bytes()[..20]).unwrap();
        } else {
            c.stream.write_all(header.as_bytes()).unwrap();
            c.stream.write_all(&vec![0; len / 2]).unwrap();
        }
    }
    for i in 0..50 {
        assert_eq!(good.write(h, i * 1000, &[1; 1000]), Ok(1000));
        assert_eq!(good.write(h, i, &vec![1; 70_000]), Ok(70_000));
    }
    for c in &mut stalling {
        let (status, text) = last_words(c);
        assert_eq!(status, libc::ETIMEDOUT, "{text}");
    }
    // Who trickles byte by byte does not get far either.
    let mut c = node.client();
    let header = c.header(Opcode::Write, 4000);
    let _ = c.stream.write_all(header.as_bytes());
    let trickled = (0..200).take_while(|_| {
        std::thread::sleep(Duration::from_millis(20));
        c.stream.write_all(&[0]).is_ok()
    });
    assert!(trickled.count() < 150);
    assert_eq!(good.ping().status(), 0);
    eventually("their memory is free", || node.report().payload_memory == 0);
}

#[test]
fn silence_between_frames_is_fine() {
    let node = TestNode::with(|c| c.stall_timeout = Duration::from_millis(40));
    let mut c = node.client();
    let h = c.create("f");
    c.write(h, 0, &[5; 10_000]).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(c.read(h, 0, 10_000).unwrap(), vec![5; 10_000]);
}

#[test]
fn a_flood_without_reading_is_cut_off_and_hurts_nobody() {
    let node = TestNode::with(|c| {
        c.stall_timeout = Duration::from_millis(500);
        c.memory = 16 << 20;
    });
    let mut good = node.client();
    let h = good.create("f");
    good.write(h, 0, &vec![9; 4 << 20]).unwrap();
    let floods: Vec<_> = (0..4)
        .map(|_| {
            let address = node.address;
            std::thread::spawn(move || {
                let mut c = Client::connect(address, &SECRET, "job", new_session()).unwrap();
                let f = c.open("f", RW).unwrap();
                // Large answers that are never read.
                for _ in 0..100_000_000 {
                    let header = c.read_header(f, 0, 4 << 20);
                    if c.stream.write_all(header.as_bytes()).is_err() {
                        return true;
                    }
                }
                false
            })
        })
        .collect();
    for _ in 0..100 {
        assert_eq!(good.read(h, 0, 100_000).unwrap().len(), 100_000);
        assert_eq!(good.write(h, 0, &[9; 100]), Ok(100));
    }
    for flood in floods {
        assert!(flood.join().unwrap(), "cut off");
    }
    eventually("their memory is free", || node.report().payload_memory == 0);
}

#[test]
fn no_more_connections_than_allowed() {
    let node = TestNode::with(|c| c.max_connections = 3);
    let clients: Vec<Client> = (0..3).map(|_| node.client()).collect();
    let mut stream = TcpStream::connect(node.address).unwrap();
    let refusal = receive(&mut stream).unwrap();
    assert_eq!(refusal.status(), libc::EUSERS);
    assert!(refusal.text().contains("connections"));
    drop(clients);
    eventually("there is room again", || node.report().connections == 0);
    assert_eq!(node.client().ping().status(), 0);
}

#[test]
fn no_more_open_files_than_allowed() {
    let node = TestNode::with(|c| {
        c.max_handles_per_session = 3;
        c.max_handles = 5;
    });
    let (mut a, mut b) = (node.client(), node.client());
    for i in 0..3 {
        a.create(&format!("{i}"));
    }
    assert_eq!(a.open("0", RW), Err(libc::EMFILE));
    b.open("0", RW).unwrap();
    let h = b.open("1", RW).unwrap();
    assert_eq!(b.open("2", RW), Err(libc::ENFILE));
    b.close(h).unwrap();
    b.open("2", RW).unwrap();
}

#[test]
fn nothing_leaves_the_export() {
    let node = TestNode::start();
    let mut c = node.client();
    std::fs::write(node.dir.path().join("secret"), "s").unwrap();
    std::fs::create_dir(node.path("d")).unwrap();
    std::fs::write(node.path("f"), "f").unwrap();
    for (name, to) in [("up", "../secret"), ("abs", "/etc"), ("d/out", "../.."), ("proc", "/proc/self/root")]
    {
        symlink(to, node.path(name)).unwrap();
    }
    let outside = [
        "..",
        "../secret",
        "up",
        "abs",
        "abs/passwd",
        "d/out/secret",
        "d/../../secret",
        "/etc/passwd",
        "proc/etc/passwd",
        "../export/f",
    ];
    for rel in outside {
        let t = Target::Path(path(rel));
        let p = path(rel);
        for meta in [
            Meta::Open { path: p, flags: OpenFlags::READ, mode: 0, identity: 0 },
            Meta::Open { path: p, flags: RW | OpenFlags::TRUNC, mode: 0, identity: 0 },
            Meta::Open { path: p, flags: OpenFlags::READ | OpenFlags::PATH, mode: 0, identity: 0 },
            Meta::Stat { target: t },
            Meta::Truncate { target: t, size: 0 },
            Meta::Chmod { target: t, mode: 0o777 },
            Meta::Chown { target: t, uid: 0, gid: 0 },
            Meta::Utimens { target: t, atime: SetTime::Now, mtime: SetTime::Now },
            Meta::Access { path: p, mode: 4, follow: true },
            Meta::Access { path: p, mode: 0, follow: true },
            Meta::Statfs { target: t },
            Meta::Getxattr { target: t, name: b"user.x" },
            Meta::Setxattr { target: t, name: b"user.x", value: b"x", flags: 0 },
            Meta::Listxattr { target: t },
            Meta::Removexattr { target: t, name: b"user.x" },
            Meta::Link { from: t, to: path("stolen") },
        ] {
            let r = c.raw_meta(&meta);
            assert!(r.status() == libc::EXDEV && r.header.has(flag::ESCAPES), "{rel}: {meta:?}: {r:?}");
        }
    }
    for rel in ["../new", "abs/new", "d/out/new", "/tmp/new", "proc/tmp/new"] {
        let p = path(rel);
        for meta in [
            Meta::Open { path: p, flags: RW | OpenFlags::CREATE, mode: 0o600, identity: 0 },
            Meta::Open { path: p, flags: RW | OpenFlags::CREATE | OpenFlags::EXCL, mode: 0o600, identity: 0 },
            Meta::Mkdir { path: p, mode: 0o700 },
            Meta::Mknod { path: p, mode: 0o600, dev: 0 },
            Meta::Symlink { target: b"x", path: p },
            Meta::Link { from: Target::Path(path("f")), to: p },
            Meta::Rename { from: path("f"), to: p, flags: 0 },
            Meta::Rename { from: p, to: path("g"), flags: 0 },
            Meta::Unlink { path: p },
            Meta::Rmdir { path: p },
            Meta::Readlink { path: p },
            Meta::Stat { target: Target::Link(p) },
            Meta::Listxattr { target: Target::Link(p) },
        ] {
            let r = c.raw_meta(&meta);
            assert!(r.status() == libc::EXDEV && r.header.has(flag::ESCAPES), "{rel}: {meta:?}: {r:?}");
        }
    }
    // Names that no file can have.
    let long = "n".repeat(256);
    let deep = "d/".repeat(2100);
    for (rel, errno) in [("a\0b", libc::EINVAL), (&long, libc::ENAMETOOLONG), (&deep, libc::ENAMETOOLONG)] {
        for meta in
            [Meta::Stat { target: Target::Path(path(rel)) }, Meta::Mkdir { path: path(rel), mode: 0o700 }]
        {
            assert_eq!(c.meta(&meta), Err(errno));
        }
    }
    assert_eq!(c.meta(&Meta::Symlink { target: b"a\0b", path: path("z") }), Err(libc::EINVAL));
    let r = c.raw_meta(&Meta::Stat { target: Target::Path(Path { export: ExportId(9), rel: b"f" }) });
    assert!(r.status() == libc::ENOENT && r.text().contains("export"));
    // Nothing was touched, and a rename's own EXDEV looks different.
    assert_eq!(std::fs::read(node.dir.path().join("secret")).unwrap(), b"s");
    assert_eq!(std::fs::read(node.path("f")).unwrap(), b"f");
    assert!(!node.dir.path().join("new").exists() && !node.path("stolen").exists());
}

#[test]
fn random_bytes_after_the_handshake() {
    let node = TestNode::start();
    let mut state = 1u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..200 {
        let mut c = node.client();
        let mut bytes = Vec::new();
        for _ in 0..random() % 6 {
            let mut header = Header::request(Opcode::Ping, random(), (random() % 3000) as u32);
            header.handle = random().into();
            header.offset = random().into();
            header.length = (random() % 100_000).into();
            let mut raw = *header.as_bytes();
            raw[4] = (random() % 10) as u8;
            raw[6] = (random() % 128) as u8;
            bytes.extend_from_slice(&raw);
            bytes.extend((0..random() % 3000).map(|_| random() as u8));
        }
        let _ = c.stream.write_all(&bytes);
        drop(c);
    }
    let mut c = node.client();
    let h = c.create("still-alive");
    assert_eq!(c.write(h, 0, b"yes"), Ok(3));
    let mut buffer = [0; HEADER_LEN];
    let header = c.header(Opcode::Ping, 0);
    c.send(&header, &[]);
    c.stream.read_exact(&mut buffer).unwrap();
}
