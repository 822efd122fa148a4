//! Every operation, once each way it can go.

mod common;

use common::*;
use forebay_testkit::skipped;
use forebay_wire::flags::OpenFlags;
use forebay_wire::frame::{Opcode, flag};
use forebay_wire::message::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

fn target(rel: &str) -> Target<'_> {
    Target::Path(path(rel))
}

#[test]
fn write_read_close() {
    let node = TestNode::start();
    let mut c = node.client();
    assert_eq!(c.welcome.exports, ["x"]);
    let (h, attr) = c.open_attr("f", RW | OpenFlags::CREATE, 0o640).unwrap();
    assert_eq!(attr.mode & 0o7777, 0o640);
    for len in [1usize, 511, 4096, 65536, 65537, 1 << 20, 4 << 20] {
        let data: Vec<u8> = (0..len).map(|i| (i * 7 + len) as u8).collect();
        assert_eq!(c.write(h, 100, &data), Ok(len));
        assert_eq!(c.read(h, 100, len).unwrap(), data, "{len}");
    }
    assert_eq!(c.read(h, (4 << 20) + 99, 4096).unwrap().len(), 1, "short at the end");
    assert_eq!(c.read(h, 1 << 40, 10).unwrap(), b"");
    assert_eq!(c.write(h, 0, b""), Ok(0));
    assert_eq!(c.read(h, 0, 0).unwrap(), b"");
    assert_eq!(c.read(h, u64::MAX, 10), Err(libc::EINVAL));
    assert_eq!(c.close(h), Ok(()));
    assert_eq!(c.close(h), Err(libc::EBADF));
    let r = c.data(Opcode::Write, h, 0, b"x");
    assert_eq!(r.status(), libc::EBADF);
    assert!(r.header.has(flag::STALE_HANDLE));
    assert_eq!(std::fs::metadata(node.path("f")).unwrap().len(), 100 + (4 << 20));
}

#[test]
fn modes_of_opening() {
    let node = TestNode::start();
    let mut c = node.client();
    assert_eq!(c.open("none", RW), Err(libc::ENOENT));
    let h = c.create("f");
    c.write(h, 0, b"hello").unwrap();
    assert_eq!(c.open("f", RW | OpenFlags::CREATE | OpenFlags::EXCL), Err(libc::EEXIST));
    let (r, attr) = c.open_attr("f", OpenFlags::READ, 0).unwrap();
    assert_eq!(attr.size, 5);
    assert_eq!(c.write(r, 0, b"x"), Err(libc::EBADF));
    let w = c.open("f", OpenFlags::WRITE).unwrap();
    assert_eq!(c.read(w, 0, 1), Err(libc::EBADF));
    let (_, attr) = c.open_attr("f", RW | OpenFlags::TRUNC, 0).unwrap();
    assert_eq!(attr.size, 0);
    // Opening again what was open before.
    let again =
        |c: &mut Client, identity| c.meta(&Meta::Open { path: path("f"), flags: RW, mode: 0, identity });
    let body = again(&mut c, 0).unwrap();
    let Ok(Answer::Opened { identity, .. }) = Answer::decode(&body) else { panic!("not an open file") };
    assert!(again(&mut c, identity).is_ok());
    assert_eq!(again(&mut c, identity ^ 2), Err(libc::ESTALE));
    // Directories.
    std::fs::create_dir(node.path("d")).unwrap();
    assert_eq!(c.open("d", RW), Err(libc::EISDIR));
    let d = c.open("d", OpenFlags::READ | OpenFlags::DIRECTORY).unwrap();
    assert_eq!(c.read(d, 0, 10), Err(libc::EISDIR));
    assert_eq!(c.open("f", OpenFlags::READ | OpenFlags::DIRECTORY), Err(libc::ENOTDIR));
    symlink("f", node.path("l")).unwrap();
    assert_eq!(c.open("l", OpenFlags::READ | OpenFlags::NOFOLLOW), Err(libc::ELOOP));
    assert!(c.open("l", OpenFlags::READ).is_ok());
    let p = c.open("l", OpenFlags::READ | OpenFlags::PATH | OpenFlags::NOFOLLOW).unwrap();
    assert!(c.stat(Target::Handle(p)).unwrap().mode & libc::S_IFMT == libc::S_IFLNK);
    // Pipes do not hang the node.
    c.done(&Meta::Mknod { path: path("p"), mode: libc::S_IFIFO | 0o600, dev: 0 }).unwrap();
    assert_eq!(c.open("p", OpenFlags::READ), Err(libc::EOPNOTSUPP));
    assert_eq!(c.open("p", OpenFlags::WRITE), Err(libc::ENXIO));
    // An unnamed file gets a name.
    let t = c.open("", RW | OpenFlags::TMPFILE).unwrap();
    c.write(t, 0, b"unnamed").unwrap();
    c.done(&Meta::Link { from: Target::Handle(t), to: path("named") }).unwrap();
    assert_eq!(std::fs::read(node.path("named")).unwrap(), b"unnamed");
    // Unlinked but open.
    c.done(&Meta::Unlink { path: path("named") }).unwrap();
    assert_eq!(c.read(t, 0, 7).unwrap(), b"unnamed");
}

#[test]
fn append_and_flags() {
    let node = TestNode::start();
    let mut c = node.client();
    let h = c.open("f", RW | OpenFlags::CREATE | OpenFlags::APPEND).unwrap();
    assert_eq!(c.append(h, 0, b"one"), Ok(0));
    assert_eq!(c.append(h, 3, b"two"), Ok(3));
    let other = c.open("f", RW).unwrap();
    assert_eq!(c.append(other, 0, b"three"), Ok(6), "also without the flag");
    assert_eq!(c.write(h, 0, b"4"), Ok(1));
    assert_eq!(std::fs::read(node.path("f")).unwrap(), b"onetwothree4", "as pwrite(2) on such a file");
    c.done(&Meta::SetFlags { handle: h, flags: OpenFlags::default() }).unwrap();
    assert_eq!(c.write(h, 0, b"O"), Ok(1));
    assert_eq!(std::fs::read(node.path("f")).unwrap(), b"Onetwothree4");
}

#[test]
fn concurrent_appends_are_whole() {
    let node = TestNode::start();
    std::fs::write(node.path("log"), "").unwrap();
    std::thread::scope(|s| {
        for t in 0..4u8 {
            let mut c = node.client();
            s.spawn(move || {
                let h = c.open("log", OpenFlags::WRITE | OpenFlags::APPEND).unwrap();
                for _ in 0..200 {
                    let at = c.append(h, 0, &[b'a' + t; 100]).unwrap();
                    assert_eq!(at % 100, 0);
                }
            });
        }
    });
    let all = std::fs::read(node.path("log")).unwrap();
    assert_eq!(all.len(), 80_000);
    assert!(all.chunks(100).all(|c| c.iter().all(|b| *b == c[0])));
}

#[test]
fn sizes() {
    let node = TestNode::start();
    let mut c = node.client();
    let h = c.create("f");
    c.write(h, 0, b"hello").unwrap();
    c.done(&Meta::Truncate { target: Target::Handle(h), size: 2 }).unwrap();
    c.done(&Meta::Truncate { target: target("f"), size: 8192 }).unwrap();
    assert_eq!(std::fs::metadata(node.path("f")).unwrap().len(), 8192);
    assert_eq!(c.done(&Meta::Truncate { target: target("f"), size: u64::MAX }), Err(libc::EINVAL));
    assert_eq!(c.done(&Meta::Truncate { target: target(""), size: 0 }), Err(libc::EISDIR));
    c.done(&Meta::Fallocate { handle: h, mode: 0, offset: 0, len: 100_000 }).unwrap();
    assert_eq!(c.stat(Target::Handle(h)).unwrap().size, 100_000);
    c.done(&Meta::Fsync { handle: h, data_only: false }).unwrap();
    c.done(&Meta::Fsync { handle: h, data_only: true }).unwrap();
    // Data, then a hole.
    c.done(&Meta::Truncate { target: Target::Handle(h), size: 0 }).unwrap();
    c.write(h, 1 << 20, b"data").unwrap();
    let seek = |c: &mut Client, offset, kind| {
        let body = c.meta(&Meta::Seek { handle: h, offset, kind })?;
        match Answer::decode(&body) {
            Ok(Answer::Offset(o)) => Ok(o),
            other => panic!("{other:?}"),
        }
    };
    let data = seek(&mut c, 0, SeekKind::Data).unwrap();
    assert!(data > 0 && data <= 1 << 20);
    assert_eq!(seek(&mut c, 0, SeekKind::Hole), Ok(0));
    assert_eq!(seek(&mut c, 1 << 30, SeekKind::Data), Err(libc::ENXIO));
}

#[test]
fn names() {
    let node = TestNode::start();
    let mut c = node.client();
    c.done(&Meta::Mkdir { path: path("d"), mode: 0o2770 }).unwrap();
    assert_eq!(std::fs::metadata(node.path("d")).unwrap().mode() & 0o777, 0o770);
    assert_eq!(c.done(&Meta::Mkdir { path: path("d"), mode: 0o700 }), Err(libc::EEXIST));
    assert_eq!(c.done(&Meta::Mkdir { path: path("e/"), mode: 0o700 }), Ok(()), "a trailing slash is fine");
    assert_eq!(c.done(&Meta::Mkdir { path: path(""), mode: 0o700 }), Err(libc::EEXIST));
    assert_eq!(c.done(&Meta::Rmdir { path: path("e/") }), Ok(()));
    assert_eq!(c.done(&Meta::Rmdir { path: path("") }), Err(libc::EBUSY));
    assert_eq!(c.done(&Meta::Unlink { path: path("d") }), Err(libc::EISDIR));
    let h = c.create("d/f");
    c.close(h).unwrap();
    assert_eq!(c.done(&Meta::Rmdir { path: path("d") }), Err(libc::ENOTEMPTY));
    assert_eq!(c.done(&Meta::Rmdir { path: path("d/..") }), Err(libc::ENOTEMPTY));
    assert_eq!(c.done(&Meta::Unlink { path: path("d/f/") }), Err(libc::ENOTDIR));
    c.done(&Meta::Rename { from: path("d/f"), to: path("g"), flags: 0 }).unwrap();
    c.create("h");
    let noreplace = libc::RENAME_NOREPLACE;
    assert_eq!(c.done(&Meta::Rename { from: path("g"), to: path("h"), flags: noreplace }), Err(libc::EEXIST));
    std::fs::write(node.path("g"), "g").unwrap();
    c.done(&Meta::Rename { from: path("g"), to: path("h"), flags: libc::RENAME_EXCHANGE }).unwrap();
    assert_eq!(std::fs::read(node.path("h")).unwrap(), b"g");
    c.done(&Meta::Link { from: target("h"), to: path("d/hard") }).unwrap();
    assert_eq!(std::fs::metadata(node.path("h")).unwrap().nlink(), 2);
    c.done(&Meta::Symlink { target: b"/any/where", path: path("s") }).unwrap();
    let body = c.meta(&Meta::Readlink { path: path("s") }).unwrap();
    assert_eq!(Answer::decode(&body), Ok(Answer::Bytes(b"/any/where")));
    assert_eq!(c.meta(&Meta::Readlink { path: path("h") }), Err(libc::EINVAL));
    assert_eq!(c.meta(&Meta::Readlink { path: path("d/") }), Err(libc::EINVAL));
    // A link to the link itself, and to what it leads to.
    c.done(&Meta::Symlink { target: b"h", path: path("in") }).unwrap();
    c.done(&Meta::Link { from: Target::Link(path("in")), to: path("in2") }).unwrap();
    assert!(std::fs::symlink_metadata(node.path("in2")).unwrap().is_symlink());
    c.done(&Meta::Link { from: target("in"), to: path("h2") }).unwrap();
    assert!(std::fs::symlink_metadata(node.path("h2")).unwrap().is_file());
    c.done(&Meta::Mknod { path: path("n"), mode: 0o600, dev: 0 }).unwrap();
    assert!(std::fs::metadata(node.path("n")).unwrap().is_file());
}

#[test]
fn attributes() {
    let node = TestNode::start();
    let mut c = node.client();
    let h = c.create("f");
    symlink("f", node.path("l")).unwrap();
    c.done(&Meta::Chmod { target: target("l"), mode: 0o4711 }).unwrap();
    assert_eq!(std::fs::metadata(node.path("f")).unwrap().permissions().mode() & 0o7777, 0o4711);
    c.done(&Meta::Chmod { target: Target::Handle(h), mode: 0o600 }).unwrap();
    assert_eq!(c.done(&Meta::Chmod { target: Target::Link(path("l")), mode: 0 }), Err(libc::EOPNOTSUPP));
    let me = std::fs::metadata(node.path("f")).unwrap();
    c.done(&Meta::Chown { target: target("f"), uid: me.uid(), gid: u32::MAX }).unwrap();
    c.done(&Meta::Chown { target: Target::Link(path("l")), uid: u32::MAX, gid: me.gid() }).unwrap();
    let (atime, mtime) = (SetTime::At(5, 6), SetTime::At(-7, 8));
    c.done(&Meta::Utimens { target: target("f"), atime, mtime }).unwrap();
    let a = c.stat(target("l")).unwrap();
    assert_eq!((a.atime, a.mtime), ((5, 6), (-7, 8)));
    c.done(&Meta::Utimens { target: Target::Handle(h), atime: SetTime::Omit, mtime: SetTime::Now }).unwrap();
    let a = c.stat(Target::Handle(h)).unwrap();
    assert!(a.atime == (5, 6) && a.mtime.0 > 1_000_000);
    c.done(&Meta::Utimens { target: Target::Link(path("l")), atime, mtime }).unwrap();
    assert_eq!(c.stat(Target::Link(path("l"))).unwrap().mtime, (-7, 8));
    assert!(c.stat(target("f")).unwrap().mtime.0 > 1_000_000, "the file was not meant");
    let bad = SetTime::At(0, 1_000_000_000);
    assert_eq!(c.done(&Meta::Utimens { target: target("f"), atime: bad, mtime: bad }), Err(libc::EINVAL));
    // As the kernel has it.
    let m = std::fs::metadata(node.path("f")).unwrap();
    let a = c.stat(target("f")).unwrap();
    assert_eq!((a.dev, a.ino, a.mode, a.size, a.nlink), (m.dev(), m.ino(), m.mode(), m.size(), 1));
    assert_eq!((a.blocks, u64::from(a.blksize)), (m.blocks(), m.blksize()));
    assert_eq!((a.ctime.0, i64::from(a.ctime.1)), (m.ctime(), m.ctime_nsec()));
    // Access.
    let access = |c: &mut Client, rel, mode| c.done(&Meta::Access { path: path(rel), mode, follow: true });
    assert_eq!(access(&mut c, "f", 0), Ok(()));
    assert_eq!(access(&mut c, "f", 6), Ok(()));
    assert_eq!(access(&mut c, "f", 1), Err(libc::EACCES), "nobody may run it");
    assert_eq!(access(&mut c, "none", 0), Err(libc::ENOENT));
    assert_eq!(access(&mut c, "f", 99), Err(libc::EINVAL));
    std::fs::remove_file(node.path("f")).unwrap();
    assert_eq!(access(&mut c, "l", 4), Err(libc::ENOENT));
    assert_eq!(c.done(&Meta::Access { path: path("l"), mode: 4, follow: false }), Ok(()));
    // File system.
    let body = c.meta(&Meta::Statfs { target: target("") }).unwrap();
    let Ok(Answer::Fs(fs)) = Answer::decode(&body) else { panic!() };
    assert!(fs.bsize > 0 && fs.blocks > 0 && fs.namelen == 255, "{fs:?}");
    let body = c.meta(&Meta::Statfs { target: Target::Handle(h) }).unwrap();
    assert!(matches!(Answer::decode(&body), Ok(Answer::Fs(_))));
}

#[test]
fn extended_attributes() {
    let node = TestNode::start();
    let mut c = node.client();
    let h = c.create("f");
    let big = vec![b'v'; 700];
    for (t, name) in
        [(target("f"), "user.a"), (Target::Handle(h), "user.b"), (Target::Link(path("f")), "user.c")]
    {
        let set = Meta::Setxattr { target: t, name: name.as_bytes(), value: &big, flags: 0 };
        match c.done(&set) {
            Err(libc::EOPNOTSUPP) => {
                return skipped("extended_attributes", "the temporary directory's file system has none");
            }
            other => other.unwrap(),
        }
        for t in [target("f"), Target::Handle(h), Target::Link(path("f"))] {
            let body = c.meta(&Meta::Getxattr { target: t, name: name.as_bytes() }).unwrap();
            assert_eq!(Answer::decode(&body), Ok(Answer::Bytes(&big)));
            let body = c.meta(&Meta::Listxattr { target: t }).unwrap();
            let Ok(Answer::Bytes(list)) = Answer::decode(&body) else { panic!() };
            assert!(list.split(|b| *b == 0).any(|n| n == name.as_bytes()));
        }
    }
    let create =
        Meta::Setxattr { target: target("f"), name: b"user.a", value: b"", flags: libc::XATTR_CREATE };
    assert_eq!(c.done(&create), Err(libc::EEXIST));
    c.done(&Meta::Removexattr { target: target("f"), name: b"user.a" }).unwrap();
    c.done(&Meta::Removexattr { target: Target::Handle(h), name: b"user.b" }).unwrap();
    c.done(&Meta::Removexattr { target: Target::Link(path("f")), name: b"user.c" }).unwrap();
    assert_eq!(c.meta(&Meta::Getxattr { target: target("f"), name: b"user.a" }), Err(libc::ENODATA));
}

#[test]
fn directories_in_pages() {
    let node = TestNode::start();
    let mut c = node.client();
    for i in 0..3000 {
        std::fs::write(node.path(&format!("a-rather-long-file-name-{i:05}")), "").unwrap();
    }
    let h = c.open("", OpenFlags::READ | OpenFlags::DIRECTORY).unwrap();
    let list = |c: &mut Client, mut cookie: u64, max| {
        let (mut names, mut pages) = (Vec::new(), 0);
        loop {
            let body = c.meta(&Meta::Readdir { handle: h, cookie, max }).unwrap();
            assert!(body.len() <= 128 << 10);
            let Ok(Answer::Entries { entries, end }) = Answer::decode(&body) else { panic!() };
            pages += 1;
            for e in &entries {
                names.push((e.name.to_vec(), e.next));
                cookie = e.next;
            }
            if end {
                return (names, pages);
            }
        }
    };
    let (all, pages) = list(&mut c, 0, 4096);
    assert_eq!(all.len(), 3002);
    assert!(pages > 10);
    let mut sorted: Vec<_> = all.iter().map(|n| n.0.clone()).collect();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), 3002, "none twice");
    let (again, pages) = list(&mut c, 0, 1 << 20);
    assert_eq!(again.len(), 3002, "from the start again");
    assert!(pages < 10);
    let (rest, _) = list(&mut c, all[1999].1, 8192);
    assert_eq!(rest[..], all[2000..], "from the middle");
    let f = c.create("f");
    assert_eq!(c.meta(&Meta::Readdir { handle: f, cookie: 0, max: 4096 }), Err(libc::ENOTDIR));
}

#[test]
fn over_a_unix_socket_too() {
    let node = TestNode::start();
    let stream = std::os::unix::net::UnixStream::connect(&node.unix).unwrap();
    let mut c =
        Client::over(Box::new(stream), &SECRET, "job", new_session(), forebay_wire::VERSION_MAX).unwrap();
    let h = c.create("f");
    let data = vec![3; 300_000];
    assert_eq!(c.write(h, 0, &data), Ok(300_000));
    assert_eq!(c.read(h, 0, 300_000).unwrap(), data);
}

#[test]
fn direct_io() {
    let node = TestNode::start();
    let mut c = node.client();
    let Ok(h) = c.open("f", RW | OpenFlags::CREATE | OpenFlags::DIRECT) else {
        return skipped("direct_io", "the temporary directory's file system has none");
    };
    let data: Vec<u8> = (0..8192u32).map(|i| i as u8).collect();
    assert_eq!(c.write(h, 0, &data), Ok(8192));
    // Two in one packet: the second's payload must be moved to a page boundary.
    let mut a = c.header(Opcode::Write, 4096);
    let mut b = c.header(Opcode::Write, 4096);
    (a.handle, a.offset, b.handle, b.offset) = (h.into(), 8192.into(), h.into(), 12288.into());
    let both = [&a.as_bytes()[..], &data[..4096], &b.as_bytes()[..], &data[4096..]].concat();
    c.stream.write_all(&both).unwrap();
    assert_eq!((c.receive().status(), c.receive().status()), (0, 0));
    assert_eq!(c.read(h, 8192, 8192).unwrap(), data);
}

#[test]
fn pipelined_frames_are_all_answered() {
    let node = TestNode::start();
    let mut c = node.client();
    let h = c.create("f");
    for round in 0..20u64 {
        let mut packet = Vec::new();
        let mut ids = Vec::new();
        for i in 0..16u64 {
            let len = [0usize, 1, 700, 5000, 70_000][(i + round) as usize % 5];
            let mut w = c.header(Opcode::Write, len);
            (w.handle, w.offset) = (h.into(), (i * 100_000).into());
            packet.extend_from_slice(w.as_bytes());
            packet.extend(std::iter::repeat_n(i as u8, len));
            ids.push(w.id.get());
            let ping = c.header(Opcode::Ping, 0);
            packet.extend_from_slice(ping.as_bytes());
            ids.push(ping.id.get());
        }
        // The node does not need the client to read before it has written all.
        c.stream.write_all(&packet).unwrap();
        let mut seen: Vec<u64> = (0..32)
            .map(|_| {
                let r = c.receive();
                assert_eq!(r.status(), 0);
                r.header.id.get()
            })
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, ids);
    }
    assert_eq!(c.read(h, 400_000, 700).unwrap(), vec![4u8; 700]);
}

#[test]
fn a_close_sent_along_is_answered_too() {
    let node = TestNode::start();
    let mut c = node.client();
    let handles: Vec<u64> = (0..8).map(|i| c.create(&format!("{i}"))).collect();
    let data = vec![1; 100_000];
    c.write(handles[7], 0, &data).unwrap();
    for (i, pair) in handles.chunks(2).enumerate() {
        let mut packet = Vec::new();
        let mut body = Vec::new();
        for handle in &pair[..if i == 3 { 1 } else { 2 }] {
            Meta::Close { handle: *handle }.encode(&mut body);
            let header = c.header(Opcode::Meta, body.len());
            packet.extend_from_slice(header.as_bytes());
            packet.extend_from_slice(&body);
        }
        let next = match i {
            0 => c.header(Opcode::Ping, 0),
            1 => c.read_header(handles[7], 0, 10),
            _ => c.read_header(handles[7], 0, 100_000),
        };
        packet.extend_from_slice(next.as_bytes());
        c.stream.write_all(&packet).unwrap();
        let mut answers: Vec<Response> = Vec::new();
        while answers.last().is_none_or(|r| r.header.id.get() != next.id.get()) {
            answers.push(c.receive());
        }
        assert_eq!(answers.len(), if i == 3 { 2 } else { 3 });
        assert!(answers.iter().all(|r| r.status() == 0));
    }
    assert_eq!(node.report().open_files, 1);
}
