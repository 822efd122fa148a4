//! What an I/O node is told when it starts: as a value, and as the TOML file it can come from.

pub use crate::identity::ActAs;
pub use crate::layout::LayoutSource;
pub use crate::protection::Protection;
use crate::protection::{self, Protections};
pub use crate::storage::{EmulatedServers, forget};
use forebay_control::job::check_name;
use forebay_sched::SchedulerConfig;
use forebay_sched::emulate::StorageModel;
use forebay_types::{Address, AddressError, Identity, NodeId, Protect, Secret, SecretError};
use forebay_wire::session::presence::GRACE;
use serde::Deserialize;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// A directory to export, and the name clients know it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportConfig {
    /// The directory.
    pub path: PathBuf,
    /// Its name; the directory's own path unless given.
    pub name: String,
    /// How what goes to and from other hosts is protected, if more than is asked for all exports.
    pub protect: Protect,
}

impl ExportConfig {
    /// A directory under a name, protected as everything is.
    pub fn new(path: impl Into<PathBuf>, name: impl Into<String>) -> ExportConfig {
        ExportConfig { path: path.into(), name: name.into(), protect: Protect::None }
    }
}

impl FromStr for ExportConfig {
    type Err = String;

    /// `DIR` or `DIR=NAME`; a `=` that belongs to a name is written `\=`.
    fn from_str(text: &str) -> Result<ExportConfig, String> {
        let (path, name) = forebay_types::options::parts(text);
        let name = name.unwrap_or_else(|| path.clone());
        if path.is_empty() || name.is_empty() {
            return Err(format!("`{text}` is no export: write DIR or DIR=NAME"));
        }
        Ok(ExportConfig::new(path, name))
    }
}

/// A job that is known by name and has a secret of its own.
#[derive(Clone, Debug)]
pub struct JobConfig {
    /// Its name.
    pub name: String,
    /// Proves that a client belongs to it.
    pub secret: Secret,
    /// Its share against other jobs, where the scheduler knows shares.
    pub weight: u32,
    /// As whom it is served, whatever holds for others.
    pub user: Option<Identity>,
}

/// Everything an I/O node is told.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The files from which all this was read: nothing is written there.
    pub read_from: Vec<PathBuf>,
    /// Its number among the I/O nodes.
    pub id: NodeId,
    /// Where it listens.
    pub listen: Vec<Address>,
    /// What it exports.
    pub exports: Vec<ExportConfig>,
    /// The secret that opens the node to any job, and to control; see also `job`.
    pub secret: Option<Secret>,
    /// With `secret`: only a job of this name.
    pub job: Option<String>,
    /// Jobs with their own secrets. They have no control over the node.
    pub jobs: Vec<JobConfig>,
    /// As whom jobs are served.
    pub act_as: ActAs,
    /// Root on a compute node is root here, too; else it is nobody.
    pub allow_root: bool,
    /// How what goes to and from other hosts is protected at least, whichever export it is of.
    pub protect: Protect,
    /// Where `munged` listens, if not in the usual place.
    pub munge_socket: Option<PathBuf>,
    /// How requests are scheduled.
    pub scheduler: SchedulerConfig,
    /// Which data server holds which part of a file.
    pub layout: LayoutSource,
    /// How many data servers the file system has, where the layout does not tell.
    pub servers: u32,
    /// How long an interval of the pattern metrics is.
    pub interval: Duration,
    /// Where the arbiter is (`http://HOST:PORT`); with several, whichever leads. Its secret is the
    /// node's own.
    pub arbiters: Vec<String>,
    /// Where the metrics are served, if anywhere.
    pub metrics: Option<SocketAddr>,
    /// The other I/O nodes, told what each job was served here.
    pub peers: Vec<Address>,
    /// After how many bytes of service.
    pub share_threshold: u64,
    /// For experiments: answer as slowly as these would.
    pub emulated: Option<EmulatedServers>,
    /// For tests: note here what was written and not made durable, so that [`forget`] can undo it once the
    /// node was killed, as the crash of its machine would.
    pub forgetful: Option<PathBuf>,
    /// For tests: this file says how many milliseconds each call to the storage waits before it is made, and
    /// behind that, if anything, with which errno `fsync` and `close` fail.
    pub slow: Option<PathBuf>,
    /// For tests: the node is as if on a host of this name (of which 16 bytes count): clients are told
    /// that host instead of this machine's boot, and only nodes of the same name vouch for it.
    pub host: Option<String>,
    /// Where clients reach it, if not where it listens: what forwards connections to it.
    pub reached_at: Vec<Address>,
    /// Where the nodes of this host keep their ledgers; unless given, `/run/forebay` or
    /// `/dev/shm/forebay-UID`.
    pub ledger_dir: Option<PathBuf>,
    /// How long the node takes a directory to be where it found it, on any file system (zero: not at all). Unless
    /// given, 20 ms where each part of a path is a question to the file system's servers.
    pub keep_directories: Option<Duration>,
    /// How many requests are at the storage at the same time.
    pub dispatchers: usize,
    /// How many requests a connection may have unanswered.
    pub credits: u32,
    /// How many connections are taken, as far as the limit of open files allows; one user has at most half.
    pub max_connections: usize,
    /// How many files a session may have open.
    pub max_handles_per_session: usize,
    /// How many files a job may have open. Whatever it is, of what the limit of open files allows one user has at
    /// most half.
    pub max_handles: usize,
    /// Bytes of memory for payloads.
    pub memory: usize,
    /// How long a request stays valid after its client's last sign of life.
    pub lease: Duration,
    /// How long a session is kept when its connections broke.
    pub grace: Duration,
    /// How long a client may stall within a frame.
    pub stall_timeout: Duration,
    /// How long a client may take to shake hands.
    pub handshake_timeout: Duration,
    /// How long the node waits for accepted work and for clients to leave when it is to end.
    pub drain_timeout: Duration,
}

impl Default for NodeConfig {
    fn default() -> NodeConfig {
        NodeConfig {
            read_from: Vec::new(),
            id: NodeId(0),
            listen: Vec::new(),
            exports: Vec::new(),
            secret: None,
            job: None,
            jobs: Vec::new(),
            act_as: ActAs::Unsaid,
            allow_root: false,
            protect: Protect::None,
            munge_socket: None,
            scheduler: "fifo".parse().expect("fifo is a scheduler"),
            layout: LayoutSource::default(),
            servers: 1,
            interval: Duration::from_secs(1),
            arbiters: Vec::new(),
            metrics: None,
            peers: Vec::new(),
            share_threshold: 4 << 20,
            emulated: None,
            forgetful: None,
            slow: None,
            keep_directories: None,
            host: None,
            reached_at: Vec::new(),
            ledger_dir: None,
            dispatchers: 16,
            credits: 32,
            max_connections: 8192,
            max_handles_per_session: 65_536,
            max_handles: 1 << 19,
            memory: 256 << 20,
            lease: Duration::from_secs(2),
            grace: GRACE.into(),
            stall_timeout: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(5),
            drain_timeout: Duration::from_secs(5),
        }
    }
}

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file itself.
    #[error("{file}: {reason}")]
    File {
        /// Which.
        file: String,
        /// What is wrong in it.
        reason: String,
    },
    /// A secret that it names.
    #[error(transparent)]
    Secret(#[from] SecretError),
}

/// The configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    id: Option<u32>,
    listen: Option<Vec<Address>>,
    export: Option<Vec<String>>,
    secret_file: Option<PathBuf>,
    job: Option<Jobs>,
    r#as: Option<String>,
    identities: Option<String>,
    allow_root: Option<bool>,
    protect: Option<Protections>,
    munge_socket: Option<PathBuf>,
    scheduler: Option<SchedulerConfig>,
    servers: Option<u32>,
    layout: Option<LayoutSource>,
    interval_ms: Option<u64>,
    emulated_storage: Option<StorageModel>,
    emulated_storage_socket: Option<PathBuf>,
    arbiters: Option<Vec<String>>,
    metrics: Option<String>,
    peers: Option<Vec<Address>>,
    share_threshold_kib: Option<u64>,
    ledger_dir: Option<PathBuf>,
    forgetful_storage: Option<PathBuf>,
    slow_storage: Option<PathBuf>,
    emulated_host: Option<String>,
    reached_at: Option<Vec<Address>>,
    keep_directories_ms: Option<u64>,
    dispatchers: Option<usize>,
    credits: Option<u32>,
    max_connections: Option<usize>,
    max_handles_per_session: Option<usize>,
    max_handles: Option<usize>,
    memory_mib: Option<usize>,
    lease_ms: Option<u64>,
    grace_ms: Option<u64>,
    stall_timeout_ms: Option<u64>,
    handshake_timeout_ms: Option<u64>,
    drain_timeout_ms: Option<u64>,
}

/// One name, or a table per job.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a job is a name, or a table with `name` and `secret-file`")]
enum Jobs {
    Name(String),
    Tables(Vec<JobTable>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct JobTable {
    name: String,
    secret_file: PathBuf,
    #[serde(default = "one")]
    weight: u32,
    user: Option<String>,
}

fn one() -> u32 {
    1
}

/// What a job's share of a node can be.
pub const WEIGHT: RangeInclusive<u64> = 1..=1_000_000;

/// Where metrics are to be served, in the one grammar of addresses: over TCP.
pub fn metrics_at(text: &str) -> Result<SocketAddr, String> {
    let over_tcp =
        || format!("metrics are served over TCP, and `{text}` is no address for that: write HOST:PORT");
    match text.parse().map_err(|_: AddressError| over_tcp())? {
        Address::Tcp(at) => Ok(at),
        Address::Unix(_) => Err(over_tcp()),
    }
}

/// An example of the file, with every setting at its default.
pub const EXAMPLE: &str = include_str!("../example.toml");

/// Refuses what no job can be called.
fn named(job: &str) -> Result<(), String> {
    let checked = if job.is_empty() { Err("is empty".to_owned()) } else { check_name(job) };
    checked.map_err(|why| format!("a job cannot be called {job:?}: its name {why}"))
}

/// A shorter lease runs out between two signs of life on a busy machine; a longer one makes every failover wait.
pub const LEASE_MS: RangeInclusive<u64> = 50..=600_000;

/// No storage gains by more requests at once.
pub const MOST_DISPATCHERS: u16 = 1024;

impl NodeConfig {
    /// Refuses settings that no node can work with, and says which are allowed.
    pub(crate) fn check(&self) -> Result<(), String> {
        const HOUR: u64 = 3_600_000;
        let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        let striped = match &self.layout {
            LayoutSource::Stripe(stripe) => (stripe.size, stripe.count.into()),
            _ => (1, 1),
        };
        let mut weights = self.jobs.iter().map(|j| u64::from(j.weight));
        let weight = weights.find(|w| !WEIGHT.contains(w)).unwrap_or(*WEIGHT.start());
        let settings = [
            ("layout.size", striped.0, 1, 1 << 40),
            ("layout.count", striped.1, 1, 1 << 20),
            ("job.weight", weight, *WEIGHT.start(), *WEIGHT.end()),
            ("servers", self.servers.into(), 1, 1 << 20),
            ("interval-ms", ms(self.interval), 10, HOUR),
            ("share-threshold-kib", self.share_threshold >> 10, 0, 1 << 30),
            ("keep-directories-ms", self.keep_directories.map_or(0, ms), 0, 1000),
            ("dispatchers", self.dispatchers as u64, 1, MOST_DISPATCHERS.into()),
            ("credits", self.credits.into(), 1, 4096),
            ("max-connections", self.max_connections as u64, 1, 1 << 20),
            ("max-handles-per-session", self.max_handles_per_session as u64, 1, 1 << 24),
            ("max-handles", self.max_handles as u64, 1, 1 << 24),
            ("memory-mib", (self.memory >> 20) as u64, 4, 1 << 24),
            ("lease-ms", ms(self.lease), *LEASE_MS.start(), *LEASE_MS.end()),
            ("grace-ms", ms(self.grace), 1, HOUR),
            ("stall-timeout-ms", ms(self.stall_timeout), 10, HOUR),
            ("handshake-timeout-ms", ms(self.handshake_timeout), 10, HOUR),
            ("drain-timeout-ms", ms(self.drain_timeout), 0, 24 * HOUR),
        ];
        if let Some((name, value, min, max)) =
            settings.iter().find(|(_, value, min, max)| !(*min..=*max).contains(value))
        {
            return Err(format!("{name} is {value}: it can be {min} to {max}"));
        }
        let mut names: Vec<&str> = self.exports.iter().map(|e| e.name.as_str()).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(twice) => {
                Err(format!("two exports are called {}: write DIR=NAME for another name", twice[0]))
            }
            None => Ok(()),
        }
    }

    /// Exports these in place of what it did. What has the same name is protected as before.
    pub fn export(&mut self, exports: &[ExportConfig]) {
        let before = std::mem::replace(&mut self.exports, exports.to_vec());
        for export in &mut self.exports {
            let same = before.iter().find(|e| e.name == export.name);
            export.protect = same.map_or(export.protect, |e| e.protect);
        }
    }

    /// Sets how exports are protected.
    pub fn ask(&mut self, asked: &[Protection]) -> Result<(), String> {
        protection::ask(&mut self.protect, &mut self.exports, asked)
    }

    /// Reads a configuration file; what it does not say is as by default.
    pub fn from_file(path: &Path) -> Result<NodeConfig, ConfigError> {
        let fail = |reason: String| ConfigError::File { file: path.display().to_string(), reason };
        let text = std::fs::read_to_string(path).map_err(|e| fail(format!("cannot read: {e}")))?;
        let read = NodeConfig::from_toml(&text, path.parent().unwrap_or(Path::new(".")));
        let mut config = read.map_err(|e| match e {
            Problem::Here(reason) => fail(reason),
            Problem::There(e) => e.into(),
        })?;
        config.read_from.push(path.to_owned());
        Ok(config)
    }

    /// Reads a secret, and remembers from where.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read_secret(&mut self, path: &Path) -> Result<Secret, SecretError> {
        self.read_from.push(path.to_owned());
        Secret::read(path)
    }

    fn from_toml(text: &str, base: &Path) -> Result<NodeConfig, Problem> {
        let file: File = toml::from_str(text).map_err(|e| Problem::Here(e.to_string()))?;
        fn set<T>(to: &mut T, from: Option<T>) {
            if let Some(value) = from {
                *to = value;
            }
        }
        let mut c = NodeConfig::default();
        set(&mut c.listen, file.listen);
        set(&mut c.peers, file.peers);
        set(&mut c.arbiters, file.arbiters);
        c.metrics = file.metrics.as_deref().map(metrics_at).transpose().map_err(Problem::Here)?;
        for text in file.export.unwrap_or_default() {
            c.exports.push(text.parse().map_err(Problem::Here)?);
        }
        if let Some(path) = file.secret_file {
            c.secret = Some(c.read_secret(&base.join(path)).map_err(Problem::There)?);
        }
        match file.job {
            Some(Jobs::Name(name)) => {
                named(&name).map_err(Problem::Here)?;
                c.job = Some(name);
            }
            Some(Jobs::Tables(tables)) => {
                for t in tables {
                    named(&t.name).map_err(Problem::Here)?;
                    if c.jobs.iter().any(|j| j.name == t.name) {
                        return Err(Problem::Here(format!("two jobs are called {:?}", t.name)));
                    }
                    let secret = c.read_secret(&base.join(t.secret_file)).map_err(Problem::There)?;
                    let user = t.user.as_deref().map(forebay_who::user).transpose();
                    let user = user.map_err(|e| Problem::Here(format!("job {}: {e}", t.name)))?;
                    c.jobs.push(JobConfig { name: t.name, secret, weight: t.weight, user });
                }
            }
            None => {}
        }
        match (file.r#as, file.identities) {
            (Some(user), None) => c.act_as = user.parse().map_err(Problem::Here)?,
            (None, Some(by)) => c.act_as = ActAs::told_by(&by).map_err(Problem::Here)?,
            (Some(_), Some(_)) => return Err(Problem::Here("give `as` or `identities`, not both".into())),
            (None, None) => {}
        }
        set(&mut c.allow_root, file.allow_root);
        if let Some(asked) = file.protect {
            c.ask(&asked.parse().map_err(Problem::Here)?).map_err(Problem::Here)?;
        }
        c.munge_socket = file.munge_socket;
        set(&mut c.id, file.id.map(NodeId));
        set(&mut c.scheduler, file.scheduler);
        set(&mut c.servers, file.servers);
        set(&mut c.layout, file.layout);
        set(&mut c.interval, file.interval_ms.map(Duration::from_millis));
        if let Some(model) = file.emulated_storage {
            model.check().map_err(|e| Problem::Here(format!("emulated-storage: {e}")))?;
            c.emulated = Some(match file.emulated_storage_socket {
                Some(path) => EmulatedServers::shared(model, &base.join(path)),
                None => EmulatedServers::new(model),
            });
        }
        set(&mut c.share_threshold, file.share_threshold_kib.map(|k| k.saturating_mul(1 << 10)));
        c.ledger_dir = file.ledger_dir.map(|dir| base.join(dir));
        c.forgetful = file.forgetful_storage.map(|journal| base.join(journal));
        c.slow = file.slow_storage.map(|path| base.join(path));
        if file.emulated_host.as_ref().is_some_and(|h| h.is_empty() || h.contains('/') || h.starts_with('.'))
        {
            return Err(Problem::Here(
                "emulated-host is a name, without / and not beginning with a dot".into(),
            ));
        }
        c.host = file.emulated_host;
        set(&mut c.reached_at, file.reached_at);
        c.keep_directories = file.keep_directories_ms.map(Duration::from_millis);
        set(&mut c.dispatchers, file.dispatchers);
        set(&mut c.credits, file.credits);
        set(&mut c.max_connections, file.max_connections);
        set(&mut c.max_handles_per_session, file.max_handles_per_session);
        set(&mut c.max_handles, file.max_handles);
        set(&mut c.memory, file.memory_mib.map(|m| m.saturating_mul(1 << 20)));
        set(&mut c.lease, file.lease_ms.map(Duration::from_millis));
        set(&mut c.grace, file.grace_ms.map(Duration::from_millis));
        set(&mut c.stall_timeout, file.stall_timeout_ms.map(Duration::from_millis));
        set(&mut c.handshake_timeout, file.handshake_timeout_ms.map(Duration::from_millis));
        set(&mut c.drain_timeout, file.drain_timeout_ms.map(Duration::from_millis));
        Ok(c)
    }
}

/// What is wrong, in this file or in one it names.
#[derive(Debug)]
enum Problem {
    Here(String),
    There(SecretError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_the_default() {
        let c = NodeConfig::from_toml(EXAMPLE, Path::new("/")).unwrap();
        let d = NodeConfig::default();
        assert_eq!(c.scheduler, d.scheduler);
        assert_eq!((c.credits, c.memory, c.lease, c.grace), (d.credits, d.memory, d.lease, d.grace));
        assert_eq!(
            (c.dispatchers, c.max_connections, c.max_handles),
            (d.dispatchers, d.max_connections, d.max_handles)
        );
        assert_eq!((c.stall_timeout, c.drain_timeout), (d.stall_timeout, d.drain_timeout));
        assert_eq!((c.layout, c.servers, c.interval), (d.layout, d.servers, d.interval));
        assert_eq!((c.share_threshold, c.protect), (d.share_threshold, d.protect));
        assert_eq!(c.listen.len(), 2);
        assert_eq!(c.exports[0].name, "scratch");
    }

    #[test]
    fn reading_touches_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let text = "emulated-storage-socket = \"servers\"\n[emulated-storage]\nservers = 2\n";
        let c = NodeConfig::from_toml(text, dir.path()).unwrap();
        assert!(c.emulated.is_some());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "no socket before the node starts");
    }

    #[test]
    fn mistakes_are_named() {
        let wrong = |text: &str| match NodeConfig::from_toml(text, Path::new("/")) {
            Err(Problem::Here(reason)) => reason,
            other => panic!("{other:?}"),
        };
        assert!(wrong("lisen = []").contains("lisen"));
        assert!(wrong("listen = [\"12\"]").contains("tcp:HOST:PORT"));
        assert!(wrong("scheduler = \"none\"").contains("none"));
        assert!(wrong("[emulated-storage]\nservers = 0").contains("servers is 0: it can be 1 to"));
        assert!(
            wrong("[emulated-storage.server]\nbandwidth = 0").contains("bandwidth is 0: it can be 1000 to")
        );
        assert!(wrong("metrics = \"unix:/x\"").contains("HOST:PORT"));
        assert!(
            NodeConfig::from_toml("metrics = \"localhost:0\"", Path::new("/")).unwrap().metrics.is_some()
        );
        let exports = "export = [\"/a=a\", \"/b=b=c\"]\n";
        assert!(wrong(&format!("{exports}protect = \"much\"")).contains("none, integrity or privacy"));
        assert!(wrong(&format!("{exports}protect = [\"c=privacy\"]")).contains("no export \"c\""));
        let text = format!("{exports}protect = [\"integrity\", \"b=c=privacy\"]");
        let c = NodeConfig::from_toml(&text, Path::new("/")).unwrap();
        assert_eq!((c.protect, c.exports[0].protect), (Protect::Integrity, Protect::None));
        assert_eq!(c.exports[1].protect, Protect::Privacy);
        let mut moved = c.clone();
        moved.export(&["/elsewhere=b=c".parse().unwrap()]);
        assert_eq!((moved.exports.len(), moved.exports[0].protect), (1, Protect::Privacy));
        assert!("".parse::<ExportConfig>().is_err());
        for (text, hint) in [
            ("lease-ms = 0", "lease-ms is 0: it can be 50 to 600000"),
            ("interval-ms = 0", "interval-ms is 0"),
            ("dispatchers = 0", "dispatchers is 0: it can be 1 to 1024"),
            ("credits = 0", "credits is 0"),
            ("memory-mib = 0", "memory-mib is 0"),
            ("layout = { kind = \"stripe\", size = 0, count = 1 }", "layout.size is 0: it can be 1 to"),
            (
                "layout = { kind = \"stripe\", size = \"64K\", count = 0 }",
                "layout.count is 0: it can be 1 to",
            ),
            ("drain-timeout-ms = 999999999999", "drain-timeout-ms"),
        ] {
            let read = NodeConfig::from_toml(text, Path::new("/")).unwrap();
            assert!(read.check().unwrap_err().contains(hint), "{text}");
        }
    }
}
