//! Storage for experiments where no parallel file system is at hand: the data really goes to the
//! exported directory, and every answer waits as long as the model's data servers would have taken.
//! Not a file system, and no faster than the directory it stores to.

use super::shared::{self, Ask, Found};
use super::{Posix, Storage, Target};
use crate::sys;
use forebay_sched::emulate::{Emulated as Model, StorageModel};
use forebay_sched::layout::Stripe;
use forebay_types::{FileId, Nanos, NodeId, OpKind};
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Emulated data servers. Clones are the same servers, so nodes in one process can share them; nodes
/// in several processes share those at a path.
#[derive(Clone, Debug)]
pub struct EmulatedServers {
    model: Arc<Mutex<Model>>,
    /// Where the servers are, if other processes use them too, and the way to them.
    shared: Option<Arc<(PathBuf, Mutex<Way>)>>,
}

/// The way to servers at a path.
#[derive(Debug)]
enum Way {
    /// Nobody has looked yet.
    Unknown,
    /// They are in this process.
    Here,
    /// Another process holds them.
    There(UnixStream),
}

impl EmulatedServers {
    /// Idle servers.
    pub fn new(model: StorageModel) -> EmulatedServers {
        EmulatedServers { model: Arc::new(Mutex::new(Model::new(model))), shared: None }
    }

    /// The servers that whoever comes first puts at the path; nobody is asked before
    /// [`EmulatedServers::find`].
    pub fn shared(model: StorageModel, path: &Path) -> EmulatedServers {
        let shared = Some(Arc::new((path.to_owned(), Mutex::new(Way::Unknown))));
        EmulatedServers { shared, ..EmulatedServers::new(model) }
    }

    /// Finds the servers, or holds them for others from now on if nobody does.
    ///
    /// # Errors
    /// If their path can be neither connected to nor listened on.
    pub(crate) fn find(&self) -> std::io::Result<()> {
        let Some(shared) = &self.shared else { return Ok(()) };
        let mut way = shared.1.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*way, Way::Unknown) {
            *way = self.look(&shared.0)?;
        }
        Ok(())
    }

    fn look(&self, path: &Path) -> std::io::Result<Way> {
        Ok(match shared::find(path, &self.model)? {
            Found::There(stream) => Way::There(stream),
            Found::Here => Way::Here,
        })
    }

    /// How files lie on them.
    pub(crate) fn layout(&self) -> Stripe {
        let model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        Stripe { size: model.model().stripe, count: model.model().servers.max(1), first: 0 }
    }

    fn submit(&self, ask: Ask) -> Nanos {
        let Some(shared) = &self.shared else { return shared::submit(&self.model, ask) };
        let (path, way) = &**shared;
        let mut way = way.lock().unwrap_or_else(PoisonError::into_inner);
        if let Way::There(stream) = &mut *way {
            if let Ok(done) = shared::ask(stream, ask) {
                return done;
            }
            // Whoever held them is gone: somebody else does now, perhaps this process.
            *way = self.look(path).unwrap_or(Way::Here);
        }
        drop(way);
        shared::submit(&self.model, ask)
    }
}

/// The directory, with the emulated servers' times.
pub(crate) struct Emulated {
    servers: EmulatedServers,
    node: NodeId,
}

impl Emulated {
    pub(crate) fn new(servers: EmulatedServers, node: NodeId) -> Emulated {
        Emulated { servers, node }
    }

    /// Hands a request to the servers; says when it will be done.
    fn submit(&self, op: OpKind, file: FileId, offset: u64, len: u64) -> Nanos {
        self.servers.submit(Ask { node: self.node, op, file, offset, len })
    }
}

impl Storage for Emulated {
    fn read(&self, at: Target<'_>, into: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        let len = into.iter().map(|b| b.len() as u64).sum();
        let done = self.submit(OpKind::Read, at.file, at.offset, len);
        let result = Posix.read(at, into);
        sys::sleep_until(done);
        result
    }

    fn write(&self, at: Target<'_>, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let len = from.iter().map(|b| b.len() as u64).sum();
        let done = self.submit(OpKind::Write, at.file, at.offset, len);
        let result = Posix.write(at, from);
        sys::sleep_until(done);
        result
    }

    fn append(&self, at: Target<'_>, from: &[u8]) -> Result<(usize, u64), Errno> {
        let done = self.submit(OpKind::Write, at.file, at.offset, from.len() as u64);
        let result = Posix.append(at, from);
        sys::sleep_until(done);
        result
    }

    fn metadata(&self) {
        let done = self.submit(OpKind::Metadata, FileId(0), 0, 0);
        sys::sleep_until(done);
    }
}
