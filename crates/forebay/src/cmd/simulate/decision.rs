//! `forebay simulate decision`: how long one decision takes.

use clap::Args;
use forebay_plot::table;
use forebay_policy::{BandwidthCurve, Job, PolicyKind, Pool, Settings};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::process::ExitCode;
use std::time::Instant;

/// How long one decision takes at scale
///
/// Draws random jobs (8 to 1,024 compute nodes, bandwidths at 0, 1, 2, 4 and 8 I/O nodes) and times
/// one decision of every policy. MCKP and FAIR are exact: dynamic programming over the pool size, two
/// rolling rows of totals and two bytes a cell for the way back.
#[derive(Args)]
pub(crate) struct Timed {
    /// Jobs to draw
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    jobs: u32,

    /// I/O nodes
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    io_nodes: u32,

    /// Which jobs are drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl Timed {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let mut jobs = Vec::new();
        for i in 0..self.jobs {
            let compute_nodes = 8 << rng.random_range(0..8);
            let pairs = [0, 1, 2, 4, 8].map(|n| (n, rng.random_range(1.0..5000.0)));
            jobs.push(
                Job::new(format!("job{i}"), compute_nodes, compute_nodes)
                    .with_curve(BandwidthCurve::from_pairs(pairs)?),
            );
        }
        let pool = Pool::of(self.io_nodes);
        let mut shown = table::new(&["policy", "ms", "total GB/s", "I/O nodes used"], &[]);
        for kind in PolicyKind::ALL {
            let policy = kind.build(&Settings::default())?;
            let started = Instant::now();
            let decision = policy.decide(&jobs, &pool)?;
            let took = started.elapsed();
            shown.add_row([
                kind.to_string(),
                format!("{:.1}", took.as_secs_f64() * 1e3),
                format!("{:.1}", decision.total.0 / 1000.0),
                decision.used().to_string(),
            ]);
        }
        println!("One decision for {} jobs and {} I/O nodes", self.jobs, self.io_nodes);
        println!("{shown}");
        Ok(ExitCode::SUCCESS)
    }
}
