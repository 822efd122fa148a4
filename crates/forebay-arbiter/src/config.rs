//! What an arbiter is told when it starts: as a value, and as the TOML file it can come from.

pub use crate::api::Users;
use crate::core::CoreConfig;
use crate::council::TuneConfig;
use crate::curves::Curves;
use crate::ha::EtcdTls;
use crate::health::ScreenConfig;
use crate::history::Keep;
use forebay_control::private;
use forebay_policy::dfra::DfraConfig;
use forebay_policy::{FairConfig, PolicyKind, SharingRule};
use forebay_types::{Address, Nanos, NodeId, Secret, SecretError, hostlist};
use forebay_who::Munge;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Everything an arbiter is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The secret that it shares with its nodes and its users.
    pub secret: Option<Secret>,
    /// Where it keeps its state.
    pub state: PathBuf,
    /// How it decides.
    pub core: CoreConfig,
    /// The explorer's curves.
    pub curves: Option<PathBuf>,
    /// The access pattern detector, if not the one that ships with the program.
    pub model: Option<PathBuf>,
    /// How much history it keeps.
    pub keep: Keep,
    /// Connections it serves at once, besides those of the I/O nodes.
    pub max_connections: usize,
    /// Jobs that have metrics of their own; the others are added up.
    pub max_job_metrics: usize,
    /// Users prove with MUNGE who they are.
    pub users: Option<Users>,
    /// What it says is encrypted, and that it is the arbiter proved by a certificate.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// How to prove oneself to etcd, and how it does.
    pub etcd: EtcdTls,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 7410)),
            secret: None,
            state: PathBuf::from("forebay-arbiter"),
            core: CoreConfig::default(),
            curves: None,
            model: None,
            keep: Keep::default(),
            max_connections: 4096,
            max_job_metrics: 100,
            users: None,
            tls: None,
            etcd: EtcdTls::default(),
        }
    }
}

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file.
    #[error("{file}: {reason}")]
    File {
        /// Which.
        file: String,
        /// What is wrong in it.
        reason: String,
    },
    /// The secret.
    #[error(transparent)]
    Secret(#[from] SecretError),
}

/// An example of the file, with every setting at its default.
pub const EXAMPLE: &str = include_str!("../example.toml");

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    listen: Option<Address>,
    secret_file: Option<PathBuf>,
    state: Option<PathBuf>,
    policy: Option<String>,
    curves: Option<PathBuf>,
    compute_nodes: Option<u32>,
    sharing: Option<SharingRule>,
    lease_ms: Option<u64>,
    node_grace_ms: Option<u64>,
    start_grace_ms: Option<u64>,
    review_ms: Option<u64>,
    min_gain: Option<f64>,
    max_jobs: Option<usize>,
    max_nodes: Option<usize>,
    max_connections: Option<usize>,
    max_job_metrics: Option<usize>,
    munge: Option<bool>,
    munge_socket: Option<PathBuf>,
    admins: Option<Vec<String>>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    etcd: Option<EtcdTls>,
    model: Option<PathBuf>,
    health: Option<ScreenConfig>,
    history: Option<HistoryTable>,
    tune: Option<TuneConfig>,
    fair: Option<FairConfig>,
    dfra: Option<DfraConfig>,
    map: Option<BTreeMap<String, u32>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct HistoryTable {
    seconds_for_hours: Option<u64>,
    minutes_for_days: Option<u64>,
    hours_for_days: Option<u64>,
    size_mib: Option<u64>,
    decisions: Option<u64>,
}

impl File {
    /// Refuses settings that no arbiter can work with, and says which are allowed.
    fn check(&self) -> Result<(), String> {
        const HOUR: u64 = 3_600_000;
        const CENTURY: u64 = 36_500;
        let number = |n: Option<usize>| n.map(|n| n as u64);
        let of_history = |key: fn(&HistoryTable) -> Option<u64>| self.history.as_ref().and_then(key);
        let settings = [
            ("lease-ms", self.lease_ms, 500, 24 * HOUR),
            ("node-grace-ms", self.node_grace_ms, 1, HOUR),
            ("start-grace-ms", self.start_grace_ms, 0, HOUR),
            ("review-ms", self.review_ms, 100, 24 * HOUR),
            ("compute-nodes", self.compute_nodes.map(u64::from), 1, 1 << 24),
            ("max-jobs", number(self.max_jobs), 1, 10_000_000),
            ("max-nodes", number(self.max_nodes), 1, 1_000_000),
            ("max-connections", number(self.max_connections), 1, 1 << 20),
            ("max-job-metrics", number(self.max_job_metrics), 0, 1_000_000),
            ("history.seconds-for-hours", of_history(|h| h.seconds_for_hours), 1, 24 * CENTURY),
            ("history.minutes-for-days", of_history(|h| h.minutes_for_days), 1, CENTURY),
            ("history.hours-for-days", of_history(|h| h.hours_for_days), 1, CENTURY),
            ("history.size-mib", of_history(|h| h.size_mib), 1, 1 << 30),
            ("history.decisions", of_history(|h| h.decisions), 1, 1_000_000_000),
        ];
        let outside = |(name, value, min, max): &(&str, Option<u64>, u64, u64)| {
            let value = value.filter(|v| !(*min..=*max).contains(v))?;
            Some(format!("{name} is {value}: it can be {min} to {max}"))
        };
        settings.iter().find_map(outside).map_or(Ok(()), Err)
    }
}

impl Config {
    /// Reads a configuration file; what it does not say is as by default.
    pub fn from_file(path: &Path) -> Result<Config, ConfigError> {
        let fail = |reason: String| ConfigError::File { file: path.display().to_string(), reason };
        let text = std::fs::read_to_string(path).map_err(|e| fail(format!("cannot read: {e}")))?;
        let (mut config, secret) =
            Config::from_toml(&text, path.parent().unwrap_or(Path::new("."))).map_err(fail)?;
        if let Some(secret) = secret {
            config.secret = Some(Secret::read(&secret)?);
        }
        Ok(config)
    }

    /// The configuration, and the file that holds its secret.
    fn from_toml(text: &str, base: &Path) -> Result<(Config, Option<PathBuf>), String> {
        fn set<T>(to: &mut T, from: Option<T>) {
            if let Some(value) = from {
                *to = value;
            }
        }
        let file: File = toml::from_str(text).map_err(|e| e.to_string())?;
        file.check()?;
        let mut c = Config::default();
        if let Some(listen) = file.listen {
            c.listen = tcp(&listen)?;
        }
        set(&mut c.state, file.state.map(|p| base.join(p)));
        c.curves = file.curves.map(|p| base.join(p));
        c.model = file.model.map(|p| base.join(p));
        set(&mut c.max_connections, file.max_connections);
        set(&mut c.max_job_metrics, file.max_job_metrics);
        let admins = file.admins.unwrap_or_default();
        if file.munge == Some(true) {
            c.users = Some(Users::new(Munge::new(file.munge_socket.as_deref()), &admins)?);
        } else if !admins.is_empty() {
            return Err("admins: only with `munge = true` it is known who somebody is".to_owned());
        }
        c.tls = match (file.certificate, file.key) {
            (Some(certificate), Some(key)) => Some(tls(&base.join(certificate), &base.join(key))?),
            (None, None) => None,
            _ => return Err("give `certificate` and `key`, or neither".to_owned()),
        };
        c.etcd = file.etcd.unwrap_or_default().below(base);
        let core = &mut c.core;
        if let Some(name) = file.policy {
            core.policy = name.parse().map_err(|e: forebay_policy::PolicyError| e.to_string())?;
        }
        core.compute_nodes = file.compute_nodes;
        set(&mut core.sharing, file.sharing);
        set(&mut core.lease, file.lease_ms.map(Nanos::from_millis));
        set(&mut core.node_grace, file.node_grace_ms.map(Nanos::from_millis));
        set(&mut core.start_grace, file.start_grace_ms.map(Nanos::from_millis));
        set(&mut core.review, file.review_ms.map(Nanos::from_millis));
        set(&mut core.min_gain, file.min_gain);
        if !(0.0..=100.0).contains(&core.min_gain) {
            return Err(format!("min-gain: {} is not between 0 and 100", core.min_gain));
        }
        set(&mut core.max_jobs, file.max_jobs);
        set(&mut core.max_nodes, file.max_nodes);
        set(&mut core.tune, file.tune);
        core.tune.check().map_err(|e| e.to_string())?;
        set(&mut core.health, file.health);
        if let Some(problem) = core.health.problem() {
            return Err(format!("health: {problem}"));
        }
        set(&mut core.settings.fair, file.fair);
        set(&mut core.settings.dfra, file.dfra);
        core.map = map(&file.map.unwrap_or_default())?;
        // A policy that cannot be made says why now.
        if core.policy == PolicyKind::Zero {
            return Err("policy: ZERO means direct access, which an arbiter does not give".to_owned());
        }
        core.policy.build(&core.settings).map_err(|e| e.to_string())?;
        if let Some(h) = file.history {
            set(&mut c.keep.seconds, h.seconds_for_hours.map(|n| n.saturating_mul(3600)));
            set(&mut c.keep.minutes, h.minutes_for_days.map(|n| n.saturating_mul(86_400)));
            set(&mut c.keep.hours, h.hours_for_days.map(|n| n.saturating_mul(86_400)));
            set(&mut c.keep.bytes, h.size_mib.map(|n| n.saturating_mul(1 << 20)));
            set(&mut c.keep.decisions, h.decisions);
        }
        Ok((c, file.secret_file.map(|p| base.join(p))))
    }

    /// The curves of the table that was named, or none.
    pub fn read_curves(&self) -> Result<Curves, ConfigError> {
        let Some(path) = &self.curves else { return Ok(Curves::default()) };
        let fail = |reason: String| ConfigError::File { file: path.display().to_string(), reason };
        let file = std::fs::File::open(path).map_err(|e| fail(format!("cannot read the curves: {e}")))?;
        Curves::from_csv(file)
            .map_err(|e| fail(format!("{e} (`forebay analyze --curves` writes such a file)")))
    }
}

/// A site's map, host by host.
fn map(lists: &BTreeMap<String, u32>) -> Result<BTreeMap<String, NodeId>, String> {
    let mut map = BTreeMap::new();
    for (list, node) in lists {
        let hosts = hostlist::expand(list).filter(|hosts| !hosts.is_empty());
        for host in hosts.ok_or_else(|| format!("map: `{list}` is no list of hosts as in `c1,c[2-4]`"))? {
            if let Some(other) = map.insert(host.clone(), NodeId(*node)) {
                return Err(format!("map: {host} is there twice, for I/O nodes {} and {node}", other.0));
            }
        }
    }
    Ok(map)
}

/// How to prove to be the arbiter.
fn tls(certificate: &Path, key: &Path) -> Result<Arc<rustls::ServerConfig>, String> {
    let fail = |e: &dyn std::fmt::Display| format!("{}: {e}", certificate.display());
    let (chain, key) = (private::certificates(certificate)?, private::private_key(key)?);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|e| fail(&e))?.with_no_client_auth();
    Ok(Arc::new(config.with_single_cert(chain, key).map_err(|e| fail(&e))?))
}

/// Where to listen: HTTP is served over TCP.
pub fn tcp(listen: &Address) -> Result<SocketAddr, String> {
    match listen {
        Address::Tcp(at) => Ok(*at),
        Address::Unix(_) => Err(format!("listen: {listen}: an arbiter listens on tcp:HOST:PORT")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_the_default() {
        let (c, secret) = Config::from_toml(EXAMPLE, Path::new("")).unwrap();
        let d = Config::default();
        assert_eq!((c.listen, &c.state, &c.core, c.keep), (d.listen, &d.state, &d.core, d.keep));
        assert_eq!((c.max_connections, c.max_job_metrics), (d.max_connections, d.max_job_metrics));
        assert_eq!((c.curves, secret), (None, None));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, expect) in [
            ("lisen = 3", "lisen"),
            ("listen = \"7410\"", "tcp:HOST:PORT"),
            ("listen = \"unix:/x\"", "tcp:HOST:PORT"),
            ("policy = \"best\"", "best"),
            ("policy = \"zero\"", "direct access"),
            ("policy = \"fair\"\n[fair]\nshare = 2.0", "share"),
            ("min-gain = -1.0", "min-gain"),
            ("lease-ms = 0", "lease-ms is 0: it can be 500 to"),
            ("node-grace-ms = 0", "node-grace-ms is 0: it can be 1 to"),
            ("review-ms = 0", "review-ms is 0: it can be 100 to"),
            ("max-jobs = 0", "max-jobs is 0: it can be 1 to"),
            ("max-nodes = 0", "max-nodes is 0: it can be 1 to"),
            ("max-connections = 0", "max-connections is 0: it can be 1 to"),
            ("[history]\ndecisions = 0", "history.decisions is 0: it can be 1 to"),
            ("[history]\nsize-mib = 0", "history.size-mib is 0"),
            ("[history]\nhours-for-days = 99999999", "history.hours-for-days"),
            ("[health]\nfactor = 0.5", "factor"),
            ("[map]\n\"c[1-3\" = 0", "map: `c[1-3` is no list"),
            ("[map]\n\"c[1-3]\" = 0\n\"c2\" = 1", "map: c2 is there twice, for I/O nodes 1 and 0"),
            ("policy = \"dfra\"\n[dfra]\nquiet_seconds = 0.0", "quiet_seconds"),
            ("policy = \"dfra\"\n[dfra]\ndefault_io_nodes = 0", "default_io_nodes"),
        ] {
            let e = Config::from_toml(text, Path::new("")).unwrap_err();
            assert!(e.contains(expect), "{e}");
        }
    }
}
