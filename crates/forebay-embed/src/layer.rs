//! Starting, describing and stopping the I/O nodes of a run.

use crate::agent::Agent;
use crate::files::write_private;
use crate::launcher::{Launcher, Log, NodeProcess, NodeSpec};
use crate::lease::{self, Lease};
use crate::rundir::{RunDir, is_own, run_base};
use crate::{EmbedError, write_config};
use forebay_client::{Address, Config, Counters, ExportMap, Fallback, OpTotals};
use forebay_types::Protect;
use forebay_types::options::parts;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// No run starts more I/O nodes than this.
const MOST: usize = 256;
/// Of so many hosts is read what their processes left.
const MOST_HOSTS: usize = 1 << 17;

/// `DIR[=EXPORT]`: a path that programs use, and the directory that serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    /// The path programs use.
    pub dir: PathBuf,
    /// The directory on the I/O node.
    pub export: PathBuf,
}

impl FromStr for At {
    type Err = String;

    fn from_str(text: &str) -> Result<At, String> {
        let (dir, export) = parts(text);
        let export = export.as_deref().unwrap_or(&dir);
        if dir.is_empty() || export.is_empty() {
            return Err(format!("`{text}`: write DIR, or DIR=EXPORT"));
        }
        if text != dir && Path::new(text).is_dir() && !Path::new(export).is_dir() {
            let named = text.replace('=', "\\=");
            return Err(format!("`{text}`: for the directory of this name write `{named}`"));
        }
        let absolute = |p: &str| std::path::absolute(p).map_err(|e| format!("`{p}`: {e}"));
        Ok(At { dir: lexical(&absolute(&dir)?), export: absolute(export)? })
    }
}

/// An absolute path without `..`, as the front ends take the names that programs use: one directory has one
/// name.
fn lexical(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => drop(plain.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    plain
}

/// How clients reach the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// A Unix socket: faster on one machine.
    #[default]
    Unix,
    /// TCP on loopback.
    Tcp,
}

/// What to start.
#[derive(Clone, Debug)]
pub struct LayerConfig {
    /// The program that has the `node` subcommand, normally this one.
    pub program: PathBuf,
    /// How many I/O nodes.
    pub io_nodes: usize,
    /// The forwarded directories.
    pub at: Vec<At>,
    /// How clients reach the nodes.
    pub transport: Transport,
    /// The longest a call may take.
    pub deadline: Duration,
    /// What a call does when no node answers.
    pub fallback: Fallback,
    /// How what goes between hosts is protected.
    pub protect: Protect,
    /// Further arguments to each `node`, for example its scheduler.
    pub node_args: Vec<String>,
    /// The job's name.
    pub job: String,
    /// The job runs on other hosts as well.
    pub across: Option<Across>,
    /// Small requests need not make a trip each, where that can be.
    pub joins: bool,
}

/// What a job on several hosts needs.
#[derive(Clone, Debug)]
pub struct Across {
    /// A directory that all of them see.
    pub share: PathBuf,
    /// The address of this host by which the others reach it.
    pub here: IpAddr,
    /// Where the I/O nodes run, one a host: its name and address. Empty: all of them here.
    pub io_hosts: Vec<(String, IpAddr)>,
    /// What starts them there.
    pub agent: Agent,
}

/// Running I/O nodes. Dropping it stops them and removes their directory.
pub struct Layer {
    /// First, so that its file is closed before the directory goes.
    _lease: Lease,
    run_dir: RunDir,
    nodes: Vec<NodeProcess>,
    config: Config,
    counters: &'static Counters,
    /// Kept open for [`Config::placeholder`].
    _placeholder: Option<OwnedFd>,
}

/// One node, at the end.
#[derive(Debug, Serialize)]
pub struct NodeOutcome {
    /// Its number.
    pub node: usize,
    /// Where it listened.
    pub address: String,
    /// How it ended: nothing if as it should.
    pub problem: Option<String>,
    /// What it counted, as it wrote it.
    pub stats: Option<serde_json::Value>,
}

/// Something that was not forwarded, or not as one might think, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Note {
    /// What kind of thing.
    pub kind: String,
    /// The file or program.
    pub path: String,
    /// The reason.
    pub why: String,
    /// The program that did it.
    #[serde(default)]
    pub program: String,
    /// How often, in all processes together.
    #[serde(default)]
    pub count: u64,
}

impl Layer {
    /// Starts the nodes and waits until they listen.
    pub fn start(config: &LayerConfig) -> Result<Layer, EmbedError> {
        if config.io_nodes == 0 || config.io_nodes > MOST {
            return Err(EmbedError::Argument(format!("{} I/O nodes: give 1 to {MOST}", config.io_nodes)));
        }
        let exports = exports(&config.at)?;
        // What clients will be told is looked at before anything is started: any address and secret will do.
        let anywhere = vec![Address::Unix("/".into())];
        let told = Config { exports: exports.clone(), ..Config::new(&config.job, "0".repeat(64), anywhere) };
        told.to_json().map_err(|e| EmbedError::Argument(e.to_string()))?;
        let (run_dir, lease) = run_dir(config.across.as_ref().map(|a| a.share.as_path()))?;
        let launcher = Launcher::new(&config.program, run_dir.path(), Log::Here)?;
        let mut more = vec![format!("--job={}", config.job), "--drain-timeout".into(), "1".into()];
        more.extend(config.node_args.iter().cloned());
        // Programs may have several names for one directory; an I/O node has one.
        let served: BTreeSet<&String> = exports.iter().map(|e| &e.export).collect();
        let spec = |id: u32, at: Option<IpAddr>| NodeSpec {
            id,
            listen: at.map(|at| format!("tcp:{}", SocketAddr::new(at, 0))),
            exports: served.iter().map(|e| e.replace('=', "\\=")).collect(),
            more: more.clone(),
        };
        let start = |id: u32| match &config.across {
            Some(Across { io_hosts, agent, .. }) if !io_hosts.is_empty() => {
                let (host, at) = &io_hosts[id as usize % io_hosts.len()];
                launcher.node_on(agent, host, &spec(id, Some(*at)))
            }
            Some(across) => launcher.node(spec(id, Some(across.here))),
            None => {
                let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
                launcher.node(spec(id, (config.transport == Transport::Tcp).then_some(loopback)))
            }
        };
        let mut nodes = (0..config.io_nodes as u32).map(start).collect::<Result<Vec<_>, EmbedError>>()?;
        nodes.iter_mut().try_for_each(NodeProcess::await_ready)?;
        let addresses = nodes.iter().filter_map(|n| n.addresses().first().cloned()).collect();
        let here = config.across.is_none() && config.transport == Transport::Unix;
        let alone = here && config.io_nodes == 1 && config.fallback == Fallback::Error && config.joins;
        let config = Config {
            exports,
            deadline_ms: config.deadline.as_millis() as u64,
            fallback: config.fallback,
            protect: config.protect,
            // All of them are on this machine: one kernel, which has one view of every file.
            // On hosts of their own they see each other's writes when their file system says so.
            stripe: config.io_nodes > 1 && config.across.as_ref().is_none_or(|a| a.io_hosts.is_empty()),
            // One node on this machine knows of every change.
            share: alone,
            stage: alone,
            ..Config::new(&config.job, launcher.secret(), addresses)
        };
        Layer::prepare(run_dir, lease, nodes, config)
    }

    /// For I/O nodes that run already: everything that clients need but nodes.
    /// `share`: in a directory that all of the job's hosts see.
    pub fn attach(config: Config, share: Option<&Path>) -> Result<Layer, EmbedError> {
        let (run_dir, lease) = run_dir(share)?;
        Layer::prepare(run_dir, lease, Vec::new(), config)
    }

    /// The run's directory, with counters, notes and the clients' configuration.
    fn prepare(
        run_dir: RunDir,
        lease: Lease,
        nodes: Vec<NodeProcess>,
        config: Config,
    ) -> Result<Layer, EmbedError> {
        let counters_path = run_dir.path().join("counters");
        let counters =
            Counters::create(&counters_path).map_err(EmbedError::io("cannot make", counters_path))?;
        write_private(&run_dir.path().join("notes"), b"")?;
        let placeholder = placeholder();
        let path = |fd: &OwnedFd| format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd()).into();
        let config = Config { placeholder: placeholder.as_ref().map(path), ..config };
        let layer = Layer { _lease: lease, nodes, config, counters, _placeholder: placeholder, run_dir };
        write_config(&layer.client_config(), &layer.config)?;
        Ok(layer)
    }

    /// The directory of the run.
    pub fn dir(&self) -> &Path {
        self.run_dir.path()
    }

    /// Leaves the directory of the run to somebody else, who removes it.
    pub fn leave_dir(&mut self) {
        self.run_dir.leave();
    }

    /// Whether one of the nodes is stopped, so that it answers nobody.
    pub fn any_stopped(&self) -> bool {
        self.nodes.iter().any(|n| n.process.is_frozen().unwrap_or(false))
    }

    /// The file that tells clients where the nodes are (`FOREBAY_CONFIG`).
    pub fn client_config(&self) -> PathBuf {
        self.run_dir.path().join("client.json")
    }

    /// The same, as a value.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The processes of the nodes.
    pub fn pids(&self) -> Vec<u32> {
        self.nodes.iter().map(|n| n.process.id()).collect()
    }

    /// Where the clients on this machine count.
    pub fn counters(&self) -> &'static Counters {
        self.counters
    }

    /// What the clients counted so far, on this machine and on the job's other hosts.
    pub fn operations(&self) -> Vec<OpTotals> {
        Counters::totals(&self.of_all_hosts())
    }

    /// How many programs were started as another user, and so without the library.
    pub fn as_another(&self) -> u64 {
        self.of_all_hosts().iter().map(|counters| counters.as_another()).sum()
    }

    fn of_all_hosts(&self) -> Vec<&Counters> {
        let there = self.host_dirs().into_iter().filter_map(|dir| Counters::open(&dir.join("counters")).ok());
        std::iter::once(self.counters).chain(there).collect()
    }

    /// What the processes of other hosts share there.
    fn host_dirs(&self) -> Vec<PathBuf> {
        let hosts = std::fs::read_dir(self.run_dir.path().join("hosts"));
        hosts.map_or(Vec::new(), |all| all.flatten().take(MOST_HOSTS).map(|e| e.path()).collect())
    }

    /// Changes what clients are told; for those that start from now on.
    pub fn reconfigure(&mut self, change: impl FnOnce(&mut Config)) -> Result<(), EmbedError> {
        change(&mut self.config);
        write_config(&self.client_config(), &self.config)
    }

    /// What was not forwarded, the same things counted together.
    pub fn notes(&self) -> Vec<Note> {
        let dirs = std::iter::once(self.run_dir.path().to_owned()).chain(self.host_dirs());
        let text: String = dirs.filter_map(|d| std::fs::read_to_string(d.join("notes")).ok()).collect();
        let mut seen: BTreeMap<Note, u64> = BTreeMap::new();
        for line in text.lines() {
            if let Ok(note) = serde_json::from_str::<Note>(line) {
                *seen.entry(note).or_default() += 1;
            }
        }
        seen.into_iter().map(|(note, count)| Note { count, ..note }).collect()
    }

    /// Stops the nodes and returns what they counted.
    pub fn stop(&mut self) -> Vec<NodeOutcome> {
        let ended = NodeProcess::end_all(&mut self.nodes);
        let address = |n: &NodeProcess| n.addresses().first().map(ToString::to_string).unwrap_or_default();
        let nodes = std::mem::take(&mut self.nodes);
        let both = nodes.iter().zip(ended).enumerate();
        both.map(|(node, (n, end))| NodeOutcome {
            node,
            address: address(n),
            problem: end.problem,
            stats: end.stats,
        })
        .collect()
    }
}

impl Drop for Layer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A directory for a run: among the temporary ones, or in one that all of the job's hosts see. It has a lease, and what
/// runs left that were killed, or whose hosts died, goes.
fn run_dir(share: Option<&Path>) -> Result<(RunDir, Lease), EmbedError> {
    let base = match share {
        Some(share) => {
            is_own(share)
                .map_err(|why| EmbedError::Argument(format!("--share {}: {why}", share.display())))?;
            share.to_owned()
        }
        None => run_base(),
    };
    let dir = RunDir::create(&base)?;
    // A directory for temporary files may have very many entries.
    let (own, shared) = (dir.path().to_owned(), share.is_some());
    let lease = Lease::take(dir.path(), move || lease::sweep(&own, shared))?;
    Ok((dir, lease))
}

/// The exports, with a second entry where a directory has another name without symbolic links:
/// the kernel knows a working directory by that one.
fn exports(at: &[At]) -> Result<Vec<ExportMap>, EmbedError> {
    let mut all: Vec<ExportMap> = Vec::new();
    for a in at {
        let export = std::fs::canonicalize(&a.export)
            .and_then(|p| std::fs::read_dir(&p).map(|_| p))
            .map_err(|source| EmbedError::Export { path: a.export.clone(), source })?;
        forebay_types::kernel::says_sizes(&export)
            .map_err(|why| EmbedError::Argument(format!("{}: {why}", a.export.display())))?;
        let text = |path: &Path| {
            let odd = || EmbedError::Argument(format!("{path:?}: the name is not UTF-8: give it another"));
            path.to_str().map(str::to_owned).ok_or_else(odd)
        };
        let name = text(&export)?;
        text(&a.dir)?;
        let mut dirs = vec![a.dir.clone()];
        if let Ok(real) = std::fs::canonicalize(&a.dir)
            && real != a.dir
            && text(&real).is_ok()
        {
            dirs.push(real);
        }
        for dir in dirs {
            if dir == Path::new("/") {
                return Err(EmbedError::Argument(
                    "--at /: the whole machine cannot be forwarded; name a directory".into(),
                ));
            }
            if all.iter().any(|e| e.dir == dir) {
                return Err(EmbedError::Argument(format!("--at {}: given twice", dir.display())));
            }
            all.push(ExportMap { dir, export: name.clone(), local: Some(export.clone()) });
        }
    }
    if all.is_empty() {
        return Err(EmbedError::Argument("no directory to forward: give --at DIR or --at DIR=EXPORT".into()));
    }
    Ok(all)
}

/// An empty memory file that cannot be written to. Without one, clients make their own for every file.
fn placeholder() -> Option<OwnedFd> {
    use rustix::fs::{MemfdFlags, SealFlags};
    let fd = rustix::fs::memfd_create("forebay-placeholder", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .ok()?;
    let all = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&fd, all).ok()?;
    Some(fd)
}
