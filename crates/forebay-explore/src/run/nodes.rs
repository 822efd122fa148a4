//! The I/O nodes of a run: started for it, or already there.

use super::machine::{Machine, Place};
use forebay_client::{Address, Client, Config};
use forebay_node::Node;
use forebay_node::config::NodeConfig;
use forebay_wire::hello::Secret;
use std::io;
use std::path::Path;

/// The name under which the directory is exported.
const EXPORT: &str = "explore";
/// Where an I/O node process of ours finds its secret.
const SECRET_VARIABLE: &str = "FOREBAY_EXPLORE_SECRET";

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
    /// Starts `count` I/O nodes that export `root`.
    pub(super) fn start(
        machine: &mut dyn Machine,
        count: u32,
        root: &Path,
        scheduler: Option<&str>,
        dispatchers: Option<u32>,
    ) -> io::Result<Nodes> {
        let secret = Secret::new(std::array::from_fn(|_| rand::random())).to_hex();
        let root = root.to_string_lossy().into_owned();
        let mut ids = Vec::new();
        for i in 0..count {
            let mut args: Vec<String> =
                ["explore-node", "--id", &i.to_string(), "--listen", machine.listen(), "--export", &root]
                    .map(String::from)
                    .to_vec();
            if let Some(s) = scheduler {
                args.extend(["--scheduler".into(), s.into()]);
            }
            if let Some(n) = dispatchers {
                args.extend(["--dispatchers".into(), n.to_string()]);
            }
            ids.push(machine.start(Place::IoNode(i), &args, &[(SECRET_VARIABLE.into(), secret.clone())])?);
        }
        let mut addresses = Vec::new();
        for (i, id) in ids.into_iter().enumerate() {
            let line = machine
                .first_line(id)
                .map_err(|e| io::Error::other(format!("I/O node {i} did not start: {e}")))?;
            let port = line.rsplit(':').next().and_then(|p| p.parse().ok());
            let port = port.ok_or_else(|| io::Error::other(format!("I/O node {i} did not start: {line}")))?;
            addresses.push(Address::Tcp(machine.io_node(i as u32, port)));
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

/// Serves as an I/O node until told to end. Prints its address.
pub fn serve_node(
    id: u32,
    listen: &str,
    export: &Path,
    scheduler: Option<&str>,
    dispatchers: Option<u32>,
) -> Result<(), String> {
    let secret = std::env::var(SECRET_VARIABLE).map_err(|_| format!("{SECRET_VARIABLE} is not set"))?;
    let mut config = NodeConfig {
        id: forebay_types::NodeId(id),
        listen: vec![listen.parse()?],
        exports: vec![format!("{}={EXPORT}", export.display()).parse()?],
        secret: Some(Secret::from_hex(&secret).ok_or("the secret is not 64 hexadecimal digits")?),
        ..NodeConfig::default()
    };
    if let Some(s) = scheduler {
        config.scheduler = s.parse().map_err(|e: forebay_sched::ConfigError| e.to_string())?;
    }
    if let Some(n) = dispatchers {
        config.dispatchers = n as usize;
    }
    forebay_node::block_termination();
    let running = Node::start(config).map_err(|e| e.to_string())?;
    let Some(address) = running.addresses().first() else { return Err("it listens nowhere".into()) };
    println!("{address}");
    forebay_node::wait_for_termination();
    Ok(())
}
