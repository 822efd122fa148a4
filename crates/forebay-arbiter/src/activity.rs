//! What the I/O nodes report of one job, added up over its nodes second by second: its bandwidth now,
//! the peaks of its run, its I/O mode and its access pattern.

use forebay_pattern::{FlowMetrics, Model, mode_of_job};
use forebay_policy::dfra::IoProfile;
use forebay_types::histogram::Counts;
use forebay_types::{AccessPattern, Bandwidth, IoMode, Nanos, NodeId, Operation, Spatiality};
use std::collections::{BTreeMap, BTreeSet};

const SECOND: u64 = 1_000_000_000;

/// A job of which nothing was reported for so long does nothing: nodes report every second, and a
/// report may be late.
const SILENT: u64 = 2 * SECOND + LATE;

/// Reports of a second may arrive this much after it.
const LATE: u64 = 300_000_000;

/// So many compute nodes of a job are told apart.
const HOSTS: usize = 1 << 17;

/// No node tells of more buckets of latencies than this.
const BUCKETS: usize = 512;

/// How a job uses its files, by what several nodes saw of it at the same time and as `model` detects it;
/// `None` without data requests.
pub fn access_pattern<'a>(
    nodes: impl Iterator<Item = &'a FlowMetrics> + Clone,
    model: &Model,
) -> Option<AccessPattern> {
    let mode = mode_of_job(nodes.clone())?;
    let sum = |f: fn(&FlowMetrics) -> u64| nodes.clone().map(f).fold(0u64, u64::saturating_add);
    let (read, written) = (sum(|m| m.bytes_read), sum(|m| m.bytes_written));
    let requests = sum(FlowMetrics::data_requests).max(1);
    let (judged, sequential) = (sum(|m| m.judged), sum(|m| m.sequential));
    let (jumps, regular) = (sum(|m| m.jumps), sum(|m| m.regular));
    let detected = nodes.clone().max_by_key(|m| m.bytes()).and_then(|m| model.detect(m).pattern.spatiality());
    // Where the detector refuses, by what most requests do; without a predecessor to compare with,
    // front to back is the likeliest.
    let spatiality = match detected {
        Some(spatiality) => spatiality,
        None if judged == 0 || sequential * 2 >= judged => Spatiality::Contiguous,
        None if regular * 2 >= jumps => Spatiality::Strided,
        None => Spatiality::Random,
    };
    Some(AccessPattern {
        operation: if read > written { Operation::Read } else { Operation::Write },
        layout: mode.layout(),
        spatiality,
        request_kb: read.saturating_add(written) as f64 / requests as f64 / 1024.0,
    })
}

/// One second of a job on all its nodes.
#[derive(Clone, Debug)]
pub struct Second {
    /// When it began.
    pub start: Nanos,
    /// Nodes that did something for it.
    pub nodes: Vec<NodeId>,
    /// Bytes moved, by the time that passed.
    pub bandwidth: Bandwidth,
    /// Bytes moved, by the time in which the job had requests at its nodes: what it gets when it
    /// asks. `None` if that was less than a tenth of the time, or a limit held it back.
    pub while_busy: Option<Bandwidth>,
}

/// All that is known of a running job's I/O.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    /// Bytes read and written so far, as far as this arbiter was told.
    pub bytes: u64,
    /// What an earlier arbiter knew of.
    pub before: u64,
    /// Whether it may have moved more: an I/O node does not tell what it did while no arbiter was there.
    pub uncounted: bool,
    /// When it did its first I/O.
    pub first: Option<Nanos>,
    /// In the last complete second.
    pub bandwidth: Bandwidth,
    /// Requests of data and metadata a second, then.
    pub operations: f64,
    /// Which part of it there were requests at its busiest node that no limit held back.
    pub busy: f64,
    /// Which part of it a limit held some back.
    pub limited: f64,
    /// How often nodes told, in a second, whether a limit holds it back, and how often one did.
    holds: BTreeMap<(u64, NodeId), (u32, u32)>,
    latencies: Counts,
    /// Of the last second that had data requests.
    pub shape: Option<AccessPattern>,
    mode: Option<IoMode>,
    clients: u32,
    /// The compute nodes that have moved data.
    hosts: BTreeSet<u64>,
    peak_bandwidth: f64,
    peak_iops: f64,
    peak_metadata: f64,
    metadata_waiting: f64,
    /// When something was reported last.
    heard: Nanos,
    /// When it was last reported that it did any I/O.
    pub worked: Nanos,
    open: BTreeMap<u64, BTreeMap<NodeId, NodeInterval>>,
}

#[derive(Clone, Debug, Default)]
struct NodeInterval {
    span: Nanos,
    served: u64,
    busy: Nanos,
    metrics: FlowMetrics,
    latencies: Vec<(u64, u64)>,
}

impl Activity {
    /// Of a job that moved at least so many bytes before this arbiter led.
    pub fn resumed(before: u64) -> Activity {
        Activity { before, uncounted: true, ..Activity::default() }
    }

    /// A node reports an interval of length `span` of the job.
    pub fn add(&mut self, now: Nanos, node: NodeId, span: Nanos, flow: &FlowMetrics) {
        self.bytes = self.bytes.saturating_add(flow.served);
        self.first.get_or_insert(now.since(span));
        self.heard = now;
        if flow.served > 0 || flow.metadata > 0 || flow.data_requests() > 0 || flow.outstanding > 0.0 {
            self.worked = now;
        }
        let seen = self.open.entry(now.0 / SECOND).or_default().entry(node).or_default();
        seen.span = seen.span + span;
        seen.served = seen.served.saturating_add(flow.served);
        seen.busy = seen.busy + flow.busy;
        seen.metrics = flow.clone();
    }

    /// A node tells, as it does several times a second, whether a limit has held the job back of late.
    pub fn held(&mut self, now: Nanos, node: NodeId, held: bool) {
        let (told, so) = self.holds.entry((now.0 / SECOND, node)).or_default();
        *told = told.saturating_add(1);
        *so = so.saturating_add(u32::from(held));
    }

    /// Which part of a second that was, on a node. What is reported of one may have been in the one before.
    fn held_part(&self, second: u64, node: NodeId) -> f64 {
        let of = |second| self.holds.get(&(second, node)).copied().unwrap_or_default();
        let part = |(told, held): (u32, u32)| f64::from(held) / f64::from(told.max(1));
        part(of(second)).max(part(of(second.saturating_sub(1))))
    }

    /// A node tells of compute nodes of it that do I/O.
    pub fn came(&mut self, hosts: &[u64]) {
        let room = HOSTS - self.hosts.len().min(HOSTS);
        self.hosts.extend(hosts.iter().take(room));
    }

    /// Bytes it has moved since it began, or at least so many where some are `uncounted`.
    pub fn moved(&self) -> u64 {
        self.before.saturating_add(self.bytes)
    }

    /// How long its reads and writes took in that interval, by buckets of a histogram.
    pub fn took(&mut self, now: Nanos, node: NodeId, latencies: &[(u64, u64)]) {
        let seen = self.open.entry(now.0 / SECOND).or_default().entry(node).or_default();
        seen.latencies.extend(latencies.iter().take(BUCKETS));
    }

    /// The time that `q` of the reads and writes of the last complete second did not exceed; 0 without any.
    pub fn latency(&self, q: f64) -> Nanos {
        Nanos(self.latencies.quantile(q))
    }

    /// The seconds that are complete by now, oldest first, with patterns as `model` detects them.
    /// Seconds without reports are left out.
    pub fn complete(&mut self, now: Nanos, model: &Model) -> Vec<Second> {
        let until = now.0.saturating_sub(LATE) / SECOND;
        let later = self.open.split_off(&until);
        let done = std::mem::replace(&mut self.open, later);
        let seconds: Vec<Second> = done.into_iter().map(|(s, nodes)| self.second(s, &nodes, model)).collect();
        self.holds.retain(|(second, _), _| *second + 1 >= until);
        if seconds.is_empty() && now.since(self.heard).0 >= SILENT {
            (self.bandwidth, self.operations) = (Bandwidth(0.0), 0.0);
            (self.busy, self.limited) = (0.0, 0.0);
            self.latencies = Counts::default();
        }
        seconds
    }

    fn second(&mut self, second: u64, nodes: &BTreeMap<NodeId, NodeInterval>, model: &Model) -> Second {
        // Each node's own time: one that reported twice in this second counts no double.
        let per = |amount: f64, span: Nanos| if span.0 == 0 { 0.0 } else { amount / span.as_secs_f64() };
        let rate = nodes.values().map(|s| per(s.served as f64, s.span)).sum::<f64>() / 1e6;
        let held = |node: &NodeId| self.held_part(second, *node);
        let limited = nodes.keys().map(held).fold(0.0, f64::max);
        let busy = |(n, s): (&NodeId, &NodeInterval)| per(s.busy.as_secs_f64(), s.span) * (1.0 - held(n));
        let busy = nodes.iter().map(busy).fold(0.0, f64::max).min(1.0);
        let total = |f: fn(&FlowMetrics) -> u64| -> f64 {
            nodes.values().map(|s| per(f(&s.metrics) as f64, s.span)).sum()
        };
        let (iops, metadata) = (total(FlowMetrics::data_requests), total(|m| m.metadata));
        let flows = nodes.values().map(|s| &s.metrics);
        (self.bandwidth, self.operations) = (Bandwidth(rate), iops + metadata);
        (self.busy, self.limited) = (busy, limited);
        self.latencies = Counts::of(nodes.values().flat_map(|s| &s.latencies).copied());
        self.peak_bandwidth = self.peak_bandwidth.max(rate);
        self.peak_iops = self.peak_iops.max(iops);
        self.peak_metadata = self.peak_metadata.max(metadata);
        if metadata + iops > 0.0 {
            // At one I/O node, in the mean: of what waits there, the part that metadata has of its requests.
            let part = |m: &FlowMetrics| m.metadata as f64 / (m.metadata + m.data_requests()).max(1) as f64;
            let waiting = nodes.values().map(|s| s.metrics.outstanding * part(&s.metrics)).sum::<f64>();
            let now = waiting / nodes.len().max(1) as f64;
            self.metadata_waiting += 0.1 * (now - self.metadata_waiting);
        }
        self.clients = self.clients.max(flows.clone().map(|m| m.clients).fold(0, u32::saturating_add));
        self.mode = mode_of_job(flows.clone()).or(self.mode);
        self.shape = access_pattern(flows, model).or(self.shape.take());
        Second {
            start: Nanos(second.saturating_mul(SECOND)),
            nodes: nodes.keys().copied().collect(),
            bandwidth: Bandwidth(rate),
            while_busy: (busy >= 0.1 && rate > 0.0 && limited == 0.0).then(|| Bandwidth(rate / busy)),
        }
    }

    /// The run so far, as DFRA judges it; `None` before its first I/O.
    pub fn profile(&self, compute_nodes: u32) -> Option<IoProfile> {
        self.first?;
        Some(IoProfile {
            bytes: self.moved(),
            // Where no node tells of compute nodes, each process may be one.
            io_compute_nodes: match self.hosts.len() as u32 {
                0 => self.clients.clamp(1, compute_nodes.max(1)),
                hosts => hosts.min(compute_nodes.max(1)),
            },
            mode: self.mode.unwrap_or(IoMode::NToN),
            bandwidth_mbs: self.peak_bandwidth,
            iops: self.peak_iops,
            metadata_rate: self.peak_metadata,
            metadata_waiting: self.metadata_waiting,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(served: u64, busy_ms: u64) -> FlowMetrics {
        FlowMetrics {
            served,
            busy: Nanos::from_millis(busy_ms),
            writes: 10,
            bytes_written: served,
            clients: 1,
            files: 1,
            streams: 1,
            ..FlowMetrics::default()
        }
    }

    #[test]
    fn nodes_add_up_and_idle_time_does_not_count() {
        let mut a = Activity::default();
        let s = Nanos::from_secs(1);
        a.add(Nanos::from_millis(10_100), NodeId(0), s, &flow(50_000_000, 500));
        a.add(Nanos::from_millis(10_900), NodeId(1), s, &flow(50_000_000, 400));
        assert!(
            a.complete(Nanos::from_millis(11_200), &Model::builtin()).is_empty(),
            "reports may still arrive"
        );
        let seconds = a.complete(Nanos::from_millis(11_300), &Model::builtin());
        assert_eq!(seconds.len(), 1);
        assert_eq!(seconds[0].nodes, [NodeId(0), NodeId(1)]);
        assert!((seconds[0].bandwidth.0 - 100.0).abs() < 1e-9);
        assert!((seconds[0].while_busy.unwrap().0 - 200.0).abs() < 1e-9);
        assert_eq!(a.bytes, 100_000_000);
        assert!((a.profile(8).unwrap().bandwidth_mbs - 100.0).abs() < 1e-9);
        // The next report is due, but not here yet.
        a.complete(Nanos::from_millis(12_000), &Model::builtin());
        assert_eq!(a.bandwidth, Bandwidth(100.0), "between two reports");
        a.complete(Nanos::from_millis(13_300), &Model::builtin());
        assert_eq!(a.bandwidth, Bandwidth(0.0), "silent since");
    }

    #[test]
    fn latencies_of_all_nodes_are_one_distribution() {
        let mut a = Activity::default();
        let s = Nanos::from_secs(1);
        // Nine in ten took a millisecond on one node, the others 64 ms on the other.
        for (node, took) in [(0, (1 << 20, 90)), (1, (1 << 26, 10))] {
            a.add(Nanos::from_millis(10_100), NodeId(node), s, &flow(1000, 500));
            a.took(Nanos::from_millis(10_100), NodeId(node), &[took]);
        }
        a.complete(Nanos::from_millis(11_300), &Model::builtin());
        assert_eq!(a.operations, 20.0);
        let about = |q, ns: u64| (ns..ns + ns / 8).contains(&a.latency(q).0);
        assert!(about(0.5, 1 << 20) && about(0.9, 1 << 20) && about(0.99, 1 << 26), "{a:?}");
        a.complete(Nanos::from_millis(13_300), &Model::builtin());
        assert_eq!((a.operations, a.latency(0.99)), (0.0, Nanos::ZERO), "silent since");
    }

    #[test]
    fn what_a_limit_holds_back_is_neither_busy_nor_a_measurement() {
        let (mut a, node) = (Activity::default(), NodeId(0));
        let second = |a: &mut Activity, at: u64, held: &dyn Fn(u64) -> bool| {
            for ms in (0..1000).step_by(100) {
                a.held(Nanos::from_millis(at * 1000 + ms), node, held(ms));
            }
            a.add(Nanos::from_millis(at * 1000 + 500), node, Nanos::from_secs(1), &flow(1_000_000, 1000));
            let seconds = a.complete(Nanos::from_millis(at * 1000 + 1300), &Model::builtin());
            seconds[0].while_busy.is_some()
        };
        assert!(second(&mut a, 10, &|_| false));
        assert_eq!((a.busy, a.limited), (1.0, 0.0));
        assert!(!second(&mut a, 11, &|_| true));
        assert_eq!((a.busy, a.limited), (0.0, 1.0));
        // Some of it may still be in the next report.
        assert!(!second(&mut a, 12, &|_| false));
        assert!(second(&mut a, 13, &|_| false));
        assert!(!second(&mut a, 14, &|ms| ms < 300));
        assert!((a.busy - 0.7).abs() < 1e-9 && (a.limited - 0.3).abs() < 1e-9, "{a:?}");
        a.complete(Nanos::from_secs(20), &Model::builtin());
        assert_eq!((a.busy, a.limited), (0.0, 0.0), "silent since");
        assert!(a.holds.is_empty());
    }

    #[test]
    fn two_reports_in_one_second_do_not_double_the_rate() {
        let mut a = Activity::default();
        for ms in [10_050, 10_950] {
            a.add(Nanos::from_millis(ms), NodeId(0), Nanos::from_secs(1), &flow(50_000_000, 1000));
        }
        assert!((a.complete(Nanos::from_secs(12), &Model::builtin())[0].bandwidth.0 - 50.0).abs() < 1e-9);
    }

    #[test]
    fn shapes_have_the_explorers_words() {
        let strided = FlowMetrics {
            clients: 4,
            files: 1,
            streams: 4,
            reads: 100,
            bytes_read: 100 << 19,
            judged: 96,
            jumps: 90,
            regular: 90,
            ..FlowMetrics::default()
        };
        let shape = access_pattern([&strided].into_iter(), &Model::builtin()).unwrap();
        assert_eq!(shape.class(), "shared-strided/read/512");
        assert_eq!(access_pattern([&FlowMetrics::default()].into_iter(), &Model::builtin()), None);
    }
}
