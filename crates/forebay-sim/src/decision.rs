//! How long one decision takes: random jobs, every policy.

use forebay_policy::{BandwidthCurve, Job, PolicyError, PolicyKind, Pool, Settings};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::{Duration, Instant};

/// What one policy decided, and in what time.
pub struct Timed {
    /// Who decided.
    pub policy: PolicyKind,
    /// In what time.
    pub took: Duration,
    /// All jobs together, GB/s.
    pub total_gbs: f64,
    /// How many I/O nodes it gave.
    pub used: u64,
}

/// Draws `jobs` of 8 to 1,024 compute nodes with bandwidths at 0, 1, 2, 4 and 8 I/O nodes, and has every policy
/// decide once about `io_nodes`.
pub fn time(jobs: u32, io_nodes: u32, seed: u64) -> Result<Vec<Timed>, PolicyError> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut drawn = Vec::new();
    for i in 0..jobs {
        let compute_nodes = 8 << rng.random_range(0..8);
        let pairs = [0, 1, 2, 4, 8].map(|n| (n, rng.random_range(1.0..5000.0)));
        let job = Job::new(format!("job{i}"), compute_nodes, compute_nodes);
        let curve =
            BandwidthCurve::from_pairs(pairs).expect("numbers of I/O nodes that differ, finite bandwidths");
        drawn.push(job.with_curve(curve));
    }
    let pool = Pool::of(io_nodes);
    let timed = |policy: PolicyKind| {
        let decides = policy.build(&Settings::default())?;
        let started = Instant::now();
        let decision = decides.decide(&drawn, &pool)?;
        let took = started.elapsed();
        Ok(Timed { policy, took, total_gbs: decision.total.0 / 1000.0, used: decision.used() })
    };
    PolicyKind::ALL.into_iter().map(timed).collect()
}
