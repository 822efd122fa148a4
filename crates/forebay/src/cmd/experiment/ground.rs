//! The I/O nodes of an experiment and their clients. Nodes on emulated storage run in this process,
//! since they share the emulated data servers; clients reach them over Unix sockets as ever.

use anyhow::{Context, Result, bail};
use forebay_client::{
    Client, Config, ExportId, ExportMap, Fallback, File, OpenFlags, Path as WirePath, Spread,
};
use forebay_node::config::{EmulatedServers, ExportConfig, Listen, NodeConfig, read_secret};
use forebay_node::control::{Command, Reply};
use forebay_node::{Node, Running};
use forebay_sched::SchedulerConfig;
use forebay_sched::emulate::StorageModel;
use forebay_types::NodeId;
use std::path::Path;

/// Running I/O nodes on one emulated storage.
pub(super) struct Ground {
    dir: tempfile::TempDir,
    nodes: Vec<Running>,
    secret: String,
}

impl Ground {
    /// Starts `count` nodes that store below `base`.
    pub(super) fn start(
        base: &Path,
        count: usize,
        model: &StorageModel,
        dispatchers: usize,
    ) -> Result<Ground> {
        let servers = EmulatedServers::new(model.clone());
        Ground::start_with(base, count, |c| {
            c.emulated = Some(servers.clone());
            c.dispatchers = dispatchers;
        })
    }

    /// The same, with what else the nodes are told.
    pub(super) fn start_with(base: &Path, count: usize, tell: impl Fn(&mut NodeConfig)) -> Result<Ground> {
        let dir = tempfile::Builder::new().prefix("forebay-experiment-").tempdir_in(base)?;
        let data = dir.path().join("data");
        std::fs::create_dir(&data)?;
        let secret: String = rand::random::<[u8; 32]>().iter().map(|b| format!("{b:02x}")).collect();
        let secret_file = dir.path().join("secret");
        std::fs::write(&secret_file, &secret)?;
        let mut nodes = Vec::new();
        for n in 0..count {
            let mut config = NodeConfig {
                id: NodeId(n as u32),
                listen: vec![Listen::Unix(dir.path().join(format!("{n}.sock")))],
                exports: vec![ExportConfig { path: data.clone(), name: "data".into() }],
                secret: Some(read_secret(&secret_file)?),
                memory: 2 << 30,
                ..NodeConfig::default()
            };
            tell(&mut config);
            nodes.push(Node::start(config)?);
        }
        Ok(Ground { dir, nodes, secret })
    }

    /// A client of a job on one of the nodes; each is a compute process.
    pub(super) fn client(&self, job: &str, node: usize) -> Result<Client> {
        let address = self.nodes[node].addresses().first().context("the node listens nowhere")?.to_string();
        let data = self.dir.path().join("data");
        let config = Config {
            job: job.into(),
            secret: self.secret.clone(),
            nodes: vec![address.parse()?],
            spare: Vec::new(),
            epoch: Default::default(),
            exports: vec![ExportMap { dir: data, export: "data".into(), local: None }],
            spread: Spread::Process,
            deadline_ms: 120_000,
            fallback: Fallback::Error,
            placeholder: None,
        };
        Ok(Client::new(config, None)?)
    }

    /// Every node schedules so from now on.
    pub(super) fn schedule(&self, spec: &str) -> Result<()> {
        let set: SchedulerConfig = spec.parse()?;
        self.control(&Command::Scheduler { set: Some(set) })
    }

    /// Gives a job another share on every node.
    pub(super) fn weigh(&self, job: &str, weight: u32) -> Result<()> {
        self.control(&Command::Weight { job: job.into(), weight })
    }

    fn control(&self, command: &Command) -> Result<()> {
        for n in 0..self.nodes.len() {
            let client = self.client("control", n)?;
            let reply: Reply = serde_json::from_slice(&client.control(0, &serde_json::to_vec(command)?)?)?;
            client.leave();
            if let Some(error) = reply.error {
                bail!("I/O node {n}: {error}");
            }
        }
        Ok(())
    }

    /// The bytes of writes that the nodes have answered to a job.
    pub(super) fn written(&self, job: &str) -> u64 {
        let reports: Vec<_> = self.nodes.iter().map(|n| n.node().report()).collect();
        let flows = reports.iter().flat_map(|r| &r.flows).filter(|f| f.job == job);
        flows.filter_map(|f| f.operations.get("write")).map(|o| o.bytes).sum()
    }

    /// Where the files are.
    pub(super) fn data(&self) -> std::path::PathBuf {
        self.dir.path().join("data")
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        for node in self.nodes.drain(..) {
            node.drain();
        }
    }
}

/// A name in the exported directory.
pub(super) fn at(name: &str) -> WirePath<'_> {
    WirePath { export: ExportId(0), rel: name.as_bytes() }
}

/// Opens a file for reading and writing, and makes it if need be.
pub(super) fn open(client: &Client, name: &str) -> Result<File> {
    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    Ok(client.open(at(name), flags, 0o600).with_context(|| format!("cannot open {name}"))?.0)
}

/// Runs `work` as so many processes at once, from a common start; what they return, in order.
pub(super) fn processes<T: Send>(count: usize, work: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..count)
            .map(|rank| {
                s.spawn({
                    let work = &work;
                    move || work(rank)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|t| t.join().unwrap_or_else(|_| bail!("a process of the experiment failed")))
            .collect()
    })
}
