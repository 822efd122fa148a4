//! An arbiter and I/O nodes as processes of their own, for experiments that stop or kill them.

use crate::arbiter::Arbiter;
use anyhow::{Context, Result, bail};
use forebay_client::{Client, Config, ExportMap, Fallback, Spread};
use forebay_control::JOBS_PATH;
use forebay_control::job::{JobGrant, JobRequest, PinRequest};
use forebay_control::view::NodeView;
use forebay_types::{Epoch, NodeId};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A process that ends with its owner.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // One that is stopped ends by this too.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An arbiter and its I/O nodes, which all export one directory.
pub(super) struct Pool {
    dir: tempfile::TempDir,
    url: String,
    api: Arbiter,
    nodes: Vec<Process>,
    arbiter: Option<Process>,
}

const READY: Duration = Duration::from_secs(20);

impl Pool {
    /// Starts them below `base` and waits until the arbiter knows all nodes.
    pub(super) fn start(base: &Path, count: usize) -> Result<Pool> {
        let dir = tempfile::Builder::new().prefix("forebay-experiment-").tempdir_in(base)?;
        std::fs::create_dir(dir.path().join("data"))?;
        let secret: String = rand::random::<[u8; 32]>().iter().map(|b| format!("{b:02x}")).collect();
        std::fs::write(dir.path().join("secret"), &secret)?;
        let (arbiter, url) = launch_arbiter(dir.path(), "127.0.0.1:0")?;
        let node = |n: usize| {
            launch(dir.path(), &format!("node{n}"), |c| {
                c.args(["node", "--listen", "tcp:127.0.0.1:0", "--arbiter", &url, "--id", &n.to_string()]);
                c.arg("--export").arg(format!("{}=data", dir.path().join("data").display()));
                c.stdout(Stdio::null());
            })
        };
        let nodes = (0..count).map(node).collect::<Result<Vec<_>>>()?;
        let api = Arbiter::new(&url, Some(secret))?;
        let pool = Pool { dir, url, api, nodes, arbiter: Some(arbiter) };
        let begin = Instant::now();
        while pool.nodes()?.len() < count {
            if begin.elapsed() > READY {
                bail!("the I/O nodes do not find their arbiter");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(pool)
    }

    /// The nodes as the arbiter sees them.
    pub(super) fn nodes(&self) -> Result<Vec<NodeView>> {
        self.api.get("/v1/nodes")
    }

    /// Registers a job of one compute node, or renews its lease.
    pub(super) fn register(&self, id: &str, secret: Option<String>) -> Result<JobGrant> {
        let job = JobRequest {
            id: id.into(),
            app: id.into(),
            user: "experiment".into(),
            compute_nodes: 1,
            processes: 2,
            weight: 1,
            secret,
            explore: false,
            pattern: None,
        };
        Ok(self.api.send("POST", JOBS_PATH, Some(&job))?)
    }

    /// Puts a job on these I/O nodes; the epoch of that mapping.
    pub(super) fn pin(&self, id: &str, nodes: &[u32]) -> Result<Epoch> {
        let wanted = PinRequest { nodes: nodes.iter().map(|n| NodeId(*n)).collect() };
        let path = format!("{JOBS_PATH}/{id}/nodes");
        Ok(self.api.send::<JobGrant>("PUT", &path, Some(&wanted))?.epoch)
    }

    /// Kills the arbiter at once.
    pub(super) fn kill_arbiter(&mut self) {
        self.arbiter = None;
    }

    /// Starts the arbiter where it was before.
    pub(super) fn start_arbiter(&mut self) -> Result<()> {
        let listen = self.url.trim_start_matches("http://").to_owned();
        self.arbiter = Some(launch_arbiter(self.dir.path(), &listen)?.0);
        Ok(())
    }

    /// Writes a job's client configuration to a file, for processes of its own.
    pub(super) fn client_config(&self, grant: &JobGrant) -> Result<PathBuf> {
        let path = self.dir.path().join(format!("{}.json", grant.id));
        std::fs::write(&path, serde_json::to_vec(&self.config(grant)?)?)?;
        Ok(path)
    }

    /// A client process of a job.
    pub(super) fn client(&self, grant: &JobGrant) -> Result<Client> {
        Ok(Client::new(self.config(grant)?, None)?)
    }

    fn config(&self, grant: &JobGrant) -> Result<Config> {
        let parse = |list: &[String]| list.iter().map(|a| a.parse()).collect::<Result<Vec<_>, _>>();
        Ok(Config {
            job: grant.id.clone(),
            secret: grant.secret.clone().context("a grant without a secret")?,
            nodes: parse(&grant.addresses)?,
            spare: parse(&grant.spare)?,
            epoch: grant.epoch,
            exports: vec![ExportMap { dir: self.data(), export: "data".into(), local: None }],
            spread: Spread::Process,
            deadline_ms: 60_000,
            fallback: Fallback::Error,
            placeholder: None,
        })
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Sends a node's process a signal.
    pub(super) fn signal(&self, node: usize, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.nodes[node].0.id()).ok().and_then(Pid::from_raw);
        Ok(kill_process(pid.context("a process without an id")?, signal)?)
    }
}

/// Starts an arbiter; with the address it listens on.
fn launch_arbiter(dir: &Path, listen: &str) -> Result<(Process, String)> {
    let mut arbiter = launch(dir, "arbiter", |c| {
        c.args(["arbiter", "--listen", listen, "--policy", "static", "--state"]).arg(dir.join("state"));
        c.stdout(Stdio::piped());
    })?;
    let mut line = String::new();
    BufReader::new(arbiter.0.stdout.take().context("the arbiter's output")?).read_line(&mut line)?;
    match line.trim().strip_prefix("listening on ") {
        Some(url) => Ok((arbiter, url.to_owned())),
        None => {
            let log = std::fs::read_to_string(dir.join("arbiter.log")).unwrap_or_default();
            bail!("the arbiter does not start: {line}{log}");
        }
    }
}

/// Starts this program as something else.
fn launch(dir: &Path, name: &str, tell: impl FnOnce(&mut Command)) -> Result<Process> {
    let mut command = Command::new(std::env::current_exe()?);
    tell(&mut command);
    command.arg("--secret-file").arg(dir.join("secret")).arg("--die-with-parent");
    command.stdin(Stdio::null()).stderr(std::fs::File::create(dir.join(format!("{name}.log")))?);
    Ok(Process(command.spawn().with_context(|| format!("cannot start {name}"))?))
}
