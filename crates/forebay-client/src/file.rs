//! An open file as the client knows it: enough to open it again on another I/O node, and to hand
//! it to a child process.

use crate::published::Published;
use forebay_types::Address;
use forebay_wire::flags::OpenFlags;
use forebay_wire::hello::SessionId;
use forebay_wire::message::{Attr, ExportId, LockKind, LockOwner, LockRange, Path};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// What a child process needs to go on with an open file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// The export's index in the configuration.
    pub export: u16,
    /// The path below it.
    pub rel: Vec<u8>,
    /// How it was opened, without what happens only once (create, truncate, exclusive).
    pub flags: OpenFlags,
    /// Its inode number.
    pub ino: u64,
    /// What tells it from other files that had or will have that number.
    pub identity: u64,
    /// Its type and mode when it was opened.
    pub mode: u32,
    /// The I/O node that holds it.
    pub node: Address,
    /// Its handle there.
    pub handle: u64,
    /// The session that opened it there.
    pub session: SessionId,
}

/// Where the file is open right now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The node's index; that of an earlier client if the session is not this one's.
    pub(crate) node: usize,
    pub(crate) address: &'static Address,
    pub(crate) handle: u64,
    pub(crate) session: SessionId,
    /// The node does not know the handle (any more).
    pub(crate) lost: bool,
}

/// An open file. Dropping it does not close it on the node: [`crate::Client::close`] does.
#[derive(Debug)]
pub struct File {
    /// The export's index in the configuration.
    pub export: u16,
    rel: Published<Vec<u8>>,
    flags: AtomicU32,
    /// Its inode number.
    pub ino: u64,
    /// What tells it from other files that had or will have that number.
    pub(crate) identity: u64,
    /// Its type and mode when it was opened.
    pub mode: u32,
    place: Published<Place>,
    /// The end of the file after this process's last append, for replays.
    pub(crate) end: AtomicU64,
    dirty: AtomicBool,
    locks: Published<Vec<(LockOwner, LockRange)>>,
    /// The `flock` held: 0 none, 1 shared, 2 exclusive.
    flock: AtomicU32,
    /// It can be opened nowhere else (unlinked, replaced): it stays until it is closed.
    stays: AtomicBool,
    /// A forked process may hold it too.
    shared: AtomicBool,
    moving: AtomicBool,
}

/// The file is being opened on another node by whoever holds this.
pub(crate) struct Moving<'a>(&'a AtomicBool);

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl File {
    pub(crate) fn new(path: Path<'_>, flags: OpenFlags, attr: &Attr, identity: u64, place: Place) -> File {
        File {
            export: path.export.0,
            rel: Published::new(path.rel.to_vec()),
            flags: AtomicU32::new(flags.0),
            ino: attr.ino,
            identity,
            mode: attr.mode,
            place: Published::new(place),
            end: AtomicU64::new(attr.size),
            dirty: AtomicBool::new(false),
            locks: Published::new(Vec::new()),
            flock: AtomicU32::new(0),
            stays: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            moving: AtomicBool::new(false),
        }
    }

    /// A file that a parent process left open.
    pub fn inherited(record: FileRecord) -> File {
        let path = Path { export: ExportId(record.export), rel: &record.rel };
        let attr = Attr { ino: record.ino, mode: record.mode, ..Attr::default() };
        let FileRecord { handle, session, identity, .. } = record;
        // As long as the file, and there are only as many as a process is started with.
        let address = Box::leak(Box::new(record.node));
        let place = Place { node: usize::MAX, address, handle, session, lost: false };
        File::new(path, record.flags, &attr, identity, place)
    }

    /// What a child process needs.
    pub fn record(&self) -> FileRecord {
        let place = self.place();
        FileRecord {
            export: self.export,
            rel: self.rel().to_vec(),
            flags: self.flags(),
            ino: self.ino,
            identity: self.identity,
            mode: self.mode,
            node: place.address.clone(),
            handle: place.handle,
            session: place.session,
        }
    }

    /// The path below the export, as it was last known.
    pub fn rel(&self) -> &[u8] {
        self.rel.get()
    }

    /// The file was renamed.
    pub fn set_rel(&self, rel: Vec<u8>) {
        self.rel.set(rel);
    }

    /// How it was opened.
    pub fn flags(&self) -> OpenFlags {
        OpenFlags(self.flags.load(Ordering::Relaxed))
    }

    /// After `F_SETFL`.
    pub fn set_flags(&self, flags: OpenFlags) {
        self.flags.store(flags.0, Ordering::Relaxed);
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFDIR
    }

    pub(crate) fn place(&self) -> Place {
        *self.place.get()
    }

    pub(crate) fn set_place(&self, place: Place) {
        self.place.set(place);
    }

    /// Data or locks went through this file: its close must be waited for.
    pub(crate) fn mark_dirty(&self) {
        if !self.dirty.load(Ordering::Relaxed) {
            self.dirty.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Relaxed)
    }

    pub(crate) fn lose_place(&self) {
        self.set_place(Place { lost: true, ..self.place() });
    }

    /// Nobody else moves the file while the result lives.
    pub(crate) fn begin_move(&self) -> Option<Moving<'_>> {
        (!self.moving.swap(true, Ordering::Acquire)).then(|| Moving(&self.moving))
    }

    /// The locks held through this file are lost.
    pub(crate) fn forget_locks(&self) {
        self.locks.set(Vec::new());
        self.flock.store(0, Ordering::Relaxed);
    }

    /// A forked process may hold it too: its close here does not close it there.
    pub fn set_shared(&self, shared: bool) {
        self.shared.store(shared, Ordering::Relaxed);
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    pub(crate) fn set_stays(&self) {
        self.stays.store(true, Ordering::Relaxed);
    }

    /// Whether it must not move while its node lives: locks are held there, or it has no name.
    pub(crate) fn is_bound(&self) -> bool {
        self.stays.load(Ordering::Relaxed)
            || self.flock.load(Ordering::Relaxed) != 0
            || !self.locks().is_empty()
    }

    pub(crate) fn note_flock(&self, kind: LockKind) {
        let n = match kind {
            LockKind::Unlock => 0,
            LockKind::Read => 1,
            LockKind::Write => 2,
        };
        self.flock.store(n, Ordering::Relaxed);
    }

    pub(crate) fn flock(&self) -> Option<LockKind> {
        match self.flock.load(Ordering::Relaxed) {
            1 => Some(LockKind::Read),
            2 => Some(LockKind::Write),
            _ => None,
        }
    }

    /// In a forked child: byte-range locks are the parent's, and so is a move that was under way.
    pub fn forget_process_locks(&self) {
        self.moving.store(false, Ordering::Relaxed);
        if !self.locks().is_empty() {
            self.locks.set(self.locks().iter().filter(|(o, _)| *o == LockOwner::Handle).copied().collect());
        }
    }

    /// Whether the open file itself holds locks (`flock`, open-file byte ranges).
    pub fn holds_locks(&self) -> bool {
        self.flock().is_some() || self.locks().iter().any(|(o, _)| *o == LockOwner::Handle)
    }

    /// Whether this process holds byte-range locks of its own through this file.
    pub fn has_process_locks(&self) -> bool {
        self.locks().iter().any(|(o, _)| *o == LockOwner::Process)
    }

    /// The locks held through this file, to be taken again should its node die.
    pub(crate) fn locks(&self) -> &[(LockOwner, LockRange)] {
        self.locks.get()
    }

    /// A lock was changed as `range` says.
    pub(crate) fn note_lock(&self, owner: LockOwner, range: LockRange) {
        let end = |r: &LockRange| if r.len == 0 { u64::MAX } else { r.start.saturating_add(r.len) };
        let (from, to) = (range.start, end(&range));
        let mut now = Vec::new();
        for &(o, held) in self.locks() {
            let (a, b) = (held.start, end(&held));
            if o != owner || b <= from || a >= to {
                now.push((o, held));
                continue;
            }
            if a < from {
                now.push((o, LockRange { kind: held.kind, start: a, len: from - a }));
            }
            if b > to {
                let len = if b == u64::MAX { 0 } else { b - to };
                now.push((o, LockRange { kind: held.kind, start: to, len }));
            }
        }
        if range.kind != LockKind::Unlock {
            now.push((owner, range));
        }
        if !(now.is_empty() && self.locks().is_empty()) {
            self.locks.set(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_ranges_split() {
        let record = FileRecord {
            export: 0,
            rel: b"x".to_vec(),
            flags: OpenFlags::READ,
            ino: 1,
            identity: 1,
            mode: 0o100644,
            node: Address::Unix("/n".into()),
            handle: 1,
            session: SessionId([0; 16]),
        };
        let f = File::inherited(record);
        let r = |kind, start, len| LockRange { kind, start, len };
        f.note_lock(LockOwner::Process, r(LockKind::Write, 10, 0));
        f.note_lock(LockOwner::Process, r(LockKind::Unlock, 20, 10));
        assert_eq!(
            f.locks(),
            [
                (LockOwner::Process, r(LockKind::Write, 10, 10)),
                (LockOwner::Process, r(LockKind::Write, 30, 0))
            ]
        );
        f.note_lock(LockOwner::Process, r(LockKind::Unlock, 0, 0));
        assert!(f.locks().is_empty());
    }
}
