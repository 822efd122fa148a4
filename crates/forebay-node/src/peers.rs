//! Total-service sharing: this node tells the others what each job was served here, and a job that
//! gets much elsewhere waits accordingly here. Nodes number jobs as they come, so they speak of jobs by
//! name.

use crate::control::Command;
use crate::node::Node;
use crate::sys;
use forebay_client::{Client, Config};
use forebay_sched::Batch;
use forebay_sched::METADATA_COST;
use forebay_sched::share::{ServiceReport, ServiceSharing};
use forebay_types::{Address, FlowId, Nanos, NodeId, Secret};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The job under which nodes talk to each other, where they serve any.
const JOB: &str = "forebay-nodes";
/// A peer that does not take a report in so many milliseconds misses it, and gets the totals later.
const DEADLINE_MS: u64 = 1000;

/// The other nodes, and what is known of their service.
pub(crate) struct Peers {
    /// Whether there are any: nobody counts for nobody.
    any: AtomicBool,
    state: Mutex<State>,
}

struct State {
    sharing: ServiceSharing,
    outboxes: Vec<SyncSender<ServiceReport>>,
    addresses: Vec<Address>,
}

impl Peers {
    pub(crate) fn new(node: NodeId, threshold: u64) -> Peers {
        let sharing = ServiceSharing::new(node, sys::wall_clock(), threshold);
        Peers {
            any: AtomicBool::new(false),
            state: Mutex::new(State { sharing, outboxes: Vec::new(), addresses: Vec::new() }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on these are the others. The threads that talk to the old ones end by themselves.
    pub(crate) fn set(&self, node: &Arc<Node>, secret: &Secret, addresses: &[Address]) -> Result<(), String> {
        if self.lock().addresses == addresses {
            return Ok(());
        }
        let mut outboxes = Vec::new();
        for address in addresses {
            let job = node.config.job.as_deref().unwrap_or(JOB);
            let nodes = vec![address.clone()];
            let config = Config { deadline_ms: DEADLINE_MS, ..Config::new(job, secret.to_hex(), nodes) };
            let client = Client::new(config, None).map_err(|e| e.to_string())?;
            let (outbox, reports) = sync_channel(16);
            let (node, name) = (Arc::clone(node), address.to_string());
            std::thread::Builder::new()
                .name("peer".into())
                .stack_size(256 << 10)
                .spawn(move || tell(&node, &client, &name, &reports))
                .map_err(|e| format!("cannot start a thread: {e}"))?;
            outboxes.push(outbox);
        }
        self.any.store(!outboxes.is_empty(), Relaxed);
        let mut state = self.lock();
        state.outboxes = outboxes;
        state.addresses = addresses.to_vec();
        drop(state);
        Ok(())
    }

    /// A batch was served here.
    pub(crate) fn served(&self, batch: &Batch) {
        if !self.any.load(Relaxed) {
            return;
        }
        let mut state = self.lock();
        for r in batch.requests() {
            if let Some(report) = state.sharing.served(r.flow, r.cost(METADATA_COST)) {
                state.send(&report);
            }
        }
    }

    /// Tells what the others do not know yet, now and then.
    pub(crate) fn catch_up(&self) {
        if self.any.load(Relaxed) {
            let mut state = self.lock();
            if let Some(report) = state.sharing.report() {
                state.send(&report);
            }
        }
    }

    /// Another node has served these; what was not known of it, for the scheduler.
    pub(crate) fn heard(&self, node: NodeId, since: Nanos, served: Vec<(FlowId, u64)>) -> Vec<(FlowId, u64)> {
        self.lock().sharing.heard(&ServiceReport { node, since, served })
    }
}

impl State {
    fn send(&mut self, report: &ServiceReport) {
        for outbox in &self.outboxes {
            // A peer that is behind misses one, and learns it later.
            if let Err(TrySendError::Full(_)) = outbox.try_send(report.clone()) {
                self.sharing.not_heard(report);
            }
        }
    }
}

/// Sends reports to one peer until there is no more outbox for it.
fn tell(node: &Arc<Node>, client: &Client, name: &str, reports: &Receiver<ServiceReport>) {
    while let Ok(report) = reports.recv() {
        let served =
            report.served.iter().filter_map(|(flow, n)| Some((node.jobs.name(*flow)?, *n))).collect();
        let command = Command::Served { node: report.node, since: report.since, served };
        let Ok(json) = serde_json::to_vec(&command) else { continue };
        if let Err(e) = client.control(0, &json) {
            tracing::info!("I/O node {name} does not hear what was served here: {e}");
            node.peers.lock().sharing.not_heard(&report);
        }
    }
}
