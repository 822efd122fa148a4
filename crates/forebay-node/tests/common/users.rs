//! A node of root with users.

use super::{Client, RW, SECRET, TestNode, new_session};
use forebay_control::node::{JobMapping, Term};
use forebay_node::config::{ActAs, JobConfig, NodeConfig};
use forebay_node::control::Command;
use forebay_types::{Epoch, Identity, Secret};
use forebay_wire::flags::OpenFlags;
use std::os::unix::fs::{PermissionsExt, chown};

pub const A: u32 = 7001;
pub const B: u32 = 7002;
pub const C: u32 = 7003;
/// A group of A and C.
pub const TEAM: u32 = 7100;
pub const CREATE: OpenFlags = OpenFlags(RW.0 | OpenFlags::CREATE.0);

/// A node of root with a job for each user, whose secret is its number; `None` where nobody is root.
pub fn node(change: impl FnOnce(&mut NodeConfig)) -> Option<TestNode> {
    if !rustix::process::geteuid().is_root() {
        forebay_testkit::skipped("a node that acts as others", "only root can");
        return None;
    }
    let job = |name: &str, uid: u32, groups: &[u32]| JobConfig {
        name: name.into(),
        secret: Secret::new([uid as u8; 32]),
        weight: 1,
        user: Some(Identity { uid, gid: uid, groups: groups.to_vec() }),
    };
    let node = TestNode::with(|c| {
        c.act_as = ActAs::Unsaid;
        c.jobs = vec![job("a", A, &[TEAM]), job("b", B, &[]), job("c", C, &[TEAM])];
        change(c);
    });
    // The process's umask is the nodes', which have none.
    std::fs::set_permissions(node.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    for (name, uid) in [("a", A), ("b", B), ("c", C)] {
        directory(&node, name, uid, uid, 0o700);
        std::fs::write(node.path(&format!("{name}/private")), name).unwrap();
        chown(node.path(&format!("{name}/private")), Some(uid), Some(uid)).unwrap();
    }
    directory(&node, "open", 0, 0, 0o1777);
    directory(&node, "team", A, TEAM, 0o2770);
    Some(node)
}

pub fn directory(node: &TestNode, name: &str, uid: u32, gid: u32, mode: u32) {
    std::fs::create_dir(node.path(name)).unwrap();
    chown(node.path(name), Some(uid), Some(gid)).unwrap();
    std::fs::set_permissions(node.path(name), PermissionsExt::from_mode(mode)).unwrap();
}

pub fn client(node: &TestNode, name: &str) -> Client {
    let uid = match name {
        "a" => A,
        "b" => B,
        _ => C,
    };
    Client::connect(node.address, &[uid as u8; 32], name, new_session()).unwrap()
}

/// As an arbiter tells of a job.
pub fn told(job: &str, secret: u8, user: &str) -> JobMapping {
    JobMapping {
        job: job.into(),
        secret: Secret::new([secret; 32]).to_hex(),
        weight: 1,
        epoch: Epoch(1),
        nodes: vec!["tcp:127.0.0.1:1".into()],
        user: Identity::from_numbers(user),
    }
}

pub fn tell(node: &TestNode, jobs: Vec<JobMapping>, ended: &[&str]) {
    let mut admin = Client::connect(node.address, &SECRET, "admin", new_session()).unwrap();
    let ended = ended.iter().map(|e| (*e).to_owned()).collect();
    let said = admin.control(&Command::Mapping { term: Term(1), complete: false, jobs, ended });
    assert_eq!(said.error, None);
}
