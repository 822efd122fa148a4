//! What the arbiter leaves to each job on this node: limits and weights, and the nodes that hear what is
//! served here. It holds until an arbiter says otherwise, whatever becomes of the one that said it.

use crate::node::Node;
use forebay_control::node::{JobShare, JobUse};
use forebay_sched::DispatchQueue;
use forebay_sched::limit::Used;
use forebay_types::rates::Rates;
use forebay_types::{Address, FlowId, Nanos};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Node {
    /// What limited jobs have used in the last `span`, and whether they wanted more.
    pub(crate) fn used(&self, span: Nanos) -> Vec<JobUse> {
        let used = self.engine.with_queue(DispatchQueue::take_used);
        let told = |(flow, Used { amounts, held }): (FlowId, Used)| {
            let used = amounts.map(|a| a / span.as_secs_f64().max(1e-3));
            Some(JobUse { job: self.jobs.name(flow)?, used, held })
        };
        used.into_iter().filter_map(told).collect()
    }

    /// From now on these are the limits, and no others.
    pub(crate) fn share_out(self: &Arc<Node>, jobs: &[JobShare], peers: &[String]) {
        let shares: BTreeMap<FlowId, &JobShare> =
            jobs.iter().filter_map(|share| Some((self.jobs.expect(&share.job)?, share))).collect();
        let now = self.engine.now();
        self.engine.with_queue(|queue| {
            let gone: Vec<FlowId> =
                queue.limits().map(|(flow, _)| flow).filter(|flow| !shares.contains_key(flow)).collect();
            for flow in gone {
                queue.set_limit(now, flow, Rates::default());
            }
            for (flow, share) in &shares {
                queue.set_limit(now, *flow, share.limit);
                if let Some(weight) = share.weight {
                    queue.set_weight(*flow, weight.max(1));
                }
            }
        });
        // What somebody has set by hand is left alone.
        if self.config.peers.is_empty() {
            let peers: Vec<Address> = peers.iter().filter_map(|p| p.parse().ok()).collect();
            if let Err(e) = self.set_peers(&peers) {
                tracing::warn!("cannot tell other I/O nodes what is served here: {e}");
            }
        }
    }
}
