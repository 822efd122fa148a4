//! An etcd cluster on this machine, for those who try what arbiters do when it breaks: three members on
//! loopback with ports and directories of their own.

use crate::{Process, RunDir};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// For all tries together.
const START: Duration = Duration::from_secs(20);
const ANSWER: Duration = Duration::from_secs(2);
/// Ports may be snatched by others between the look for them and their use.
const TRIES: u32 = 3;

struct Member {
    process: Option<Process>,
    client: u16,
    peer: u16,
}

impl Member {
    /// Whether it answers, and knows a leader.
    fn is_healthy(&self) -> bool {
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, self.client));
        let ask = || -> io::Result<String> {
            let mut stream = TcpStream::connect_timeout(&at, ANSWER)?;
            stream.set_read_timeout(Some(ANSWER))?;
            stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
            let mut text = String::new();
            stream.take(1 << 16).read_to_string(&mut text)?;
            Ok(text)
        };
        ask().is_ok_and(|text| text.contains("\"true\""))
    }
}

fn log_of(dir: &RunDir, n: usize) -> PathBuf {
    dir.path().join(format!("m{n}.log"))
}

/// Three members; they end with it.
pub struct Etcd {
    members: Vec<Member>,
    dir: RunDir,
}

impl Etcd {
    /// How many members it has.
    pub const MEMBERS: usize = 3;

    /// Starts one, and waits until all members answer.
    ///
    /// # Errors
    /// If there is no etcd here, or it does not come up.
    pub fn start() -> io::Result<Etcd> {
        let until = Instant::now() + START;
        let mut why = format!("no etcd cluster came up within {} s", START.as_secs());
        for _ in 0..TRIES {
            let mut cluster = Etcd::new()?;
            (0..Etcd::MEMBERS).try_for_each(|n| cluster.launch(n))?;
            // One that has ended does not come up: its port may be another's.
            loop {
                if cluster.members.iter().all(Member::is_healthy) {
                    return Ok(cluster);
                }
                if let Some(ended) = cluster.casualty()? {
                    why = ended;
                    break;
                }
                if Instant::now() > until {
                    return Err(io::Error::other(why));
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Err(io::Error::other(why))
    }

    /// How a member ended, and what it said last.
    fn casualty(&mut self) -> io::Result<Option<String>> {
        for (n, member) in self.members.iter_mut().enumerate() {
            let Some(status) = member.process.as_mut().map(Process::try_wait).transpose()?.flatten() else {
                continue;
            };
            let mut log = String::new();
            let _ = File::open(log_of(&self.dir, n)).and_then(|f| f.take(1 << 16).read_to_string(&mut log));
            let last = log.lines().last().map_or(String::new(), |line| format!(": {line}"));
            return Ok(Some(format!("etcd ended ({status}){last}")));
        }
        Ok(None)
    }

    fn new() -> io::Result<Etcd> {
        let dir = RunDir::in_memory().map_err(io::Error::other)?;
        // Held together until all are known, so that they differ.
        let held = (0..2 * Etcd::MEMBERS)
            .map(|_| TcpListener::bind("127.0.0.1:0"))
            .collect::<io::Result<Vec<_>>>()?;
        let ports = held.iter().map(|l| Ok(l.local_addr()?.port())).collect::<io::Result<Vec<u16>>>()?;
        let member = |two: &[u16]| Member { process: None, client: two[0], peer: two[1] };
        Ok(Etcd { members: ports.chunks_exact(2).map(member).collect(), dir })
    }

    /// Starts a member, for the first time or again.
    ///
    /// # Errors
    /// If there is no etcd here.
    pub fn launch(&mut self, n: usize) -> io::Result<()> {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let all: Vec<String> =
            self.members.iter().enumerate().map(|(i, m)| format!("m{i}={}", url(m.peer))).collect();
        let log = File::create(log_of(&self.dir, n))?;
        let member = &mut self.members[n];
        let (client, peer) = (url(member.client), url(member.peer));
        let mut command = Command::new("etcd");
        command.args(["--name", &format!("m{n}"), "--data-dir"]).arg(self.dir.path().join(format!("m{n}")));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &all.join(","), "--initial-cluster-state", "new"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        member.process = Some(Process::start(&mut command)?);
        Ok(())
    }

    /// For `--ha`.
    pub fn url(&self) -> String {
        let all: Vec<String> = self.members.iter().map(|m| format!("127.0.0.1:{}", m.client)).collect();
        format!("etcd://{}", all.join(","))
    }

    /// A member, if it runs.
    pub fn member(&self, n: usize) -> Option<&Process> {
        self.members[n].process.as_ref()
    }

    /// Kills a member at once.
    pub fn kill(&mut self, n: usize) {
        // Dropping a process kills it.
        self.members[n].process = None;
    }
}
