//! `twins`: server time windows. In each window the node serves one data server only, in arrival
//! order, and waits on an empty queue rather than turn to another server. Windows are counted from
//! the Unix epoch and each node starts its rotation one server further on, so that nodes keep out of
//! each other's way without a message.
//!
//! Requests that outlast their window can keep all workers busy through another server's window, time
//! and again. A server that was passed over so for [`PATIENCE`] rotations gets one batch out of turn.

use crate::aggregate::{Limits, Run};
use crate::{Algorithm, Batch, Request, Scheduler, SchedulerConfig, Site};
use forebay_types::{Nanos, OpKind, ServerId};
use serde::{Deserialize, Serialize};

/// The parameters of `twins`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TwinsConfig {
    /// How long one data server is served.
    #[serde(with = "forebay_types::span")]
    pub window: Nanos,
}

impl Default for TwinsConfig {
    fn default() -> TwinsConfig {
        TwinsConfig { window: Nanos::from_millis(2) }
    }
}

/// After so many rotations in which its window was missed, a server is served out of turn.
pub const PATIENCE: u64 = 16;

#[derive(Clone, Debug, Default)]
struct Server {
    requests: Run,
    /// The window in which it was last served, or since when it has something waiting.
    served: u64,
}

/// Serves one data server per time window.
#[derive(Debug)]
pub struct Twins {
    window: Nanos,
    node: u64,
    servers: Vec<Server>,
    /// The last window that began here.
    current: u64,
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
            servers: vec![Server::default(); site.servers.max(1) as usize],
            current: 0,
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

    /// A server passed over for too long; asked once a window.
    fn overdue(&self, window: u64) -> Option<usize> {
        let patience = PATIENCE * self.servers.len() as u64;
        let waiting = self.servers.iter().enumerate().filter(|(_, s)| !s.requests.is_empty());
        let late = waiting.filter(|(_, s)| window.saturating_sub(s.served) > patience);
        late.min_by_key(|(_, s)| s.served).map(|(i, _)| i)
    }

    fn turn(&self, window: u64) -> usize {
        (window.wrapping_add(self.node) % self.servers.len() as u64) as usize
    }
}

impl Scheduler for Twins {
    fn enqueue(&mut self, now: Nanos, r: Request) {
        self.len += 1;
        if r.op == OpKind::Metadata {
            self.metadata.push(r);
            return;
        }
        // A server beyond the configured number shares a window with another.
        let server = r.server.0 as usize % self.servers.len();
        let server = &mut self.servers[server];
        if server.requests.is_empty() {
            server.served = now.0 / self.window.0;
        }
        server.requests.push(r);
    }

    fn dispatch(&mut self, now: Nanos) -> Option<Batch> {
        if self.len == 0 {
            return None;
        }
        let window = now.0 / self.window.0;
        let begins = std::mem::replace(&mut self.current, window) != window;
        let overdue = if begins { self.overdue(window) } else { None };
        let turn = self.turn(window);
        let server = &mut self.servers[overdue.unwrap_or(turn)];
        let data_first = self.metadata_was_last && !server.requests.is_empty();
        self.metadata_was_last = !data_first && !self.metadata.is_empty();
        let batch = if self.metadata_was_last {
            self.metadata.pop(&self.merge)?
        } else {
            server.served = window;
            server.requests.pop(&self.merge)?
        };
        self.len -= batch.requests().len();
        Some(batch)
    }

    fn next_wakeup(&self, now: Nanos) -> Option<Nanos> {
        let window = now.0 / self.window.0;
        (1..=self.servers.len() as u64)
            .map(|ahead| window.saturating_add(ahead))
            .find(|w| !self.servers[self.turn(*w)].requests.is_empty())
            .map(|w| Nanos(w.saturating_mul(self.window.0)))
    }

    fn len(&self) -> usize {
        self.len
    }

    fn retune(&mut self, config: &SchedulerConfig) -> bool {
        let Algorithm::Twins(twins) = &config.algorithm else { return false };
        let window = Nanos(twins.window.0.max(1));
        if window != self.window {
            self.current = self.current.saturating_mul(self.window.0) / window.0;
            for s in &mut self.servers {
                s.served = s.served.saturating_mul(self.window.0) / window.0;
            }
        }
        (self.window, self.merge) = (window, config.merge);
        true
    }

    fn drain(&mut self) -> Vec<Request> {
        self.len = 0;
        let mut all = self.metadata.drain();
        all.extend(self.servers.iter_mut().flat_map(|s| s.requests.drain()));
        all.sort_by_key(|r| r.arrival);
        all
    }
}
