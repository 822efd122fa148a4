//! `forebay torture`: does what was acknowledged stay true while everything breaks?

use super::args;
use super::lab::watched;
use anyhow::Result;
use clap::Args;
use forebay_lab::can_write_below;
use forebay_lab::torture::{Torture as Lab, Worker};
use std::path::PathBuf;
use std::process::ExitCode;

/// Break I/O nodes under working processes, and judge what these were told.
///
/// Starts arbiters, four I/O nodes on three emulated hosts, four more whose hosts forget what was not synced
/// when they crash, and one by itself; and processes that write blocks, append, cut, make, remove and rename,
/// count under locks, and sync. Meanwhile nodes are killed, stopped, drained, restarted elsewhere, slowed down
/// and cut off, hosts crash, the job is moved, arbiters and etcd's members are killed. Then every answer is
/// held against what can be: histories are checked for linearizability, object by object. No call may hang,
/// end after its deadline, or fail before it without need.
///
/// What is done follows from the seed; what it meets depends on the machine.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  forebay torture
  forebay torture --seconds 600 --seed 7
  forebay torture --full

Exit status:
  0 if every promise was kept, 1 if one was broken: the timelines say how.")]
pub(crate) struct Torture {
    /// How long.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = args::whole_seconds(1..=86_400))]
    seconds: u64,
    /// Until there were 1,000 faults and a million operations, if that takes longer.
    #[arg(long)]
    full: bool,
    /// Of the random choices.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = args::seed)]
    seed: u64,
    /// Where some of the calls that were told `EIO` are described; if a promise was broken, with logs, histories and what
    /// was done when.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

impl Torture {
    pub(crate) fn run(self) -> Result<ExitCode> {
        forebay_run::not_within()?;
        let Torture { seconds, full, seed, keep } = self;
        keep.as_deref().map_or(Ok(()), can_write_below)?;
        let report = watched(|progress| Lab { seconds, full, seed, keep }.run(progress))?;
        print!("{report}");
        Ok(if report.kept() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Processes under torture. Not for people.
#[derive(Args)]
pub(crate) struct TortureWorker {
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    history: PathBuf,
    #[arg(long, default_value_t = 0)]
    number: u32,
    #[arg(long, default_value_t = 0)]
    life: u32,
    #[arg(long, default_value_t = 0)]
    herd: u32,
    #[arg(long)]
    work: String,
    #[arg(long)]
    deadline: u64,
    #[arg(long)]
    seed: u64,
}

impl TortureWorker {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let TortureWorker { dir, history, number, life, herd, work, deadline, seed } = self;
        Worker { dir, history, number, life, herd, work, deadline, seed }.run()?;
        Ok(ExitCode::SUCCESS)
    }
}
