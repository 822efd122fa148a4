//! What clients of this host have put into their rings for files they are making
//! ([`forebay_wire::session::later`]): done before anything is carried out that could tell the difference.

use crate::areas::memory_of;
use crate::fail::Outcome;
use crate::file::OpenFile;
use crate::link::Link;
use crate::meta;
use crate::node::Node;
use crate::session::Session;
use crate::stats::Op;
use crate::sys::{self, ClientMap};
use forebay_types::Nanos;
use forebay_wire::flags::OpenFlags;
use forebay_wire::session::later::Later;
use forebay_wire::session::stream::{RING, places};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io::IoSlice;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// So many clients may have a ring: all of them are looked at before anything is carried out that could tell.
const MOST: usize = 256;
/// So many pieces go to the storage at once; the kernel takes no more.
const MOST_PARTS: usize = 1024;

/// All rings.
#[derive(Default)]
pub(crate) struct Rings {
    all: Mutex<Vec<Arc<Ring>>>,
    count: AtomicUsize,
}

/// One client's.
struct Ring {
    session: Arc<Session>,
    memory: ClientMap,
    /// The files that it may be about, by handle.
    files: Mutex<HashMap<u64, PendingFile>>,
    /// Whoever does what it says.
    taking: Mutex<()>,
}

struct PendingFile {
    file: Arc<OpenFile>,
    /// What went wrong and was not told yet.
    failed: Option<Errno>,
}

impl Ring {
    fn has_pending(&self) -> bool {
        let cells = self.memory.cells();
        cells.head() != cells.tail() && cells.failed() == 0
    }

    fn files(&self) -> MutexGuard<'_, HashMap<u64, PendingFile>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rings {
    fn all(&self) -> MutexGuard<'_, Vec<Arc<Ring>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn those(&self, asked: impl Fn(&Ring) -> bool) -> Vec<Arc<Ring>> {
        if self.count.load(SeqCst) == 0 {
            return Vec::new();
        }
        self.all().iter().filter(|ring| asked(ring)).cloned().collect()
    }

    fn of(&self, session: &Session) -> Option<Arc<Ring>> {
        if self.count.load(SeqCst) == 0 {
            return None;
        }
        self.all().iter().find(|ring| std::ptr::eq(&raw const *ring.session, session)).cloned()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count.load(SeqCst)
    }

    /// Whether something waits to be done.
    pub(crate) fn pending(&self) -> bool {
        !self.those(Ring::has_pending).is_empty()
    }
}

/// Whether a file that was just opened so, and is perhaps empty, may be written later.
fn fits(file: &OpenFile, empty: bool) -> bool {
    let unfit = OpenFlags::PATH | OpenFlags::APPEND | OpenFlags::DIRECT | OpenFlags::SYNC | OpenFlags::DSYNC;
    let emptied = file.flags().has(OpenFlags::EXCL) || file.flags().has(OpenFlags::TRUNC);
    let made = emptied || empty && file.flags().has(OpenFlags::CREATE);
    made && file.flags().has(OpenFlags::WRITE) && file.flags().0 & unfit.0 == 0 && !file.directory
}

/// Takes the writes to the same file that go on at `next` out of the first entries: how long those are.
fn more_of<'a>(entries: &'a [u8], handle: u64, mut next: u64, parts: &mut Vec<IoSlice<'a>>) -> usize {
    let mut at = 0;
    while parts.len() < MOST_PARTS
        && let Ok((same, Later::Write { offset, data }, len)) = Later::decode(&entries[at..])
        && (same, offset) == (handle, next)
    {
        parts.push(IoSlice::new(data));
        (at, next) = (at + len, next.saturating_add(data.len() as u64));
    }
    at
}

/// Whether the next entry changes an attribute of the same file: that sets the time of its last change.
fn is_followed(entries: &[u8], handle: u64) -> bool {
    matches!(Later::decode(entries), Ok((same, what, _)) if same == handle && what.meta(handle).is_some())
}

impl Node {
    /// A client has memory for a ring.
    pub(crate) fn begin_ring(&self, link: &Link, session: &Arc<Session>, fd: i32, nonce: u64) -> Outcome<()> {
        let memory = memory_of(link, (fd, nonce), RING)?;
        // An answer may have been lost: what was there before is done first.
        let _ = self.end_ring(session);
        let mut all = self.rings.all();
        if all.len() >= MOST {
            return Err(Errno::BUSY.into());
        }
        let (session, files, taking) = (Arc::clone(session), Mutex::default(), Mutex::default());
        all.push(Arc::new(Ring { session, memory, files, taking }));
        self.rings.count.store(all.len(), SeqCst);
        Ok(())
    }

    /// From here on until its close the file may be changed at any time, if its client has a ring and it is
    /// one for that.
    pub(crate) fn may_come_later(
        &self,
        session: &Session,
        handle: u64,
        file: &Arc<OpenFile>,
        empty: bool,
    ) -> bool {
        let Some(ring) = self.rings.of(session).filter(|_| fits(file, empty)) else { return false };
        if !self.may_put_off(file) {
            return false;
        }
        self.areas.hold(file);
        ring.files().insert(handle, PendingFile { file: Arc::clone(file), failed: None });
        // Whoever maps it from now on finds it among the ring's files.
        if self.areas.is_used_directly(file) {
            self.forget_later(&ring, handle);
            return false;
        }
        true
    }

    fn forget_later(&self, ring: &Ring, handle: u64) -> Option<Errno> {
        let held = ring.files().remove(&handle)?;
        self.areas.release(&held.file);
        held.failed
    }

    /// The file is used past this node: nothing more is put off by those who could do so for it.
    pub(crate) fn revoke_rings(&self, file: &OpenFile) {
        let same = |held: &PendingFile| (held.file.dev, held.file.ino) == (file.dev, file.ino);
        for ring in self.rings.those(|ring| ring.files().values().any(same)) {
            ring.memory.cells().revoke();
            self.empty(&ring);
        }
    }

    /// Everything that any client has put into its ring is done.
    pub(crate) fn settle_rings(&self) {
        for ring in self.rings.those(Ring::has_pending) {
            self.empty(&ring);
        }
    }

    /// As for streams: to files on a file system that has become tight nobody puts anything off.
    pub(crate) fn tell_rings_of_space(&self) {
        for ring in self.rings.those(|_| true) {
            self.tell_of_space(&ring);
            if ring.memory.cells().is_tight() {
                self.empty(&ring);
            }
        }
    }

    fn tell_of_space(&self, ring: &Ring) {
        let mut files: Vec<_> = ring.files().values().map(|held| Arc::clone(&held.file)).collect();
        files.dedup_by_key(|file| file.dev);
        ring.memory.cells().set_tight(!files.iter().all(|file| self.may_put_off(file)));
    }

    fn empty(&self, ring: &Ring) {
        let _one = ring.taking.lock().unwrap_or_else(PoisonError::into_inner);
        let cells = ring.memory.cells();
        while cells.failed() == 0 {
            let Some(pending) = cells.pending() else { return cells.fail(libc::EINVAL as u32) };
            if pending.is_empty() {
                return;
            }
            // From here on it is this node's own: the client may change what is there at any time.
            let (first, second) = places(pending.clone());
            let mut entries = ring.memory.copy(first);
            entries.append(&mut ring.memory.copy(second));
            let mut at = 0;
            // The file that was last written to: until something else is done to it, nobody has changed what it is.
            let mut just_written = None;
            while at < entries.len() {
                let Ok((handle, what, len)) = Later::decode(&entries[at..]) else {
                    return cells.fail(libc::EINVAL as u32);
                };
                let Some(file) = ring.files().get(&handle).map(|held| Arc::clone(&held.file)) else {
                    return cells.fail(libc::EBADF as u32);
                };
                at += len;
                if let Later::Write { offset, data } = what {
                    let mut parts = vec![IoSlice::new(data)];
                    let next = offset.saturating_add(data.len() as u64);
                    at += more_of(&entries[at..], handle, next, &mut parts);
                    self.write_now(ring, handle, &file, offset, &mut parts);
                    just_written = Some(handle);
                } else if just_written != Some(handle)
                    || !is_followed(&entries[at..], handle)
                    || !meta::changes_nothing(&file, what)
                {
                    self.change_now(ring, handle, &file, what);
                }
                cells.written(pending.start + at as u64);
            }
        }
    }

    /// One write to the storage for those that follow each other.
    fn write_now(
        &self,
        ring: &Ring,
        handle: u64,
        file: &OpenFile,
        mut offset: u64,
        mut parts: &mut [IoSlice<'_>],
    ) {
        let began = sys::now();
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        let done = self.at_storage(&ring.session, |storage| {
            self.engine.passed_by(&self.write_access(&ring.session, file, offset, bytes));
            file.mark_written();
            while !parts.is_empty() {
                let n = storage.write(self.target(file, offset), parts)?;
                if n == 0 {
                    return Err(Errno::IO);
                }
                self.stats.wrote(n);
                offset += n as u64;
                IoSlice::advance_slices(&mut parts, n);
            }
            Ok(())
        });
        if let Err(failure) = &done {
            self.refused(file, failure.errno);
        }
        if !self.may_put_off(file) {
            ring.memory.cells().set_tight(true);
        }
        self.did(ring, handle, Op::WRITE, bytes, began, done);
    }

    fn change_now(&self, ring: &Ring, handle: u64, file: &OpenFile, what: Later<'_>) {
        let began = sys::now();
        let done = self.at_storage(&ring.session, |_| meta::set_attribute(file, what));
        if let Some(meta) = what.meta(handle) {
            self.did(ring, handle, Op::meta(&meta), 0, began, done);
        }
    }

    fn did(&self, ring: &Ring, handle: u64, op: Op, bytes: u64, began: Nanos, done: Outcome<()>) {
        ring.session.record(op, bytes, sys::now().since(began), done.is_err());
        if let Err(failure) = done
            && let Some(held) = ring.files().get_mut(&handle)
        {
            held.failed.get_or_insert(failure.errno);
            ring.memory.cells().owe(true);
        }
    }

    /// What the client has put there is done; how that went for one file, which may be closed with it.
    pub(crate) fn settle_later(&self, session: &Session, handle: u64, closes: bool) -> Outcome<()> {
        let Some(ring) = self.rings.of(session) else { return Ok(()) };
        self.empty(&ring);
        let failed = match closes {
            true => self.forget_later(&ring, handle),
            false => ring.files().get_mut(&handle).and_then(|held| held.failed.take()),
        };
        if failed.is_some() && ring.files().values().all(|held| held.failed.is_none()) {
            ring.memory.cells().owe(false);
        }
        failed.map_or(Ok(()), |errno| Err(errno.into()))
    }

    /// The client has no ring any more; all it put there is done.
    pub(crate) fn end_ring(&self, session: &Session) -> Outcome<()> {
        let Some(ring) = self.rings.of(session) else { return Ok(()) };
        ring.memory.cells().revoke();
        self.empty(&ring);
        let mut all = self.rings.all();
        all.retain(|other| !Arc::ptr_eq(other, &ring));
        self.rings.count.store(all.len(), SeqCst);
        drop(all);
        let mut first = None;
        for (_, held) in ring.files().drain() {
            self.areas.release(&held.file);
            first = first.or(held.failed);
        }
        first.map_or(Ok(()), |errno| Err(errno.into()))
    }

    /// The node ends.
    pub(crate) fn end_rings(&self) {
        for ring in self.rings.those(|_| true) {
            ring.memory.cells().revoke();
            self.empty(&ring);
        }
    }
}
