//! `forebay explore`: runs scenarios with different numbers of I/O nodes. The hidden command
//! `explore-worker` is what its client processes run.

use super::interrupt;
use crate::arbiter::SecretFile;
use anyhow::{Context, bail};
use forebay_explore::analysis::{Measurements, Rule, assess, html, text};
use forebay_explore::darshan;
use forebay_explore::run::launcher::{self, Rank};
use forebay_explore::run::machine::{Launched, Local, Machine, serve_agent};
use forebay_explore::run::{
    MOST_LOCAL, MOST_RUNS, Results, RunError, Standing, Study, TOKEN_VARIABLE, Via, plan, runs, work,
};
use forebay_explore::scenario::{self, MAX_REPETITIONS, Scenario, Step};
use indicatif::{ProgressBar, ProgressStyle};
use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Run scenarios with different numbers of I/O nodes, and measure.
///
/// A scenario says what an application does: so many processes write, read, think, or make files, in
/// such and such a pattern. FILE is either FORGE's JSON (both its forms, unchanged) or Forebay's TOML,
/// which adds random access, request size mixes, mixed reads and writes, metadata, several jobs at
/// once, schedulers, and a matrix of factors; see docs/EXPLORE.md and the files in scenarios/.
///
/// On this machine, I/O nodes and client processes are started for each run and ended after it. Under
/// srun or mpirun, the first ranks become I/O nodes and the others clients; the ranks meet in the
/// output directory, which all hosts must see. With --nodes, I/O nodes that already run are used.
///
/// The results go into the output directory: results.csv (a row per repetition), runs/ (JSON with
/// latency percentiles and the I/O nodes' own statistics), summary.txt (FORGE's form) and
/// report.html. Ctrl-C keeps what is done; --resume goes on from there.
///
/// Bounds: 1024 I/O nodes a run, 1024 processes (I/O nodes and clients) on this machine, 10,000
/// repetitions, a million runs, 100 million files in a step.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_long_help = "Examples:\n  \
    forebay explore scenarios/paper-a-to-t.toml --at /scratch/me\n  \
    forebay explore forge.json --processes 8 --io-nodes 0,1,2 --repeat 3\n  \
    srun -n 20 forebay explore scenario.toml --io-nodes 0,1,2,4 --at /lustre/me --out /lustre/me/study"
)]
pub(crate) struct Explore {
    /// Scenario files: FORGE's .json or Forebay's .toml.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Numbers of I/O nodes to try; 0 is direct access. Default: the scenario's own, else 0,1,2,4,8.
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    io_nodes: Option<Vec<u32>>,

    /// Repetitions of each. Default: the scenario's own, else 5.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_REPETITIONS)))]
    repeat: Option<u32>,

    /// The directory on the file system under test, where the scenarios' files go. Default: the
    /// directory that the scenario's own paths name, else the current one.
    #[arg(long, value_name = "DIR")]
    at: Option<PathBuf>,

    /// Where results go.
    #[arg(long, value_name = "DIR", default_value = "explore-results")]
    out: PathBuf,

    /// Go on with a study that was interrupted: runs whose results are there are not repeated.
    #[arg(long)]
    resume: bool,

    /// Client processes for FORGE's files, which leave it to mpirun. Default: one per I/O node, or
    /// all client ranks of the launcher.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(scenario::MAX_PROCESSES)))]
    processes: Option<u32>,

    /// I/O nodes that already run (tcp:HOST:PORT or unix:PATH); a run with N takes the first N.
    #[arg(long, value_delimiter = ',', value_name = "ADDRESS,…")]
    nodes: Vec<String>,

    #[command(flatten)]
    secret: SecretFile,

    /// The name under which --nodes export the directory. Default: the directory's path.
    #[arg(long, value_name = "NAME")]
    export: Option<String>,

    /// How clients reach the I/O nodes: through the client library, or as plain POSIX programs under
    /// the preloaded library.
    #[arg(long, value_enum, default_value_t = ViaArg::Client)]
    via: ViaArg,

    /// Seed of the random order of runs.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,

    #[command(subcommand)]
    other: Option<Other>,
}

#[derive(clap::Subcommand)]
enum Other {
    FromDarshan(FromDarshan),
}

/// Derive a scenario from a Darshan log.
///
/// Number of processes, shared files or files of their own, request sizes, order and volume come from
/// the log's POSIX records (format 3.10 and later). What was written comes first, then what was read.
#[derive(clap::Args)]
struct FromDarshan {
    /// The log.
    #[arg(value_name = "LOG")]
    log: PathBuf,

    /// Where the scenario goes; without it, to the terminal.
    #[arg(long, short, value_name = "FILE.toml")]
    output: Option<PathBuf>,
}

impl FromDarshan {
    fn run(self) -> anyhow::Result<ExitCode> {
        let bytes =
            std::fs::read(&self.log).with_context(|| format!("cannot read {}", self.log.display()))?;
        let log = darshan::read(&bytes).with_context(|| self.log.display().to_string())?;
        let name =
            self.log.file_stem().map_or_else(|| "darshan".into(), |s| s.to_string_lossy().into_owned());
        let scenario = darshan::derive(&log, &name)
            .map_err(anyhow::Error::msg)
            .with_context(|| self.log.display().to_string())?;
        let (read, written) =
            log.posix.iter().fold((0, 0), |(r, w), p| (r + p.bytes_read, w + p.bytes_written));
        let comment = format!(
            "Derived from the Darshan log {name}: {} processes, {} file records,\n{written} bytes written, {read} bytes read.",
            log.processes,
            log.posix.len()
        );
        let text = darshan::to_toml(&scenario, &comment);
        match &self.output {
            None => print!("{text}"),
            Some(path) => {
                std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum ViaArg {
    Client,
    Preload,
}

/// One client process of a run; started by `forebay explore`.
#[derive(clap::Args)]
pub(crate) struct ExploreWorker {
    #[arg(long)]
    connect: SocketAddr,
    #[arg(long)]
    run: u64,
    #[arg(long)]
    slot: u32,
}

impl ExploreWorker {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let token = std::env::var(TOKEN_VARIABLE).context("this command is started by `forebay explore`")?;
        work(self.connect, &token, self.run, self.slot)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// How long the command may take to end in order when it is interrupted.
const END_LIMIT: Duration = Duration::from_millis(400);

/// How long the ranks of a launcher wait for each other.
const MEETING_PATIENCE: Duration = Duration::from_secs(120);

impl Explore {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(Other::FromDarshan(c)) = self.other {
            return c.run();
        }
        let rank = Rank::detect(|name| std::env::var(name).ok());
        std::fs::create_dir_all(&self.out).with_context(|| format!("cannot make {}", self.out.display()))?;
        let out = self.out.canonicalize()?;
        if let Some(r) = rank.as_ref().filter(|r| r.rank > 0) {
            serve_agent(launcher::join(r, &out, MEETING_PATIENCE)?)?;
            return Ok(ExitCode::SUCCESS);
        }

        // From here on Ctrl-C ends in order; what does not heed it in time is ended with the process.
        let stop = interrupt::flag(END_LIMIT)?;
        let mut scenarios = Vec::new();
        for file in &self.files {
            scenarios.extend(scenario::load(file)?);
        }
        self.check(&scenarios)?;
        let root = relocate(&mut scenarios, self.at.as_deref())?;
        let library = match self.via {
            ViaArg::Client => None,
            ViaArg::Preload => Some(Library::unpack(&out)?),
        };
        let via = library.as_ref().map_or(Via::Client, |l| Via::Preload(l.0.clone()));
        let standing = self.standing(&root)?;

        let mut results = Results::open(&out, self.resume)?;
        let runs = plan(&scenarios, self.io_nodes.as_deref(), self.repeat, self.seed, results.done());
        let most = runs.iter().map(|r| r.io_nodes).max().unwrap_or(0);
        if let Some(s) = standing.as_ref().filter(|s| s.addresses.len() < most as usize) {
            bail!("a run wants {most} I/O nodes, and --nodes names {}", s.addresses.len());
        }

        let listener = TcpListener::bind(if rank.is_some() { "0.0.0.0:0" } else { "127.0.0.1:0" })?;
        let token = format!("{:032x}", rand::random::<u128>());
        let mut machine: Box<dyn Machine> = match &rank {
            None => Box::new(Local::default()),
            Some(rank) => {
                let agents = launcher::gather(rank, &out, &listener, &token, MEETING_PATIENCE)?;
                Box::new(Launched::new(agents, if standing.is_some() { 0 } else { most }))
            }
        };
        fit_processes(&mut scenarios, self.processes, machine.clients())?;
        if rank.is_none() {
            let started = if standing.is_some() { 0 } else { most };
            fit_machine(&scenarios, started)?;
        }

        let study = Study { root, via, standing, scratch: out.clone(), listener: &listener, token, stop };
        let bar = progress(runs.len(), results.done().len());
        for (number, run) in runs.iter().enumerate() {
            let scenario = &scenarios[run.scenario];
            bar.set_message(format!(
                "{}, {} I/O nodes, repetition {}",
                scenario.name, run.io_nodes, run.repetition
            ));
            match study.run(scenario, *run, number as u64, &mut *machine) {
                Ok(record) => results.add(&record).context("cannot write the results")?,
                Err(RunError::Interrupted) => {
                    bar.abandon_with_message("interrupted");
                    eprintln!(
                        "{number} of {} runs done and kept in {}; go on with --resume",
                        runs.len(),
                        self.out.display()
                    );
                    return Ok(ExitCode::from(130));
                }
                Err(e) => {
                    bar.abandon();
                    return Err(e.into());
                }
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        self.report(&results)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Refuses what would start or make more than any machine has room for.
    fn check(&self, scenarios: &[Scenario]) -> anyhow::Result<()> {
        let io_nodes = self.io_nodes.as_deref();
        scenario::check_io_nodes(io_nodes.unwrap_or_default()).map_err(anyhow::Error::msg)?;
        let all = runs(scenarios, io_nodes, self.repeat);
        if all > MOST_RUNS {
            bail!(
                "{all} runs (scenarios × numbers of I/O nodes × repetitions): at most {MOST_RUNS} are possible"
            );
        }
        Ok(())
    }

    fn standing(&self, root: &Path) -> anyhow::Result<Option<Standing>> {
        if self.nodes.is_empty() {
            return Ok(None);
        }
        let secret = self.secret.read()?.to_hex();
        let addresses = self.nodes.iter().map(|a| a.parse()).collect::<Result<_, _>>()?;
        let export = self.export.clone().unwrap_or_else(|| root.display().to_string());
        Ok(Some(Standing { addresses, secret, export }))
    }

    fn report(&self, results: &Results) -> anyhow::Result<()> {
        let csv = results.csv_path();
        let mut measurements = Measurements::default();
        measurements.add_csv(&csv.display().to_string(), File::open(&csv)?)?;
        let report = assess(&measurements, Rule::Described);
        let page = self.out.join("report.html");
        let names: Vec<_> =
            self.files.iter().filter_map(|f| f.file_stem()).map(|s| s.to_string_lossy()).collect();
        std::fs::write(&page, html(&report, &format!("I/O nodes: {}", names.join(", "))))?;
        print!("{}", text(&report));
        println!("\nresults: {}\nreport:  {}", self.out.join("results.csv").display(), page.display());
        Ok(())
    }
}

/// Puts every file of the scenarios below one directory and gives its name.
fn relocate(scenarios: &mut [Scenario], at: Option<&Path>) -> anyhow::Result<PathBuf> {
    let mut paths: Vec<&mut String> = Vec::new();
    for step in scenarios.iter_mut().flat_map(|s| &mut s.jobs).flat_map(|j| &mut j.steps) {
        match step {
            Step::Open(t) | Step::Close(t) => paths.push(&mut t.path),
            Step::Data(d) => paths.push(&mut d.target.path),
            Step::Metadata(m) => paths.push(&mut m.path),
            Step::Think(_) => {}
        }
    }
    let named = paths.iter().map(|p| Path::new(p.as_str())).find(|p| p.is_absolute()).and_then(Path::parent);
    let root = at.or(named).unwrap_or(Path::new("."));
    let root = root
        .canonicalize()
        .with_context(|| format!("{}: the directory for the scenario's files (see --at)", root.display()))?;
    for path in paths {
        let old = Path::new(path.as_str());
        if !old.is_absolute() {
            continue;
        }
        let below = old.strip_prefix(&root).ok().or(old.file_name().filter(|_| at.is_some()).map(Path::new));
        match below.and_then(Path::to_str) {
            Some(below) => *path = below.to_owned(),
            None => bail!("{path} is not below {}: say where files go with --at", root.display()),
        }
    }
    Ok(root)
}

/// FORGE's files leave the number of processes to the launcher; other scenarios must fit it.
fn fit_processes(
    scenarios: &mut [Scenario],
    processes: Option<u32>,
    room: Option<u32>,
) -> anyhow::Result<()> {
    for s in scenarios {
        if let [job] = &mut s.jobs[..]
            && job.name == "forge"
            && let Some(n) = processes.or(room)
        {
            job.compute_nodes = n;
        }
        let wanted: u32 = s.jobs.iter().map(|j| j.processes()).sum();
        if let Some(room) = room.filter(|room| wanted > *room) {
            bail!(
                "scenario {} has {wanted} processes, and the launcher started {room} besides the I/O nodes",
                s.name
            );
        }
        s.check().map_err(|e| anyhow::anyhow!("scenario {}: {e}", s.name))?;
    }
    Ok(())
}

/// Without a launcher everything runs here.
fn fit_machine(scenarios: &[Scenario], io_nodes: u32) -> anyhow::Result<()> {
    for s in scenarios {
        let clients = s.jobs.iter().fold(0u32, |sum, j| sum.saturating_add(j.processes()));
        if io_nodes.saturating_add(clients) > MOST_LOCAL {
            bail!(
                "scenario {} would start {io_nodes} I/O nodes and {clients} client processes on this machine: \
                 at most {MOST_LOCAL} together are possible (under srun or mpirun, more)",
                s.name
            );
        }
    }
    Ok(())
}

/// The preloaded library, as a file that all hosts see while the study runs.
struct Library(PathBuf);

impl Library {
    fn unpack(dir: &Path) -> anyhow::Result<Library> {
        let path = dir.join(format!(".libforebay-{}.so", std::process::id()));
        std::fs::write(&path, forebay_embed::PRELOAD)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Library(path))
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn progress(runs: usize, done: usize) -> ProgressBar {
    let bar = ProgressBar::new(runs as u64);
    let template = "{bar:30.cyan/dim} {pos}/{len} runs  {elapsed} gone, {eta} left  {wide_msg:.dim}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("━╸─"));
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    if done > 0 {
        bar.println(format!("{done} runs are done already"));
    }
    bar
}
