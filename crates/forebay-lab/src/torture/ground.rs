//! The I/O nodes and the arbiters that things are done to.

use super::link::Link;
use super::net::Net;
use crate::machine::program;
use crate::outcome::{make, put};
use anyhow::{Context, Result};
use forebay_client::{Config, Counters, ExportMap};
use forebay_control::client::Client as Api;
use forebay_control::view::{HealthView, NodeState, NodeView};
use forebay_embed::{
    ArbiterProcess, ArbiterSpec, Etcd, Launcher, Log, NodeProcess, NodeSpec, PRELOAD, RunDir, write_config,
};
use forebay_types::{Address, NodeId, Secret};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Nodes that share, and as many whose hosts forget.
pub(super) const NODES: usize = 4;
/// The one that is alone on the clients' own host comes after them.
pub(super) const LONE: usize = 2 * NODES;
/// The hosts of those that share: two nodes beside each other can vouch for each other, nobody can for
/// the others.
const HOSTS: [usize; NODES] = [0, 0, 1, 2];
/// To these, two beside each other and one without a neighbour, connections are forwarded.
pub(super) const LINKED: [usize; 3] = [0, 1, 2];
/// Nobody is on its host, nor forwards connections to it.
pub(super) const ALONE: usize = 3;
const LEASE_MS: u64 = 500;
const PATIENCE: Duration = Duration::from_secs(60);
/// An arbiter that does not answer at once is harmed by something else.
const API_PATIENCE: Duration = Duration::from_millis(300);
/// The forwarded directory, as workers see it: it need not exist.
pub(super) const AT: &str = "/forebay-torture";
const EXPORT: &str = "data";
const JOB: &str = "torture";
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// What a node is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// It serves the job, with the others of its kind.
    Shared,
    /// Its host forgets what was not synced when it crashes.
    Forgetful,
    /// The only one of its clients, on their host: small requests in a row make no trip each.
    Lone,
}

/// An I/O node, running or not.
pub(super) struct Member {
    pub(super) process: Option<NodeProcess>,
    pub(super) role: Role,
    pub(super) host: usize,
    listen: String,
    /// What its clients connect to.
    link: Option<Link>,
}

pub(super) struct Arbiter {
    pub(super) process: Option<ArbiterProcess>,
    listen: String,
}

/// Everything that runs, in a directory of its own.
pub(super) struct TortureCluster {
    /// First those that share, then those that forget, then the lone one.
    pub(super) members: Vec<Member>,
    pub(super) arbiters: Vec<Arbiter>,
    pub(super) etcd: Option<Etcd>,
    /// The ways of the nodes to the arbiters, where the nodes are on hosts of their own.
    ways: Vec<Vec<Link>>,
    /// How often each host that forgets was started.
    boots: [u32; 2],
    launcher: Launcher,
    dir: RunDir,
    /// What is shared is on a real file system, where inode numbers are used again.
    shared: RunDir,
    /// What cannot be done on this machine, and why.
    pub(super) skipped: Vec<String>,
    /// Last: what was started in it goes first.
    pub(super) net: Option<Net>,
}

impl TortureCluster {
    pub(super) fn start() -> Result<TortureCluster> {
        let mut skipped = Vec::new();
        let mut skip = |what: &str, e: &dyn std::fmt::Display| skipped.push(format!("{what}: {e}"));
        let net = Net::new(NODES).map_err(|e| skip("cut a link", &e)).ok();
        let etcd = Etcd::start().map_err(|e| skip("kill an etcd member", &e)).ok();
        let dir = RunDir::in_memory()?;
        for name in ["durable", "lone", "run.durable", "run.lone", "history", "journals"] {
            make(&dir.path().join(name))?;
        }
        put(&dir.path().join("libforebay.so"), PRELOAD)?;
        let launcher = Launcher::new(&program()?, dir.path(), Log::Files)?;
        let mut ground = TortureCluster {
            members: Vec::new(),
            arbiters: Vec::new(),
            etcd,
            ways: Vec::new(),
            boots: [0; 2],
            launcher,
            dir,
            shared: RunDir::create(&std::env::temp_dir())?,
            skipped,
            net,
        };
        for n in 0..if ground.etcd.is_some() { 2 } else { 1 } {
            ground.arbiters.push(Arbiter { process: None, listen: "127.0.0.1:0".into() });
            ground.start_arbiter(n)?;
        }
        ground.lay_ways()?;
        for i in 0..=LONE {
            let (role, host) = match HOSTS.get(i) {
                Some(&host) => (Role::Shared, host),
                None if i == LONE => (Role::Lone, 0),
                None => (Role::Forgetful, i % NODES / 2),
            };
            ground.members.push(Member { process: None, role, host, listen: String::new(), link: None });
            ground.start_node(i, true)?;
        }
        let until = Instant::now() + PATIENCE;
        while ground.admitted() < NODES {
            anyhow::ensure!(Instant::now() < until, "the I/O nodes did not find the arbiter");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(ground)
    }

    /// Arbiters are on the loopback of the workers' host; to nodes elsewhere they are as if on theirs.
    fn lay_ways(&mut self) -> Result<()> {
        let Some(net) = &self.net else { return Ok(()) };
        for node in 0..NODES {
            let way = |a: &Arbiter| {
                let link = Link::new(net.on(node, || TcpListener::bind(&a.listen))??)?;
                link.leads_to(a.listen.parse()?);
                Ok(link)
            };
            self.ways.push(self.arbiters.iter().map(way).collect::<Result<_>>()?);
        }
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The directory that the nodes of a role export.
    pub(super) fn data(&self, role: Role) -> PathBuf {
        match role {
            Role::Shared => self.shared.path().to_owned(),
            Role::Forgetful => self.path().join("durable"),
            Role::Lone => self.path().join("lone"),
        }
    }

    pub(super) fn start_arbiter(&mut self, n: usize) -> Result<()> {
        let spec = ArbiterSpec {
            name: format!("arbiter{n}"),
            listen: self.arbiters[n].listen.clone(),
            settings: "policy = \"static\"\n".into(),
            more: self.etcd.as_ref().map_or(Vec::new(), |e| vec!["--ha".into(), e.url()]),
            ..ArbiterSpec::default()
        };
        let arbiter = self.launcher.arbiter(&spec)?;
        self.arbiters[n].listen = arbiter.url().trim_start_matches("http://").to_owned();
        self.arbiters[n].process = Some(arbiter);
        Ok(())
    }

    fn urls(&self) -> Vec<String> {
        self.arbiters.iter().map(|a| format!("http://{}", a.listen)).collect()
    }

    fn api(&self, urls: &str) -> Result<Api> {
        Ok(Api::new(urls, Secret::from_hex(self.launcher.secret()))?.with_patience(API_PATIENCE))
    }

    fn admitted(&self) -> usize {
        let nodes: Vec<NodeView> =
            self.api(&self.urls().join(",")).and_then(|a| Ok(a.get("/v1/nodes")?)).unwrap_or_default();
        nodes.iter().filter(|n| n.state == NodeState::Admitted).count()
    }

    /// Which arbiter leads, if one says so.
    pub(super) fn leader(&self) -> Option<usize> {
        let leads = |url: &String| -> Result<bool> {
            let (_, text) = self.api(url)?.ask("GET", "/v1/health", None)?;
            Ok(serde_json::from_str::<HealthView>(&text)?.state == "leading")
        };
        self.urls().iter().position(|url| leads(url).unwrap_or(false))
    }

    /// Where the milliseconds are that a node's storage is late by.
    pub(super) fn slow_file(&self, i: usize) -> PathBuf {
        self.dir.path().join(format!("slow{i}"))
    }

    /// The nodes that share a node's host, and so its fate, besides itself.
    pub(super) fn neighbours(&self, i: usize) -> impl Iterator<Item = usize> {
        let m = &self.members[i];
        let same = move |o: &Member| o.role == m.role && o.host == m.host;
        (0..self.members.len()).filter(move |n| *n != i && same(&self.members[*n]))
    }

    /// What the clients of a node connect to.
    pub(super) fn link(&self, i: usize) -> Option<&Link> {
        self.members[i].link.as_ref()
    }

    /// Pulls the cable of a node's host, or plugs it in again.
    pub(super) fn cut(&self, i: usize, cut: bool) -> Result<()> {
        let Some(net) = &self.net else { return Ok(()) };
        self.ways[i].iter().for_each(|way| way.hold(cut, cut));
        net.cut(i, cut)
    }

    fn settings(&self, i: usize) -> String {
        let m = &self.members[i];
        let Member { role, host, .. } = *m;
        // Nobody can tell of one that ends with requests, and stays away.
        let drain = if role == Role::Shared { 4000 } else { 2000 };
        let mut text = format!(
            "slow-storage = \"slow{i}\"\nlease-ms = {LEASE_MS}\ndrain-timeout-ms = {drain}\ngrace-ms = 1000\n"
        );
        match role {
            Role::Shared => {
                text += &format!("emulated-host = \"m{host}\"\narbiters = {:?}\n", self.urls());
                text += &m
                    .link
                    .as_ref()
                    .map_or(String::new(), |l| format!("reached-at = [\"tcp:{}\"]\n", l.address));
            }
            Role::Forgetful => {
                let boot = self.boots[host];
                text += &format!("emulated-host = \"d{host}-{boot}\"\n");
                text += &format!("forgetful-storage = \"journals/host{host}\"\n");
            }
            Role::Lone => {}
        }
        text
    }

    /// Starts a node, where it was or elsewhere, and waits until it listens.
    pub(super) fn start_node(&mut self, i: usize, elsewhere: bool) -> Result<()> {
        let role = self.members[i].role;
        let net = self.net.as_ref().filter(|_| role == Role::Shared);
        if elsewhere && role == Role::Shared && LINKED.contains(&i) {
            let ip = net.map_or(HERE, Net::switch);
            self.members[i].link = Some(Link::new(TcpListener::bind((ip, 0))?)?);
        }
        let config = self.path().join(format!("node{i}.toml"));
        put(&config, self.settings(i))?;
        let m = &self.members[i];
        let listen = match role {
            Role::Lone => None,
            _ if elsewhere => Some(format!("tcp:{}:0", net.map_or(HERE, |net| net.address(i)))),
            _ => Some(m.listen.clone()),
        };
        let spec = NodeSpec {
            id: i as u32,
            listen,
            exports: vec![format!("{}={EXPORT}", self.data(role).display())],
            more: vec!["--config".into(), config.display().to_string()],
        };
        let start = || self.launcher.node(spec);
        let mut process = match net {
            Some(net) => net.on(i, start)??,
            None => start()?,
        };
        process.await_ready().with_context(|| self.launcher.log(&format!("node{i}")))?;
        let m = &mut self.members[i];
        let address = process.addresses().first().context("an address")?;
        m.listen = address.to_string();
        if let (Some(link), Address::Tcp(at)) = (&m.link, address) {
            link.leads_to(*at);
        }
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
        self.api(&self.urls().join(","))?.pin(JOB, nodes.iter().map(|n| NodeId(*n as u32)).collect())?;
        Ok(())
    }

    /// The job, as its user starts it, on the nodes of the arbiter.
    pub(super) fn run_command(&self, deadline: u64) -> Result<Command> {
        let mut command = Command::new(program()?);
        command.args(["run", "--quiet", "--job", JOB, "--at", &format!("{AT}={EXPORT}")]);
        command.args(["--arbiter", &self.urls().join(","), "--deadline", &deadline.to_string()]);
        command.arg("--secret-file").arg(self.launcher.secret_file()).arg("--");
        // What it keeps while it runs goes with the rest, should it be killed.
        command.env("TMPDIR", self.dir.path());
        command.arg(program()?);
        Ok(command)
    }

    /// A program on the nodes of that role, without an arbiter.
    pub(super) fn direct_command(&self, role: Role, deadline: u64) -> Result<Command> {
        let nodes = self.members.iter().filter(|m| m.role == role).map(|m| m.listen.parse());
        let nodes = nodes.collect::<Result<Vec<_>, _>>().map_err(|e| anyhow::anyhow!("{e}"))?;
        let lone = role == Role::Lone;
        let name = if lone { "lone" } else { "durable" };
        let config = Config {
            exports: vec![ExportMap { dir: AT.into(), export: EXPORT.into(), local: None }],
            deadline_ms: deadline * 1000,
            share: lone,
            stage: lone,
            ..Config::new(name, self.launcher.secret(), nodes)
        };
        // The processes' counters are beside their configuration.
        let file = self.dir.path().join(format!("run.{name}/config.json"));
        write_config(&file, &config)?;
        Counters::create(&file.with_file_name("counters"))?;
        let mut command = Command::new(program()?);
        command.env("LD_PRELOAD", self.dir.path().join("libforebay.so")).env("FOREBAY_CONFIG", file);
        Ok(command)
    }
}
