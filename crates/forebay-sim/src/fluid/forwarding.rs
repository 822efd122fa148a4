//! I/O nodes as shared servers: at any time each has streams of the jobs that do I/O through it, and
//! shares its time out among them as a pool of threads with one queue does: by how many requests each
//! has there and how long one of them takes.

use super::IoNodeModel;

/// One job's I/O through one I/O node, in one phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) job: usize,
    /// Bytes to go.
    pub(super) left: f64,
    /// Bytes a second now.
    pub(super) rate: f64,
    /// When `left` was that.
    pub(super) since: f64,
    /// Changes with every new rate: an end that was announced for an earlier one is void.
    pub(super) version: u32,
    /// Compute nodes that send.
    pub(super) senders: f64,
    /// The I/O node's time for a byte, seconds.
    pub(super) cost: f64,
    /// And for a request.
    pub(super) service: f64,
    /// What the senders can do at most, bytes a second.
    pub(super) most: f64,
    /// Metadata operations a second beside.
    pub(super) metadata: f64,
}

impl Stream {
    pub(super) fn advance(&mut self, now: f64) {
        self.left = (self.left - (now - self.since) * self.rate).max(0.0);
        self.since = now;
    }
}

/// The rates of the streams on one I/O node. Metadata goes first; what time is left is shared by the
/// requests that wait, and whoever cannot use its part leaves it to the others.
pub(super) fn rates(model: &IoNodeModel, capacity: f64, streams: &mut [&mut Stream]) {
    let metadata: f64 = streams.iter().map(|s| s.metadata).sum::<f64>() / model.metadata_peak;
    let mut time = capacity * (1.0 - metadata.min(model.metadata_most));
    let mut open: Vec<usize> = (0..streams.len()).collect();
    loop {
        let weights: f64 = open.iter().map(|&i| streams[i].senders * streams[i].service).sum();
        if open.is_empty() || weights <= 0.0 {
            return;
        }
        let mut satisfied = None;
        for (at, &i) in open.iter().enumerate() {
            let s = &mut streams[i];
            let part = time * s.senders * s.service / weights;
            s.rate = part / s.cost;
            if s.rate > s.most {
                satisfied = Some(at);
                s.rate = s.most;
                break;
            }
        }
        // One that is limited elsewhere leaves its rest; the others are shared out anew.
        match satisfied {
            Some(at) => {
                let i = open.swap_remove(at);
                time = (time - streams[i].rate * streams[i].cost).max(0.0);
            }
            None => return,
        }
    }
}
