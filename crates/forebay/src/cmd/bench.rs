//! `forebay bench`: what Forebay costs, measured on this machine against what bounds it.

use super::lab::{carry_out, watched};
use anyhow::Result;
use clap::{Args, Subcommand, ValueHint};
use forebay_lab::bench::{Op, PathBench, PathRow, SchedBench, Worker, serve_limit};
use forebay_sched::SchedulerConfig;
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
    Sched(SchedArgs),
    #[command(hide = true)]
    Worker(WorkerArgs),
    /// The smallest possible forwarder. Not for people.
    #[command(hide = true)]
    LimitServer,
}

/// Measure the path of a request: direct, the smallest possible forwarder, and Forebay.
///
/// Every figure is the median of several repetitions that are interleaved in one run, on a memory
/// file system, over TCP on loopback. *direct* is the file itself; *limit* is the smallest possible
/// synchronous forwarder (a blocking socket, a header, the payload, pwrite or pread, a reply, and
/// nothing else); *forebay* is an unmodified program through the preload library and one I/O node.
/// Latencies and metadata rates are measured with both sides on one processor (an idle virtual
/// processor wakes slowly, which would measure the hypervisor); throughput without pinning. The
/// ratio is the median of the repetitions' own ratios: what a machine does to one repetition it
/// mostly does to all three ways.
#[derive(Args)]
struct PathArgs {
    /// Repetitions of each measurement.
    #[arg(long, value_name = "N", default_value_t = PathBench::default().repeat)]
    repeat: usize,
    /// Where the files are; a memory file system.
    #[arg(long, value_name = "DIR", default_value_os_t = PathBench::default().dir, value_hint = ValueHint::DirPath)]
    dir: PathBuf,
    /// A tenth of the work: to see that it runs.
    #[arg(long)]
    quick: bool,
    /// Print JSON instead of the table.
    #[arg(long)]
    json: bool,
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
    #[arg(long, value_name = "N", default_value_t = SchedBench::default().files)]
    files: usize,
    /// Requests per measurement.
    #[arg(long, value_name = "N", default_value_t = SchedBench::default().requests)]
    requests: usize,
    /// Passes over everything.
    #[arg(long, value_name = "N", default_value_t = SchedBench::default().passes)]
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
    /// Through the smallest forwarder at this port instead of the file system.
    #[arg(long)]
    limit: Option<u16>,
    /// Run on this processor only.
    #[arg(long)]
    cpu: Option<usize>,
}

impl Bench {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.what {
            What::Path(args) => args.run()?,
            What::Sched(SchedArgs { scheduler, files, requests, passes }) => {
                return carry_out(&SchedBench { scheduler, files, requests, passes }, None);
            }
            What::Worker(WorkerArgs { op, file, size, count, limit, cpu }) => {
                Worker { op, file, size, count, limit, cpu }.run()?;
            }
            What::LimitServer => serve_limit()?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl PathArgs {
    fn run(self) -> Result<()> {
        let bench = PathBench { repeat: self.repeat, dir: self.dir, quick: self.quick };
        let rows = watched(|progress| bench.run(progress))?;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&rows)?);
        } else {
            print(&rows, self.repeat.max(1));
        }
        Ok(())
    }
}

fn print(rows: &[PathRow], repeat: usize) {
    println!(
        "medians of {repeat} interleaved repetitions; ratio: forebay / limit, median of the repetitions\n"
    );
    println!(
        "{:<28} {:>5} {:>10} {:>10} {:>10} {:>7}  {:<8}",
        "", "", "direct", "limit", "forebay", "ratio", "target"
    );
    let number = |v: f64| match v {
        v if v.is_nan() => "–".to_owned(),
        v if v >= 100.0 => format!("{v:.0}"),
        v => format!("{v:.2}"),
    };
    for r in rows {
        let verdict = if r.met { "met" } else { "NOT met" };
        println!(
            "{:<28} {:>5} {:>10} {:>10} {:>10} {:>7}  {:<8} {verdict}",
            r.what,
            r.unit,
            number(r.direct),
            number(r.limit),
            number(r.forebay),
            number(r.ratio),
            r.target
        );
    }
}
