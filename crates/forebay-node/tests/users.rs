//! One node of root, several users: every request is carried out as its job's user, and as nobody else.

mod common;

use common::users::*;
use common::*;
use forebay_control::node::Term;
use forebay_node::Node;
use forebay_node::config::{ActAs, EmulatedServers, ExportConfig, JobConfig, NodeConfig};
use forebay_node::control::Command;
use forebay_sched::emulate::{ServerModel, StorageModel};
use forebay_types::{Nanos, Secret};
use forebay_wire::flags::OpenFlags;
use forebay_wire::frame::{Opcode, flag};
use forebay_wire::hello::JOB;
use forebay_wire::message::{Meta, SetTime, Target, UMASK_SHIFT};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

fn owner(node: &TestNode, rel: &str) -> (u32, u32) {
    let m = std::fs::symlink_metadata(node.path(rel)).unwrap();
    (m.uid(), m.gid())
}

fn mode(node: &TestNode, rel: &str) -> u32 {
    std::fs::symlink_metadata(node.path(rel)).unwrap().mode() & 0o7777
}

#[test]
fn a_tree_of_mode_700_is_its_owners_alone() {
    let Some(node) = node(|_| {}) else { return };
    let (mut a, mut b) = (client(&node, "a"), client(&node, "b"));
    let h = a.open("a/private", RW).unwrap();
    assert_eq!(a.read(h, 0, 9).unwrap(), b"a");
    let theirs = path("a/private");
    let denied = Err(libc::EACCES);
    let attempts = [
        ("read", Meta::Open { path: theirs, flags: OpenFlags::READ, mode: 0, identity: 0 }),
        ("write", Meta::Open { path: theirs, flags: RW, mode: 0, identity: 0 }),
        ("create", Meta::Open { path: path("a/new"), flags: CREATE, mode: 0o666, identity: 0 }),
        ("list", Meta::Open { path: path("a"), flags: OpenFlags::READ, mode: 0, identity: 0 }),
        ("look", Meta::Stat { target: Target::Path(theirs) }),
        ("cut", Meta::Truncate { target: Target::Path(theirs), size: 0 }),
        ("remove", Meta::Unlink { path: theirs }),
        ("make a directory", Meta::Mkdir { path: path("a/d"), mode: 0o777 }),
        ("rename away", Meta::Rename { from: theirs, to: path("b/taken"), flags: 0 }),
        ("rename into", Meta::Rename { from: path("b/private"), to: path("a/given"), flags: 0 }),
        ("link", Meta::Link { from: Target::Path(theirs), to: path("b/linked") }),
        ("link to it", Meta::Symlink { target: b"x", path: path("a/s") }),
        ("open up", Meta::Chmod { target: Target::Path(theirs), mode: 0o777 }),
        ("attributes", Meta::Listxattr { target: Target::Path(theirs) }),
        ("try", Meta::Access { path: theirs, mode: 4, follow: true }),
    ];
    for (what, attempt) in &attempts {
        assert_eq!(b.meta(attempt).map(drop), denied, "{what}");
    }
    let not_mine = Err(libc::EPERM);
    let top = Target::Path(path("a"));
    assert_eq!(b.done(&Meta::Chmod { target: top, mode: 0o777 }), not_mine);
    assert_eq!(b.done(&Meta::Chown { target: top, uid: B, gid: u32::MAX }), not_mine);
    let then = SetTime::At(1, 0);
    assert_eq!(b.done(&Meta::Utimens { target: top, atime: then, mtime: then }), not_mine);
    assert_eq!(std::fs::read(node.path("a/private")).unwrap(), b"a");
    assert_eq!(mode(&node, "a"), 0o700);
}

#[test]
fn what_is_made_belongs_to_its_user() {
    let Some(node) = node(|_| {}) else { return };
    for (name, uid) in [("a", A), ("b", B)] {
        let mut c = client(&node, name);
        let at = |what: &str| format!("open/{name}-{what}");
        c.create(&at("file"));
        c.done(&Meta::Mkdir { path: path(&at("dir")), mode: 0o755 }).unwrap();
        c.done(&Meta::Symlink { target: b"t", path: path(&at("link")) }).unwrap();
        c.done(&Meta::Mknod { path: path(&at("pipe")), mode: libc::S_IFIFO | 0o600, dev: 0 }).unwrap();
        for what in ["file", "dir", "link", "pipe"] {
            assert_eq!(owner(&node, &at(what)), (uid, uid), "{name} {what}");
        }
    }
    // The sticky bit: b cannot remove what a made.
    let mut b = client(&node, "b");
    assert_eq!(b.done(&Meta::Unlink { path: path("open/a-file") }), Err(libc::EPERM));
}

#[test]
fn another_job_cannot_take_an_open_file() {
    let Some(node) = node(|_| {}) else { return };
    let (mut a, mut b) = (client(&node, "a"), client(&node, "b"));
    let h = a.open("a/private", RW).unwrap();
    assert_eq!(b.read(h, 0, 1), Err(libc::EBADF));
    assert_eq!(b.write(h, 0, b"x"), Err(libc::EBADF));
    assert_eq!(b.done(&Meta::Adopt { session: a.session, handle: h }), Err(libc::EBADF));
    assert_eq!(b.close(h), Err(libc::EBADF));
    // Nor by a's session.
    let mut posing = Client::connect(node.address, &[B as u8; 32], "b", a.session).unwrap();
    assert!(!posing.welcome.resumed);
    assert_eq!(posing.read(h, 0, 1), Err(libc::EBADF));
    assert_eq!(a.read(h, 0, 1).unwrap(), b"a");
}

#[test]
fn a_secret_opens_its_own_job_only() {
    let Some(node) = node(|_| {}) else { return };
    for job in ["a", "c", "unknown", ""] {
        let refused = Client::connect(node.address, &[B as u8; 32], job, new_session()).err().unwrap();
        assert_eq!(refused.status(), libc::EACCES, "{job}: {}", refused.text());
    }
    // Nor does it give control: no draining, no other scheduler, no look at others' statistics.
    let mut b = client(&node, "b");
    let mapping =
        Command::Mapping { term: Term(9), complete: true, jobs: Vec::new(), ended: vec!["a".into()] };
    for command in [
        Command::Drain,
        Command::Stats,
        Command::Scheduler { set: None },
        Command::Weight { job: "b".into(), weight: 100 },
        Command::Blame { job: "a".into(), since: Nanos::ZERO, what_if: None },
        mapping,
    ] {
        let said = b.control(&command).error.unwrap();
        assert!(said.contains("node's own secret"), "{command:?}: {said}");
    }
}

#[test]
fn supplementary_groups_count() {
    let Some(node) = node(|_| {}) else { return };
    let (mut a, mut b, mut c) = (client(&node, "a"), client(&node, "b"), client(&node, "c"));
    let h = a.open_attr("team/f", CREATE, 0o640).unwrap().0;
    a.write(h, 0, b"for the team").unwrap();
    let h = c.open("team/f", OpenFlags::READ).unwrap();
    assert_eq!(c.read(h, 0, 3).unwrap(), b"for");
    assert_eq!(c.open("team/f", RW), Err(libc::EACCES), "the group may read");
    assert_eq!(b.open("team/f", OpenFlags::READ), Err(libc::EACCES));
    assert_eq!(b.open("team", OpenFlags::READ), Err(libc::EACCES));
}

#[test]
fn a_setgid_directory_gives_its_group() {
    let Some(node) = node(|_| {}) else { return };
    let mut c = client(&node, "c");
    c.create("team/file");
    c.done(&Meta::Mkdir { path: path("team/dir"), mode: 0o770 }).unwrap();
    assert_eq!(owner(&node, "team/file"), (C, TEAM));
    assert_eq!((owner(&node, "team/dir"), mode(&node, "team/dir")), ((C, TEAM), 0o2770));
    // Below it nobody outside the group makes a program that runs as the group.
    directory(&node, "foreign", C, B, 0o2777);
    c.open_attr("foreign/tool", CREATE, 0o2771).unwrap();
    assert_eq!((owner(&node, "foreign/tool").1, mode(&node, "foreign/tool") & 0o2000), (B, 0));
}

/// An access control list as the kernel stores it: owner, one user, group, mask, others.
fn acl(user: u32, permissions: [u16; 5]) -> Vec<u8> {
    let tags = [(0x01u16, u32::MAX), (0x02, user), (0x04, u32::MAX), (0x10, u32::MAX), (0x20, u32::MAX)];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for ((tag, id), permission) in tags.into_iter().zip(permissions) {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permission.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

#[test]
fn a_default_acl_goes_before_the_umask() {
    let Some(node) = node(|_| {}) else { return };
    directory(&node, "listed", A, A, 0o755);
    let default = acl(B, [7, 7, 5, 7, 0]);
    let set = |name: &str, value: &[u8]| {
        rustix::fs::setxattr(node.path("listed"), name, value, rustix::fs::XattrFlags::empty())
    };
    if set("system.posix_acl_default", &default).is_err() {
        return forebay_testkit::skipped("default access control lists", "this file system has none");
    }
    set("system.posix_acl_access", &acl(B, [7, 7, 5, 7, 5])).unwrap();
    let (mut a, mut b) = (client(&node, "a"), client(&node, "b"));
    // What programs do here, and what the node does for them: the same, bit for bit.
    let masked = |mode: u32| mode | 0o077 << UMASK_SHIFT;
    let h = a.open_attr("listed/file", CREATE, masked(0o666)).unwrap().0;
    a.write(h, 0, b"for b, too").unwrap();
    a.done(&Meta::Mkdir { path: path("listed/dir"), mode: masked(0o777) }).unwrap();
    std::fs::create_dir(node.path("listed/native")).unwrap();
    assert_eq!(mode(&node, "listed/file"), 0o660, "not masked");
    assert_eq!(mode(&node, "listed/dir"), 0o770);
    let h = b.open("listed/file", RW).unwrap();
    assert_eq!(b.read(h, 0, 5).unwrap(), b"for b");
    assert_eq!(client(&node, "c").open("listed/file", OpenFlags::READ), Err(libc::EACCES));
    // Without a list the umask counts.
    a.open_attr("open/masked", CREATE, masked(0o666)).unwrap();
    a.open_attr("open/not-masked", CREATE, 0o666).unwrap();
    a.done(&Meta::Mkdir { path: path("open/masked-dir"), mode: masked(0o777) }).unwrap();
    a.done(&Meta::Mknod { path: path("open/pipe"), mode: masked(libc::S_IFIFO | 0o666), dev: 0 }).unwrap();
    let made = ["masked", "not-masked", "masked-dir", "pipe"].map(|n| mode(&node, &format!("open/{n}")));
    assert_eq!(made, [0o600, 0o666, 0o700, 0o600]);
}

#[test]
fn set_id_bits_as_for_any_user() {
    let Some(node) = node(|_| {}) else { return };
    let mut a = client(&node, "a");
    let h = a.open_attr("open/tool", CREATE, 0o777).unwrap().0;
    let tool = Target::Path(path("open/tool"));
    a.done(&Meta::Chmod { target: tool, mode: 0o6777 }).unwrap();
    assert_eq!(mode(&node, "open/tool"), 0o6777, "its own file, its own group");
    // Writing takes the bits away, whoever writes: the node is not excused as root would be.
    a.write(h, 0, b"#!").unwrap();
    assert_eq!(mode(&node, "open/tool"), 0o777);
    // Of a group that one is not in, no program.
    chown(node.path("open/tool"), None, Some(B)).unwrap();
    a.done(&Meta::Chmod { target: tool, mode: 0o2777 }).unwrap();
    assert_eq!(mode(&node, "open/tool"), 0o777);
    // Nor another user's.
    std::fs::set_permissions(node.path("open/tool"), PermissionsExt::from_mode(0o4777)).unwrap();
    let mut b = client(&node, "b");
    let h = b.open("open/tool", RW).unwrap();
    b.write(h, 0, b"#!/evil").unwrap();
    assert_eq!(mode(&node, "open/tool") & 0o6000, 0);
}

#[test]
fn devices_owners_and_trusted_attributes_are_roots() {
    let Some(node) = node(|_| {}) else { return };
    let mut a = client(&node, "a");
    a.create("open/f");
    let f = Target::Path(path("open/f"));
    for kind in [libc::S_IFCHR, libc::S_IFBLK] {
        let made = a.done(&Meta::Mknod { path: path("open/device"), mode: kind | 0o666, dev: 0x103 });
        assert_eq!(made, Err(libc::EPERM));
    }
    let not_mine = Err(libc::EPERM);
    assert_eq!(a.done(&Meta::Chown { target: f, uid: B, gid: u32::MAX }), not_mine, "given away");
    assert_eq!(a.done(&Meta::Chown { target: f, uid: 0, gid: 0 }), not_mine);
    assert_eq!(a.done(&Meta::Chown { target: f, uid: u32::MAX, gid: B }), not_mine, "not its group");
    a.done(&Meta::Chown { target: f, uid: u32::MAX, gid: TEAM }).unwrap();
    assert_eq!(owner(&node, "open/f"), (A, TEAM));
    let mut set = |name: &'static [u8]| {
        a.done(&Meta::Setxattr { target: f, name, value: &[1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0], flags: 0 })
    };
    assert_eq!(set(b"trusted.t"), Err(libc::EPERM));
    assert!(set(b"security.capability").is_err(), "a program with root's powers");
    // A file that is nobody's business: reading needs no more than it does below.
    std::fs::write(node.path("root"), "root's").unwrap();
    std::fs::set_permissions(node.path("root"), PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(a.open("root", OpenFlags::READ), Err(libc::EACCES));
    assert_eq!(a.open("new-in-roots-directory", CREATE), Err(libc::EACCES));
}

/// A file system of its own, until dropped.
struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_file_system_is_full_for_its_user() {
    let Some(node) = node(|_| {}) else { return };
    directory(&node, "small", A, A, 0o777);
    let mount = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k,nr_inodes=8,mode=777", "none"])
        .arg(node.path("small"))
        .status();
    if !mount.is_ok_and(|s| s.success()) {
        return forebay_testkit::skipped("a full file system", "nothing can be mounted here");
    }
    let _mounted = Mounted(node.path("small"));
    let (mut a, mut b) = (client(&node, "a"), client(&node, "b"));
    let h = a.create("small/f");
    let mut written = 0;
    let full = loop {
        match a.write(h, written, &[1; 4096]) {
            Ok(n) => written += n as u64,
            Err(e) => break e,
        }
    };
    assert_eq!((full, written), (libc::ENOSPC, 64 << 10));
    let h = b.create("small/g");
    assert_eq!(b.write(h, 0, b"x"), Err(libc::ENOSPC));
    let mut made = 0;
    let none = loop {
        match b.open(&format!("small/{made}"), CREATE) {
            Ok(_) => made += 1,
            Err(e) => break e,
        }
    };
    assert_eq!(none, libc::ENOSPC);
    a.done(&Meta::Truncate { target: Target::Path(path("small/f")), size: 0 }).unwrap();
    assert_eq!(b.write(h, 0, b"x"), Ok(1));
}

#[test]
fn root_is_squashed_unless_allowed() {
    for allowed in [false, true] {
        let Some(node) = node(|c| c.allow_root = allowed) else { return };
        tell(&node, vec![told("super", 9, "0:0:0"), told("rooted", 8, "7009:0:0")], &[]);
        let mut root = Client::connect(node.address, &[9; 32], "super", new_session()).unwrap();
        let opened = root.open("a/private", OpenFlags::READ).map(drop);
        root.create("open/roots");
        let nobody = (65_534, 65_534);
        if allowed {
            assert_eq!((opened, owner(&node, "open/roots")), (Ok(()), (0, 0)));
        } else {
            assert_eq!((opened, owner(&node, "open/roots")), (Err(libc::EACCES), nobody));
            let mut rooted = Client::connect(node.address, &[8; 32], "rooted", new_session()).unwrap();
            rooted.create("open/rooted");
            assert_eq!(owner(&node, "open/rooted"), (7009, 65_534), "root's group neither");
        }
    }
}

#[test]
fn the_nodes_own_secret_is_no_user() {
    let Some(node) = node(|_| {}) else { return };
    let mut admin = Client::connect(node.address, &SECRET, "anything", new_session()).unwrap();
    assert_eq!(admin.control(&Command::Stats).error, None);
    let refused =
        admin.raw_meta(&Meta::Open { path: path("open"), flags: OpenFlags::READ, mode: 0, identity: 0 });
    assert_eq!(refused.status(), libc::EACCES);
    assert!(refused.text().contains("not told who"), "{}", refused.text());
    // A job of which the arbiter does not say whose it is.
    tell(&node, vec![told("whose", 9, "")], &[]);
    let mut whose = Client::connect(node.address, &[9; 32], "whose", new_session()).unwrap();
    assert_eq!(whose.stat(Target::Path(path("open"))), Err(libc::EACCES));
}

#[test]
fn the_name_of_another_users_job_opens_none_of_its_files() {
    let Some(node) = node(|_| {}) else { return };
    tell(&node, vec![told("run", 21, "7001:7001")], &[]);
    let mut a = Client::connect(node.address, &[21; 32], "run", new_session()).unwrap();
    let h = a.open("a/private", RW).unwrap();
    // The arbiter forgot it, and b has one of the same name.
    tell(&node, vec![], &["run"]);
    tell(&node, vec![told("run", 22, "7002:7002")], &[]);
    let come = || Client::connect(node.address, &[22; 32], "run", new_session());
    let refused = come().err().expect("a's processes are still here");
    assert!(
        refused.header.has(flag::MOVE) && refused.text().contains("another user's"),
        "{}",
        refused.text()
    );
    let stranger = Client::connect(node.address, &[23; 32], "run", new_session()).err().unwrap();
    assert!(!stranger.header.has(flag::MOVE), "who knows neither secret hears nothing of it");
    assert_eq!(a.read(h, 0, 1).unwrap(), b"a");
    a.goodbye(false);
    eventually("it is b's without another word of the arbiter", || come().is_ok());
    let mut b = come().unwrap();
    assert_eq!(b.read(h, 0, 1), Err(libc::EBADF));
    b.create("open/mine");
    assert_eq!(owner(&node, "open/mine"), (B, B));
}

#[test]
fn a_user_begins_a_job_with_munge() {
    let dir = tempfile::tempdir().unwrap();
    let Some(munged) = forebay_testkit::Munged::start("a_user_begins_a_job_with_munge", dir.path()) else {
        return;
    };
    let socket = munged.socket().to_owned();
    let Some(node) = node(|c| {
        (c.act_as, c.munge_socket, c.jobs, c.secret) = (ActAs::Munge, Some(socket), Vec::new(), None);
        c.grace = std::time::Duration::from_millis(50);
    }) else {
        return;
    };
    let credential = |uid, key: u8| munged.credential(uid, &[JOB, &[key; 32]].concat(), &[]);
    let begin =
        |job: &str, key: u8, credential: &str| Client::begin(node.address, &[key; 32], job, credential);
    let first = credential(A, 1);
    let mut a = begin("run", 1, &first).unwrap();
    a.create("a/by-munge");
    assert_eq!(owner(&node, "a/by-munge"), (A, 65_534), "this machine knows no group of theirs");
    // The job's other processes know its secret, and need no credential.
    let mut second = Client::connect(node.address, &[1; 32], "run", new_session()).unwrap();
    assert!(second.open("a/by-munge", RW).is_ok());
    // Once is all a credential is good for.
    let refused = begin("again", 1, &first).err().unwrap();
    assert!(refused.text().contains("used before"), "{}", refused.text());
    // Whoever has it without the secret inside has nothing; nor has who knows the secret of none.
    assert!(begin("stolen", 9, &credential(A, 1)).is_err());
    assert!(Client::connect(node.address, &[2; 32], "run", new_session()).is_err());
    assert!(Client::connect(node.address, &[2; 32], "none", new_session()).is_err());
    // The name is taken, for others and for another secret.
    assert!(begin("run", 2, &credential(B, 2)).is_err());
    assert!(begin("run", 3, &credential(A, 3)).is_err());
    let mut b = begin("other", 2, &credential(B, 2)).unwrap();
    assert_eq!(b.open("a/by-munge", OpenFlags::READ), Err(libc::EACCES));
    let mut root = begin("root", 4, &credential(0, 4)).unwrap();
    assert_eq!(root.open("a/by-munge", OpenFlags::READ), Err(libc::EACCES), "root is nobody here");
    // Old, of another reader, of another service, none.
    let old = munged.credential(A, &[JOB, &[5; 32]].concat(), &["--ttl=1"]);
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert!(begin("old", 5, &old).err().unwrap().text().contains("too old"));
    let another = munged.credential(A, &[JOB, &[5; 32]].concat(), &["--restrict-uid=7001"]);
    let foreign = munged.credential(A, &[5; 32], &[]);
    let elsewhere = tempfile::tempdir().unwrap();
    let other = forebay_testkit::Munged::start("another cluster's MUNGE", elsewhere.path()).unwrap();
    let forged = other.credential(A, &[JOB, &[5; 32]].concat(), &[]);
    for wrong in [another.as_str(), &foreign, &forged, "MUNGE:AwQF:", "x"] {
        assert!(begin("wrong", 5, wrong).is_err(), "{wrong}");
    }
    // When its processes are gone the name is free.
    a.goodbye(false);
    second.goodbye(false);
    eventually("the name is free", || begin("run", 2, &credential(B, 2)).is_ok());
}

#[test]
fn nothing_leaks_into_the_next_request() {
    // One dispatcher, metadata scheduled, data merged: requests of all users go through the same thread.
    let Some(node) = node(|c| {
        c.dispatchers = 1;
        c.scheduler = "sfq-d:depth=1,merge=8".parse().unwrap();
    }) else {
        return;
    };
    std::thread::scope(|s| {
        for (name, uid) in [("a", A), ("b", B), ("c", C)] {
            let node = &node;
            s.spawn(move || {
                let (mut own, other) = (client(node, name), if name == "a" { "b" } else { "a" });
                for i in 0..150 {
                    let at = format!("open/{name}{i}");
                    let h = own.create(&at);
                    own.write(h, 0, &[1; 100]).unwrap();
                    assert_eq!(owner(node, &at), (uid, uid), "{at}");
                    assert_eq!(own.open(&format!("{other}/private"), OpenFlags::READ), Err(libc::EACCES));
                    assert!(own.open(&format!("{name}/private"), OpenFlags::READ).is_ok());
                    own.close(h).unwrap();
                }
            });
        }
    });
    assert!(node.report().dispatched_requests > 0, "some went through the dispatcher");
}

/// Sends writes of two jobs to one file, alternating and contiguous, and says how many were merged.
fn merged(node: &TestNode, jobs: [&str; 2]) -> u64 {
    let mut clients = jobs.map(|name| client(node, name));
    let handles = [0, 1].map(|i| clients[i].open("shared", RW).unwrap());
    for i in 0..40u64 {
        let at = (i % 2) as usize;
        let mut header = clients[at].header(Opcode::Write, 1000);
        (header.handle, header.offset) = (handles[at].into(), (i * 1000).into());
        clients[at].send(&header, &[i as u8; 1000]);
    }
    for i in 0..40 {
        assert_eq!(clients[i % 2].receive().status(), 0);
    }
    let data = std::fs::read(node.path("shared")).unwrap();
    assert!(data.chunks(1000).enumerate().all(|(i, c)| c == [i as u8; 1000]));
    node.report().merged_requests
}

#[test]
fn requests_of_two_users_are_never_merged() {
    let slow = || {
        let server = ServerModel { per_request: Nanos::from_millis(2), ..ServerModel::default() };
        EmulatedServers::new(StorageModel { servers: 1, server, ..StorageModel::default() })
    };
    let start = || {
        node(|c| {
            c.emulated = Some(slow());
            c.dispatchers = 1;
            c.scheduler = "fifo:merge=16".parse().unwrap();
        })
    };
    for (jobs, together) in [(["a", "a"], true), (["a", "b"], false)] {
        let Some(node) = start() else { return };
        std::fs::write(node.path("shared"), "").unwrap();
        std::fs::set_permissions(node.path("shared"), PermissionsExt::from_mode(0o666)).unwrap();
        let n = merged(&node, jobs);
        if together {
            assert!(n > 0, "this would show it");
        } else {
            // Of one user, neighbours in time are never neighbours in the file here.
            assert_eq!(n, 0);
        }
    }
}

#[test]
fn a_node_of_root_must_be_told_as_whom_it_serves() {
    if !rustix::process::geteuid().is_root() {
        return forebay_testkit::skipped("a node of root", "only root can");
    }
    let dir = tempfile::tempdir().unwrap();
    let start = |change: &dyn Fn(&mut NodeConfig)| {
        let mut config = NodeConfig {
            listen: vec!["tcp:127.0.0.1:0".parse().unwrap()],
            exports: vec![ExportConfig::new(dir.path(), "x")],
            secret: Some(Secret::new(SECRET)),
            ledger_dir: Some(dir.path().join("ledgers")),
            ..NodeConfig::default()
        };
        change(&mut config);
        Node::new(config).map(drop).map_err(|e| e.to_string())
    };
    let said = start(&|_| {}).unwrap_err();
    assert!(said.contains("--as USER") && said.contains("--identities"), "{said}");
    let unnamed = JobConfig { name: "j".into(), secret: Secret::new([1; 32]), weight: 1, user: None };
    assert!(start(&|c| c.jobs = vec![unnamed.clone()]).is_err());
    let said = start(&|c| c.act_as = ActAs::Arbiter).unwrap_err();
    assert!(said.contains("arbiter's address"), "{said}");
    for good in ["self", "root", "7001:7001", "nobody"] {
        start(&|c| c.act_as = good.parse().unwrap()).unwrap_or_else(|e| panic!("{good}: {e}"));
    }
    assert!("no-such-user".parse::<ActAs>().unwrap_err().contains("no user"));
}
