//! What the arbiter leaves to each job on this node: limits and weights, and the nodes that hear what is
//! served here. It holds until an arbiter says otherwise, whatever becomes of the one that said it. What a
//! limited job does not use here goes to its other nodes, without the arbiter.

use crate::control::JobWord;
use crate::node::{Node, spawn};
use crate::sys;
use forebay_control::node::{JobShare, JobUse};
use forebay_sched::DispatchQueue;
use forebay_sched::limit::{Part, TICK, Used, Word};
use forebay_types::{Address, FlowId, Nanos, NodeId};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Between two looks, while no limit is shared with another node.
const REST: Duration = Duration::from_millis(100);

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
        let told = Some((jobs.to_vec(), peers.to_vec()));
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = told;
        let shares: BTreeMap<FlowId, &JobShare> =
            jobs.iter().filter_map(|share| Some((self.jobs.expect(&share.job)?, share))).collect();
        let standby = jobs.iter().filter(|s| s.standby).map(|s| s.job.clone()).collect();
        *self.standby.lock().unwrap_or_else(PoisonError::into_inner) = standby;
        let now = self.engine.now();
        self.engine.with_queue(|queue| {
            let gone: Vec<FlowId> =
                queue.limits().map(|(flow, _)| flow).filter(|flow| !shares.contains_key(flow)).collect();
            for flow in gone {
                queue.lift_limit(now, flow);
            }
            for (flow, share) in &shares {
                let others: Vec<NodeId> = share.others.iter().map(|o| o.0).collect();
                let part = Part { here: share.limit, whole: share.whole, standby: share.standby };
                queue.set_limit(now, *flow, part, &others);
                if let Some(weight) = share.weight {
                    queue.set_weight(*flow, weight.max(1));
                }
            }
        });
        let others = jobs.iter().flat_map(|share| &share.others);
        self.lend_to(others.filter_map(|(node, at)| Some((*node, at.parse().ok()?))).collect());
        // What somebody has set by hand is left alone.
        if self.config.peers.is_empty() {
            let peers: Vec<Address> = peers.iter().filter_map(|p| p.parse().ok()).collect();
            if let Err(e) = self.set_peers(&peers) {
                tracing::warn!("cannot tell other I/O nodes what is served here: {e}");
            }
        }
    }

    /// A name of which the arbiter has spoken is another job's now.
    pub(crate) fn share_out_again(self: &Arc<Node>) {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((jobs, peers)) = told {
            self.share_out(&jobs, &peers);
        }
    }

    /// What limited jobs may have here.
    pub(crate) fn shares(&self) -> Vec<JobShare> {
        let limits: Vec<_> = self.engine.with_queue(|queue| queue.limits().collect());
        let kept = self.standby.lock().unwrap_or_else(PoisonError::into_inner);
        let share = |(flow, limit)| {
            let job = self.jobs.name(flow)?;
            Some(JobShare { standby: kept.contains(&job), job, limit, ..JobShare::default() })
        };
        limits.into_iter().filter_map(share).collect()
    }

    /// From now on these have parts of the same limits.
    pub(crate) fn lend_to(self: &Arc<Node>, others: BTreeMap<NodeId, Address>) {
        let any = !others.is_empty();
        // Without a secret no node hears another: each has the part that the arbiter gave it.
        let Some(secret) = &self.config.secret else { return };
        if let Err(e) = self.peers.lend(self, secret, others) {
            tracing::warn!("what limits leave here cannot be given to other I/O nodes: {e}");
        }
        if any && !self.stopped() && !self.lends.swap(true, Relaxed) {
            let node = Arc::clone(self);
            if let Err(e) = spawn("lender", move || node.lend()) {
                self.lends.store(false, Relaxed);
                tracing::warn!("what limits leave here cannot be given to other I/O nodes: {e}");
            }
        }
    }

    /// Gives what is not used here to other nodes, once a limit has been shared with any.
    fn lend(self: &Arc<Node>) {
        sys::precise_timers();
        while !self.stopped() {
            let now = self.engine.now();
            let (words, lends) = self.engine.with_queue(|queue| (queue.lend(now), queue.lends()));
            let unsaid = if words.is_empty() { Vec::new() } else { self.peers.say(now, words) };
            if !unsaid.is_empty() {
                self.engine.with_queue(|queue| unsaid.iter().for_each(|word| queue.unsaid(now, word)));
            }
            std::thread::sleep(if lends { TICK.into() } else { REST });
        }
    }

    /// Another node has said this of limited jobs.
    pub(crate) fn heard_words(self: &Arc<Node>, from: NodeId, at: Nanos, jobs: &[JobWord]) {
        if !self.peers.is_news(from, at) {
            return;
        }
        let word =
            |w: &JobWord| Some(Word { flow: self.jobs.flow(&w.job)?, hungry: w.hungry, given: w.given });
        let words: Vec<Word> = jobs.iter().filter_map(word).collect();
        let now = self.engine.now();
        self.engine.with_queue(|queue| words.iter().for_each(|word| queue.heard(now, from, word)));
    }
}
