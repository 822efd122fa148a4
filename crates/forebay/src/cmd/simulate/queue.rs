//! `forebay simulate queue`: a job queue under every policy.

use crate::cmd::args;
use anyhow::Context;
use clap::Args;
use forebay_policy::{FairConfig, PolicyKind, Settings};
use forebay_sim::queue::{self, QueueFile};
use forebay_sim::{charts, text};
use forebay_types::input;
use std::path::PathBuf;
use std::process::ExitCode;

/// A job queue in virtual time under every policy
///
/// Jobs start in strict FIFO order as compute nodes become free; whenever the running jobs change,
/// the policy decides anew. A job runs for its volume over the bandwidth it gets. Jobs that are given
/// the same I/O node share it evenly. The aggregate bandwidth is the sum of the jobs' own.
#[derive(Args)]
pub(crate) struct Queue {
    /// The machine, applications and queue [default: the built-in queue of 14 jobs on 96 compute nodes
    /// and 12 I/O nodes]
    #[arg(value_name = "QUEUE.json")]
    file: Option<PathBuf>,

    /// I/O nodes, instead of the file's
    #[arg(long, value_name = "N", value_parser = args::count::<u32>(1..=100_000))]
    io_nodes: Option<u32>,

    /// FAIR: no job below this part of what STATIC would give it
    #[arg(long, value_name = "0..1", default_value_t = FairConfig::default().share, value_parser = args::share)]
    share: f64,

    /// FAIR: the part of its bandwidth that moving a running job is thought to cost
    #[arg(long, value_name = "0..1", default_value_t = FairConfig::default().move_cost, value_parser = args::share)]
    move_cost: f64,

    /// Seconds without I/O for a job whose I/O nodes change
    #[arg(long, value_name = "S", default_value_t = FairConfig::default().move_seconds, value_parser = args::number(0.0..=86_400.0))]
    move_seconds: f64,

    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,

    /// Draw each job's bandwidth, and who held which I/O node when, into an SVG file
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

impl Queue {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(path) = &self.plot {
            forebay_lab::can_write(path, self.file.as_slice())?;
        }
        let mut file = match &self.file {
            Some(path) => {
                let text = std::fs::File::open(path).and_then(input::text);
                let text = text.with_context(|| format!("cannot read {}", path.display()))?;
                QueueFile::parse(&text).with_context(|| path.display().to_string())?
            }
            None => QueueFile::parse(QueueFile::BUILT_IN).context("the built-in queue")?,
        };
        file.io_nodes = self.io_nodes.unwrap_or(file.io_nodes);
        let fair =
            FairConfig { share: self.share, move_cost: self.move_cost, move_seconds: self.move_seconds };
        let settings = Settings { fair, ..Settings::default() };
        let kinds = PolicyKind::ALL.into_iter().filter(|&k| k != PolicyKind::Zero || file.direct);
        let outcomes = kinds
            .map(|k| queue::simulate(&file, k, &settings).with_context(|| k.to_string()))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let of = |kind| outcomes.iter().find(|o| o.policy == kind).context("every policy ran");
        let (fixed, mckp, fair) = (of(PolicyKind::Static)?, of(PolicyKind::Mckp)?, of(PolicyKind::Fair)?);
        if let Some(path) = &self.plot {
            let svg = charts::queue(&file, &[fixed, mckp, fair]);
            forebay_lab::put(path, svg)?;
        }
        if self.json {
            let summary = text::queue_json(&file, &outcomes, fixed, mckp, fair, self.share);
            println!("{}", serde_json::to_string_pretty(&summary)?);
        } else {
            print!("{}", text::queue(&file, &outcomes, fixed, mckp, fair, self.share));
        }
        Ok(ExitCode::SUCCESS)
    }
}
