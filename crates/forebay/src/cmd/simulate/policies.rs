//! `forebay simulate policies`: the set study.

use super::progress;
use crate::cmd::args;
use crate::output::complain;
use anyhow::Context;
use clap::Args;
use forebay_policy::{CurveTable, FairConfig, PolicyKind, Settings};
use forebay_sim::study::{self, StudyConfig};
use forebay_sim::{charts, text};
use forebay_types::input;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// All policies on many random sets of measured jobs
///
/// Draws sets of jobs, with replacement, from the patterns of a curves file, and gives every set to
/// every policy on every pool size. Shows the median of the sets' total bandwidths, and how much
/// better or worse than STATIC (set by set, median) each policy is. The same seed gives the same sets
/// on any number of threads.
#[derive(Args)]
pub(crate) struct Policies {
    /// Measured curves: scenario,compute_nodes,processes,layout,spatiality,request_kb,io_nodes,bandwidth_mbs
    #[arg(value_name = "CURVES.csv")]
    curves: PathBuf,

    /// Sets to draw
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = args::count::<u32>(1..=10_000_000))]
    sets: u32,

    /// Jobs in a set
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = args::count::<u32>(1..=10_000))]
    set_size: u32,

    /// Pool sizes
    #[arg(
        long,
        value_name = "N,N,...",
        value_delimiter = ',',
        default_value = "8,16,24,32,40,48,56,64,96,128",
        value_parser = args::count::<u32>(1..=100_000)
    )]
    io_nodes: Vec<u32>,

    /// Which sets are drawn
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = args::seed)]
    seed: u64,

    /// FAIR: no job below this part of what STATIC would give it
    #[arg(long, value_name = "0..1", default_value_t = FairConfig::default().share, value_parser = args::share)]
    share: f64,

    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,

    /// Draw the medians into an SVG file
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,

    /// Say how long it took, on standard error
    #[arg(long)]
    timings: bool,
}

impl Policies {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let name = self.curves.display();
        let file = input::open(&self.curves).with_context(|| format!("cannot open {name}"))?;
        let curves = CurveTable::from_csv(BufReader::new(file))
            .with_context(|| format!("{name}: not a table of curves"))?;
        if let Some(path) = &self.plot {
            forebay_lab::can_write(path, std::slice::from_ref(&self.curves))?;
        }
        let fair = FairConfig { share: self.share, ..FairConfig::default() };
        let config = StudyConfig {
            sets: self.sets,
            set_size: self.set_size,
            io_nodes: self.io_nodes.clone(),
            seed: self.seed,
            settings: Settings { fair, ..Settings::default() },
        };
        let bar = progress(self.sets, "sets");
        let started = Instant::now();
        let study = study::run(&curves, &config, || bar.inc(1))?;
        let took = started.elapsed();
        bar.finish_and_clear();
        if self.timings {
            complain(&format!(
                "{} sets × {} pool sizes × {} policies in {:.2} s on {} threads",
                study.sets,
                self.io_nodes.len(),
                PolicyKind::ALL.len(),
                took.as_secs_f64(),
                rayon::current_num_threads()
            ));
        }
        if let Some(path) = &self.plot {
            forebay_lab::put(path, charts::study(&study))?;
        }
        if self.json {
            println!("{}", serde_json::to_string_pretty(&study)?);
        } else {
            print!("{}", text::study(&study, &self.io_nodes));
        }
        Ok(ExitCode::SUCCESS)
    }
}
