//! I/O nodes under a test's control: they can be killed, stopped, drained and started again, and
//! programs run through them as `forebay run` would run them.
#![allow(dead_code, unused_imports)] // each test uses its part

mod load;

pub(crate) use load::Load;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The path that programs use: it does not exist on this machine.
pub(crate) const AT: &str = "/forebay-test";
const JOB: &str = "test";

/// Signals that tests send.
pub(crate) use rustix::process::Signal;

struct NodeProcess {
    child: Option<Child>,
    listen: String,
    stats: PathBuf,
}

/// Running I/O nodes and the directory they export.
pub(crate) struct Layer {
    dir: tempfile::TempDir,
    nodes: Vec<NodeProcess>,
    lease_ms: u64,
}

/// How clients are configured.
pub(crate) struct ClientOptions {
    pub(crate) deadline: Duration,
    pub(crate) direct: bool,
    /// Instead of the nodes' own addresses.
    pub(crate) through: Option<Vec<String>>,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions { deadline: Duration::from_secs(30), direct: false, through: None }
    }
}

impl Layer {
    /// Starts so many nodes, whose leases last `lease_ms`, over TCP.
    pub(crate) fn start(count: usize, lease_ms: u64, options: &ClientOptions) -> Layer {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(dir.path().join("export")).expect("an export");
        std::fs::write(dir.path().join("libforebay.so"), forebay_embed::PRELOAD).expect("the library");
        let secret: String =
            (0..32).map(|i| format!("{:02x}", (i * 37 + std::process::id()) as u8)).collect();
        std::fs::write(dir.path().join("secret"), &secret).expect("the secret");
        let mut layer = Layer { dir, nodes: Vec::new(), lease_ms };
        for n in 0..count {
            let stats = layer.dir.path().join(format!("node{n}.stats"));
            layer.nodes.push(NodeProcess { child: None, listen: "tcp:127.0.0.1:0".into(), stats });
            layer.restart(n);
        }
        layer.configure(&secret, options);
        layer
    }

    fn configure(&self, secret: &str, options: &ClientOptions) {
        let own: Vec<String> = self.nodes.iter().map(|n| n.listen.clone()).collect();
        let config = serde_json::json!({
            "job": JOB,
            "secret": secret,
            "nodes": options.through.clone().unwrap_or(own),
            "exports": [{ "dir": AT, "export": self.export().to_str(), "local": self.export().to_str() }],
            "deadline_ms": options.deadline.as_millis() as u64,
            "fallback": if options.direct { "direct" } else { "error" },
        });
        std::fs::write(self.dir.path().join("client.json"), config.to_string())
            .expect("the client's configuration");
    }

    /// Clients that start from now on reach the nodes this way.
    pub(crate) fn reconfigure(&self, options: &ClientOptions) {
        self.configure(&self.secret(), options);
    }

    /// The secret of the nodes and of the job.
    pub(crate) fn secret(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("secret")).expect("the secret")
    }

    /// The directory the nodes export.
    pub(crate) fn export(&self) -> PathBuf {
        self.dir.path().join("export")
    }

    /// A directory for files that are not forwarded.
    pub(crate) fn scratch(&self) -> &Path {
        self.dir.path()
    }

    /// Where node `n` listens, as `HOST:PORT`.
    pub(crate) fn address(&self, n: usize) -> String {
        self.nodes[n].listen.trim_start_matches("tcp:").to_owned()
    }

    /// Starts node `n` where it was before. Waits until it listens.
    pub(crate) fn restart(&mut self, n: usize) {
        self.reap(n);
        let ready = self.dir.path().join(format!("node{n}.ready"));
        let _ = std::fs::remove_file(&ready);
        let node = &mut self.nodes[n];
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args([
            "node",
            "--die-with-parent",
            "--drain-timeout",
            "2",
            "--job",
            JOB,
            "--listen",
            &node.listen,
        ]);
        command.arg("--id").arg(n.to_string()).arg("--lease-ms").arg(self.lease_ms.to_string());
        command.arg("--export").arg(self.dir.path().join("export"));
        command.arg("--secret-file").arg(self.dir.path().join("secret"));
        command.arg("--ready-file").arg(&ready).arg("--stats-file").arg(&node.stats);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        node.child = Some(command.spawn().expect("forebay node starts"));
        let since = Instant::now();
        loop {
            if let Ok(text) = std::fs::read_to_string(&ready) {
                let json: serde_json::Value = serde_json::from_str(&text).expect("the ready file");
                node.listen = json["addresses"][0].as_str().expect("an address").to_owned();
                return;
            }
            let ended = node.child.as_mut().and_then(|c| c.try_wait().expect("a child of ours"));
            assert!(ended.is_none(), "node {n} ended: {ended:?}");
            assert!(since.elapsed() < Duration::from_secs(60), "node {n} does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends node `n` a signal.
    pub(crate) fn signal(&self, n: usize, signal: Signal) {
        let child = self.nodes[n].child.as_ref().expect("the node was started");
        let pid = rustix::process::Pid::from_raw(child.id() as i32).expect("a process id");
        rustix::process::kill_process(pid, signal).expect("our own child takes signals");
    }

    /// Kills node `n` at once.
    pub(crate) fn kill(&mut self, n: usize) {
        self.reap(n);
    }

    /// Asks node `n` to drain, and waits for its end.
    pub(crate) fn drain(&mut self, n: usize) {
        self.signal(n, Signal::TERM);
        let mut child = self.nodes[n].child.take().expect("the node was started");
        let status = child.wait().expect("a child of ours");
        assert!(status.success(), "node {n} drained with {status}");
    }

    fn reap(&mut self, n: usize) {
        if let Some(mut child) = self.nodes[n].child.take() {
            // A stopped process dies of it too.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Ends node `n` in order and gives what it counted.
    pub(crate) fn stats(&mut self, n: usize) -> serde_json::Value {
        self.drain(n);
        let text = std::fs::read_to_string(&self.nodes[n].stats).expect("the node's statistics");
        serde_json::from_str(&text).expect("the node's statistics are JSON")
    }

    /// A program whose I/O below [`AT`] is forwarded. `turn` chooses its first I/O node.
    pub(crate) fn command(&self, program: &Path, turn: usize) -> Command {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", self.dir.path().join("libforebay.so"));
        command.env("FOREBAY_CONFIG", self.dir.path().join("client.json"));
        command.env("OMPI_COMM_WORLD_RANK", turn.to_string());
        // A test that fails must not leave its programs behind.
        // SAFETY: prctl is async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into)
            });
        }
        command
    }

    /// Compiles a C program of the tests' own.
    pub(crate) fn compile(&self, name: &str) -> PathBuf {
        compile(self.dir.path(), name)
    }
}

/// Compiles `tests/layer/NAME.c` into `dir`.
pub(crate) fn compile(dir: &Path, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/layer").join(format!("{name}.c"));
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

impl Drop for Layer {
    fn drop(&mut self) {
        for n in 0..self.nodes.len() {
            self.reap(n);
        }
    }
}

/// A program that takes a line and answers with a line.
pub(crate) struct Talker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Talker {
    pub(crate) fn start(mut command: Command) -> Talker {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Talker { child, input, output }
    }

    pub(crate) fn send(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).expect("the program takes commands");
    }

    pub(crate) fn receive(&mut self) -> String {
        let mut line = String::new();
        let n = self.output.read_line(&mut line).expect("the program answers");
        assert!(n > 0, "the program ended: {:?}", self.child.wait());
        line.truncate(line.trim_end().len());
        line
    }

    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.receive()
    }

    /// Ends the program by closing its input; it must end well. Returns what it still said.
    pub(crate) fn finish(self) -> String {
        let Talker { mut child, input, mut output } = self;
        drop(input);
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut output, &mut rest).expect("the program's output");
        let status = child.wait().expect("a child of ours");
        assert!(status.success(), "the program ended with {status}; it said: {rest}");
        rest
    }
}

/// The seed of a random test: `FOREBAY_SEED`, or another one every time.
pub(crate) fn seed() -> u64 {
    let seed = match std::env::var("FOREBAY_SEED") {
        Ok(text) => text.parse().expect("FOREBAY_SEED is a number"),
        Err(_) => std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_nanos() as u64 % 1_000_000_007),
    };
    println!("seed {seed} (repeat with FOREBAY_SEED={seed})");
    seed
}

/// A number from the environment.
pub(crate) fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |t| t.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}
