//! Arbiters and the I/O nodes that follow them, under a test's control.

use crate::{ArbiterProcess, ArbiterSpec, NodeProcess, NodeSpec, RunDir, program};
use forebay_client::{Client, Config, ExportMap};
use forebay_control::JOBS_PATH;
use forebay_control::client::Client as Arbiter;
use forebay_control::job::{JobGrant, JobRequest};
use forebay_control::view::{HealthView, MappingView, NodeView};
use forebay_embed::{Launcher, Log};
use forebay_types::Secret;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long an arbiter has for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A directory with a secret, where everything happens.
pub struct Site {
    launcher: Launcher,
    dir: RunDir,
}

impl Default for Site {
    fn default() -> Site {
        Site::new()
    }
}

impl Site {
    /// A new one, in memory.
    pub fn new() -> Site {
        Site::logging(Log::Files)
    }

    /// A new one whose logs say all that a service of its own would tell its admin.
    pub fn of_services() -> Site {
        Site::logging(Log::FilesOfServices)
    }

    fn logging(log: Log) -> Site {
        let dir = RunDir::in_memory().expect("a directory");
        std::fs::create_dir(dir.path().join("data")).expect("the data");
        let launcher = Launcher::new(&program(), dir.path(), log).expect("a secret");
        Site { launcher, dir }
    }

    /// Another directory with the same secret, for what must not share its files with what is here.
    pub fn beside(&self) -> Site {
        let dir = RunDir::in_memory().expect("a directory");
        std::fs::create_dir(dir.path().join("data")).expect("the data");
        Site { launcher: self.launcher.in_dir(dir.path()).expect("the secret"), dir }
    }

    /// Where everything happens.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The exported directory; its export is called `data`.
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Shared by all.
    pub fn secret(&self) -> &str {
        self.launcher.secret()
    }

    /// Where it is.
    pub fn secret_file(&self) -> PathBuf {
        self.launcher.secret_file()
    }

    /// Starts an arbiter.
    pub fn arbiter(&self, spec: &ArbiterSpec) -> ArbiterProcess {
        self.launcher.arbiter(spec).unwrap_or_else(|e| panic!("{e}: {}", self.log(&spec.name)))
    }

    /// Starts an I/O node that follows these arbiters.
    pub fn node(&self, id: usize, arbiters: &str) -> NodeProcess {
        self.node_with(id, &["--arbiter", arbiters])
    }

    /// Starts an I/O node with these further arguments.
    pub fn node_with(&self, id: usize, more: &[&str]) -> NodeProcess {
        let spec = NodeSpec {
            id: id as u32,
            listen: Some("tcp:127.0.0.1:0".into()),
            exports: vec![format!("{}=data", self.data().display())],
            more: more.iter().map(|a| (*a).to_owned()).collect(),
        };
        let mut node = self.launcher.node(spec).expect("forebay starts");
        node.await_ready().unwrap_or_else(|e| panic!("{e}: {}", self.log(&format!("node{id}"))));
        node
    }

    /// Where the metrics of I/O node `id` are, which was started with `--metrics`.
    pub fn metrics(&self, id: usize) -> String {
        let ready = std::fs::read(self.launcher.ready_file(id as u32)).expect("the node is ready");
        let ready: serde_json::Value = serde_json::from_slice(&ready).expect("JSON");
        format!("http://{}", ready["metrics"].as_str().expect("it was told to serve metrics"))
    }

    /// `forebay ARGS` in this directory, of whoever knows the secret.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args(args).env("FOREBAY_SECRET_FILE", self.secret_file()).current_dir(self.path());
        command.stdin(Stdio::null()).env_remove("FOREBAY_ARBITER");
        command
    }

    /// What a log says.
    pub fn log(&self, name: &str) -> String {
        self.launcher.log(name)
    }

    /// Status and body of an answer; `None` if there is none.
    pub fn get(&self, url: &str, path: &str) -> Option<(u16, String)> {
        self.ask(url, "GET", path, None)
    }

    /// What this arbiter answers, whoever leads.
    fn ask(&self, url: &str, method: &str, path: &str, body: Option<&str>) -> Option<(u16, String)> {
        let arbiter = Arbiter::new(url, Secret::from_hex(self.secret())).expect("an address");
        arbiter.with_patience(PATIENCE).ask(method, path, body).ok()
    }

    fn read<T: DeserializeOwned>(&self, url: &str, path: &str) -> Option<T> {
        let (status, body) = self.get(url, path)?;
        (status == 200).then(|| serde_json::from_str(&body).unwrap_or_else(|e| panic!("{path}: {e}: {body}")))
    }

    /// How it is.
    pub fn health(&self, url: &str) -> Option<HealthView> {
        self.read(url, "/v1/health")
    }

    /// Its nodes.
    pub fn nodes(&self, url: &str) -> Option<Vec<NodeView>> {
        self.read(url, "/v1/nodes")
    }

    /// Who is where.
    pub fn mapping(&self, url: &str) -> Option<MappingView> {
        self.read(url, "/v1/mapping")
    }

    /// Registers a job of one compute node, or renews it: the grant, or status and words of a refusal.
    pub fn register(
        &self,
        url: &str,
        id: &str,
        secret: Option<&str>,
    ) -> Option<Result<JobGrant, (u16, String)>> {
        let job = JobRequest {
            id: id.into(),
            app: id.into(),
            user: "test".into(),
            processes: 4,
            secret: secret.map(str::to_owned),
            explore: false,
            ..JobRequest::default()
        };
        let job = serde_json::to_string(&job).expect("JSON");
        let (status, body) = self.ask(url, "POST", JOBS_PATH, Some(&job))?;
        Some(if status == 200 {
            Ok(serde_json::from_str(&body).expect("a grant"))
        } else {
            Err((status, body))
        })
    }

    /// A client of a job.
    pub fn client(&self, grant: &JobGrant, secret: &str) -> Client {
        let parse = |list: &[String]| list.iter().map(|a| a.parse().expect("an address")).collect();
        let config = Config {
            spare: parse(&grant.spare),
            epoch: grant.epoch,
            exports: vec![ExportMap { dir: self.data(), export: "data".into(), local: None }],
            deadline_ms: 60_000,
            ..Config::new(&grant.id, secret, parse(&grant.addresses))
        };
        Client::new(config, None).expect("a client")
    }
}
