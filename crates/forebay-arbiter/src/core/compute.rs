//! The machine's compute nodes and the I/O node that each belongs to, where that is fixed.

use super::{Core, Job};
use forebay_policy::PolicyKind;
use forebay_types::{NodeId, host_number};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Every compute node's place among all of them.
#[derive(Debug, Default)]
pub(super) struct ComputeNodes(HashMap<u64, usize>);

impl ComputeNodes {
    /// In this order.
    pub(super) fn new(hosts: &[String]) -> ComputeNodes {
        ComputeNodes(hosts.iter().enumerate().map(|(at, host)| (host_number(host), at)).collect())
    }
}

impl Core {
    /// The I/O node that a compute node belongs to, if it is one of the map's.
    fn default_of(&self, host: &str) -> Option<NodeId> {
        let at = self.compute_nodes.0.get(&host_number(host))?;
        self.config.settings.dfra.default_of(*at)
    }

    /// The I/O nodes that a job's compute nodes belong to, each once; none where one is not in the map.
    pub(super) fn default_nodes(&self, job: &Job) -> Vec<NodeId> {
        let hosts = &job.stored.request.hosts;
        let nodes: Option<Vec<NodeId>> = hosts.iter().map(|h| self.default_of(h)).collect();
        let mut seen = BTreeSet::new();
        nodes.unwrap_or_default().into_iter().filter(|n| seen.insert(*n)).collect()
    }

    /// By compute node, its I/O node, for a job that has those it has by the map: a job that was remapped, or
    /// had one replaced, has its compute nodes spread evenly.
    pub(super) fn places(&self, job: &Job) -> BTreeMap<String, NodeId> {
        let own = job.stored.held.as_ref().is_some_and(|h| h.dedicated);
        if self.config.policy != PolicyKind::Dfra || own || self.default_nodes(job) != job.nodes() {
            return BTreeMap::new();
        }
        let place = |host: &String| Some((host.clone(), self.default_of(host)?));
        job.stored.request.hosts.iter().filter_map(place).collect()
    }

    /// The I/O nodes that other jobs have for themselves.
    pub(super) fn dedicated_to_others(&self, id: &str) -> BTreeSet<NodeId> {
        let others =
            self.jobs.iter().filter(|(other, _)| *other != id).filter_map(|(_, j)| j.stored.held.as_ref());
        others.filter(|h| h.dedicated).flat_map(|h| &h.nodes).copied().collect()
    }
}
