//! `forebay top`: the layer at work, for a person who looks.

use super::args;
use crate::arbiter::Where;
use anyhow::Result;
use clap::Args;
use forebay_node::blame::ask_ranks;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Watch the jobs and I/O nodes of an arbiter.
///
/// In a terminal: a screen that moves, with keys to sort, filter and look at one job (`?` lists them).
/// Elsewhere: a line per interval. With the secret, one job is shown with its ranks, as its I/O nodes know them.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  forebay top
  forebay top --job lammps-17
  forebay top --lines --interval 10 >> load.log")]
pub(crate) struct Top {
    #[command(flatten)]
    at: Where,
    /// Look at this job.
    #[arg(long, value_name = "ID")]
    job: Option<String>,
    /// Seconds between two looks.
    #[arg(long, short = 'd', value_name = "SECONDS", default_value = "1", value_parser = args::seconds(0.1))]
    interval: Duration,
    /// End after so many looks.
    #[arg(long, short = 'n', value_name = "N", value_parser = args::count::<u64>(1..=u64::MAX))]
    count: Option<u64>,
    /// A line per look, in a terminal too.
    #[arg(long)]
    lines: bool,
    /// No colours; the same as with NO_COLOR set.
    #[arg(long)]
    no_color: bool,
}

impl Top {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let stop = Arc::new(AtomicBool::new(false));
        let by = Arc::new(AtomicUsize::new(0));
        for signal in forebay_embed::ending_signals() {
            signal_hook::flag::register_usize(signal, Arc::clone(&by), signal as usize)?;
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        let options = forebay_top::Options {
            interval: self.interval,
            count: self.count,
            job: self.job,
            colours: !self.no_color && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
            lines: self.lines,
        };
        // Who knows the secret sees a job's ranks, too.
        let ranks = self.at.secret.if_readable()?.map(|secret| -> Box<forebay_top::picture::AskRanks> {
            Box::new(move |job, nodes| {
                let ask = |a: &String| ask_ranks(&a.parse().ok()?, &secret, job).ok();
                nodes.iter().filter_map(ask).flatten().collect()
            })
        });
        match forebay_top::watch(self.at.looks()?, ranks, &options, &stop) {
            Err(forebay_top::WatchError::Output(e)) => return Ok(crate::output::lost(&e)),
            watched => watched?,
        }
        Ok(match by.load(Relaxed) as u8 {
            0 => ExitCode::SUCCESS,
            signal => ExitCode::from(128 + signal),
        })
    }
}
