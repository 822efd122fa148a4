//! A synthetic history of a machine like TaihuLight, dispatched job by job through DFRA: 40,960
//! compute nodes, 240 I/O nodes, one for 512 compute nodes by default, jobs in the proportions of
//! the DFRA paper's Table 4.

use crate::stats::{Summary, Tally};
use forebay_policy::dfra::{Conclusion, DfraConfig, IoProfile, Refusal};
use forebay_policy::{Dfra, Job, Policy, PolicyError, Pool, Reason};
use forebay_types::IoMode;
use forebay_types::Nanos;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Compute nodes of the machine.
pub const COMPUTE_NODES: u32 = 40_960;
/// I/O nodes of the machine.
pub const IO_NODES: u32 = 240;

/// Seconds between two jobs in the mean: 107,001 in the 17 months from April 2017 to August 2018.
const MEAN_INTERVAL_S: f64 = 17.0 * 30.44 * 86_400.0 / 107_001.0;

/// The paper's Table 4: how many of 107,001 jobs passed DFRA's tests or failed them first at this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Screening {
    /// All jobs.
    pub jobs: u32,
    /// Benefit from a larger allocation.
    pub benefit: u32,
    /// Moved too few bytes.
    pub volume: u32,
    /// Had too few compute nodes doing I/O.
    pub parallelism: u32,
    /// Were bound by metadata.
    pub metadata: u32,
}

impl Screening {
    pub(crate) fn count(&mut self, eligible: Result<u32, Refusal>) {
        self.jobs += 1;
        match eligible {
            Ok(_) => self.benefit += 1,
            Err(Refusal::Volume) => self.volume += 1,
            Err(Refusal::Parallelism) => self.parallelism += 1,
            Err(Refusal::Metadata) => self.metadata += 1,
            Err(Refusal::NoHistory | Refusal::DefaultSuffices | Refusal::Fixed) => {}
        }
    }
}

/// As published.
pub const TABLE_4: Screening =
    Screening { jobs: 107_001, benefit: 14_712, volume: 83_562, parallelism: 8_727, metadata: 0 };

/// What came out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replay {
    /// Counts in the manner of Table 4.
    pub screening: Screening,
    /// Jobs that got more I/O nodes than by default.
    pub scaled: u32,
    /// Jobs that got the default number for themselves.
    pub isolated: u32,
    /// Jobs that should have been scaled or isolated while too few I/O nodes were idle.
    pub none_idle: u32,
    /// Jobs that were left with the default.
    pub default: u32,
    /// I/O nodes with a job on them, at each dispatch.
    pub io_nodes_in_use: Summary,
    /// Jobs running, at each dispatch.
    pub running: Summary,
    /// Time of a decision, microseconds.
    pub decision_us: Summary,
    /// 99 of 100 decisions took less, microseconds.
    pub decision_us_p99: f64,
    /// Node hours of the jobs that benefit, of all.
    pub benefit_node_hours: f64,
}

/// One job of the history.
struct Past {
    job: Job,
    /// Seconds.
    duration: f64,
}

/// Draws `jobs` jobs in the proportions of Table 4, in random order.
fn history(jobs: u32, seed: u64) -> impl Iterator<Item = Past> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let part = |n: u32| (f64::from(n) * f64::from(jobs) / f64::from(TABLE_4.jobs)).round() as u32;
    let (volume, parallelism) = (part(TABLE_4.volume), part(TABLE_4.parallelism));
    let benefit = jobs.saturating_sub(volume + parallelism);
    let kinds = [(Kind::Small, volume), (Kind::Serial, parallelism), (Kind::Large, benefit)];
    let mut drawn: Vec<Kind> = kinds.iter().flat_map(|&(k, n)| std::iter::repeat_n(k, n as usize)).collect();
    drawn.truncate(jobs as usize);
    drawn.shuffle(&mut rng);
    drawn.into_iter().enumerate().map(move |(i, kind)| kind.draw(i, &mut rng))
}

#[derive(Clone, Copy)]
enum Kind {
    /// Little I/O, whatever else it does.
    Small,
    /// Much I/O from few compute nodes.
    Serial,
    /// Much I/O from many compute nodes.
    Large,
}

/// Between `low` and `high`, every factor equally likely.
fn log_uniform(rng: &mut ChaCha8Rng, low: f64, high: f64) -> f64 {
    (rng.random_range(low.ln()..high.ln())).exp()
}

impl Kind {
    fn draw(self, i: usize, rng: &mut ChaCha8Rng) -> Past {
        let gb = |rng: &mut ChaCha8Rng, low, high| (log_uniform(rng, low, high) * 1e9) as u64;
        let (bytes, compute_nodes, io_compute_nodes, hours) = match self {
            Kind::Small => {
                let nodes = log_uniform(rng, 1.0, 512.0) as u32;
                (gb(rng, 1e-3, 19.99), nodes, rng.random_range(1..=nodes), log_uniform(rng, 1.0, 30.0))
            }
            Kind::Serial => {
                let nodes = log_uniform(rng, 1.0, 256.0) as u32;
                (gb(rng, 20.01, 2e3), nodes, rng.random_range(1..=nodes.min(31)), log_uniform(rng, 4.0, 50.0))
            }
            Kind::Large => {
                let nodes = log_uniform(rng, 32.0, 4096.0).ceil() as u32;
                (gb(rng, 20.01, 2e4), nodes, rng.random_range(32..=nodes), log_uniform(rng, 4.0, 60.0))
            }
        };
        // The paper found no metadata-bound job among those with enough I/O.
        let metadata_waiting = match self {
            Kind::Small if rng.random_bool(0.05) => log_uniform(rng, 32.0, 200.0),
            _ => log_uniform(rng, 0.01, 31.0),
        };
        let mode = match (self, rng.random_range(0..100)) {
            (Kind::Serial | Kind::Small, 0..60) => IoMode::OneTo1,
            (_, 60..65) => IoMode::NTo1,
            _ => IoMode::NToN,
        };
        let duration = hours * 3600.0;
        let profile = IoProfile {
            bytes,
            io_compute_nodes,
            mode,
            // All I/O in a hundredth of the run.
            bandwidth_mbs: bytes as f64 / 1e6 / (duration / 100.0),
            iops: log_uniform(rng, 1.0, 2e4),
            metadata_rate: metadata_waiting * 6.0,
            metadata_waiting,
        };
        let job = Job::new(format!("job{i}"), compute_nodes, compute_nodes.saturating_mul(4));
        Past { job: Job { history: Some(profile), ..job }, duration }
    }
}

/// Draws a history and puts every job to DFRA's test, without dispatching it.
pub fn screen(jobs: u32, seed: u64, config: &DfraConfig) -> Screening {
    let mut screening = Screening::default();
    for past in history(jobs, seed) {
        screening.count(config.eligible(past.job.history.as_ref()));
    }
    screening
}

/// Draws a history and dispatches it, first come first served on the machine's compute nodes.
/// `clock` times the decisions; `done` is told of every job.
pub fn replay(
    jobs: u32,
    seed: u64,
    config: DfraConfig,
    mut clock: impl FnMut() -> Nanos,
    mut done: impl FnMut(),
) -> Result<Replay, PolicyError> {
    let config = DfraConfig { compute_per_io_node: Some(512), ..config };
    let dfra = Dfra::new(config)?;
    let pool = Pool { compute_nodes: Some(COMPUTE_NODES), direct: false, ..Pool::of(IO_NODES) };
    let mut counts = Replay {
        screening: Screening::default(),
        scaled: 0,
        isolated: 0,
        none_idle: 0,
        default: 0,
        io_nodes_in_use: Summary::default(),
        running: Summary::default(),
        decision_us: Summary::default(),
        decision_us_p99: 0.0,
        benefit_node_hours: 0.0,
    };
    let mut hours = (0.0, 0.0);
    let (mut times, mut in_use, mut at_once) = (Tally::default(), Tally::default(), Tally::default());
    let mut running: Vec<Job> = Vec::new();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    // Another stream than the one the jobs are drawn from.
    rng.set_stream(1);
    let mut free = COMPUTE_NODES;
    let mut now = 0.0f64;
    // Ends in milliseconds, so that they have an order.
    let mut ends: BinaryHeap<Reverse<(u64, String)>> = BinaryHeap::new();
    for past in history(jobs, seed) {
        now += -MEAN_INTERVAL_S * (1.0 - rng.random::<f64>()).ln();
        while free < past.job.compute_nodes || ends.peek().is_some_and(|e| e.0.0 as f64 / 1e3 <= now) {
            let Some(Reverse((at, id))) = ends.pop() else { break };
            now = now.max(at as f64 / 1e3);
            if let Some(i) = running.iter().position(|j| j.id == id) {
                free += running.swap_remove(i).compute_nodes;
            }
        }
        free = free.saturating_sub(past.job.compute_nodes);
        let id = past.job.id.clone();
        let history = past.job.history;
        running.push(past.job);

        let before = clock();
        let decision = dfra.decide(&running, &pool)?;
        times.add(clock().since(before).0);

        let last = running.len() - 1;
        let node_hours = f64::from(running[last].compute_nodes) * past.duration / 3600.0;
        hours.1 += node_hours;
        let eligible = dfra.config().eligible(history.as_ref());
        counts.screening.count(eligible);
        if eligible.is_ok() {
            hours.0 += node_hours;
        }
        let chosen = &decision.jobs[last];
        match chosen.reason {
            Reason::Dfra(Conclusion::Scale { .. }) => counts.scaled += 1,
            Reason::Dfra(Conclusion::Isolate(_)) => counts.isolated += 1,
            Reason::Dfra(Conclusion::NoneIdle) => counts.none_idle += 1,
            _ => counts.default += 1,
        }
        running[last].current = Some(chosen.held(chosen.nodes.clone().unwrap_or_default()));
        let mut used = vec![false; IO_NODES as usize];
        for node in decision.jobs.iter().filter_map(|j| j.nodes.as_ref()).flatten() {
            used[node.0 as usize] = true;
        }
        in_use.add(used.iter().filter(|&&u| u).count() as u64);
        at_once.add(running.len() as u64);
        ends.push(Reverse((((now + past.duration) * 1e3) as u64, id)));
        done();
    }
    counts.io_nodes_in_use = in_use.summary(1.0);
    counts.running = at_once.summary(1.0);
    counts.benefit_node_hours = hours.0 / hours.1;
    counts.decision_us_p99 = times.quantile(0.99) / 1e3;
    counts.decision_us = times.summary(1e3);
    Ok(counts)
}
