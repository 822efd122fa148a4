//! A site's fixed map: the I/O node that each compute node belongs to.

use super::{Core, Job};
use forebay_policy::PolicyKind;
use forebay_types::NodeId;
use std::collections::BTreeSet;

impl Core {
    /// Each of the job's hosts with its I/O node; none if the map does not have all of them.
    fn in_map(&self, job: &Job) -> Vec<(String, NodeId)> {
        let (hosts, map) = (&job.stored.request.hosts, &self.config.map);
        let of = |host: &String| {
            let short = host.split('.').next().unwrap_or(host);
            let node = map.get(host).or_else(|| map.get(short))?;
            Some((host.clone(), *node))
        };
        if map.is_empty() {
            Vec::new()
        } else {
            hosts.iter().map(of).collect::<Option<_>>().unwrap_or_default()
        }
    }

    /// The I/O nodes that the job's hosts belong to, each once.
    pub(super) fn default_nodes(&self, job: &Job) -> Vec<NodeId> {
        let mut seen = BTreeSet::new();
        self.in_map(job).into_iter().map(|(_, n)| n).filter(|n| seen.insert(*n)).collect()
    }

    /// Those that the job has without the policy being asked, as far as they are admitted. DFRA is: what it departs
    /// from is the map.
    pub(super) fn mapped(&self, id: &str, held: &[NodeId]) -> Vec<NodeId> {
        let job = self.jobs.get(id).filter(|_| self.config.policy != PolicyKind::Dfra);
        let wanted = job.map_or(Vec::new(), |job| self.default_nodes(job));
        wanted.into_iter().filter(|n| self.admits(*n, held)).collect()
    }

    /// The hosts whose I/O node by the map is one of the job's, and which of these. A job with I/O nodes of its own has
    /// its hosts spread evenly over them.
    pub(super) fn fixed(&self, job: &Job) -> impl Iterator<Item = (String, usize)> {
        let own = job.stored.held.as_ref().is_some_and(|h| h.dedicated);
        let (nodes, known) = (job.nodes().to_vec(), job.stored.addresses.len());
        let at =
            move |(host, node)| Some((host, nodes.iter().position(|n| *n == node).filter(|at| *at < known)?));
        let map = if own { Vec::new() } else { self.in_map(job) };
        map.into_iter().filter_map(at)
    }
}
