//! Emulated data servers that several I/O node processes of one machine share, through a Unix socket:
//! the first node there holds them, the others ask it.

use crate::sys;
use forebay_sched::emulate::Emulated as Model;
use forebay_types::{FileId, Nanos, NodeId, OpKind};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// A request to the servers, as it goes over the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) node: NodeId,
    pub(super) op: OpKind,
    pub(super) file: FileId,
    pub(super) offset: u64,
    pub(super) len: u64,
}

const ASK: usize = 32;

impl Ask {
    fn encode(&self) -> [u8; ASK] {
        let op: u32 = match self.op {
            OpKind::Read => 0,
            OpKind::Write => 1,
            OpKind::Metadata => 2,
        };
        let mut raw = [0; ASK];
        raw[..4].copy_from_slice(&self.node.0.to_le_bytes());
        raw[4..8].copy_from_slice(&op.to_le_bytes());
        for (chunk, n) in raw[8..].chunks_exact_mut(8).zip([self.file.0, self.offset, self.len]) {
            chunk.copy_from_slice(&n.to_le_bytes());
        }
        raw
    }

    fn decode(raw: &[u8; ASK]) -> Ask {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| raw[at + i]));
        let op = match word(0) >> 32 {
            0 => OpKind::Read,
            1 => OpKind::Write,
            _ => OpKind::Metadata,
        };
        Ask { node: NodeId(word(0) as u32), op, file: FileId(word(8)), offset: word(16), len: word(24) }
    }
}

/// When the servers will have done what is asked.
pub(super) fn submit(model: &Mutex<Model>, ask: Ask) -> Nanos {
    let mut model = model.lock().unwrap_or_else(PoisonError::into_inner);
    // Under the lock, so that the model sees time pass in order.
    model.submit(sys::now(), ask.node, ask.op, ask.file, ask.offset, ask.len)
}

/// Either end.
pub(super) enum Found {
    /// Somebody holds the servers there.
    There(UnixStream),
    /// Nobody did: now this process does, and answers others.
    Here,
}

/// Finds the servers at `path`, or puts `model` there.
pub(super) fn find(path: &Path, model: &Arc<Mutex<Model>>) -> Result<Found> {
    for _ in 0..20 {
        match UnixStream::connect(path) {
            Ok(stream) => return Ok(Found::There(stream)),
            Err(e) if e.kind() == ErrorKind::ConnectionRefused && sys::is_socket(path) => {
                drop(std::fs::remove_file(path));
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        match UnixListener::bind(path) {
            Ok(listener) => {
                hold(listener, Arc::clone(model))?;
                return Ok(Found::Here);
            }
            // Somebody else was faster.
            Err(e) if e.kind() == ErrorKind::AddrInUse => {
                std::thread::sleep(std::time::Duration::from_millis(10))
            }
            Err(e) => return Err(e),
        }
    }
    Err(Error::new(ErrorKind::TimedOut, "nobody holds the emulated data servers for long"))
}

fn hold(listener: UnixListener, model: Arc<Mutex<Model>>) -> Result<()> {
    let spawn = |f: Box<dyn FnOnce() + Send>| {
        std::thread::Builder::new().name("emulated".into()).stack_size(64 << 10).spawn(f).map(drop)
    };
    spawn(Box::new(move || {
        for mut stream in listener.incoming().flatten() {
            let model = Arc::clone(&model);
            let serve = move || {
                let mut raw = [0; ASK];
                while stream.read_exact(&mut raw).is_ok() {
                    let done = submit(&model, Ask::decode(&raw));
                    if stream.write_all(&done.0.to_le_bytes()).is_err() {
                        break;
                    }
                }
            };
            let _ = std::thread::Builder::new().name("emulated".into()).stack_size(64 << 10).spawn(serve);
        }
    }))
}

/// Asks whoever holds the servers.
pub(super) fn ask(stream: &mut UnixStream, ask: Ask) -> Result<Nanos> {
    stream.write_all(&ask.encode())?;
    let mut raw = [0; 8];
    stream.read_exact(&mut raw)?;
    Ok(Nanos(u64::from_le_bytes(raw)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_sched::emulate::{ServerModel, StorageModel};

    #[test]
    fn asks_survive_the_wire() {
        for op in [OpKind::Read, OpKind::Write, OpKind::Metadata] {
            let a = Ask { node: NodeId(7), op, file: FileId(u64::MAX), offset: 1 << 40, len: 3 };
            assert_eq!(Ask::decode(&a.encode()), a);
        }
    }

    #[test]
    fn the_first_holds_and_the_second_asks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("servers");
        let per_request = Nanos::from_secs(1000);
        let server = ServerModel { per_request, penalty: 0.0, ..ServerModel::default() };
        let new = || {
            Arc::new(Mutex::new(Model::new(StorageModel { servers: 1, server, ..StorageModel::default() })))
        };
        let (first, second) = (new(), new());
        assert!(matches!(find(&path, &first).unwrap(), Found::Here));
        let Found::There(mut stream) = find(&path, &second).unwrap() else { panic!("it is held") };
        let meta =
            |node| Ask { node: NodeId(node), op: OpKind::Metadata, file: FileId(0), offset: 0, len: 0 };
        let here = submit(&first, meta(0));
        let there = ask(&mut stream, meta(1)).unwrap();
        assert!(there.since(here) >= per_request, "one queue for both");
    }
}
