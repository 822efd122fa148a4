//! A node that keeps directories for a while: whoever asks it finds what a fresh look would have found.

mod common;

use common::*;
use forebay_node::config::{ExportConfig, JobConfig, NodeConfig};
use forebay_types::{Identity, Secret};
use forebay_wire::flags::OpenFlags;
use forebay_wire::message::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// What a client says whose job has this node only.
const HERE: OpenFlags = OpenFlags(OpenFlags::READ.0 | OpenFlags::SEEN.0);
/// As long as they can be kept: whatever is found must not depend on it.
const LONG: Option<Duration> = Some(Duration::from_millis(1000));

fn node() -> TestNode {
    TestNode::with(|c| c.keep_directories = LONG)
}

/// A client for which directories are kept from now on.
fn here(node: &TestNode) -> Client {
    let mut client = node.client();
    let root = client.open("", HERE).unwrap();
    client.close(root).unwrap();
    client
}

fn stat(c: &mut Client, rel: &str) -> Result<u64, i32> {
    c.stat(Target::Path(path(rel))).map(|attr| attr.ino)
}

/// Opened, and closed again.
fn open(c: &mut Client, rel: &str) -> Result<u64, i32> {
    let (handle, attr) = c.open_attr(rel, HERE, 0)?;
    c.close(handle).unwrap();
    Ok(attr.ino)
}

fn rename(c: &mut Client, from: &str, to: &str) -> Result<(), i32> {
    c.done(&Meta::Rename { from: path(from), to: path(to), flags: 0 })
}

fn real(node: &TestNode, rel: &str) -> Result<u64, i32> {
    std::fs::metadata(node.path(rel)).map(|m| m.ino()).map_err(|e| e.raw_os_error().unwrap())
}

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }
}

/// Names of a small tree with links in it, some of which are there.
fn any_path(dice: &mut Dice) -> String {
    let parts = ["a", "b", "c", "to-a", "up", "f"];
    let depth = 1 + dice.roll(4);
    (0..depth).map(|_| parts[dice.roll(parts.len())]).collect::<Vec<_>>().join("/")
}

#[test]
fn whatever_is_done_through_the_node_is_seen_at_once() {
    let node = node();
    let (mut c, mut other) = (here(&node), node.client());
    for seed in 1..=40u64 {
        let mut dice = Dice(seed * 0x9e37_79b9_7f4a_7c15);
        let top = format!("t{seed}");
        for rel in ["", "/a", "/a/b", "/c"] {
            c.done(&Meta::Mkdir { path: path(&format!("{top}{rel}")), mode: 0o755 }).unwrap();
        }
        for step in 0..60 {
            let (x, y) = (format!("{top}/{}", any_path(&mut dice)), format!("{top}/{}", any_path(&mut dice)));
            // By those for whom directories are kept, and others.
            let who = if dice.roll(3) == 0 { &mut other } else { &mut c };
            let done = match dice.roll(8) {
                0 | 1 => rename(who, &x, &y),
                2 => who.done(&Meta::Rmdir { path: path(&x) }),
                3 | 4 => who.done(&Meta::Mkdir { path: path(&x), mode: 0o755 }),
                5 => who.done(&Meta::Unlink { path: path(&x) }),
                6 => {
                    let target: &[u8] = if x.ends_with("up") { b".." } else { b"a" };
                    who.done(&Meta::Symlink { target, path: path(&x) })
                }
                _ => {
                    let made = c.open(&x, RW | OpenFlags::CREATE | OpenFlags::SEEN);
                    made.and_then(|handle| c.close(handle))
                }
            };
            for _ in 0..6 {
                let rel = format!("{top}/{}", any_path(&mut dice));
                let (want, context) =
                    (real(&node, &rel), format!("seed {seed} step {step}: {rel} ({done:?})"));
                // What leads out of the export, the node does not follow.
                let ask = if dice.roll(2) == 0 { stat } else { open };
                match ask(&mut c, &rel) {
                    Err(libc::EXDEV) => {}
                    got => assert_eq!(got, want, "{context}"),
                }
            }
        }
    }
}

#[test]
fn rights_that_are_taken_are_gone_at_once() {
    if !rustix::process::geteuid().is_root() {
        return forebay_testkit::skipped("a node that acts as others", "only root can");
    }
    let job = |name: &str, uid: u32| JobConfig {
        name: name.into(),
        secret: Secret::new([uid as u8; 32]),
        weight: 1,
        user: Some(Identity { uid, gid: uid, groups: Vec::new() }),
    };
    let node = TestNode::with(|c: &mut NodeConfig| {
        c.act_as = forebay_node::config::ActAs::Unsaid;
        c.jobs = vec![job("a", 7001), job("b", 7002)];
        c.keep_directories = LONG;
    });
    std::fs::set_permissions(node.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::create_dir_all(node.path("top/mid/low")).unwrap();
    std::fs::write(node.path("top/mid/low/f"), "x").unwrap();
    for rel in ["top", "top/mid", "top/mid/low", "top/mid/low/f"] {
        chown(node.path(rel), Some(7001), Some(7001)).unwrap();
        std::fs::set_permissions(node.path(rel), PermissionsExt::from_mode(0o755)).unwrap();
    }
    let client = |name: &str, uid: u8| {
        let mut c = Client::connect(node.address, &[uid; 32], name, new_session()).unwrap();
        open(&mut c, "").unwrap();
        c
    };
    let (mut a, mut b) = (client("a", 7001u32 as u8), client("b", 7002u32 as u8));
    let file = "top/mid/low/f";
    for round in 0..20 {
        assert!(open(&mut a, file).is_ok() && open(&mut b, file).is_ok(), "{round}");
        // By name, or through an open directory.
        let by_handle = a.open("top", OpenFlags::READ | OpenFlags::SEEN).unwrap();
        let target = if round % 2 == 0 { Target::Path(path("top")) } else { Target::Handle(by_handle) };
        a.done(&Meta::Chmod { target, mode: 0o700 }).unwrap();
        assert_eq!(open(&mut b, file), Err(libc::EACCES), "{round}");
        assert_eq!(stat(&mut b, file), Err(libc::EACCES), "{round}");
        assert!(open(&mut a, file).is_ok(), "what one may find is not what another may");
        assert_eq!(open(&mut b, file), Err(libc::EACCES), "{round}: also when somebody else has found it");
        a.done(&Meta::Chmod { target, mode: 0o755 }).unwrap();
        a.close(by_handle).unwrap();
    }
}

#[test]
fn what_is_done_past_the_node_is_seen_in_the_end() {
    let node = node();
    let mut c = here(&node);
    std::fs::create_dir_all(node.path("d/e")).unwrap();
    std::fs::write(node.path("d/e/f"), "old").unwrap();
    let old = open(&mut c, "d/e/f").unwrap();
    std::fs::rename(node.path("d"), node.path("moved")).unwrap();
    std::fs::create_dir_all(node.path("d/e")).unwrap();
    std::fs::write(node.path("d/e/f"), "new").unwrap();
    let new = real(&node, "d/e/f").unwrap();
    assert_ne!(old, new);
    let c = std::cell::RefCell::new(c);
    eventually("the other file", || stat(&mut c.borrow_mut(), "d/e/f") == Ok(new));
    // Nothing holds a directory that is gone for long.
    std::fs::remove_dir_all(node.path("d")).unwrap();
    eventually("nothing is there", || stat(&mut c.borrow_mut(), "d/e/f") == Err(libc::ENOENT));
    let held = || {
        let fds = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let below = node.path("").canonicalize().unwrap().join("d");
        fds.filter_map(|fd| std::fs::read_link(fd.path()).ok()).any(|at| at.starts_with(&below))
    };
    eventually("it is closed", || !held());
}

#[test]
fn other_file_systems_and_links_out_take_the_long_way() {
    let node = node();
    let mut c = here(&node);
    std::fs::create_dir_all(node.path("d/e")).unwrap();
    std::fs::write(node.dir.path().join("secret"), "s").unwrap();
    symlink("../../../secret", node.path("d/e/out")).unwrap();
    symlink("../..", node.path("d/e/top")).unwrap();
    std::fs::write(node.path("f"), "f").unwrap();
    for _ in 0..3 {
        assert_eq!(open(&mut c, "d/e/out"), Err(libc::EXDEV));
        assert_eq!(stat(&mut c, "d/e/out"), Err(libc::EXDEV));
        assert_eq!(open(&mut c, "d/e/top/f"), real(&node, "f"));
        assert_eq!(stat(&mut c, "d/e/../../../secret"), Err(libc::EXDEV));
        assert!(c.stat(Target::Link(path("d/e/out"))).is_ok_and(|a| a.mode & libc::S_IFMT == libc::S_IFLNK));
        assert_eq!(open(&mut c, "d/none/f"), Err(libc::ENOENT));
        assert_eq!(open(&mut c, "f/g"), Err(libc::ENOTDIR));
    }
}

/// Ends the load, however the test ends.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// One renames and tells the others, who must find the file where it is now, through the same node or (a job with
/// several nodes) another one.
#[test]
fn renames_under_load_on_two_nodes() {
    let first = node();
    let second = TestNode::with(|c| {
        c.keep_directories = LONG;
        c.exports = vec![ExportConfig::new(first.dir.path().join("export"), "x")];
    });
    for i in 0..3 {
        std::fs::create_dir_all(first.path(&format!("d{i}/even/deep"))).unwrap();
        std::fs::write(first.path(&format!("d{i}/even/deep/f")), "x").unwrap();
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(&over);
        for i in 0..3 {
            // The load: whatever they find, it is one of the files or nothing.
            let (first, over) = (&first, &over);
            scope.spawn(move || {
                let mut c = here(first);
                while !over.load(Relaxed) {
                    for rel in ["even/deep/f", "odd/deep/f"] {
                        let got = open(&mut c, &format!("d{i}/{rel}"));
                        assert!(matches!(got, Ok(_) | Err(libc::ENOENT)), "{got:?}");
                    }
                }
            });
        }
        let mut same = [here(&first), here(&first)];
        // Its job has two nodes: it does not look at any board.
        let mut elsewhere = second.client();
        for round in 0..300 {
            let (from, to) = if round % 2 == 0 { ("even", "odd") } else { ("odd", "even") };
            let i = round % 3;
            for (from, to) in [(from, to), (to, from)] {
                let (old, new) = (format!("d{i}/{from}"), format!("d{i}/{to}"));
                if real(&first, &old).is_err() {
                    continue;
                }
                let file = real(&first, &format!("{old}/deep/f"));
                rename(&mut same[round % 2], &old, &new).unwrap();
                for c in &mut same {
                    assert_eq!(open(c, &format!("{old}/deep/f")), Err(libc::ENOENT), "{round}");
                    assert_eq!(open(c, &format!("{new}/deep/f")), file, "{round}");
                }
                let look = |c: &mut Client, rel: &str| stat(c, &format!("{rel}/deep/f"));
                assert_eq!(look(&mut elsewhere, &old), Err(libc::ENOENT), "{round}");
                assert_eq!(look(&mut elsewhere, &new), file, "{round}");
                // And back again, through the other node, seen there at once.
                rename(&mut elsewhere, &new, &old).unwrap();
                assert_eq!(look(&mut elsewhere, &old), file, "{round}");
                assert_eq!(look(&mut elsewhere, &new), Err(libc::ENOENT), "{round}");
                rename(&mut elsewhere, &old, &new).unwrap();
            }
        }
    });
}
