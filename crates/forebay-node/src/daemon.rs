//! The I/O node as a process: it starts, says that it is ready, drains when it is told to, and leaves its
//! statistics.

use crate::config::NodeConfig;
use crate::node::{Node, StartError};
use crate::running::Running;
use crate::sys::{block_termination, own_descriptor, wait_for_termination};
use forebay_types::Ready;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Whom a node's process tells what.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Once it listens, the addresses as a line of JSON go to this file, which appears whole…
    pub ready_file: Option<PathBuf>,
    /// …and to this inherited descriptor, which is then closed.
    pub ready_fd: Option<i32>,
    /// At the end, the statistics as JSON go here.
    pub stats_file: Option<PathBuf>,
    /// Its standard input tells it to end, by its own end: for one that was started from another host.
    pub until_input_ends: bool,
}

/// Why a node's process ends early.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// It does not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// It cannot say something to somebody who waits for it.
    #[error("cannot write {what}: {source}")]
    Tell {
        /// What, and to whom.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
}

impl DaemonError {
    fn tell(what: impl std::fmt::Display) -> impl FnOnce(io::Error) -> DaemonError {
        move |source| DaemonError::Tell { what: what.to_string(), source }
    }
}

/// Runs a node until SIGTERM or SIGINT have drained it; a second one ends it at once. `ready` is
/// called once it listens and whoever waits for it was told.
pub fn run(config: NodeConfig, told: &Told, ready: impl FnOnce(&Ready)) -> Result<(), DaemonError> {
    block_termination();
    let id = config.id.0;
    let running = Node::start(config)?;
    ready(&announce(&running, id, told)?);
    let node = Arc::clone(running.node());
    let waiting = std::thread::Builder::new().stack_size(64 << 10).spawn(move || {
        wait_for_termination();
        node.begin_drain();
        wait_for_termination();
        std::process::exit(130);
    });
    waiting.map_err(StartError::Thread)?;
    if told.until_input_ends {
        let node = Arc::clone(running.node());
        let reading = std::thread::Builder::new().stack_size(64 << 10).spawn(move || {
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            node.begin_drain();
        });
        reading.map_err(StartError::Thread)?;
    }
    running.wait();
    let node = Arc::clone(running.node());
    running.drain();
    if let Some(path) = &told.stats_file {
        let json = serde_json::to_vec_pretty(&node.report()).map_err(io::Error::from);
        json.and_then(|json| write_whole(path, &json)).map_err(DaemonError::tell(path.display()))?;
    }
    Ok(())
}

fn announce(running: &Running, node: u32, told: &Told) -> Result<Ready, DaemonError> {
    let addresses = running.addresses().iter().map(ToString::to_string).collect();
    let metrics = running.metrics().map(|at| at.to_string());
    let ready = Ready { pid: std::process::id(), node, addresses, metrics };
    let line = serde_json::to_vec(&ready).map_err(io::Error::from);
    let mut line = line.map_err(DaemonError::tell("where it listens"))?;
    line.push(b'\n');
    if let Some(path) = &told.ready_file {
        write_whole(path, &line).map_err(DaemonError::tell(path.display()))?;
    }
    if let Some(fd) = told.ready_fd {
        let written = own_descriptor(fd).and_then(|fd| std::fs::File::from(fd).write_all(&line));
        written.map_err(DaemonError::tell(format!("to descriptor {fd}")))?;
    }
    Ok(ready)
}

/// Writes a file, for nobody else's eyes, so that readers see nothing or all of it.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    let _ = std::fs::remove_file(&new);
    std::fs::File::options().write(true).create_new(true).mode(0o600).open(&new)?.write_all(bytes)?;
    std::fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_tells_is_for_its_user_alone() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ready");
        for text in ["first", "second"] {
            write_whole(&path, text.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
}
