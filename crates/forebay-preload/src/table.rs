//! Which descriptors are forwarded files. Look-ups take no lock; an entry stays alive while a call
//! uses it even if another thread closes the descriptor meanwhile.

use crate::place::spare;
use crate::shared::{Busy, Shared};
use forebay_client::{File, OpenFlags};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Descriptor numbers from here on are never forwarded.
pub(crate) const MAX_FD: usize = 1 << 16;

/// What a forwarded descriptor stands for. Nearly all are files: a pointer to each would cost every call a step.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Kind {
    /// A file or directory on an I/O node.
    Remote(File),
    /// A directory above a forwarded one that does not exist on this machine.
    Above(Vec<u8>),
    /// A real directory of this machine above a forwarded one: known only to resolve names in it.
    LocalAbove(Vec<u8>),
}

/// An open file description of the program's.
pub(crate) struct Open {
    pub(crate) kind: Kind,
    /// The absolute path it was opened by.
    pub(crate) path: Vec<u8>,
    /// The thread that moves the offset.
    busy: Busy,
    /// Stood for by the placeholder that all files share (see [`crate::place`]).
    pub(crate) unsettled: AtomicBool,
    /// Which spare opening of it was lent to this file; 0 is none.
    pub(crate) spare: AtomicU32,
    /// A directory that this process removed: its path may be another one's by now.
    pub(crate) gone: AtomicBool,
    /// Its last descriptor was closed while another thread's call was still using it.
    pub(crate) left: AtomicBool,
}

impl Drop for Open {
    fn drop(&mut self) {
        spare::give_back(&self.spare);
        if self.left.load(Ordering::Acquire)
            && let Some(file) = self.remote()
        {
            // Nobody is there to be told how it went.
            let _ = crate::state::state().client().close_unheard(file);
        }
    }
}

impl Open {
    pub(crate) fn new(kind: Kind, path: Vec<u8>) -> Arc<Open> {
        Arc::new(Open {
            kind,
            path,
            busy: Busy::new(),
            unsettled: AtomicBool::new(false),
            spare: AtomicU32::new(0),
            gone: AtomicBool::new(false),
            left: AtomicBool::new(false),
        })
    }

    pub(crate) fn remote(&self) -> Option<&File> {
        match &self.kind {
            Kind::Remote(f) => Some(f),
            _ => None,
        }
    }

    /// Whether it is a place in the tree, not a file to be used (`O_PATH`).
    pub(crate) fn is_path(&self) -> bool {
        self.remote().is_some_and(|f| f.flags().has(OpenFlags::PATH))
    }

    /// Runs `f` while no other thread of this process moves the file's offset.
    pub(crate) fn with_offset<T>(&self, f: impl FnOnce() -> T) -> T {
        self.busy.with(f)
    }
}

type Slot = Shared<Open>;

static SLOTS: [Slot; MAX_FD] = [const { Shared::empty() }; MAX_FD];
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

fn slot(fd: i32) -> Option<&'static Slot> {
    usize::try_from(fd).ok().and_then(|i| SLOTS.get(i))
}

/// The open file behind `fd`, if it is one of ours.
pub(crate) fn get(fd: i32) -> Option<Arc<Open>> {
    get_any(fd).filter(|o| !matches!(o.kind, Kind::LocalAbove(_)))
}

/// As [`get`], for real directories above a forwarded one as well.
pub(crate) fn get_any(fd: i32) -> Option<Arc<Open>> {
    slot(fd)?.get()
}

/// Whether `fd` is forwarded: the cheapest question.
pub(crate) fn is_forwarded(fd: i32) -> bool {
    slot(fd).is_some_and(|s| !s.is_empty()) && get(fd).is_some()
}

/// `fd` now stands for `open`; false if the number is too large. What it stood for before is
/// returned.
pub(crate) fn put(fd: i32, open: Arc<Open>) -> Result<Option<Arc<Open>>, ()> {
    let slot = slot(fd).ok_or(())?;
    HIGHEST.fetch_max(fd as usize + 1, Ordering::Relaxed);
    Ok(slot.replace(Some(open)))
}

/// `fd` is no longer ours.
pub(crate) fn take(fd: i32) -> Option<Arc<Open>> {
    slot(fd).filter(|s| !s.is_empty())?.replace(None)
}

/// Every forwarded descriptor.
pub(crate) fn all() -> impl Iterator<Item = (i32, Arc<Open>)> {
    (0..HIGHEST.load(Ordering::Relaxed) as i32).filter_map(|fd| get(fd).map(|o| (fd, o)))
}

/// In a forked child: other threads' look-ups and locks are not here.
pub(crate) fn after_fork() {
    for slot in &SLOTS[..HIGHEST.load(Ordering::Relaxed)] {
        slot.after_fork();
    }
    for (_, open) in all() {
        open.busy.after_fork();
        if let Some(f) = open.remote() {
            f.forget_process_locks();
        }
    }
}
