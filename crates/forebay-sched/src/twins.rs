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

/// The servers that have something waiting, a bit each: windows are short, and there may be hundreds.
#[derive(Debug)]
struct Waiting(Vec<u64>);

impl Waiting {
    fn of(servers: usize) -> Waiting {
        Waiting(vec![0; servers.div_ceil(64)])
    }

    fn set(&mut self, server: usize, waits: bool) {
        let (word, bit) = (server / 64, 1 << (server % 64));
        if waits { self.0[word] |= bit } else { self.0[word] &= !bit }
    }

    /// The first from there on, in the order of their numbers.
    fn from(&self, server: usize) -> Option<usize> {
        let first = self.0.get(server / 64)? & (u64::MAX << (server % 64));
        let later = self.0.iter().enumerate().skip(server / 64 + 1).map(|(i, w)| (i, *w));
        let (word, bits) = std::iter::once((server / 64, first)).chain(later).find(|(_, bits)| *bits != 0)?;
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    fn all(&self) -> impl Iterator<Item = usize> {
        std::iter::successors(self.from(0), |at| self.from(at + 1))
    }
}

/// Serves one data server per time window.
#[derive(Debug)]
pub struct Twins {
    window: Nanos,
    node: u64,
    servers: Vec<Server>,
    waiting: Waiting,
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
            waiting: Waiting::of(site.servers.max(1) as usize),
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
        let late = |i: &usize| window.saturating_sub(self.servers[*i].served) > patience;
        self.waiting.all().filter(late).min_by_key(|i| self.servers[*i].served)
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
        let number = r.server.0 as usize % self.servers.len();
        let server = &mut self.servers[number];
        if server.requests.is_empty() {
            server.served = now.0 / self.window.0;
            self.waiting.set(number, true);
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
        let number = overdue.unwrap_or_else(|| self.turn(window));
        let server = &mut self.servers[number];
        let data_first = self.metadata_was_last && !server.requests.is_empty();
        self.metadata_was_last = !data_first && !self.metadata.is_empty();
        let batch = if self.metadata_was_last {
            self.metadata.pop(&self.merge)?
        } else {
            server.served = window;
            let batch = server.requests.pop(&self.merge)?;
            self.waiting.set(number, !server.requests.is_empty());
            batch
        };
        self.len -= batch.requests().len();
        Some(batch)
    }

    fn next_wakeup(&self, now: Nanos) -> Option<Nanos> {
        let window = now.0 / self.window.0;
        // Around, from the one after this window's.
        let (turn, all) = (self.turn(window), self.servers.len());
        let next = self.waiting.from(turn + 1).or_else(|| self.waiting.from(0))?;
        let ahead = if next > turn { next - turn } else { next + all - turn };
        Some(Nanos(window.saturating_add(ahead as u64).saturating_mul(self.window.0)))
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
        self.waiting = Waiting::of(self.servers.len());
        let mut all = self.metadata.drain();
        all.extend(self.servers.iter_mut().flat_map(|s| s.requests.drain()));
        all.sort_by_key(|r| r.arrival);
        all
    }
}
