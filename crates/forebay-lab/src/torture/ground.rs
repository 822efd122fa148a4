//! The I/O nodes and the arbiter that things are done to.

use crate::machine::program;
use anyhow::{Context, Result};
use forebay_client::{Config, ExportMap};
use forebay_control::client::Client as Api;
use forebay_control::view::{NodeState, NodeView};
use forebay_embed::{
    ArbiterProcess, ArbiterSpec, Launcher, Log, NodeProcess, NodeSpec, PRELOAD, RunDir, write_config,
};
use forebay_types::{NodeId, Secret};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Each of two hosts has two nodes, those that share and those whose hosts forget.
pub(super) const NODES: usize = 4;
const LEASE_MS: u64 = 500;
const PATIENCE: Duration = Duration::from_secs(60);
/// The forwarded directory, as workers see it: it need not exist.
pub(super) const AT: &str = "/forebay-torture";
const EXPORT: &str = "data";
const JOB: &str = "torture";

/// An I/O node, running or not.
pub(super) struct Member {
    pub(super) process: Option<NodeProcess>,
    listen: String,
    id: u32,
    host: usize,
    durable: bool,
}

/// Everything that runs, in a directory of its own.
pub(super) struct Ground {
    /// First those that share, then those that forget.
    pub(super) members: Vec<Member>,
    pub(super) arbiter: Option<ArbiterProcess>,
    arbiter_listen: String,
    /// How often each host that forgets was started.
    boots: [u32; 2],
    launcher: Launcher,
    dir: RunDir,
}

impl Ground {
    pub(super) fn start() -> Result<Ground> {
        let dir = RunDir::in_memory()?;
        for name in ["main", "durable", "history", "journals"] {
            std::fs::create_dir(dir.path().join(name))?;
        }
        std::fs::write(dir.path().join("libforebay.so"), PRELOAD)?;
        let launcher = Launcher::new(&program()?, dir.path(), Log::Files)?;
        let mut ground = Ground {
            members: Vec::new(),
            arbiter: None,
            arbiter_listen: "127.0.0.1:0".into(),
            boots: [0; 2],
            launcher,
            dir,
        };
        ground.start_arbiter()?;
        for i in 0..2 * NODES {
            let (durable, host) = (i >= NODES, i % NODES / 2);
            let listen = "tcp:127.0.0.1:0".to_owned();
            ground.members.push(Member { process: None, listen, id: i as u32, host, durable });
            ground.start_node(i, true)?;
        }
        let until = Instant::now() + PATIENCE;
        while ground.admitted()? < NODES {
            anyhow::ensure!(Instant::now() < until, "the I/O nodes did not find the arbiter");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(ground)
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn start_arbiter(&mut self) -> Result<()> {
        let spec = ArbiterSpec {
            listen: self.arbiter_listen.clone(),
            settings: "policy = \"static\"\n".into(),
            ..ArbiterSpec::default()
        };
        let arbiter = self.launcher.arbiter(&spec)?;
        self.arbiter_listen = arbiter.url().trim_start_matches("http://").to_owned();
        self.arbiter = Some(arbiter);
        Ok(())
    }

    fn arbiter_url(&self) -> String {
        format!("http://{}", self.arbiter_listen)
    }

    fn api(&self) -> Result<Api> {
        let url = format!("http://{}", self.arbiter_listen);
        Ok(Api::new(&url, Secret::from_hex(self.launcher.secret()))?)
    }

    fn admitted(&self) -> Result<usize> {
        let nodes: Vec<NodeView> = self.api()?.get("/v1/nodes")?;
        Ok(nodes.iter().filter(|n| n.state == NodeState::Admitted).count())
    }

    /// Where the milliseconds are that a node's storage is late by.
    pub(super) fn slow_file(&self, i: usize) -> PathBuf {
        self.dir.path().join(format!("slow{i}"))
    }

    pub(super) fn is_durable(&self, i: usize) -> bool {
        self.members[i].durable
    }

    pub(super) fn host(&self, i: usize) -> usize {
        self.members[i].host
    }

    /// Starts a node, where it was or elsewhere, and waits until it listens.
    pub(super) fn start_node(&mut self, i: usize, elsewhere: bool) -> Result<()> {
        let m = &self.members[i];
        let dir = self.dir.path();
        let boot = if m.durable { self.boots[m.host] } else { 0 };
        let (letter, host) = (if m.durable { 'd' } else { 'm' }, m.host);
        let mut settings = format!(
            "emulated-host = \"{letter}{host}-{boot}\"\nslow-storage = \"slow{i}\"\nlease-ms = {LEASE_MS}\n\
             drain-timeout-ms = 2000\ngrace-ms = 1000\n"
        );
        if m.durable {
            settings.push_str(&format!("forgetful-storage = \"journals/host{host}\"\n"));
        } else {
            settings.push_str(&format!("arbiters = [\"{}\"]\n", self.arbiter_url()));
        }
        let config = dir.join(format!("node{i}.toml"));
        std::fs::write(&config, settings)?;
        let data = dir.join(if m.durable { "durable" } else { "main" });
        let mut process = self.launcher.node(NodeSpec {
            id: m.id,
            listen: Some(if elsewhere { "tcp:127.0.0.1:0".into() } else { m.listen.clone() }),
            exports: vec![format!("{}={EXPORT}", data.display())],
            more: vec!["--config".into(), config.display().to_string()],
        })?;
        process.await_ready().with_context(|| self.launcher.log(&format!("node{i}")))?;
        let m = &mut self.members[i];
        m.listen = process.addresses().first().context("an address")?.to_string();
        m.process = Some(process);
        Ok(())
    }

    /// The machine of two nodes that forget crashes: what was not synced is gone. It is started again.
    pub(super) fn crash_host(&mut self, host: usize) -> Result<()> {
        let of: Vec<usize> = (NODES + 2 * host..NODES + 2 * host + 2).collect();
        of.iter().for_each(|&i| self.members[i].process = None);
        forebay_node::config::forget(&self.dir.path().join(format!("journals/host{host}")))?;
        // Ledgers are in the host's memory.
        std::fs::remove_dir_all(self.dir.path().join(format!("ledgers.d{host}-{}", self.boots[host])))?;
        self.boots[host] += 1;
        of.into_iter().try_for_each(|i| self.start_node(i, false))
    }

    /// Puts the job on these nodes.
    pub(super) fn pin(&self, nodes: &[usize]) -> Result<()> {
        self.api()?.pin(JOB, nodes.iter().map(|n| NodeId(*n as u32)).collect())?;
        Ok(())
    }

    /// The job, as its user starts it, on the nodes of the arbiter.
    pub(super) fn run_command(&self, deadline: u64) -> Result<std::process::Command> {
        let mut command = std::process::Command::new(program()?);
        command.args(["run", "--quiet", "--job", JOB, "--at", &format!("{AT}={EXPORT}")]);
        command.args(["--arbiter", &self.arbiter_url(), "--deadline", &deadline.to_string()]);
        command.arg("--secret-file").arg(self.launcher.secret_file()).arg("--");
        command.arg(program()?);
        Ok(command)
    }

    /// A program on the nodes that forget.
    pub(super) fn durable_command(&self, deadline: u64) -> Result<std::process::Command> {
        let nodes = self.members[NODES..].iter().map(|m| m.listen.parse());
        let nodes = nodes.collect::<Result<Vec<_>, _>>().map_err(|e| anyhow::anyhow!("{e}"))?;
        let config = Config {
            exports: vec![ExportMap { dir: AT.into(), export: EXPORT.into(), local: None }],
            deadline_ms: deadline * 1000,
            ..Config::new("durable", self.launcher.secret(), nodes)
        };
        let file = self.dir.path().join("durable.json");
        write_config(&file, &config)?;
        let mut command = std::process::Command::new(program()?);
        command.env("LD_PRELOAD", self.dir.path().join("libforebay.so")).env("FOREBAY_CONFIG", file);
        Ok(command)
    }
}
