//! `forebay run`: a program's I/O through I/O nodes: those of an arbiter, or some that live as long as
//! the program does.

use super::args;
use super::mount::Keep;
use crate::arbiter::{SecretFile, from_environment};
use crate::output::{complain, sentence};
use anyhow::{Result, bail};
use clap::{Args, ValueEnum, ValueHint};
use forebay_client::Fallback;
use forebay_control::job::JobRequest;
use forebay_embed::Transport;
use forebay_run::launch::{IoHosts, Plan, Several};
use forebay_run::{Ended, Forward, IoNodes, NotRun, Program, ReportFile, RunFiles, Signals, Via};
use forebay_sched::SchedulerConfig;
use forebay_types::{Protect, names};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Run a program with its I/O forwarded.
///
/// Starts I/O nodes on this machine, runs CMD so that everything it does below DIR goes through
/// them, and ends with CMD's exit status and a report: what was done, how long it took, and what
/// was not forwarded and why. CMD needs no changes; its child processes are covered too.
///
/// DIR is the path the program uses, EXPORT the directory that serves it (by default the same one).
/// DIR need not exist on this machine, or may be empty: the program sees EXPORT's files there.
///
/// Nothing is left behind: the I/O nodes and their files go when CMD has ended, also after Ctrl-C.
///
/// With `--arbiter` no I/O nodes are started: the job is registered with the arbiter, which gives it
/// some of its own and may move it to others while CMD runs; EXPORT is the name under which those export
/// the directory. CMD does not notice when the arbiter is gone for a while.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  forebay run --at /scratch -- ./simulation input.nml
  forebay run --io-nodes 2 --at /scratch -- mpirun -n 4 ./app
  forebay run --io-nodes 2 --at /data=/mnt/pfs/project -- make -j4 -C /data/src
  forebay run --at /scratch --report run.json -- \\
      rsync -a /scratch/in/ /scratch/out/
  forebay run --at /scratch --strict -- mpirun --host c1,c2,c3 -n 6 ./app
  forebay run --io-nodes 2 --io-hosts dedicated --at /scratch -- \\
      srun -n 64 ./app
  forebay run --arbiter https://login1:7410 --secret-file secret \\
      --at /scratch -- mpirun -n 8 ./app

Environment:
  FOREBAY_ARBITER              the arbiter, if --arbiter and --io-nodes are not given
  FOREBAY_SECRET_FILE          its secret, if --secret-file is not given

Environment of the program:
  LD_PRELOAD, FOREBAY_CONFIG   set for CMD and everything it starts

Exit status:
  that of CMD; 128 + N if signal N killed it; 127 if it was not found, 126 if not executable; 125 if
  not started: the I/O nodes could not be, or what was asked for is wrong or cannot be done.

Bytes read and written are decimal, as rates are (1 MB = 1,000,000 bytes); sizes of requests are
powers of two (1 KiB = 1,024 bytes).")]
pub(crate) struct Run {
    /// How many I/O nodes to start [default: 1].
    #[arg(long, value_name = "N", conflicts_with = "arbiter", value_parser = args::count::<u16>(1..=256))]
    io_nodes: Option<u16>,
    /// Start them on other hosts: `dedicated` ones of the allocation, which CMD then does not use, hosts
    /// `shared` with CMD, or these (`io1,io[2-4]`).
    #[arg(long, value_name = "WHERE", conflicts_with = "arbiter")]
    io_hosts: Option<IoHosts>,
    /// What starts them there: `AGENT HOST COMMAND` [default: srun in a Slurm job, else what the launcher
    /// is told to use, else ssh].
    #[arg(long, value_name = "AGENT", requires = "io_hosts")]
    agent: Option<String>,
    /// For CMD on several hosts: a directory that all of them see, in which a private one is made, and
    /// removed at the end [default: ~/.forebay, where CMD names other hosts].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    share: Option<PathBuf>,
    /// Do not start CMD if a rank of it would not be forwarded: the launcher starts a shell in place of each
    /// first.
    #[arg(long)]
    strict: bool,
    /// Forward what is done below this directory. May be repeated; of directories within each other the
    /// innermost counts. A `=` that belongs to a name is written `\=`.
    #[arg(long, value_name = "DIR[=EXPORT]", required = true, value_hint = ValueHint::DirPath)]
    at: Vec<Forward>,
    /// Use the I/O nodes of this arbiter instead of starting some; with several addresses, separated by
    /// commas, of whichever leads.
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    arbiter: Option<String>,
    #[command(flatten)]
    secret: SecretFile,
    /// With an arbiter: the application, whose next run is predicted from this one [default: the
    /// program's name].
    #[arg(long, value_name = "NAME", value_parser = args::job)]
    app: Option<String>,
    /// With an arbiter: the compute nodes that the job runs on [default: as the launcher's options or the
    /// batch system say].
    #[arg(long, value_name = "N", value_parser = args::count::<u32>(1..=1_000_000))]
    compute_nodes: Option<u32>,
    /// With an arbiter: the processes of the job [default: likewise].
    #[arg(long, value_name = "N", value_parser = args::count::<u32>(1..=100_000_000))]
    processes: Option<u32>,
    /// With an arbiter: what a MB/s of this job counts against one of another [default: 1].
    #[arg(long, value_name = "W", value_parser = args::count::<u32>(1..=1_000_000))]
    weight: Option<u32>,
    /// With an arbiter: the access pattern, as the arbiter's table of curves names it, if you know
    /// better than the job's history.
    #[arg(long, value_name = "SCENARIO")]
    pattern: Option<String>,
    /// With an arbiter: how long to wait for it and for an I/O node [default: 30].
    #[arg(long, value_name = "SECONDS", value_parser = args::seconds(0.0))]
    wait: Option<Duration>,
    /// Write the report as JSON to this file as well.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    report: Option<PathBuf>,
    /// Write what is done with each file to this file, as a log of Darshan's POSIX module.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    darshan: Option<PathBuf>,
    /// Write every call below DIR to this file, for `forebay explore from-trace`: who did what with which file, where,
    /// when and for how long. The first 2,097,152 records of a host are kept, and what is left out is counted. Not
    /// under the mount.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    record: Option<PathBuf>,
    /// Show what the program does below what it says; without a terminal, say it every second on standard error.
    #[arg(long)]
    watch: bool,
    /// Do not print the report.
    #[arg(long, short)]
    quiet: bool,
    /// The longest a single call may take before it fails.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = args::seconds(0.1))]
    deadline: Duration,
    /// What a call does when no I/O node answers.
    #[arg(long, value_enum, default_value_t = OnFailure::Error)]
    fallback: OnFailure,
    /// Protect what goes to and from I/O nodes on other hosts, at least so: `integrity` notices what was changed
    /// on the way, `privacy` encrypts it, too. I/O nodes may ask for more (`forebay node --protect`).
    #[arg(long, value_name = "HOW", default_value_t = Protect::None)]
    protect: Protect,
    /// How the program's calls are caught. `auto` takes the preload library where it reaches the
    /// program, and the mount where it does not (static, Go, 32-bit…).
    #[arg(long, value_enum, default_value_t = CaughtBy::Auto)]
    via: CaughtBy,
    /// What may be kept of the files. With anything but `strict` and `synchronous` the calls are caught by
    /// the mount (`--via mount` or `auto`); see `forebay mount --help`.
    #[arg(long, value_enum, default_value_t = Keep::Strict)]
    contract: Keep,
    /// How the program reaches the I/O nodes that it starts [default: unix].
    #[arg(long, value_enum)]
    transport: Option<Over>,
    /// The I/O nodes' request scheduler and its parameters, for example `hbrr:quantum=8`.
    #[arg(long, value_name = "SPEC")]
    scheduler: Option<SchedulerConfig>,
    /// The job's name in reports and shares [default: the program's name; with an arbiter, one that it
    /// makes up].
    #[arg(long, value_name = "NAME", value_parser = args::job)]
    job: Option<String>,
    /// The program and its arguments, after `--`.
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, ValueEnum)]
enum OnFailure {
    /// It fails with EIO.
    Error,
    /// It goes to the directory on this machine.
    Direct,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Over {
    /// A Unix socket.
    Unix,
    /// TCP on loopback.
    Tcp,
}

impl From<Over> for Transport {
    fn from(over: Over) -> Transport {
        match over {
            Over::Unix => Transport::Unix,
            Over::Tcp => Transport::Tcp,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum CaughtBy {
    /// By a library that is loaded into it.
    Preload,
    /// By a file system that is mounted for it alone.
    Mount,
    /// By the library where it reaches the program, else by the mount.
    Auto,
}

/// How long an arbiter and its I/O nodes are waited for.
const PATIENCE: Duration = Duration::from_secs(30);

impl Run {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let done = Signals::watch().map_err(NotRun::from).and_then(|signals| self.carry_out(&signals));
        let (ended, report_file) = match done {
            Ok(done) => done,
            Err(NotRun { code, why }) => {
                complain(&sentence(&why));
                return Ok(ExitCode::from(code));
            }
        };
        if !self.quiet {
            // Nobody may be listening any more; the exit status still counts.
            let _ = std::io::Write::write_all(
                &mut std::io::stderr(),
                names::shown(&ended.report.to_string()).as_bytes(),
            );
        }
        if let Some(file) = report_file {
            let name = file.path().display().to_string();
            let json = serde_json::to_vec_pretty(&ended.report).map_err(Into::into);
            // The job's status is the one that counts.
            let failed = json.and_then(|j| file.write(&j)).err();
            failed
                .into_iter()
                .for_each(|e| complain(&format!("the report could not be written to {name}: {e}")));
        }
        Ok(ExitCode::from(ended.code))
    }

    fn carry_out(&self, signals: &Signals) -> Result<(Ended, Option<ReportFile>), NotRun> {
        let [report, darshan, record] = [&self.report, &self.darshan, &self.record].map(Option::as_deref);
        let RunFiles { report, darshan, record } =
            RunFiles::open(report, darshan, record, self.secret.path().as_deref())?;
        let plan = Plan::of(&self.command);
        let app = plan.app();
        let io_nodes = self.io_nodes(&plan)?;
        let program = Program {
            plan,
            several: Several {
                share: self.share.clone(),
                io_hosts: self.io_hosts.clone(),
                agent: self.agent.clone(),
                strict: self.strict,
            },
            at: self.at.clone(),
            via: match self.via {
                CaughtBy::Preload => Via::Preload,
                CaughtBy::Mount => Via::Mount,
                CaughtBy::Auto => Via::Auto,
            },
            contract: self.contract.into(),
            joins: self.contract.joins(),
            deadline: self.deadline,
            fallback: match self.fallback {
                OnFailure::Error => Fallback::Error,
                OnFailure::Direct => Fallback::Direct,
            },
            protect: self.protect,
            job: self.job.clone().unwrap_or(app),
            warn: complain,
            watch: self.watch.then_some(complain),
            darshan,
            record,
        };
        Ok((program.run(io_nodes, signals)?, report))
    }

    fn io_nodes(&self, plan: &Plan) -> Result<IoNodes> {
        let environment = || from_environment().filter(|_| self.io_nodes.is_none());
        let Some(urls) = self.arbiter.clone().or_else(environment) else {
            let given = [
                ("--app", self.app.is_some()),
                ("--compute-nodes", self.compute_nodes.is_some()),
                ("--processes", self.processes.is_some()),
                ("--weight", self.weight.is_some()),
                ("--pattern", self.pattern.is_some()),
                ("--wait", self.wait.is_some()),
                ("--secret-file", self.secret.is_given()),
            ];
            if let Some((option, _)) = given.iter().find(|(_, given)| *given) {
                bail!("{option} is for jobs of an arbiter: give --arbiter, or leave it out");
            }
            return Ok(IoNodes::Own {
                number: self.io_nodes.unwrap_or(1).into(),
                transport: self.transport.unwrap_or(Over::Unix).into(),
                scheduler: self.scheduler.as_ref().map(ToString::to_string),
            });
        };
        let given = [("--scheduler", self.scheduler.is_some()), ("--transport", self.transport.is_some())];
        if let Some((option, _)) = given.iter().find(|(_, given)| *given) {
            bail!("{option} is for I/O nodes that this run starts: those of the arbiter have their own");
        }
        let batch = &plan.batch;
        // Several programs of one batch job are jobs of their own.
        let id = || batch.id.as_ref().map(|id| format!("{id}.{}", std::process::id())).unwrap_or_default();
        let (site, id) = (self.secret.find()?, self.job.clone().unwrap_or_else(id));
        let told = plan.request(self.share.is_some());
        let request = JobRequest {
            // One that `forebay join` can make too.
            secret: site.filter(|_| !id.is_empty()).map(|s| forebay_run::job_secret(&s, &id).to_hex()),
            id,
            app: self.app.clone().unwrap_or(told.app),
            compute_nodes: self.compute_nodes.unwrap_or(told.compute_nodes),
            processes: self.processes.unwrap_or(told.processes),
            weight: self.weight.unwrap_or(1),
            pattern: self.pattern.clone(),
            ..told
        };
        let arbiter = self.secret.client(&urls)?;
        Ok(IoNodes::Arbiter { arbiter, request: Box::new(request), patience: self.wait.unwrap_or(PATIENCE) })
    }
}

/// The process that becomes the program: it goes into the namespace first. Without a program it only
/// finds out whether that is possible.
#[derive(Args)]
pub(crate) struct Inside {
    #[arg(long)]
    socket: Option<PathBuf>,
    #[arg(long, requires = "socket")]
    stage: Option<PathBuf>,
    #[arg(long)]
    dir: Vec<PathBuf>,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Keeps what processes of a run that has ended go on with, as long as they do.
#[derive(Args)]
pub(crate) struct Rest {
    config: PathBuf,
    /// The run has not ended: its input does with it.
    #[arg(long)]
    stand_by: bool,
}

impl Rest {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.stand_by {
            true => forebay_run::stand_by(&self.config)?,
            false => forebay_run::rest(&self.config)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Inside {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let (code, why) =
            forebay_run::inside(self.socket.as_deref(), self.stage.as_deref(), &self.dir, &self.command)?;
        if let Some(why) = why {
            complain(&why);
        }
        Ok(ExitCode::from(code))
    }
}
