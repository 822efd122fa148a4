//! Sessions: what a client holds, loses, takes over and gets back.

mod common;

use common::*;
use forebay_control::node::{JobMapping, Term};
use forebay_node::config::JobConfig;
use forebay_node::control::Command;
use forebay_types::Epoch;
use forebay_types::Secret;
use forebay_wire::flags::OpenFlags;
use forebay_wire::frame::{Opcode, flag};
use forebay_wire::hello::SessionId;
use forebay_wire::message::*;
use std::net::TcpStream;
use std::time::Duration;

fn reconnect(node: &TestNode, session: SessionId) -> Client {
    Client::connect(node.address, &SECRET, "job", session).unwrap()
}

const fn range(kind: LockKind, start: u64, len: u64) -> LockRange {
    LockRange { kind, start, len }
}

fn lock(c: &mut Client, handle: u64, owner: LockOwner, range: LockRange) -> Result<(), i32> {
    c.done(&Meta::Lock { handle, owner, range })
}

fn test_lock(c: &mut Client, handle: u64, owner: LockOwner, range: LockRange) -> Option<(LockRange, u32)> {
    let body = c.meta(&Meta::TestLock { handle, owner, range }).unwrap();
    match Answer::decode(&body) {
        Ok(Answer::Lock(found)) => found,
        other => panic!("{other:?}"),
    }
}

#[test]
fn refused_at_the_door() {
    let node = TestNode::with(|c| {
        c.job = Some("job".into());
        c.handshake_timeout = Duration::from_millis(200);
    });
    let refused = |secret: &[u8; 32], job: &str| {
        Client::connect(node.address, secret, job, new_session()).err().expect("refused")
    };
    let wrong = refused(&[8; 32], "job");
    assert_eq!(wrong.status(), libc::EACCES);
    assert!(wrong.text().contains("credentials"), "{}", wrong.text());
    assert_eq!(refused(&SECRET, "another").status(), libc::EACCES);
    let stream = TcpStream::connect(node.address).unwrap();
    let old = Client::over(Box::new(stream), &SECRET, "job", new_session(), 99).err().unwrap();
    assert_eq!(old.status(), libc::EPROTONOSUPPORT);
    assert!(old.text().contains("version 99"), "{}", old.text());
    // One who says nothing.
    let mut stream = TcpStream::connect(node.address).unwrap();
    receive(&mut stream).unwrap();
    let late = receive(&mut stream).unwrap();
    assert_eq!(late.status(), libc::ETIMEDOUT);
    assert!(receive(&mut stream).is_none());
    assert_eq!(node.report().connections_cut_off, 4);
}

#[test]
fn jobs_with_their_own_secrets() {
    let node = TestNode::with(|c| {
        c.jobs = vec![JobConfig { name: "a".into(), secret: Secret::new([1; 32]), weight: 3, user: None }];
    });
    let mut a = Client::connect(node.address, &[1; 32], "a", new_session()).unwrap();
    assert!(Client::connect(node.address, &[1; 32], "b", new_session()).is_err());
    let mut admin = node.client();
    assert_ne!(a.welcome.flow, admin.welcome.flow);
    assert!(a.control(&Command::Drain).error.unwrap().contains("secret"));
    assert!(a.control(&Command::Ping).error.is_none());
    let h = a.create("f");
    a.write(h, 0, &[0; 1000]).unwrap();
    let stats = admin.control(&Command::Stats).stats.unwrap();
    let flow = stats.flows.iter().find(|f| f.job == "a").unwrap();
    assert_eq!((flow.operations["write"].bytes, flow.operations["open"].count), (1000, 1));
    assert_eq!(stats.service[&flow.flow.0].weight, 3);
    // Another job cannot touch its files.
    let r = admin.data(Opcode::Read, h, 0, &[]);
    assert!(r.header.has(flag::STALE_HANDLE));
    let adopt = admin.raw_meta(&Meta::Adopt { session: a.session, handle: h });
    assert!(adopt.status() == libc::EBADF && adopt.header.has(flag::STALE_HANDLE));
}

#[test]
fn control() {
    let node = TestNode::start();
    let mut c = node.client();
    let set = Command::Scheduler { set: Some("fifo:merge=3".parse().unwrap()) };
    assert_eq!(c.control(&set).scheduler.unwrap().merge.count, 3);
    assert_eq!(c.control(&Command::Scheduler { set: None }).scheduler.unwrap().merge.count, 3);
    assert!(c.control(&Command::Weight { job: "nobody".into(), weight: 2 }).error.is_some());
    assert!(c.control(&Command::Weight { job: "job".into(), weight: 2 }).error.is_none());
    let h = c.header(Opcode::Control, 2);
    let r = c.exchange(&h, b"{}");
    assert!(r.status() != 0 && r.text().contains("cmd"));
}

#[test]
fn mappings() {
    let node = TestNode::start();
    let mut c = node.client();
    let job = |epoch, nodes: &[&str]| JobMapping {
        job: "job".into(),
        secret: "ab".repeat(32),
        weight: 1,
        epoch: Epoch(epoch),
        nodes: nodes.iter().map(|n| (*n).to_owned()).collect(),
        user: None,
    };
    let tell = |c: &mut Client, term, complete, jobs: Vec<JobMapping>| {
        c.control(&Command::Mapping { term: Term(term), complete, jobs, ended: Vec::new() }).error
    };
    let asked = |c: &mut Client| {
        let body = c.meta(&Meta::Mapping).unwrap();
        match Answer::decode(&body).unwrap() {
            Answer::Mapping { epoch, nodes } => (epoch.0, nodes.join(" ")),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(asked(&mut c), (0, String::new()), "nobody has mapped it");
    assert_eq!(tell(&mut c, 3, true, vec![job(9, &["tcp:127.0.0.1:1", "unix:/x"])]), None);
    assert_eq!(c.ping().header.stamp.get(), 9, "every reply tells the epoch");
    assert_eq!(node.client().welcome.epoch, Epoch(9));
    assert_eq!(asked(&mut c), (9, "tcp:127.0.0.1:1 unix:/x".into()));
    // Older news does not count, and an older arbiter is refused altogether.
    assert_eq!(tell(&mut c, 3, false, vec![job(8, &["unix:/y"])]), None);
    assert_eq!(asked(&mut c).0, 9);
    assert!(tell(&mut c, 2, false, vec![job(10, &["unix:/y"])]).unwrap().contains("term 3"));
    assert_eq!(asked(&mut c).0, 9);
    assert_eq!(tell(&mut c, 4, false, vec![job(10, &["unix:/y"])]), None);
    assert_eq!(asked(&mut c), (10, "unix:/y".into()));
}

#[test]
fn locks_between_processes() {
    let node = TestNode::start();
    let (mut a, mut b) = (node.client(), node.client());
    let (ha, hb) = (a.create("f"), b.create("f"));
    let write = range(LockKind::Write, 0, 10);
    for owner in [LockOwner::Process, LockOwner::Handle] {
        lock(&mut a, ha, owner, write).unwrap();
        lock(&mut a, ha, owner, write).unwrap();
        assert_eq!(lock(&mut b, hb, owner, range(LockKind::Read, 9, 5)), Err(libc::EAGAIN));
        lock(&mut b, hb, owner, range(LockKind::Write, 10, 5)).unwrap();
        let (found, pid) = test_lock(&mut b, hb, owner, range(LockKind::Write, 0, 0)).unwrap();
        assert_eq!(found, write);
        if owner == LockOwner::Process {
            assert_eq!(pid, common::pid(a.session));
        }
        assert_eq!(test_lock(&mut a, ha, owner, write), None, "one's own is not in the way");
        lock(&mut a, ha, owner, range(LockKind::Unlock, 0, 0)).unwrap();
        lock(&mut b, hb, owner, range(LockKind::Read, 9, 5)).unwrap();
        lock(&mut b, hb, owner, range(LockKind::Unlock, 0, 0)).unwrap();
    }
    let r = a.open("f", OpenFlags::READ).unwrap();
    assert_eq!(lock(&mut a, r, LockOwner::Process, write), Err(libc::EBADF), "not open for writing");
    // Two handles of one process are one owner; closing any of them lets go of its locks.
    lock(&mut a, ha, LockOwner::Process, write).unwrap();
    assert_eq!(lock(&mut b, hb, LockOwner::Process, write), Err(libc::EAGAIN));
    a.close(r).unwrap();
    lock(&mut b, hb, LockOwner::Process, write).unwrap();
}

#[test]
fn flock_is_of_the_open_file() {
    let node = TestNode::start();
    let (mut a, mut b) = (node.client(), node.client());
    let (ha, hb) = (a.create("f"), b.create("f"));
    let flock = |c: &mut Client, handle, kind| c.done(&Meta::Flock { handle, kind });
    flock(&mut a, ha, LockKind::Write).unwrap();
    assert_eq!(flock(&mut b, hb, LockKind::Read), Err(libc::EAGAIN));
    // A forked child that adopted the file keeps the lock after its parent has closed it.
    let mut child = node.client();
    child.meta(&Meta::Adopt { session: a.session, handle: ha }).unwrap();
    a.close(ha).unwrap();
    assert_eq!(flock(&mut b, hb, LockKind::Read), Err(libc::EAGAIN));
    child.close(ha).unwrap();
    flock(&mut b, hb, LockKind::Read).unwrap();
    flock(&mut b, hb, LockKind::Unlock).unwrap();
}

#[test]
fn a_dead_client_holds_nothing() {
    let node = TestNode::with(|c| c.grace = Duration::from_millis(50));
    let (mut a, mut b) = (node.client(), node.client());
    let (ha, hb) = (a.create("f"), b.create("f"));
    let all = range(LockKind::Write, 0, 0);
    lock(&mut a, ha, LockOwner::Process, all).unwrap();
    a.done(&Meta::Flock { handle: ha, kind: LockKind::Write }).unwrap();
    drop(a);
    let tries = (0..2000).take_while(|_| {
        std::thread::sleep(Duration::from_millis(5));
        lock(&mut b, hb, LockOwner::Process, all) == Err(libc::EAGAIN)
    });
    assert!(tries.count() < 2000, "the lock is never free");
    eventually("the file is closed", || node.report().open_files == 1);
    let tries = (0..2000).take_while(|_| {
        std::thread::sleep(Duration::from_millis(5));
        b.done(&Meta::Flock { handle: hb, kind: LockKind::Write }) == Err(libc::EAGAIN)
    });
    assert!(tries.count() < 2000, "the lock is never free");
    // Goodbye does it at once.
    b.goodbye(false);
    assert_eq!((node.report().sessions, node.report().open_files), (0, 0));
}

#[test]
fn adoption() {
    let node = TestNode::with(|c| c.grace = Duration::from_secs(30));
    let mut parent = node.client();
    let h = parent.create("f");
    parent.write(h, 0, b"from the parent").unwrap();
    let mut child = node.client();
    let body = child.meta(&Meta::Adopt { session: parent.session, handle: h }).unwrap();
    assert!(
        matches!(Answer::decode(&body), Ok(Answer::Opened { handle, attr, .. }) if handle == h && attr.size == 15)
    );
    parent.close(h).unwrap();
    assert_eq!(child.read(h, 0, 4).unwrap(), b"from");
    child.close(h).unwrap();
    assert_eq!(
        child.meta(&Meta::Adopt { session: parent.session, handle: h }),
        Err(libc::EBADF),
        "closed by all"
    );
    // A parent that closes before the child has come says so.
    let h = parent.create("f");
    parent.flags = flag::LINGER;
    parent.close(h).unwrap();
    parent.flags = 0;
    child.meta(&Meta::Adopt { session: parent.session, handle: h }).unwrap();
    assert_eq!(child.read(h, 0, 4).unwrap(), b"from");
    // Or that ends.
    let h = parent.create("f");
    parent.goodbye(true);
    child.meta(&Meta::Adopt { session: parent.session, handle: h }).unwrap();
    child.meta(&Meta::Adopt { session: parent.session, handle: h }).unwrap();
    child.close(h).unwrap();
    assert_eq!(child.close(h), Err(libc::EBADF), "adopting twice is once");
}

#[test]
fn lingering_files_are_closed_in_the_end() {
    let node = TestNode::with(|c| c.grace = Duration::from_millis(20));
    let mut c = node.client();
    let h = c.create("f");
    c.flags = flag::LINGER;
    c.close(h).unwrap();
    eventually("closed", || node.report().open_files == 0);
    assert_eq!(c.meta(&Meta::Adopt { session: c.session, handle: h }), Err(libc::EBADF));
}

#[test]
fn a_session_survives_its_connection() {
    let node = TestNode::with(|c| c.grace = Duration::from_secs(30));
    let mut a = node.client();
    assert!(!a.welcome.resumed);
    let h = a.create("f");
    a.write(h, 0, b"still here").unwrap();
    let mut again = reconnect(&node, a.session);
    assert!(again.welcome.resumed, "a second connection of the same session");
    drop(a);
    assert_eq!(again.read(h, 0, 5).unwrap(), b"still");
    let session = again.session;
    drop(again);
    let mut back = reconnect(&node, session);
    assert!(back.welcome.resumed);
    assert_eq!(back.read(h, 6, 4).unwrap(), b"here");
    // Goodbye on one connection ends the session on all.
    let mut second = reconnect(&node, session);
    second.goodbye(false);
    assert!(back.closed());
}

#[test]
fn a_repeated_request_gets_the_same_answer() {
    let node = TestNode::with(|c| c.grace = Duration::from_secs(30));
    let mut a = node.client();
    let h = a.open("log", RW | OpenFlags::CREATE).unwrap();
    let mut append = a.header(Opcode::Append, 5);
    append.handle = h.into();
    assert_eq!(a.exchange(&append, b"hello").header.offset.get(), 0);
    let mut body = Vec::new();
    Meta::Open {
        path: path("new"),
        flags: RW | OpenFlags::CREATE | OpenFlags::EXCL,
        mode: 0o600,
        identity: 0,
    }
    .encode(&mut body);
    let open = a.header(Opcode::Meta, body.len());
    let opened = a.exchange(&open, &body);
    assert_eq!(opened.status(), 0);
    let mut gone = Vec::new();
    Meta::Unlink { path: path("none") }.encode(&mut gone);
    let unlink = a.header(Opcode::Meta, gone.len());
    assert_eq!(a.exchange(&unlink, &gone).status(), libc::ENOENT);
    // The connection breaks; all three are sent again.
    let mut b = reconnect(&node, a.session);
    for (mut h, body) in [(append, &b"hello"[..]), (open, &body), (unlink, &gone)] {
        h.set(flag::REPLAY);
        h.stamp = stamp().into();
        let again = b.exchange(&h, body);
        match h.id.get() {
            id if id == append.id.get() => assert_eq!((again.status(), again.header.offset.get()), (0, 0)),
            id if id == open.id.get() => assert_eq!(again.body, opened.body),
            _ => assert_eq!(again.status(), libc::ENOENT, "the first answer, not a guess"),
        }
    }
    assert_eq!(std::fs::read(node.path("log")).unwrap(), b"hello");
    assert_eq!(node.report().requests_replayed, 3);
}

#[test]
fn a_silent_client_changes_nothing() {
    let node = TestNode::with(|c| c.lease = Duration::from_millis(300));
    let mut c = node.client();
    let h = c.create("f");
    c.write(h, 0, b"kept").unwrap();
    // Stamped long ago: it sat in a buffer while the node was frozen.
    std::thread::sleep(Duration::from_millis(400));
    c.skew = -10_000_000_000;
    for meta in [
        Meta::Unlink { path: path("f") },
        Meta::Truncate { target: Target::Handle(h), size: 0 },
        Meta::Open { path: path("f"), flags: RW | OpenFlags::TRUNC, mode: 0, identity: 0 },
        Meta::Open { path: path("g"), flags: RW | OpenFlags::CREATE, mode: 0o600, identity: 0 },
        Meta::Chmod { target: Target::Path(path("f")), mode: 0 },
        Meta::Rename { from: path("f"), to: path("g"), flags: 0 },
        Meta::Mkdir { path: path("d"), mode: 0o700 },
        Meta::Symlink { target: b"x", path: path("s") },
        Meta::Lock { handle: h, owner: LockOwner::Handle, range: range(LockKind::Write, 0, 0) },
    ] {
        let r = c.raw_meta(&meta);
        assert!(r.status() == libc::ETIMEDOUT && r.header.has(flag::EXPIRED), "{meta:?}: {r:?}");
    }
    for opcode in [Opcode::Write, Opcode::Append] {
        let r = c.data(opcode, h, 0, b"lost");
        assert!(r.status() == libc::ETIMEDOUT && r.header.has(flag::EXPIRED));
    }
    assert_eq!(c.read(h, 0, 10).unwrap(), b"kept", "reading harms nobody");
    assert_eq!(std::fs::read_dir(node.path("")).unwrap().count(), 1);
    let expired = c.next - 2;
    // A sign of life, and the very same append is carried out.
    c.skew = 0;
    assert_eq!(c.ping().status(), 0);
    c.next = expired;
    assert_eq!(c.append(h, 4, b"!"), Ok(4));
    assert_eq!(node.report().requests_expired, 11);
}

#[test]
fn drain() {
    let mut node = TestNode::with(|c| c.drain_timeout = Duration::from_secs(20));
    let mut c = node.client();
    let mut idle = node.client();
    let h = c.create("f");
    assert!(!c.ping().header.has(flag::MOVE));
    c.control(&Command::Drain);
    let r = c.data(Opcode::Write, h, 0, b"x");
    assert!(r.status() == 0 && r.header.has(flag::MOVE), "still served, and told to move");
    let running = node.running.take().unwrap();
    running.wait();
    let drained = std::thread::spawn(move || running.drain());
    assert!(idle.closed());
    assert!(c.closed());
    assert!(drained.join().unwrap(), "all left in time");
    assert!(!node.unix.exists());
    assert!(TcpStream::connect(node.address).is_err());
}

#[test]
fn a_socket_left_behind_is_replaced_and_a_living_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("left");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    assert!(socket.exists());
    let node = TestNode::with(|c| c.listen.push(forebay_types::Address::Unix(socket.clone())));
    let stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    assert_eq!(
        Client::over(Box::new(stream), &SECRET, "job", new_session(), forebay_wire::VERSION_MAX)
            .unwrap()
            .ping()
            .status(),
        0
    );
    let config = forebay_node::config::NodeConfig {
        listen: vec![forebay_types::Address::Unix(socket.clone())],
        exports: vec![forebay_node::config::ExportConfig::new(node.path(""), "x")],
        secret: Some(Secret::new(SECRET)),
        act_as: forebay_node::config::ActAs::Itself,
        ..Default::default()
    };
    let refused = forebay_node::Node::start(config).err().unwrap().to_string();
    assert!(refused.contains("left"), "{refused}");
}

/// An export that asks for more is reached over a connection that has it, or that does not leave the host; whatever else
/// the session has.
#[test]
fn a_connection_reaches_what_it_named_and_is_protected_for() {
    let more = tempfile::tempdir().unwrap();
    std::fs::write(more.path().join("f"), "private").unwrap();
    let node = TestNode::with(|c| {
        c.exports.push(forebay_node::config::ExportConfig::new(more.path(), "more"));
        c.ask(&["more=integrity".parse().unwrap()]).unwrap();
    });
    let over_tcp = || {
        let stream = std::net::TcpStream::connect(node.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Box::new(stream)
    };
    let over_unix = || Box::new(std::os::unix::net::UnixStream::connect(&node.unix).unwrap());
    let refused = Client::naming(over_tcp(), new_session(), &["x", "more"]).err().unwrap();
    assert_eq!((refused.status(), refused.header.length.get()), (libc::EACCES, 1));
    assert!(refused.text().contains("not sent without `integrity`"), "{}", refused.text());
    // What is not named is not reached, and a number is a place among the names.
    let mut none = Client::naming(over_tcp(), new_session(), &[]).unwrap();
    assert_eq!(none.open("f", OpenFlags::READ), Err(libc::ENOENT));
    let mut other = Client::naming(over_tcp(), new_session(), &["nothing", "x"]).unwrap();
    assert_eq!(other.open("f", OpenFlags::READ), Err(libc::ENOENT));
    let session = new_session();
    let mut near = Client::naming(over_unix(), session, &["more"]).unwrap();
    let handle = near.open("f", OpenFlags::READ).unwrap();
    assert_eq!(near.read(handle, 0, 100).unwrap(), b"private");
    // The same session, and a file that it has open.
    let mut far = Client::naming(over_tcp(), session, &["x"]).unwrap();
    far.next = 1000;
    assert_eq!(far.read(handle, 0, 100), Err(libc::EACCES));
    assert_eq!(far.stat(Target::Handle(handle)), Err(libc::EACCES));
    assert_eq!(far.open("f", OpenFlags::READ), Err(libc::ENOENT));
    assert_eq!(near.read(handle, 0, 100).unwrap(), b"private");
}
