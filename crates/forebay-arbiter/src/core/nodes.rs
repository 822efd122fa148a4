//! I/O nodes come, report, are screened, drain and go.

use super::{Action, Core, Node, Refusal};
use crate::store::{Change, StoredNode};
use forebay_control::CONTROL_VERSION;
use forebay_control::node::{JobMapping, JobUse, NodeHello, NodeReport, ToArbiter, ToNode};
use forebay_control::view::HistoryRow;
use forebay_pattern::FlowMetrics;
use forebay_types::{Nanos, NodeId};
use std::collections::BTreeMap;

/// One connection of a node; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// A connected node that says nothing for so many of its intervals is not counted on.
const SILENT_INTERVALS: u64 = 3;

/// Nodes that have been gone for this long are forgotten.
const FORGET_AFTER: Nanos = Nanos::from_secs(3600);

impl Core {
    /// A node introduces itself on a new connection.
    pub fn node_hello(
        &mut self,
        now: Nanos,
        connection: ConnectionId,
        mut hello: NodeHello,
    ) -> Result<(), Refusal> {
        let id = hello.node;
        check(&hello)?;
        let (host, addresses) = (hello.host.clone(), hello.addresses.clone());
        let stored = StoredNode { id, host, addresses, leaving: false, gone: false };
        let known = self.nodes.get(&id);
        if known.is_none() && self.nodes.len() >= self.config.max_nodes {
            return Err(Refusal::Full(format!(
                "{} I/O nodes are known, and no more are taken",
                self.nodes.len()
            )));
        }
        if let Some(old) = known.filter(|n| n.connection.is_some() && n.stored.addresses != stored.addresses)
        {
            return Err(Refusal::Conflict(format!(
                "I/O node {id} is connected already, from {} at {}: give this one another --id",
                old.stored.host,
                old.stored.addresses.first().map_or("?", String::as_str)
            )));
        }
        let replaced = known.and_then(|n| n.connection);
        if let Some(old) = replaced {
            self.actions.push(Action::HangUp(old));
        }
        if known.is_none_or(|n| n.stored != stored) {
            self.actions.push(Action::Persist(Change::Node(stored.clone())));
        }
        self.screening.joined(id, now);
        // What it was screened for stays until whoever screened it says otherwise.
        let screened = known.and_then(|n| n.screened.clone());
        let shares = std::mem::take(&mut hello.shares);
        let (scheduler, interval) = (hello.scheduler.clone(), hello.interval);
        let node = Node {
            stored,
            connection: Some(connection),
            hello: Some(hello),
            report: None,
            heard: now,
            probed: now,
            awaited: now + self.config.node_grace,
            screened,
            drain_told: false,
        };
        self.nodes.insert(id, node);
        if replaced.is_some() {
            self.unheard(id);
        }
        self.limits.forget(id);
        self.adopt_shares(id, &shares);
        self.actions.push(Action::Send { to: id, message: ToNode::Welcome { term: self.term } });
        let message = self.all_mappings(id);
        self.actions.push(Action::Send { to: id, message });
        self.tune_hello(id, interval, &scheduler);
        self.decide(now, &format!("I/O node {id} came"));
        self.divide_limits(now);
        Ok(())
    }

    /// A node says something on its connection. What comes on an old connection is not heard.
    pub fn node_said(&mut self, now: Nanos, id: NodeId, connection: ConnectionId, message: ToArbiter) {
        let Some(node) = self.nodes.get_mut(&id).filter(|n| n.connection == Some(connection)) else {
            return;
        };
        node.heard = now;
        match message {
            ToArbiter::Report(report) => {
                self.screening.reported(id, &report, now);
                self.report(now, id, report);
            }
            ToArbiter::Used { jobs } => {
                for JobUse { job, held, .. } in &jobs {
                    if let Some(job) = self.jobs.get_mut(job) {
                        job.activity.held(now, id, held.contains(&true));
                    }
                }
                if self.limits.used_of_late(now, id, jobs) {
                    self.divide_limits(now);
                }
            }
            ToArbiter::Probed { id: probe, took, error } => {
                self.screening.probed(id, probe, took, error, now);
            }
            ToArbiter::Leaving if !node.stored.leaving => {
                self.leaves(id);
                self.decide(now, &format!("I/O node {id} leaves"));
            }
            // That it obeys another arbiter is for people to know; whoever serves the connection tells.
            ToArbiter::Leaving
            | ToArbiter::Hello(_)
            | ToArbiter::Refused { .. }
            | ToArbiter::Answer { .. } => {}
        }
    }

    /// A connection has ended.
    pub fn node_lost(&mut self, now: Nanos, id: NodeId, connection: ConnectionId) {
        if let Some(node) = self.nodes.get_mut(&id).filter(|n| n.connection == Some(connection)) {
            self.screening.disconnected(id, now);
            self.tuner.left(id);
            node.connection = None;
            node.awaited = self.patient.max(now + self.config.node_grace);
            // A node that ends has said so; otherwise it may be back in a moment.
            if node.stored.leaving {
                node.awaited = now;
            }
            self.unheard(id);
        }
    }

    /// A node is not to be used, and why; or (`None`) it is again.
    pub fn screen(&mut self, now: Nanos, id: NodeId, reason: Option<String>) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if node.screened == reason {
            return;
        }
        let cause = match &reason {
            Some(reason) => format!("I/O node {id} is screened out: {reason}"),
            None => format!("I/O node {id} behaves again"),
        };
        let changed = node.screened.is_some() != reason.is_some();
        node.screened = reason;
        if changed {
            self.decide(now, &cause);
        }
    }

    /// A node is to end: its jobs are moved, then it is told.
    pub fn drain(&mut self, now: Nanos, id: NodeId) -> Result<(), Refusal> {
        let term = self.term;
        let Some(node) = self.nodes.get_mut(&id) else {
            return Err(Refusal::Unknown(format!("there is no I/O node {id}")));
        };
        if node.connection.is_none() {
            return Err(Refusal::Conflict(format!("I/O node {id} is not connected, so it cannot be told")));
        }
        let first = !node.stored.leaving;
        let told = std::mem::replace(&mut node.drain_told, true);
        if first {
            self.leaves(id);
            self.decide(now, &format!("I/O node {id} is to drain"));
        }
        if !told {
            self.actions.push(Action::Send { to: id, message: ToNode::Drain { term } });
        }
        Ok(())
    }

    /// A node ends in order. That is kept: the next arbiter must not take it for lost.
    fn leaves(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.stored.leaving = true;
        self.screening.drained(id, true);
        self.actions.push(Action::Persist(Change::Node(node.stored.clone())));
    }

    /// Where the clients of all jobs belong, for one node. An arbiter that has just started, perhaps without what it
    /// knew before, lets nodes keep jobs that it does not know: those will register again.
    fn all_mappings(&self, to: NodeId) -> ToNode {
        let weights = self.weights_on(to);
        let jobs = self.jobs.values().filter_map(|j| j.mapping(&weights)).collect();
        ToNode::Mapping { term: self.term, complete: self.complete, jobs, ended: Vec::new() }
    }

    /// Tells all connected nodes where the clients of all jobs belong.
    pub(super) fn tell_all_mappings(&mut self) {
        for to in self.connected() {
            let message = self.all_mappings(to);
            self.actions.push(Action::Send { to, message });
        }
    }

    /// The nodes that can be told something.
    pub(super) fn connected(&self) -> Vec<NodeId> {
        self.nodes.iter().filter(|(_, n)| n.connection.is_some()).map(|(id, _)| *id).collect()
    }

    /// Whether a job that is on `held` may be put on a node: one that this arbiter has not heard of yet may be
    /// dead, and is only waited for by those that are on it.
    pub(super) fn admits(&self, id: NodeId, held: &[NodeId]) -> bool {
        let known = |n: &Node| n.hello.is_some() || held.contains(&id);
        self.nodes.get(&id).is_some_and(|n| n.admitted() && known(n))
    }

    /// Tells all connected nodes which mappings changed and which jobs ended.
    pub(super) fn broadcast(&mut self, changed: &[String], ended: &[String]) {
        if changed.is_empty() && ended.is_empty() {
            return;
        }
        for to in self.connected() {
            let weights = self.weights_on(to);
            let jobs = changed.iter().filter_map(|id| self.jobs.get(id)?.mapping(&weights)).collect();
            let message = ToNode::Mapping { term: self.term, complete: false, jobs, ended: ended.to_vec() };
            self.actions.push(Action::Send { to, message });
        }
    }

    /// Gives up on nodes that are gone or silent, and says so.
    pub(super) fn expire_nodes(&mut self, now: Nanos) -> Option<String> {
        let (mut gone, mut silenced) = (Vec::new(), Vec::new());
        for (id, node) in &mut self.nodes {
            let interval = node.hello.as_ref().map_or(Nanos::from_secs(1), |h| h.interval);
            let silent = Nanos(interval.0.saturating_mul(SILENT_INTERVALS)) + self.config.node_grace;
            if let Some(connection) = node.connection.filter(|_| now.since(node.heard) > silent) {
                self.actions.push(Action::HangUp(connection));
                self.screening.disconnected(*id, now);
                self.tuner.left(*id);
                node.connection = None;
                node.awaited = now;
                silenced.push(*id);
            }
            if node.connection.is_none() && node.awaited != Nanos::ZERO && node.awaited <= now {
                node.awaited = Nanos::ZERO;
                gone.push(*id);
                if !std::mem::replace(&mut node.stored.gone, true) {
                    self.actions.push(Action::Persist(Change::Node(node.stored.clone())));
                }
            }
        }
        silenced.into_iter().for_each(|id| self.unheard(id));
        let forget = |n: &Node| n.lost() && now.since(n.heard) > FORGET_AFTER;
        let old: Vec<NodeId> = self.nodes.iter().filter(|(_, n)| forget(n)).map(|(id, _)| *id).collect();
        for id in old {
            self.nodes.remove(&id);
            self.screening.forget(id);
            self.actions.push(Action::Persist(Change::NodeForgotten(id)));
        }
        match gone.as_slice() {
            [] => None,
            [one] => Some(format!("I/O node {one} is gone")),
            many => Some(format!("{} I/O nodes are gone", many.len())),
        }
    }

    /// How long a node with such intervals may say nothing.
    fn silence(&self, interval: Nanos) -> Nanos {
        Nanos(interval.0.saturating_mul(SILENT_INTERVALS)) + self.config.node_grace
    }

    fn report(&mut self, now: Nanos, id: NodeId, report: Box<NodeReport>) {
        // A job lives as long as its processes do, whatever became of whoever renews its lease.
        let span = report.interval.end.since(report.interval.start);
        let lives = now + self.config.lease.max(self.silence(span));
        for name in &report.present {
            if let Some(job) = self.jobs.get_mut(name) {
                job.lease_until = job.lease_until.max(lives);
            }
        }
        for (name, hosts) in &report.job_hosts {
            if let Some(job) = self.jobs.get_mut(name) {
                job.activity.came(hosts);
            }
        }
        for flow in &report.interval.flows {
            let Some(name) = report.jobs.get(&flow.flow) else { continue };
            let began = if let Some(job) = self.jobs.get_mut(name) {
                job.activity.add(now, id, span, flow);
                job.activity.took(now, id, report.job_latencies.get(name).map_or(&[], Vec::as_slice));
                self.limits.used(now, id, name, span, flow);
                job.stored.since_unix_ms
            } else if let Some(ended) = self.ended.get(name) {
                ended.began_unix_ms
            } else {
                continue;
            };
            self.actions.push(Action::Record(row(now, id, name, flow), began));
        }
        if span != Nanos::ZERO {
            self.limits.peaks.worked(id, report.interval.load.served as f64 / span.as_secs_f64());
        }
        self.tune_report(now, id, &report);
        if let Some(node) = self.nodes.get_mut(&id) {
            node.report = Some(report);
        }
    }
}

impl Node {
    pub(super) fn lost(&self) -> bool {
        self.connection.is_none() && self.awaited == Nanos::ZERO
    }

    pub(super) fn admitted(&self) -> bool {
        !self.lost() && !self.stored.leaving && self.screened.is_none()
    }
}

impl super::Job {
    /// As a node is told on which jobs have these `weights`, and others their own; `None` while it has no node.
    pub(super) fn mapping(&self, weights: &BTreeMap<String, u32>) -> Option<JobMapping> {
        let r = &self.stored.request;
        (!self.stored.addresses.is_empty()).then(|| JobMapping {
            job: r.id.clone(),
            secret: r.secret.clone().unwrap_or_default(),
            weight: weights.get(&r.id).copied().unwrap_or(r.weight),
            epoch: self.stored.epoch,
            nodes: self.stored.addresses.clone(),
            user: self.stored.owner.clone(),
        })
    }
}

fn check(hello: &NodeHello) -> Result<(), Refusal> {
    if hello.version != CONTROL_VERSION {
        return Err(Refusal::Invalid(format!(
            "I/O node {} speaks version {} of the control messages, this arbiter version {CONTROL_VERSION}",
            hello.node, hello.version
        )));
    }
    let addresses = &hello.addresses;
    if addresses.is_empty() || addresses.len() > 16 || addresses.iter().any(|a| a.is_empty() || a.len() > 255)
    {
        return Err(Refusal::Invalid(format!(
            "I/O node {} listens nowhere that clients could reach",
            hello.node
        )));
    }
    Ok(())
}

fn row(now: Nanos, node: NodeId, job: &str, flow: &FlowMetrics) -> HistoryRow {
    let (bytes_read, bytes_written) = flow.moved();
    HistoryRow {
        time: now.0 / 1_000_000_000,
        seconds: 1,
        job: job.to_owned(),
        node,
        bytes_read,
        bytes_written,
        reads: flow.reads,
        writes: flow.writes,
        metadata: flow.metadata,
        queue: flow.outstanding,
        size_min: flow.size_min,
        size_mean: flow.size_mean,
        size_max: flow.size_max,
        files: flow.files,
        mode: flow.mode().map_or(String::new(), |m| m.to_string()),
    }
}
