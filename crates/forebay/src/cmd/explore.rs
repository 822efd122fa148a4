//! `forebay explore`: runs scenarios with different numbers of I/O nodes. The hidden command
//! `explore-worker` is what its client processes run.

use crate::arbiter::SecretFile;
use anyhow::Context;
use forebay_explore::analysis::{Measurements, Rule, assess, html, text};
use forebay_explore::derived::{Derived, NoScenario};
use forebay_explore::run::launcher::{self, Rank};
use forebay_explore::run::machine::serve_agent;
use forebay_explore::run::{
    Ending, MEETING_PATIENCE, Request, Results, Standing, TOKEN_VARIABLE, Watch, drive, work,
};
use forebay_explore::scenario::{self, MAX_REPETITIONS};
use forebay_explore::{darshan, trace};
use forebay_sched::SchedulerConfig;
use forebay_types::input;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::net::SocketAddr;
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
    #[arg(long, value_name = "N", value_parser = crate::cmd::args::count::<u32>(1..=MAX_REPETITIONS))]
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

    /// With --resume, where the study was interrupted and could not remove its files: remove whatever has their names.
    #[arg(long, requires = "resume")]
    clean: bool,

    /// Client processes for FORGE's files, which leave it to mpirun. Default: one per I/O node, or
    /// all client ranks of the launcher.
    #[arg(long, value_name = "N", value_parser = crate::cmd::args::count::<u32>(1..=scenario::MAX_PROCESSES))]
    processes: Option<u32>,

    /// I/O nodes that already run (tcp:HOST:PORT or unix:PATH); a run with N takes the first N.
    #[arg(long, value_delimiter = ',', value_name = "ADDRESS,…")]
    nodes: Vec<String>,

    #[command(flatten)]
    secret: SecretFile,

    /// The name under which --nodes export the directory. Default: the directory's path.
    #[arg(long, value_name = "NAME", requires = "nodes")]
    export: Option<String>,

    /// How clients reach the I/O nodes: through the client library, or as plain POSIX programs under
    /// the preloaded library.
    #[arg(long, default_value = "client", value_parser = ["client", "preload"])]
    via: String,

    /// Seed of the random order of runs.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = crate::cmd::args::seed)]
    seed: u64,

    #[command(subcommand)]
    other: Option<Other>,
}

#[derive(clap::Subcommand)]
enum Other {
    /// Derive a scenario from a Darshan log.
    ///
    /// Number of processes, shared files or files of their own, request sizes, order and volume come from
    /// the log's POSIX records (format 3.10 and later). What was written comes first, then what was read.
    FromDarshan(From),
    /// Derive a scenario from a trace of `forebay run --record`.
    ///
    /// A phase ends where no process does I/O for ten times as long as is usual between the calls, and at least
    /// for 0.1 s. For each phase it is found out which processes take part, whether they share files, in which
    /// order they go through them, and by which sizes. What scenarios have no words for is said; with --output
    /// the phases are printed as a table, which without it is a comment in the scenario.
    FromTrace(From),
}

#[derive(clap::Args)]
struct From {
    /// What the program did: the log or the trace.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Where the scenario goes; without it, to the terminal.
    #[arg(long, short, alias = "out", value_name = "FILE.toml")]
    output: Option<PathBuf>,
    /// Instead of the scenario: the bandwidth to expect with each number of I/O nodes, by curves as `analyze` reads them.
    #[arg(long, value_name = "CURVES.csv")]
    predict: Option<PathBuf>,
}

impl From {
    fn run(self, derived: fn(&Path) -> Result<Derived, NoScenario>) -> anyhow::Result<ExitCode> {
        let derived = derived(&self.file)?;
        let text = self.predict.map_or_else(|| Ok(derived.to_toml()), |curves| derived.predict(&curves))?;
        match &self.output {
            None => print!("{text}"),
            Some(path) => {
                forebay_lab::can_write(path, &[self.file])?;
                forebay_lab::put(path, text)?;
                print!("{}", derived.found);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
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
const END_LIMIT: Duration = Duration::from_millis(500);

impl Explore {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.other {
            Some(Other::FromDarshan(from)) => return from.run(darshan::derived),
            Some(Other::FromTrace(from)) => return from.run(trace::derived),
            None => {}
        }
        forebay_run::not_within()?;
        let rank = Rank::detect(|name| std::env::var(name).ok());
        let results = || -> anyhow::Result<PathBuf> {
            let made = std::fs::create_dir_all(&self.out).and_then(|()| self.out.canonicalize());
            made.with_context(|| format!("cannot make {}", self.out.display()))
        };
        if let Some(r) = rank.as_ref().filter(|r| r.rank > 0) {
            serve_agent(launcher::join(r, &results()?, MEETING_PATIENCE)?)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut scenarios = Vec::new();
        for file in &self.files {
            scenarios.extend(scenario::load(file)?);
        }
        for scenario in &scenarios {
            let spec = scenario.scheduler.as_deref().map(str::parse::<SchedulerConfig>).transpose();
            spec.with_context(|| format!("scenario {}", scenario.name))?;
        }
        let out = results()?;

        // From here on Ctrl-C ends in order; what does not heed it in time is ended with the process.
        let stop = forebay_embed::stop_when_interrupted(END_LIMIT).context("cannot watch for Ctrl-C")?;
        let request = Request {
            scenarios,
            io_nodes: self.io_nodes.as_deref(),
            repetitions: self.repeat,
            at: self.at.as_deref(),
            out: &out,
            resume: self.resume,
            clean: self.clean,
            processes: self.processes,
            standing: self.standing()?,
            preload: (self.via == "preload").then_some(forebay_embed::PRELOAD),
            seed: self.seed,
            rank,
            stop,
        };
        let bar = Bar(ProgressBar::hidden());
        let kept = self.out.display().to_string();
        forebay_embed::before_exit("say how to go on", move || {
            eprintln!(
                "interrupted; what is done is kept in {kept}: go on with --resume (and --clean, if the last run had no time to \
                 remove its files)"
            );
        });
        match drive(request, &bar)? {
            Ending::Complete(results) => {
                bar.0.finish_and_clear();
                self.report(&results)?;
                Ok(ExitCode::SUCCESS)
            }
            Ending::Interrupted { done, of } => {
                bar.0.abandon_with_message("interrupted");
                eprintln!("{done} of {of} runs done and kept in {}; go on with --resume", self.out.display());
                Ok(ExitCode::from(forebay_embed::interrupted_status()))
            }
        }
    }

    fn standing(&self) -> anyhow::Result<Option<Standing>> {
        if self.nodes.is_empty() {
            return Ok(None);
        }
        let secret = self.secret.read()?.to_hex();
        let addresses = self.nodes.iter().map(|a| a.parse()).collect::<Result<_, _>>()?;
        Ok(Some(Standing { addresses, secret, export: self.export.clone() }))
    }

    fn report(&self, results: &Results) -> anyhow::Result<()> {
        let csv = results.csv_path();
        let mut measurements = Measurements::default();
        let name = csv.display().to_string();
        let table = input::open(&csv).with_context(|| format!("cannot open {name}"))?;
        measurements.add_csv(&name, table)?;
        let report = assess(&measurements, Rule::Described);
        let page = self.out.join("report.html");
        let names: Vec<_> =
            self.files.iter().filter_map(|f| f.file_stem()).map(|s| s.to_string_lossy()).collect();
        forebay_lab::put(&page, html(&report, &format!("I/O nodes: {}", names.join(", "))))?;
        print!("{}", text(&report));
        println!("\nresults: {}\nreport:  {}", self.out.join("results.csv").display(), page.display());
        Ok(())
    }
}

/// The study's progress on the terminal.
struct Bar(ProgressBar);

impl Watch for Bar {
    fn begin(&self, runs: usize, done: usize) {
        let template = "{bar:30.cyan/dim} {pos}/{len} runs  {elapsed} gone, {eta} left  {wide_msg:.dim}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.0.set_style(style.progress_chars("━╸─"));
        }
        self.0.set_length(runs as u64);
        self.0.set_draw_target(ProgressDrawTarget::stderr());
        self.0.reset();
        self.0.enable_steady_tick(Duration::from_millis(200));
        if done > 0 {
            self.0.println(format!("{done} runs are done already"));
        }
    }

    fn doing(&self, what: String) {
        self.0.set_message(what);
    }

    fn advance(&self) {
        self.0.inc(1);
    }
}
