//! What a node owes its clients when connections break, nodes drain, processes fork and wait for each
//! other: answers are kept, files stay the same files, holders of locks have names.

mod common;

use common::*;
use forebay_node::config::EmulatedServers;
use forebay_sched::emulate::{ServerModel, StorageModel};
use forebay_testkit::skipped;
use forebay_types::Nanos;
use forebay_wire::flags::OpenFlags;
use forebay_wire::frame::{Header, Opcode, flag};
use forebay_wire::message::*;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// Storage that takes its time for each request.
fn slow(span: Nanos) -> EmulatedServers {
    let server = ServerModel { per_request: span, penalty: 0.0, ..ServerModel::default() };
    EmulatedServers::new(StorageModel { servers: 8, stripe: 1 << 20, server })
}

fn again(header: &Header) -> Header {
    let mut repeated = *header;
    repeated.set(flag::REPLAY);
    repeated.age_ms = 1000.into();
    repeated.stamp = stamp().into();
    repeated
}

fn opened(body: &[u8]) -> u64 {
    match Answer::decode(body) {
        Ok(Answer::Opened { identity, .. }) => identity,
        other => panic!("{other:?}"),
    }
}

/// Longer than any limit of the node's own would be.
#[test]
fn a_repeated_request_waits_for_its_first_try_as_long_as_it_takes() {
    let node = TestNode::with(|c| c.emulated = Some(slow(Nanos::from_secs(7))));
    let threads: Vec<_> = [Opcode::Write, Opcode::Append]
        .into_iter()
        .map(|opcode| {
            let address = node.address;
            std::thread::spawn(move || {
                let name = format!("{opcode:?}");
                let mut first = Client::connect(address, &SECRET, "job", new_session()).unwrap();
                let handle = first.create(&name);
                let mut header = first.header(opcode, 5);
                header.handle = handle.into();
                first.send(&header, b"hello");
                std::thread::sleep(Duration::from_millis(300));
                let session = first.session;
                drop(first);
                let mut second = Client::connect(address, &SECRET, "job", session).unwrap();
                assert!(second.welcome.resumed);
                let answer = second.exchange(&again(&header), b"hello");
                assert_eq!(answer.status(), 0, "{name}: {}", answer.text());
                assert_eq!(answer.header.length.get(), 5, "{name}");
            })
        })
        .collect();
    for t in threads {
        t.join().unwrap();
    }
    assert_eq!(std::fs::read(node.path("Write")).unwrap(), b"hello");
    assert_eq!(std::fs::read(node.path("Append")).unwrap(), b"hello", "once");
}

/// A write that was carried out and is sent again, since its answer was lost, must not overwrite what others
/// have written since: also if it is sent again while it is being carried out.
#[test]
fn a_write_that_was_done_is_not_done_again() {
    for span in [Nanos::ZERO, Nanos::from_millis(1500)] {
        let node = TestNode::with(|c| c.emulated = Some(slow(span)));
        let mut first = node.client();
        let handle = first.create("f");
        let mut header = first.header(Opcode::Write, 3);
        header.handle = handle.into();
        first.send(&header, b"old");
        let later = |ms| std::thread::sleep(Duration::from_millis(ms));
        if span == Nanos::ZERO {
            assert_eq!(first.receive().status(), 0);
        } else {
            later(300);
        }
        let (session, address) = (first.session, node.address);
        let other = std::thread::spawn(move || {
            let mut other = Client::connect(address, &SECRET, "job", new_session()).unwrap();
            let handle = other.open("f", RW).unwrap();
            other.write(handle, 0, b"new").unwrap();
        });
        later(300);
        let mut second = Client::connect(node.address, &SECRET, "job", session).unwrap();
        let answer = second.exchange(&again(&header), b"old");
        assert_eq!((answer.status(), answer.header.length.get()), (0, 3), "{}", answer.text());
        other.join().unwrap();
        assert_eq!(std::fs::read(node.path("f")).unwrap(), b"new", "{span:?}");
    }
}

/// The session of a request ended before it was sent again: its process still knows that it was done.
#[test]
fn what_was_done_for_a_session_that_is_gone_is_not_done_again() {
    let node = TestNode::with(|c| c.grace = Duration::from_millis(20));
    let mut first = node.client();
    let id = first.next;
    let mkdir = Meta::Mkdir { path: path("d"), mode: 0o700 };
    first.done(&mkdir).unwrap();
    let (session, incarnation) = (first.session, first.incarnation);
    drop(first);
    eventually("its session is gone", || node.report().sessions == 0);
    let mut second = Client::connect(node.address, &SECRET, "job", session).unwrap();
    assert!(!second.welcome.resumed);
    let mut body = Vec::new();
    mkdir.encode(&mut body);
    second.next = id;
    let header = second.header(Opcode::Meta, body.len());
    let answer = second.exchange(&again(&header), &body);
    assert!(answer.header.has(flag::EXPIRED), "{}", answer.text());
    let asked = second.meta(&Meta::Verdict { incarnation, session, id, age_ms: 5000 }).unwrap();
    let done = Fate::Done { errno: 0, values: [0; 4] };
    assert_eq!(Answer::decode(&asked), Ok(Answer::Verdict { known: true, dead: false, fate: done }));
}

/// The same of an append: it is in the file once.
#[test]
fn what_was_appended_for_a_session_that_is_gone_is_not_appended_again() {
    let node = TestNode::with(|c| c.grace = Duration::from_millis(20));
    let mut first = node.client();
    let handle = first.create("log");
    let mut header = first.header(Opcode::Append, 5);
    header.handle = handle.into();
    assert_eq!(first.exchange(&header, b"hello").status(), 0);
    let (session, incarnation, id) = (first.session, first.incarnation, header.id.get());
    drop(first);
    eventually("its session is gone", || node.report().sessions == 0);
    let mut second = Client::connect(node.address, &SECRET, "job", session).unwrap();
    assert!(!second.welcome.resumed);
    second.next = id + 1;
    header.handle = second.open("log", RW).unwrap().into();
    let answer = second.exchange(&again(&header), b"hello");
    assert!(answer.header.has(flag::EXPIRED), "{}", answer.text());
    assert_eq!(std::fs::read(node.path("log")).unwrap(), b"hello", "once");
    let asked = second.meta(&Meta::Verdict { incarnation, session, id, age_ms: 5000 }).unwrap();
    let Ok(Answer::Verdict { known: true, dead: false, fate: Fate::Done { errno: 0, .. } }) =
        Answer::decode(&asked)
    else {
        panic!("{:?}", Answer::decode(&asked));
    };
}

/// The same of a write that is at the storage: a second try of it does not come after what others write then.
#[test]
fn what_is_being_written_for_a_session_that_is_gone_is_not_begun_again() {
    let dir = tempfile::tempdir().unwrap();
    let late = dir.path().join("milliseconds");
    let node = TestNode::with(|c| c.slow = Some(late.clone()));
    let mut first = node.client();
    let handle = first.create("f");
    let mut header = first.header(Opcode::Write, 3);
    header.handle = handle.into();
    std::fs::write(&late, "3000").unwrap();
    first.send(&header, b"old");
    let (session, incarnation, id) = (first.session, first.incarnation, header.id.get());
    let connect = || Client::connect(node.address, &SECRET, "job", session).unwrap();
    let fate = || {
        let asked = node.client().meta(&Meta::Verdict { incarnation, session, id, age_ms: 5000 }).unwrap();
        match Answer::decode(&asked) {
            Ok(Answer::Verdict { known: true, dead: false, fate }) => fate,
            other => panic!("{other:?}"),
        }
    };
    eventually("it is at the storage", || fate() == Fate::Begun);
    std::thread::sleep(Duration::from_millis(200));
    // What comes now does not wait there, and would be done first.
    std::fs::remove_file(&late).unwrap();
    connect().goodbye(false);
    let mut second = connect();
    assert!(!second.welcome.resumed);
    second.next = id + 1;
    header.handle = second.open("f", RW).unwrap().into();
    let answer = second.exchange(&again(&header), b"old");
    assert!(answer.header.has(flag::EXPIRED), "{}", answer.text());
    eventually("it is done", || matches!(fate(), Fate::Done { errno: 0, .. }));
    assert_eq!(std::fs::read(node.path("f")).unwrap(), b"old");
}

/// The node listens until the last request is answered, and whoever lost his connection gets his answer.
#[test]
fn a_draining_node_says_what_became_of_a_request() {
    let mut node = TestNode::with(|c| {
        c.emulated = Some(slow(Nanos::from_millis(1500)));
        c.drain_timeout = Duration::from_secs(20);
    });
    let mut first = node.client();
    let handle = first.create("log");
    let mut header = first.header(Opcode::Append, 5);
    header.handle = handle.into();
    first.send(&header, b"hello");
    std::thread::sleep(Duration::from_millis(200));
    let session = first.session;
    drop(first);
    let running = node.running.take().unwrap();
    let drained = std::thread::spawn(move || running.drain());
    std::thread::sleep(Duration::from_millis(200));
    let mut second = Client::connect(node.address, &SECRET, "job", session).unwrap();
    let answer = second.exchange(&again(&header), b"hello");
    assert!(answer.status() == 0 && answer.header.has(flag::MOVE), "{}", answer.text());
    assert_eq!(answer.header.length.get(), 5);
    drop(second);
    assert!(drained.join().unwrap(), "all left in time");
    assert_eq!(std::fs::read(node.path("log")).unwrap(), b"hello", "once");
}

#[test]
fn a_drain_waits_for_locks_and_for_files_without_a_name() {
    let mut node = TestNode::with(|c| c.drain_timeout = Duration::from_secs(20));
    let mut c = node.client();
    let (locked, nameless) = (c.create("locked"), c.create("nameless"));
    let range = LockRange { kind: LockKind::Write, start: 0, len: 0 };
    let owner = LockOwner::Process;
    c.done(&Meta::Lock { handle: locked, owner, range }).unwrap();
    c.done(&Meta::Unlink { path: path("nameless") }).unwrap();
    c.write(nameless, 0, b"x").unwrap();
    let running = node.running.take().unwrap();
    let drained = std::thread::spawn(move || running.drain());
    // Quiet for longer than those are given who hold nothing.
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(c.read(nameless, 0, 1).unwrap(), b"x");
    c.close(nameless).unwrap();
    std::thread::sleep(Duration::from_millis(700));
    let range = LockRange { kind: LockKind::Unlock, start: 0, len: 0 };
    c.done(&Meta::Lock { handle: locked, owner, range }).unwrap();
    assert!(c.closed());
    assert!(drained.join().unwrap());
}

#[test]
fn a_child_adopts_however_late() {
    let node = TestNode::with(|c| c.grace = Duration::from_millis(20));
    let mut parent = node.client();
    let (gone, closed) = (parent.create("gone"), parent.create("closed"));
    parent.write(gone, 0, b"inherited").unwrap();
    parent.write(closed, 0, b"too").unwrap();
    for name in ["gone", "closed"] {
        parent.done(&Meta::Unlink { path: path(name) }).unwrap();
    }
    let lifeline = Client::lifeline(node.address, parent.session);
    parent.flags = flag::LINGER;
    parent.close(closed).unwrap();
    let session = parent.session;
    parent.goodbye(true);
    // Many times the grace.
    std::thread::sleep(Duration::from_millis(500));
    let mut child = node.client();
    for (handle, content) in [(gone, &b"inherited"[..]), (closed, b"too")] {
        child.meta(&Meta::Adopt { session, handle }).unwrap();
        assert_eq!(child.read(handle, 0, 100).unwrap(), content);
    }
    drop(lifeline);
    child.close(closed).unwrap();
    eventually("only what the child holds is open", || node.report().open_files == 1);
    assert_eq!(child.read(gone, 0, 100).unwrap(), b"inherited");
    child.close(gone).unwrap();
    eventually("nothing is left", || node.report().open_files == 0);
}

#[test]
fn a_parent_that_is_killed_leaves_its_files_to_its_children() {
    let node = TestNode::with(|c| c.grace = Duration::from_millis(20));
    let mut parent = node.client();
    let handle = parent.create("f");
    let lifeline = Client::lifeline(node.address, parent.session);
    drop(parent);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(node.report().open_files, 1);
    let mut child = node.client();
    let session = lifeline.session;
    child.meta(&Meta::Adopt { session, handle }).unwrap();
    child.close(handle).unwrap();
    drop(lifeline);
    eventually("nothing is left", || node.report().open_files == 0);
}

/// A file that was removed and made again is another one, also with the same inode number.
#[test]
fn an_inode_number_is_no_identity() {
    let node = TestNode::start();
    let mut c = node.client();
    let open = Meta::Open { path: path("f"), flags: RW | OpenFlags::CREATE, mode: 0o600, identity: 0 };
    let identity = opened(&c.meta(&open).unwrap());
    let ino = std::fs::metadata(node.path("f")).unwrap().ino();
    let again = Meta::Open { path: path("f"), flags: RW, mode: 0, identity };
    assert_eq!(opened(&c.meta(&again).unwrap()), identity);
    c.goodbye(false);
    eventually("it is closed", || node.report().open_files == 0);
    let mut c = node.client();
    let mut others = 0;
    let reused = (0..1000).any(|n| {
        std::fs::remove_file(node.path("f")).unwrap();
        std::fs::write(node.path("f"), "").unwrap();
        let same = std::fs::metadata(node.path("f")).unwrap().ino() == ino;
        if !same {
            // Takes a number that is not wanted, so that others come.
            std::fs::hard_link(node.path("f"), node.path(&format!("other-{n}"))).unwrap();
            others += 1;
        }
        same
    });
    if !reused {
        skipped("an_inode_number_is_no_identity", "this file system does not use inode numbers again");
    }
    assert_eq!(c.meta(&again), Err(libc::ESTALE), "after {others} others");
}

#[test]
fn a_sibling_tells_what_a_node_has_begun() {
    let node = TestNode::start();
    let ledgers = node.dir.path().join("ledgers");
    let sibling = TestNode::with(|c| c.ledger_dir = Some(ledgers));
    let stranger = TestNode::start();
    let mut c = node.client();
    let handle = c.create("log");
    let append = c.next;
    c.append(handle, 0, b"12345").unwrap();
    let write = c.next;
    c.write(handle, 7, b"123").unwrap();
    let mkdir = c.next;
    c.done(&Meta::Mkdir { path: path("d"), mode: 0o700 }).unwrap();
    let twice = c.next;
    c.done(&Meta::Mkdir { path: path("d"), mode: 0o700 }).unwrap_err();
    let cut = c.next;
    c.done(&Meta::Truncate { target: Target::Handle(handle), size: 3 }).unwrap();
    let exclusive = c.next;
    let flags = RW | OpenFlags::CREATE | OpenFlags::EXCL;
    let identity =
        opened(&c.meta(&Meta::Open { path: path("new"), flags, mode: 0o600, identity: 0 }).unwrap());
    let (incarnation, session) = (c.incarnation, c.session);
    let ask = |of: &TestNode, id| {
        let body = of.client().meta(&Meta::Verdict { incarnation, session, id, age_ms: 0 }).unwrap();
        match Answer::decode(&body) {
            Ok(Answer::Verdict { known, dead, fate }) => (known, dead, fate),
            other => panic!("{other:?}"),
        }
    };
    let done = |errno: i32, values| (true, false, Fate::Done { errno: errno as u32, values });
    for who in [&node, &sibling] {
        assert_eq!(ask(who, append), done(0, [0, 5, 0, 0]));
        assert_eq!(ask(who, write), done(0, [7, 3, 0, 0]));
        assert_eq!(ask(who, mkdir), done(0, [0; 4]));
        assert_eq!(ask(who, twice), done(libc::EEXIST, [0; 4]));
        assert_eq!(ask(who, cut), done(0, [0; 4]));
        assert_eq!(ask(who, exclusive), done(0, [identity, 0, 0, 0]));
        assert_eq!(ask(who, exclusive + 1), (true, false, Fate::Absent));
    }
    assert!(!ask(&stranger, append).0, "it cannot know");
}

#[test]
fn what_expired_was_not_begun() {
    let node = TestNode::with(|c| c.lease = Duration::from_millis(300));
    let mut c = node.client();
    c.ping();
    c.skew = -2_000_000_000;
    // A stamp of long ago on a connection of its own: the newest one counts.
    let mut late = Client::connect(node.address, &SECRET, "job", c.session).unwrap();
    late.skew = -2_000_000_000;
    late.next = 1000;
    assert_eq!(late.done(&Meta::Mkdir { path: path("d"), mode: 0o700 }), Err(libc::ETIMEDOUT));
    let (incarnation, session) = (late.incarnation, late.session);
    let body = node.client().meta(&Meta::Verdict { incarnation, session, id: 1000, age_ms: 5000 }).unwrap();
    assert_eq!(Answer::decode(&body), Ok(Answer::Verdict { known: true, dead: false, fate: Fate::Absent }));
}

#[test]
fn the_holder_of_a_lock_has_a_name() {
    let node = TestNode::start();
    let mut clients = [node.client(), node.client(), node.client()];
    let range = |kind, start, len| LockRange { kind, start, len };
    let write = LockKind::Write;
    let mut identity = 0;
    for (n, c) in clients.iter_mut().enumerate() {
        let body =
            c.meta(&Meta::Open { path: path("f"), flags: RW | OpenFlags::CREATE, mode: 0o600, identity: 0 });
        let body = body.unwrap();
        let Ok(Answer::Opened { handle, identity: id, .. }) = Answer::decode(&body) else { panic!() };
        identity = id;
        let range = range(write, n as u64 * 10, 10);
        c.done(&Meta::Lock { handle, owner: LockOwner::Process, range }).unwrap();
    }
    let holders: Vec<u32> = clients.iter().map(|c| pid(c.session)).collect();
    let mut asking = node.client();
    let handle = asking.create("f");
    for (n, &holder) in holders.iter().enumerate() {
        let wanted = range(write, n as u64 * 10 + 3, 1);
        let expected = Ok(Answer::Lock(Some((range(write, n as u64 * 10, 10), holder))));
        let test = Meta::TestLock { handle, owner: LockOwner::Process, range: wanted };
        assert_eq!(Answer::decode(&asking.meta(&test).unwrap()), expected);
        // Also asked by somebody who goes through another node.
        let elsewhere = Meta::LockHolder { identity, range: wanted };
        assert_eq!(Answer::decode(&asking.meta(&elsewhere).unwrap()), expected);
    }
    let free = Meta::LockHolder { identity, range: range(write, 30, 0) };
    assert_eq!(Answer::decode(&asking.meta(&free).unwrap()), Ok(Answer::Lock(None)));
}

#[test]
fn processes_that_wait_for_each_other_are_told() {
    let node = TestNode::start();
    let (mut a, mut b) = (node.client(), node.client());
    let lock =
        |identity| LockRecord { identity, range: LockRange { kind: LockKind::Write, start: 0, len: 0 } };
    let wait = |c: &mut Client, wanted, held| {
        c.done(&Meta::LockWait { wanted: lock(wanted), held: &LockRecord::encode_all(&[lock(held)]) })
    };
    wait(&mut a, 1, 2).unwrap();
    assert_eq!(wait(&mut b, 2, 1), Err(libc::EDEADLK));
    // Another job's locks are another matter.
    let mut other = Client::connect(node.address, &SECRET, "other", new_session()).unwrap();
    wait(&mut other, 2, 1).unwrap();
    assert_eq!(
        b.done(&Meta::LockWait { wanted: lock(1), held: b"nonsense that decodes to nothing" }),
        Err(libc::EINVAL)
    );
}
