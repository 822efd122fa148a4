//! Storage for experiments where no parallel file system is at hand: the data really goes to the
//! exported directory, and every answer waits as long as the model's data servers would have taken.
//! Not a file system, and no faster than the directory it stores to.

use super::{Posix, Storage, Target};
use crate::sys;
use forebay_sched::emulate::{Emulated as Model, StorageModel};
use forebay_sched::layout::Stripe;
use forebay_types::{FileId, Nanos, NodeId, OpKind};
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Emulated data servers. Clones are the same servers: nodes in one process can share them.
#[derive(Clone, Debug)]
pub struct EmulatedServers {
    model: Arc<Mutex<Model>>,
}

impl EmulatedServers {
    /// Idle servers.
    pub fn new(model: StorageModel) -> EmulatedServers {
        EmulatedServers { model: Arc::new(Mutex::new(Model::new(model))) }
    }

    fn lock(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How files lie on them.
    pub(crate) fn layout(&self) -> Stripe {
        let model = self.lock();
        Stripe { size: model.model().stripe, count: model.model().servers.max(1), first: 0 }
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
        let mut model = self.servers.lock();
        // Under the lock, so that the model sees time pass in order.
        model.submit(sys::now(), self.node, op, file, offset, len)
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
