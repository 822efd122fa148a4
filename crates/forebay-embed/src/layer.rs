//! Starting, describing and stopping the I/O nodes of a run.

use crate::EmbedError;
use crate::rundir::RunDir;
use forebay_client::{Address, Config, Counters, ExportMap, Fallback, OpTotals};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// How long a node may take to listen.
const START_LIMIT: Duration = Duration::from_secs(10);
/// How long a node may take to end, beyond its own drain time-out, before it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(8);

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
        let (dir, export) = text.split_once('=').unwrap_or((text, text));
        if dir.is_empty() || export.is_empty() {
            return Err(format!("`{text}`: write DIR, or DIR=EXPORT"));
        }
        let absolute = |p: &str| std::path::absolute(p).map_err(|e| format!("`{p}`: {e}"));
        Ok(At { dir: absolute(dir)?, export: absolute(export)? })
    }
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
    /// Further arguments to each `node`, for example its scheduler.
    pub node_args: Vec<String>,
    /// The job's name.
    pub job: String,
}

struct NodeProcess {
    child: Child,
    address: Address,
    stats: PathBuf,
}

/// Running I/O nodes. Dropping it stops them and removes their directory.
pub struct Layer {
    run_dir: RunDir,
    nodes: Vec<NodeProcess>,
    config: Config,
    counters: &'static Counters,
    /// Kept open for [`Config::placeholder`].
    _placeholder: Option<OwnedFd>,
}

/// One node, at the end.
#[derive(Debug, Serialize)]
pub struct NodeReport {
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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Note {
    /// What kind of thing.
    pub kind: String,
    /// The file or program.
    pub path: String,
    /// The reason.
    pub why: String,
    /// How often, in all processes together.
    #[serde(default)]
    pub count: u64,
}

#[derive(Deserialize)]
struct Ready {
    addresses: Vec<String>,
}

impl Layer {
    /// Starts the nodes and waits until they listen.
    pub fn start(config: &LayerConfig) -> Result<Layer, EmbedError> {
        if config.io_nodes == 0 || config.io_nodes > 256 {
            return Err(EmbedError::Argument(format!("{} I/O nodes: give 1 to 256", config.io_nodes)));
        }
        let secret = random_secret().map_err(EmbedError::io("cannot read", "/dev/urandom"))?;
        let mut layer = Layer::prepare(Config {
            exports: exports(&config.at)?,
            deadline_ms: config.deadline.as_millis() as u64,
            fallback: config.fallback,
            ..Config::new(&config.job, secret, Vec::new())
        })?;
        let secret_file = layer.run_dir.path().join("secret");
        write_private(&secret_file, layer.config.secret.as_bytes())?;
        for node in 0..config.io_nodes {
            let started = layer.spawn(config, node, &secret_file)?;
            layer.nodes.push(started);
        }
        for node in 0..config.io_nodes {
            let address = layer.await_ready(node)?;
            layer.nodes[node].address = address.clone();
            layer.config.nodes.push(address);
        }
        layer.write_config()?;
        Ok(layer)
    }

    /// For I/O nodes that run already: everything that clients need but nodes.
    pub fn attach(config: Config) -> Result<Layer, EmbedError> {
        let layer = Layer::prepare(config)?;
        layer.write_config()?;
        Ok(layer)
    }

    /// The run's directory, with counters and notes.
    fn prepare(config: Config) -> Result<Layer, EmbedError> {
        let run_dir = RunDir::create()?;
        let counters_path = run_dir.path().join("counters");
        let counters =
            Counters::create(&counters_path).map_err(EmbedError::io("cannot make", counters_path))?;
        write_private(&run_dir.path().join("notes"), b"")?;
        let placeholder = placeholder();
        let path = |fd: &OwnedFd| format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd()).into();
        let config = Config { placeholder: placeholder.as_ref().map(path), ..config };
        Ok(Layer { nodes: Vec::new(), config, counters, _placeholder: placeholder, run_dir })
    }

    fn write_config(&self) -> Result<(), EmbedError> {
        write_config(&self.client_config(), &self.config)
    }

    fn spawn(&self, config: &LayerConfig, node: usize, secret: &Path) -> Result<NodeProcess, EmbedError> {
        let dir = self.run_dir.path();
        let stats = dir.join(format!("node{node}.stats"));
        let socket = dir.join(format!("node{node}.sock"));
        let mut command = Command::new(&config.program);
        command.arg("node").arg("--id").arg(node.to_string()).arg("--secret-file").arg(secret);
        command
            .arg("--ready-file")
            .arg(dir.join(format!("node{node}.ready")))
            .arg("--stats-file")
            .arg(&stats);
        command.arg("--die-with-parent").arg("--job").arg(&config.job).arg("--drain-timeout").arg("1");
        match config.transport {
            Transport::Unix => command.arg("--listen").arg(format!("unix:{}", socket.display())),
            Transport::Tcp => command.arg("--listen").arg("tcp:127.0.0.1:0"),
        };
        for export in &self.config.exports {
            command.arg("--export").arg(&export.export);
        }
        command.args(&config.node_args);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        command.env_remove("LD_PRELOAD").env_remove("FOREBAY_CONFIG");
        // A terminal's Ctrl-C is for the job; the nodes are told to end when it has.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.spawn().map_err(|e| EmbedError::Node { node, why: e.to_string() })?;
        Ok(NodeProcess { child, address: Address::Unix(socket), stats })
    }

    fn await_ready(&mut self, node: usize) -> Result<Address, EmbedError> {
        let ready = self.run_dir.path().join(format!("node{node}.ready"));
        let failed = |why: String| EmbedError::Node { node, why };
        let started = Instant::now();
        loop {
            if let Ok(bytes) = std::fs::read(&ready) {
                let ready: Ready = serde_json::from_slice(&bytes).map_err(|e| failed(e.to_string()))?;
                let first = ready.addresses.first().ok_or_else(|| failed("it listens nowhere".into()))?;
                return first.parse().map_err(|e: forebay_client::ConfigError| failed(e.to_string()));
            }
            match self.nodes[node].child.try_wait() {
                Ok(None) => {}
                Ok(Some(status)) => return Err(failed(format!("it ended with {status}"))),
                Err(e) => return Err(failed(e.to_string())),
            }
            if started.elapsed() > START_LIMIT {
                return Err(failed(format!("it was not ready after {} s", START_LIMIT.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The directory of the run.
    pub fn dir(&self) -> &Path {
        self.run_dir.path()
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
        self.nodes.iter().map(|n| n.child.id()).collect()
    }

    /// What the clients on this machine counted so far.
    pub fn operations(&self) -> Vec<OpTotals> {
        self.counters.totals()
    }

    /// What was not forwarded, the same things counted together.
    pub fn notes(&self) -> Vec<Note> {
        let text = std::fs::read_to_string(self.run_dir.path().join("notes")).unwrap_or_default();
        let mut seen: BTreeMap<Note, u64> = BTreeMap::new();
        for line in text.lines() {
            if let Ok(note) = serde_json::from_str::<Note>(line) {
                *seen.entry(note).or_default() += 1;
            }
        }
        seen.into_iter().map(|(note, count)| Note { count, ..note }).collect()
    }

    /// Stops the nodes and returns what they counted.
    pub fn stop(&mut self) -> Vec<NodeReport> {
        for node in &self.nodes {
            signal(&node.child, rustix::process::Signal::TERM);
        }
        let until = Instant::now() + STOP_LIMIT;
        let mut reports = Vec::new();
        for (i, node) in self.nodes.iter_mut().enumerate() {
            let status = loop {
                match node.child.try_wait() {
                    Ok(Some(status)) => break Some(status),
                    Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(2)),
                    _ => {
                        // It is our own child and does not end: no other way is left.
                        let _ = node.child.kill();
                        break node.child.wait().ok();
                    }
                }
            };
            let problem = match status {
                Some(s) if s.success() => None,
                Some(s) => {
                    Some(s.signal().map_or_else(|| s.to_string(), |n| format!("killed by signal {n}")))
                }
                None => Some("its end was not seen".into()),
            };
            let stats = std::fs::read(&node.stats).ok().and_then(|b| serde_json::from_slice(&b).ok());
            reports.push(NodeReport { node: i, address: node.address.to_string(), problem, stats });
        }
        self.nodes.clear();
        reports
    }
}

impl Drop for Layer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        // A node that has ended already needs no signal.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// The exports, with a second entry where a directory has another name without symbolic links:
/// the kernel knows a working directory by that one.
fn exports(at: &[At]) -> Result<Vec<ExportMap>, EmbedError> {
    let mut all: Vec<ExportMap> = Vec::new();
    for a in at {
        let export = std::fs::canonicalize(&a.export)
            .and_then(|p| std::fs::read_dir(&p).map(|_| p))
            .map_err(|source| EmbedError::Export { path: a.export.clone(), source })?;
        let name = export
            .to_str()
            .ok_or_else(|| EmbedError::Argument(format!("{}: the name is not UTF-8", export.display())))?
            .to_owned();
        let mut dirs = vec![a.dir.clone()];
        if let Ok(real) = std::fs::canonicalize(&a.dir)
            && real != a.dir
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

fn random_secret() -> std::io::Result<String> {
    let mut bytes = [0u8; 32];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

/// Writes a client's configuration to a file that only this user may read; whoever reads it meanwhile
/// finds the old one or the new one.
pub fn write_config(path: &Path, config: &Config) -> Result<(), EmbedError> {
    let json = serde_json::to_vec_pretty(config)
        .map_err(|e| EmbedError::Argument(format!("the configuration for clients cannot be written: {e}")))?;
    let new = path.with_extension("new");
    let _ = std::fs::remove_file(&new);
    write_private(&new, &json)?;
    std::fs::rename(&new, path).map_err(EmbedError::io("cannot write", path))
}

fn write_private(path: &Path, bytes: &[u8]) -> Result<(), EmbedError> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut f| f.write_all(bytes))
        .map_err(EmbedError::io("cannot write", path))
}
