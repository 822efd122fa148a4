//! One run of a program: what it needs is made, the program is started, waited for, and everything is
//! ended again.

use crate::registration::Registered;
use crate::route::{self, Mounts, Route, Via};
use crate::watch::Watcher;
use crate::{RunReport, Signals};
use anyhow::{Context, Result, bail};
use forebay_client::{Client, Config, Error, ExportId, ExportMap, Fallback, Meta, Path, Target};
use forebay_control::client::Client as Arbiter;
use forebay_control::job::{JobGrant, JobRequest};
use forebay_embed::{At, Layer, LayerConfig, Note, Transport, write_config};
use forebay_mount::Contract;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// How long the I/O nodes may take to say what they serve.
const TRY_EXPORTS_MS: u64 = 5000;

/// `DIR[=EXPORT]`: as directories on this machine, and the name that the user wrote.
#[derive(Clone, Debug)]
pub struct Forward {
    at: At,
    name: Option<String>,
}

impl FromStr for Forward {
    type Err = String;

    fn from_str(text: &str) -> Result<Forward, String> {
        let name = text.split_once('=').map(|(_, name)| name.to_owned());
        Ok(Forward { at: text.parse()?, name })
    }
}

/// Whose I/O nodes a run uses.
pub enum IoNodes {
    /// Some that live as long as the program.
    Own {
        /// How many.
        number: usize,
        /// How the program reaches them.
        transport: Transport,
        /// Their request scheduler, if not the usual one.
        scheduler: Option<String>,
    },
    /// Those that an arbiter gives.
    Arbiter {
        /// Who gives them.
        arbiter: Arbiter,
        /// To which job.
        request: JobRequest,
        /// How long to wait for it and for an I/O node.
        patience: Duration,
    },
}

/// A program to run with its I/O forwarded.
pub struct Program {
    /// The program and its arguments: at least one.
    pub command: Vec<OsString>,
    /// What is forwarded.
    pub at: Vec<Forward>,
    /// How the program's calls are caught.
    pub via: Via,
    /// What may be kept of the files; anything but `Strict` under the mount alone.
    pub contract: Contract,
    /// The longest a single call may take.
    pub deadline: Duration,
    /// What a call does when no I/O node answers.
    pub fallback: Fallback,
    /// The job's name in reports and shares.
    pub job: String,
    /// Told what a person should know before the program starts.
    pub warn: fn(&str),
    /// Told every second what the program does.
    pub watch: Option<fn(&str)>,
}

/// How a run ended.
pub struct Ended {
    /// What the program did.
    pub report: RunReport,
    /// Its exit status, or 128 + N if signal N killed it.
    pub code: u8,
}

/// The program did not run.
#[derive(Debug)]
pub struct NotRun {
    /// The exit status that says so: 125, or 127 where the program itself could not be started.
    pub code: u8,
    /// Why.
    pub why: anyhow::Error,
}

impl From<anyhow::Error> for NotRun {
    fn from(why: anyhow::Error) -> NotRun {
        NotRun { code: 125, why }
    }
}

/// The program's name: the last part of its path.
pub fn name(command: &[OsString]) -> String {
    let path = command.first().map(PathBuf::from).unwrap_or_default();
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

impl Program {
    /// Runs it to its end. What was started for it ends with it.
    pub fn run(&self, io_nodes: IoNodes, signals: &Signals) -> Result<Ended, NotRun> {
        let route = Route::choose(self.via, &self.command, self.fallback == Fallback::Direct, self.contract)?;
        let (mut layer, registered) = self.start(io_nodes)?;
        let started = Instant::now();
        let mut mounts = None;
        let mut child = signals.start(|| self.spawn(&layer, &route, &mut mounts)).map_err(|e| NotRun {
            code: if route.mount { 125 } else { 127 },
            why: e.context(format!("cannot run {}", self.command[0].display())),
        })?;
        // The job's own name: the arbiter may have made it up.
        let watcher = self.watch.map(|say| Watcher::start(layer.counters(), &layer.config().job, say));
        let status = signals.wait(&mut child)?;
        drop(watcher);
        let changed = mounts.as_ref().map(Mounts::notes).unwrap_or_default();
        drop(mounts);
        let seconds = started.elapsed().as_secs_f64();
        let operations = layer.operations();
        let nodes = layer.stop();
        drop(registered);
        let mut notes = layer.notes();
        notes.extend(changed);
        if !route.mount {
            notes.extend(self.uncovered());
        }
        let report = RunReport::new(&self.command, status, seconds, layer.config(), operations, nodes, notes)
            .through(if route.mount { "mount" } else { "preload" }, route.why);
        Ok(Ended { report, code: exit_code(status) })
    }

    /// What the program needs, and the job if there is an arbiter.
    fn start(&self, io_nodes: IoNodes) -> Result<(Layer, Option<Registered>)> {
        if let Some(outer) = std::env::var_os("FOREBAY_CONFIG").filter(|v| !v.is_empty()) {
            bail!(
                "this is run by another `forebay run` already ({}), and two cannot both forward: give every \
                 directory to one of them with an --at of its own",
                outer.display()
            );
        }
        let (layer, registered) = match io_nodes {
            IoNodes::Arbiter { arbiter, request, patience } => {
                let registered = Registered::new(arbiter, request, patience)?;
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
            IoNodes::Own { number, transport, scheduler } => {
                let node_args = scheduler.map_or(Vec::new(), |s| vec!["--scheduler".to_owned(), s]);
                let layer = Layer::start(&LayerConfig {
                    program: std::env::current_exe().context("cannot find this program's own file")?,
                    io_nodes: number,
                    at: self.at.iter().map(|f| f.at.clone()).collect(),
                    transport,
                    deadline: self.deadline,
                    fallback: self.fallback,
                    node_args,
                    job: self.job.clone(),
                })?;
                (layer, None)
            }
        };
        layer.write_preload()?;
        Ok((layer, registered))
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
            fallback: self.fallback,
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
                    (self.warn)(&format!("going on without I/O nodes (--fallback direct): {e}"));
                    break;
                }
                other => other.with_context(|| format!("--at {}", map.dir.display()))?,
            }
        }
        client.leave();
        Ok(())
    }

    /// The program itself is started from here, where no library looks at what it is.
    fn uncovered(&self) -> Option<Note> {
        let found = forebay_program::inspect(&self.command[0]).ok()?;
        let (file, reason) = (found.interpreter.unwrap_or(found.path), found.uncovered?);
        Some(Note {
            kind: reason.kind().into(),
            path: file.display().to_string(),
            why: reason.why().into(),
            program: name(&self.command),
            count: 1,
        })
    }

    fn spawn(&self, layer: &Layer, route: &Route, mounts: &mut Option<Mounts>) -> Result<Child> {
        if route.mount {
            let (child, served) = route::spawn(layer, &self.command, self.contract)?;
            *mounts = Some(served);
            return Ok(child);
        }
        let mut preload = layer.dir().join("libforebay.so").into_os_string();
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|v| !v.is_empty()) {
            preload.push(":");
            preload.push(others);
        }
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).env("LD_PRELOAD", preload);
        Ok(command.env("FOREBAY_CONFIG", layer.client_config()).spawn()?)
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
