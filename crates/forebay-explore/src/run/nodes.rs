//! The I/O nodes of a run: started for it, or already there.

use super::machine::{Machine, Place};
use crate::scenario::Scenario;
use forebay_client::{Address, Client, Config};
use serde::Deserialize;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The name under which the directory is exported.
const EXPORT: &str = "explore";
/// How long I/O nodes may take to start.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// I/O nodes that are there before and after the study.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Where they listen.
    pub addresses: Vec<Address>,
    /// What opens them, 64 hexadecimal digits.
    pub secret: String,
    /// The name under which they export the directory.
    pub export: String,
}

/// The I/O nodes of one run.
pub(super) struct Nodes {
    addresses: Vec<Address>,
    secret: String,
    export: String,
    root: String,
}

impl Nodes {
    /// Starts `count` I/O nodes (`forebay node`) that export `root`; `scratch` is a directory that all
    /// hosts see.
    pub(super) fn start(
        machine: &mut dyn Machine,
        count: u32,
        root: &Path,
        scenario: &Scenario,
        scratch: &Path,
        stop: &AtomicBool,
    ) -> io::Result<Nodes> {
        let secret: String = (0..4).map(|_| format!("{:016x}", rand::random::<u64>())).collect();
        let secret_file = scratch.join("secret");
        let mut file =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&secret_file)?;
        io::Write::write_all(&mut file, secret.as_bytes())?;
        let text = |p: &Path| p.to_string_lossy().into_owned();
        let root = text(root);
        let ready = |i: u32| scratch.join(format!("node{i}.ready"));
        for i in 0..count {
            let mut args: Vec<String> = vec!["node".into(), "--die-with-parent".into()];
            let mut give = |key: &str, value: String| args.extend([key.to_owned(), value]);
            give("--id", i.to_string());
            give("--listen", machine.listen().into());
            give("--export", format!("{root}={EXPORT}"));
            give("--secret-file", text(&secret_file));
            give("--ready-file", text(&ready(i)));
            if let Some(s) = &scenario.scheduler {
                give("--scheduler", s.clone());
            }
            if let Some(n) = scenario.dispatchers {
                give("--dispatchers", n.to_string());
            }
            machine.start(Place::IoNode(i), &args, &[])?;
        }
        let mut addresses = Vec::new();
        for i in 0..count {
            let port = await_ready(&ready(i), machine, stop).map_err(|e| match e.kind() {
                io::ErrorKind::Interrupted => e,
                _ => io::Error::other(format!("I/O node {i} did not start: {e}")),
            })?;
            addresses.push(Address::Tcp(machine.io_node(i, port)));
        }
        Ok(Nodes { addresses, secret, export: EXPORT.into(), root })
    }

    /// Uses the first `count` of the nodes that are there.
    pub(super) fn standing(standing: &Standing, count: u32, root: &Path) -> Nodes {
        Nodes {
            addresses: standing.addresses.iter().take(count as usize).cloned().collect(),
            secret: standing.secret.clone(),
            export: standing.export.clone(),
            root: root.to_string_lossy().into_owned(),
        }
    }

    /// The client configuration for the processes of compute node `compute_node` of `of`: one I/O node
    /// serves each compute node, and neighbours share.
    pub(super) fn client_config(&self, job: &str, compute_node: u32, of: u32) -> serde_json::Value {
        let n = self.addresses.len() as u64;
        let i = (u64::from(compute_node) * n / u64::from(of.max(1))).min(n.saturating_sub(1));
        self.config(job, i as usize)
    }

    fn config(&self, job: &str, i: usize) -> serde_json::Value {
        serde_json::json!({
            "job": job,
            "secret": self.secret,
            "nodes": [self.addresses[i].to_string()],
            "exports": [{ "dir": self.root, "export": self.export }],
        })
    }

    /// What each node has counted.
    pub(super) fn statistics(&self) -> io::Result<Vec<serde_json::Value>> {
        let mut all = Vec::new();
        for i in 0..self.addresses.len() {
            let config = serde_json::to_vec(&self.config("explore", i))?;
            let client =
                Config::from_json(&config).and_then(|c| Client::new(c, None)).map_err(io::Error::other)?;
            let answer = client.control(0, br#"{"cmd":"stats"}"#).map_err(io::Error::other)?;
            client.leave();
            let mut reply: serde_json::Value = serde_json::from_slice(&answer)?;
            all.push(reply["stats"].take());
        }
        Ok(all)
    }
}

/// What an I/O node writes once it listens.
#[derive(Deserialize)]
struct Ready {
    addresses: Vec<String>,
}

/// The port of the I/O node that writes `file`.
fn await_ready(file: &Path, machine: &mut dyn Machine, stop: &AtomicBool) -> io::Result<u16> {
    let deadline = Instant::now() + START_PATIENCE;
    let mut look_again = Instant::now() + Duration::from_millis(200);
    loop {
        if let Ok(text) = std::fs::read(file) {
            let ready: Ready = serde_json::from_slice(&text)?;
            let port = ready.addresses.first().and_then(|a| a.rsplit(':').next()?.parse().ok());
            return port.ok_or_else(|| io::Error::other("it listens nowhere"));
        }
        if stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if Instant::now() > look_again {
            if let Some(how) = machine.casualty() {
                return Err(io::Error::other(how));
            }
            look_again = Instant::now() + Duration::from_millis(200);
        }
        if Instant::now() > deadline {
            return Err(io::Error::other(format!("it was not ready after {} s", START_PATIENCE.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
