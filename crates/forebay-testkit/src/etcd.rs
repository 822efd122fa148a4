//! A real etcd cluster on loopback: three members with ports and directories of their own, which end with
//! the test.

use crate::{Process, RunDir, skip::needs};
use std::fs::File;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

struct Member {
    process: Option<Process>,
    client: u16,
    peer: u16,
}

/// Three members.
pub struct Cluster {
    members: Vec<Member>,
    agent: ureq::Agent,
    dir: RunDir,
}

impl Cluster {
    /// Starts one and waits until it answers; `None`, and said so, where there is no etcd.
    pub fn start(test: &str) -> Option<Cluster> {
        // Debian's package etcd-server.
        if !needs(test, &["etcd"]) {
            return None;
        }
        // Ports may be snatched by others meanwhile: then it tries again.
        for _ in 0..5 {
            let mut cluster = Cluster::new();
            for n in 0..cluster.members.len() {
                cluster.launch(n);
            }
            if cluster.answers(Duration::from_secs(20)) {
                return Some(cluster);
            }
        }
        panic!("no etcd cluster came up in five tries");
    }

    fn new() -> Cluster {
        let dir = RunDir::in_memory().expect("a directory");
        // Held together until all are known, so that they differ.
        let held: Vec<TcpListener> =
            (0..6).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
        let port = |i: usize| held[i].local_addr().expect("bound").port();
        let members =
            (0..3).map(|n| Member { process: None, client: port(2 * n), peer: port(2 * n + 1) }).collect();
        let config =
            ureq::Agent::config_builder().proxy(None).timeout_global(Some(Duration::from_secs(2))).build();
        Cluster { members, agent: config.into(), dir }
    }

    /// Starts a member, for the first time or again.
    pub fn launch(&mut self, n: usize) {
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
        let mut command = Command::new("etcd");
        command.args(["--name", &format!("m{n}"), "--data-dir"]).arg(self.dir.path().join(format!("m{n}")));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &all.join(","), "--initial-cluster-state", "new"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        member.process = Some(Process::start(&mut command).expect("etcd starts"));
    }

    fn answers(&self, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        let healthy = |m: &Member| {
            let url = format!("http://127.0.0.1:{}/health", m.client);
            self.agent
                .get(url)
                .call()
                .is_ok_and(|mut a| a.body_mut().read_to_string().is_ok_and(|text| text.contains("true")))
        };
        while !self.members.iter().all(healthy) {
            if Instant::now() > end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        true
    }

    /// For `--ha`.
    pub fn url(&self) -> String {
        let all: Vec<String> = self.members.iter().map(|m| format!("127.0.0.1:{}", m.client)).collect();
        format!("etcd://{}", all.join(","))
    }

    fn member(&self, n: usize) -> &Process {
        self.members[n].process.as_ref().expect("it runs")
    }

    /// Stops a member, and waits until it stands still.
    pub fn freeze(&self, n: usize) {
        self.member(n).freeze().expect("our own child takes signals");
    }

    /// Lets it go on.
    pub fn thaw(&self, n: usize) {
        self.member(n).thaw().expect("our own child takes signals");
    }

    /// Kills a member at once.
    pub fn kill(&mut self, n: usize) {
        // Dropping a process kills it.
        self.members[n].process = None;
    }
}
