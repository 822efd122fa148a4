//! The collector: every request of an I/O node passes here on arrival and on completion, and once an
//! interval the sums are taken out. It is on the hot path, so a request costs one hash lookup and a
//! few additions; what is dear (who is new, who is gone) happens once an interval.

use crate::table::Table;
use forebay_types::{ClientId, FileId, FlowId, Histogram, Nanos, OpKind};
use forebay_types::{FlowMetrics, Interval, Load};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

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
    /// How many bytes it asks for; ignored for metadata.
    pub len: u64,
}

/// Who goes through what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StreamKey {
    flow: FlowId,
    client: ClientId,
    file: FileId,
}

impl Hash for StreamKey {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        // A client is nearly always of one flow, so the flow need not tell keys apart; two words are
        // hashed at a stroke where three are not.
        state.write_u64(self.client.0 ^ (u64::from(self.flow.0) << 40));
        state.write_u64(self.file.0);
    }
}

/// One client's way through one file.
#[derive(Debug)]
struct Stream {
    flow: u32,
    file: u32,
    client: ClientId,
    /// The interval of the last request.
    touched: u32,
    jumped: bool,
    /// Where the last request ended; at first, where the first one begins.
    end: u64,
    /// The width of the last jump; wraps for jumps backwards, only equality matters.
    jump: u64,
}

#[derive(Debug)]
struct File {
    id: FileId,
    flow: u32,
    touched: u32,
    /// Requests in the interval `touched`.
    requests: u32,
    /// Where the last request began; at first, where the first one begins.
    last: u64,
    /// Where a read found its end, if one did.
    end: Option<u64>,
}

#[derive(Debug, Default)]
struct Client {
    touched: u32,
}

/// Time during which something was pending.
#[derive(Debug, Default)]
struct Busy {
    pending: u64,
    since: Nanos,
    spent: u64,
}

impl Busy {
    #[inline]
    fn arrive(&mut self, now: Nanos) {
        if self.pending == 0 {
            self.since = now;
        }
        self.pending += 1;
    }

    /// Whether something was pending that can have been completed.
    #[inline]
    fn complete(&mut self, now: Nanos) -> bool {
        if self.pending == 0 {
            return false;
        }
        self.pending -= 1;
        if self.pending == 0 {
            self.spent += now.since(self.since).0;
        }
        true
    }

    fn take(&mut self, now: Nanos) -> Nanos {
        if self.pending > 0 {
            self.spent += now.since(self.since).0;
            self.since = now;
        }
        Nanos(std::mem::take(&mut self.spent))
    }
}

#[derive(Debug)]
struct Flow {
    touched: u32,
    busy: Busy,
    /// Requests times nanoseconds: arrivals are subtracted and completions added at their times, what
    /// is pending at the end of the interval is added then. Wraps in between.
    area: u64,
    /// The last arrival of the interval before, or the first of all.
    first_arrival: Option<Nanos>,
    last_arrival: Nanos,
    sums: Sums,
    sizes: Histogram,
}

/// What is added up over one interval. Whole numbers throughout, and nothing that can be told from
/// the others at the end: this is what a request costs.
#[derive(Debug)]
struct Sums {
    files: u32,
    clients: u32,
    streams: u32,
    /// Streams and files that had no request before.
    new_streams: u64,
    new_files: u64,
    /// Reads and writes beyond the streams that are followed.
    untracked: u64,
    /// By [`OpKind`].
    requests: [u64; 3],
    bytes: [u64; 3],
    size_min: u64,
    size_max: u64,
    served: [u64; 3],
    distance: u128,
    /// Requests that do not begin where their client's last one ended.
    astray: u64,
    forward: u64,
    jumps: u64,
    regular: u64,
    jump_width: u128,
    arrival_squared: u128,
    /// 1 if the flow's first request ever is among these: no gap precedes it.
    first_ever: u64,
}

impl Sums {
    fn new() -> Sums {
        Sums {
            files: 0,
            clients: 0,
            streams: 0,
            new_streams: 0,
            new_files: 0,
            untracked: 0,
            requests: [0; 3],
            bytes: [0; 3],
            size_min: u64::MAX,
            size_max: 0,
            served: [0; 3],
            distance: 0,
            astray: 0,
            forward: 0,
            jumps: 0,
            regular: 0,
            jump_width: 0,
            arrival_squared: 0,
            first_ever: 0,
        }
    }
}

/// Adds up what one I/O node sees.
#[derive(Debug)]
pub struct Collector {
    /// The number of the running interval, from 1: what carries it was touched in it.
    interval: u32,
    started: Nanos,
    node: Busy,
    flows: Table<FlowId, Flow>,
    /// The flow that completed a request last, and its slot: most often it is the next one too.
    recent: Option<(FlowId, u32)>,
    streams: Table<StreamKey, Stream>,
    files: Table<(FlowId, FileId), File>,
    clients: Table<(FlowId, ClientId), Client>,
}

impl Collector {
    /// A collector whose first interval begins `now`.
    pub fn new(now: Nanos) -> Collector {
        Collector {
            interval: 1,
            started: now,
            node: Busy::default(),
            flows: Table::new(MAX_FLOWS),
            recent: None,
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
        self.node.arrive(now);
        let key = StreamKey { flow: access.flow, client: access.client, file: access.file };
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
        flow.arrive(now, access);
        let sums = &mut flow.sums;

        // Whoever has read less than asked for goes on where that ended.
        if access.offset != stream.end && file.end != Some(access.offset) {
            let jump = access.offset.wrapping_sub(stream.end);
            sums.astray += 1;
            sums.jump_width += u128::from(access.offset.abs_diff(stream.end));
            sums.forward += u64::from(access.offset > stream.end);
            sums.jumps += u64::from(stream.jumped);
            sums.regular += u64::from(stream.jumped & (jump == stream.jump));
            stream.jumped = true;
            stream.jump = jump;
        }
        stream.end = access.offset.wrapping_add(access.len);
        sums.distance += u128::from(access.offset.abs_diff(file.last));
        file.last = access.offset;
        file.requests = file.requests.wrapping_add(1);
    }

    /// A request that arrived has been answered, having moved `bytes`, which may be fewer than it asked for. Every
    /// request that arrived must be completed, also one that failed or whose client is gone.
    #[inline]
    pub fn complete(&mut self, now: Nanos, flow: FlowId, op: OpKind, bytes: u64) {
        self.node.complete(now);
        let recent =
            self.recent.filter(|&(id, _)| id == flow).or_else(|| self.flows.find(flow).map(|s| (flow, s)));
        if let Some((_, slot)) = recent {
            self.recent = recent;
            let flow = self.flows.get_mut(slot);
            if flow.busy.complete(now) {
                flow.area = flow.area.wrapping_add(now.0);
                let served = &mut flow.sums.served[op as usize];
                *served = served.wrapping_add(bytes);
            }
        }
    }

    /// A read has found the end of its file there: it moved fewer bytes than it asked for.
    #[cold]
    pub fn ended(&mut self, flow: FlowId, file: FileId, end: u64) {
        if let Some(slot) = self.files.find((flow, file)) {
            self.files.get_mut(slot).end = Some(end);
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
        let mut load = Load { busy: self.node.take(now), ..Load::default() };
        let mut area = 0.0;
        for (slot, id) in self.flows.in_use() {
            let flow = self.flows.get_mut(slot);
            let (busy, flow_area) = flow.take_busy(now);
            if flow.touched == interval || flow.sums.served != [0; 3] {
                let top = tops.get(&slot).map(|&(_, file)| file);
                let metrics = flow.take_metrics(id, busy, flow_area, top);
                load.offered = load.offered.saturating_add(metrics.bytes());
                load.served = load.served.saturating_add(metrics.served);
                flows.push(metrics);
            }
            area += flow_area;
        }
        flows.sort_by_key(|m| m.flow);
        load.outstanding = ratio(area, load.busy.0 as f64);
        let closed = Interval { start: self.started, end: now, load, flows };
        self.forget(interval);
        self.interval = interval + 1;
        self.started = now;
        closed
    }

    fn forget(&mut self, interval: u32) {
        self.recent = None;
        let fresh = |touched: u32| interval.saturating_sub(touched) < FORGET_AFTER;
        self.streams.retain(|s| fresh(s.touched));
        self.clients.retain(|c| fresh(c.touched));
        // A stream points to its file and flow: they were touched no earlier than it, so they stay
        // at least as long.
        self.files.retain(|f| fresh(f.touched));
        self.flows.retain(|f| fresh(f.touched) || f.busy.pending > 0);
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
        let (offset, client, id) = (access.offset, access.client, access.file);
        let (mut new_files, mut new_streams) = (0, 0);
        let file = self.files.find_or_add((access.flow, id), || {
            new_files = 1;
            File { id, flow, touched: 0, requests: 0, last: offset, end: None }
        })?;
        let stream = self.streams.find_or_add(StreamKey { flow: access.flow, client, file: id }, || {
            new_streams = 1;
            Stream { flow, file, client, touched: 0, jumped: false, end: offset, jump: 0 }
        });
        let sums = &mut self.flows.get_mut(flow).sums;
        // A file whose stream did not fit has been given its place for nothing, but is not compared.
        sums.new_files += if stream.is_some() { new_files } else { 0 };
        sums.new_streams += new_streams;
        stream
    }

    fn add_flow(&mut self, id: FlowId) -> Option<u32> {
        self.flows.find_or_add(id, || Flow {
            touched: 0,
            busy: Busy::default(),
            area: 0,
            first_arrival: None,
            last_arrival: Nanos::ZERO,
            sums: Sums::new(),
            sizes: Histogram::default(),
        })
    }

    fn arrive_metadata(&mut self, now: Nanos, access: &Access) {
        self.node.arrive(now);
        let Some(slot) = self.add_flow(access.flow) else { return };
        let flow = self.flows.get_mut(slot);
        flow.touched = self.interval;
        flow.arrive(now, &Access { len: 0, ..*access });
        self.touch_client(access.flow, access.client);
    }

    /// More streams than are followed: count the request all the same.
    #[cold]
    fn arrive_untracked(&mut self, now: Nanos, access: &Access) {
        let Some(slot) = self.add_flow(access.flow) else { return };
        let flow = self.flows.get_mut(slot);
        flow.touched = self.interval;
        flow.sums.untracked += 1;
        flow.arrive(now, access);
    }

    #[cfg(test)]
    fn followed(&self) -> usize {
        self.streams.len()
    }
}

impl Flow {
    #[inline]
    fn arrive(&mut self, now: Nanos, access: &Access) {
        self.busy.arrive(now);
        self.area = self.area.wrapping_sub(now.0);
        if self.first_arrival.is_some() {
            let gap = u128::from(now.since(self.last_arrival).0);
            self.sums.arrival_squared += gap * gap;
        } else {
            self.first_arrival = Some(now);
            self.sums.first_ever = 1;
        }
        self.last_arrival = now;
        let sums = &mut self.sums;
        let op = access.op as usize;
        sums.requests[op] += 1;
        sums.bytes[op] = sums.bytes[op].wrapping_add(access.len);
        if access.op != OpKind::Metadata {
            sums.size_min = sums.size_min.min(access.len);
            sums.size_max = sums.size_max.max(access.len);
            self.sizes.add(access.len);
        }
    }

    /// The busy time of the interval, and requests times nanoseconds.
    fn take_busy(&mut self, now: Nanos) -> (Nanos, f64) {
        let pending = self.busy.pending.wrapping_mul(now.0);
        let area = self.area.wrapping_add(pending) as i64;
        self.area = pending.wrapping_neg();
        // Below zero only if completions were given earlier times than their arrivals.
        (self.busy.take(now), area.max(0) as f64)
    }

    fn take_metrics(
        &mut self,
        flow: FlowId,
        busy: Nanos,
        area: f64,
        top_file: Option<FileId>,
    ) -> FlowMetrics {
        let sums = std::mem::replace(&mut self.sums, Sums::new());
        let [reads, writes, metadata] =
            [OpKind::Read, OpKind::Write, OpKind::Metadata].map(|op| sums.requests[op as usize]);
        let [bytes_read, bytes_written] = [OpKind::Read, OpKind::Write].map(|op| sums.bytes[op as usize]);
        let data = reads + writes;
        let tracked = data - sums.untracked;
        let judged = tracked - sums.new_streams;
        let (min, max) = if data == 0 { (0, 0) } else { (sums.size_min, sums.size_max) };

        // Between the first and the last arrival lie as many gaps as arrivals, less the very first.
        let first = self.first_arrival.unwrap_or(self.last_arrival);
        let gaps = (data + metadata).saturating_sub(sums.first_ever) as f64;
        let arrival_mean = ratio(self.last_arrival.since(first).0 as f64, gaps);
        let variance = ratio(sums.arrival_squared as f64, gaps) - arrival_mean * arrival_mean;
        self.first_arrival = Some(self.last_arrival);

        let sizes = self.sizes.counts();
        let size = |q: f64| sizes.quantile_floor(q).clamp(min, max);
        let metrics = FlowMetrics {
            flow,
            files: sums.files,
            clients: sums.clients,
            streams: sums.streams,
            top_file,
            reads,
            writes,
            metadata,
            bytes_read,
            bytes_written,
            size_min: min,
            size_mean: ratio(bytes_read as f64 + bytes_written as f64, data as f64),
            size_max: max,
            size_p50: size(0.5),
            size_p90: size(0.9),
            size_p99: size(0.99),
            offset_distance: ratio(sums.distance as f64, (tracked - sums.new_files) as f64),
            judged,
            sequential: judged - sums.astray,
            forward: sums.forward,
            jumps: sums.jumps,
            regular: sums.regular,
            jump_width: ratio(sums.jump_width as f64, sums.astray as f64),
            arrival_mean: arrival_mean / 1e9,
            arrival_cv: ratio(variance.max(0.0).sqrt(), arrival_mean),
            served: sums.served.iter().fold(0, |sum: u64, n| sum.saturating_add(*n)),
            served_read: Some(sums.served[OpKind::Read as usize]),
            busy,
            outstanding: ratio(area, busy.0 as f64),
        };
        self.sizes.clear();
        metrics
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests;
