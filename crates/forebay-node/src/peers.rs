//! To the other I/O nodes, of jobs by name, as nodes number jobs as they come:
//!
//! - Total-service sharing: this node tells what each job was served here, and a job that gets much
//!   elsewhere waits accordingly here.
//! - Limits: what a limited job does not use here is given to those nodes where it would use more.

use crate::control::{Command, JobWord};
use crate::node::Node;
use crate::sys;
use forebay_client::{Client, Config};
use forebay_sched::Batch;
use forebay_sched::METADATA_COST;
use forebay_sched::limit::Word;
use forebay_sched::share::{ServiceReport, ServiceSharing};
use forebay_types::{Address, FlowId, Nanos, NodeId, Secret};
use std::collections::BTreeMap;
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
    /// The way to each of the others.
    lines: BTreeMap<Address, SyncSender<Letter>>,
    /// Those that hear what is served here.
    sharers: Vec<Address>,
    /// Those that have parts of the same limits.
    lenders: BTreeMap<NodeId, Address>,
    /// When each of them last said something of limits: what comes twice, or late, counts for nothing.
    words: BTreeMap<NodeId, Nanos>,
}

enum Letter {
    Served(ServiceReport),
    Words(Nanos, Vec<Word>),
}

impl Peers {
    pub(crate) fn new(node: NodeId, threshold: u64) -> Peers {
        let sharing = ServiceSharing::new(node, sys::wall_clock(), threshold);
        Peers {
            any: AtomicBool::new(false),
            state: Mutex::new(State {
                sharing,
                lines: BTreeMap::new(),
                sharers: Vec::new(),
                lenders: BTreeMap::new(),
                words: BTreeMap::new(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on these hear what is served here.
    pub(crate) fn share(
        &self,
        node: &Arc<Node>,
        secret: &Secret,
        addresses: &[Address],
    ) -> Result<(), String> {
        let mut state = self.lock();
        if state.sharers != addresses {
            state.sharers = addresses.to_vec();
            self.any.store(!addresses.is_empty(), Relaxed);
            state.connect(node, secret)?;
        }
        Ok(())
    }

    /// From now on these have parts of the same limits.
    pub(crate) fn lend(
        &self,
        node: &Arc<Node>,
        secret: &Secret,
        others: BTreeMap<NodeId, Address>,
    ) -> Result<(), String> {
        let mut state = self.lock();
        if state.lenders != others {
            state.lenders = others;
            state.connect(node, secret)?;
        }
        Ok(())
    }

    /// Says so to the other nodes; what could not be said.
    pub(crate) fn say(&self, now: Nanos, words: Vec<(NodeId, Word)>) -> Vec<Word> {
        let state = self.lock();
        let mut by_node: BTreeMap<NodeId, Vec<Word>> = BTreeMap::new();
        for (to, word) in words {
            by_node.entry(to).or_default().push(word);
        }
        let mut unsaid = Vec::new();
        for (to, words) in by_node {
            let line = state.lenders.get(&to).and_then(|address| state.lines.get(address));
            match line.map(|line| line.try_send(Letter::Words(now, words.clone()))) {
                Some(Ok(())) => {}
                Some(Err(_)) | None => unsaid.extend(words),
            }
        }
        unsaid
    }

    /// Another node says something of limits, at its own time: whether it is news.
    pub(crate) fn is_news(&self, from: NodeId, at: Nanos) -> bool {
        let mut state = self.lock();
        let known = state.lenders.contains_key(&from);
        known && state.words.insert(from, at).is_none_or(|last| last < at)
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
    /// Lines to all of these and to no others. The threads that talk to the old ones end by themselves.
    fn connect(&mut self, node: &Arc<Node>, secret: &Secret) -> Result<(), String> {
        let mut before = std::mem::take(&mut self.lines);
        for address in self.sharers.iter().chain(self.lenders.values()) {
            if self.lines.contains_key(address) {
                continue;
            }
            let line = match before.remove(address) {
                Some(line) => line,
                None => line(node, secret, address)?,
            };
            self.lines.insert(address.clone(), line);
        }
        Ok(())
    }

    fn send(&mut self, report: &ServiceReport) {
        for line in self.sharers.iter().filter_map(|address| self.lines.get(address)) {
            // A peer that is behind misses one, and learns it later.
            if let Err(TrySendError::Full(_)) = line.try_send(Letter::Served(report.clone())) {
                self.sharing.not_heard(report);
            }
        }
    }
}

/// A thread that talks to the node at `address` for as long as the sender is there.
fn line(node: &Arc<Node>, secret: &Secret, address: &Address) -> Result<SyncSender<Letter>, String> {
    let job = node.config.job.as_deref().unwrap_or(JOB);
    let nodes = vec![address.clone()];
    let config = Config { deadline_ms: DEADLINE_MS, ..Config::new(job, secret.to_hex(), nodes) };
    let client = Client::new(config, None).map_err(|e| e.to_string())?;
    let (line, letters) = sync_channel(16);
    let (node, name) = (Arc::clone(node), address.to_string());
    std::thread::Builder::new()
        .name("peer".into())
        .stack_size(256 << 10)
        .spawn(move || tell(&node, &client, &name, &letters))
        .map_err(|e| format!("cannot start a thread: {e}"))?;
    Ok(line)
}

/// Sends letters to one peer until there is no more line to it.
fn tell(node: &Arc<Node>, client: &Client, name: &str, letters: &Receiver<Letter>) {
    while let Ok(letter) = letters.recv() {
        let command = match &letter {
            Letter::Served(report) => {
                let named = |(flow, n): &(FlowId, u64)| Some((node.jobs.name(*flow)?, *n));
                let served = report.served.iter().filter_map(named).collect();
                Command::Served { node: report.node, since: report.since, served }
            }
            Letter::Words(at, words) => {
                let named = |w: &Word| {
                    Some(JobWord { job: node.jobs.name(w.flow)?, hungry: w.hungry, given: w.given })
                };
                let jobs = words.iter().filter_map(named).collect();
                Command::Lend { node: node.config.id, at: *at, jobs }
            }
        };
        let Ok(json) = serde_json::to_vec(&command) else { continue };
        if let Err(e) = client.control(0, &json) {
            tracing::info!("I/O node {name} does not hear what is said to it: {e}");
            // What was given away in vain is lost: whether the other has it is not known.
            if let Letter::Served(report) = &letter {
                node.peers.lock().sharing.not_heard(report);
            }
        }
    }
}
