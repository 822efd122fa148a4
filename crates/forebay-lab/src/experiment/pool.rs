//! An arbiter and its I/O nodes, for experiments that stop or kill them.

use crate::fleet::{Arbiter, Fleet};
use anyhow::Result;
use forebay_client::Client;
use forebay_control::client::Client as Api;
use forebay_control::job::{JobGrant, JobRequest};
use forebay_control::view::NodeView;
use forebay_embed::{RunDir, Transport};
use forebay_types::{Epoch, NodeId};
use rustix::process::Signal;
use std::path::PathBuf;

/// What the arbiter does by itself: as little as possible.
const SETTINGS: &str = "policy = \"static\"\n";

/// An arbiter and its I/O nodes, which all export one directory.
pub(super) struct Pool {
    arbiter: Option<Arbiter>,
    port: u16,
    settings: String,
    api: Api,
    fleet: Fleet,
    _data: RunDir,
}

impl Pool {
    /// Starts them and waits until the arbiter knows all nodes. `tls`: it is spoken to by TLS, with this certificate
    /// for 127.0.0.1 and its key.
    pub(super) fn start(count: usize, tls: Option<&(PathBuf, PathBuf)>) -> Result<Pool> {
        let data = RunDir::in_memory()?;
        let port = Arbiter::free_port()?;
        let mut settings = SETTINGS.to_owned();
        if let Some((certificate, key)) = tls {
            let (certificate, key) = (certificate.canonicalize()?, key.canonicalize()?);
            settings += &format!("certificate = {certificate:?}\nkey = {key:?}\n");
        }
        let scheme = if tls.is_some() { "https" } else { "http" };
        let of_nodes = format!("arbiters = [\"{scheme}://127.0.0.1:{port}\"]");
        let fleet = Fleet::listening(Transport::Tcp, data.path(), count, &of_nodes)?;
        let arbiter = Arbiter::start(&fleet, port, &settings)?;
        Ok(Pool { api: arbiter.api()?, arbiter: Some(arbiter), port, settings, fleet, _data: data })
    }

    /// The nodes as the arbiter sees them.
    pub(super) fn nodes(&self) -> Result<Vec<NodeView>> {
        Ok(self.api.get("/v1/nodes")?)
    }

    /// Registers a job of one compute node, or renews its lease.
    pub(super) fn register(&self, id: &str, secret: Option<String>) -> Result<JobGrant> {
        let job = JobRequest {
            id: id.into(),
            app: id.into(),
            user: "experiment".into(),
            processes: 2,
            secret,
            explore: false,
            ..JobRequest::default()
        };
        Ok(self.api.register(&job)?)
    }

    /// Puts a job on these I/O nodes; the epoch of that mapping.
    pub(super) fn pin(&self, id: &str, nodes: &[u32]) -> Result<Epoch> {
        Ok(self.api.pin(id, nodes.iter().map(|n| NodeId(*n)).collect())?.epoch)
    }

    /// Kills the arbiter at once, and starts another one where it was.
    pub(super) fn replace_arbiter(&mut self) -> Result<()> {
        if let Some(arbiter) = self.arbiter.take() {
            arbiter.kill();
        }
        self.arbiter = Some(Arbiter::launch(&self.fleet, self.port, &self.settings)?);
        Ok(())
    }

    /// Writes a job's client configuration to a file, for processes of its own.
    pub(super) fn client_config(&self, grant: &JobGrant) -> Result<PathBuf> {
        let path = self.fleet.dir().join(format!("{}.json", grant.id));
        std::fs::write(&path, serde_json::to_vec(&self.fleet.granted(grant)?)?)?;
        Ok(path)
    }

    /// A client process of a job.
    pub(super) fn client(&self, grant: &JobGrant) -> Result<Client> {
        Ok(Client::new(self.fleet.granted(grant)?, None)?)
    }

    /// Sends a node's process a signal.
    pub(super) fn signal(&self, node: usize, signal: Signal) -> Result<()> {
        Ok(self.fleet.node(node)?.process.signal(signal)?)
    }
}
