//! An open file as the client knows it: enough to open it again on another I/O node, and to hand
//! it to a child process.

use crate::guarded::Guarded;
use crate::hosts::HostSet;
use crate::lanes::Lanes;
use crate::stream::Streams;
use crate::whereabouts::{RemoteHandle, Whereabouts};
use forebay_types::Address;
use forebay_wire::flags::OpenFlags;
use forebay_wire::hello::SessionId;
use forebay_wire::message::{Attr, ExportId, LockKind, LockOwner, LockRange, Path};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

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

/// An open file. Dropping it does not close it on the node: [`crate::Client::close`] does.
#[derive(Debug)]
pub struct File {
    /// The export's index in the configuration.
    pub export: u16,
    rel: Guarded<Vec<u8>>,
    flags: AtomicU32,
    /// Its inode number.
    pub ino: u64,
    /// What tells it from other files that had or will have that number.
    pub(crate) identity: u64,
    /// Its type and mode when it was opened.
    pub mode: u32,
    place: Whereabouts,
    /// The end of the file after this process's last append, for replays.
    pub(crate) end: AtomicU64,
    dirty: AtomicBool,
    /// The hosts whose kernels have taken data that was not synced since, as a [`HostSet`].
    unsynced: AtomicU64,
    locks: Guarded<Vec<(LockOwner, LockRange)>>,
    /// How many those are.
    lock_count: AtomicUsize,
    /// The `flock` held: 0 none, 1 shared, 2 exclusive.
    flock: AtomicU32,
    /// It can be opened nowhere else (unlinked, replaced): it stays until it is closed.
    stays: AtomicBool,
    /// A forked process may hold it too.
    shared: AtomicBool,
    closed: AtomicBool,
    moving: AtomicBool,
    locking: AtomicBool,
    syncing: AtomicBool,
    pub(crate) lanes: Lanes,
    pub(crate) streams: Streams,
}

/// One thread does with the file what only one may: whoever holds this.
pub(crate) struct Alone<'a>(&'a AtomicBool);

impl<'a> Alone<'a> {
    pub(crate) fn enter(flag: &'a AtomicBool) -> Option<Alone<'a>> {
        (!flag.swap(true, Ordering::Acquire)).then(|| Alone(flag))
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl File {
    pub(crate) fn new(
        path: Path<'_>,
        flags: OpenFlags,
        attr: &Attr,
        identity: u64,
        place: RemoteHandle,
    ) -> File {
        File {
            export: path.export.0,
            rel: Guarded::new(path.rel.to_vec()),
            flags: AtomicU32::new(flags.0),
            ino: attr.ino,
            identity,
            mode: attr.mode,
            place: Whereabouts::new(place),
            end: AtomicU64::new(attr.size),
            dirty: AtomicBool::new(false),
            unsynced: AtomicU64::new(0),
            locks: Guarded::new(Vec::new()),
            lock_count: AtomicUsize::new(0),
            flock: AtomicU32::new(0),
            stays: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            moving: AtomicBool::new(false),
            locking: AtomicBool::new(false),
            syncing: AtomicBool::new(false),
            lanes: Lanes::default(),
            streams: Streams::default(),
        }
    }

    /// A file that a parent process left open.
    pub fn inherited(record: FileRecord) -> File {
        let path = Path { export: ExportId(record.export), rel: &record.rel };
        let attr = Attr { ino: record.ino, mode: record.mode, ..Attr::default() };
        let FileRecord { handle, session, identity, .. } = record;
        // As long as the file, and there are only as many as a process is started with.
        let address = Box::leak(Box::new(record.node));
        let place = RemoteHandle { node: usize::MAX, address, handle, session, lost: false };
        let file = File::new(path, record.flags, &attr, identity, place);
        file.set_shared(true);
        file
    }

    /// What a child process needs.
    pub fn record(&self) -> FileRecord {
        let place = self.place();
        FileRecord {
            export: self.export,
            rel: self.rel(),
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
    pub fn rel(&self) -> Vec<u8> {
        self.rel.with(|rel| rel.clone()).unwrap_or_default()
    }

    /// The file was renamed.
    pub fn set_rel(&self, new: Vec<u8>) {
        self.rel.with(|rel| *rel = new);
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

    pub(crate) fn place(&self) -> RemoteHandle {
        self.place.get().unwrap_or_else(|| RemoteHandle {
            node: usize::MAX,
            address: NOWHERE.get_or_init(|| Address::Unix("/".into())),
            handle: 0,
            session: SessionId([0; 16]),
            lost: true,
        })
    }

    pub(crate) fn set_place(&self, new: RemoteHandle) {
        self.place.change(|place| *place = new);
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

    /// A host's kernel has taken data.
    pub(crate) fn mark_unsynced(&self, host: HostSet) {
        if self.unsynced.load(Ordering::Relaxed) & host.0 == 0 {
            self.unsynced.fetch_or(host.0, Ordering::Relaxed);
        }
    }

    /// The hosts that have taken data since this was last asked.
    pub(crate) fn take_unsynced(&self) -> HostSet {
        HostSet(self.unsynced.swap(0, Ordering::Relaxed))
    }

    /// What was written through `lane` is owed by this file.
    pub(crate) fn gather(&self, lane: &File) {
        if !std::ptr::eq(self, lane) {
            self.mark_unsynced(lane.take_unsynced());
        }
    }

    pub(crate) fn lose_place(&self, which: RemoteHandle) {
        self.place.change(|place| place.lost |= place.handle == which.handle && place.node == which.node);
    }

    /// Nobody else moves or closes the file while the result lives.
    pub(crate) fn begin_move(&self) -> Option<Alone<'_>> {
        Alone::enter(&self.moving)
    }

    /// Nobody else changes locks through the file while the result lives: what is noted of them is in
    /// the order in which the node changed them.
    pub(crate) fn begin_locking(&self) -> Option<Alone<'_>> {
        Alone::enter(&self.locking)
    }

    /// Nobody else syncs through the file while the result lives: what one thread has undertaken to
    /// sync is not synced when another one asks.
    pub(crate) fn begin_sync(&self) -> Option<Alone<'_>> {
        Alone::enter(&self.syncing)
    }

    /// Whether it was closed here.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// It is being closed; false if it was before.
    pub(crate) fn set_closed(&self) -> bool {
        !self.closed.swap(true, Ordering::AcqRel)
    }

    /// The locks held through this file are lost; whether there were any.
    pub(crate) fn forget_locks(&self) -> bool {
        let any = self.lock_count.swap(0, Ordering::Relaxed) > 0;
        self.locks.with(Vec::clear);
        self.flock.swap(0, Ordering::Relaxed) != 0 || any
    }

    /// A forked process may hold it too: its close here does not close it there.
    pub fn set_shared(&self, shared: bool) {
        self.shared.store(shared, Ordering::Relaxed);
        self.lanes.open().for_each(|lane| lane.set_shared(shared));
    }

    /// Whether other processes may have it open, too.
    pub fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    pub(crate) fn set_stays(&self) {
        self.stays.store(true, Ordering::Relaxed);
    }

    /// Whether it must not move while its node lives: locks are held there, or it has no name.
    pub(crate) fn is_bound(&self) -> bool {
        self.stays.load(Ordering::Relaxed)
            || self.flock.load(Ordering::Relaxed) != 0
            || self.lock_count.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn note_flock(&self, kind: LockKind) {
        self.streams.look_again();
        let n = match kind {
            LockKind::Unlock => 0,
            LockKind::Read => 1,
            LockKind::Write => 2,
        };
        self.flock.store(n, Ordering::Relaxed);
    }

    /// In a forked child: byte-range locks are the parent's, and so is whatever was under way.
    pub fn forget_process_locks(&self) {
        self.moving.store(false, Ordering::Relaxed);
        self.locking.store(false, Ordering::Relaxed);
        self.streams.after_fork();
        self.lanes.open().for_each(File::forget_process_locks);
        // What another thread of the parent was just changing is not known here.
        self.locks.take_over(Vec::new());
        self.rel.take_over(Vec::new());
        self.place.take_over();
        self.change_locks(|locks| locks.retain(|(o, _)| *o == LockOwner::Handle));
    }

    /// Whether the open file itself holds locks (`flock`, open-file byte ranges).
    pub fn holds_locks(&self) -> bool {
        self.flock.load(Ordering::Relaxed) != 0 || self.locks_of(LockOwner::Handle)
    }

    /// Whether this process holds byte-range locks of its own through this file.
    pub fn has_process_locks(&self) -> bool {
        self.locks_of(LockOwner::Process)
    }

    fn locks_of(&self, owner: LockOwner) -> bool {
        self.lock_count.load(Ordering::Relaxed) != 0
            && self.locks.with(|locks| locks.iter().any(|(o, _)| *o == owner)).unwrap_or(true)
    }

    /// The locks held through this file.
    pub(crate) fn locks(&self) -> Vec<(LockOwner, LockRange)> {
        self.locks.with(|locks| locks.clone()).unwrap_or_default()
    }

    fn change_locks(&self, change: impl FnOnce(&mut Vec<(LockOwner, LockRange)>)) {
        self.locks.with(|locks| {
            change(locks);
            self.lock_count.store(locks.len(), Ordering::Relaxed);
        });
    }

    /// A lock was changed as `range` says.
    pub(crate) fn note_lock(&self, owner: LockOwner, range: LockRange) {
        let (from, to) = (range.start, range.end());
        self.streams.look_again();
        self.change_locks(|locks| {
            let mut now = Vec::with_capacity(locks.len() + 1);
            for &(o, held) in locks.iter() {
                let (a, b) = (held.start, held.end());
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
            *locks = now;
        });
    }
}

/// The address of a place that a signal handler found being changed.
static NOWHERE: std::sync::OnceLock<Address> = std::sync::OnceLock::new();

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
