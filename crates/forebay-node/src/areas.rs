//! Memory shared with clients of this host, for files whose requests are small and follow each other
//! ([`forebay_wire::session::stream`]): who reads ahead is told of changes, and what was written there is
//! in the file before anything is carried out that could tell the difference.

use crate::fail::{Failure, Outcome};
use crate::file::OpenFile;
use crate::link::Link;
use crate::node::Node;
use crate::session::Session;
use crate::stats::Op;
use crate::sys::{self, ClientMap};
use forebay_wire::flags::OpenFlags;
use forebay_wire::message::{Meta, Sharing, Target};
use forebay_wire::session::stream::{CELLS, RING, places};
use rustix::io::Errno;
use std::io::IoSlice;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Files are told apart by so many slots: those that share one are taken for the same.
const SLOTS: usize = 128;
/// So much may be shared with all clients of a node.
const MOST: usize = 4096;

/// Everything that is shared.
#[derive(Default)]
pub(crate) struct Areas {
    slots: Slots,
    /// How many clients read ahead or write.
    shared: AtomicUsize,
    /// Those who write, and how many they are.
    writers: Mutex<Vec<Arc<Area>>>,
    staged: AtomicUsize,
    /// Changes under way to files that are not known.
    sweeping: AtomicUsize,
}

struct Slots(Box<[Mutex<Slot>]>);

impl Default for Slots {
    fn default() -> Slots {
        Slots((0..SLOTS).map(|_| Mutex::default()).collect())
    }
}

#[derive(Default)]
struct Slot {
    /// Changes under way.
    changes: u64,
    /// Files that are used past this node.
    never: Vec<(u64, u64)>,
    areas: Vec<Arc<Area>>,
}

/// What is shared for one open file of one client.
pub(crate) struct Area {
    session: Arc<Session>,
    handle: u64,
    file: Arc<OpenFile>,
    memory: ClientMap,
    writes: bool,
    /// Whoever takes what was written.
    taking: Mutex<()>,
}

impl Area {
    fn same(&self, file: &OpenFile) -> bool {
        (self.file.dev, self.file.ino) == (file.dev, file.ino)
    }

    fn has_pending(&self) -> bool {
        let cells = self.memory.cells();
        self.writes && cells.head() != cells.tail() && cells.failed() == 0
    }
}

/// A change that is under way.
pub(crate) enum Change<'a> {
    /// None.
    Nothing,
    /// To a file in this slot.
    At(&'a Areas, usize),
    /// To one that is not known: these read.
    Somewhere(&'a Areas, Vec<Arc<Area>>),
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        match self {
            Change::Nothing => {}
            Change::At(areas, slot) => areas.slot(*slot).ended(),
            Change::Somewhere(areas, readers) => {
                readers.iter().for_each(|area| area.memory.cells().end());
                areas.sweeping.fetch_sub(1, SeqCst);
            }
        }
    }
}

impl Slot {
    fn begun(&mut self) {
        self.changes += 1;
        self.readers().for_each(|area| area.memory.cells().begin());
    }

    fn ended(&mut self) {
        self.changes -= 1;
        self.readers().for_each(|area| area.memory.cells().end());
    }

    fn readers(&self) -> impl Iterator<Item = &Arc<Area>> {
        self.areas.iter().filter(|area| !area.writes)
    }
}

fn slot_of(file: &OpenFile) -> usize {
    (file.ino ^ file.dev.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 32 & (SLOTS - 1)
}

impl Areas {
    fn slot(&self, at: usize) -> MutexGuard<'_, Slot> {
        self.slots.0[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file is about to be changed; it has been when the result is dropped.
    pub(crate) fn change(&self, file: &OpenFile) -> Change<'_> {
        let at = slot_of(file);
        self.slot(at).begun();
        Change::At(self, at)
    }

    /// A file that is known by its name only is about to be changed.
    fn change_somewhere(&self) -> Change<'_> {
        // Whoever comes now is refused; who was there before is told.
        self.sweeping.fetch_add(1, SeqCst);
        let mut readers = Vec::new();
        if self.shared.load(SeqCst) > 0 {
            for at in 0..SLOTS {
                readers.extend(self.slot(at).readers().cloned());
            }
        }
        readers.iter().for_each(|area| area.memory.cells().begin());
        Change::Somewhere(self, readers)
    }

    /// What a metadata operation will change of files' contents.
    pub(crate) fn change_by(&self, session: &Session, meta: &Meta<'_>) -> Change<'_> {
        match meta {
            Meta::Truncate { target: Target::Handle(handle), .. } | Meta::Fallocate { handle, .. } => {
                session.find(*handle).map_or(Change::Nothing, |file| self.change(&file))
            }
            Meta::Truncate { .. } => self.change_somewhere(),
            Meta::Open { flags, .. } if flags.has(OpenFlags::TRUNC) => self.change_somewhere(),
            _ => Change::Nothing,
        }
    }

    /// Those that may have something to be written, of one file or of all.
    fn pending(&self, file: Option<&OpenFile>) -> Vec<Arc<Area>> {
        if self.staged.load(SeqCst) == 0 {
            return Vec::new();
        }
        let asked = |area: &&Arc<Area>| area.has_pending() && file.is_none_or(|file| area.same(file));
        self.writers().iter().filter(asked).cloned().collect()
    }

    fn writers(&self) -> MutexGuard<'_, Vec<Arc<Area>>> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a session shares: of one open file or all, to read or to write or both.
    fn of(&self, session: &Session, handle: Option<u64>, writes: Option<bool>) -> Vec<Arc<Area>> {
        if self.shared.load(SeqCst) == 0 {
            return Vec::new();
        }
        let asked = |area: &&Arc<Area>| {
            std::ptr::eq(&raw const *area.session, session)
                && handle.is_none_or(|handle| area.handle == handle)
                && writes.is_none_or(|writes| area.writes == writes)
        };
        let file = handle.and_then(|handle| session.find(handle).ok());
        let at = file.map_or(0..SLOTS, |file| slot_of(&file)..slot_of(&file) + 1);
        let of_slot = |at: usize| -> Vec<_> { self.slot(at).areas.iter().filter(asked).cloned().collect() };
        at.flat_map(of_slot).collect()
    }

    fn enter(&self, area: Area) -> Outcome<()> {
        let mut slot = self.slot(slot_of(&area.file));
        if self.shared.fetch_add(1, SeqCst) >= MOST || self.sweeping.load(SeqCst) > 0 {
            self.shared.fetch_sub(1, SeqCst);
            return Err(Errno::BUSY.into());
        }
        let others = |other: &Arc<Area>| area.writes && other.writes && other.same(&area.file);
        if slot.never.contains(&(area.file.dev, area.file.ino)) || slot.areas.iter().any(others) {
            self.shared.fetch_sub(1, SeqCst);
            return Err(Errno::BUSY.into());
        }
        if area.writes {
            // As long as somebody writes there, the file may change at any time.
            slot.begun();
            self.staged.fetch_add(1, SeqCst);
        } else {
            area.memory.cells().watch(slot.changes);
        }
        let area = Arc::new(area);
        if area.writes {
            self.writers().push(Arc::clone(&area));
        }
        slot.areas.push(area);
        Ok(())
    }

    /// It is shared no more; all that was written there has been taken.
    fn remove(&self, area: &Arc<Area>) {
        let mut slot = self.slot(slot_of(&area.file));
        let Some(at) = slot.areas.iter().position(|other| Arc::ptr_eq(other, area)) else { return };
        slot.areas.swap_remove(at);
        if area.writes {
            slot.ended();
            self.writers().retain(|other| !Arc::ptr_eq(other, area));
            self.staged.fetch_sub(1, SeqCst);
        }
        self.shared.fetch_sub(1, SeqCst);
    }
}

impl Node {
    /// What was written to the file, as far as programs know, is in it.
    pub(crate) fn settle(&self, file: Option<&OpenFile>) {
        for area in self.areas.pending(file) {
            self.take_written(&area);
        }
    }

    /// What was written anywhere is in its file before an operation that could tell.
    pub(crate) fn settle_for(&self, meta: &Meta<'_>) {
        let matters = !matches!(
            meta,
            Meta::Close { .. }
                | Meta::Mapping
                | Meta::Verdict { .. }
                | Meta::LockWait { .. }
                | Meta::Share { .. }
        );
        if matters {
            self.settle(None);
        }
    }

    /// Whether something waits to be written.
    pub(crate) fn unsettled(&self) -> bool {
        !self.areas.pending(None).is_empty()
    }

    fn take_written(&self, area: &Area) {
        let _one = area.taking.lock().unwrap_or_else(PoisonError::into_inner);
        let (cells, began) = (area.memory.cells(), sys::now());
        let mut total = 0;
        while cells.failed() == 0 {
            let Some(pending) = cells.pending() else { return cells.fail(libc::EINVAL as u32) };
            if pending.is_empty() {
                break;
            }
            let (first, second) = places(pending.clone());
            let parts = [IoSlice::new(area.memory.ring(first)), IoSlice::new(area.memory.ring(second))];
            let target = self.target(&area.file, pending.start);
            area.file.mark_written();
            match self.at_storage(&area.session, |s| s.write(target, &parts)) {
                Ok(0) => cells.fail(libc::EIO as u32),
                Ok(n) => {
                    total += n as u64;
                    self.stats.wrote(n);
                    cells.written(pending.start + n as u64);
                }
                Err(failure) => cells.fail(failure.errno.raw_os_error().unsigned_abs()),
            }
        }
        if total > 0 {
            area.session.record(Op::WRITE, total, sys::now().since(began), cells.failed() != 0);
        }
    }

    /// What a client shares comes to its end: of one open file or all, to read or to write or both. The first
    /// error.
    pub(crate) fn stop_sharing(
        &self,
        session: &Session,
        handle: Option<u64>,
        writes: Option<bool>,
    ) -> Outcome<()> {
        let mut failed = 0;
        for area in self.areas.of(session, handle, writes) {
            let cells = area.memory.cells();
            if area.writes {
                // In this order: what was acknowledged is in the file before nobody looks for it any more.
                cells.revoke();
                self.take_written(&area);
            } else {
                // A change without an end.
                cells.begin();
            }
            self.areas.remove(&area);
            failed = if failed == 0 { cells.failed() } else { failed };
        }
        if failed == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(failed as i32).into()) }
    }

    /// The node ends: nothing is taken any more but what is there.
    pub(crate) fn end_sharing(&self) {
        let writers = self.areas.writers().clone();
        for area in writers {
            area.memory.cells().revoke();
            self.take_written(&area);
        }
    }

    pub(crate) fn share(
        &self,
        link: &Link,
        session: &Arc<Session>,
        handle: u64,
        how: Sharing,
    ) -> Outcome<()> {
        let (fd, nonce, writes) = match how {
            Sharing::Read { fd, nonce } => (fd, nonce, false),
            Sharing::Write { fd, nonce } => (fd, nonce, true),
            Sharing::SettleAll => {
                self.settle(None);
                return Ok(());
            }
            Sharing::Settle => {
                self.settle(Some(&*session.find(handle)?));
                return Ok(());
            }
            Sharing::End => return self.stop_sharing(session, Some(handle), Some(true)),
            Sharing::Never => {
                let file = session.find(handle)?;
                let mut slot = self.areas.slot(slot_of(&file));
                // For good: nobody tells when a mapping goes.
                slot.never.push((file.dev, file.ino));
                slot.begun();
                let theirs = |a: &&Arc<Area>| a.writes && a.same(&file);
                let theirs: Vec<_> = slot.areas.iter().filter(theirs).cloned().collect();
                drop(slot);
                for area in theirs {
                    area.memory.cells().revoke();
                    self.take_written(&area);
                }
                return Ok(());
            }
        };
        let file = session.find(handle)?;
        let needed = if writes { OpenFlags::WRITE } else { OpenFlags::READ };
        let unfit =
            OpenFlags::PATH | OpenFlags::APPEND | OpenFlags::DIRECT | OpenFlags::SYNC | OpenFlags::DSYNC;
        if !file.flags().has(needed) || file.flags().0 & unfit.0 != 0 && writes || file.directory {
            return Err(Errno::OPNOTSUPP.into());
        }
        let len = if writes { CELLS + RING } else { CELLS };
        let not_here = |_| Failure::new(Errno::OPNOTSUPP, "no memory can be shared with this client");
        let memory = ClientMap::open(link.fd(), fd, len).map_err(not_here)?;
        if memory.cells().nonce.load(SeqCst) != nonce {
            return Err(Errno::INVAL.into());
        }
        // An answer may have been lost: what was there before is taken first.
        self.stop_sharing(session, Some(handle), Some(writes))?;
        let session = Arc::clone(session);
        self.areas.enter(Area { session, handle, file, memory, writes, taking: Mutex::default() })
    }
}
