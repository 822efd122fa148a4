//! Which descriptors are forwarded files. Look-ups take no lock; an entry stays alive while a call
//! uses it even if another thread closes the descriptor meanwhile.

use crate::place::spare;
use crate::sys::sys;
use forebay_client::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// Descriptor numbers from here on are never forwarded.
pub(crate) const MAX_FD: usize = 1 << 16;

/// What a forwarded descriptor stands for.
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
    busy: AtomicBool,
    /// Stood for by the placeholder that all files share (see [`crate::place`]).
    pub(crate) unsettled: AtomicBool,
    /// Which spare opening of it was lent to this file; 0 is none.
    pub(crate) spare: AtomicU32,
}

impl Drop for Open {
    fn drop(&mut self) {
        spare::give_back(&self.spare);
    }
}

impl Open {
    pub(crate) fn new(kind: Kind, path: Vec<u8>) -> Arc<Open> {
        Arc::new(Open {
            kind,
            path,
            busy: AtomicBool::new(false),
            unsettled: AtomicBool::new(false),
            spare: AtomicU32::new(0),
        })
    }

    pub(crate) fn remote(&self) -> Option<&File> {
        match &self.kind {
            Kind::Remote(f) => Some(f),
            _ => None,
        }
    }

    /// Runs `f` while no other thread of this process moves the file's offset.
    pub(crate) fn with_offset<T>(&self, f: impl FnOnce() -> T) -> T {
        let mut spins = 0u32;
        while self.busy.swap(true, Ordering::Acquire) {
            spins += 1;
            // A signal handler that interrupted the holder would wait for ever.
            if spins > 1_000_000 {
                break;
            }
            if spins > 100 {
                sys!(sched_yield);
            }
        }
        let r = f();
        self.busy.store(false, Ordering::Release);
        r
    }
}

struct Slot {
    open: AtomicPtr<Open>,
    readers: AtomicU32,
}

static SLOTS: [Slot; MAX_FD] =
    [const { Slot { open: AtomicPtr::new(std::ptr::null_mut()), readers: AtomicU32::new(0) } }; MAX_FD];
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

fn slot(fd: i32) -> Option<&'static Slot> {
    usize::try_from(fd).ok().and_then(|i| SLOTS.get(i))
}

/// The open file behind `fd`, if it is one of ours.
pub(crate) fn get(fd: i32) -> Option<Arc<Open>> {
    let slot = slot(fd)?;
    if slot.open.load(Ordering::Relaxed).is_null() {
        return None;
    }
    slot.readers.fetch_add(1, Ordering::Acquire);
    let p = slot.open.load(Ordering::Acquire);
    let found = (!p.is_null()).then(|| {
        // SAFETY: the pointer came from `Arc::into_raw`, and whoever removes it waits for `readers`
        // before it drops the table's reference.
        unsafe {
            Arc::increment_strong_count(p);
            Arc::from_raw(p)
        }
    });
    slot.readers.fetch_sub(1, Ordering::Release);
    found.filter(|o| !matches!(o.kind, Kind::LocalAbove(_)))
}

/// As [`get`], for real directories above a forwarded one as well.
pub(crate) fn get_any(fd: i32) -> Option<Arc<Open>> {
    let slot = slot(fd)?;
    let p = slot.open.load(Ordering::Relaxed);
    // SAFETY: only read under the readers count below; the first look is a null check.
    if p.is_null() {
        return None;
    }
    slot.readers.fetch_add(1, Ordering::Acquire);
    let p = slot.open.load(Ordering::Acquire);
    let found = (!p.is_null()).then(|| {
        // SAFETY: as in `get`.
        unsafe {
            Arc::increment_strong_count(p);
            Arc::from_raw(p)
        }
    });
    slot.readers.fetch_sub(1, Ordering::Release);
    found
}

/// Whether `fd` is forwarded: the cheapest question.
pub(crate) fn is_forwarded(fd: i32) -> bool {
    slot(fd).is_some_and(|s| !s.open.load(Ordering::Relaxed).is_null()) && get(fd).is_some()
}

/// `fd` now stands for `open`; false if the number is too large. What it stood for before is
/// returned.
pub(crate) fn put(fd: i32, open: Arc<Open>) -> Result<Option<Arc<Open>>, ()> {
    let slot = slot(fd).ok_or(())?;
    HIGHEST.fetch_max(fd as usize + 1, Ordering::Relaxed);
    Ok(swap(slot, Arc::into_raw(open).cast_mut()))
}

/// `fd` is no longer ours.
pub(crate) fn take(fd: i32) -> Option<Arc<Open>> {
    let slot = slot(fd)?;
    if slot.open.load(Ordering::Relaxed).is_null() {
        return None;
    }
    swap(slot, std::ptr::null_mut())
}

fn swap(slot: &Slot, new: *mut Open) -> Option<Arc<Open>> {
    let old = slot.open.swap(new, Ordering::AcqRel);
    if old.is_null() {
        return None;
    }
    // SAFETY: the table's own reference.
    let old = unsafe { Arc::from_raw(old) };
    let mut spins = 0;
    while slot.readers.load(Ordering::Acquire) != 0 {
        spins += 1;
        if spins > 10_000 {
            // A signal handler closes what its own thread is looking up: keep it alive for good.
            std::mem::forget(Arc::clone(&old));
            break;
        }
        if spins > 100 {
            sys!(sched_yield);
        }
    }
    Some(old)
}

/// Every forwarded descriptor.
pub(crate) fn all() -> impl Iterator<Item = (i32, Arc<Open>)> {
    (0..HIGHEST.load(Ordering::Relaxed) as i32).filter_map(|fd| get(fd).map(|o| (fd, o)))
}

/// In a forked child: other threads' look-ups and locks are not here.
pub(crate) fn after_fork() {
    for slot in &SLOTS[..HIGHEST.load(Ordering::Relaxed)] {
        slot.readers.store(0, Ordering::Relaxed);
    }
    for (_, open) in all() {
        open.busy.store(false, Ordering::Relaxed);
        if let Some(f) = open.remote() {
            f.forget_process_locks();
        }
    }
}
