//! I/O nodes and an arbiter as processes of their own, for what is measured on real ones: training and
//! experiments.

use crate::machine::program;
use anyhow::{Context, Result, bail};
use forebay_client::{Address, Client, Config, ExportMap};
use forebay_control::client::Client as Api;
use forebay_control::job::JobGrant;
use forebay_control::view::{NodeState, NodeView};
use forebay_embed::{ArbiterProcess, ArbiterSpec, Launcher, Log, NodeProcess, NodeSpec, RunDir, Transport};
use forebay_explore::run::Standing;
use forebay_node::control::{Command as Order, Reply};
use forebay_sched::SchedulerConfig;
use forebay_types::{Interval, Nanos, Secret};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long nodes may take to find their arbiter.
const PATIENCE: Duration = Duration::from_secs(30);
/// The name under which the data directory is exported.
const EXPORT: &str = "data";

/// Running I/O nodes that export one directory. Dropping it ends them.
pub(crate) struct Fleet {
    nodes: Vec<NodeProcess>,
    launcher: Launcher,
    data: PathBuf,
    _dir: RunDir,
}

impl Fleet {
    /// Starts `count` nodes that export `data`; `settings` are lines of their configuration file, `{dir}`
    /// in them a directory that they share.
    pub(crate) fn start(data: &Path, count: usize, settings: &str) -> Result<Fleet> {
        Fleet::listening(Transport::Unix, data, count, settings)
    }

    /// As [`Fleet::start`], with nodes that are reached in this way.
    pub(crate) fn listening(by: Transport, data: &Path, count: usize, settings: &str) -> Result<Fleet> {
        let data = data.canonicalize().with_context(|| format!("{}: where files go", data.display()))?;
        let dir = RunDir::in_memory()?;
        // That an arbiter is restarted is part of the experiment, and no news.
        let launcher = Launcher::new(&program()?, dir.path(), Log::Errors)?;
        let config = dir.path().join("nodes.toml");
        std::fs::write(&config, settings.replace("{dir}", &dir.path().display().to_string()))?;
        let nodes = launcher.nodes((0..count as u32).map(|id| NodeSpec {
            id,
            listen: (by == Transport::Tcp).then(|| "tcp:127.0.0.1:0".into()),
            exports: vec![format!("{}={EXPORT}", data.display())],
            more: vec!["--config".into(), config.display().to_string()],
        }))?;
        Ok(Fleet { nodes, launcher, data, _dir: dir })
    }

    fn addresses(&self) -> Vec<Address> {
        self.nodes.iter().filter_map(|n| n.addresses().first().cloned()).collect()
    }

    /// A node's process.
    pub(crate) fn node(&self, node: usize) -> Result<&NodeProcess> {
        self.nodes.get(node).context("there is no such I/O node")
    }

    /// The secret, as a file.
    pub(crate) fn secret_file(&self) -> PathBuf {
        self.launcher.secret_file()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Their processes.
    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        self.nodes.iter().map(|n| n.process.id())
    }

    /// The exported directory.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// A directory for what goes with the nodes and is removed with them.
    pub(crate) fn dir(&self) -> &Path {
        self.launcher.dir()
    }

    /// The nodes, for the explorer.
    pub(crate) fn standing(&self) -> Standing {
        let secret = self.launcher.secret().to_owned();
        Standing { addresses: self.addresses(), secret, export: Some(EXPORT.into()) }
    }

    /// A client of a job on one of the nodes; each is a compute process.
    pub(crate) fn client(&self, job: &str, node: usize) -> Result<Client> {
        let address = self.addresses().into_iter().nth(node).context("there is no such I/O node")?;
        let config = Config { nodes: vec![address], ..self.config(job, &self.data) };
        Ok(Client::new(config, None)?)
    }

    /// How processes of a job that no arbiter knows use all the nodes; they see the data at `seen`.
    pub(crate) fn config(&self, job: &str, seen: &Path) -> Config {
        Config {
            exports: vec![ExportMap { dir: seen.to_owned(), export: EXPORT.into(), local: None }],
            deadline_ms: 60_000,
            ..Config::new(job, self.launcher.secret(), self.addresses())
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
        NodeProcess::end_all(&mut self.nodes);
    }
}

/// A running arbiter for the nodes of a [`Fleet`]. Dropping it ends it.
pub(crate) struct Arbiter {
    process: Option<ArbiterProcess>,
    port: u16,
    url: String,
    secret: String,
}

impl Arbiter {
    /// A port that nobody listens on.
    pub(crate) fn free_port() -> Result<u16> {
        Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
    }

    /// Starts it with these lines of configuration and waits until it knows all nodes; its state is
    /// kept with the nodes', so that another one can go on with it.
    pub(crate) fn start(fleet: &Fleet, port: u16, settings: &str) -> Result<Arbiter> {
        let arbiter = Arbiter::launch(fleet, port, settings)?;
        arbiter.await_nodes(fleet.len())?;
        Ok(arbiter)
    }

    /// Starts it and waits until it listens.
    pub(crate) fn launch(fleet: &Fleet, port: u16, settings: &str) -> Result<Arbiter> {
        let process = fleet.launcher.arbiter(&ArbiterSpec {
            listen: format!("127.0.0.1:{port}"),
            settings: settings.into(),
            // In earnest it is on a machine of its own, and not in the way of requests.
            nice: true,
            ..ArbiterSpec::default()
        })?;
        let url = process.url().to_owned();
        Ok(Arbiter { process: Some(process), port, url, secret: fleet.launcher.secret().to_owned() })
    }

    fn await_nodes(&self, count: usize) -> Result<()> {
        let api = self.api()?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let nodes: Vec<NodeView> = api.get("/v1/nodes")?;
            if nodes.iter().filter(|n| n.state == NodeState::Admitted).count() >= count {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("the I/O nodes did not find the arbiter within {} s", PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The way to it.
    pub(crate) fn api(&self) -> Result<Api> {
        Ok(Api::new(&self.url, Secret::from_hex(&self.secret))?)
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
    pub(crate) fn kill(mut self) {
        // Dropping the process kills it.
        self.process = None;
    }

    /// Ends it and starts another one on the same state.
    pub(crate) fn restart(self, fleet: &Fleet, settings: &str) -> Result<Arbiter> {
        let port = self.port;
        drop(self);
        Arbiter::start(fleet, port, settings)
    }
}

impl Drop for Arbiter {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            process.end();
        }
    }
}
