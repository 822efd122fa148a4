//! An arbiter and I/O nodes as processes of their own, for experiments that stop or kill them.

use anyhow::{Context, Result, bail};
use forebay_client::{Client, Config, ExportMap, Fallback, Spread};
use forebay_control::JOBS_PATH;
use forebay_control::job::{JobGrant, JobRequest};
use forebay_control::view::NodeView;
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;
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
    secret: String,
    url: String,
    agent: ureq::Agent,
    nodes: Vec<Process>,
    _arbiter: Process,
}

const READY: Duration = Duration::from_secs(20);

impl Pool {
    /// Starts them below `base` and waits until the arbiter knows all nodes.
    pub(super) fn start(base: &Path, count: usize) -> Result<Pool> {
        let dir = tempfile::Builder::new().prefix("forebay-experiment-").tempdir_in(base)?;
        std::fs::create_dir(dir.path().join("data"))?;
        let secret: String = rand::random::<[u8; 32]>().iter().map(|b| format!("{b:02x}")).collect();
        std::fs::write(dir.path().join("secret"), &secret)?;
        let state = dir.path().join("state");
        let mut arbiter = launch(dir.path(), "arbiter", |c| {
            c.args(["arbiter", "--listen", "127.0.0.1:0", "--policy", "static", "--state"]).arg(state);
            c.stdout(Stdio::piped());
        })?;
        let mut line = String::new();
        BufReader::new(arbiter.0.stdout.take().context("the arbiter's output")?).read_line(&mut line)?;
        let Some(url) = line.trim().strip_prefix("listening on ").map(str::to_owned) else {
            let log = std::fs::read_to_string(dir.path().join("arbiter.log")).unwrap_or_default();
            bail!("the arbiter does not start: {line}{log}");
        };
        let node = |n: usize| {
            launch(dir.path(), &format!("node{n}"), |c| {
                c.args(["node", "--listen", "tcp:127.0.0.1:0", "--arbiter", &url, "--id", &n.to_string()]);
                c.arg("--export").arg(format!("{}=data", dir.path().join("data").display()));
                c.stdout(Stdio::null());
            })
        };
        let nodes = (0..count).map(node).collect::<Result<Vec<_>>>()?;
        let config = ureq::Agent::config_builder().proxy(None).timeout_global(Some(Duration::from_secs(2)));
        let pool = Pool { dir, secret, url, agent: config.build().into(), nodes, _arbiter: arbiter };
        let begin = Instant::now();
        while pool.nodes()?.len() < count {
            if begin.elapsed() > READY {
                bail!("the I/O nodes do not find their arbiter");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(pool)
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let mut answer = self.agent.get(format!("{}{path}", self.url)).call()?;
        Ok(answer.body_mut().read_json()?)
    }

    /// The nodes as the arbiter sees them.
    pub(super) fn nodes(&self) -> Result<Vec<NodeView>> {
        self.get("/v1/nodes")
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
        let post = self.agent.post(format!("{}{JOBS_PATH}", self.url));
        let mut answer = post.header("Authorization", format!("Bearer {}", self.secret)).send_json(&job)?;
        Ok(answer.body_mut().read_json()?)
    }

    /// A client process of a job.
    pub(super) fn client(&self, grant: &JobGrant) -> Result<Client> {
        let parse = |list: &[String]| list.iter().map(|a| a.parse()).collect::<Result<Vec<_>, _>>();
        let config = Config {
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
        };
        Ok(Client::new(config, None)?)
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

/// Starts this program as something else.
fn launch(dir: &Path, name: &str, tell: impl FnOnce(&mut Command)) -> Result<Process> {
    let mut command = Command::new(std::env::current_exe()?);
    tell(&mut command);
    command.arg("--secret-file").arg(dir.join("secret")).arg("--die-with-parent");
    command.stdin(Stdio::null()).stderr(std::fs::File::create(dir.join(format!("{name}.log")))?);
    Ok(Process(command.spawn().with_context(|| format!("cannot start {name}"))?))
}
