//! `twins`: server time windows. In each window the node serves one data server only, in arrival
//! order, and waits on an empty queue rather than turn to another server. Windows are counted from
//! the Unix epoch and each node starts its rotation one server further on, so that nodes keep out of
//! each other's way without a message.

use crate::aggregate::{Limits, Run};
use crate::{Algorithm, Batch, Request, Scheduler, SchedulerConfig, Site, units};
use forebay_types::{Nanos, OpKind, ServerId};
use serde::{Deserialize, Serialize};

/// The parameters of `twins`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TwinsConfig {
    /// How long one data server is served.
    #[serde(with = "units::span")]
    pub window: Nanos,
}

impl Default for TwinsConfig {
    fn default() -> TwinsConfig {
        TwinsConfig { window: Nanos::from_millis(2) }
    }
}

/// Serves one data server per time window.
#[derive(Debug)]
pub struct Twins {
    window: Nanos,
    node: u64,
    servers: Vec<Run>,
    /// Names and attributes belong to no data server and wait for no window.
    metadata: Run,
    metadata_was_last: bool,
    len: usize,
    merge: Limits,
}

impl Twins {
    /// An empty one for the node at `site`.
    pub fn new(config: &TwinsConfig, merge: Limits, site: Site) -> Twins {
        Twins {
            window: Nanos(config.window.0.max(1)),
            node: u64::from(site.node),
            servers: vec![Run::default(); site.servers.max(1) as usize],
            metadata: Run::default(),
            metadata_was_last: false,
            len: 0,
            merge,
        }
    }

    /// The data server whose window it is.
    pub fn server_at(&self, now: Nanos) -> ServerId {
        ServerId(self.turn(now.0 / self.window.0) as u32)
    }

    fn turn(&self, window: u64) -> usize {
        (window.wrapping_add(self.node) % self.servers.len() as u64) as usize
    }
}

impl Scheduler for Twins {
    fn enqueue(&mut self, _now: Nanos, r: Request) {
        self.len += 1;
        if r.op == OpKind::Metadata {
            self.metadata.push(r);
        } else {
            // A server beyond the configured number shares a window with another.
            let server = r.server.0 as usize % self.servers.len();
            self.servers[server].push(r);
        }
    }

    fn dispatch(&mut self, now: Nanos) -> Option<Batch> {
        if self.len == 0 {
            return None;
        }
        let turn = self.turn(now.0 / self.window.0);
        let data_first = self.metadata_was_last && !self.servers[turn].is_empty();
        self.metadata_was_last = !data_first && !self.metadata.is_empty();
        let run = if self.metadata_was_last { &mut self.metadata } else { &mut self.servers[turn] };
        let batch = run.pop(&self.merge)?;
        self.len -= batch.requests().len();
        Some(batch)
    }

    fn next_wakeup(&self, now: Nanos) -> Option<Nanos> {
        let window = now.0 / self.window.0;
        (1..=self.servers.len() as u64)
            .map(|ahead| window.saturating_add(ahead))
            .find(|w| !self.servers[self.turn(*w)].is_empty())
            .map(|w| Nanos(w.saturating_mul(self.window.0)))
    }

    fn complete(&mut self, _now: Nanos, _batch: &Batch) {}

    fn len(&self) -> usize {
        self.len
    }

    fn retune(&mut self, config: &SchedulerConfig) -> bool {
        let Algorithm::Twins(twins) = &config.algorithm else { return false };
        self.window = Nanos(twins.window.0.max(1));
        self.merge = config.merge;
        true
    }

    fn drain(&mut self) -> Vec<Request> {
        self.len = 0;
        let mut all = self.metadata.drain();
        all.extend(self.servers.iter_mut().flat_map(Run::drain));
        all.sort_by_key(|r| r.arrival);
        all
    }
}
