//! An arbiter that takes MUNGE, an I/O node of root, and users.
#![allow(dead_code, unreachable_pub)] // each test file uses its part

use forebay_control::claim::Claim;
use forebay_embed::{Launcher, Log};
use forebay_testkit::{
    ArbiterProcess, ArbiterSpec, Munged, NodeProcess, NodeSpec, Process, as_user_in, until,
};
use forebay_types::Secret;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

pub const FOREBAY: &str = env!("CARGO_BIN_EXE_forebay");
pub const PATIENCE: Duration = Duration::from_secs(60);
pub const A: u32 = 7001;
pub const B: u32 = 7002;
pub const ADMIN: u32 = 7009;
/// A group whose users are admins; nobody is in it.
pub const ADMINS: u32 = 7200;
/// Whose group is not known.
pub const NOBODY: u32 = 65_534;

pub struct World {
    pub node: Option<NodeProcess>,
    _arbiter: ArbiterProcess,
    pub munged: Munged,
    pub url: String,
    pub launcher: Launcher,
    pub dir: tempfile::TempDir,
}

pub fn open_to_all(path: &Path) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

/// A shell's lines as a program in that directory.
pub fn program_of(dir: &Path, lines: &str) -> PathBuf {
    let path = dir.join("program");
    // By a process of its own: what another thread's child inherits open for writing cannot be started.
    let mut write = Command::new("sh");
    write.args(["-c", r#"printf '#!/bin/sh\n%s\n' "$1" > "$0" && chmod 755 "$0""#]).arg(&path).arg(lines);
    assert!(write.status().unwrap().success());
    path
}

/// A node by TCP that exports `data`.
pub fn node_spec(data: &Path, options: &[&str]) -> NodeSpec {
    NodeSpec {
        listen: Some("tcp:127.0.0.1:0".into()),
        exports: vec![format!("{}=data", data.display())],
        more: options.iter().map(|o| (*o).to_owned()).collect(),
        ..NodeSpec::default()
    }
}

pub fn said(out: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

/// One HTTP request, bare: status and body.
pub fn http(address: &str, method: &str, path: &str, body: &str, authorization: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n"
    )
    .unwrap();
    write!(stream, "content-type: application/json\r\nauthorization: {authorization}\r\n\r\n{body}").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or_else(|| panic!("{text:?}"));
    (status, text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

impl World {
    pub fn start(test: &str) -> Option<World> {
        World::with(test, |_| PathBuf::from(FOREBAY))
    }

    /// Arbiter and nodes may open so many files, and have to ask for more than a few.
    pub fn with_descriptors(test: &str, most: u32) -> Option<World> {
        World::with(test, |dir| {
            program_of(dir, &format!("ulimit -Sn 64; ulimit -Hn {most}; exec {FOREBAY} \"$@\""))
        })
    }

    /// Arbiter and nodes are this program; `program` is told of the directory before anything is in it.
    pub fn with(test: &str, program: impl FnOnce(&Path) -> PathBuf) -> Option<World> {
        let dir = tempfile::tempdir().unwrap();
        let munged = Munged::start(test, dir.path())?;
        let at = |name: &str| dir.path().join(name);
        let _ = std::fs::create_dir(at("data"));
        open_to_all(&at("data"));
        for (name, uid) in [("a", A), ("b", B), ("admin", ADMIN)] {
            for path in [at("data").join(name), at(&format!("home-{uid}"))] {
                std::fs::create_dir(&path).unwrap();
                chown(&path, Some(uid), Some(uid)).unwrap();
                std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
            }
        }
        let launcher = Launcher::new(&program(dir.path()), dir.path(), Log::Files).unwrap();
        let launcher = launcher.with_env("FOREBAY_MUNGE_SOCKET", munged.socket());
        let socket = munged.socket().display();
        let settings = format!(
            "munge = true\nmunge-socket = \"{socket}\"\nadmins = [\"{ADMIN}\", \"@{ADMINS}\", \"@0\"]\nlease-ms = 2000\n"
        );
        let arbiter = ArbiterSpec { settings, ..ArbiterSpec::default() };
        let arbiter =
            launcher.arbiter(&arbiter).unwrap_or_else(|e| panic!("{e}: {}", launcher.log("arbiter")));
        let url = arbiter.url().to_owned();
        let mut world = World { node: None, _arbiter: arbiter, munged, url, launcher, dir };
        world.node = Some(world.start_node(&["--identities", "arbiter", "--arbiter", &world.url]));
        world.await_node(0);
        Some(world)
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn start_node(&self, options: &[&str]) -> NodeProcess {
        self.start_node_as(0, options)
    }

    pub fn start_node_as(&self, id: u32, options: &[&str]) -> NodeProcess {
        let spec = NodeSpec { id, ..node_spec(&self.at("data"), options) };
        let mut node = self.launcher.node(spec).unwrap();
        node.await_ready().unwrap_or_else(|e| panic!("{e}: {}", self.launcher.log(&format!("node{id}"))));
        node
    }

    /// Where the node listens, `tcp:HOST:PORT`.
    pub fn node_address(&self) -> String {
        self.node.as_ref().unwrap().addresses()[0].to_string()
    }

    pub fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }

    pub fn claim(&self, uid: u32, claim: &Claim, more: &[&str]) -> String {
        format!("Munge {}", self.munged.credential(uid, &claim.to_bytes(), more))
    }

    /// What a user who runs with another group is answered.
    pub fn ask_in(&self, uid: u32, gid: u32, method: &str, path: &str) -> (u16, String) {
        let claim = Claim::new(method, path, b"", None);
        let credential = self.munged.credential_in(uid, gid, &claim.to_bytes(), &[]);
        http(self.address(), method, path, "", &format!("Munge {credential}"))
    }

    /// A request of a user.
    pub fn ask(&self, uid: u32, method: &str, path: &str, body: &str) -> (u16, String) {
        let secret = Secret::new([uid as u8; 32]);
        let claim = Claim::new(method, path, body.as_bytes(), Some(secret));
        http(self.address(), method, path, body, &self.claim(uid, &claim, &[]))
    }

    /// `forebay …` as a user.
    pub fn forebay(&self, uid: u32, arguments: &[&str]) -> Command {
        self.forebay_in(uid, uid, arguments)
    }

    /// The same, with another group.
    pub fn forebay_in(&self, uid: u32, gid: u32, arguments: &[&str]) -> Command {
        let mut command = as_user_in(uid, gid, FOREBAY);
        command.args(arguments).env_remove("FOREBAY_SECRET_FILE").env("FOREBAY_ARBITER", &self.url);
        command.env("FOREBAY_MUNGE_SOCKET", self.munged.socket()).env("FOREBAY_ARBITER_USER", "root");
        command.env("HOME", self.at(&format!("home-{uid}"))).current_dir("/").stdin(Stdio::null());
        command
    }

    /// A program of a user, forwarded.
    pub fn run(&self, uid: u32, job: &str, script: &str) -> Output {
        self.run_in(uid, uid, job, script)
    }

    /// The same, with another group.
    pub fn run_in(&self, uid: u32, gid: u32, job: &str, script: &str) -> Output {
        let arguments = ["run", "--quiet", "--job", job, "--at", "/fwd=data", "--", "sh", "-c", script];
        self.forebay_in(uid, gid, &arguments).output().unwrap()
    }

    /// A program of a user that goes on.
    pub fn going(&self, uid: u32, job: &str, script: &str) -> Process {
        let arguments = ["run", "--quiet", "--job", job, "--at", "/fwd=data", "--", "bash", "-c", script];
        Process::start(self.forebay(uid, &arguments).stdout(Stdio::null())).unwrap()
    }

    /// The arbiter gives jobs to that I/O node.
    pub fn await_node(&self, id: u32) {
        until(PATIENCE, "the node is known", || {
            let (_, text) = self.ask(ADMIN, "GET", &format!("/v1/nodes/{id}"), "");
            text.contains("\"admitted\"").then_some(())
        });
    }

    /// A job of a user that lasts until dropped.
    pub fn lasting(&self, uid: u32, job: &str) -> Process {
        let own = if uid == A { "a" } else { "b" };
        let process = self.going(uid, job, &format!("echo here > /fwd/{own}/started; exec sleep 1000"));
        let mark = self.at("data").join(if uid == A { "a/started" } else { "b/started" });
        until(PATIENCE, "the job runs", || mark.exists().then_some(()));
        process
    }
}
