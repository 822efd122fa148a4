//! What the node counts: per flow and operation how many, how many bytes, how long they took; and
//! the sizes of requests as they came and as they went to storage. Recording is a few relaxed atomic
//! additions; reading gives a [`NodeStatistics`] that goes out as JSON.

use forebay_types::histogram::Counts;
use forebay_types::{ClientReport, FlowId, Histogram, Nanos};
use forebay_wire::message::Meta;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// How long reads and writes took, all jobs together and each: counts since the start, or between two such.
#[derive(Default)]
pub(crate) struct Latencies {
    counts: Counts,
    by_job: BTreeMap<String, Counts>,
    /// How many of them failed.
    pub(crate) errors: u64,
}

impl Latencies {
    pub(crate) fn of<'a>(flows: impl IntoIterator<Item = &'a FlowStats>) -> Latencies {
        let mut all = Latencies::default();
        for flow in flows {
            let mut own = Counts::default();
            flow.each(|run| {
                for (_, op) in run.used().filter(|(op, _)| op.0 < Op::DATA.len()) {
                    all.errors += op.errors.load(Relaxed);
                    own.merge(&op.latency.counts());
                }
            });
            all.counts.merge(&own);
            all.by_job.insert(flow.job.clone(), own);
        }
        all
    }

    pub(crate) fn since(&self, before: &Latencies) -> Latencies {
        let errors = self.errors.saturating_sub(before.errors);
        let none = Counts::default();
        let since = |(job, counts): (&String, &Counts)| {
            (job.clone(), counts.since(before.by_job.get(job).unwrap_or(&none)))
        };
        let by_job = self.by_job.iter().map(since).collect();
        Latencies { counts: self.counts.since(&before.counts), by_job, errors }
    }

    /// Of each job that had any: the buckets.
    pub(crate) fn by_job(&self) -> BTreeMap<String, Vec<(u64, u64)>> {
        let told = |(job, counts): (&String, &Counts)| (job.clone(), counts.buckets().collect::<Vec<_>>());
        self.by_job.iter().map(told).filter(|(_, buckets)| !buckets.is_empty()).collect()
    }

    /// 0 if there are none.
    pub(crate) fn quantile(&self, q: f64) -> Nanos {
        Nanos(self.counts.quantile(q))
    }
}

/// A histogram as reported.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// How many values.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// The largest.
    pub max: u64,
    /// Smallest value of each non-empty bucket, and how many fell into it.
    pub buckets: Vec<(u64, u64)>,
}

impl From<&Histogram> for Distribution {
    fn from(histogram: &Histogram) -> Distribution {
        let counts = histogram.counts();
        Distribution {
            count: counts.count(),
            mean: counts.mean(),
            p50: counts.quantile(0.5),
            p90: counts.quantile(0.9),
            p99: counts.quantile(0.99),
            p999: counts.quantile(0.999),
            max: counts.max(),
            buckets: counts.buckets().collect(),
        }
    }
}

/// An operation, as counted: data by its direction, metadata by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Op(usize);

impl Op {
    pub(crate) const READ: Op = Op(0);
    pub(crate) const WRITE: Op = Op(1);
    pub(crate) const APPEND: Op = Op(2);
    const DATA: [&str; 3] = ["read", "write", "append"];
    const COUNT: usize = Op::DATA.len() + Meta::NAMES.len();

    pub(crate) fn meta(meta: &Meta<'_>) -> Op {
        Op(Op::DATA.len() + meta.index())
    }

    fn name(self) -> &'static str {
        Op::DATA.get(self.0).copied().unwrap_or_else(|| Meta::NAMES[self.0 - Op::DATA.len()])
    }
}

#[derive(Default)]
struct OpStats {
    errors: AtomicU64,
    latency: Histogram,
    /// Of data: what each moved, and with that all of them together.
    size: OnceLock<Box<Histogram>>,
}

impl OpStats {
    fn bytes(&self) -> u64 {
        self.size.get().map_or(0, |size| size.sum())
    }
}

/// So many runs of a job are told apart; what others do is counted together.
const RUNS: usize = 16;

/// The counters of one run of a job.
pub(crate) struct Operations([OnceLock<Box<OpStats>>; Op::COUNT]);

impl Default for Operations {
    fn default() -> Operations {
        Operations(std::array::from_fn(|_| OnceLock::new()))
    }
}

impl Operations {
    /// An operation was answered: `bytes` moved, in `latency` from receipt to answer.
    pub(crate) fn record(&self, op: Op, bytes: u64, latency: Nanos, failed: bool) {
        let stats = self.0[op.0].get_or_init(Box::default);
        stats.latency.record(latency.0);
        if failed {
            stats.errors.fetch_add(1, Relaxed);
        }
        if op.0 < Op::DATA.len() {
            stats.size.get_or_init(Box::default).record(bytes);
        }
    }

    /// Those that have been asked for.
    fn used(&self) -> impl Iterator<Item = (Op, &OpStats)> {
        self.0.iter().enumerate().filter_map(|(i, slot)| Some((Op(i), &**slot.get()?)))
    }

    /// The same of another run as well.
    fn absorb(&self, other: &Operations) {
        for (op, theirs) in other.used() {
            let own = self.0[op.0].get_or_init(Box::default);
            own.errors.fetch_add(theirs.errors.load(Relaxed), Relaxed);
            own.latency.absorb(&theirs.latency);
            if let Some(size) = theirs.size.get() {
                own.size.get_or_init(Box::default).absorb(size);
            }
        }
    }

    fn report(&self) -> BTreeMap<String, OpReport> {
        let report = |(op, s): (Op, &OpStats)| {
            let latency_ns = Distribution::from(&s.latency);
            let size = s.size.get().map(|h| (&**h).into());
            let (count, errors, bytes) = (latency_ns.count, s.errors.load(Relaxed), s.bytes());
            (op.name().to_owned(), OpReport { count, errors, bytes, latency_ns, size })
        };
        self.used().map(report).collect()
    }
}

/// The counters of one flow, run by run.
pub(crate) struct FlowStats {
    pub(crate) flow: FlowId,
    pub(crate) job: String,
    runs: Mutex<BTreeMap<u32, Arc<Operations>>>,
    /// Of runs that are not told apart (any more).
    others: Arc<Operations>,
}

impl FlowStats {
    pub(crate) fn new(flow: FlowId, job: String) -> FlowStats {
        FlowStats { flow, job, runs: Mutex::default(), others: Arc::default() }
    }

    fn runs(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Operations>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a process of that run counts. Runs that have no process here any more make room.
    pub(crate) fn of_run(&self, run: u32) -> Arc<Operations> {
        let mut runs = self.runs();
        if let Some(known) = runs.get(&run) {
            return Arc::clone(known);
        }
        if runs.len() >= RUNS {
            let over = runs.iter().find(|(_, operations)| Arc::strong_count(operations) == 1);
            let Some(over) = over.map(|(run, _)| *run) else { return Arc::clone(&self.others) };
            runs.remove(&over).iter().for_each(|operations| self.others.absorb(operations));
        }
        Arc::clone(runs.entry(run).or_default())
    }

    /// What each has counted.
    fn each<T>(&self, mut look: impl FnMut(&Operations) -> T) -> Vec<T> {
        let runs = self.runs();
        std::iter::once(&self.others).chain(runs.values()).map(|operations| look(operations)).collect()
    }

    /// How many operations were answered, and how many bytes they moved.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let sums = self.each(|run| {
            run.used()
                .fold((0, 0), |(n, bytes), (_, op)| (n + op.latency.counts().count(), bytes + op.bytes()))
        });
        sums.iter().fold((0, 0), |(n, bytes), more| (n + more.0, bytes + more.1))
    }

    /// Adds what was counted, by operation.
    pub(crate) fn add_to(&self, all: &mut ByOperation) {
        self.each(|run| {
            for (op, stats) in run.used() {
                let sum = all.entry(op.name()).or_default();
                sum.errors += stats.errors.load(Relaxed);
                sum.latency.merge(&stats.latency.counts());
                if let Some(size) = stats.size.get() {
                    sum.size.get_or_insert_default().merge(&size.counts());
                }
            }
        });
    }

    /// Bytes, operations and errors of reads, writes (and appends) and metadata; see [`TALLY`].
    pub(crate) fn tally(&self) -> [u64; TALLY] {
        let mut tally = [0; TALLY];
        self.each(|run| {
            for (op, stats) in run.used() {
                let kind = if op == Op::READ { 0 } else { usize::from(op.0 >= Op::DATA.len()) + 1 };
                tally[0] += stats.bytes();
                tally[1 + kind] += stats.bytes();
                tally[4 + kind] += stats.latency.counts().count();
                tally[7] += stats.errors.load(Relaxed);
            }
        });
        tally
    }

    /// Of one run, if that is told apart; else of all.
    fn report(&self, run: Option<u32>) -> FlowReport {
        let own = run.and_then(|run| self.runs().get(&run).map(|own| own.report()));
        let operations = own.unwrap_or_else(|| {
            let sum = Operations::default();
            self.each(|run| sum.absorb(run));
            sum.report()
        });
        FlowReport { flow: self.flow, job: self.job.clone(), operations, clients: Vec::new() }
    }
}

/// How many numbers sum a job up: all its bytes, those of reads, writes and metadata (none), how many of
/// each there were, and how many failed.
pub(crate) const TALLY: usize = 8;

/// What was counted of an operation, all jobs together.
#[derive(Clone, Default)]
pub(crate) struct Counted {
    pub(crate) errors: u64,
    pub(crate) latency: Counts,
    /// Of data.
    pub(crate) size: Option<Counts>,
}

pub(crate) type ByOperation = BTreeMap<&'static str, Counted>;

/// One operation of one flow, as reported.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpReport {
    /// How many were answered.
    pub count: u64,
    /// How many of them with an error.
    pub errors: u64,
    /// Payload bytes moved.
    pub bytes: u64,
    /// From receipt of the request to its answer.
    pub latency_ns: Distribution,
    /// Bytes moved by each, for data.
    pub size: Option<Distribution>,
}

/// One flow, as reported.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowReport {
    /// Its number on this node.
    pub flow: FlowId,
    /// The job's name.
    pub job: String,
    /// By the operation's name.
    pub operations: BTreeMap<String, OpReport>,
    /// Its ranks and hosts.
    #[serde(default)]
    pub clients: Vec<ClientReport>,
}

/// The counters of the whole node that are not a flow's.
#[derive(Default)]
pub(crate) struct NodeStats {
    /// Bytes of each system call that reached storage.
    pub(crate) issued_read: Histogram,
    pub(crate) issued_write: Histogram,
    /// Requests that went out in a system call with others.
    pub(crate) merged: AtomicU64,
    /// Requests served where they were received, and by the dispatchers.
    pub(crate) inline: AtomicU64,
    pub(crate) dispatched: AtomicU64,
    pub(crate) accepted: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) cut_off: AtomicU64,
    pub(crate) expired: AtomicU64,
    pub(crate) replayed: AtomicU64,
}

impl NodeStats {
    /// A system call read so many bytes.
    pub(crate) fn read(&self, n: usize) {
        if counting() {
            self.issued_read.record(n as u64);
        }
    }

    /// One wrote so many.
    pub(crate) fn wrote(&self, n: usize) {
        if counting() {
            self.issued_write.record(n as u64);
        }
    }
}

/// Whether what every request took is counted; `FOREBAY_COUNT=0` is there to measure what that costs.
pub(crate) fn counting() -> bool {
    static COUNTING: OnceLock<bool> = OnceLock::new();
    *COUNTING.get_or_init(|| std::env::var_os("FOREBAY_COUNT").is_none_or(|v| v != "0"))
}

/// The node's statistics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // the names say it
pub struct NodeStatistics {
    pub node: u32,
    pub uptime_ns: u64,
    pub scheduler: String,
    pub flows: Vec<FlowReport>,
    /// Jain's index over the flows' service by weight.
    pub jain: f64,
    /// What the scheduler has booked for each flow.
    pub service: BTreeMap<u32, forebay_sched::service::FlowService>,
    /// Sizes of the system calls that reached storage, after merging.
    pub issued_read: Distribution,
    pub issued_write: Distribution,
    pub merged_requests: u64,
    pub inline_requests: u64,
    pub dispatched_requests: u64,
    /// How many requests waited whenever one came.
    pub queue_length: Distribution,
    pub waiting: u64,
    pub connections: u64,
    pub sessions: u64,
    pub open_files: u64,
    pub connections_accepted: u64,
    pub connections_refused: u64,
    pub connections_cut_off: u64,
    pub requests_expired: u64,
    pub requests_replayed: u64,
    pub payload_memory: u64,
    /// The access pattern of late, interval by interval: request sizes, offset distances, files.
    #[serde(default)]
    pub intervals: Vec<forebay_pattern::Interval>,
}

/// What a node has done for one job: nothing of it is another's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobStatistics {
    /// The node.
    pub node: u32,
    /// When this was so, by the node's clock (Unix epoch, in nanoseconds).
    #[serde(default)]
    pub time: Nanos,
    /// The job, as in [`NodeStatistics`].
    pub flows: Vec<FlowReport>,
    /// Its access pattern of late; the node's load is left out.
    pub intervals: Vec<forebay_pattern::Interval>,
}

pub(crate) fn flow_reports<'a>(
    flows: impl IntoIterator<Item = (&'a FlowStats, Vec<ClientReport>)>,
    run: Option<u32>,
) -> Vec<FlowReport> {
    let report = |(stats, clients): (&FlowStats, _)| FlowReport { clients, ..stats.report(run) };
    let mut all: Vec<FlowReport> = flows.into_iter().map(report).collect();
    all.sort_by_key(|f| f.flow);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_named() {
        let f = FlowStats::new(FlowId(1), "j".into());
        let run = f.of_run(7);
        run.record(Op::WRITE, 4096, Nanos(10), false);
        run.record(Op::meta(&Meta::Close { handle: 1 }), 0, Nanos(10), true);
        let r = f.report(None);
        assert_eq!(r.operations["write"].bytes, 4096);
        assert_eq!((r.operations["close"].count, r.operations["close"].errors), (1, 1));
    }

    #[test]
    fn runs_are_told_apart_and_none_is_lost() {
        let f = FlowStats::new(FlowId(1), "j".into());
        let writes = |run| f.report(run).operations.get("write").map_or((0, 0), |w| (w.count, w.bytes));
        let held: Vec<_> = (0..3).map(|run| f.of_run(run)).collect();
        held[0].record(Op::WRITE, 10, Nanos(5), false);
        held[1].record(Op::WRITE, 1, Nanos(5), true);
        held[1].record(Op::WRITE, 1, Nanos(5), false);
        assert_eq!([Some(0), Some(1), Some(2), None].map(writes), [(1, 10), (2, 2), (0, 0), (3, 12)]);
        assert_eq!((f.totals(), f.tally()[7]), ((3, 12), 1));
        // Those that are over make room, and what they did remains; those that are there stay.
        (10..100).for_each(|run| f.of_run(run).record(Op::WRITE, 100, Nanos(5), false));
        assert_eq!((writes(Some(0)), writes(None).0, f.totals()), ((1, 10), 93, (93, 9012)));
        assert!(f.runs().len() <= RUNS);
        let many: Vec<_> = (200..300).map(|run| f.of_run(run)).collect();
        many.iter().for_each(|run| run.record(Op::WRITE, 1, Nanos(5), false));
        assert_eq!((f.totals(), f.runs().len()), ((193, 9112), RUNS));
    }
}
