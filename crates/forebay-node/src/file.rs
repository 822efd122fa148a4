//! Open files on the node and the job-wide table of their handles.

use crate::path;
use crate::ranges::Ranges;
use crate::room::Taken;
use crate::sys::{self, RawLock};
use forebay_sched::layout::Layout;
use forebay_types::{FileId, Identity, Nanos, Protect};
use forebay_wire::flags::OpenFlags;
use forebay_wire::message::{Attr, LockKind, LockOwner, LockRange};
use forebay_wire::session::held::Files;
use forebay_wire::session::locks::Locks;
use forebay_wire::session::place::Ties;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// One open file (an open file description), shared by the sessions that hold its handle.
#[derive(Debug)]
pub(crate) struct OpenFile {
    fd: OwnedFd,
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    /// What tells it from any other file; see [`path::identity`].
    pub(crate) identity: u64,
    pub(crate) directory: bool,
    /// How what is in it is protected at least.
    pub(crate) protect: Protect,
    flags: AtomicU32,
    /// Where it lies on the data servers, once somebody asked.
    pub(crate) layout: OnceLock<Option<Layout>>,
    /// The descriptor's position: appends and directory reading use it.
    position: Mutex<Position>,
    /// Something was written through it.
    written: AtomicBool,
    /// What is locked through it, whoever did that.
    locks: Mutex<Locks>,
    /// Its client has found that it can be opened nowhere else.
    stays: AtomicBool,
    _room: Taken,
}

/// What the descriptor's position is known to be.
#[derive(Debug, Default)]
pub(crate) struct Position {
    /// Where a directory stands, if it stands where the last page of entries ended.
    pub(crate) cookie: Option<u64>,
}

impl OpenFile {
    pub(crate) fn new(
        fd: OwnedFd,
        attr: &Attr,
        identity: u64,
        flags: OpenFlags,
        protect: Protect,
        room: Taken,
    ) -> OpenFile {
        OpenFile {
            fd,
            dev: attr.dev,
            ino: attr.ino,
            identity,
            directory: attr.mode & libc::S_IFMT == libc::S_IFDIR,
            protect,
            flags: AtomicU32::new(flags.0),
            layout: OnceLock::new(),
            position: Mutex::default(),
            written: AtomicBool::new(false),
            locks: Mutex::default(),
            stays: AtomicBool::new(false),
            _room: room,
        }
    }

    /// Locks or releases a range for whoever has this open file, without waiting.
    pub(crate) fn lock_range(&self, range: LockRange, raw: RawLock) -> Result<(), Errno> {
        let mut locks = self.locks();
        sys::ofd_set(self.fd(), raw)?;
        locks.note(LockOwner::Handle, range);
        Ok(())
    }

    /// `flock` without waiting.
    pub(crate) fn flock(&self, kind: LockKind) -> Result<(), Errno> {
        let operation = match kind {
            LockKind::Read => FlockOperation::NonBlockingLockShared,
            LockKind::Write => FlockOperation::NonBlockingLockExclusive,
            LockKind::Unlock => FlockOperation::NonBlockingUnlock,
        };
        let mut locks = self.locks();
        let done = rustix::fs::flock(self.fd(), operation);
        // One that is to become another kind is released first, and then perhaps not to be had.
        locks.note_flock(if done.is_ok() { kind } else { LockKind::Unlock });
        done
    }

    /// The descriptor whose close tells what the file system has to say: its own, if nobody else has the file any
    /// more. Every close of one is a trip to the servers of some file systems.
    pub(crate) fn leave(self: Arc<OpenFile>) -> Option<OwnedFd> {
        match Arc::try_unwrap(self) {
            Ok(last) => Some(last.fd),
            // Without a number for it there is nothing to be learned.
            Err(shared) => rustix::io::fcntl_dupfd_cloexec(shared.fd(), 0).ok(),
        }
    }

    /// What ties it to this node; `who` would have to open it elsewhere. Asks no server.
    pub(crate) fn ties(&self, who: Option<&Identity>) -> Ties {
        let nameless = self.stays.load(Relaxed) || path::cannot_be_opened(self.fd(), self.flags(), who);
        Ties { locked: !self.locks().is_empty(), nameless, shared: false }
    }

    fn locks(&self) -> MutexGuard<'_, Locks> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn flags(&self) -> OpenFlags {
        OpenFlags(self.flags.load(Relaxed))
    }

    /// Something is about to be written through it.
    pub(crate) fn mark_written(&self) {
        if !self.written.load(Relaxed) {
            self.written.store(true, Relaxed);
        }
    }

    pub(crate) fn is_written(&self) -> bool {
        self.written.load(Relaxed)
    }

    /// Takes over what `F_SETFL` can change.
    pub(crate) fn set_flags(&self, wanted: OpenFlags) -> Result<(), Errno> {
        const SETTABLE: [OpenFlags; 3] = [OpenFlags::APPEND, OpenFlags::DIRECT, OpenFlags::NOATIME];
        let flags = SETTABLE
            .iter()
            .fold(self.flags(), |flags, &f| if wanted.has(f) { flags | f } else { flags.without(f) });
        self.stays.fetch_or(wanted.has(OpenFlags::STAYS), Relaxed);
        let raw = OFlags::from_bits_retain(flags.to_linux() as _);
        rustix::fs::fcntl_setfl(&self.fd, raw)?;
        self.flags.store(flags.0, Relaxed);
        Ok(())
    }

    pub(crate) fn position(&self) -> MutexGuard<'_, Position> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What tells files apart that may be read or written together: the file, and how it was opened
    /// as far as that changes what a write means. Hashed: whoever merges compares [`OpenFile::same`].
    pub(crate) fn file_id(&self) -> FileId {
        FileId(foldhash::fast::FixedState::default().hash_one((self.dev, self.ino, self.class())))
    }

    fn class(&self) -> u32 {
        let how = OpenFlags::DIRECT | OpenFlags::SYNC | OpenFlags::DSYNC | OpenFlags::NOATIME;
        self.flags().0 & how.0
    }

    /// Whether requests to both may go to storage in one system call.
    pub(crate) fn same(&self, other: &OpenFile) -> bool {
        (self.dev, self.ino, self.class()) == (other.dev, other.ino, other.class())
    }
}

/// The descriptor that carries the byte-range locks of one client process on one file: the kernel
/// keeps locks by open file, so a process is given one of its own.
#[derive(Debug)]
pub(crate) struct LockFile {
    fd: OwnedFd,
    pub(crate) identity: u64,
    /// What is locked, to tell who holds what is in somebody's way.
    held: Mutex<Ranges>,
    _room: Taken,
}

impl LockFile {
    pub(crate) fn new(file: &OpenFile, room: Taken) -> Result<LockFile, Errno> {
        let writable = path::reopen(file.fd(), OFlags::RDWR);
        let fd = match writable {
            Err(Errno::ACCESS | Errno::ROFS | Errno::PERM | Errno::TXTBSY) => {
                path::reopen(file.fd(), OFlags::RDONLY).or_else(|_| rustix::io::dup(file.fd()))
            }
            other => other,
        }?;
        Ok(LockFile { fd, identity: file.identity, held: Mutex::default(), _room: room })
    }

    /// Locks or releases a range, without waiting.
    pub(crate) fn set(&self, range: LockRange, raw: RawLock) -> Result<(), Errno> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        sys::ofd_set(self.fd(), raw)?;
        held.set(range);
        Ok(())
    }

    /// What is locked here and in the way of `wanted`.
    pub(crate) fn in_the_way_of(&self, wanted: &LockRange) -> Option<LockRange> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).in_the_way_of(wanted)
    }

    /// Whether nothing is locked.
    pub(crate) fn is_idle(&self) -> bool {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// All open files of one job by handle. Sessions hold references; the table closes a file when the
/// last one is gone, or some time later if a forked process may still ask for it.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    files: Files<Arc<OpenFile>, foldhash::fast::RandomState>,
    issued: u64,
    key: RandomState,
}

impl Handles {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a file with one reference; `None` if there are `limit` already. Handles are keyed
    /// hashes of a counter, so that no client can guess another's.
    pub(crate) fn enter(&self, file: &Arc<OpenFile>, limit: usize) -> Option<u64> {
        let mut t = self.lock();
        if t.files.len() >= limit {
            return None;
        }
        loop {
            t.issued += 1;
            let handle = t.key.hash_one(t.issued);
            if handle == 0 || t.files.contains(handle) {
                continue;
            }
            t.files.enter(handle, Arc::clone(file));
            return Some(handle);
        }
    }

    /// One more reference to a file that is still open.
    pub(crate) fn adopt(&self, handle: u64) -> Option<Arc<OpenFile>> {
        self.lock().files.adopt(handle)
    }

    /// One reference less. Without `linger` the last one takes the file out of the table; the caller
    /// drops what it gets outside of any lock, since closing can take its time.
    pub(crate) fn release(&self, handle: u64, linger: Option<Nanos>) -> Option<Arc<OpenFile>> {
        self.lock().files.release(handle, linger)
    }

    /// Takes out the files that nobody asked for in time.
    pub(crate) fn expire(&self, now: Nanos) -> Vec<Arc<OpenFile>> {
        self.lock().files.expire(now)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().files.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Arc<OpenFile> {
        let fd = OwnedFd::from(tempfile::tempfile().unwrap());
        let attr = path::attr_of(fd.as_fd()).unwrap();
        let identity = path::identity(fd.as_fd(), &attr);
        let room = crate::room::Room::new("files", 1, false).take(&crate::sys::acting::Whom::Node).unwrap();
        Arc::new(OpenFile::new(fd, &attr, identity, OpenFlags::READ | OpenFlags::WRITE, Protect::None, room))
    }

    #[test]
    fn no_more_files_than_allowed() {
        let handles = Handles::default();
        let h = handles.enter(&file(), 1).unwrap();
        assert!(handles.enter(&file(), 1).is_none(), "the limit");
        assert!(handles.release(h, None).is_some());
        assert!(handles.enter(&file(), 1).is_some_and(|other| other != h));
    }

    #[test]
    fn flags_change_the_class() {
        let (a, b) = (file(), file());
        assert!(!a.same(&b));
        assert_ne!(a.identity, b.identity);
        let before = a.file_id();
        a.set_flags(OpenFlags::APPEND).unwrap();
        assert_eq!(a.file_id(), before);
        assert!(a.flags().has(OpenFlags::APPEND | OpenFlags::READ));
        a.set_flags(OpenFlags::default()).unwrap();
        assert!(!a.flags().has(OpenFlags::APPEND));
    }
}
