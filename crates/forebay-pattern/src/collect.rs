//! The collector: every request of an I/O node passes here on arrival and on completion, and once an
//! interval the sums are taken out. It is on the hot path, so a request costs one hash lookup and a
//! few additions; what is dear (who is new, who is gone) happens once an interval.

use crate::metrics::{FlowMetrics, Interval, Load};
use crate::sizes::Sizes;
use crate::table::Table;
use forebay_types::{ClientId, FileId, FlowId, Nanos, OpKind};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Streams, files and clients that are followed at once; requests beyond are counted, not compared.
const MAX_STREAMS: usize = 1 << 16;
/// Flows that are told apart at once; the requests of further flows are not seen.
const MAX_FLOWS: usize = 1 << 12;
/// Intervals without a request after which a stream is forgotten.
const FORGET_AFTER: u32 = 60;

/// One request, as it arrives at an I/O node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The job it belongs to.
    pub flow: FlowId,
    /// The process that sent it.
    pub client: ClientId,
    /// The file it goes to; ignored for metadata.
    pub file: FileId,
    /// What it does.
    pub op: OpKind,
    /// Where in the file it begins; ignored for metadata.
    pub offset: u64,
    /// How many bytes it moves; ignored for metadata.
    pub len: u64,
}

/// One client's way through one file.
#[derive(Debug)]
struct Stream {
    flow: u32,
    file: u32,
    client: ClientId,
    /// The interval of the last request.
    touched: u32,
    seen: bool,
    jumped: bool,
    /// Where the last request ended.
    end: u64,
    /// The width of the last jump.
    jump: u64,
}

#[derive(Debug)]
struct File {
    id: FileId,
    flow: u32,
    touched: u32,
    seen: bool,
    /// Requests in the interval `touched`.
    requests: u32,
    /// Where the last request began.
    last: u64,
}

#[derive(Debug, Default)]
struct Client {
    touched: u32,
}

/// Time with work, and how much of it.
#[derive(Debug, Default)]
struct Meter {
    pending: u64,
    since: Nanos,
    busy: u64,
    /// Nanoseconds times requests.
    area: f64,
    offered: u64,
    served: u64,
}

impl Meter {
    #[inline]
    fn advance(&mut self, now: Nanos) {
        if self.pending > 0 {
            let span = now.since(self.since).0;
            self.busy += span;
            self.area += span as f64 * self.pending as f64;
        }
        self.since = self.since.max(now);
    }

    #[inline]
    fn arrive(&mut self, now: Nanos, bytes: u64) {
        self.advance(now);
        self.pending += 1;
        self.offered = self.offered.saturating_add(bytes);
    }

    #[inline]
    fn complete(&mut self, now: Nanos, bytes: u64) {
        self.advance(now);
        self.pending = self.pending.saturating_sub(1);
        self.served = self.served.saturating_add(bytes);
    }

    fn take(&mut self, now: Nanos) -> Load {
        self.advance(now);
        let outstanding = if self.busy == 0 { 0.0 } else { self.area / self.busy as f64 };
        let load = Load { offered: self.offered, served: self.served, busy: Nanos(self.busy), outstanding };
        *self = Meter { pending: self.pending, since: self.since, ..Meter::default() };
        load
    }
}

#[derive(Debug)]
struct Flow {
    touched: u32,
    meter: Meter,
    sums: Sums,
    sizes: Sizes,
    last_arrival: Option<Nanos>,
}

/// What is added up over one interval.
#[derive(Debug, Default)]
struct Sums {
    files: u32,
    clients: u32,
    streams: u32,
    reads: u64,
    writes: u64,
    metadata: u64,
    bytes_read: u64,
    bytes_written: u64,
    size_min: u64,
    size_max: u64,
    distance: f64,
    distances: u64,
    judged: u64,
    sequential: u64,
    forward: u64,
    jumps: u64,
    regular: u64,
    jump_width: f64,
    arrivals: u64,
    arrival: f64,
    arrival_squared: f64,
}

/// Adds up what one I/O node sees.
#[derive(Debug)]
pub struct Collector {
    /// The number of the running interval, from 1: what carries it was touched in it.
    interval: u32,
    started: Nanos,
    node: Meter,
    flows: Table<FlowId, Flow>,
    streams: Table<(FlowId, ClientId, FileId), Stream>,
    files: Table<(FlowId, FileId), File>,
    clients: Table<(FlowId, ClientId), Client>,
}

impl Collector {
    /// A collector whose first interval begins `now`.
    pub fn new(now: Nanos) -> Collector {
        Collector {
            interval: 1,
            started: now,
            node: Meter::default(),
            flows: Table::new(MAX_FLOWS),
            streams: Table::new(MAX_STREAMS),
            files: Table::new(MAX_STREAMS),
            clients: Table::new(MAX_STREAMS),
        }
    }

    /// A request arrives.
    #[inline]
    pub fn arrive(&mut self, now: Nanos, access: &Access) {
        if access.op == OpKind::Metadata {
            return self.arrive_metadata(now, access);
        }
        self.node.arrive(now, access.len);
        let key = (access.flow, access.client, access.file);
        let slot = match self.streams.find(key) {
            Some(slot) => slot,
            None => match self.add_stream(access) {
                Some(slot) => slot,
                None => return self.arrive_untracked(now, access),
            },
        };
        if self.streams.get_mut(slot).touched != self.interval {
            self.touch(slot, access.flow);
        }
        let stream = self.streams.get_mut(slot);
        let flow = self.flows.get_mut(stream.flow);
        let file = self.files.get_mut(stream.file);
        flow.count(now, access);
        let sums = &mut flow.sums;

        if stream.seen {
            sums.judged += 1;
            if access.offset == stream.end {
                sums.sequential += 1;
            } else {
                // The width wraps for jumps backwards; only equality and size matter.
                let jump = access.offset.wrapping_sub(stream.end);
                sums.jump_width += access.offset.abs_diff(stream.end) as f64;
                sums.forward += u64::from(access.offset > stream.end);
                sums.jumps += u64::from(stream.jumped);
                sums.regular += u64::from(stream.jumped && jump == stream.jump);
                stream.jumped = true;
                stream.jump = jump;
            }
        }
        stream.seen = true;
        stream.end = access.offset.wrapping_add(access.len);

        if file.seen {
            sums.distance += access.offset.abs_diff(file.last) as f64;
            sums.distances += 1;
        }
        file.seen = true;
        file.last = access.offset;
        file.requests = file.requests.saturating_add(1);
    }

    /// A request that arrived has been answered, having moved `bytes`. Every request that arrived
    /// must be completed, also one that failed or whose client is gone.
    #[inline]
    pub fn complete(&mut self, now: Nanos, flow: FlowId, bytes: u64) {
        self.node.complete(now, bytes);
        if let Some(slot) = self.flows.find(flow) {
            self.flows.get_mut(slot).meter.complete(now, bytes);
        }
    }

    /// Ends the running interval and begins the next.
    pub fn close(&mut self, now: Nanos) -> Interval {
        let interval = self.interval;
        let mut tops: BTreeMap<u32, (Reverse<u32>, FileId)> = BTreeMap::new();
        for (slot, _) in self.files.in_use() {
            let file = self.files.get_mut(slot);
            if file.touched == interval {
                // Of equally busy files the smallest id, so that all nodes name the same one.
                let candidate = (Reverse(file.requests), file.id);
                tops.entry(file.flow).and_modify(|top| *top = candidate.min(*top)).or_insert(candidate);
            }
        }
        let mut flows = Vec::new();
        for (slot, id) in self.flows.in_use() {
            let flow = self.flows.get_mut(slot);
            let load = flow.meter.take(now);
            if flow.touched == interval || load.served > 0 {
                let top = tops.get(&slot).map(|&(_, file)| file);
                flows.push(flow.sums.metrics(id, load, &flow.sizes, top));
                flow.sums = Sums::default();
                flow.sizes.clear();
            }
        }
        flows.sort_by_key(|m| m.flow);
        let closed = Interval { start: self.started, end: now, load: self.node.take(now), flows };
        self.forget(interval);
        self.interval = interval + 1;
        self.started = now;
        closed
    }

    fn forget(&mut self, interval: u32) {
        let fresh = |touched: u32| interval.saturating_sub(touched) < FORGET_AFTER;
        self.streams.retain(|s| fresh(s.touched));
        self.clients.retain(|c| fresh(c.touched));
        // A stream points to its file and flow: they were touched no earlier than it, so they stay
        // at least as long.
        self.files.retain(|f| fresh(f.touched));
        self.flows.retain(|f| fresh(f.touched) || f.meter.pending > 0);
    }

    /// The first request of a stream in this interval.
    #[cold]
    fn touch(&mut self, slot: u32, flow_id: FlowId) {
        let stream = self.streams.get_mut(slot);
        stream.touched = self.interval;
        let client = stream.client;
        let file = self.files.get_mut(stream.file);
        let flow = self.flows.get_mut(stream.flow);
        flow.touched = self.interval;
        flow.sums.streams += 1;
        if file.touched != self.interval {
            file.touched = self.interval;
            file.requests = 0;
            flow.sums.files += 1;
        }
        self.touch_client(flow_id, client);
    }

    fn touch_client(&mut self, flow: FlowId, client: ClientId) {
        let Some(slot) = self.clients.find_or_add((flow, client), Client::default) else { return };
        let client = self.clients.get_mut(slot);
        if client.touched != self.interval {
            client.touched = self.interval;
            if let Some(slot) = self.flows.find(flow) {
                self.flows.get_mut(slot).sums.clients += 1;
            }
        }
    }

    #[cold]
    fn add_stream(&mut self, access: &Access) -> Option<u32> {
        let flow = self.add_flow(access.flow)?;
        let new_file = || File { id: access.file, flow, touched: 0, seen: false, requests: 0, last: 0 };
        let file = self.files.find_or_add((access.flow, access.file), new_file)?;
        self.streams.find_or_add((access.flow, access.client, access.file), || Stream {
            flow,
            file,
            client: access.client,
            touched: 0,
            seen: false,
            jumped: false,
            end: 0,
            jump: 0,
        })
    }

    fn add_flow(&mut self, id: FlowId) -> Option<u32> {
        self.flows.find_or_add(id, || Flow {
            touched: 0,
            meter: Meter::default(),
            sums: Sums::default(),
            sizes: Sizes::new(),
            last_arrival: None,
        })
    }

    fn arrive_metadata(&mut self, now: Nanos, access: &Access) {
        self.node.arrive(now, 0);
        let Some(slot) = self.add_flow(access.flow) else { return };
        let flow = self.flows.get_mut(slot);
        flow.touched = self.interval;
        flow.arrival(now);
        flow.meter.arrive(now, 0);
        flow.sums.metadata += 1;
        self.touch_client(access.flow, access.client);
    }

    /// More streams than are followed: count the request all the same.
    #[cold]
    fn arrive_untracked(&mut self, now: Nanos, access: &Access) {
        let Some(slot) = self.add_flow(access.flow) else { return };
        let flow = self.flows.get_mut(slot);
        flow.touched = self.interval;
        flow.count(now, access);
    }

    #[cfg(test)]
    fn followed(&self) -> usize {
        self.streams.len()
    }
}

impl Flow {
    #[inline]
    fn arrival(&mut self, now: Nanos) {
        if let Some(last) = self.last_arrival {
            let gap = now.since(last).0 as f64;
            self.sums.arrivals += 1;
            self.sums.arrival += gap;
            self.sums.arrival_squared += gap * gap;
        }
        self.last_arrival = Some(now);
    }

    #[inline]
    fn count(&mut self, now: Nanos, access: &Access) {
        self.arrival(now);
        self.meter.arrive(now, access.len);
        let sums = &mut self.sums;
        let first = sums.reads + sums.writes == 0;
        if access.op == OpKind::Read {
            sums.reads += 1;
            sums.bytes_read = sums.bytes_read.saturating_add(access.len);
        } else {
            sums.writes += 1;
            sums.bytes_written = sums.bytes_written.saturating_add(access.len);
        }
        sums.size_min = if first { access.len } else { sums.size_min.min(access.len) };
        sums.size_max = sums.size_max.max(access.len);
        self.sizes.add(access.len);
    }
}

impl Sums {
    fn metrics(&self, flow: FlowId, load: Load, sizes: &Sizes, top_file: Option<FileId>) -> FlowMetrics {
        let (min, max) = (self.size_min, self.size_max);
        let arrival_mean = mean(self.arrival, self.arrivals);
        let variance = mean(self.arrival_squared, self.arrivals) - arrival_mean * arrival_mean;
        FlowMetrics {
            flow,
            files: self.files,
            clients: self.clients,
            streams: self.streams,
            top_file,
            reads: self.reads,
            writes: self.writes,
            metadata: self.metadata,
            bytes_read: self.bytes_read,
            bytes_written: self.bytes_written,
            size_min: min,
            size_mean: mean((self.bytes_read as f64) + (self.bytes_written as f64), self.reads + self.writes),
            size_max: max,
            size_p50: sizes.quantile(0.5, min, max),
            size_p90: sizes.quantile(0.9, min, max),
            size_p99: sizes.quantile(0.99, min, max),
            offset_distance: mean(self.distance, self.distances),
            judged: self.judged,
            sequential: self.sequential,
            forward: self.forward,
            jumps: self.jumps,
            regular: self.regular,
            jump_width: mean(self.jump_width, self.judged - self.sequential),
            arrival_mean: arrival_mean / 1e9,
            arrival_cv: if arrival_mean > 0.0 { variance.max(0.0).sqrt() / arrival_mean } else { 0.0 },
            served: load.served,
            busy: load.busy,
            outstanding: load.outstanding,
        }
    }
}

fn mean(sum: f64, n: u64) -> f64 {
    if n == 0 { 0.0 } else { sum / n as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn access(client: u64, file: u64, op: OpKind, offset: u64, len: u64) -> Access {
        Access { flow: FlowId(1), client: ClientId(client), file: FileId(file), op, offset, len }
    }

    fn write(client: u64, file: u64, offset: u64) -> Access {
        access(client, file, OpKind::Write, offset, 100)
    }

    #[test]
    fn sequence_jumps_and_distance() {
        let mut c = Collector::new(Nanos::ZERO);
        // Client 1: 0, 100 (sequential), 500 (jump 300), 900 (jump 300, regular), 0 (back, irregular).
        for offset in [0, 100, 500, 900, 0] {
            c.arrive(Nanos(10), &write(1, 7, offset));
        }
        let m = &c.close(Nanos::from_secs(1)).flows[0];
        assert_eq!((m.judged, m.sequential, m.forward, m.jumps, m.regular), (4, 1, 2, 2, 1));
        assert_eq!(m.offset_distance, (100.0 + 400.0 + 400.0 + 900.0) / 4.0);
        assert_eq!(m.jump_width, (300.0 + 300.0 + 1000.0) / 3.0);
        assert_eq!((m.size_min, m.size_max, m.size_p50, m.size_mean), (100, 100, 100, 100.0));
    }

    #[test]
    fn a_stream_goes_on_over_the_interval() {
        let mut c = Collector::new(Nanos::ZERO);
        c.arrive(Nanos(1), &write(1, 7, 0));
        c.close(Nanos(10));
        c.arrive(Nanos(11), &write(1, 7, 100));
        let m = &c.close(Nanos(20)).flows[0];
        assert_eq!((m.judged, m.sequential, m.writes, m.files, m.clients), (1, 1, 1, 1, 1));
        assert!(c.close(Nanos(30)).flows.is_empty());
    }

    #[test]
    fn busy_time_and_outstanding() {
        let mut c = Collector::new(Nanos::ZERO);
        c.arrive(Nanos(100), &write(1, 7, 0));
        c.arrive(Nanos(200), &write(2, 7, 0));
        c.complete(Nanos(300), FlowId(1), 100);
        c.complete(Nanos(400), FlowId(1), 50);
        let i = c.close(Nanos(1000));
        assert_eq!(i.load, Load { offered: 200, served: 150, busy: Nanos(300), outstanding: 400.0 / 300.0 });
        assert_eq!(i.flows[0].busy, Nanos(300));
        // A request still in service makes the next interval busy from its beginning.
        c.arrive(Nanos(1500), &write(1, 7, 0));
        c.close(Nanos(2000));
        let i = c.close(Nanos(3000));
        assert_eq!((i.load.busy, i.load.outstanding), (Nanos(1000), 1.0));
    }

    #[test]
    fn metadata_counts_clients_not_files() {
        let mut c = Collector::new(Nanos::ZERO);
        for client in 0..5 {
            c.arrive(Nanos(1), &access(client, 0, OpKind::Metadata, 0, 0));
        }
        let m = &c.close(Nanos::from_secs(1)).flows[0];
        assert_eq!((m.metadata, m.clients, m.files, m.data_requests()), (5, 5, 0, 0));
        assert_eq!(m.metadata_rate(Nanos::from_secs(1)), 5.0);
    }

    #[test]
    fn memory_is_bounded_and_given_back() {
        let mut c = Collector::new(Nanos::ZERO);
        let n = MAX_STREAMS as u64 + 1000;
        for file in 0..n {
            c.arrive(Nanos(file), &write(1, file, 0));
        }
        let m = &c.close(Nanos::from_secs(1)).flows[0];
        assert_eq!(m.writes, n);
        assert_eq!(m.files as usize, MAX_STREAMS);
        assert_eq!(c.followed(), MAX_STREAMS);
        for s in 2..2 + u64::from(FORGET_AFTER) {
            c.close(Nanos::from_secs(s));
        }
        assert_eq!(c.followed(), 0);
        c.arrive(Nanos::from_secs(100), &write(1, 5, 0));
        assert_eq!(c.close(Nanos::from_secs(101)).flows[0].files, 1);
    }

    #[test]
    fn the_busiest_file_is_named() {
        let mut c = Collector::new(Nanos::ZERO);
        for file in [9, 4, 9, 4, 2] {
            c.arrive(Nanos(1), &write(1, file, 0));
        }
        assert_eq!(c.close(Nanos(2)).flows[0].top_file, Some(FileId(4)));
    }

    fn accesses() -> impl Strategy<Value = Vec<(Access, bool)>> {
        let one = (0u32..3, 0u64..4, 0u64..4, 0u8..3, 0u64..6, 1u64..3).prop_map(
            |(flow, client, file, op, at, len)| {
                let op = [OpKind::Read, OpKind::Write, OpKind::Metadata][op as usize];
                let access = Access {
                    flow: FlowId(flow),
                    client: ClientId(client),
                    file: FileId(file),
                    op,
                    offset: at * 512,
                    len: len * 512,
                };
                access
            },
        );
        prop::collection::vec((one, prop::bool::weighted(0.1)), 1..200)
    }

    proptest! {
        /// The collector against the obvious way to compute the same, over several intervals.
        #[test]
        fn agrees_with_the_reference(events in accesses()) {
            let mut collector = Collector::new(Nanos::ZERO);
            let mut ends: BTreeMap<(FlowId, ClientId, FileId), u64> = BTreeMap::new();
            let mut last: BTreeMap<(FlowId, FileId), u64> = BTreeMap::new();
            let mut now = 0;
            let mut interval: Vec<(Access, Option<bool>, Option<u64>)> = Vec::new();
            for (access, close_after) in events {
                now += 1000;
                collector.arrive(Nanos(now), &access);
                let (mut sequential, mut distance) = (None, None);
                if access.op != OpKind::Metadata {
                    let key = (access.flow, access.client, access.file);
                    sequential = ends.insert(key, access.offset + access.len).map(|end| end == access.offset);
                    distance = last.insert((access.flow, access.file), access.offset).map(|l| l.abs_diff(access.offset));
                }
                interval.push((access, sequential, distance));
                if close_after {
                    let closed = collector.close(Nanos(now));
                    check(&closed, &interval)?;
                    interval.clear();
                }
            }
            check(&collector.close(Nanos(now + 1)), &interval)?;
        }
    }

    fn check(closed: &Interval, events: &[(Access, Option<bool>, Option<u64>)]) -> Result<(), TestCaseError> {
        let flows: BTreeSet<FlowId> = events.iter().map(|e| e.0.flow).collect();
        prop_assert_eq!(
            closed.flows.iter().map(|m| m.flow).collect::<Vec<_>>(),
            flows.into_iter().collect::<Vec<_>>()
        );
        for m in &closed.flows {
            let mine: Vec<_> = events.iter().filter(|e| e.0.flow == m.flow).collect();
            let data: Vec<_> = mine.iter().filter(|e| e.0.op != OpKind::Metadata).collect();
            let distinct = |f: &dyn Fn(&Access) -> (u64, u64),
                            of: &[&(Access, Option<bool>, Option<u64>)]| {
                of.iter().map(|e| f(&e.0)).collect::<BTreeSet<_>>().len() as u32
            };
            let data: Vec<&(Access, Option<bool>, Option<u64>)> = data.into_iter().copied().collect();
            prop_assert_eq!(m.clients, distinct(&|a| (a.client.0, 0), &mine));
            prop_assert_eq!(m.files, distinct(&|a| (a.file.0, 0), &data));
            prop_assert_eq!(m.streams, distinct(&|a| (a.client.0, a.file.0), &data));
            prop_assert_eq!(m.metadata, (mine.len() - data.len()) as u64);
            prop_assert_eq!(m.bytes(), data.iter().map(|e| e.0.len).sum::<u64>());
            prop_assert_eq!(m.size_min, data.iter().map(|e| e.0.len).min().unwrap_or(0));
            prop_assert_eq!(m.size_max, data.iter().map(|e| e.0.len).max().unwrap_or(0));
            prop_assert_eq!(m.judged, data.iter().filter(|e| e.1.is_some()).count() as u64);
            prop_assert_eq!(m.sequential, data.iter().filter(|e| e.1 == Some(true)).count() as u64);
            let distances: Vec<u64> = data.iter().filter_map(|e| e.2).collect();
            let expected = if distances.is_empty() {
                0.0
            } else {
                distances.iter().sum::<u64>() as f64 / distances.len() as f64
            };
            prop_assert!((m.offset_distance - expected).abs() < 1e-6);
        }
        Ok(())
    }
}
