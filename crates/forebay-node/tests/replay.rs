//! A request that another node may or may not have carried out, sent again to this one.

mod common;

use common::*;
use forebay_wire::flags::OpenFlags;
use forebay_wire::frame::{Opcode, flag};
use forebay_wire::message::*;
use std::os::unix::fs::symlink;
use std::time::Duration;

/// A client that repeats what it first sent so long ago.
fn repeating(node: &TestNode, age_ms: u32) -> Client {
    let mut c = node.client();
    c.flags = flag::REPLAY;
    c.age_ms = age_ms;
    c
}

#[test]
fn what_was_done_counts_as_done() {
    let node = TestNode::start();
    let mut first = node.client();
    let excl = RW | OpenFlags::CREATE | OpenFlags::EXCL;
    std::fs::write(node.path("src"), "s").unwrap();
    for name in ["gone", "moved"] {
        std::fs::write(node.path(name), name).unwrap();
    }
    std::fs::create_dir(node.path("gone-dir")).unwrap();
    let h = first.create("target");
    first.done(&Meta::Setxattr { target: Target::Handle(h), name: b"user.a", value: b"v", flags: 0 }).ok();
    let ops = [
        Meta::Unlink { path: path("gone") },
        Meta::Rmdir { path: path("gone-dir") },
        Meta::Mkdir { path: path("dir"), mode: 0o700 },
        Meta::Mknod { path: path("node"), mode: libc::S_IFIFO | 0o600, dev: 0 },
        Meta::Symlink { target: b"to", path: path("sym") },
        Meta::Link { from: Target::Path(path("src")), to: path("hard") },
        Meta::Rename { from: path("moved"), to: path("there"), flags: 0 },
        Meta::Open { path: path("excl"), flags: excl, mode: 0o600, identity: 0 },
    ];
    for op in &ops {
        assert!(first.meta(op).is_ok(), "{op:?}");
    }
    // Not as a repetition: the plain outcome.
    for op in &ops {
        assert!(first.meta(op).is_err(), "{op:?}");
    }
    let mut again = repeating(&node, 10_000);
    for op in &ops {
        let body = again.meta(op).unwrap_or_else(|e| panic!("{op:?}: {e}"));
        match (op, Answer::decode(&body).unwrap()) {
            (Meta::Open { .. }, Answer::Opened { handle, .. }) => {
                assert_eq!(again.write(handle, 0, b"x"), Ok(1))
            }
            (_, answer) => assert_eq!(answer, Answer::Done),
        }
    }
    // The new file now has content: somebody uses it, and it is not ours to open as new.
    assert_eq!(again.open("excl", excl), Err(libc::EEXIST));
}

#[test]
fn what_others_did_does_not() {
    let node = TestNode::start();
    std::fs::create_dir(node.path("old-dir")).unwrap();
    std::fs::write(node.path("old"), "").unwrap();
    std::fs::write(node.path("other"), "").unwrap();
    symlink("elsewhere", node.path("sym")).unwrap();
    // Longer ago than a repetition's own age and the slack.
    std::thread::sleep(Duration::from_millis(1300));
    std::fs::write(node.path("young-file"), "").unwrap();
    symlink("elsewhere", node.path("young-sym")).unwrap();
    let mut c = repeating(&node, 100);
    let excl = RW | OpenFlags::CREATE | OpenFlags::EXCL;
    let exists = [
        Meta::Mkdir { path: path("old-dir"), mode: 0o700 },
        Meta::Mkdir { path: path("young-file"), mode: 0o700 },
        Meta::Mknod { path: path("old"), mode: 0o600, dev: 0 },
        Meta::Mknod { path: path("young-file"), mode: libc::S_IFIFO | 0o600, dev: 0 },
        Meta::Symlink { target: b"elsewhere", path: path("sym") },
        Meta::Symlink { target: b"nowhere", path: path("young-sym") },
        Meta::Link { from: Target::Path(path("old")), to: path("other") },
        Meta::Open { path: path("old"), flags: excl, mode: 0o600, identity: 0 },
    ];
    for op in &exists {
        assert_eq!(c.meta(op), Err(libc::EEXIST), "{op:?}");
    }
    assert_eq!(c.meta(&Meta::Rename { from: path("none"), to: path("old"), flags: 0 }), Err(libc::ENOENT));
    // What leaves no trace is refused with a reason.
    let exchange = Meta::Rename { from: path("old"), to: path("other"), flags: libc::RENAME_EXCHANGE };
    let r = c.raw_meta(&exchange);
    assert!(r.status() == libc::EIO && r.text().contains("cannot be told"), "{r:?}");
}

#[test]
fn appends_are_found_or_made() {
    let node = TestNode::start();
    let mut c = node.client();
    let h = c.open("log", RW | OpenFlags::CREATE | OpenFlags::APPEND).unwrap();
    let record: Vec<u8> = (0..5000u32).map(|i| (i * i / 7) as u8).collect();
    c.append(h, 0, b"before").unwrap();
    let mut again = repeating(&node, 500);
    let h2 = again.open("log", OpenFlags::WRITE | OpenFlags::APPEND).unwrap();
    assert_eq!(again.append(h2, 6, &record), Ok(6), "it was not there");
    assert_eq!(again.append(h2, 6, &record), Ok(6), "now it is");
    // Others have appended around it.
    c.append(h, 0, &vec![1; 3 << 20]).unwrap();
    let at = c.append(h, 0, &record[1..]).unwrap();
    c.append(h, 0, &[2; 100]).unwrap();
    let end = std::fs::metadata(node.path("log")).unwrap().len();
    assert_eq!(again.append(h2, 5006, &record[1..]), Ok(at), "over the border of what is read at a time");
    assert_eq!(again.append(h2, 5006, b"never seen"), Ok(end), "not there: made");
    // Too much to search.
    c.done(&Meta::Truncate { target: Target::Handle(h), size: 100 << 20 }).unwrap();
    let r = again.data(Opcode::Append, h2, 6, b"x");
    assert!(r.status() == libc::EIO && r.text().contains("cannot be told"));
}
