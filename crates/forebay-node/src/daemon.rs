//! The I/O node as a process: it starts, says that it is ready, drains when it is told to, and leaves its
//! statistics.

use crate::config::NodeConfig;
use crate::node::{Node, StartError};
use crate::running::Running;
use crate::sys::{
    block_termination, forget_termination, own_descriptor, raise_file_size_limit, wait_for_termination,
};
use forebay_types::{Ready, output};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Whom a node's process tells what.
#[derive(Clone, Debug, Default)]
pub struct DaemonOutputs {
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

/// A second signal so soon is the first one: `timeout` and terminals tell a process, and its group, too.
const SAME_REQUEST: Duration = Duration::from_millis(250);

/// Runs a node until SIGTERM or SIGINT have drained it; a second one ends it at once. `ready` is
/// called once it listens and whoever waits for it was told.
pub fn run(config: NodeConfig, told: &DaemonOutputs, ready: impl FnOnce(&Ready)) -> Result<(), DaemonError> {
    block_termination();
    raise_file_size_limit();
    let id = config.id.0;
    // What cannot be written at the end is said at the beginning.
    for path in told.stats_file.iter().chain(&told.ready_file) {
        let tried = output::beside(path, &config.read_from).and_then(|()| output::try_private(path));
        tried.map_err(DaemonError::tell(path.display()))?;
    }
    let running = Node::start(config)?;
    ready(&announce(&running, id, told)?);
    let node = Arc::clone(running.node());
    let waiting = std::thread::Builder::new().stack_size(64 << 10).spawn(move || {
        wait_for_termination();
        node.begin_drain();
        std::thread::sleep(SAME_REQUEST);
        forget_termination();
        std::process::exit(128 + wait_for_termination());
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
    if let Some(path) = told.stats_file.as_ref().filter(|_| !crate::sys::orphaned()) {
        let json = serde_json::to_vec_pretty(&node.report()).map_err(io::Error::from);
        json.and_then(|json| output::write_private(path, &json))
            .map_err(DaemonError::tell(path.display()))?;
    }
    Ok(())
}

fn announce(running: &Running, node: u32, told: &DaemonOutputs) -> Result<Ready, DaemonError> {
    let addresses = running.addresses().iter().map(ToString::to_string).collect();
    let metrics = running.metrics().map(|at| at.to_string());
    let ready = Ready { pid: std::process::id(), node, addresses, metrics };
    let line = serde_json::to_vec(&ready).map_err(io::Error::from);
    let mut line = line.map_err(DaemonError::tell("where it listens"))?;
    line.push(b'\n');
    if let Some(path) = &told.ready_file {
        output::write_private(path, &line).map_err(DaemonError::tell(path.display()))?;
    }
    if let Some(fd) = told.ready_fd {
        let written = own_descriptor(fd).and_then(|fd| std::fs::File::from(fd).write_all(&line));
        written.map_err(DaemonError::tell(format!("to descriptor {fd}")))?;
    }
    Ok(ready)
}
