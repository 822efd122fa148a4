//! One run of a program: what it needs is made, the program is started, waited for, and everything is
//! ended again.

use crate::join;
use crate::launch::{self, Account, ClientsByNode, Plan, Several};
use crate::not_run::{NOT_STARTED, NotRun, not_executed};
use crate::registration::Registered;
use crate::route::{self, Mounts, Route, Via};
use crate::survivors::{keep, survivors, tell};
use crate::watch::{Watched, Watcher};
use crate::{ReportFile, RunReport, Signals, darshan, record};
use anyhow::{Context, Result, bail};
use forebay_client::{
    Address, Client, Config, Error, ExportId, ExportMap, Fallback, FileCounters, Meta, Path, Target,
};
use forebay_control::client::Client as Arbiter;
use forebay_control::job::{JobGrant, JobRequest};
use forebay_embed::{At, Layer, LayerConfig, Note, Transport};
use forebay_mount::Contract;
use forebay_program::Uncovered;
use forebay_types::{Nanos, Protect, Task};
use std::ffi::OsString;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// How long the I/O nodes may take to say what they serve.
const TRY_EXPORTS_MS: u64 = 5000;

/// How long a launcher may take to start a shell at every rank: it may have to wait for its hosts.
const LOOK: Duration = Duration::from_secs(600);

/// How long the rest may take once the program has ended as it was asked to: of its own I/O nodes one is stopped, or none.
const STOPPED_LIMIT: Duration = Duration::from_millis(200);
const END_LIMIT: Duration = Duration::from_secs(3);

/// So many I/O nodes are asked what they have counted of a job before its program starts.
const MOST_ASKED: usize = 32;

/// What is to be known of a mount and several hosts.
const MOUNT_IS_HERE: &str = "the mount reaches the processes of this host alone, and others are named";

/// `DIR[=EXPORT]`: as directories on this machine, and the name that the user wrote.
#[derive(Clone, Debug)]
pub struct Forward {
    pub(crate) at: At,
    name: Option<String>,
}

impl FromStr for Forward {
    type Err = String;

    fn from_str(text: &str) -> Result<Forward, String> {
        Ok(Forward { at: text.parse()?, name: forebay_types::options::parts(text).1 })
    }
}

impl Forward {
    /// What a client is told of it where I/O nodes have exports by name: without one, by the directory's.
    pub(crate) fn by_name(&self) -> ExportMap {
        let export = self.name.clone().unwrap_or_else(|| self.at.dir.display().to_string());
        ExportMap { dir: self.at.dir.clone(), export, local: None }
    }
}

impl fmt::Display for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_ref().map_or(String::new(), |name| format!("={name}"));
        write!(f, "{}{name}", self.at.dir.display())
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
        request: Box<JobRequest>,
        /// How long to wait for it and for an I/O node.
        patience: Duration,
    },
}

/// A program to run with its I/O forwarded.
pub struct Program {
    /// The program and its arguments, at least one, and where it runs.
    pub plan: Plan,
    /// What is asked of it on several hosts.
    pub several: Several,
    /// What is forwarded.
    pub at: Vec<Forward>,
    /// How the program's calls are caught.
    pub via: Via,
    /// What may be kept of the files; anything but `Strict` under the mount alone.
    pub contract: Contract,
    /// Small requests need not make a trip each, where that can be.
    pub joins: bool,
    /// The longest a single call may take.
    pub deadline: Duration,
    /// What a call does when no I/O node answers.
    pub fallback: Fallback,
    /// How what goes to and from I/O nodes on other hosts is protected at least.
    pub protect: Protect,
    /// The job's name in reports and shares.
    pub job: String,
    /// Told what a person should know before the program starts.
    pub warn: fn(&str),
    /// What it does is shown below what it says; without a terminal this is told, every second.
    pub watch: Option<fn(&str)>,
    /// What it does with each file is written here, as Darshan does.
    pub darshan: Option<ReportFile>,
    /// Every call of it is written here.
    pub record: Option<ReportFile>,
}

/// How a run ended.
pub struct Ended {
    /// What the program did.
    pub report: RunReport,
    /// Its exit status, or 128 + N if signal N killed it.
    pub code: u8,
}

/// The program's name: the last part of its path.
pub fn name(command: &[OsString]) -> String {
    let path = command.first().map(PathBuf::from).unwrap_or_default();
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

impl Program {
    /// Runs it to its end. What was started for it ends with it.
    pub fn run(mut self, io_nodes: IoNodes, signals: &Signals) -> Result<Ended, NotRun> {
        let direct = self.fallback == Fallback::Direct;
        let route = Route::choose(self.via, &self.plan, direct, self.contract)?;
        self.record.as_ref().map_or(Ok(()), |_| record::refuse_mount(&route))?;
        if self.several.strict {
            self.refuse_uncovered(&route)?;
        } else if route.mount && self.plan.is_away() {
            (self.warn)(MOUNT_IS_HERE);
        }
        if let Some(tool) = launch::elsewhere(&self.plan.command).filter(|_| self.several.share.is_none()) {
            match self.several.strict {
                true => return Err(anyhow::anyhow!("--strict: {}", launch::unshared(tool)).into()),
                false => (self.warn)(&launch::unshared(tool)),
            }
        }
        let (mut layer, mut registered) = self.start(io_nodes)?;
        if let Some(job) = registered.as_mut().filter(|_| !route.mount) {
            job.stand_by(&layer.client_config());
        }
        let began = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        // The look at the exports is not the program's, nor is what an earlier job of the name has done.
        let earlier = registered.as_ref().map(|job| {
            let config = layer.config();
            let spare = if job.named { &config.spare[..] } else { &[] };
            let all: Vec<Address> = config.nodes.iter().chain(spare).take(MOST_ASKED).cloned().collect();
            launch::served(config, &all, &[], Nanos::ZERO)
        });
        let earlier = earlier.unwrap_or_default();
        let look = self.several.strict && !route.mount;
        let before = if look { self.look_first(&layer)? } else { Vec::new() };
        let started = Instant::now();
        let mut mounts = None;
        let mut child = signals.start(|| self.spawn(&layer, &route, &mut mounts)).map_err(|e| NotRun {
            code: if route.mount { NOT_STARTED } else { not_executed(&e) },
            why: e.context(format!("cannot run {}", self.plan.command[0].display())),
        })?;
        let watcher = self.watch.map(|say| {
            let watched = Watched {
                counters: layer.counters(),
                config: layer.config().clone(),
                arbiter: registered.as_ref().map(Registered::arbiter),
                app: self.plan.app(),
                processes: self.plan.ranks.unwrap_or(1),
            };
            Watcher::start(watched, say)
        });
        let status = signals.wait(&mut child)?;
        if signals.asked_to_end() {
            end_soon(&layer, exit_code(status));
        }
        drop(watcher);
        let changed = mounts.as_ref().map(Mounts::notes).unwrap_or_default();
        let accelerated = mounts.as_ref().and_then(Mounts::accelerated);
        drop(mounts);
        let seconds = started.elapsed().as_secs_f64();
        if let Some(file) = self.darshan.take()
            && let Err(e) = self.write_darshan(file, &layer, began)
        {
            (self.warn)(&format!("the Darshan log could not be written: {e}"));
        }
        let untraced = self.record.take().and_then(|file| {
            let failed = |e| (self.warn)(&format!("the trace could not be written: {e}"));
            record::write(file, &layer, &self.plan).map_err(failed).ok()?
        });
        let operations = layer.operations();
        let mut used = nodes_used(&layer, registered.as_ref());
        let mut nodes = Vec::new();
        if registered.is_some() {
            nodes = launch::served(layer.config(), &used, &earlier, began.into());
            // One that is gone is not waited for again.
            used.retain(|a| nodes.iter().any(|n| n.problem.is_none() && n.address == a.to_string()));
        }
        // A mount is one client, whoever uses it.
        let ranks = if route.mount { None } else { self.account(&layer, &mut used, &before) };
        let blame = launch::blamed(layer.config(), &used, &earlier, began.into());
        let survivors = match route.mount {
            true => Vec::new(),
            false => survivors(&layer.client_config(), registered.is_some()),
        };
        let refused = registered.as_ref().and_then(|job| Some((job.refused()?, job.grant.id.clone())));
        nodes.extend(layer.stop());
        if survivors.is_empty() {
            registered.into_iter().for_each(|job| job.end(!status.success()));
        } else if registered.is_some_and(Registered::leave) && layer.config().origin.is_none() {
            layer.leave_dir();
        } else {
            // Also where other hosts see the directory: whoever took over leaves it to this one.
            keep(&mut layer);
        }
        let mut notes = layer.notes();
        // Those of whom that has been said are not named again.
        let absent = |n: &Note| ranks.as_ref().is_some_and(|r| r.missing.iter().any(|m| m.why == n.why));
        notes.retain(|n| n.kind != "rank" || !absent(n));
        notes.extend(refused.map(|(why, job)| Note {
            kind: "ended".into(),
            path: job,
            why: format!("{why}: what its processes did afterwards was not forwarded, or failed"),
            program: String::new(),
            count: 1,
        }));
        let as_another = layer.as_another();
        notes.extend((as_another > 0).then(|| Note {
            kind: Uncovered::OtherUser.kind().into(),
            path: "a program of another user".into(),
            why: Uncovered::OtherUser.why().into(),
            program: String::new(),
            count: as_another,
        }));
        notes.extend(changed.into_iter().chain(untraced));
        if !route.mount {
            notes.extend(self.uncovered());
            notes.extend(survivors);
        }
        let report = RunReport::new(&self.plan, status, seconds, layer.config(), operations, nodes, notes)
            .through(if route.mount { "mount" } else { "preload" }, route.why)
            .past(accelerated)
            .by(ranks)
            .slowed_by(blame);
        Ok(Ended { report, code: exit_code(status) })
    }

    /// What was counted file by file, as Darshan would have it.
    fn write_darshan(&self, file: ReportFile, layer: &Layer, began: Duration) -> std::io::Result<()> {
        let (files, lost) = FileCounters::totals(layer.dir())?;
        if lost > 0 {
            (self.warn)(&format!("the Darshan log is not complete: {lost} calls were about too many files"));
        }
        let processes = files.iter().map(|f| f.rank + 1).max().unwrap_or(1);
        let run = darshan::Run {
            command: &self.plan.words(),
            mounts: &layer.config().exports.iter().map(|e| e.dir.as_path()).collect::<Vec<_>>(),
            processes: processes.max(self.plan.ranks.unwrap_or(1).into()),
            begin: began.as_nanos() as u64,
            end: std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos() as u64,
            partial: lost > 0,
        };
        file.write(&darshan::log(&run, &files)?)
    }

    /// What the program needs, and the job if there is an arbiter.
    fn start(&mut self, io_nodes: IoNodes) -> Result<(Layer, Option<Registered>)> {
        if let Some(outer) = std::env::var_os("FOREBAY_CONFIG").filter(|v| !v.is_empty()) {
            bail!(
                "this is run by another `forebay run` already ({}), and two cannot both forward: give every \
                 directory to one of them with an --at of its own",
                outer.display()
            );
        }
        launch::refuse_inverted(&self.plan.command)?;
        let number = if let IoNodes::Own { number, .. } = &io_nodes { *number } else { 0 };
        let at: Vec<String> = self.at.iter().map(ToString::to_string).collect();
        launch::refuse_submission(&self.plan.command, &at, number)?;
        let across = self.plan.across(&self.several, number)?;
        let (mut layer, registered) = match io_nodes {
            IoNodes::Arbiter { arbiter, request, patience } => {
                let request = JobRequest { direct: self.can_do_without(), ..*request };
                let registered = Registered::new(arbiter, request, patience)?;
                registered.grant.notes.iter().for_each(|note| (self.warn)(note));
                let config = self.client_config(&registered)?;
                try_exports(&config, self.warn)?;
                let mut layer = Layer::attach(config, across.as_ref().map(|a| a.share.as_path()))?;
                self.tell_hosts(&mut layer, across.is_some())?;
                let (file, config) = (layer.client_config(), layer.config().clone());
                registered.when_changed(move |grant, down| tell(&file, &config, grant, down));
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
                    protect: self.protect,
                    node_args,
                    job: self.job.clone(),
                    across: across.clone(),
                    joins: self.joins,
                })?;
                (layer, None)
            }
        };
        if registered.is_none() {
            self.tell_hosts(&mut layer, across.is_some())?;
        }
        layer.write_preload()?;
        if self.record.is_some() {
            record::prepare(&layer, self.warn);
        }
        Ok((layer, registered))
    }

    /// The job's processes learn where they are among its hosts.
    fn tell_hosts(&self, layer: &mut Layer, several: bool) -> Result<()> {
        let files = self.darshan.as_ref().map(|_| layer.dir().to_owned());
        let trace = self.record.as_ref().map(|_| layer.dir().to_owned());
        layer.reconfigure(|config| {
            config.starter = self.plan.launch.starter;
            (config.files, config.trace) = (files, trace);
            if several {
                config.hosts = self.plan.known_hosts(self.several.share.is_some()).to_vec();
                config.origin = Some(self.plan.here.clone());
            }
        })?;
        Ok(())
    }

    /// The front end must reach the program, as far as its file tells.
    fn refuse_uncovered(&self, route: &Route) -> Result<()> {
        if route.mount && self.plan.is_away() {
            bail!("--strict: {}: nothing was started", MOUNT_IS_HERE);
        }
        match route::uncovered(&self.plan).filter(|_| !route.mount) {
            Some(forebay_program::Program { path, uncovered: Some(why), .. }) => bail!(
                "--strict: {} is {}, which the library does not reach: nothing was started; --via mount does, where it \
                 can be had (`forebay doctor` says)",
                path.display(),
                why.reason()
            ),
            _ => Ok(()),
        }
    }

    /// Has the launcher start a shell in place of every rank: all must come to an I/O node. Whom those had
    /// seen then.
    fn look_first(&self, layer: &Layer) -> Result<ClientsByNode> {
        let (library, config) = (layer.dir().join("libforebay.so"), layer.client_config());
        let command = launch::preflight(&self.plan, &library, &config);
        let said = launch::said_within(&mut self.forwarded(layer, &command), LOOK);
        let said = said.with_context(|| format!("--strict: cannot run {}", command[0].display()))?;
        let Some(status) = said.status else {
            let (name, limit) = (self.plan.command[0].display(), LOOK.as_secs());
            bail!(
                "--strict: {name} did not start a shell at every rank within {limit} s: it has said {}",
                if said.err.trim().is_empty() { "nothing" } else { said.err.trim() }
            );
        };
        let probed = launch::read_probe(&said.out);
        let (seen, failed) = launch::clients(layer.config(), &layer.config().nodes);
        if let Some(why) = failed.first() {
            bail!("--strict: {why}");
        }
        if probed.started.is_empty() {
            bail!("--strict: {} started nothing: {}", self.plan.command[0].display(), said.why(status));
        }
        let told = launch::complaints(&[layer.notes(), probed.noted.clone()].concat());
        let missing = probed.missing(&seen, &told, (&library, &config));
        if !missing.is_empty() {
            let all: Vec<String> = missing.iter().map(ToString::to_string).collect();
            bail!("--strict: the program was not started: {}", all.join("; "));
        }
        if !status.success() {
            let (name, why) = (self.plan.command[0].display(), said.why(status));
            bail!(
                "--strict: the program was not started: {name} could not start a shell at every rank: {why}"
            );
        }
        Ok(seen)
    }

    /// Who came to the I/O nodes, against who should have. Nodes that do not answer are not waited for again.
    fn account(&self, layer: &Layer, nodes: &mut Vec<Address>, before: &ClientsByNode) -> Option<Account> {
        let plan = &self.plan;
        let named = plan.launch.starter.is_some() || !plan.hosts.is_empty();
        // A script may start a launcher: its ranks say of how many they are. Where this process says the same of itself (a
        // batch job does), all have it from there.
        if !named && Task::find(None, |name| std::env::var(name).ok()).is_some() {
            return None;
        }
        let (mut seen, failed) = launch::clients(layer.config(), nodes);
        nodes.retain(|node| seen.iter().any(|(name, _)| *name == node.to_string()));
        let ranks = || seen.iter().flat_map(|(_, clients)| clients).any(|c| c.ranks > 1);
        if !named && !ranks() {
            return None;
        }
        failed.iter().for_each(|why| (self.warn)(why));
        launch::since(&mut seen, before);
        let why = match route::uncovered(plan) {
            Some(forebay_program::Program { path, uncovered: Some(why), .. }) => {
                format!("{} is {}", path.display(), why.reason())
            }
            _ if !named && self.several.share.is_none() => format!(
                "{} started them where {} is not seen: name a directory that all hosts see with --share, and have \
                 LD_PRELOAD and FOREBAY_CONFIG passed on (docs/CLUSTER.md)",
                crate::name(&plan.command),
                layer.dir().display()
            ),
            // What the library itself has to say of it is in a directory that is not seen from here.
            _ if plan.joining() > 0 => {
                "no process there reached an I/O node: what `forebay join` has said there \
                                        tells why (--strict looks before the program runs)"
                    .to_owned()
            }
            _ => format!(
                "no process there reached an I/O node, and the library has not said why: {} cannot be read there, or \
                 was not loaded (--strict looks before the program runs)",
                layer.dir().join("libforebay.so").display()
            ),
        };
        let complaints = launch::complaints(&layer.notes());
        let account = launch::account(plan.ranks, &plan.hosts, &seen, &complaints, &why);
        for missing in &account.missing {
            (self.warn)(&missing.to_string());
        }
        Some(account)
    }

    /// Whether the job needs no I/O nodes: the user says so, and this machine has the same directories.
    fn can_do_without(&self) -> bool {
        let same = |f: &Forward| f.name.as_ref().is_none_or(|name| f.at.dir == std::path::Path::new(name));
        self.fallback == Fallback::Direct && self.at.iter().all(|f| same(f) && f.at.dir.is_dir())
    }

    fn client_config(&self, registered: &Registered) -> Result<Config> {
        let export = |f: &Forward| {
            let map = f.by_name();
            // Where the export's path is there on this machine too, it is the same directory.
            let local = PathBuf::from(&map.export);
            ExportMap { local: (local.is_absolute() && local.is_dir()).then_some(local), ..map }
        };
        let grant = &registered.grant;
        let secret = grant.secret.as_ref().context("the arbiter gave the job no secret")?;
        let mut config = Config {
            exports: self.at.iter().map(export).collect(),
            deadline_ms: self.deadline.as_millis() as u64,
            fallback: self.fallback,
            protect: self.protect,
            // The I/O nodes may have seen the job before: whoever comes now is told apart by this.
            run: registered.run(),
            ..Config::new(&grant.id, secret, Vec::new())
        };
        place(&mut config, grant)?;
        Ok(config)
    }

    /// The program itself is started from here, where no library looks at what it is.
    fn uncovered(&self) -> Option<Note> {
        let found = route::uncovered(&self.plan)?;
        let (file, reason) = (found.interpreter.unwrap_or(found.path), found.uncovered?);
        Some(Note {
            kind: reason.kind().into(),
            path: file.display().to_string(),
            why: reason.why().into(),
            program: name(&self.plan.command),
            count: 1,
        })
    }

    fn spawn(&self, layer: &Layer, route: &Route, mounts: &mut Option<Mounts>) -> Result<Child> {
        if route.mount {
            let (child, served) = route::spawn(layer, &self.plan, self.contract)?;
            *mounts = Some(served);
            return Ok(child);
        }
        let mut command = self.forwarded(layer, &self.plan.command);
        crate::sys::as_given(&mut command);
        Ok(command.spawn()?)
    }

    /// A command whose processes find the library and the configuration, on whatever host.
    fn forwarded(&self, layer: &Layer, command: &[OsString]) -> Command {
        let mut preload = layer.dir().join("libforebay.so").into_os_string();
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|v| !v.is_empty()) {
            preload.push(":");
            preload.push(others);
        }
        let words = self.plan.launch.passing(command, &["LD_PRELOAD", "FOREBAY_CONFIG", join::VARIABLE]);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env("LD_PRELOAD", preload);
        // A batch script has a rank of its own, which its launcher has not.
        if self.plan.launch.starter.is_some() {
            command.env_remove("SLURM_PROCID");
        }
        command.env("FOREBAY_CONFIG", layer.client_config());
        if let Some(ticket) = join::ticket(layer.config()) {
            command.env(join::VARIABLE, ticket);
        }
        command
    }
}

/// Whoever asked for the end does not wait for I/O nodes that do not answer.
fn end_soon(layer: &Layer, code: u8) {
    let limit = if layer.any_stopped() { STOPPED_LIMIT } else { END_LIMIT };
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        forebay_embed::tidy_and_exit(code.into());
    });
}

/// Whether the I/O nodes serve the directories under the names that were given: a mistake there must
/// not be found by the program, call by call.
pub(crate) fn try_exports(config: &Config, warn: fn(&str)) -> Result<()> {
    let deadline_ms = config.deadline_ms.min(TRY_EXPORTS_MS);
    // Each by itself: who is to blame is named by the option that asked for it.
    for map in &config.exports {
        let exports = vec![map.clone()];
        let client = Client::new(Config { deadline_ms, outside: true, exports, ..config.clone() }, None)?;
        let root = Path { export: ExportId(0), rel: b"" };
        let tried = client.meta(Meta::Stat { target: Target::Path(root) }, |_| Some(()));
        client.leave();
        match tried {
            Err(e @ Error::NoNode { .. }) if config.fallback == Fallback::Direct => {
                warn(&format!("going on without I/O nodes (--fallback direct): {e}"));
                break;
            }
            other => other.with_context(|| format!("--at {}", map.dir.display()))?,
        }
    }
    Ok(())
}

/// The I/O nodes that the job has, and those it had.
fn nodes_used(layer: &Layer, registered: Option<&Registered>) -> Vec<Address> {
    let mut nodes = layer.config().nodes.clone();
    for address in registered.map_or(Vec::new(), Registered::used) {
        if !nodes.contains(&address) {
            nodes.push(address);
        }
    }
    nodes
}

/// Puts a job where the arbiter wants it.
pub(crate) fn place(config: &mut Config, grant: &JobGrant) -> Result<()> {
    let address = |text: &String| text.parse().with_context(|| format!("the arbiter gave {text:?}"));
    config.nodes = grant.addresses.iter().map(address).collect::<Result<_>>()?;
    config.spare = grant.spare.iter().map(address).collect::<Result<_>>()?;
    let fixed = |(host, at): (&String, &String)| Ok((host.clone(), address(at)?));
    config.fixed = grant.fixed.iter().map(fixed).collect::<Result<_>>()?;
    config.epoch = grant.epoch;
    Ok(())
}

pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128u8.wrapping_add(signal as u8),
        (None, None) => 1,
    }
}
