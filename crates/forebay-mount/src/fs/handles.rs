//! Open files and directories by the numbers that the kernel was given for them.

use super::dirs::Page;
use super::lost::Lost;
use super::{Outcome, errno};
use forebay_client::{Client, Error, File};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A file that is open on an I/O node for as long as somebody holds this.
pub(super) struct Held {
    pub(super) file: File,
    client: Arc<Client>,
    /// Locks of one file change one after the other.
    pub(super) locking: Mutex<()>,
    /// It has been locked as a whole, and not been unlocked by its program since.
    pub(super) flocked: AtomicBool,
    /// Who was told that its locks are lost.
    pub(super) lost: Lost,
    /// A close of a descriptor was told an error.
    refused: AtomicBool,
}

impl Held {
    pub(super) fn new(file: File, client: &Arc<Client>) -> Arc<Held> {
        Arc::new(Held {
            file,
            client: Arc::clone(client),
            locking: Mutex::new(()),
            flocked: AtomicBool::new(false),
            lost: Lost::default(),
            refused: AtomicBool::new(false),
        })
    }

    /// How a call of the thread `who` ended. Each process that shares the file is told of lost locks.
    pub(super) fn told<T>(&self, who: u32, ended: Result<T, Error>) -> Outcome<T> {
        match ended {
            Err(Error::LockLost(_)) => self.lost.note(who),
            _ => self.lost.tell(who)?,
        }
        ended.map_err(errno)
    }

    /// The same, where it is not known to be a process that shares the file.
    pub(super) fn by_name<T>(&self, who: u32, ended: Result<T, Error>) -> Outcome<T> {
        if let Err(Error::LockLost(_)) = ended {
            self.lost.note(who);
        }
        ended.map_err(errno)
    }

    /// A close of a descriptor is told an error. The end of the file is counted, too: as the first of these.
    pub(super) fn note_refused_close(&self) {
        self.client.count_refused_close(!self.refused.swap(true, Ordering::Relaxed));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Every write was answered; what is left to go wrong is told in the client's own notes.
        if let Err(e) = self.client.close(&self.file) {
            tracing::debug!("close: {e}");
        }
    }
}

/// One open file of the kernel.
#[derive(Clone)]
pub(super) struct Open {
    pub(super) node: u64,
    pub(super) held: Arc<Held>,
    /// Another open file of the kernel has the same one on the node: the file has no name to open
    /// it by.
    pub(super) shared: bool,
    /// Whoever has it knows of gates ([`super::passes`]).
    pub(super) knows_gates: bool,
    /// Where the listing of a directory stands.
    pub(super) page: Option<Arc<Mutex<Page>>>,
}

#[derive(Default)]
pub(super) struct Handles {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    open: HashMap<u64, Open, foldhash::fast::RandomState>,
    by_node: HashMap<u64, Vec<u64>, foldhash::fast::RandomState>,
    next: u64,
}

impl Handles {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters an open file and gives its number.
    pub(super) fn enter(&self, open: Open) -> u64 {
        let mut t = self.lock();
        t.next += 1;
        let fh = t.next;
        t.by_node.entry(open.node).or_default().push(fh);
        t.open.insert(fh, open);
        fh
    }

    pub(super) fn get(&self, fh: u64) -> Result<Open, i32> {
        self.lock().open.get(&fh).cloned().ok_or(libc::EBADF)
    }

    /// The same, unless the thread `who` is to be told that the file has lost its locks.
    pub(super) fn used(&self, who: u32, fh: u64) -> Result<Open, i32> {
        let open = self.get(fh)?;
        open.held.lost.tell(who)?;
        Ok(open)
    }

    /// Some open file of `node`.
    pub(super) fn of(&self, node: u64) -> Option<Arc<Held>> {
        let t = self.lock();
        let fh = t.by_node.get(&node)?.last()?;
        t.open.get(fh).map(|o| Arc::clone(&o.held))
    }

    /// An open file of `node` that `fits`.
    pub(super) fn that(&self, node: u64, fits: impl Fn(&File) -> bool) -> Option<Arc<Held>> {
        let t = self.lock();
        let all = t.by_node.get(&node)?;
        all.iter().filter_map(|fh| t.open.get(fh)).find(|o| fits(&o.held.file)).map(|o| Arc::clone(&o.held))
    }

    /// The open files of `node`, by number.
    pub(super) fn numbers(&self, node: u64) -> Vec<u64> {
        self.lock().by_node.get(&node).cloned().unwrap_or_default()
    }

    /// Whoever has it knows of gates.
    pub(super) fn knows_gates(&self, fh: u64) {
        if let Some(open) = self.lock().open.get_mut(&fh) {
            open.knows_gates = true;
        }
    }

    /// Whether some open file of `node` is used by somebody who may not know of gates.
    pub(super) fn has_strangers(&self, node: u64) -> bool {
        let t = self.lock();
        let mut all = t.by_node.get(&node).into_iter().flatten().filter_map(|fh| t.open.get(fh));
        all.any(|open| !open.knows_gates)
    }

    /// The kernel's last use of it is over.
    pub(super) fn release(&self, fh: u64) -> Option<Open> {
        let mut t = self.lock();
        let open = t.open.remove(&fh)?;
        if let Some(all) = t.by_node.get_mut(&open.node) {
            all.retain(|other| *other != fh);
            if all.is_empty() {
                t.by_node.remove(&open.node);
            }
        }
        Some(open)
    }

    /// The open files of `node`.
    pub(super) fn all_of(&self, node: u64) -> Vec<(u64, Arc<Held>)> {
        let t = self.lock();
        let all = t.by_node.get(&node).into_iter().flatten();
        all.filter_map(|fh| t.open.get(fh)).map(|o| (node, Arc::clone(&o.held))).collect()
    }

    /// Everything that is open, by node.
    pub(super) fn all(&self) -> Vec<(u64, Arc<Held>)> {
        self.lock().open.values().map(|o| (o.node, Arc::clone(&o.held))).collect()
    }

    pub(super) fn clear(&self) {
        let open: Vec<Open> = {
            let mut t = self.lock();
            t.by_node.clear();
            t.open.drain().map(|(_, o)| o).collect()
        };
        drop(open);
    }
}
