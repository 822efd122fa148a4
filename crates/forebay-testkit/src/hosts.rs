//! Several hosts on this machine (`scripts/cluster`): each with its own network, name and temporary
//! directories, and one directory that all see.

use crate::{needs, skipped, until};
use forebay_embed::{Process, RunDir};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// The directory that all hosts see, as they see it.
pub const SHARED: &str = "/mnt";
/// Runs a command on another host, from one of them: `SSH HOST CMD…`.
pub const SSH: &str = "/mnt/.cluster/ssh";

const START: Duration = Duration::from_secs(60);

/// Hosts of a test. All of them, and whatever runs there, go with this value, and with the test.
pub struct Hosts {
    /// First, so that it ends before its directory goes.
    _holder: Process,
    first: u32,
    dir: RunDir,
}

impl Hosts {
    /// Starts hosts of these names; nothing, and says so, where that is not possible.
    pub fn up(test: &str, names: &[&str]) -> Option<Hosts> {
        if !needs(test, &["ip", "unshare", "nsenter", "pgrep"]) {
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            skipped(test, "hosts in namespaces need root");
            return None;
        }
        let dir = RunDir::create(&std::env::temp_dir()).expect("a temporary directory");
        let log = std::fs::File::create(dir.path().join("log")).expect("a log");
        let mut hold = Command::new(script());
        hold.arg("hold").args(names).env("FOREBAY_CLUSTER", dir.path());
        let holder = Process::start(hold.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log));
        let holder = holder.expect("scripts/cluster runs");
        let up = dir.path().join("shared/.cluster/up");
        until(START, "the hosts are there", || up.exists().then_some(()));
        let child = Command::new("pgrep").arg("-P").arg(holder.id().to_string()).output();
        let first = String::from_utf8_lossy(&child.expect("pgrep runs").stdout).trim().to_owned();
        std::fs::write(dir.path().join("pid"), &first).expect("the cluster's directory");
        Some(Hosts { _holder: holder, first: first.parse().expect("one process"), dir })
    }

    /// The directory that all hosts see, as this process sees it.
    pub fn shared(&self) -> PathBuf {
        self.dir.path().join("shared")
    }

    /// A command on a host.
    pub fn on(&self, host: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let pid = std::fs::read_to_string(self.shared().join(".cluster/hosts").join(host));
        let pid = pid.unwrap_or_else(|e| panic!("host {host}: {e}"));
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.first.to_string(), "-m", "-n", "-p", "--"]);
        command.args(["nsenter", "-t", pid.trim(), "-n", "-m", "-u", "-i", "--wdns=/mnt", "--"]);
        command.arg(program).env("HOME", "/mnt/home").stdin(Stdio::null());
        // The site's authority, where a test makes one.
        command.env("FOREBAY_CA", "/mnt/ca.pem");
        command
    }

    /// Runs a shell's line on a host, to its end.
    pub fn sh(&self, host: &str, line: &str) -> Output {
        self.on(host, "/bin/sh").args(["-c", line]).output().expect("a shell")
    }

    /// As [`Hosts::sh`]; it must succeed. What it printed.
    pub fn ok(&self, host: &str, line: &str) -> String {
        let out = self.sh(host, line);
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{host}: {line}: {}\n{text}\n{said}", out.status);
        text
    }

    /// Pulls a host's network cable.
    pub fn cut(&self, host: &str) {
        self.manage("cut", host);
    }

    /// Plugs it in again.
    pub fn mend(&self, host: &str) {
        self.manage("mend", host);
    }

    /// Every process of the host dies.
    pub fn kill(&self, host: &str) {
        self.manage("kill", host);
    }

    fn manage(&self, what: &str, host: &str) {
        let done = Command::new(script()).args([what, host]).env("FOREBAY_CLUSTER", self.dir.path()).status();
        assert!(done.expect("scripts/cluster runs").success(), "{what} {host}");
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/cluster")
}
