//! The I/O nodes of a run: started for it, or already there.

use super::machine::{Machine, Role};
use crate::scenario::Scenario;
use forebay_client::{Address, Client, Config};
use forebay_embed::{EmbedError, Launcher, Log, NodeSpec, await_ready};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The name under which the directory is exported.
const EXPORT: &str = "explore";
/// How often it is looked whether a process has failed: on other hosts that takes a message.
const LOOK: Duration = Duration::from_millis(200);

/// I/O nodes that are there before and after the study.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Where they listen.
    pub addresses: Vec<Address>,
    /// What opens them, 64 hexadecimal digits.
    pub secret: String,
    /// The name under which they export the directory, if not its path.
    pub export: Option<String>,
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
        let launcher =
            Launcher::new(&std::env::current_exe()?, scratch, Log::Here).map_err(io::Error::other)?;
        let root = root.to_string_lossy().into_owned();
        let mut more = Vec::new();
        let mut give = |key: &str, value: String| more.extend([key.to_owned(), value]);
        if let Some(s) = &scenario.scheduler {
            give("--scheduler", s.clone());
        }
        if let Some(n) = scenario.dispatchers {
            give("--dispatchers", n.to_string());
        }
        for id in 0..count {
            let args = launcher.node_args(&NodeSpec {
                id,
                listen: Some(machine.listen().into()),
                exports: vec![format!("{root}={EXPORT}")],
                more: more.clone(),
            });
            if stop.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            machine.start(Role::IoNode(id), &args, &[])?;
        }
        let mut addresses = Vec::new();
        for id in 0..count {
            let mut look_again = Instant::now() + LOOK;
            let gone = || match stop.load(Ordering::Relaxed) {
                true => Some("interrupted".into()),
                false if Instant::now() < look_again => None,
                false => {
                    look_again = Instant::now() + LOOK;
                    machine.casualty()
                }
            };
            let listens = await_ready(id, &launcher.ready_file(id), gone);
            match listens.map_err(|e: EmbedError| io::Error::other(e))?.first() {
                Some(Address::Tcp(at)) => addresses.push(Address::Tcp(machine.io_node(id, at.port()))),
                _ => return Err(io::Error::other(format!("I/O node {id} listens nowhere"))),
            }
        }
        let secret = launcher.secret().to_owned();
        Ok(Nodes { addresses, secret, export: EXPORT.into(), root })
    }

    /// Uses the first `count` of the nodes that are there.
    pub(super) fn standing(standing: &Standing, count: u32, root: &Path) -> Nodes {
        let root = root.to_string_lossy().into_owned();
        Nodes {
            addresses: standing.addresses.iter().take(count as usize).cloned().collect(),
            secret: standing.secret.clone(),
            export: standing.export.clone().unwrap_or_else(|| root.clone()),
            root,
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
