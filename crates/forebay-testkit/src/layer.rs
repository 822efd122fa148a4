//! I/O nodes under a test's control: they can be killed, stopped, drained and started again, and
//! programs run through them as `forebay run` would run them.

use crate::program;
use forebay_client::{Config, ExportMap, Fallback};
use forebay_embed::{Launcher, Log, NodeProcess, NodeSpec, PRELOAD, Process, RunDir, write_config};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// The path that programs use: it does not exist on this machine.
pub const AT: &str = "/forebay-test";
const JOB: &str = "test";

struct Node {
    /// While it runs.
    process: Option<NodeProcess>,
    listen: String,
    /// Its configuration file, if it has one.
    config: Option<PathBuf>,
    /// How long a drain of it takes at most.
    drain_seconds: u32,
    /// What it exports instead of the others' directory.
    export: Option<PathBuf>,
}

/// Running I/O nodes and the directory they export.
pub struct Layer {
    nodes: Vec<Node>,
    launcher: Launcher,
    lease_ms: u64,
    /// Nodes serve any job that knows the secret.
    any_job: bool,
    dir: RunDir,
}

/// How clients are configured.
pub struct ClientOptions {
    /// The longest a call may take.
    pub deadline: Duration,
    /// Whether calls go to the directory on this machine when no node answers.
    pub direct: bool,
    /// Instead of the nodes' own addresses.
    pub through: Option<Vec<String>>,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions { deadline: Duration::from_secs(30), direct: false, through: None }
    }
}

impl Layer {
    /// Starts so many nodes, whose leases last `lease_ms`, over TCP.
    pub fn start(count: usize, lease_ms: u64, options: &ClientOptions) -> Layer {
        Layer::start_on(count, lease_ms, options, false)
    }

    /// As [`Layer::start`], on Unix sockets if `unix`.
    pub fn start_on(count: usize, lease_ms: u64, options: &ClientOptions, unix: bool) -> Layer {
        Layer::begin(count, lease_ms, options, unix, false)
    }

    /// On Unix sockets, and for any job: see [`Layer::job`].
    pub fn start_for_any_job(count: usize, lease_ms: u64) -> Layer {
        Layer::begin(count, lease_ms, &ClientOptions::default(), true, true)
    }

    /// The configuration of a job's clients, who reach the nodes there: for `FOREBAY_CONFIG`.
    pub fn job(&self, name: &str, node: &str, deadline: Duration) -> PathBuf {
        let node = node.parse().expect("an address");
        let config = Config {
            exports: vec![ExportMap { dir: AT.into(), export: self.exported(), local: None }],
            deadline_ms: deadline.as_millis() as u64,
            ..Config::new(name, self.launcher.secret(), vec![node])
        };
        let file = self.dir.path().join(format!("{name}.json"));
        write_config(&file, &config).expect("the job's configuration");
        file
    }

    fn exported(&self) -> String {
        self.export().to_str().expect("UTF-8").to_owned()
    }

    fn begin(count: usize, lease_ms: u64, options: &ClientOptions, unix: bool, any_job: bool) -> Layer {
        let dir = RunDir::create(&std::env::temp_dir()).expect("a temporary directory");
        std::fs::create_dir(dir.path().join("export")).expect("an export");
        let other = std::env::var_os("FOREBAY_LIBRARY").map(|other| std::fs::read(other).expect("a library"));
        std::fs::write(dir.path().join("libforebay.so"), other.as_deref().unwrap_or(PRELOAD))
            .expect("the library");
        let launcher = Launcher::new(&program(), dir.path(), Log::Here).expect("a secret");
        let mut layer = Layer { nodes: Vec::new(), launcher, lease_ms, any_job, dir };
        for n in 0..count {
            let socket = layer.dir.path().join(format!("n{n}"));
            let listen = if unix { format!("unix:{}", socket.display()) } else { "tcp:127.0.0.1:0".into() };
            layer.nodes.push(Node { process: None, listen, config: None, drain_seconds: 2, export: None });
            layer.restart(n);
        }
        layer.reconfigure(options);
        layer
    }

    /// Clients that start from now on reach the nodes this way.
    pub fn reconfigure(&self, options: &ClientOptions) {
        let own = || self.nodes.iter().map(|n| n.listen.clone()).collect();
        let nodes: Vec<String> = options.through.clone().unwrap_or_else(own);
        let nodes = nodes.iter().map(|a| a.parse().expect("an address")).collect();
        let config = Config {
            exports: vec![ExportMap { dir: AT.into(), export: self.exported(), local: Some(self.export()) }],
            deadline_ms: options.deadline.as_millis() as u64,
            fallback: if options.direct { Fallback::Direct } else { Fallback::Error },
            ..Config::new(JOB, self.launcher.secret(), nodes)
        };
        write_config(&self.dir.path().join("client.json"), &config).expect("the clients' configuration");
    }

    /// The secret of the nodes and of the job.
    pub fn secret(&self) -> String {
        self.launcher.secret().to_owned()
    }

    /// The directory the nodes export.
    pub fn export(&self) -> PathBuf {
        self.dir.path().join("export")
    }

    /// A directory for files that are not forwarded.
    pub fn scratch(&self) -> &Path {
        self.dir.path()
    }

    /// Where node `n` listens, as `HOST:PORT`.
    pub fn address(&self, n: usize) -> String {
        self.nodes[n].listen.trim_start_matches("tcp:").to_owned()
    }

    /// Starts node `n` again with these lines of configuration.
    pub fn configure(&mut self, n: usize, settings: &str) {
        let file = self.dir.path().join(format!("n{n}.toml"));
        std::fs::write(&file, settings).expect("a configuration");
        self.nodes[n].config = Some(file);
        self.restart(n);
    }

    /// From now on each call to the storage of a node whose `slow-storage` is this file takes so long.
    pub fn slow(&self, file: &str, milliseconds: u32) {
        std::fs::write(self.dir.path().join(file), milliseconds.to_string()).expect("a file");
    }

    /// From now on what was written through a node whose `slow-storage` is this file turns out not to have been,
    /// at `fsync` and `close`.
    pub fn fail(&self, file: &str, errno: i32) {
        std::fs::write(self.dir.path().join(file), format!("0 {errno}")).expect("a file");
    }

    /// Starts node `n` again; a drain of it waits so long.
    pub fn restart_with(&mut self, n: usize, drain_seconds: u32) {
        self.nodes[n].drain_seconds = drain_seconds;
        self.restart(n);
    }

    /// Starts node `n` again where it was before, as one that exports something else.
    pub fn restart_exporting(&mut self, n: usize, dir: &Path) {
        self.nodes[n].export = Some(dir.to_owned());
        self.restart(n);
    }

    /// Whether node `n` has not ended.
    pub fn is_running(&mut self, n: usize) -> bool {
        let process = self.nodes[n].process.as_mut();
        process.is_some_and(|node| matches!(node.process.try_wait(), Ok(None)))
    }

    /// Starts node `n` where it was before. Waits until it listens.
    pub fn restart(&mut self, n: usize) {
        self.kill(n);
        let text = |t: &str| t.to_owned();
        let config = self.nodes[n].config.iter().flat_map(|c| [text("--config"), c.display().to_string()]);
        let spec = NodeSpec {
            id: n as u32,
            listen: Some(self.nodes[n].listen.clone()),
            exports: vec![self.nodes[n].export.clone().unwrap_or(self.export()).display().to_string()],
            more: [
                "--drain-timeout",
                &self.nodes[n].drain_seconds.to_string(),
                "--lease-ms",
                &self.lease_ms.to_string(),
            ]
            .into_iter()
            .chain(["--job", JOB].into_iter().filter(|_| !self.any_job))
            .map(text)
            .chain(config)
            .collect(),
        };
        let mut process = self.launcher.node(spec).expect("forebay node starts");
        process.await_ready().expect("it listens");
        self.nodes[n].listen = process.addresses()[0].to_string();
        self.nodes[n].process = Some(process);
    }

    fn node(&self, n: usize) -> &NodeProcess {
        self.nodes[n].process.as_ref().expect("the node was started")
    }

    /// The process of node `n`.
    pub fn pid(&self, n: usize) -> u32 {
        self.node(n).process.id()
    }

    /// How many descriptors of node `n` stand for what it exports.
    pub fn open_files(&self, n: usize) -> usize {
        let fds = format!("/proc/{}/fd", self.node(n).process.id());
        let open = std::fs::read_dir(fds).expect("our own child").flatten();
        let below = self.export().join("");
        open.filter(|e| std::fs::read_link(e.path()).is_ok_and(|to| to.starts_with(&below) && to != below))
            .count()
    }

    /// Stops node `n`, and waits until all its threads stand still.
    pub fn freeze(&self, n: usize) {
        self.node(n).process.freeze().expect("our own child takes signals");
    }

    /// Lets it go on.
    pub fn thaw(&self, n: usize) {
        self.node(n).process.thaw().expect("our own child takes signals");
    }

    /// Asks node `n` to drain, and does not wait.
    pub fn begin_drain(&self, n: usize) {
        self.node(n).process.ask_to_end();
    }

    /// Kills node `n` at once.
    pub fn kill(&mut self, n: usize) {
        // Dropping a process kills it; a stopped one dies of it too.
        self.nodes[n].process = None;
    }

    /// Asks node `n` to drain, and waits for its end; gives what it counted.
    pub fn drain(&mut self, n: usize) -> serde_json::Value {
        let process = self.nodes[n].process.take().expect("the node was started");
        let end = NodeProcess::end_all(&mut [process]).remove(0);
        assert_eq!(end.problem, None, "node {n}");
        end.stats.expect("the node's statistics")
    }

    /// A program whose I/O below [`AT`] is forwarded. `turn` chooses its first I/O node.
    pub fn command(&self, program: &Path, turn: usize) -> Command {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", self.dir.path().join("libforebay.so"));
        command.env("FOREBAY_CONFIG", self.dir.path().join("client.json"));
        command.env("OMPI_COMM_WORLD_RANK", turn.to_string());
        command
    }

    /// Compiles a C program of the tests' own.
    pub fn compile(&self, name: &str) -> PathBuf {
        compile(self.dir.path(), name)
    }
}

/// Compiles `programs/NAME.c` of this crate into `dir`.
pub fn compile(dir: &Path, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(format!("{name}.c"));
    let program = dir.join(name);
    let status = Command::new("cc")
        .args([
            "-std=gnu11",
            "-O1",
            "-Wall",
            "-Werror",
            "-D_GNU_SOURCE",
            "-D_FILE_OFFSET_BITS=64",
            "-pthread",
            "-o",
        ])
        .arg(&program)
        .arg(&source)
        .status()
        .expect("cc runs: Rust itself links with it");
    assert!(status.success(), "{} does not compile", source.display());
    program
}

/// A program that takes a line and answers with a line.
pub struct Talker {
    process: Process,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Talker {
    /// Starts it.
    pub fn start(mut command: Command) -> Talker {
        let started = Process::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let mut process = started.expect("the program starts");
        let input = process.input().expect("piped");
        let output = BufReader::new(process.output().expect("piped"));
        Talker { process, input, output }
    }

    /// Gives it a line.
    pub fn send(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).expect("the program takes commands");
    }

    /// Waits for a line of its own.
    pub fn receive(&mut self) -> String {
        let mut line = String::new();
        let n = self.output.read_line(&mut line).expect("the program answers");
        assert!(n > 0, "the program ended: {:?}", self.process.wait());
        line.truncate(line.trim_end().len());
        line
    }

    /// Gives it a line and waits for its answer.
    pub fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.receive()
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Stops it, and waits until it stands still.
    pub fn freeze(&self) {
        self.process.freeze().expect("our own child takes signals");
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.process.thaw().expect("our own child takes signals");
    }

    /// Waits for a line, and for its end.
    pub fn finish_saying(mut self) -> String {
        let line = self.receive();
        self.finish();
        line
    }

    /// Ends the program by closing its input; it must end well. Returns what it still said.
    pub fn finish(self) -> String {
        let Talker { mut process, input, mut output } = self;
        drop(input);
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut output, &mut rest).expect("the program's output");
        let status = process.wait().expect("a child of ours");
        assert!(status.success(), "the program ended with {status}; it said: {rest}");
        rest
    }
}
