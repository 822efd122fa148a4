//! `forebay allocate`: one decision for a given set of jobs.

use crate::cmd::args;
use anyhow::{Context, bail};
use clap::Args;
use forebay_policy::{FairConfig, JobSet, PolicyKind, Pool, Settings, SharingRule};
use forebay_sim::text;
use forebay_types::input;
use std::path::PathBuf;
use std::process::ExitCode;

/// Decide who gets how many I/O nodes: the admin's what-if
///
/// Reads a set of jobs, runs one policy on them and prints what each job gets, what that should
/// yield, and why. Nothing is changed anywhere.
///
/// Policies: ZERO (direct access), ONE (one I/O node each), STATIC (in proportion to compute nodes,
/// fixed at start), SIZE and PROCESS (in proportion to compute nodes or processes of the running
/// jobs), ORACLE (each job's best, whatever the pool), MCKP (the largest total bandwidth), FAIR (the
/// largest weighted total that leaves every job its share of STATIC), DFRA (scale, isolate or skip by
/// history).
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Allocate {
    /// The policy to decide by
    #[arg(long, value_name = "NAME")]
    policy: PolicyKind,

    /// I/O nodes there are to give
    #[arg(long, value_name = "N", value_parser = args::count::<u32>(0..=1_000_000))]
    io_nodes: u32,

    /// The jobs; - is standard input
    #[arg(value_name = "JOBS.json")]
    jobs: PathBuf,

    /// Jobs may not go to the file system directly
    #[arg(long)]
    no_direct: bool,

    /// Compute nodes of the whole machine, over which STATIC divides the I/O nodes [default: those of
    /// the jobs given]
    #[arg(long, value_name = "N", value_parser = args::count::<u32>(1..=10_000_000))]
    compute_nodes: Option<u32>,

    /// When I/O nodes may be set aside to be shared
    #[arg(long, value_name = "WHEN", default_value = "needed", value_parser = ["needed", "better"])]
    sharing: String,

    /// FAIR: no job below this part of what STATIC would give it
    #[arg(long, value_name = "0..1", default_value_t = FairConfig::default().share, value_parser = args::share)]
    share: f64,

    /// FAIR: the part of its bandwidth that moving a running job costs
    #[arg(long, value_name = "0..1", default_value_t = FairConfig::default().move_cost, value_parser = args::share)]
    move_cost: f64,

    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

const AFTER: &str = r#"JOBS.json:
  [{"id": "ior", "compute_nodes": 16, "processes": 128,
    "curve": {"0": 500.0, "1": 268.4, "8": 5089.9}}, ...]

  curve     MB/s by I/O nodes ("0" is direct access); a job without one gets STATIC's default.
            Only counts that divide the job's compute nodes are offered to it.
  Optional: "app", "user" (text), "weight" (FAIR; 1), "current" (I/O nodes it holds now),
            "history" (DFRA: bytes, io_compute_nodes, mode "N-N"|"N-1"|"1-1", bandwidth_mbs,
            iops, metadata_rate, metadata_waiting).

With --json: {"policy", "io_nodes", "used", "total", "static_total", "share", "unpredicted",
"jobs": [{"id", "io_nodes", "shared", "bandwidth", "static_io_nodes", "static_bandwidth", "gain",
"alternatives", "why", ...}]}; bandwidths in MB/s, null where the curve does not say.

Example:
  forebay allocate --policy mckp --io-nodes 12 jobs.json"#;

impl Allocate {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let name = self.jobs.display().to_string();
        let text = if name == "-" {
            input::text(std::io::stdin()).context("cannot read standard input")?
        } else {
            let text = std::fs::File::open(&self.jobs).and_then(input::text);
            text.with_context(|| format!("cannot read {name}"))?
        };
        let set = JobSet::parse(&text).with_context(|| format!("{name}: not a set of jobs"))?;
        for field in &set.unknown_fields {
            eprintln!("forebay: warning: field {field:?} of a job is not known and was ignored");
        }
        let needed: u64 = set.jobs.iter().map(|j| u64::from(j.compute_nodes)).sum();
        if let Some(given) = self.compute_nodes.filter(|n| u64::from(*n) < needed) {
            bail!("--compute-nodes {given}: the jobs have {needed} compute nodes");
        }
        if let Some(job) =
            set.jobs.iter().find(|j| j.current.as_ref().is_some_and(|c| c.io_nodes > self.io_nodes))
        {
            bail!("job {}: it holds more I/O nodes than there are (--io-nodes {})", job.id, self.io_nodes);
        }
        let pool = Pool {
            compute_nodes: self.compute_nodes,
            direct: !self.no_direct,
            sharing: if self.sharing == "better" { SharingRule::Better } else { SharingRule::Needed },
            ..Pool::of(self.io_nodes)
        };
        let fair = FairConfig { share: self.share, move_cost: self.move_cost, ..FairConfig::default() };
        let settings = Settings { fair, ..Settings::default() };
        let what_if = set.decide(&*self.policy.build(&settings)?, &pool)?;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&set.to_json(&what_if)?)?);
        } else {
            print!("{}", text::what_if(&what_if));
        }
        Ok(ExitCode::SUCCESS)
    }
}
