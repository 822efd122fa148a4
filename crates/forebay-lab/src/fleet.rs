//! I/O nodes and an arbiter as processes of their own, for what is measured on real ones: training and
//! experiments.

use crate::api::Api;
use crate::machine::program;
use crate::scratch;
use anyhow::{Context, Result, bail};
use forebay_client::{Address, Client, Config, ExportMap};
use forebay_control::job::JobGrant;
use forebay_control::view::{NodeState, NodeView};
use forebay_explore::run::Standing;
use forebay_node::control::{Command as Order, Reply};
use forebay_pattern::Interval;
use forebay_sched::SchedulerConfig;
use forebay_types::Nanos;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a node may take to listen, and to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// The name under which the data directory is exported.
const EXPORT: &str = "data";

/// Running I/O nodes that export one directory. Dropping it ends them.
pub(crate) struct Fleet {
    dir: tempfile::TempDir,
    nodes: Vec<Child>,
    addresses: Vec<Address>,
    secret: String,
    data: PathBuf,
    listen: Listen,
}

/// How clients reach a node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listen {
    /// By a socket in the file system, the shortest way.
    Unix,
    /// By TCP over loopback.
    Tcp,
}

/// What a node writes once it listens.
#[derive(serde::Deserialize)]
struct Ready {
    addresses: Vec<String>,
}

impl Fleet {
    /// Starts `count` nodes that export `data`; `settings` are further lines of their configuration
    /// file, `{dir}` in them a directory that they share.
    pub(crate) fn start(data: &Path, count: usize, settings: &str) -> Result<Fleet> {
        Fleet::listening(Listen::Unix, data, count, settings)
    }

    /// As [`Fleet::start`], with nodes that are reached in this way.
    pub(crate) fn listening(listen: Listen, data: &Path, count: usize, settings: &str) -> Result<Fleet> {
        let dir = scratch::directory(&scratch::memory(), "fleet")?;
        let secret: String = rand::random::<[u8; 32]>().iter().map(|b| format!("{b:02x}")).collect();
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(dir.path().join("secret"))?;
        std::io::Write::write_all(&mut file, secret.as_bytes())?;
        let data = data.canonicalize().with_context(|| format!("{}: where files go", data.display()))?;
        let mut fleet = Fleet { dir, nodes: Vec::new(), addresses: Vec::new(), secret, data, listen };
        for n in 0..count {
            fleet.start_node(n, settings)?;
        }
        for n in 0..count {
            let address = fleet.await_ready(n)?;
            fleet.addresses.push(address);
        }
        Ok(fleet)
    }

    fn start_node(&mut self, n: usize, settings: &str) -> Result<()> {
        let dir = self.dir.path();
        let listen = match self.listen {
            Listen::Unix => format!("unix:{}", dir.join(format!("{n}.sock")).display()),
            Listen::Tcp => "tcp:127.0.0.1:0".to_owned(),
        };
        let config = format!(
            "id = {n}\nlisten = [{listen:?}]\nexport = [{:?}]\nsecret-file = \"secret\"\n{}\n",
            format!("{}={EXPORT}", self.data.display()),
            settings.replace("{dir}", &dir.display().to_string()),
        );
        let file = dir.join(format!("node{n}.toml"));
        std::fs::write(&file, config)?;
        let child = Command::new(program()?)
            .args(["node", "--die-with-parent", "--config"])
            .arg(&file)
            .arg("--ready-file")
            .arg(dir.join(format!("node{n}.ready")))
            // That an arbiter is restarted is part of the experiment, and no news.
            .env("FOREBAY_LOG", "error")
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start an I/O node")?;
        self.nodes.push(child);
        Ok(())
    }

    fn await_ready(&mut self, n: usize) -> Result<Address> {
        let deadline = Instant::now() + PATIENCE;
        let file = self.dir.path().join(format!("node{n}.ready"));
        while Instant::now() < deadline {
            if let Ok(text) = std::fs::read(&file) {
                let ready: Ready = serde_json::from_slice(&text)?;
                let first = ready.addresses.first().context("the I/O node listens nowhere")?;
                return Ok(first.parse()?);
            }
            if let Some(status) = self.nodes[n].try_wait()? {
                bail!("I/O node {n} did not start: {status}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("I/O node {n} did not listen within {} s", PATIENCE.as_secs())
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.addresses.len()
    }

    /// Their processes.
    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        self.nodes.iter().map(Child::id)
    }

    /// The exported directory.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// A directory for what goes with the nodes and is removed with them.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The nodes, for the explorer.
    pub(crate) fn standing(&self) -> Standing {
        Standing { addresses: self.addresses.clone(), secret: self.secret.clone(), export: EXPORT.into() }
    }

    /// A client of a job on one of the nodes; each is a compute process.
    pub(crate) fn client(&self, job: &str, node: usize) -> Result<Client> {
        let address = self.addresses.get(node).context("there is no such I/O node")?;
        let config = Config { nodes: vec![address.clone()], ..self.config(job, &self.data) };
        Ok(Client::new(config, None)?)
    }

    /// How processes of a job that no arbiter knows use all the nodes; they see the data at `seen`.
    pub(crate) fn config(&self, job: &str, seen: &Path) -> Config {
        Config {
            exports: vec![ExportMap { dir: seen.to_owned(), export: EXPORT.into(), local: None }],
            deadline_ms: 60_000,
            ..Config::new(job, &self.secret, self.addresses.clone())
        }
    }

    /// How processes of a job use the nodes that an arbiter gave it.
    pub(crate) fn granted(&self, grant: &JobGrant) -> Result<Config> {
        let parse = |list: &[String]| list.iter().map(|a| a.parse()).collect::<Result<Vec<_>, _>>();
        Ok(Config {
            secret: grant.secret.clone().context("a grant without a secret")?,
            nodes: parse(&grant.addresses)?,
            spare: parse(&grant.spare)?,
            epoch: grant.epoch,
            ..self.config(&grant.id, &self.data)
        })
    }

    /// Gives a node an order; its answer.
    pub(crate) fn tell(&self, node: usize, order: &Order) -> Result<Reply> {
        let client = self.client("control", node)?;
        let answer = client.control(0, &serde_json::to_vec(order)?);
        client.leave();
        let reply: Reply = serde_json::from_slice(&answer?)?;
        match reply.error {
            Some(error) => bail!("I/O node {node}: {error}"),
            None => Ok(reply),
        }
    }

    /// The intervals of a node that began at or after `since`.
    pub(crate) fn intervals(&self, node: usize, since: Nanos) -> Result<Vec<Interval>> {
        let reply = self.tell(node, &Order::Intervals { after: since })?;
        let all = reply.intervals.context("the I/O node gave no intervals")?;
        Ok(all.into_iter().filter(|i| i.start >= since).collect())
    }

    /// Every node schedules so from now on.
    pub(crate) fn schedule(&self, set: &SchedulerConfig) -> Result<()> {
        (0..self.len()).try_for_each(|n| {
            self.tell(n, &Order::Scheduler { set: Some(set.clone()) })?;
            Ok(())
        })
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        end(&mut self.nodes);
    }
}

/// A running arbiter for the nodes of a [`Fleet`]. Dropping it ends it.
pub(crate) struct ArbiterProcess {
    child: Child,
    port: u16,
    secret: String,
}

impl ArbiterProcess {
    /// A port that nobody listens on.
    pub(crate) fn free_port() -> Result<u16> {
        Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
    }

    /// Starts it with further lines of configuration and waits until it knows all nodes; its state is
    /// kept with the nodes', so that another one can go on with it.
    pub(crate) fn start(fleet: &Fleet, port: u16, settings: &str) -> Result<ArbiterProcess> {
        let mut arbiter = ArbiterProcess::launch(fleet, port, settings)?;
        arbiter.await_nodes(fleet.len())?;
        Ok(arbiter)
    }

    /// Starts it and waits until it listens.
    pub(crate) fn launch(fleet: &Fleet, port: u16, settings: &str) -> Result<ArbiterProcess> {
        let dir = fleet.dir();
        let file = dir.join("arbiter.toml");
        let config = format!(
            "listen = \"127.0.0.1:{port}\"\nsecret-file = \"secret\"\nstate = \"arbiter\"\n{settings}\n"
        );
        std::fs::write(&file, config)?;
        // In earnest it is on a machine of its own, and not in the way of requests.
        let child = Command::new("nice")
            .arg(program()?)
            .args(["arbiter", "--die-with-parent", "--config"])
            .arg(&file)
            .env("FOREBAY_LOG", "error")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start the arbiter")?;
        let mut arbiter = ArbiterProcess { child, port, secret: fleet.secret.clone() };
        arbiter.await_nodes(0)?;
        Ok(arbiter)
    }

    fn await_nodes(&mut self, count: usize) -> Result<()> {
        let client = self.api();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let nodes: Result<Vec<NodeView>> = client.get("/v1/nodes");
            let here = |n: &&NodeView| n.state == NodeState::Admitted;
            if nodes.is_ok_and(|n| n.iter().filter(here).count() >= count) {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the arbiter did not start: {status}");
            }
            if Instant::now() > deadline {
                bail!("the I/O nodes did not find the arbiter within {} s", PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The way to it.
    pub(crate) fn api(&self) -> Api {
        Api::new(self.port, &self.secret)
    }

    /// Where it listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// What it shares with its nodes.
    pub(crate) fn secret(&self) -> &str {
        &self.secret
    }

    /// Kills it at once.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Ends it and starts another one on the same state.
    pub(crate) fn restart(self, fleet: &Fleet, settings: &str) -> Result<ArbiterProcess> {
        let port = self.port;
        drop(self);
        ArbiterProcess::start(fleet, port, settings)
    }
}

impl Drop for ArbiterProcess {
    fn drop(&mut self) {
        end(std::slice::from_mut(&mut self.child));
    }
}

/// Asks processes to end, and makes them after a while.
fn end(children: &mut [Child]) {
    for child in children.iter() {
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            // One that is stopped hears it only then.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::CONT);
        }
    }
    let deadline = Instant::now() + PATIENCE;
    for child in children {
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}
