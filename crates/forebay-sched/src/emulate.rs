//! The emulated storage model: how long requests would take on so many data servers, each with a
//! bandwidth, a cost per request, a seek by distance and a penalty for serving several I/O nodes at
//! once, all of them for reads and writes apart, and a cost of metadata. It stores nothing and waits for nobody: it says when a request would be done, and whoever
//! holds real data delays its answer until then. It is a stand-in for experiments, not a file system.

use forebay_types::{FileId, Nanos, NodeId, OpKind, ServerId};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// What one data server is like. The figures are those of reads; writes and metadata have their own
/// where they differ.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct ServerModel {
    /// Bytes a second once it transfers.
    #[serde(with = "forebay_types::rate")]
    pub bandwidth: u64,
    /// What every request costs the server, whatever its size.
    #[serde(with = "forebay_types::span")]
    pub per_request: Nanos,
    /// What every request takes on the way, without keeping the server from others.
    #[serde(with = "forebay_types::span")]
    pub latency: Nanos,
    /// The longest seek; another file is that far away.
    #[serde(with = "forebay_types::span")]
    pub seek: Nanos,
    /// The distance that costs half the longest seek.
    #[serde(with = "forebay_types::size")]
    pub seek_half: u64,
    /// The time added for every further I/O node that has requests at the server, as a part of the
    /// request's own time.
    pub penalty: f64,
    /// The most that all further I/O nodes add together; unset, there is no most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub penalty_limit: Option<f64>,
    /// What is different for writes; unset, they are as reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<AccessModel>,
    /// What a metadata operation costs the server; unset, as much as any request.
    #[serde(skip_serializing_if = "Option::is_none", with = "forebay_types::span::option")]
    pub metadata: Option<Nanos>,
}

/// How requests of one kind are served.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AccessModel {
    /// Bytes a second once it transfers.
    #[serde(with = "forebay_types::rate")]
    pub bandwidth: u64,
    /// What every request costs the server, whatever its size.
    #[serde(with = "forebay_types::span")]
    pub per_request: Nanos,
    /// The longest seek.
    #[serde(with = "forebay_types::span")]
    pub seek: Nanos,
    /// The time added for every further I/O node at the server, as a part of the request's own time.
    pub penalty: f64,
}

impl ServerModel {
    /// How requests of this kind are served.
    fn serving(&self, op: OpKind) -> AccessModel {
        let ServerModel { bandwidth, per_request, seek, penalty, .. } = *self;
        match op {
            OpKind::Write => self.write,
            OpKind::Read | OpKind::Metadata => None,
        }
        .unwrap_or(AccessModel {
            bandwidth,
            per_request: if op == OpKind::Metadata {
                self.metadata.unwrap_or(per_request)
            } else {
                per_request
            },
            seek,
            penalty,
        })
    }
}

impl Default for ServerModel {
    /// A disk behind a network, slow enough to emulate many on a small machine.
    fn default() -> ServerModel {
        ServerModel {
            bandwidth: 200_000_000,
            per_request: Nanos::from_micros(100),
            latency: Nanos::from_micros(200),
            seek: Nanos::from_millis(2),
            seek_half: 64 << 20,
            penalty: 0.1,
            penalty_limit: None,
            write: None,
            metadata: None,
        }
    }
}

/// The storage system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct StorageModel {
    /// How many data servers.
    pub servers: u32,
    /// Files are striped over them in pieces of this size, the first piece of a file on server 0.
    #[serde(with = "forebay_types::size")]
    pub stripe: u64,
    /// What each is like.
    pub server: ServerModel,
}

impl StorageModel {
    /// Refuses figures that no storage has, on which requests would wait for ever, and says which are allowed.
    pub fn check(&self) -> Result<(), String> {
        let written = self.server.write.map_or(self.server.bandwidth, |w| w.bandwidth);
        let settings = [
            ("servers", self.servers.into(), 1, 1 << 20),
            ("stripe", self.stripe, 1, 1 << 40),
            ("server.bandwidth", self.server.bandwidth, 1000, 1 << 50),
            ("server.write.bandwidth", written, 1000, 1 << 50),
        ];
        match settings.iter().find(|(_, value, min, max)| !(*min..=*max).contains(value)) {
            Some((name, value, min, max)) => Err(format!("{name} is {value}: it can be {min} to {max}")),
            None => Ok(()),
        }
    }
}

impl Default for StorageModel {
    fn default() -> StorageModel {
        StorageModel { servers: 4, stripe: 64 << 10, server: ServerModel::default() }
    }
}

/// A data server at work. Requests are served in the order they reach it.
#[derive(Clone, Debug, Default)]
struct Server {
    /// When it has done all it was given.
    free: Nanos,
    /// Where its last request ended.
    position: Option<(FileId, u64)>,
    /// Who has requests here and when they will be done, by that time.
    outstanding: VecDeque<(Nanos, NodeId)>,
    /// How many of those are whose.
    present: FxHashMap<NodeId, u32>,
}

/// The servers and what they are doing.
#[derive(Clone, Debug)]
pub struct Emulated {
    model: StorageModel,
    servers: Vec<Server>,
}

impl Emulated {
    /// Idle servers.
    pub fn new(model: StorageModel) -> Emulated {
        let servers = vec![Server::default(); model.servers.max(1) as usize];
        let model = StorageModel { stripe: model.stripe.max(1), ..model };
        Emulated { model, servers }
    }

    /// What it emulates.
    pub fn model(&self) -> &StorageModel {
        &self.model
    }

    /// The data server of an offset.
    pub fn server_of(&self, offset: u64) -> ServerId {
        ServerId((offset / self.model.stripe % self.servers.len() as u64) as u32)
    }

    /// An I/O node sends a request at `now`: when its answer will be back. Calls come in order of time.
    pub fn submit(
        &mut self,
        now: Nanos,
        from: NodeId,
        op: OpKind,
        file: FileId,
        offset: u64,
        len: u64,
    ) -> Nanos {
        let latency = self.model.server.latency;
        if op == OpKind::Metadata || len == 0 {
            let server = (file.0 % self.servers.len() as u64) as usize;
            let metadata = OpKind::Metadata;
            return self.servers[server].serve(&self.model.server, now, from, metadata, None, 0) + latency;
        }
        // A request reaches each server it touches once, with all its pieces there.
        let (stripe, count) = (self.model.stripe, self.servers.len() as u64);
        let (first, last) = (offset / stripe, (offset.saturating_add(len) - 1) / stripe);
        let mut done = now;
        for unit in first..=last.min(first + count - 1) {
            let (bytes, start) = pieces(offset, len, stripe, count, unit);
            let server = &mut self.servers[(unit % count) as usize];
            done = done.max(server.serve(&self.model.server, now, from, op, Some((file, start)), bytes));
        }
        done + latency
    }
}

/// How many bytes of a request lie on the server of stripe unit `unit`, which is the first of its units
/// there, and where they start in that server's part of the file.
fn pieces(offset: u64, len: u64, stripe: u64, count: u64, unit: u64) -> (u64, u64) {
    let end = offset.saturating_add(len);
    let edge = |unit: u64| unit.saturating_mul(stripe);
    let start = offset.max(edge(unit));
    let mut bytes = end.min(edge(unit + 1)) - start;
    let more = ((end - 1) / stripe - unit) / count;
    if more > 0 {
        // Whole units but perhaps the last.
        let last = unit + more * count;
        bytes += (more - 1) * stripe + (end.min(edge(last + 1)) - edge(last));
    }
    (bytes, unit / count * stripe + start % stripe)
}

impl Server {
    /// When it is done with `bytes` at `place`, if it has them now.
    fn serve(
        &mut self,
        model: &ServerModel,
        now: Nanos,
        from: NodeId,
        op: OpKind,
        place: Option<(FileId, u64)>,
        bytes: u64,
    ) -> Nanos {
        while let Some(&(_, node)) = self.outstanding.front().filter(|(done, _)| *done <= now) {
            self.outstanding.pop_front();
            if let Some(count) = self.present.get_mut(&node) {
                *count -= 1;
                if *count == 0 {
                    self.present.remove(&node);
                }
            }
        }
        let others = self.present.len() - usize::from(self.present.contains_key(&from));
        let serving = model.serving(op);
        let transfer = bytes as f64 * 1e9 / serving.bandwidth.max(1) as f64;
        let own = serving.per_request.0 as f64 + self.seek(model, &serving, place) + transfer;
        let penalty = (serving.penalty * others as f64).min(model.penalty_limit.unwrap_or(f64::INFINITY));
        let took = own * (1.0 + penalty);
        let done = self.free.max(now) + Nanos(took as u64);
        self.free = done;
        self.position = place.map(|(file, start)| (file, start + bytes)).or(self.position);
        self.outstanding.push_back((done, from));
        *self.present.entry(from).or_default() += 1;
        done
    }

    fn seek(&self, model: &ServerModel, serving: &AccessModel, place: Option<(FileId, u64)>) -> f64 {
        match (place, self.position) {
            (None, _) => 0.0,
            (Some((file, start)), Some((last, end))) if file == last => {
                let distance = start.abs_diff(end) as f64;
                let half = model.seek_half.max(1) as f64;
                serving.seek.0 as f64 * distance / (distance + half)
            }
            _ => serving.seek.0 as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plain(servers: u32) -> StorageModel {
        StorageModel {
            servers,
            stripe: 1000,
            server: ServerModel {
                bandwidth: 1_000_000_000,
                per_request: Nanos(100),
                latency: Nanos(10),
                seek: Nanos(1000),
                seek_half: 500,
                penalty: 0.5,
                ..ServerModel::default()
            },
        }
    }

    #[test]
    fn time_is_request_seek_transfer_and_latency() {
        let mut e = Emulated::new(plain(2));
        let (read, file, n) = (OpKind::Read, FileId(1), NodeId(0));
        // Another file: the longest seek. Then sequential: none. Then 500 bytes on: half of it.
        assert_eq!(e.submit(Nanos(0), n, read, file, 0, 400), Nanos(100 + 1000 + 400 + 10));
        assert_eq!(e.submit(Nanos(5000), n, read, file, 400, 100), Nanos(5000 + 100 + 100 + 10));
        assert_eq!(e.submit(Nanos(9000), n, read, file, 2000, 100), Nanos(9000 + 100 + 500 + 100 + 10));
        assert_eq!(e.server_of(1999), ServerId(1));
    }

    #[test]
    fn requests_queue_and_other_nodes_cost_more() {
        let mut e = Emulated::new(plain(1));
        let at =
            |e: &mut Emulated, node: u32| e.submit(Nanos(0), NodeId(node), OpKind::Metadata, FileId(1), 0, 0);
        assert_eq!(at(&mut e, 0), Nanos(100 + 10));
        assert_eq!(at(&mut e, 0), Nanos(200 + 10), "one after the other");
        assert_eq!(at(&mut e, 1), Nanos(350 + 10), "half as much again for one other node");
        assert_eq!(at(&mut e, 2), Nanos(550 + 10), "twice for two");
    }

    #[test]
    fn writes_and_metadata_have_their_own_times_and_the_penalty_its_limit() {
        let mut model = plain(1);
        model.server.write = Some(AccessModel {
            bandwidth: 500_000_000,
            per_request: Nanos(300),
            seek: Nanos(0),
            penalty: 0.0,
        });
        model.server.metadata = Some(Nanos(700));
        model.server.penalty_limit = Some(0.75);
        let mut e = Emulated::new(model.clone());
        let file = FileId(1);
        assert_eq!(e.submit(Nanos(0), NodeId(0), OpKind::Write, file, 0, 400), Nanos(300 + 800 + 10));
        assert_eq!(e.submit(Nanos(5000), NodeId(0), OpKind::Read, file, 400, 400), Nanos(5000 + 500 + 10));
        assert_eq!(e.submit(Nanos(9000), NodeId(0), OpKind::Metadata, file, 0, 0), Nanos(9000 + 700 + 10));
        // Two others would add the whole of its own time; at most three quarters are added.
        e.submit(Nanos(20_000), NodeId(1), OpKind::Metadata, file, 0, 0);
        e.submit(Nanos(20_000), NodeId(2), OpKind::Metadata, file, 0, 0);
        let done = e.submit(Nanos(20_000), NodeId(3), OpKind::Metadata, file, 0, 0);
        assert_eq!(done, Nanos(20_000 + 700 + 1050 + 1225 + 10));
        let text = serde_json::to_string(&model).unwrap();
        assert_eq!(serde_json::from_str::<StorageModel>(&text).unwrap(), model);
    }

    #[test]
    fn a_wide_request_uses_all_servers_at_once() {
        let mut e = Emulated::new(plain(4));
        let wide = e.submit(Nanos(0), NodeId(0), OpKind::Write, FileId(1), 0, 8000);
        assert_eq!(wide, Nanos(100 + 1000 + 2000 + 10));
    }

    proptest! {
        #[test]
        fn pieces_add_up(offset in 0u64..100_000, len in 1u64..50_000, stripe in 1u64..5000, count in 1u64..9) {
            let (first, last) = (offset / stripe, (offset + len - 1) / stripe);
            let mut total = 0;
            for unit in first..=last.min(first + count - 1) {
                let (bytes, start) = pieces(offset, len, stripe, count, unit);
                let naive = (offset..offset + len).filter(|b| b / stripe % count == unit % count).count() as u64;
                prop_assert_eq!(bytes, naive);
                let byte = offset.max(unit * stripe);
                prop_assert_eq!(start, byte / (stripe * count) * stripe + byte % stripe);
                total += bytes;
            }
            prop_assert_eq!(total, len);
        }
    }
}
