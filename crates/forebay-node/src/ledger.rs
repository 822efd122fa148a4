//! This process's ledger and those of others on the host: files in a directory of their own, each
//! locked by its process for as long as that lives. The lock of a process that is gone can be taken,
//! and only then: also a thread that hangs in a system call keeps it. So whoever can take it knows that
//! nothing of that process is under way any more, and reads in its ledger what it had begun. Behind it
//! stand the positional writes: one that is under way must not be repeated elsewhere, nor one that is
//! done, as long as there is room to remember it.

use crate::sys::{self, SharedMap, acting};
use forebay_types::Nanos;
use forebay_wire::frame::Header;
use forebay_wire::hello::{Incarnation, SessionId};
use forebay_wire::message::Fate;
use forebay_wire::session::ledger::{Begun, ENTRIES, Entry, Ledger};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// More writes than this cannot be under way at a time, nor remembered. One entry in front is the ring's own.
const WRITES: usize = (1 << 15) + 1;
pub(crate) const SIZE: usize = (ENTRIES + WRITES) * size_of::<Entry>();
/// A ledger whose process is gone has this mode once somebody noticed; its time says when.
const FOUND_DEAD: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::RGRP);
/// No client asks about a process that has been gone for so long.
const KEPT: Duration = Duration::from_secs(3600);
/// No process takes so long to make its ledger.
const MAKING: Duration = Duration::from_secs(60);

/// What there is to say about another process: whether its ledger can be read here, whether it has
/// ended, and what became of a request.
pub(crate) struct Verdict {
    pub(crate) known: bool,
    pub(crate) dead: bool,
    pub(crate) fate: Fate,
}

const UNKNOWN: Verdict = Verdict { known: false, dead: false, fate: Fate::Absent };

/// The ledgers of one directory, this process's among them.
pub(crate) struct Ledgers {
    /// `None`: this process keeps its ledger to itself, and knows no other.
    dir: Option<OwnedFd>,
    incarnation: Incarnation,
    rings: Rings,
    /// Holds the lock.
    _file: Option<OwnedFd>,
}

/// The two parts of a ledger's memory.
struct Rings {
    /// What must not be done twice.
    once: Ledger<Part>,
    /// Positional writes.
    writes: Ledger<Part>,
}

struct Part {
    map: Arc<SharedMap>,
    entries: Range<usize>,
}

impl AsRef<[Entry]> for Part {
    fn as_ref(&self) -> &[Entry] {
        &(*self.map).as_ref()[self.entries.clone()]
    }
}

impl Rings {
    fn new(map: SharedMap) -> Option<Rings> {
        let map = Arc::new(map);
        let part = |entries| Ledger::new(Part { map: Arc::clone(&map), entries });
        Some(Rings { once: part(0..ENTRIES)?, writes: part(ENTRIES..ENTRIES + WRITES)? })
    }

    fn fate(&self, session: SessionId, id: u64, age_ms: u32) -> Fate {
        let now = sys::now();
        match self.writes.fate(session, id, age_ms, now) {
            known @ (Fate::Begun | Fate::Done { .. }) => known,
            // One that is forgotten can be done again.
            _ => self.once.fate(session, id, age_ms, now),
        }
    }
}

/// A write that may be at the storage, until it is done; dropped before that, it was not tried.
pub(crate) struct UnderWay<'a> {
    ring: &'a Ledger<Part>,
    begun: Option<Begun>,
}

impl UnderWay<'_> {
    /// It was tried, and ended so before `now`: this many bytes at `offset`.
    pub(crate) fn done(mut self, offset: u64, written: Result<usize, Errno>, now: Nanos) {
        let (errno, n) = match written {
            Ok(n) => (0, n as u64),
            Err(e) => (e.raw_os_error().unsigned_abs(), 0),
        };
        if let Some(begun) = self.begun.take() {
            self.ring.done(begun, errno, [offset, n, 0, 0], now);
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if let Some(begun) = self.begun.take() {
            self.ring.withdraw(begun);
        }
    }
}

fn name(incarnation: Incarnation) -> String {
    incarnation.0.iter().map(|b| format!("{b:02x}")).collect()
}

/// Where nodes of this user on this host keep their ledgers unless told otherwise: memory, since the
/// page cache they vouch for is gone with it.
fn usual_place() -> PathBuf {
    match rustix::process::geteuid() {
        uid if uid.is_root() => "/run/forebay".into(),
        uid => format!("/dev/shm/forebay-{}", uid.as_raw()).into(),
    }
}

impl Ledgers {
    /// Opens a ledger in `dir`, which must be the user's own; without one in the usual place, and if
    /// that cannot be had, in memory of its own.
    pub(crate) fn open(dir: Option<&Path>, incarnation: Incarnation) -> Result<Ledgers, (PathBuf, Errno)> {
        let usual = usual_place();
        let place = dir.unwrap_or(&usual);
        match Ledgers::open_in(place, incarnation) {
            Err(e) if dir.is_none() => {
                tracing::warn!(
                    "no ledger in {}: {e}; if this node crashes, its clients cannot learn what became of \
                     their requests (see ledger-dir)",
                    place.display()
                );
                let map = SharedMap::anonymous(SIZE).map_err(|e| (place.to_owned(), e))?;
                let rings = Rings::new(map).ok_or_else(|| (place.to_owned(), Errno::INVAL))?;
                Ok(Ledgers { dir: None, incarnation, rings, _file: None })
            }
            other => other.map_err(|e| (place.to_owned(), e)),
        }
    }

    fn open_in(place: &Path, incarnation: Incarnation) -> Result<Ledgers, Errno> {
        match rustix::fs::mkdir(place, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e),
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(CWD, place, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&dir)?;
        if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o022 != 0 {
            return Err(Errno::PERM);
        }
        clean(&dir);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        // It gets its name when it is locked: until then a neighbour that starts would take it for a dead
        // one's, and its look at the lock for the lock.
        let begun = format!("{}.new", name(incarnation));
        let opened = Ledgers::begin_in(&dir, &begun, flags, incarnation);
        if opened.is_err() {
            let _ = rustix::fs::unlinkat(&dir, &begun, AtFlags::empty());
        }
        let (rings, file) = opened?;
        Ok(Ledgers { dir: Some(dir), incarnation, rings, _file: Some(file) })
    }

    fn begin_in(
        dir: &OwnedFd,
        begun: &str,
        flags: OFlags,
        incarnation: Incarnation,
    ) -> Result<(Rings, OwnedFd), Errno> {
        let file = rustix::fs::openat(dir, begun, flags, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        // All of it at once: a full file system is an error here, not the node's death later.
        match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, SIZE as u64) {
            Err(Errno::OPNOTSUPP) => drop(rustix::io::pwrite(&file, &vec![0; SIZE], 0)?),
            other => other?,
        }
        let rings = Rings::new(SharedMap::of_file(file.as_fd(), SIZE)?).ok_or(Errno::INVAL)?;
        rustix::fs::renameat(dir, begun, dir, name(incarnation))?;
        Ok((rings, file))
    }

    /// A write is about to be tried, if its lease holds after this. `None` if it must not be.
    pub(crate) fn begin_write(&self, session: SessionId, id: u64) -> Option<UnderWay<'_>> {
        let ring = &self.rings.writes;
        // What is under way has no age.
        ring.begin(session, id, Nanos::ZERO).map(|begun| UnderWay { ring, begun: Some(begun) })
    }

    /// How a write of this process ended that may have been tried before.
    pub(crate) fn ended(&self, session: SessionId, id: u64) -> Option<Result<usize, Errno>> {
        match self.rings.writes.fate(session, id, 0, sys::now()) {
            Fate::Done { errno: 0, values } => Some(Ok(usize::try_from(values[1]).unwrap_or(usize::MAX))),
            Fate::Done { errno, .. } => Some(Err(Errno::from_raw_os_error(errno as i32))),
            _ => None,
        }
    }

    /// Whether a try of that write is at the storage.
    pub(crate) fn is_writing(&self, session: SessionId, id: u64) -> bool {
        self.rings.writes.fate(session, id, 0, sys::now()) == Fate::Begun
    }

    /// Whether a request that was sent before may have been tried by this process, though its session does
    /// not know of it: it began after that. Then its client is to ask what became of it.
    pub(crate) fn knows(&self, session: SessionId, header: &Header) -> bool {
        self.rings.fate(session, header.id.get(), header.age_ms.get()) != Fate::Absent
    }

    /// An operation is about to be tried, if its lease holds after this. `None` if it must not be.
    pub(crate) fn begin(&self, session: SessionId, id: u64) -> Option<Begun> {
        // What is under way has no age.
        self.rings.once.begin(session, id, Nanos::ZERO)
    }

    /// It was tried, and ended so before `now`.
    pub(crate) fn done(&self, begun: Begun, errno: u32, values: [u64; 4], now: Nanos) {
        self.rings.once.done(begun, errno, values, now);
    }

    /// It was not tried.
    pub(crate) fn withdraw(&self, begun: Begun) {
        self.rings.once.withdraw(begun);
    }

    /// What became of a process of this host and of a request to it.
    pub(crate) fn verdict(
        &self,
        incarnation: Incarnation,
        session: SessionId,
        id: u64,
        age_ms: u32,
    ) -> Verdict {
        if incarnation == self.incarnation {
            let fate = self.rings.fate(session, id, age_ms);
            return Verdict { known: true, dead: false, fate };
        }
        // Ledgers are the nodes' own: the job's user has no business with them.
        let found = acting::as_node(|| self.of_another(incarnation, session, id, age_ms));
        found.ok().flatten().unwrap_or(UNKNOWN)
    }

    fn of_another(
        &self,
        incarnation: Incarnation,
        session: SessionId,
        id: u64,
        age_ms: u32,
    ) -> Option<Verdict> {
        let dir = self.dir.as_ref()?;
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(dir, name(incarnation), flags, Mode::empty()).ok()?;
        // First whether it lives: what is read after that is all there will ever be.
        let dead = is_dead(&file);
        let whole = rustix::fs::fstat(&file).ok()?.st_size >= SIZE as i64;
        let rings = Rings::new(SharedMap::of_file(file.as_fd(), SIZE).ok().filter(|_| whole)?)?;
        Some(Verdict { known: true, dead, fate: rings.fate(session, id, age_ms) })
    }
}

/// Whether the process that locked the file has ended. Several may ask at once.
fn is_dead(file: &OwnedFd) -> bool {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockShared).is_ok()
}

/// Removes the ledgers of processes that were found dead long ago, and notes which are dead now.
fn clean(dir: &OwnedFd) {
    let Ok(entries) = rustix::fs::Dir::read_from(dir) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let begun = name.to_bytes().strip_suffix(b".new");
        let of = begun.unwrap_or(name.to_bytes());
        let hex = of.len() == 32 && of.iter().all(u8::is_ascii_hexdigit);
        let Some(Ok(file)) = hex.then(|| rustix::fs::openat(dir, name, flags, Mode::empty())) else {
            continue;
        };
        let Ok(stat) = rustix::fs::fstat(&file) else { continue };
        let since = SystemTime::UNIX_EPOCH + Duration::from_secs(stat.st_mtime.unsigned_abs());
        // One that is being made is about to be locked: a look at its lock could be in the way of that.
        let making = begun.is_some() && !since.elapsed().is_ok_and(|age| age > MAKING);
        if making || !is_dead(&file) {
            continue;
        }
        if begun.is_some() {
            let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
        } else if Mode::from_raw_mode(stat.st_mode) != FOUND_DEAD {
            let _ = rustix::fs::fchmod(&file, FOUND_DEAD);
            let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
            let times = rustix::fs::Timestamps { last_access: now, last_modification: now };
            let _ = rustix::fs::futimens(&file, &times);
        } else if since.elapsed().is_ok_and(|age| age > KEPT) {
            let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: SessionId = SessionId([9; 16]);

    fn open(dir: &tempfile::TempDir, n: u8) -> Ledgers {
        Ledgers::open(Some(dir.path()), Incarnation([n; 16])).unwrap()
    }

    #[test]
    fn neighbours_that_start_at_once_are_not_in_each_others_way() {
        let dir = tempfile::tempdir().unwrap();
        let place = rustix::fs::openat(CWD, dir.path(), OFlags::DIRECTORY, Mode::empty()).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    while !done.load(std::sync::atomic::Ordering::Relaxed) {
                        clean(&place);
                    }
                });
            }
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
            let made: Vec<_> = (0..500u16)
                .map(|n| {
                    let mut incarnation = [7; 16];
                    incarnation[..2].copy_from_slice(&n.to_le_bytes());
                    let incarnation = Incarnation(incarnation);
                    let begun = format!("{}.new", name(incarnation));
                    let made = Ledgers::begin_in(&place, &begun, flags, incarnation).map(drop);
                    let _ = rustix::fs::unlinkat(&place, name(incarnation), AtFlags::empty());
                    made
                })
                .collect();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(made.iter().all(Result::is_ok), "{:?}", made.iter().find(|m| m.is_err()));
        });
    }

    #[test]
    fn another_process_tells_what_became_of_one_that_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (open(&dir, 1), open(&dir, 2));
        let done = first.begin(SESSION, 7).unwrap();
        first.done(done, 17, [1, 2, 3, 4], sys::now());
        let begun = first.begin(SESSION, 8).unwrap();
        let ask = |id| second.verdict(Incarnation([1; 16]), SESSION, id, 0);
        let v = ask(7);
        assert!(v.known && !v.dead, "it lives");
        assert_eq!(v.fate, Fate::Done { errno: 17, values: [1, 2, 3, 4] });
        assert_eq!(first.verdict(Incarnation([1; 16]), SESSION, 8, 0).fate, Fate::Begun);
        drop((begun, first));
        let v = ask(8);
        assert!(v.known && v.dead);
        assert_eq!(v.fate, Fate::Begun);
        assert_eq!(ask(9).fate, Fate::Absent);
        let write = second.begin_write(SESSION, 10).unwrap();
        let third = open(&dir, 3);
        let ask = |id| third.verdict(Incarnation([2; 16]), SESSION, id, 0).fate;
        assert_eq!(ask(10), Fate::Begun);
        drop(write);
        assert_eq!(ask(10), Fate::Absent, "it was not tried");
        let write = second.begin_write(SESSION, 11).unwrap();
        assert_eq!(second.ended(SESSION, 11), None);
        write.done(4096, Ok(512), sys::now());
        assert_eq!(second.ended(SESSION, 11), Some(Ok(512)));
        assert_eq!(ask(11), Fate::Done { errno: 0, values: [4096, 512, 0, 0] });
        assert!(!second.verdict(Incarnation([4; 16]), SESSION, 9, 0).known, "never heard of");
    }

    #[test]
    fn the_dead_are_kept_for_a_while_and_then_removed() {
        let dir = tempfile::tempdir().unwrap();
        drop(open(&dir, 1));
        let path = dir.path().join("01".repeat(16));
        drop(open(&dir, 2));
        assert!(path.exists(), "found dead");
        let old = SystemTime::now() - 2 * KEPT;
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
        let _third = open(&dir, 3);
        assert!(!path.exists(), "found dead long ago");
        assert!(dir.path().join("02".repeat(16)).exists());
    }

    #[test]
    fn a_directory_of_others_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let refused = Ledgers::open(Some(dir.path()), Incarnation([1; 16])).err().unwrap();
        assert_eq!(refused.1, Errno::PERM);
    }
}
