//! A real etcd cluster on loopback, for tests: three members with ports and directories of their own,
//! which end with the test.

#![allow(dead_code)] // each test uses its part

use forebay_arbiter::ha::{Etcd, EtcdUrl};
use std::fs::File;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Says loudly that a test is not run.
pub(crate) fn skip(test: &str) -> bool {
    let there =
        Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success());
    if !there {
        for line in ["", "SKIPPED: etcd is not installed (Debian's etcd-server, see scripts/test-packages):"]
        {
            println!("{line}");
            eprintln!("{line}");
        }
        eprintln!("SKIPPED: {test}");
    }
    !there
}

/// Sends a signal to a process of ours.
pub(crate) fn signal(pid: u32, name: &str) {
    let done = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(done.is_ok_and(|s| s.success()), "kill -{name} {pid}");
}

struct Member {
    child: Option<Child>,
    client: u16,
    peer: u16,
}

/// Three members.
pub(crate) struct Cluster {
    dir: tempfile::TempDir,
    members: Vec<Member>,
}

impl Cluster {
    /// Waits until it answers. Ports may be snatched by others meanwhile: then it tries again.
    pub(crate) fn start() -> Cluster {
        for _ in 0..5 {
            let mut cluster = Cluster::new();
            for n in 0..cluster.members.len() {
                cluster.launch(n);
            }
            if cluster.answers(Duration::from_secs(20)) {
                return cluster;
            }
        }
        panic!("no etcd cluster came up in five tries");
    }

    fn new() -> Cluster {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let dir = tempfile::Builder::new().prefix("forebay-etcd-").tempdir_in(base).expect("a directory");
        // Held together until all are known, so that they differ.
        let held: Vec<TcpListener> =
            (0..6).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
        let port = |i: usize| held[i].local_addr().expect("bound").port();
        let members =
            (0..3).map(|n| Member { child: None, client: port(2 * n), peer: port(2 * n + 1) }).collect();
        Cluster { dir, members }
    }

    /// Starts a member, for the first time or again.
    pub(crate) fn launch(&mut self, n: usize) {
        let all: Vec<String> = self
            .members
            .iter()
            .enumerate()
            .map(|(i, m)| format!("m{i}=http://127.0.0.1:{}", m.peer))
            .collect();
        let log = File::create(self.dir.path().join(format!("m{n}.log"))).expect("a log");
        let member = &mut self.members[n];
        let (client, peer) =
            (format!("http://127.0.0.1:{}", member.client), format!("http://127.0.0.1:{}", member.peer));
        // setpriv: a member does not outlive a test that was killed.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "etcd", "--name", &format!("m{n}"), "--data-dir"])
            .arg(self.dir.path().join(format!("m{n}")))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &all.join(","), "--initial-cluster-state", "new"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("etcd starts");
        member.child = Some(child);
    }

    fn answers(&self, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        (0..self.members.len()).all(|n| {
            let url: EtcdUrl = format!("etcd://127.0.0.1:{}", self.members[n].client).parse().expect("a URL");
            Etcd::new(&url).get("is there anybody", end).is_ok()
        })
    }

    /// For `--ha`.
    pub(crate) fn url(&self) -> String {
        let all: Vec<String> = self.members.iter().map(|m| format!("127.0.0.1:{}", m.client)).collect();
        format!("etcd://{}", all.join(","))
    }

    /// A client.
    pub(crate) fn etcd(&self) -> Etcd {
        Etcd::new(&self.url().parse().expect("a URL"))
    }

    /// Process id of a member that runs.
    pub(crate) fn pid(&self, n: usize) -> u32 {
        self.members[n].child.as_ref().expect("it runs").id()
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self, n: usize) {
        if let Some(mut child) = self.members[n].child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for n in 0..self.members.len() {
            self.kill(n);
        }
    }
}
