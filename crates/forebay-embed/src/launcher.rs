//! Starting I/O nodes and arbiters: one program, one directory, one secret.

use crate::process::Process;
use crate::{Agent, EmbedError};
use forebay_client::Address;
use forebay_types::{Ready, Secret};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long one may take to listen.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long one may take to end, beyond a node's own drain time-out, before it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(8);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Where the logs of what is started go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Log {
    /// With this program's own.
    #[default]
    Here,
    /// The same, but errors only: that nodes come and go is part of the plan.
    Errors,
    /// Into the directory, `NAME.log`.
    Files,
    /// The same, with all that a service of its own would tell its admin.
    FilesOfServices,
}

/// What starts I/O nodes and arbiters that share a secret.
#[derive(Clone, Debug)]
pub struct Launcher {
    program: PathBuf,
    dir: PathBuf,
    secret: String,
    log: Log,
    env: Vec<(OsString, OsString)>,
}

/// What an I/O node is started with.
#[derive(Clone, Debug, Default)]
pub struct NodeSpec {
    /// Its number.
    pub id: u32,
    /// Where it listens: `tcp:HOST:PORT`, `unix:PATH`; by default a Unix socket in the directory.
    pub listen: Option<String>,
    /// `DIR` or `DIR=NAME`.
    pub exports: Vec<String>,
    /// Further arguments of `forebay node`.
    pub more: Vec<String>,
}

/// What an arbiter is started with.
#[derive(Clone, Debug)]
pub struct ArbiterSpec {
    /// Its state, log and configuration go under this name.
    pub name: String,
    /// Where it listens.
    pub listen: String,
    /// Lines of its configuration file.
    pub settings: String,
    /// Further arguments of `forebay arbiter`.
    pub more: Vec<String>,
    /// Whether others go first on this machine.
    pub nice: bool,
}

impl Default for ArbiterSpec {
    fn default() -> ArbiterSpec {
        ArbiterSpec {
            name: "arbiter".into(),
            listen: "127.0.0.1:0".into(),
            settings: String::new(),
            more: Vec::new(),
            nice: false,
        }
    }
}

impl Launcher {
    /// Starts `program` (normally this one), keeps everything in `dir`, and makes a secret there.
    pub fn new(program: &Path, dir: &Path, log: Log) -> Result<Launcher, EmbedError> {
        let secret = Secret::random().map_err(EmbedError::io("cannot read", "/dev/urandom"))?;
        let file = dir.join("secret");
        secret.write(&file).map_err(EmbedError::io("cannot write", file))?;
        Ok(Launcher {
            program: program.to_owned(),
            dir: dir.to_owned(),
            secret: secret.to_hex(),
            log,
            env: Vec::new(),
        })
    }

    /// Starts the same with the same secret, and keeps everything in `dir`.
    pub fn in_dir(&self, dir: &Path) -> Result<Launcher, EmbedError> {
        let file = dir.join("secret");
        std::fs::copy(self.secret_file(), &file).map_err(EmbedError::io("cannot write", file))?;
        Ok(Launcher { dir: dir.to_owned(), ..self.clone() })
    }

    /// Starts the same with this in its environment.
    #[must_use]
    pub fn with_env(mut self, key: impl Into<OsString>, value: impl Into<OsString>) -> Launcher {
        self.env.push((key.into(), value.into()));
        self
    }

    /// The secret of the nodes, of their arbiters, and of jobs that no arbiter knows.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// Where it is.
    pub fn secret_file(&self) -> PathBuf {
        self.dir.join("secret")
    }

    /// The directory of everything.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where node `id` says that it is ready.
    pub fn ready_file(&self, id: u32) -> PathBuf {
        self.dir.join(format!("node{id}.ready"))
    }

    /// The arguments that make the program this node, as long as whoever starts it lives.
    pub fn node_args(&self, node: &NodeSpec) -> Vec<String> {
        let mut args = self.node_args_anywhere(node);
        let ledgers = self.dir.join("ledgers").to_string_lossy().into_owned();
        args.extend(["--die-with-parent".to_owned(), "--ledger-dir".to_owned(), ledgers]);
        args
    }

    fn node_args_anywhere(&self, node: &NodeSpec) -> Vec<String> {
        let text = |p: &Path| p.to_string_lossy().into_owned();
        let mut args: Vec<String> = vec!["node".into()];
        // In one word: a value may begin like an option.
        let mut give = |key: &str, value: String| args.push(format!("{key}={value}"));
        give("--id", node.id.to_string());
        let socket = || format!("unix:{}", self.dir.join(format!("node{}.sock", node.id)).display());
        give("--listen", node.listen.clone().unwrap_or_else(socket));
        node.exports.iter().for_each(|e| give("--export", e.clone()));
        give("--secret-file", text(&self.secret_file()));
        // Whoever starts it is served, and nobody else.
        if !node.more.iter().any(|a| a == "--as" || a == "--identities") {
            give("--as", "self".into());
        }
        give("--ready-file", text(&self.ready_file(node.id)));
        give("--stats-file", text(&self.stats_file(node.id)));
        args.extend(node.more.iter().cloned());
        args
    }

    fn stats_file(&self, id: u32) -> PathBuf {
        self.dir.join(format!("node{id}.stats"))
    }

    /// What a log says that went into a file.
    pub fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.join(format!("{name}.log"))).unwrap_or_default()
    }

    /// Starts a node; [`NodeProcess::await_ready`] waits until it listens.
    pub fn node(&self, spec: NodeSpec) -> Result<NodeProcess, EmbedError> {
        let mut command = Command::new(&self.program);
        command.args(self.node_args(&spec)).stdin(Stdio::null());
        self.start_node(spec.id, command)
    }

    /// As [`Launcher::node`] on another host, which must see this program and the directory. It ends with
    /// its standard input, so with this process, whatever happens to what is between them.
    pub fn node_on(&self, agent: &Agent, host: &str, spec: &NodeSpec) -> Result<NodeProcess, EmbedError> {
        let mut args = self.node_args_anywhere(spec);
        let ledgers = self.dir.join(format!("ledgers-{host}"));
        args.extend(["--end-with-input".to_owned(), "--ledger-dir".to_owned()]);
        args.push(ledgers.to_string_lossy().into_owned());
        let mut command = agent.command(host, &self.program, &args);
        command.stdin(Stdio::piped());
        let mut node = self.start_node(spec.id, command)?;
        node.input = node.process.input();
        Ok(node)
    }

    fn start_node(&self, id: u32, mut command: Command) -> Result<NodeProcess, EmbedError> {
        let (ready, stats) = (self.ready_file(id), self.stats_file(id));
        let _ = std::fs::remove_file(&ready);
        let _ = std::fs::remove_file(&stats);
        command.stdout(Stdio::null());
        let process = self.start(&format!("I/O node {id}"), &format!("node{id}"), command)?;
        Ok(NodeProcess { process, id, ready, stats, addresses: Vec::new(), input: None })
    }

    /// Starts nodes and waits until all listen.
    pub fn nodes(&self, specs: impl IntoIterator<Item = NodeSpec>) -> Result<Vec<NodeProcess>, EmbedError> {
        let mut nodes =
            specs.into_iter().map(|s| self.node(s)).collect::<Result<Vec<NodeProcess>, EmbedError>>()?;
        nodes.iter_mut().try_for_each(NodeProcess::await_ready)?;
        Ok(nodes)
    }

    /// Starts an arbiter and waits until it listens.
    pub fn arbiter(&self, spec: &ArbiterSpec) -> Result<ArbiterProcess, EmbedError> {
        let file = |ending: &str| self.dir.join(format!("{}.{ending}", spec.name));
        let (config, said) = (file("toml"), file("said"));
        std::fs::write(&config, &spec.settings).map_err(EmbedError::io("cannot write", &config))?;
        let output = std::fs::File::create(&said).map_err(EmbedError::io("cannot write", &said))?;
        let mut command = if spec.nice { Command::new("nice") } else { Command::new(&self.program) };
        if spec.nice {
            command.arg(&self.program);
        }
        command.args(["arbiter", "--die-with-parent", "--listen", &spec.listen]);
        command.arg("--config").arg(&config).arg("--secret-file").arg(self.secret_file());
        command.arg("--state").arg(self.dir.join(&spec.name)).args(&spec.more);
        command.stdin(Stdio::null()).stdout(output);
        let mut process = self.start("the arbiter", &spec.name, command)?;
        let url = listening(
            "the arbiter",
            || {
                let text = std::fs::read_to_string(&said).unwrap_or_default();
                let line = text.lines().next().filter(|_| text.contains('\n'))?;
                let url = line.strip_prefix("listening on ");
                Some(url.map(str::to_owned).ok_or_else(|| format!("it says {line:?}")))
            },
            || ended(&mut process),
        )?;
        Ok(ArbiterProcess { process, url })
    }

    fn start(&self, what: &str, name: &str, mut command: Command) -> Result<Process, EmbedError> {
        command.env_remove("LD_PRELOAD").env_remove("FOREBAY_CONFIG").envs(self.env.iter().cloned());
        match self.log {
            Log::Here => {}
            Log::Errors => drop(command.env("FOREBAY_LOG", "error")),
            Log::Files | Log::FilesOfServices => {
                if self.log == Log::FilesOfServices {
                    command.env("FOREBAY_LOG", "info");
                }
                let path = self.dir.join(format!("{name}.log"));
                let log = std::fs::File::options().create(true).append(true).open(&path);
                command.stderr(log.map_err(EmbedError::io("cannot write", &path))?);
            }
        }
        Process::start(&mut command)
            .map_err(|e| EmbedError::Start { what: what.to_owned(), why: e.to_string() })
    }
}

/// An I/O node. Dropping it kills it.
#[derive(Debug)]
pub struct NodeProcess {
    /// The process itself.
    pub process: Process,
    id: u32,
    ready: PathBuf,
    stats: PathBuf,
    addresses: Vec<Address>,
    /// Of one on another host: it lives while this is open.
    input: Option<ChildStdin>,
}

/// How a node ended.
#[derive(Debug)]
pub struct NodeEnd {
    /// Nothing if as it should.
    pub problem: Option<String>,
    /// What it counted, as it wrote it.
    pub stats: Option<serde_json::Value>,
}

impl NodeProcess {
    /// Waits until it listens.
    pub fn await_ready(&mut self) -> Result<(), EmbedError> {
        let process = &mut self.process;
        self.addresses = await_ready(self.id, &self.ready, || ended(process))?;
        Ok(())
    }

    /// Where it listens, once it is ready.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Asks all to end, waits for them, and says how they did.
    pub fn end_all(nodes: &mut [NodeProcess]) -> Vec<NodeEnd> {
        nodes.iter_mut().for_each(NodeProcess::ask_to_end);
        let deadline = Instant::now() + STOP_LIMIT;
        nodes.iter_mut().map(|n| n.end(deadline.saturating_duration_since(Instant::now()))).collect()
    }

    fn ask_to_end(&mut self) {
        match self.input.take() {
            Some(open) => drop(open),
            None => self.process.ask_to_end(),
        }
    }

    fn end(&mut self, patience: Duration) -> NodeEnd {
        // It was asked already: a second signal would end it before it has drained.
        let ended = self.process.wait_for(patience).ok().flatten().or_else(|| self.process.kill());
        let problem = match ended {
            Some(status) => problem(status),
            None => Some("its end was not seen".into()),
        };
        let stats = std::fs::read(&self.stats).ok().and_then(|b| serde_json::from_slice(&b).ok());
        NodeEnd { problem, stats }
    }
}

/// An arbiter. Dropping it kills it.
#[derive(Debug)]
pub struct ArbiterProcess {
    /// The process itself.
    pub process: Process,
    url: String,
}

impl ArbiterProcess {
    /// Where it listens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Asks it to end, and waits.
    pub fn end(mut self) {
        self.process.end(STOP_LIMIT);
    }
}

/// What is wrong with how a process ended, in words.
fn problem(status: ExitStatus) -> Option<String> {
    match status.signal() {
        _ if status.success() => None,
        Some(n) => Some(format!("killed by signal {n}")),
        None => Some(status.to_string()),
    }
}

fn ended(process: &mut Process) -> Option<String> {
    match process.try_wait() {
        Ok(None) => None,
        Ok(Some(status)) => Some(format!("it ended with {status}")),
        Err(e) => Some(e.to_string()),
    }
}

/// Waits for the file with which node `id` says where it listens. `gone` says in words why waiting is
/// useless, for example that it has ended.
pub fn await_ready(
    id: u32,
    file: &Path,
    gone: impl FnMut() -> Option<String>,
) -> Result<Vec<Address>, EmbedError> {
    let read = || {
        let ready: Ready = match serde_json::from_slice(&std::fs::read(file).ok()?) {
            Ok(ready) => ready,
            Err(e) => return Some(Err(e.to_string())),
        };
        let parsed = ready.addresses.iter().map(|a| a.parse::<Address>().map_err(|e| e.to_string()));
        Some(parsed.collect::<Result<Vec<_>, _>>().and_then(|all| match all.is_empty() {
            true => Err("it listens nowhere".into()),
            false => Ok(all),
        }))
    };
    listening(&format!("I/O node {id}"), read, gone)
}

fn listening<T>(
    what: &str,
    mut read: impl FnMut() -> Option<Result<T, String>>,
    mut gone: impl FnMut() -> Option<String>,
) -> Result<T, EmbedError> {
    let failed = |why: String| EmbedError::Start { what: what.to_owned(), why };
    let deadline = Instant::now() + START_LIMIT;
    loop {
        // First whether it is gone: what it said before counts all the same.
        let over = gone();
        if let Some(said) = read() {
            return said.map_err(failed);
        }
        if let Some(why) = over {
            return Err(failed(why));
        }
        if Instant::now() > deadline {
            return Err(failed(format!("it was not ready after {} s", START_LIMIT.as_secs())));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}
