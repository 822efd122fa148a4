//! Jobs of a large machine, drawn from distributions of sizes, run times, volumes and modes. Nothing
//! here knows what a policy asks for: no threshold of any policy, and no outcome, is an input.

use forebay_types::IoMode;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// From what the jobs are drawn. What is published is said with each figure; the others are assumptions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Population {
    /// Applications, each run again and again by one user at a few scales. Assumed.
    pub applications: u32,
    /// Seconds between two jobs in the mean. Published: 107,001 jobs from April 2017 to August 2018.
    pub interval_s: f64,
    /// Sizes are powers of two up to this; twice as large is so many times as likely. Assumed.
    pub largest_log2: u32,
    /// See `largest_log2`.
    pub doubling: f64,
    /// The part of applications that run on a round number of nodes that is no power of two. Assumed.
    pub odd_sizes: f64,
    /// Run times without I/O are log-normal: median in hours on one node, and spread. Assumed.
    pub hours: f64,
    /// See `hours`.
    pub hours_spread: f64,
    /// Run times grow with this power of the size. Assumed.
    pub hours_by_size: f64,
    /// Memory of a compute node, GB. Published: 32.
    pub memory_gb: f64,
    /// The part of the memory that a phase writes is log-normal: median where all nodes do I/O. Assumed.
    pub written: f64,
    /// The same where one process writes for all. Assumed.
    pub written_by_one: f64,
    /// The spread of both. Assumed.
    pub written_spread: f64,
    /// Hours between two phases of I/O, log-normal with a spread of 1. Assumed.
    pub phase_hours: f64,
    /// The part of its run time that a job spends in I/O at most, if alone on its I/O nodes: users write less
    /// often otherwise, says the DFRA paper. The part is assumed.
    pub budget: f64,
    /// The part of applications of at least 32 nodes in which every process has a file. Published: 9 %.
    pub every_node: f64,
    /// The part in which all processes share a file. Assumed; the DFRA paper's sample has 1 in 13.
    pub shared_file: f64,
    /// The part in which some of the nodes do I/O, files of their own. Assumed.
    pub some_nodes: f64,
    /// The part of applications that open very many files. Assumed; the paper's sample has 1 in 13.
    pub metadata_heavy: f64,
    /// Requests are log-normal: median in KiB, and spread. Assumed.
    pub request_kib: f64,
    /// See `request_kib`.
    pub request_spread: f64,
    /// From run to run the volume changes by a log-normal factor of this spread. Assumed.
    pub drift: f64,
    /// So often, a run is another case than the one before: volume anew, mode now and then. Assumed.
    pub new_case: f64,
}

impl Default for Population {
    fn default() -> Population {
        Population {
            applications: 600,
            interval_s: 17.0 * 30.44 * 86_400.0 / 107_001.0,
            largest_log2: 13,
            doubling: 0.82,
            odd_sizes: 0.3,
            hours: 0.7,
            hours_spread: 1.3,
            hours_by_size: 0.25,
            memory_gb: 32.0,
            written: 0.01,
            written_by_one: 0.0003,
            written_spread: 1.5,
            phase_hours: 0.5,
            budget: 0.25,
            every_node: 0.09,
            shared_file: 0.08,
            some_nodes: 0.25,
            metadata_heavy: 0.06,
            request_kib: 128.0,
            request_spread: 2.0,
            drift: 0.05,
            new_case: 0.06,
        }
    }
}

/// What one run does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Behaviour {
    /// How files are used.
    pub mode: IoMode,
    /// Compute nodes that do I/O.
    pub io_compute_nodes: u32,
    /// Bytes in all.
    pub bytes: f64,
    /// Bytes of a request.
    pub request: f64,
    /// Metadata operations in all.
    pub metadata: f64,
    /// Phases of I/O, with computing between them.
    pub phases: u32,
}

/// One job.
#[derive(Clone, Debug, PartialEq)]
pub struct Submitted {
    /// Which application.
    pub application: u32,
    /// Compute nodes.
    pub compute_nodes: u32,
    /// When it is submitted, seconds.
    pub arrival: f64,
    /// How long it computes, seconds.
    pub computes: f64,
    /// What it does beside.
    pub behaviour: Behaviour,
}

struct Application {
    /// What it does at each scale it is run at.
    scales: Vec<(u32, f64, Behaviour)>,
    popularity: f64,
}

fn normal(rng: &mut ChaCha8Rng) -> f64 {
    let (u, v) = (1.0 - rng.random::<f64>(), rng.random::<f64>());
    (-2.0 * u.ln()).sqrt() * (2.0 * std::f64::consts::PI * v).cos()
}

fn log_normal(rng: &mut ChaCha8Rng, median: f64, spread: f64) -> f64 {
    median * (spread * normal(rng)).exp()
}

impl Population {
    fn size(&self, rng: &mut ChaCha8Rng) -> u32 {
        let weights: Vec<f64> = (0..=self.largest_log2).map(|k| self.doubling.powi(k as i32)).collect();
        let mut at = rng.random::<f64>() * weights.iter().sum::<f64>();
        let mut log2 = 0;
        for (k, weight) in weights.iter().enumerate() {
            log2 = k as u32;
            at -= weight;
            if at <= 0.0 {
                break;
            }
        }
        let size = 1u32 << log2;
        if rng.random_bool(self.odd_sizes) { (size + rng.random_range(0..=size / 2)).max(1) } else { size }
    }

    fn behaviour(&self, nodes: u32, hours: f64, rng: &mut ChaCha8Rng) -> Behaviour {
        let draw = rng.random::<f64>();
        let parallel = self.every_node + self.some_nodes;
        let (mode, io_compute_nodes) = if draw < self.every_node || nodes < 32 && draw < parallel {
            (IoMode::NToN, nodes)
        } else if draw < parallel {
            // Every factor between one node and all is as likely as any other.
            let some = (f64::from(nodes).ln() * rng.random::<f64>()).exp().ceil() as u32;
            (IoMode::NToN, some.clamp(1, nodes))
        } else if draw < parallel + self.shared_file {
            (IoMode::NTo1, nodes)
        } else {
            (IoMode::OneTo1, 1)
        };
        let writers = f64::from(io_compute_nodes);
        let usual = if mode == IoMode::OneTo1 { self.written_by_one } else { self.written };
        let part = log_normal(rng, usual, self.written_spread).min(0.5);
        let of_phase = part * self.memory_gb * 1e9 * f64::from(nodes);
        let wanted = (hours / log_normal(rng, self.phase_hours, 1.0)).clamp(1.0, 200.0);
        // What the senders can do at most, a default I/O node for 512 of them in between.
        let rate = (writers * 80e6).min((f64::from(nodes) / 512.0).ceil() * 2.5e9);
        let affordable = self.budget * hours * 3600.0 * rate / of_phase;
        let phases = wanted.min(affordable).floor().max(1.0);
        let bytes = of_phase * phases.min(affordable.max(0.01));
        let request = (log_normal(rng, self.request_kib, self.request_spread) * 1024.0).clamp(512.0, 64e6);
        // A few operations for each file and phase, or an open and a close for every few KiB.
        let heavy = rng.random_bool(self.metadata_heavy);
        let metadata = writers * phases * 4.0 + if heavy { bytes / 8192.0 } else { 0.0 };
        Behaviour { mode, io_compute_nodes, bytes, request, metadata, phases: phases as u32 }
    }

    fn application(&self, rng: &mut ChaCha8Rng) -> Application {
        let scales = rng.random_range(1..=3);
        let one = |rng: &mut ChaCha8Rng| {
            let nodes = self.size(rng);
            let hours =
                log_normal(rng, self.hours, self.hours_spread) * f64::from(nodes).powf(self.hours_by_size);
            let hours = hours.clamp(0.02, 72.0);
            (nodes, hours, self.behaviour(nodes, hours, rng))
        };
        // A few are run all the time and most hardly ever.
        let popularity = 1.0 / rng.random_range(0.01..1.0f64);
        Application { scales: (0..scales).map(|_| one(rng)).collect(), popularity }
    }

    /// Draws the jobs of so many days, in order of arrival.
    pub fn draw(&self, days: f64, seed: u64) -> Vec<Submitted> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut applications: Vec<Application> =
            (0..self.applications.max(1)).map(|_| self.application(&mut rng)).collect();
        let indices: Vec<usize> = (0..applications.len()).collect();
        let mut jobs = Vec::new();
        let mut arrival = 0.0;
        loop {
            arrival += -self.interval_s * (1.0 - rng.random::<f64>()).ln();
            if arrival > days * 86_400.0 {
                return jobs;
            }
            let Ok(&a) = indices.choose_weighted(&mut rng, |&i| applications[i].popularity) else {
                return jobs;
            };
            let scale = rng.random_range(0..applications[a].scales.len());
            let (compute_nodes, hours, usual) = applications[a].scales[scale];
            let usual = if rng.random_bool(self.new_case) {
                let mut other = self.behaviour(compute_nodes, hours, &mut rng);
                if rng.random_bool(0.7) {
                    // The same program on another input.
                    other = Behaviour { mode: usual.mode, io_compute_nodes: usual.io_compute_nodes, ..other };
                }
                applications[a].scales[scale].2 = other;
                other
            } else {
                usual
            };
            let factor = log_normal(&mut rng, 1.0, self.drift);
            let behaviour =
                Behaviour { bytes: usual.bytes * factor, metadata: usual.metadata * factor, ..usual };
            let computes = hours * 3600.0 * log_normal(&mut rng, 1.0, 0.2);
            jobs.push(Submitted { application: a as u32, compute_nodes, arrival, computes, behaviour });
        }
    }
}
