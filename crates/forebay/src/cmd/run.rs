//! `forebay run`: a program's I/O through I/O nodes: those of an arbiter, or some that live as long as
//! the program does.

mod job;
mod report_file;
mod signals;
pub(super) mod via;

use super::args;
use crate::arbiter::{SecretFile, from_environment};
use crate::output::{complain, sentence};
use crate::report::RunReport;
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum, ValueHint};
use forebay_client::{Client, Config, Error, ExportId, ExportMap, Fallback, Meta, Path, Target};
use forebay_control::client::Client as Arbiter;
use forebay_control::job::{JobGrant, JobRequest};
use forebay_embed::{At, Layer, LayerConfig, Note, Transport, write_config};
use forebay_sched::SchedulerConfig;
use job::Registered;
use report_file::ReportFile;
use signals::Signals;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};
use via::{Mounts, Route, Via};

/// How long the I/O nodes may take to say what they serve.
const TRY_EXPORTS_MS: u64 = 5000;

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
  forebay run --at /scratch --report run.json -- rsync -a /scratch/in/ /scratch/out/
  forebay run --arbiter http://login1:7410 --secret-file secret --at /scratch -- mpirun -n 8 ./app

Environment:
  FOREBAY_ARBITER              the arbiter, if --arbiter and --io-nodes are not given
  FOREBAY_SECRET_FILE          its secret, if --secret-file is not given

Environment of the program:
  LD_PRELOAD, FOREBAY_CONFIG   set for CMD and everything it starts

Exit status:
  that of CMD; 128 + N if it was killed by signal N; 127 if it could not be started; 125 if it was
  not started, since the I/O nodes could not be, or something that was asked for cannot be done.

Bytes read and written are decimal, as rates are (1 MB = 1,000,000 bytes); sizes of requests are
powers of two (1 KiB = 1,024 bytes).")]
pub(crate) struct Run {
    /// How many I/O nodes to start [default: 1].
    #[arg(long, value_name = "N", conflicts_with = "arbiter", value_parser = clap::value_parser!(u16).range(1..=256))]
    io_nodes: Option<u16>,
    /// Forward what is done below this directory. May be repeated; of directories within each other the
    /// innermost counts.
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
    #[arg(long, value_name = "NAME")]
    app: Option<String>,
    /// With an arbiter: the compute nodes that the job runs on.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    compute_nodes: u32,
    /// With an arbiter: the processes of the job.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    processes: u32,
    /// With an arbiter: what a MB/s of this job counts against one of another.
    #[arg(long, value_name = "W", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    weight: u32,
    /// With an arbiter: the access pattern, as the arbiter's table of curves names it, if you know
    /// better than the job's history.
    #[arg(long, value_name = "SCENARIO")]
    pattern: Option<String>,
    /// With an arbiter: how long to wait for it and for an I/O node.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = args::seconds(0.0))]
    wait: Duration,
    /// Write the report as JSON to this file as well.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    report: Option<PathBuf>,
    /// Do not print the report.
    #[arg(long, short)]
    quiet: bool,
    /// The longest a single call may take before it fails.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = args::seconds(0.1))]
    deadline: Duration,
    /// What a call does when no I/O node answers.
    #[arg(long, value_enum, default_value_t = OnFailure::Error)]
    fallback: OnFailure,
    /// How the program's calls are caught. `auto` takes the preload library where it reaches the
    /// program, and the mount where it does not (static, Go, 32-bit…).
    #[arg(long, value_enum, default_value_t = Via::Preload)]
    via: Via,
    /// How the program reaches the I/O nodes.
    #[arg(long, value_enum, default_value_t = Over::Unix)]
    transport: Over,
    /// The I/O nodes' request scheduler and its parameters, for example `hbrr:quantum=8`.
    #[arg(long, value_name = "SPEC")]
    scheduler: Option<SchedulerConfig>,
    /// The job's name in reports and shares [default: the program's name; with an arbiter, one that it
    /// makes up].
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
    /// The program and its arguments, after `--`.
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// `DIR[=EXPORT]`: as directories on this machine, and the name that the user wrote.
#[derive(Clone)]
struct Forward {
    at: At,
    name: Option<String>,
}

impl std::str::FromStr for Forward {
    type Err = String;

    fn from_str(text: &str) -> Result<Forward, String> {
        let name = text.split_once('=').map(|(_, name)| name.to_owned());
        Ok(Forward { at: text.parse()?, name })
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum OnFailure {
    /// It fails with EIO.
    Error,
    /// It goes to the directory on this machine.
    Direct,
}

#[derive(Clone, Copy, ValueEnum)]
enum Over {
    /// A Unix socket.
    Unix,
    /// TCP on loopback.
    Tcp,
}

impl Run {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let refused = |e: anyhow::Error| {
            complain(&sentence(&e));
            Ok(ExitCode::from(125))
        };
        let signals = Signals::watch()?;
        let report_file = match self.report.as_deref().map(ReportFile::open).transpose() {
            Ok(file) => file,
            Err(e) => return refused(e),
        };
        let direct = matches!(self.fallback, OnFailure::Direct);
        let chosen = Route::choose(self.via, &self.command, direct);
        let (route, (mut layer, registered)) = match chosen.and_then(|route| Ok((route, self.start()?))) {
            Ok(started) => started,
            Err(e) => return refused(e),
        };
        let started = Instant::now();
        let mut mounts = None;
        let mut child = match signals.start(|| self.spawn(&layer, &route, &mut mounts)) {
            Ok(child) => child,
            Err(e) => {
                complain(&format!("cannot run {}: {e}", self.command[0].display()));
                return Ok(ExitCode::from(if route.mount { 125 } else { 127 }));
            }
        };
        let status = signals.wait(&mut child)?;
        drop(mounts);
        let seconds = started.elapsed().as_secs_f64();
        let operations = layer.operations();
        let nodes = layer.stop();
        drop(registered);
        let mut notes = layer.notes();
        if !route.mount {
            notes.extend(self.uncovered());
        }
        let report = RunReport::new(&self.command, status, seconds, layer.config(), operations, nodes, notes)
            .through(if route.mount { "mount" } else { "preload" }, route.why);
        drop(layer);
        if !self.quiet {
            // Nobody may be listening any more; the exit status still counts.
            let _ = std::io::Write::write_all(&mut std::io::stderr(), report.to_string().as_bytes());
        }
        if let Some(file) = report_file
            && let Err(e) =
                serde_json::to_vec_pretty(&report).map_err(Into::into).and_then(|j| file.write(&j))
        {
            // The job's status is the one that counts.
            complain(&format!("the report could not be written: {e}"));
        }
        Ok(ExitCode::from(exit_code(status)))
    }

    /// What CMD needs, and the job if there is an arbiter.
    fn start(&self) -> Result<(Layer, Option<Registered>)> {
        if let Some(outer) = std::env::var_os("FOREBAY_CONFIG").filter(|v| !v.is_empty()) {
            bail!(
                "this is run by another `forebay run` already ({}), and two cannot both forward: give every \
                 directory to one of them with an --at of its own",
                outer.display()
            );
        }
        let environment = || from_environment().filter(|_| self.io_nodes.is_none());
        let (layer, registered) = match self.arbiter.clone().or_else(environment) {
            Some(urls) => {
                let registered = self.register(&urls)?;
                let config = self.client_config(&registered.grant)?;
                self.try_exports(&config)?;
                let layer = Layer::attach(config)?;
                let (file, config) = (layer.client_config(), layer.config().clone());
                registered.when_changed(move |grant, down| {
                    let mut config = Config { down: down.to_vec(), ..config.clone() };
                    // A process that starts with an old mapping is told on its first connection.
                    if place(&mut config, grant).is_ok() {
                        let _ = write_config(&file, &config);
                    }
                });
                (layer, Some(registered))
            }
            None => (self.start_nodes()?, None),
        };
        layer.write_preload()?;
        Ok((layer, registered))
    }

    fn start_nodes(&self) -> Result<Layer> {
        let mut node_args = Vec::new();
        if let Some(s) = &self.scheduler {
            node_args.extend(["--scheduler".to_owned(), s.to_string()]);
        }
        Ok(Layer::start(&LayerConfig {
            program: std::env::current_exe().context("cannot find this program's own file")?,
            io_nodes: self.io_nodes.unwrap_or(1).into(),
            at: self.at.iter().map(|f| f.at.clone()).collect(),
            transport: match self.transport {
                Over::Unix => Transport::Unix,
                Over::Tcp => Transport::Tcp,
            },
            deadline: self.deadline,
            fallback: self.fallback(),
            node_args,
            job: self.job.clone().unwrap_or_else(|| self.program()),
        })?)
    }

    fn register(&self, urls: &str) -> Result<Registered> {
        let user = std::env::var("USER").unwrap_or_else(|_| rustix::process::getuid().as_raw().to_string());
        let request = JobRequest {
            id: self.job.clone().unwrap_or_default(),
            app: self.app.clone().unwrap_or_else(|| self.program()),
            user,
            compute_nodes: self.compute_nodes,
            processes: self.processes,
            weight: self.weight,
            secret: None,
            explore: true,
            pattern: self.pattern.clone(),
        };
        let arbiter = Arbiter::new(urls, Some(self.secret.read()?))?;
        Registered::new(arbiter, request, self.wait)
    }

    fn client_config(&self, grant: &JobGrant) -> Result<Config> {
        let export = |f: &Forward| {
            let export = f.name.clone().unwrap_or_else(|| f.at.dir.display().to_string());
            // Where the export's path is there on this machine too, it is the same directory.
            let local = std::path::Path::new(&export);
            let local = (local.is_absolute() && local.is_dir()).then(|| local.to_owned());
            ExportMap { dir: f.at.dir.clone(), export, local }
        };
        let secret = grant.secret.as_ref().context("the arbiter gave the job no secret")?;
        let mut config = Config {
            exports: self.at.iter().map(export).collect(),
            deadline_ms: self.deadline.as_millis() as u64,
            fallback: self.fallback(),
            ..Config::new(&grant.id, secret, Vec::new())
        };
        place(&mut config, grant)?;
        Ok(config)
    }

    /// Whether the I/O nodes serve the directories under the names that were given: a mistake there must
    /// not be found by the program, call by call.
    fn try_exports(&self, config: &Config) -> Result<()> {
        let deadline_ms = config.deadline_ms.min(TRY_EXPORTS_MS);
        let client = Client::new(Config { deadline_ms, ..config.clone() }, None)?;
        for (i, map) in config.exports.iter().enumerate() {
            let root = Path { export: ExportId(i as u16), rel: b"" };
            let tried = client.meta(Meta::Stat { target: Target::Path(root) }, |_| Some(()));
            match tried {
                Err(e @ Error::NoNode { .. }) if config.fallback == Fallback::Direct => {
                    complain(&format!("going on without I/O nodes (--fallback direct): {e}"));
                    break;
                }
                other => other.with_context(|| format!("--at {}", map.dir.display()))?,
            }
        }
        client.leave();
        Ok(())
    }

    fn fallback(&self) -> Fallback {
        match self.fallback {
            OnFailure::Error => Fallback::Error,
            OnFailure::Direct => Fallback::Direct,
        }
    }

    /// CMD itself is started from here, where no library looks at what it is.
    fn uncovered(&self) -> Option<Note> {
        let found = forebay_program::inspect(&self.command[0]).ok()?;
        let (file, reason) = (found.interpreter.unwrap_or(found.path), found.uncovered?);
        Some(Note {
            kind: reason.kind().into(),
            path: file.display().to_string(),
            why: reason.why().into(),
            program: self.program(),
            count: 1,
        })
    }

    /// The program's name.
    fn program(&self) -> String {
        let name = PathBuf::from(&self.command[0]);
        name.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn spawn(&self, layer: &Layer, route: &Route, mounts: &mut Option<Mounts>) -> std::io::Result<Child> {
        if route.mount {
            let (child, served) =
                via::spawn(layer, &self.command).map_err(|e| std::io::Error::other(sentence(&e)))?;
            *mounts = Some(served);
            return Ok(child);
        }
        let mut preload = layer.dir().join("libforebay.so").into_os_string();
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|v| !v.is_empty()) {
            preload.push(":");
            preload.push(others);
        }
        Command::new(&self.command[0])
            .args(&self.command[1..])
            .env("LD_PRELOAD", preload)
            .env("FOREBAY_CONFIG", layer.client_config())
            .spawn()
    }
}

/// Puts a job where the arbiter wants it.
fn place(config: &mut Config, grant: &JobGrant) -> Result<()> {
    let address = |text: &String| text.parse().with_context(|| format!("the arbiter gave {text:?}"));
    config.nodes = grant.addresses.iter().map(address).collect::<Result<_>>()?;
    config.spare = grant.spare.iter().map(address).collect::<Result<_>>()?;
    config.epoch = grant.epoch;
    Ok(())
}

fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128u8.wrapping_add(signal as u8),
        (None, None) => 1,
    }
}
