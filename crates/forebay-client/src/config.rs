//! What a client must know: where the I/O nodes are, which directories they serve, the job's name
//! and secret. `forebay run` writes it as JSON; the processes of the job read it.

use forebay_types::{Address, Epoch, Protect, Seat, Secret, Starter, Task, same_host};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A directory as programs name it, and the export that serves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportMap {
    /// The path programs use.
    pub dir: PathBuf,
    /// The export's name on the I/O nodes.
    pub export: String,
    /// Where this machine sees the same directory itself, if it does: for shared mappings of files
    /// and for [`Fallback::Direct`].
    #[serde(default)]
    pub local: Option<PathBuf>,
}

/// What a call does when no I/O node answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fallback {
    /// It fails with `EIO`.
    #[default]
    Error,
    /// It goes to the file system of the compute node itself.
    Direct,
}

/// What makes credentials (MUNGE) that carry the job's secret.
#[derive(Clone)]
pub struct Vouch(pub Arc<dyn Fn() -> Result<String, String> + Send + Sync>);

impl std::fmt::Debug for Vouch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Vouch(…)")
    }
}

/// What gives the configuration as a process that starts now would have it.
#[derive(Clone)]
pub struct Reread(pub Arc<dyn Fn() -> Option<Config> + Send + Sync>);

impl std::fmt::Debug for Reread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reread(…)")
    }
}

/// A client's configuration.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The job's name; its requests are one flow.
    pub job: String,
    /// The job's secret, 64 hexadecimal digits.
    pub secret: String,
    /// Where the user's own word is not enough: what makes a credential that carries the secret, one for each
    /// connection.
    #[serde(skip)]
    pub vouch: Option<Vouch>,
    /// For a process that finds none of the I/O nodes that it knows: they may be others by now.
    #[serde(skip)]
    pub reread: Option<Reread>,
    /// The job's I/O nodes.
    pub nodes: Vec<Address>,
    /// I/O nodes that may serve the job when all of its own are gone.
    #[serde(default)]
    pub spare: Vec<Address>,
    /// Those of both that could not be reached when this was written: others are tried first.
    #[serde(default)]
    pub down: Vec<Address>,
    /// The version of the mapping that gave the job its nodes; 0 where no arbiter did.
    #[serde(default)]
    pub epoch: Epoch,
    /// The forwarded directories.
    pub exports: Vec<ExportMap>,
    /// The compute nodes that the job runs on, neighbours beside each other; empty if not known. Blocks
    /// of them share an I/O node.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// A site's fixed map: by compute node, its I/O node.
    #[serde(default)]
    pub fixed: BTreeMap<String, Address>,
    /// What tells the job's processes their ranks, if it is known.
    #[serde(default)]
    pub starter: Option<Starter>,
    /// Which run of the job this is a client of; 0 where nobody tells them apart.
    #[serde(default)]
    pub run: u32,
    /// This client is none of the job's processes, whatever the environment says.
    #[serde(skip)]
    pub outside: bool,
    /// For experiments: this process is as if on a compute node of this name.
    #[serde(skip)]
    pub host: Option<String>,
    /// Where the job was started. On other hosts a process keeps what it shares with its neighbours in a
    /// directory of its host's name beside this file.
    #[serde(default)]
    pub origin: Option<String>,
    /// Large requests of a process are spread over all of the job's nodes, by their place in the file: for
    /// nodes that see each other's writes at once.
    #[serde(default)]
    pub stripe: bool,
    /// Small reads that follow each other are read ahead, in agreement with the job's only I/O node, on this
    /// host.
    #[serde(default)]
    pub share: bool,
    /// And small writes are put where that node finds them.
    #[serde(default)]
    pub stage: bool,
    /// The longest a call may take, in milliseconds.
    #[serde(default = "default_deadline_ms")]
    pub deadline_ms: u64,
    /// What then.
    #[serde(default)]
    pub fallback: Fallback,
    /// How what goes to and from I/O nodes on other hosts is protected at least; nodes may ask for more.
    #[serde(default)]
    pub protect: Protect,
    /// Where it is counted what is done with each file, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<PathBuf>,
    /// Where every call is recorded, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<PathBuf>,
    /// A sealed, empty memory file that the preload library opens to stand for forwarded files.
    #[serde(default)]
    pub placeholder: Option<PathBuf>,
}

impl Config {
    /// The same for one that asks its node every time.
    pub fn unshared(&self) -> Config {
        Config { share: false, stage: false, ..self.clone() }
    }

    /// A job's client of these I/O nodes, everything else as by default.
    pub fn new(job: impl Into<String>, secret: impl Into<String>, nodes: Vec<Address>) -> Config {
        Config {
            job: job.into(),
            secret: secret.into(),
            vouch: None,
            reread: None,
            nodes,
            spare: Vec::new(),
            down: Vec::new(),
            epoch: Epoch::default(),
            exports: Vec::new(),
            hosts: Vec::new(),
            fixed: BTreeMap::new(),
            starter: None,
            run: 0,
            outside: false,
            host: None,
            origin: None,
            stripe: false,
            share: false,
            stage: false,
            deadline_ms: default_deadline_ms(),
            fallback: Fallback::default(),
            protect: Protect::None,
            files: None,
            trace: None,
            placeholder: None,
        }
    }
}

fn default_deadline_ms() -> u64 {
    30_000
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not the JSON that is expected.
    #[error("client configuration: {0}")]
    Json(#[from] serde_json::Error),
    /// Something is missing or out of range.
    #[error("client configuration: {0}")]
    Value(&'static str),
    /// A directory that cannot be forwarded so.
    #[error("{} cannot be forwarded: the directory {why}", dir.display())]
    Export {
        /// The directory.
        dir: PathBuf,
        /// What it does.
        why: &'static str,
    },
}

/// A file of this extension beside the configuration says that the job goes direct.
pub const DIRECT_MARK: &str = "direct";
/// The longest name of a job.
const LONGEST_NAME: usize = 255;
/// More directories than this are not forwarded.
const MOST_EXPORTS: usize = 1024;
/// Their names go into one frame.
const LONGEST_EXPORTS: usize = 48 << 10;
/// A configuration that is longer is none.
pub const LONGEST_CONFIG: usize = 1 << 20;

impl Config {
    /// As JSON, if whoever reads it can use it.
    pub fn to_json(&self) -> Result<Vec<u8>, ConfigError> {
        let json = serde_json::to_vec_pretty(self)?;
        Config::from_json(&json)?;
        Ok(json)
    }

    /// From JSON, checked.
    pub fn from_json(bytes: &[u8]) -> Result<Config, ConfigError> {
        if bytes.len() > LONGEST_CONFIG {
            return Err(ConfigError::Value("it is longer than 1 MiB: fewer directories or hosts, please"));
        }
        let c: Config = serde_json::from_slice(bytes)?;
        c.check()?;
        Ok(c)
    }

    pub(crate) fn check(&self) -> Result<Secret, ConfigError> {
        if self.nodes.is_empty() || self.nodes.len() > 1024 || self.spare.len() > 1024 {
            return Err(ConfigError::Value("nodes: between 1 and 1024 addresses are needed"));
        }
        if self.exports.len() > MOST_EXPORTS {
            return Err(ConfigError::Value("exports: no more than 1024 directories can be forwarded"));
        }
        if self.exports.iter().map(|e| e.export.len() + 4).sum::<usize>() > LONGEST_EXPORTS {
            return Err(ConfigError::Value("exports: their names have more than 48 KiB together"));
        }
        let dirs = || self.exports.iter().map(|e| &e.dir);
        if let Some(dir) = dirs().find(|dir| !dir.is_absolute()) {
            return Err(ConfigError::Export { dir: dir.clone(), why: "must be an absolute path" });
        }
        if let Some((_, dir)) = dirs().enumerate().find(|(i, dir)| dirs().take(*i).any(|other| other == *dir))
        {
            return Err(ConfigError::Export { dir: dir.clone(), why: "is given twice" });
        }
        if self.job.len() > LONGEST_NAME {
            return Err(ConfigError::Value("job: a name may have up to 255 bytes"));
        }
        Secret::from_hex(&self.secret).ok_or(ConfigError::Value("secret: 64 hexadecimal digits are needed"))
    }

    /// Where a process sits among those that share the job's I/O nodes, if anything is known of it.
    pub fn seat(&self, host: &str, task: Option<Task>) -> Option<Seat> {
        let fixed = self.fixed.iter().find(|(name, _)| same_host(name, host));
        match fixed.and_then(|(_, own)| self.nodes.iter().position(|node| node == own)) {
            Some(at) => Some(Seat::Turn(at)),
            None => Seat::of(host, &self.hosts, task, self.nodes.len()),
        }
    }

    /// The deadline as a duration.
    pub fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline_ms)
    }
}
