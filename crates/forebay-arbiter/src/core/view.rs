//! What is shown of the arbiter's state. Never a secret.

use super::{Core, Job, Node};
use forebay_control::view::{HealthView, JobPlace, JobView, MappingView, NodeState, NodeView};
use forebay_types::{Bandwidth, Nanos, NodeId};

impl Core {
    /// The jobs, by name.
    pub fn jobs(&self, now: Nanos) -> Vec<JobView> {
        self.jobs.values().map(|j| job_view(j, now)).collect()
    }

    /// Bytes that each job has moved since this arbiter leads, in the order of their names.
    pub fn counted(&self) -> Vec<u64> {
        self.jobs.values().map(|j| j.activity.bytes).collect()
    }

    /// One job.
    pub fn job(&self, now: Nanos, id: &str) -> Option<JobView> {
        self.jobs.get(id).map(|j| job_view(j, now))
    }

    /// The I/O nodes, by number.
    pub fn nodes(&self, now: Nanos) -> Vec<NodeView> {
        self.nodes.iter().map(|(id, n)| self.node_view(*id, n, now)).collect()
    }

    /// The mapping of all jobs.
    pub fn mapping(&self) -> MappingView {
        let place = |j: &Job| JobPlace {
            job: j.stored.request.id.clone(),
            hosts: j.stored.request.hosts.clone(),
            epoch: j.stored.epoch,
            nodes: j.nodes().to_vec(),
            addresses: j.stored.addresses.clone(),
            fixed: self.fixed(j).map(|(host, at)| (host, j.nodes()[at])).collect(),
        };
        MappingView { term: self.term, epoch: self.epoch, jobs: self.jobs.values().map(place).collect() }
    }

    /// How the arbiter is.
    pub fn health(&self, now: Nanos) -> HealthView {
        HealthView {
            state: "leading".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            term: self.term,
            policy: self.config.policy.name().to_owned(),
            jobs: self.jobs.len(),
            admitted: self.nodes.values().filter(|n| n.admitted()).count(),
            nodes: self.nodes.len(),
            up_ms: now.since(self.started).0 / 1_000_000,
            history_dropped: 0,
            leader: None,
            refused: Vec::new(),
        }
    }

    fn node_view(&self, id: NodeId, node: &Node, now: Nanos) -> NodeView {
        let report = node.report.as_deref();
        let state = if node.lost() {
            if node.stored.leaving { NodeState::Drained } else { NodeState::Lost }
        } else if node.stored.leaving {
            NodeState::Draining
        } else if node.screened.is_some() {
            NodeState::Screened
        } else if node.connection.is_none() {
            NodeState::Awaited
        } else {
            NodeState::Admitted
        };
        let on = |j: &&Job| j.nodes().contains(&id);
        let span = report.map_or(Nanos::ZERO, |r| r.interval.end.since(r.interval.start));
        let scheduler =
            report.and_then(|r| r.scheduler.as_ref()).or(node.hello.as_ref().map(|h| &h.scheduler));
        NodeView {
            id,
            host: node.stored.host.clone(),
            addresses: node.stored.addresses.clone(),
            state,
            reason: node.screened.clone(),
            health: self.diagnosis_view(id, now),
            jobs: self.jobs.values().filter(on).map(|j| j.stored.request.id.clone()).collect(),
            bandwidth_mbs: report.map_or(0.0, |r| Bandwidth::of(r.interval.load.served, span).0),
            waiting: report.map_or(0, |r| r.waiting),
            latency_p50: report.map_or(Nanos::ZERO, |r| r.latency_p50),
            latency_p99: report.map_or(Nanos::ZERO, |r| r.latency_p99),
            errors: report.map_or(0, |r| r.errors),
            connections: report.map_or(0, |r| r.connections),
            heard_ms: now.since(node.heard).0 / 1_000_000,
            scheduler: scheduler.map(ToString::to_string),
        }
    }
}

fn job_view(job: &Job, now: Nanos) -> JobView {
    let r = &job.stored.request;
    JobView {
        id: r.id.clone(),
        app: r.app.clone(),
        user: r.user.clone(),
        account: r.account.clone(),
        compute_nodes: r.compute_nodes,
        hosts: r.hosts.clone(),
        processes: r.processes,
        weight: r.weight,
        age_ms: super::unix_ms(now).saturating_sub(job.stored.since_unix_ms),
        lease_ms: job.lease_until.since(now).0 / 1_000_000,
        epoch: job.stored.epoch,
        nodes: job.nodes().to_vec(),
        shared: job.stored.held.as_ref().is_some_and(|h| h.shared),
        bandwidth_mbs: job.activity.bandwidth.0,
        operations: job.activity.operations,
        busy: job.activity.busy,
        limited: job.activity.limited,
        latency_p50: job.activity.latency(0.5),
        latency_p99: job.activity.latency(0.99),
        predicted_mbs: job.predicted,
        curve: job.curve.clone(),
        pattern: job.activity.shape.as_ref().map(ToString::to_string),
        bytes: job.activity.moved(),
        bytes_at_least: job.activity.uncounted,
        direct: job.stored.direct,
        pinned: job.stored.pinned.clone(),
        reason: job.reason.clone(),
    }
}
