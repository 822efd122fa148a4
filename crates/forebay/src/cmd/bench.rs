//! `forebay bench`: what Forebay costs, measured on this machine against what bounds it.

use super::args;
use super::lab::{carry_out, watched};
use anyhow::Result;
use clap::{Args, Subcommand, ValueHint};
use forebay_embed::Transport;
use forebay_lab::bench::{
    Against, Crowd, Everyday, FrontEnds, Op, PathBench, Records, Scaling, SchedBench, Worker, against_table,
    front_table, path_table, serve_limit,
};
use forebay_sched::SchedulerConfig;
use forebay_types::Protect;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measure Forebay on this machine.
#[derive(Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Path(PathArgs),
    Everyday(EverydayArgs),
    /// Measure one I/O node with many clients.
    ///
    /// Ten thousand connections in turn, 64 at once, and processor seconds per GB, against the smallest possible
    /// forwarder.
    Crowd(PlainArgs),
    /// Measure 1, 2 and 4 I/O nodes on emulated storage that scales.
    Scaling(PlainArgs),
    /// Measure 550,000 writes of 464 bytes of one process, directly and forwarded.
    ///
    /// On a disk: give a directory of its file system.
    Records(PlainArgs),
    Sched(SchedArgs),
    #[command(hide = true)]
    Worker(WorkerArgs),
    /// The smallest possible forwarder. Not for people.
    #[command(hide = true)]
    LimitServer {
        /// At this Unix socket instead of a port.
        #[arg(long)]
        unix: Option<PathBuf>,
        /// Spin before sleeping.
        #[arg(long)]
        spin: bool,
    },
}

/// Measure the path of a request: direct, the smallest possible forwarder, and Forebay.
///
/// Every figure is the median of several repetitions that are interleaved in one run, on a memory
/// file system. *direct* is the file itself; *limit* is the smallest possible synchronous forwarder (a
/// blocking socket, a header, the payload, pwrite or pread, a reply, and nothing else); *forebay* is an
/// unmodified program through the preload library and one I/O node. Latencies and metadata rates are
/// measured with both sides on one processor, where nobody can spin, and *free*, as users see them,
/// against a limit that spins for up to 100 µs before it sleeps; throughput without pinning. The ratio is
/// the median of the repetitions' own ratios: what a machine does to one repetition it mostly does to all
/// three ways. With --against, this build is held against another one instead.
#[derive(Args)]
struct PathArgs {
    /// Repetitions of each measurement [default: 9; with --against 15].
    #[arg(long, value_name = "N", value_parser = args::repetitions)]
    repeat: Option<usize>,
    /// Another build's program: both are measured, in turns.
    #[arg(long, value_name = "PROGRAM", value_hint = ValueHint::FilePath)]
    against: Option<PathBuf>,
    /// How the I/O node is reached.
    #[arg(long, value_enum, default_value_t = super::run::Over::Tcp)]
    transport: super::run::Over,
    /// How the connections to the I/O node are protected: what that costs. The limit's are not.
    #[arg(long, value_name = "HOW", default_value_t = Protect::None)]
    protect: Protect,
    /// Measure the mount, the mount with its accelerator and the preload library against each other instead.
    #[arg(long, conflicts_with = "against")]
    front_ends: bool,
    /// Where the files are; a memory file system.
    #[arg(long, value_name = "DIR", default_value_os_t = PathBench::default().dir, value_hint = ValueHint::DirPath, value_parser = args::directory)]
    dir: PathBuf,
    /// A tenth of the work: to see that it runs.
    #[arg(long)]
    quick: bool,
    /// Only rows whose name has this in it.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Print JSON instead of the table.
    #[arg(long)]
    json: bool,
}

/// Measure everyday work in a directory: directly and forwarded.
///
/// Unpacking an archive, `git clone`, a small build, `grep -r`, `dd bs=4k`, writing and reading lines, SQLite
/// and 300 Python imports, by unmodified programs. Every figure is the median of repetitions in which both
/// ways take turns, each in a fresh directory; the factor is the median of the repetitions' own factors.
#[derive(Args)]
struct EverydayArgs {
    /// Repetitions of each task.
    #[arg(long, value_name = "N", default_value_t = Everyday::default().repeat, value_parser = args::repetitions)]
    repeat: usize,
    /// Where the files are.
    #[arg(long, value_name = "DIR", default_value_os_t = Everyday::default().dir, value_hint = ValueHint::DirPath, value_parser = args::directory)]
    dir: PathBuf,
    /// How the I/O node is reached.
    #[arg(long, value_enum, default_value_t = super::run::Over::Unix)]
    transport: super::run::Over,
    /// Only these tasks, by the names that the table has (`grep -r` unpacks first).
    #[arg(long, value_name = "TASK,…", value_delimiter = ',')]
    only: Vec<String>,
    /// A tenth of the work: to see that it runs.
    #[arg(long)]
    quick: bool,
    /// Write the figures as JSON to this directory as well.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    out: Option<PathBuf>,
}

#[derive(Args)]
struct PlainArgs {
    /// Where the files are.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm", value_hint = ValueHint::DirPath, value_parser = args::directory)]
    dir: PathBuf,
    /// Some of the work: to see that it runs.
    #[arg(long)]
    quick: bool,
}

/// Measure the schedulers: nanoseconds for one request in and out.
///
/// For every scheduler with 10³ to 10⁶ requests waiting, and for a request that finds nothing waiting;
/// in processor time of one thread, the median over blocks of requests, and the lowest of several passes
/// over everything: neighbours on the machine, who take room in its caches, only ever add. Held against
/// 250 ns at 10⁵ and a growth of three from 10³ to 10⁶.
#[derive(Args)]
struct SchedArgs {
    /// Only this scheduler, with parameters if wanted.
    #[arg(long, value_name = "SPEC")]
    scheduler: Option<SchedulerConfig>,
    /// How many files the requests are to.
    #[arg(long, value_name = "N", default_value_t = SchedBench::default().files, value_parser = args::count::<usize>(1..=10_000_000))]
    files: usize,
    /// Requests per measurement.
    #[arg(long, value_name = "N", default_value_t = SchedBench::default().requests, value_parser = args::count::<usize>(100..=1_000_000_000))]
    requests: usize,
    /// Passes over everything.
    #[arg(long, value_name = "N", default_value_t = SchedBench::default().passes, value_parser = args::count::<usize>(1..=1000))]
    passes: usize,
}

/// One process of the bench. Not for people.
#[derive(Args)]
struct WorkerArgs {
    #[arg(long)]
    op: Op,
    #[arg(long)]
    file: PathBuf,
    #[arg(long, default_value_t = 4096)]
    size: usize,
    #[arg(long)]
    count: usize,
    /// Through the smallest forwarder at this port or Unix socket instead of the file system.
    #[arg(long)]
    limit: Option<String>,
    /// Spin before sleeping.
    #[arg(long)]
    spin: bool,
    /// Run on this processor only.
    #[arg(long)]
    cpu: Option<usize>,
}

impl Bench {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.what {
            What::Path(args) => args.run()?,
            What::Everyday(EverydayArgs { repeat, dir, transport, only, quick, out }) => {
                let everyday = Everyday { repeat, dir, transport: transport.into(), only, quick };
                return carry_out(&everyday, out.as_deref());
            }
            What::Crowd(PlainArgs { dir, quick }) => return carry_out(&Crowd { dir, quick }, None),
            What::Scaling(PlainArgs { dir, quick }) => return carry_out(&Scaling { dir, quick }, None),
            What::Records(PlainArgs { dir, quick }) => return carry_out(&Records { dir, quick }, None),
            What::Sched(SchedArgs { scheduler, files, requests, passes }) => {
                return carry_out(&SchedBench { scheduler, files, requests, passes }, None);
            }
            What::Worker(WorkerArgs { op, file, size, count, limit, spin, cpu }) => {
                Worker { op, file, size, count, limit, spin, cpu }.run()?;
            }
            What::LimitServer { unix, spin } => serve_limit(unix.as_deref(), spin)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl PathArgs {
    fn run(self) -> Result<()> {
        forebay_run::not_within()?;
        let transport: Transport = self.transport.into();
        let repeat =
            self.repeat.unwrap_or(if self.against.is_some() { 15 } else { PathBench::default().repeat });
        let PathArgs { dir, protect, quick, only, .. } = self;
        let path = PathBench { repeat, dir, transport, protect, quick, only };
        if let Some(old) = self.against {
            let rows = watched(|progress| Against { old, path }.run(progress))?;
            return show(&rows, self.json, against_table(&rows, repeat));
        }
        if self.front_ends {
            let rows = watched(|progress| FrontEnds { path }.run(progress))?;
            return show(&rows, self.json, front_table(&rows, repeat));
        }
        let rows = watched(|progress| path.run(progress))?;
        show(&rows, self.json, path_table(&rows, repeat))
    }
}

fn show(rows: &impl serde::Serialize, json: bool, table: String) -> Result<()> {
    let text = if json { serde_json::to_string_pretty(rows)? + "\n" } else { table };
    print!("{text}");
    Ok(())
}
