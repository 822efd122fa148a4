//! The I/O node as a process: it starts, says that it is ready, drains when it is told to, and leaves its
//! statistics.

use crate::config::NodeConfig;
use crate::node::{Node, StartError};
use crate::running::Running;
use crate::sys::{block_termination, own_descriptor, wait_for_termination};
use forebay_types::Ready;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

/// Runs a node until SIGTERM or SIGINT have drained it; a second one ends it at once. `ready` is
/// called once it listens and whoever waits for it was told.
pub fn run(config: NodeConfig, told: &DaemonOutputs, ready: impl FnOnce(&Ready)) -> Result<(), DaemonError> {
    block_termination();
    let id = config.id.0;
    // What cannot be written at the end is said at the beginning.
    for path in told.stats_file.iter().chain(&told.ready_file) {
        try_whole(path).map_err(DaemonError::tell(path.display()))?;
    }
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

fn announce(running: &Running, node: u32, told: &DaemonOutputs) -> Result<Ready, DaemonError> {
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

/// Where a path leads.
enum OutputPath {
    /// To a file, or to none yet, here: a symbolic link stays one.
    File(PathBuf),
    /// To something that is written to and not replaced, such as a device or a FIFO.
    Special,
}

fn place(path: &Path) -> io::Result<OutputPath> {
    match std::fs::canonicalize(path) {
        Ok(real) if std::fs::metadata(&real)?.is_file() => Ok(OutputPath::File(real)),
        Ok(real) if real.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => Ok(OutputPath::Special),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(OutputPath::File(path.to_owned())),
        Err(e) => Err(e),
    }
}

/// Opens what is to become `real`.
fn draft(real: &Path) -> io::Result<(PathBuf, File)> {
    let mut name = real.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = real.with_file_name(name);
    let _ = std::fs::remove_file(&new);
    let file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
    Ok((new, file))
}

/// Whether a file can be written there.
fn try_whole(path: &Path) -> io::Result<()> {
    let OutputPath::File(real) = place(path)? else { return Ok(()) };
    std::fs::remove_file(draft(&real)?.0)
}

/// Writes a file, for nobody else's eyes, so that readers see nothing or all of it.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match place(path)? {
        OutputPath::File(real) => {
            let (new, mut file) = draft(&real)?;
            file.write_all(bytes)?;
            std::fs::rename(&new, &real)
        }
        // A FIFO that nobody reads is not waited for.
        OutputPath::Special => {
            File::options().write(true).custom_flags(libc::O_NONBLOCK).open(path)?.write_all(bytes)
        }
    }
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

    #[test]
    fn what_is_no_file_is_written_to_and_not_replaced() {
        use std::os::unix::fs::{FileTypeExt, symlink};
        let dir = tempfile::tempdir().unwrap();
        let (file, link, fifo) = (dir.path().join("file"), dir.path().join("link"), dir.path().join("fifo"));
        std::fs::write(&file, "before").unwrap();
        symlink(&file, &link).unwrap();
        write_whole(&link, b"by the link").unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "by the link");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        assert_eq!(write_whole(&fifo, b"to nobody").unwrap_err().raw_os_error(), Some(libc::ENXIO));
        let reader = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&fifo).unwrap();
        write_whole(&fifo, b"to somebody").unwrap();
        assert_eq!(std::io::read_to_string(reader).unwrap(), "to somebody");
        assert!(std::fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());
        write_whole(Path::new("/dev/null"), b"nothing").unwrap();
        assert!(std::fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        assert!(try_whole(&dir.path().join("none/stats")).is_err());
    }
}
