//! Arbiters, I/O nodes and verifying clients, under a test's control.
#![allow(dead_code)] // each test uses its part

use forebay_client::{Client, Config, ExportId, ExportMap, OpenFlags, Path as WirePath};
use forebay_control::job::{JobGrant, JobRequest};
use forebay_control::view::{HealthView, MappingView, NodeView};
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A process that ends with the test.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.0.id() as i32).expect("a process id");
        kill_process(pid, signal).expect("our own child takes signals");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that is stopped ends by this too.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until `what` gives something.
pub(crate) fn until<T>(patience: Duration, why: &str, mut what: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = what() {
            return found;
        }
        assert!(begin.elapsed() < patience, "after {patience:?}: {why}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A directory with a secret, where everything happens.
pub(crate) struct Place {
    dir: tempfile::TempDir,
    pub(crate) secret: String,
    agent: ureq::Agent,
}

impl Place {
    pub(crate) fn new() -> Place {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let dir = tempfile::Builder::new().prefix("forebay-test-").tempdir_in(base).expect("a directory");
        let secret: String =
            (0..32).map(|i| format!("{:02x}", (i * 41 + std::process::id()) as u8)).collect();
        std::fs::write(dir.path().join("secret"), &secret).expect("the secret");
        std::fs::create_dir(dir.path().join("data")).expect("the data");
        let config = ureq::Agent::config_builder()
            .proxy(None)
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(5)));
        Place { dir, secret, agent: config.build().into() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn launch(&self, name: &str, tell: impl FnOnce(&mut Command)) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        tell(&mut command);
        command.arg("--secret-file").arg(self.path().join("secret")).arg("--die-with-parent");
        let log = std::fs::File::create(self.path().join(format!("{name}.log"))).expect("a log");
        command.stdin(Stdio::null()).stderr(log);
        Process(command.spawn().expect("forebay starts"))
    }

    /// Starts an arbiter that keeps its own state under `name`; where it listens.
    pub(crate) fn arbiter(&self, name: &str, listen: &str, more: &[&str]) -> (Process, String) {
        let mut process = self.launch(name, |c| {
            c.args(["arbiter", "--listen", listen, "--policy", "static", "--state"])
                .arg(self.path().join(name));
            c.args(more).stdout(Stdio::piped());
        });
        let mut line = String::new();
        let said = process.0.stdout.take().expect("its output");
        BufReader::new(said).read_line(&mut line).expect("a line");
        let url = line.trim().strip_prefix("listening on ");
        (process, url.unwrap_or_else(|| panic!("{line:?}: {}", self.log(name))).to_owned())
    }

    /// Starts an I/O node that follows these arbiters.
    pub(crate) fn node(&self, id: usize, arbiters: &str) -> Process {
        let (name, ready) = (format!("node{id}"), self.path().join(format!("node{id}.ready")));
        let process = self.launch(&name, |c| {
            c.args(["node", "--listen", "tcp:127.0.0.1:0", "--arbiter", arbiters, "--id", &id.to_string()]);
            c.arg("--export").arg(format!("{}=data", self.data().display()));
            c.arg("--ready-file").arg(&ready).stdout(Stdio::null());
        });
        until(Duration::from_secs(60), &format!("{name} is not ready"), || ready.exists().then_some(()));
        process
    }

    /// What a log says.
    pub(crate) fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(format!("{name}.log"))).unwrap_or_default()
    }

    /// Status and body of an answer; `None` if there is none.
    pub(crate) fn get(&self, url: &str, path: &str) -> Option<(u16, String)> {
        let mut answer = self.agent.get(format!("{url}{path}")).call().ok()?;
        Some((answer.status().as_u16(), answer.body_mut().read_to_string().ok()?))
    }

    fn read<T: DeserializeOwned>(&self, url: &str, path: &str) -> Option<T> {
        let (status, body) = self.get(url, path)?;
        (status == 200).then(|| serde_json::from_str(&body).unwrap_or_else(|e| panic!("{path}: {e}: {body}")))
    }

    pub(crate) fn health(&self, url: &str) -> Option<HealthView> {
        self.read(url, "/v1/health")
    }

    pub(crate) fn nodes(&self, url: &str) -> Option<Vec<NodeView>> {
        self.read(url, "/v1/nodes")
    }

    pub(crate) fn mapping(&self, url: &str) -> Option<MappingView> {
        self.read(url, "/v1/mapping")
    }

    /// Registers a job of one compute node, or renews it: the grant, or status and words of a refusal.
    pub(crate) fn register(
        &self,
        url: &str,
        id: &str,
        secret: Option<&str>,
    ) -> Option<Result<JobGrant, (u16, String)>> {
        let job = JobRequest {
            id: id.into(),
            app: id.into(),
            user: "test".into(),
            compute_nodes: 1,
            processes: 4,
            weight: 1,
            secret: secret.map(str::to_owned),
            explore: false,
            pattern: None,
        };
        let post = self.agent.post(format!("{url}/v1/jobs"));
        let mut answer =
            post.header("Authorization", format!("Bearer {}", self.secret)).send_json(&job).ok()?;
        let status = answer.status().as_u16();
        let body = answer.body_mut().read_to_string().ok()?;
        Some(if status == 200 {
            Ok(serde_json::from_str(&body).expect("a grant"))
        } else {
            Err((status, body))
        })
    }

    /// A client of a job.
    pub(crate) fn client(&self, grant: &JobGrant, secret: &str) -> Client {
        let parse = |list: &[String]| list.iter().map(|a| a.parse().expect("an address")).collect();
        let config = Config {
            spare: parse(&grant.spare),
            epoch: grant.epoch,
            exports: vec![ExportMap { dir: self.data(), export: "data".into(), local: None }],
            deadline_ms: 60_000,
            ..Config::new(&grant.id, secret, parse(&grant.addresses))
        };
        Client::new(config, None).expect("a client")
    }
}

/// Clients that write and read back, and know what they must read.
pub(crate) struct Load {
    end: Arc<AtomicBool>,
    pub(crate) rounds: Arc<AtomicU64>,
    clients: Vec<JoinHandle<()>>,
}

const REQUEST: usize = 16 << 10;
const BLOCKS: u64 = 32;

impl Load {
    pub(crate) fn start(clients: Vec<Client>) -> Load {
        let (end, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let work = |(rank, client): (usize, Client)| {
            let (end, rounds) = (end.clone(), rounds.clone());
            std::thread::spawn(move || work(&client, rank, &end, &rounds))
        };
        Load { clients: clients.into_iter().enumerate().map(work).collect(), end, rounds }
    }

    /// Whether all are still at work.
    pub(crate) fn check(&self) {
        assert!(self.clients.iter().all(|c| !c.is_finished()), "a client has failed");
    }

    /// Ends; every call succeeded and every byte was right. How many rounds there were.
    pub(crate) fn finish(self) -> u64 {
        self.end.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().expect("no I/O error and no wrong byte");
        }
        self.rounds.load(Ordering::Relaxed)
    }
}

fn work(client: &Client, rank: usize, end: &AtomicBool, rounds: &AtomicU64) {
    let name = format!("file-{rank}");
    let path = WirePath { export: ExportId(0), rel: name.as_bytes() };
    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    let (file, _) = client.open(path, flags, 0o600).expect("the file opens");
    let mut data = vec![0u8; REQUEST];
    let mut versions = [0u8; BLOCKS as usize];
    for step in 0u64.. {
        if end.load(Ordering::Relaxed) {
            break;
        }
        let block = step * 7 % BLOCKS;
        versions[block as usize] = (step % 251) as u8 + 1;
        data.fill(versions[block as usize] ^ rank as u8);
        client.pwrite(&file, &data, block * REQUEST as u64).expect("a write");
        let other = step * 13 % BLOCKS;
        if versions[other as usize] != 0 {
            let got = client.pread(&file, &mut data, other * REQUEST as u64).expect("a read");
            assert_eq!(got, REQUEST, "a whole block");
            let wanted = versions[other as usize] ^ rank as u8;
            assert!(data.iter().all(|b| *b == wanted), "client {rank}, block {other}");
        }
        rounds.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(4));
    }
    client.leave();
}
