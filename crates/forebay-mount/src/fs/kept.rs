//! What does not change is fetched once: files stay open on the node for the next one who opens them,
//! missing names are believed, and what was changed after all is refused.

use super::handles::Held;
use super::{Asked, At, Contract, Fs, Outcome, Reply};
use crate::abi::{EntryOut, Opcode};
use forebay_client::{Attr, OpenFlags};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zerocopy::FromZeros;

/// Seconds that no run lasts.
pub(super) const FOR_EVER: u64 = 1 << 30;
/// So many files are kept open; one more, and it begins anew.
const MOST: usize = 4096;

/// Files that are open on the node, by their number, and the names of those that were changed.
#[derive(Default)]
pub(super) struct Kept {
    open: Mutex<HashMap<u64, Arc<Held>, foldhash::fast::RandomState>>,
    changed: Mutex<BTreeSet<Vec<u8>>>,
}

impl Kept {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Held>, foldhash::fast::RandomState>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, node: u64) -> Option<Arc<Held>> {
        self.lock().get(&node).cloned()
    }

    pub(super) fn keep(&self, node: u64, held: &Arc<Held>) {
        let mut kept = self.lock();
        let full = if kept.len() >= MOST { std::mem::take(&mut *kept) } else { HashMap::default() };
        kept.insert(node, Arc::clone(held));
        drop(kept);
        // Closing is a trip to the node each.
        drop(full);
    }

    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut *self.lock());
        drop(all);
    }
}

/// The answer to a name that is not there, and will not be for so many seconds unless it is made here.
pub(super) fn missing(seconds: u64) -> Reply {
    Reply::of(&EntryOut { entry_valid: seconds, ..EntryOut::new_zeroed() })
}

/// What a change of the contents changes.
fn version(attr: &Attr) -> (u64, (i64, u32), (i64, u32)) {
    (attr.size, attr.mtime, attr.ctime)
}

impl Fs {
    pub(super) fn is_immutable(&self) -> bool {
        self.contract == Contract::Immutable
    }

    /// Whether a request would change something that is not to be changed.
    pub(crate) fn refuses(&self, opcode: Opcode, open_flags: u32) -> bool {
        let changes = matches!(
            opcode,
            Opcode::Setattr
                | Opcode::Symlink
                | Opcode::Mknod
                | Opcode::Mkdir
                | Opcode::Unlink
                | Opcode::Rmdir
                | Opcode::Rename
                | Opcode::Rename2
                | Opcode::Link
                | Opcode::Create
                | Opcode::Tmpfile
                | Opcode::Write
                | Opcode::Setxattr
                | Opcode::Removexattr
                | Opcode::Fallocate
                | Opcode::CopyFileRange
        );
        let flags = OpenFlags::from_linux(open_flags as i32);
        self.is_immutable() && (changes || flags.has(OpenFlags::WRITE) || flags.has(OpenFlags::TRUNC))
    }

    /// The file `node` still has what it had, as `attr` tells. (Of a directory the names are kept.)
    pub(super) fn unchanged(&self, node: u64, attr: &Attr) -> Outcome<()> {
        if !self.is_immutable() || attr.mode & libc::S_IFMT != libc::S_IFREG {
            return Ok(());
        }
        let known = self.tree().attr(node).map(version);
        if known == Some(version(attr)) {
            return Ok(());
        }
        let name = self.tree().path(node).unwrap_or_default();
        tracing::error!(
            "{} was changed, though the contract is immutable: it is refused from here on",
            String::from_utf8_lossy(&name)
        );
        let mut changed = self.kept.changed.lock().unwrap_or_else(PoisonError::into_inner);
        if changed.len() < MOST {
            changed.insert(name);
        }
        Err(libc::ESTALE)
    }

    /// The files that were changed, though they should not.
    pub(crate) fn changed_files(&self) -> Vec<Vec<u8>> {
        self.kept.changed.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// What was just read of an open file is what it had when it was first seen.
    pub(super) fn read_unchanged(&self, node: u64, held: &Arc<Held>) -> Outcome<()> {
        if !self.is_immutable() {
            return Ok(());
        }
        let attr = self.stat_at(&At::Open(Arc::clone(held), 0))?;
        self.unchanged(node, &attr)
    }

    /// A file that was opened before.
    pub(super) fn opened_before(&self, who: &Asked) -> Option<Arc<Held>> {
        if self.is_immutable() { self.kept.get(who.node) } else { None }
    }
}
