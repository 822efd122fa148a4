//! What the arbiter leaves to each job on this node: limits and weights, and the nodes that hear what is
//! served here. It holds until an arbiter says otherwise, whatever becomes of the one that said it.

use crate::node::Node;
use forebay_control::node::JobShare;
use forebay_types::rates::Rates;
use forebay_types::{Address, FlowId};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Node {
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
