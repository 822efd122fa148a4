//! Memory shared with clients of this host: the board that tells of changes to files
//! ([`forebay_wire::session::board`]), and what they write in small pieces ([`forebay_wire::session::stream`]),
//! which is in the file before anything is carried out that could tell the difference.

use crate::fail::{Failure, Outcome};
use crate::file::OpenFile;
use crate::link::Link;
use crate::node::Node;
use crate::session::Session;
use crate::stats::Op;
use crate::sys::{self, BoardMap, ClientMap};
use forebay_wire::flags::OpenFlags;
use forebay_wire::hello::BoardAt;
use forebay_wire::message::{Meta, Sharing, Target};
use forebay_wire::session::board::{self, Board, Scope, Still};
use forebay_wire::session::stream::{CELLS, PLACED, RING, places};
use rustix::io::Errno;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io::IoSlice;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// So much may be shared with all clients of a node.
const MOST: usize = 4096;

/// Everything that is shared.
pub(crate) struct Areas {
    board: Posted,
    /// Those who write, and how many they are.
    writers: Mutex<Writers>,
    staged: AtomicUsize,
    /// How many files have been opened.
    opened: AtomicU64,
}

/// How things stood before somebody made a file: who finds them so afterwards knows that nobody else has
/// had anything to do with it.
pub(crate) struct Quiet {
    still: Still,
    opened: u64,
}

#[derive(Default)]
struct Writers {
    areas: Vec<Arc<Area>>,
    /// Files that are used past this node.
    never: HashSet<(u64, u64)>,
}

/// The board, where clients find it or (if there can be no such memory) do not.
enum Posted {
    Here(BoardMap),
    Nowhere(Box<Board>),
}

impl std::ops::Deref for Posted {
    type Target = Board;
    fn deref(&self) -> &Board {
        match self {
            Posted::Here(map) => map,
            Posted::Nowhere(board) => board,
        }
    }
}

impl Default for Areas {
    fn default() -> Areas {
        let board = BoardMap::new().map_or_else(|_| Posted::Nowhere(Box::default()), Posted::Here);
        board.nonce.store(RandomState::new().hash_one(std::process::id()), SeqCst);
        Areas { board, writers: Mutex::default(), staged: AtomicUsize::new(0), opened: AtomicU64::new(0) }
    }
}

/// What is shared for one open file of one client.
pub(crate) struct Area {
    session: Arc<Session>,
    handle: u64,
    file: Arc<OpenFile>,
    memory: ClientMap,
    /// Whoever takes what was written.
    taking: Mutex<()>,
}

impl Area {
    fn same(&self, file: &OpenFile) -> bool {
        (self.file.dev, self.file.ino) == (file.dev, file.ino)
    }

    fn has_pending(&self) -> bool {
        let cells = self.memory.cells();
        cells.head() != cells.tail() && cells.failed() == 0
    }
}

/// A change that is under way.
pub(crate) struct Change<'a> {
    board: &'a Board,
    pub(crate) scope: Scope,
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.board.end(self.scope);
    }
}

fn place_of(file: &OpenFile) -> usize {
    board::place_of(file.dev, file.ino)
}

impl Areas {
    /// Where clients of this host find the board.
    pub(crate) fn board_at(&self) -> Option<BoardAt> {
        match &self.board {
            Posted::Here(map) => Some(BoardAt { fd: map.at(), nonce: map.nonce.load(SeqCst) }),
            Posted::Nowhere(_) => None,
        }
    }

    /// Nothing changes that file but, perhaps, the asker: what is seen of it from now on stays so while this
    /// holds.
    pub(crate) fn still(&self, file: &OpenFile, mine: Scope, held: bool) -> Option<Still> {
        self.board.still(place_of(file), mine, held)
    }

    /// Whether nothing is being changed by its name but by the asker, who is about to make a file.
    pub(crate) fn quiet(&self, mine: Scope) -> Option<Quiet> {
        let opened = self.opened.load(SeqCst);
        // One place or another: that it changes is no harm.
        self.board.still(0, mine, false).map(|still| Quiet { still, opened })
    }

    /// A file has been opened, and nobody has heard of it yet: what he changes through it, he changes after this.
    pub(crate) fn opens(&self) {
        self.opened.fetch_add(1, SeqCst);
    }

    /// Whether a file that did not exist then has been opened by nobody but its maker since, and changed by no name.
    pub(crate) fn is_quiet_since(&self, then: &Quiet) -> bool {
        self.opened.load(SeqCst) == then.opened + 1 && self.board.attributes_hold(&then.still)
    }

    /// The file may be changed at any time, until it is released.
    pub(crate) fn hold(&self, file: &OpenFile) {
        self.board.begin(Scope::Place(place_of(file)));
    }

    pub(crate) fn release(&self, file: &OpenFile) {
        self.board.end(Scope::Place(place_of(file)));
    }

    fn begin(&self, scope: Scope) -> Change<'_> {
        self.board.begin(scope);
        Change { board: &self.board, scope }
    }

    /// The file is about to be changed; it has been when the result is dropped.
    pub(crate) fn change(&self, file: &OpenFile) -> Change<'_> {
        self.begin(Scope::Place(place_of(file)))
    }

    /// What a metadata operation will change.
    pub(crate) fn change_by(&self, session: &Session, meta: &Meta<'_>) -> Change<'_> {
        let of = |handle| session.find(handle).map_or(Scope::Nothing, |file| Scope::Place(place_of(&file)));
        self.begin(match *meta {
            Meta::Truncate { target: Target::Handle(handle), .. }
            | Meta::Fallocate { handle, .. }
            | Meta::Chmod { target: Target::Handle(handle), .. }
            | Meta::Chown { target: Target::Handle(handle), .. }
            | Meta::Utimens { target: Target::Handle(handle), .. }
            | Meta::Setxattr { target: Target::Handle(handle), .. }
            | Meta::Removexattr { target: Target::Handle(handle), .. } => of(handle),
            Meta::Lock { .. } | Meta::Flock { .. } => Scope::Nothing,
            Meta::Truncate { .. } => Scope::Everything,
            Meta::Open { flags, .. } if flags.has(OpenFlags::TRUNC) => Scope::Everything,
            _ if meta.changes() => Scope::Names,
            _ => Scope::Nothing,
        })
    }

    /// Those that may have something to be written, of one file or of all.
    fn pending(&self, file: Option<&OpenFile>) -> Vec<Arc<Area>> {
        self.those(|area| area.has_pending() && file.is_none_or(|file| area.same(file)))
    }

    fn those(&self, asked: impl Fn(&Area) -> bool) -> Vec<Arc<Area>> {
        if self.staged.load(SeqCst) == 0 {
            return Vec::new();
        }
        self.writers().areas.iter().filter(|area| asked(area)).cloned().collect()
    }

    fn writers(&self) -> MutexGuard<'_, Writers> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.staged.load(SeqCst)
    }

    /// Whether the file is used past this node.
    pub(crate) fn is_used_directly(&self, file: &OpenFile) -> bool {
        self.writers().never.contains(&(file.dev, file.ino))
    }

    fn enter(&self, area: Area) -> Outcome<()> {
        let mut writers = self.writers();
        let taken = writers.never.contains(&(area.file.dev, area.file.ino));
        if taken || writers.areas.len() >= MOST || writers.areas.iter().any(|other| other.same(&area.file)) {
            return Err(Errno::BUSY.into());
        }
        // As long as somebody writes there, the file may change at any time.
        self.hold(&area.file);
        self.staged.fetch_add(1, SeqCst);
        writers.areas.push(Arc::new(area));
        Ok(())
    }

    /// It is shared no more; all that was written there has been taken.
    fn remove(&self, area: &Arc<Area>) {
        let mut writers = self.writers();
        let Some(at) = writers.areas.iter().position(|other| Arc::ptr_eq(other, area)) else { return };
        writers.areas.swap_remove(at);
        self.release(&area.file);
        self.staged.fetch_sub(1, SeqCst);
    }
}

/// Memory of the client at the other end: by which descriptor it finds it, and how it begins; cells, and so much behind
/// them.
pub(crate) fn memory_of(link: &Link, (fd, nonce): (i32, u64), len: usize) -> Outcome<ClientMap> {
    let not_here = |_| Failure::new(Errno::OPNOTSUPP, "no memory can be shared with this client");
    let memory = ClientMap::open(link.fd(), fd, CELLS + len).map_err(not_here)?;
    if memory.cells().nonce.load(SeqCst) == nonce { Ok(memory) } else { Err(Errno::INVAL.into()) }
}

impl Node {
    /// What was written to the file, as far as programs know, is in it.
    pub(crate) fn settle(&self, file: Option<&OpenFile>) {
        self.settle_rings();
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
        self.rings.pending() || !self.areas.pending(None).is_empty()
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
                Err(failure) => {
                    self.refused(&area.file, failure.errno);
                    cells.fail(failure.errno.raw_os_error().unsigned_abs());
                }
            }
        }
        cells.set_tight(!self.may_put_off(&area.file));
        if total > 0 {
            area.session.record(Op::WRITE, total, sys::now().since(began), cells.failed() != 0);
        }
    }

    /// Who writes to a file system that has become tight does so by himself; what he has put off still fits.
    pub(crate) fn tell_areas_of_space(&self) {
        for area in self.areas.those(|_| true) {
            let tight = !self.may_put_off(&area.file);
            area.memory.cells().set_tight(tight);
            if tight {
                self.take_written(&area);
            }
        }
    }

    /// What a client writes comes to its end: to one open file or (with its ring) all. The first error.
    pub(crate) fn stop_sharing(&self, session: &Session, handle: Option<u64>) -> Outcome<()> {
        if handle.is_none() {
            // Nobody is there to be told.
            let _ = self.end_ring(session);
        }
        let theirs = |area: &Area| {
            std::ptr::eq(&raw const *area.session, session) && handle.is_none_or(|h| area.handle == h)
        };
        let mut failed = 0;
        for area in self.areas.those(theirs) {
            let cells = area.memory.cells();
            // In this order: what was acknowledged is in the file before nobody looks for it any more.
            cells.revoke();
            self.take_written(&area);
            self.areas.remove(&area);
            failed = if failed == 0 { cells.failed() } else { failed };
        }
        if failed == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(failed as i32).into()) }
    }

    /// The node ends: nothing is taken any more but what is there.
    pub(crate) fn end_sharing(&self) {
        self.end_rings();
        for area in self.areas.those(|_| true) {
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
        let (fd, nonce) = match how {
            Sharing::SettleAll => {
                self.settle(None);
                return Ok(());
            }
            Sharing::Settle => {
                self.settle(Some(&*session.find(handle)?));
                return self.settle_later(session, handle, false);
            }
            Sharing::Write { .. } | Sharing::Later { .. } if self.engine.is_limited(session.job.flow()) => {
                // What is written there has been acknowledged, and cannot wait.
                return Err(Errno::BUSY.into());
            }
            Sharing::Write { fd, nonce } => (fd, nonce),
            Sharing::Later { fd, nonce } => return self.begin_ring(link, session, fd, nonce),
            Sharing::Payload { fd, nonce } => return link.share(memory_of(link, (fd, nonce), PLACED)?),
            Sharing::End => return self.stop_sharing(session, Some(handle)),
            Sharing::Never => {
                let file = session.find(handle)?;
                let new = self.areas.writers().never.insert((file.dev, file.ino));
                if new {
                    // For good: nobody tells when a mapping goes.
                    self.areas.hold(&file);
                }
                self.revoke_rings(&file);
                for area in self.areas.those(|area| area.same(&file)) {
                    area.memory.cells().revoke();
                    self.take_written(&area);
                }
                return Ok(());
            }
        };
        let file = session.find(handle)?;
        let unfit =
            OpenFlags::PATH | OpenFlags::APPEND | OpenFlags::DIRECT | OpenFlags::SYNC | OpenFlags::DSYNC;
        if !file.flags().has(OpenFlags::WRITE) || file.flags().0 & unfit.0 != 0 || file.directory {
            return Err(Errno::OPNOTSUPP.into());
        }
        if !self.may_put_off(&file) {
            return Err(Errno::BUSY.into());
        }
        let memory = memory_of(link, (fd, nonce), RING)?;
        // An answer may have been lost: what was there before is taken first.
        self.settle_rings();
        self.stop_sharing(session, Some(handle))?;
        let session = Arc::clone(session);
        self.areas.enter(Area { session, handle, file, memory, taking: Mutex::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_made_a_file_knows_whether_somebody_else_has_found_it() {
        let areas = Areas::default();
        let made = || {
            let mine = areas.begin(Scope::Names);
            let quiet = areas.quiet(mine.scope).unwrap();
            areas.opens();
            (mine, quiet)
        };
        let (mine, quiet) = made();
        assert!(areas.is_quiet_since(&quiet));
        areas.opens();
        assert!(!areas.is_quiet_since(&quiet), "it was opened");
        drop(mine);
        for scope in [Scope::Names, Scope::Everything] {
            let (_mine, quiet) = made();
            drop(areas.begin(scope));
            assert!(!areas.is_quiet_since(&quiet), "it was changed by its name, and is no more");
        }
        let other = areas.begin(Scope::Names);
        let (_mine, quiet) = made();
        drop(other);
        assert!(!areas.is_quiet_since(&quiet), "another one was changing names when it was made");
    }
}
