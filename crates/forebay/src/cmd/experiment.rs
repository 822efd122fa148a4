//! `forebay experiment`: the experiments of the sources on real I/O nodes, each in one command.

use super::args;
use super::lab::carry_out;
use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueHint};
use forebay_lab::Size;
use forebay_lab::experiment::{
    Announcers, ArbiterQueue, Blame, DfraPairs, Failslow, Gluster, Isolation, Metadata, Mounted, Overhead,
    Phases, RealFileSystem, Remap, RemapWorker, Rewards, Tuning, Twins,
};
use forebay_policy::PolicyKind;
use std::path::PathBuf;
use std::process::ExitCode;

/// Repeat the experiments behind the request schedulers.
///
/// Each experiment runs real I/O nodes and real clients, prints its table and says whether the figures
/// it is held against were reached. Where no parallel file system is at hand, the nodes answer no
/// faster than emulated data servers would ("emulated storage": the data is really stored, the times
/// are a model's).
#[derive(Args)]
pub(crate) struct Experiment {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Twins(TwinsArgs),
    Isolation(IsolationArgs),
    Metadata(MetadataArgs),
    /// A job of small writes beside one of large writes: what `forebay blame` says, and what is true.
    ///
    /// Shows how much of the waiting that the second job causes is put down to it, and what was predicted for
    /// other schedulers against a rerun under each.
    Blame(Scaled),
    Overhead(OverheadArgs),
    Gluster(GlusterArgs),
    Filesystem(FilesystemArgs),
    Arbiter(ArbiterArgs),
    /// Pairs of jobs on one I/O node, kept apart by DFRA, and under SFQ(D)+, on a live arbiter.
    ///
    /// Five kinds of jobs run alone and two at a time on emulated storage: what a request takes against alone.
    /// Then a job of sixteen compute nodes is given more I/O nodes than by default, and gives them back.
    Dfra(Scaled),
    Failslow(FailslowArgs),
    Phases(PhasesArgs),
    Rewards(RewardsArgs),
    Tuning(TuningArgs),
    Announcers(AnnouncersArgs),
    Remap(RemapArgs),
    #[command(hide = true)]
    RemapWorker(RemapWorkerArgs),
}

/// What every experiment is told.
#[derive(Args)]
struct Common {
    /// Write the figures (CSV) and the chart (SVG) here.
    #[arg(long, value_name = "DIR", default_value = "experiments", value_hint = ValueHint::DirPath)]
    out: PathBuf,
    /// The paper's size instead of the small setting, which takes less than five minutes.
    #[arg(long)]
    full: bool,
}

/// An experiment, and where its files go.
type Chosen = (PathBuf, Box<dyn forebay_lab::experiment::Experiment>);

impl Common {
    /// The experiment of the size that was asked for.
    fn with<E: forebay_lab::experiment::Experiment + 'static>(self, of: impl FnOnce(Size) -> E) -> Chosen {
        (self.out, Box::new(of(if self.full { Size::Full } else { Size::Small })))
    }
}

/// What an experiment with three sizes is told.
#[derive(Args)]
struct Scaled {
    #[command(flatten)]
    common: Common,
    /// Only see whether it works: a few seconds, and figures that mean nothing.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
}

impl Scaled {
    fn with<E: forebay_lab::experiment::Experiment + 'static>(self, of: impl FnOnce(Size) -> E) -> Chosen {
        let quick = self.quick;
        self.common.with(|size| of(if quick { Size::Quick } else { size }))
    }
}

/// Time windows per data server (TWINS) against arrival order and round robin.
///
/// Processes read and write 32 KiB requests, one at a time, through four I/O nodes onto four emulated
/// data servers: one shared file contiguously or 1D-strided, and a file each. Shows the bandwidth under
/// every scheduler, the median of interleaved repetitions. With `--mount` on a real parallel file system: also
/// without I/O nodes, two applications at a time, cold, and every block checked.
#[derive(Args)]
struct TwinsArgs {
    #[command(flatten)]
    scale: Scaled,
    /// Repetitions.
    #[arg(long, value_name = "N", default_value_t = Twins::default().repeat, value_parser = args::repetitions)]
    repeat: usize,
    #[command(flatten)]
    mounts: Option<Mounts>,
    /// The same directory on a mount through which is written what is to be read.
    #[arg(long, value_name = "DIR", requires = "mount", value_hint = ValueHint::DirPath, value_parser = args::directory)]
    other_mount: Option<PathBuf>,
    /// Lines of the I/O nodes' configuration by which they find the data servers of a file (`layout`, `servers`).
    #[arg(long, value_name = "FILE", requires = "mount", value_hint = ValueHint::FilePath)]
    layout: Option<PathBuf>,
}

/// A mounted parallel file system.
#[derive(Args)]
struct Mounts {
    /// A directory on the file system, as compute nodes see it.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, value_parser = args::directory, required = false)]
    mount: PathBuf,
    /// The same directory as the first I/O node sees it, and if given again as the second does: on a
    /// mount of their own, as on machines of their own. The compute nodes' unless given.
    #[arg(long, value_name = "DIR", requires = "mount", value_hint = ValueHint::DirPath, value_parser = args::directory)]
    node_mount: Vec<PathBuf>,
    /// Where the bricks are, if they are on this machine (and this is root): below here their caches
    /// are dropped, too, and their processes are asked what they read.
    #[arg(long, value_name = "DIR", requires = "mount", value_hint = ValueHint::DirPath)]
    bricks: Option<PathBuf>,
}

/// A small-I/O job against a writer of large requests, under four schedulers.
///
/// Eight processes write bursts of 320 B to 32 KiB with pauses of 100 ms, sixteen others write 32 MiB
/// requests without end, all through one I/O node onto four emulated data servers. Shows what a small
/// request takes, against the small job alone, and what both jobs move together.
#[derive(Args)]
struct IsolationArgs {
    #[command(flatten)]
    scale: Scaled,
    /// How long each measurement lasts; `--full` makes it three times as long.
    #[arg(long, value_name = "SECONDS", default_value_t = Isolation::default().seconds, value_parser = args::whole_seconds(1..=3600))]
    seconds: u64,
}

/// Two jobs of nothing but metadata operations, with weights 2 and 1.
///
/// Thirty-two processes each make, stat and remove files through one I/O node onto emulated servers.
/// Shows how many operations each job gets, and Jain's index of what they get by weight: 1 is exactly
/// by weight, 0.5 is all for one.
#[derive(Args)]
struct MetadataArgs {
    #[command(flatten)]
    scale: Scaled,
    /// How long each measurement lasts; `--full` makes it three times as long.
    #[arg(long, value_name = "SECONDS", default_value_t = Metadata::default().seconds, value_parser = args::whole_seconds(1..=3600))]
    seconds: u64,
}

/// What scheduling costs: every scheduler of the fair-queueing family against none.
///
/// Four processes write, or stat a file, through one I/O node: on emulated data servers, where what an
/// application loses shows, and on a memory file system, where nothing hides the cost; there also in
/// processor time, client and node together. Shows how much more an operation takes than under `noop`
/// in the same repetition: the median of the repetitions, and half the distance of their quartiles; where
/// that is more than what is allowed, nothing can be said.
#[derive(Args)]
struct OverheadArgs {
    #[command(flatten)]
    scale: Scaled,
    /// Repetitions.
    #[arg(long, value_name = "N", default_value_t = Overhead::default().repeat, value_parser = args::repetitions)]
    repeat: usize,
}

/// A shared file in small requests on GlusterFS: directly, and through one and two I/O nodes.
///
/// Eight clients (threads, each with a descriptor or connection of its own) write one file 1D-strided
/// in 32 KiB requests, and read it. The ways are interleaved in every repetition. Before each is read,
/// the pages of its file are dropped from the caches of every mount and, with `--bricks`, from those
/// under the bricks; what the brick processes then read is shown. Shows the medians, and the mean size
/// of the requests that leave the I/O nodes. `scripts/gluster start DIR` makes and mounts a volume, and
/// `scripts/gluster mount DIR AT` mounts it once more; any other mounted file system does too.
#[derive(Args)]
struct GlusterArgs {
    #[command(flatten)]
    scale: Scaled,
    #[command(flatten)]
    mounts: Mounts,
    /// Repetitions.
    #[arg(long, value_name = "N", default_value_t = Gluster::default().repeat, value_parser = args::repetitions)]
    repeat: usize,
    /// How the I/O nodes schedule.
    #[arg(long, value_name = "SPEC", default_value_t = Gluster::default().scheduler)]
    scheduler: String,
    /// How many requests an I/O node has at the file system at the same time.
    #[arg(long, value_name = "N", default_value_t = Gluster::default().dispatchers, value_parser = args::count::<usize>(1..=1024))]
    dispatchers: usize,
}

/// Forwarded against direct on a mounted parallel file system: six patterns, reads and writes.
///
/// Eight clients use one shared file or a file each, contiguously, strided or at random: directly, through an I/O
/// node in arrival order with eight dispatchers, and through one as `--scheduler` and `--dispatchers` say.
#[derive(Args)]
struct FilesystemArgs {
    #[command(flatten)]
    on: GlusterArgs,
    /// The same directory on a mount through which is written what is to be read.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, value_parser = args::directory)]
    other_mount: Option<PathBuf>,
    /// KiB of a request.
    #[arg(long, value_name = "KIB", value_delimiter = ',', default_value = "32,256,1024", value_parser = args::kib)]
    request: Vec<u64>,
}

/// A queue of jobs under the policies STATIC and MCKP, on a live arbiter.
///
/// Starts an arbiter and four I/O nodes as processes on one emulated storage system, and runs a queue of
/// twelve jobs of five kinds through `forebay run --arbiter`: unmodified programs (dd, sh, python3). A
/// job starts when the compute nodes it asks for are free, first come, first served. The curves that
/// MCKP needs are measured first, each kind alone on 1 to 4 I/O nodes.
///
/// What bounds what: an I/O node carries out one request at a time, and the emulated servers answer
/// after 20 ms. Jobs whose many processes do I/O at once gain with every I/O node; jobs in which one
/// process does all the I/O, that mostly compute, or that make many small files do not, however many
/// compute nodes they have. STATIC gives I/O nodes by compute nodes, MCKP by what the jobs gain.
#[derive(Args)]
struct ArbiterArgs {
    #[command(flatten)]
    common: Common,
    /// The policies to compare with the first one.
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_values_t = ArbiterQueue::default().policies)]
    policies: Vec<PolicyKind>,
}

/// An I/O node that is slowed to a tenth, under an arbiter that screens its nodes.
///
/// Four I/O nodes and an arbiter run as processes. Four jobs of two clients each write and read back
/// 64 KiB blocks at a steady pace, checking every byte, which three of the nodes can carry. Then one
/// node that serves a job is stopped (SIGSTOP) for nine tenths of every 200 ms, and later left alone
/// again. Shows when the arbiter screened it out and why, what the jobs moved before, meanwhile and
/// after, and when the node was used again.
#[derive(Args)]
struct FailslowArgs {
    #[command(flatten)]
    common: Common,
    /// How long the node is slow; `--full` makes it three times as long.
    #[arg(long, value_name = "SECONDS", default_value_t = Failslow::default().seconds, value_parser = args::whole_seconds(12..=600))]
    seconds: u64,
}

/// Label every second of an application whose access pattern changes.
///
/// 16 processes go through phases of I/O (a file each, one shared file contiguously, 1D-strided and at
/// random; reads and writes of several sizes) with pauses between them, through two I/O node processes
/// with intervals of 1 s. The model that ships with the program labels each I/O node's every second
/// that has load; shows how many labels are right, and a timeline.
#[derive(Args)]
struct PhasesArgs {
    #[command(flatten)]
    common: Common,
}

/// Record what every time window (TWINS) brings, for learning offline.
///
/// 16 processes read and write (a file each, one shared file contiguously and 1D-strided; 32 and 256
/// KiB) through four I/O node processes on emulated storage, under each of the seven windows in turn.
/// Each interval of each node is a reward, as the arbiter would have booked it. The recording (CSV) is
/// what `forebay learned replay` plays bandits against; its verdict is printed here, too.
#[derive(Args)]
struct RewardsArgs {
    #[command(flatten)]
    common: Common,
    /// How often every window is measured in every scenario.
    #[arg(long, value_name = "N", default_value_t = Rewards::default().rounds, value_parser = args::repetitions)]
    rounds: usize,
}

/// Learn the time windows (TWINS) while an application runs.
///
/// 16 processes write one shared file contiguously and read a file each, in turns, in requests of
/// 32 KiB, through four I/O node processes on emulated storage whose best windows for the two differ.
/// First under each window as it is; then under an arbiter that learns from the nodes' reports,
/// beginning with the default of 1 ms; then after a restart of the arbiter; then under each window as it
/// is again. Shows what each phase got, and the windows over time. Intervals are 0.1 s here, so that
/// minutes are enough; --full has intervals of 1 s.
#[derive(Args)]
struct TuningArgs {
    #[command(flatten)]
    common: Common,
}

/// What metrics, reports and decisions cost.
///
/// Overhead: twelve scenarios on emulated storage through four I/O node processes that report to an
/// arbiter in shadow mode (it learns and decides, and the decisions are ignored), against four that know
/// no arbiter; the two take turns within each scenario. Decisions: 768 connections report each second,
/// one after the other as nodes whose intervals begin at different times do, and change their scheduler
/// as the arbiter says; from the last report to the decision that the first and the last of them hears.
#[derive(Args)]
struct AnnouncersArgs {
    #[command(flatten)]
    common: Common,
    /// Turns of each side in each scenario; 0 measures the decisions only.
    #[arg(long, value_name = "N", default_value_t = Announcers::default().turns, value_parser = args::count::<usize>(0..=1000))]
    turns: usize,
    /// Rounds of reports.
    #[arg(long, value_name = "N", default_value_t = Announcers::default().rounds, value_parser = args::repetitions)]
    rounds: usize,
}

/// Move a running job between I/O nodes every 200 ms while it verifies every byte.
///
/// An arbiter, 4 I/O nodes (processes, on a memory file system) and one job of 8 processes that write
/// and read back blocks of 64 KiB and check each byte. In turn for 2 s each, the job's mapping stands
/// still, and it is changed every 200 ms to 2 other I/O nodes through the arbiter. Shows how long it
/// takes from the decision until the last process has moved, and what throughput moving costs. With
/// `--kill-arbiter N`, the arbiter is killed N times meanwhile and started again. The processes leave no
/// processor idle; with `--rest` they do, as where arbiter and I/O nodes have hosts of their own.
#[derive(Args)]
struct RemapArgs {
    #[command(flatten)]
    common: Common,
    /// How long to move, in seconds; as long again it stands still [default: 20, with --full 60].
    #[arg(long, value_name = "SECONDS", value_parser = args::whole_seconds(1..=3600))]
    seconds: Option<u64>,
    /// Kill the arbiter so many times meanwhile, and start it again.
    #[arg(long, value_name = "N", default_value_t = Remap::default().kill_arbiter, value_parser = args::count::<u32>(0..=1000))]
    kill_arbiter: u32,
    /// Milliseconds for which each process rests between two blocks.
    #[arg(long, value_name = "MS", default_value_t = Remap::default().rest, value_parser = args::count::<u64>(0..=1000))]
    rest: u64,
    /// Of the random choices.
    #[arg(long, value_name = "N", default_value_t = Remap::default().seed, value_parser = args::seed)]
    seed: u64,
    /// The arbiter is spoken to by TLS: its certificate for 127.0.0.1. FOREBAY_CA names the authority's.
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// The certificate's key.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
}

/// One process of the job. Not for people.
#[derive(Args)]
struct RemapWorkerArgs {
    #[arg(long)]
    config: PathBuf,
    #[arg(long)]
    number: usize,
    #[arg(long)]
    rest: u64,
}

impl Experiment {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let (out, experiment) = match self.what {
            What::Twins(a) => {
                let layout = a.layout.map(std::fs::read_to_string).transpose().context("--layout")?;
                let mounted = a.mounts.map(|m| Mounted {
                    mount: m.mount,
                    node_mount: m.node_mount.into_iter().next(),
                    other_mount: a.other_mount,
                    bricks: m.bricks,
                    layout: layout.unwrap_or_default(),
                });
                a.scale.with(|size| Twins { size, repeat: a.repeat, mounted })
            }
            What::Isolation(a) => a.scale.with(|size| Isolation { size, seconds: a.seconds }),
            What::Metadata(a) => a.scale.with(|size| Metadata { size, seconds: a.seconds }),
            What::Blame(a) => a.with(|size| Blame { size, ..Blame::default() }),
            What::Overhead(a) => a.scale.with(|size| Overhead { size, repeat: a.repeat }),
            What::Gluster(a) => a.scale.with(|size| Gluster {
                size,
                mount: a.mounts.mount,
                node_mounts: a.mounts.node_mount,
                bricks: a.mounts.bricks,
                repeat: a.repeat,
                scheduler: a.scheduler,
                dispatchers: a.dispatchers,
            }),
            What::Filesystem(FilesystemArgs { on: a, other_mount, request }) => {
                a.scale.with(|size| RealFileSystem {
                    size,
                    mount: a.mounts.mount,
                    node_mounts: a.mounts.node_mount,
                    other_mount,
                    bricks: a.mounts.bricks,
                    requests: request.into_iter().map(|kib| kib << 10).collect(),
                    ways: vec![("fifo".into(), 8), (a.scheduler, a.dispatchers)],
                    repeat: a.repeat,
                })
            }
            What::Arbiter(a) => a.common.with(|size| ArbiterQueue { size, policies: a.policies }),
            What::Dfra(a) => a.with(|size| DfraPairs { size }),
            What::Failslow(a) => a.common.with(|size| Failslow { size, seconds: a.seconds }),
            What::Phases(a) => a.common.with(|size| Phases { size }),
            What::Rewards(a) => a.common.with(|size| Rewards { size, rounds: a.rounds }),
            What::Tuning(a) => a.common.with(|size| Tuning { size }),
            What::Announcers(a) => {
                a.common.with(|size| Announcers { size, turns: a.turns, rounds: a.rounds })
            }
            What::Remap(RemapArgs { common, seconds, kill_arbiter, rest, seed, certificate, key }) => {
                let tls = certificate.zip(key);
                common.with(|size| Remap { size, seconds, kill_arbiter, rest, seed, tls })
            }
            What::RemapWorker(a) => {
                RemapWorker { config: a.config, number: a.number, rest: a.rest }.run()?;
                return Ok(ExitCode::SUCCESS);
            }
        };
        carry_out(&*experiment, Some(&out))
    }
}
