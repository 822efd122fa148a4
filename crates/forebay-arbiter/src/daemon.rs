//! The arbiter as a process: it opens its state, listens, leads or waits to, and ends in order.

use crate::config::{Config, ConfigError};
use crate::ha::{Attending, Etcd, EtcdUrl};
use crate::service::{Leading, Shared, unix_seconds};
use crate::store::{SqliteStore, StoreError};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// How long what is under way may take when it ends.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Why an arbiter does not run, or not any more.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// Its settings, or files they name.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Its state cannot be opened.
    #[error(transparent)]
    State(#[from] StoreError),
    /// The system does not let it.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// etcd cannot be spoken to.
    #[error("etcd: {0}")]
    Etcd(String),
    /// It had to stop leading.
    #[error("the arbiter gives up: {0}")]
    Over(StoreError),
}

fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> DaemonError {
    let what = what.into();
    move |source| DaemonError::System { what, source }
}

/// Runs an arbiter until SIGTERM or SIGINT; alone, or as one of several that share an etcd cluster. `ready`
/// is told where it listens.
pub fn run(config: Config, etcd: Option<EtcdUrl>, ready: impl FnOnce(&str)) -> Result<(), DaemonError> {
    let curves = config.read_curves()?;
    let etcd = etcd.map(|url| Etcd::new(&url, &config.etcd)).transpose().map_err(DaemonError::Etcd)?;
    let store = match &etcd {
        Some(_) => None,
        None => Some(SqliteStore::open(&config.state, unix_seconds())?),
    };
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let shared = Shared::new(config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(system("cannot start threads"))?;
    runtime.block_on(async {
        let at = shared.config.listen;
        let cannot = || format!("cannot listen on {at}");
        let listener = tokio::net::TcpListener::bind(at).await.map_err(system(cannot()))?;
        let address = listener.local_addr().map_err(system(cannot()))?;
        let (attending, leading) = match (etcd, store) {
            (Some(etcd), _) => {
                let attending = Attending::start(shared.clone(), etcd, url(scheme, address));
                (Some(attending.map_err(system("cannot attend the election"))?), None)
            }
            (None, Some(store)) => (None, Some(shared.lead(Box::new(store), curves)?)),
            (None, None) => (None, None),
        };
        ready(&format!("{scheme}://{address}"));
        let over = async {
            // One of several goes on when it does not lead any more.
            while leading.as_ref().is_none_or(|l| !l.is_over()) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let end = async {
            tokio::select! {
                _ = terminated() => {}
                () = over => {}
            }
        };
        crate::serve::serve(shared.clone(), listener, end).await;
        drop(attending);
        leading.map_or(Ok(()), Leading::stop).map_err(DaemonError::Over)
    })?;
    runtime.shutdown_timeout(LAST_WORDS);
    Ok(())
}

/// Where other machines reach this arbiter.
fn url(scheme: &str, address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        return format!("{scheme}://{host}:{}", address.port());
    }
    format!("{scheme}://{address}")
}

async fn terminated() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate())?;
    if ignores(SignalKind::interrupt().as_raw_value()) {
        term.recv().await;
        return Ok(());
    }
    let mut int = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    Ok(())
}

/// Whether whoever started this process had it ignore that signal, as shells do with interrupts of background jobs.
fn ignores(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|l| u64::from_str_radix(l.strip_prefix("SigIgn:")?.trim(), 16).ok());
    set.is_some_and(|set| set >> (signal - 1) & 1 == 1)
}
