//! An open file as the client knows it: enough to open it again on another I/O node, and to hand
//! it to a child process.

use crate::commons::{CommonAt, Found, Joined, Membership};
use crate::guarded::Guarded;
use crate::hosts::HostSet;
use crate::lanes::Lanes;
use crate::late::Late;
use crate::later::Puts;
use crate::seen::Sighting;
use crate::stream::Streams;
use crate::sys;
use crate::whereabouts::{RemoteHandle, Whereabouts};
use forebay_types::Address;
use forebay_wire::flags::OpenFlags;
use forebay_wire::hello::{HostBoot, SessionId};
use forebay_wire::message::{Attr, ExportId, LockKind, LockOwner, LockRange, Path};
use forebay_wire::session::board::place_of;
use forebay_wire::session::common::{Common, Ranges};
use forebay_wire::session::locks::Locks;
use forebay_wire::session::owed::Undertaken;
use forebay_wire::session::place::Ties;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// What a child process needs to go on with an open file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// The export's index in the configuration.
    pub export: u16,
    /// The path below it.
    pub rel: Vec<u8>,
    /// The one by which it was opened, if it has another one now.
    pub opened_as: Option<Vec<u8>>,
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
    /// Hosts that may have data which was not synced.
    pub unsynced: Vec<HostBoot>,
    /// There are further ones, which nobody knows.
    pub more_unsynced: bool,
    /// Where the processes that share it say so instead, and more.
    pub common: Option<CommonAt>,
}

/// An open file. Dropping it does not close it on the node: [`crate::Client::close`] does.
#[derive(Debug)]
pub struct File {
    /// The export's index in the configuration.
    pub export: u16,
    names: Guarded<Names>,
    flags: AtomicU32,
    /// Its inode number.
    pub ino: u64,
    /// What tells it from other files that had or will have that number.
    pub identity: u64,
    /// Its type and mode when it was opened.
    pub mode: u32,
    place: Whereabouts,
    /// The end of the file after this process's last append, for replays.
    pub(crate) end: AtomicU64,
    dirty: AtomicBool,
    /// The hosts whose kernels have taken data that was not synced since, as a [`HostSet`].
    unsynced: AtomicU64,
    /// What a process that comes by `exec` would take those to be.
    recorded: AtomicU64,
    /// What is known together with other processes that share it.
    pub(crate) common: Membership,
    /// Of how many losses of locks this process knows, of those that are counted there.
    heard: AtomicU64,
    /// What is to be told of acknowledged writes that have failed.
    pub(crate) late: Late,
    locks: Guarded<Locks>,
    /// How many those are; without those that are known together.
    lock_count: AtomicUsize,
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
    /// Its place on the board of its node; nothing if it is not known.
    pub(crate) on_board: Option<usize>,
    pub(crate) seen: Option<Sighting>,
    /// Small things may be done to it later.
    pub(crate) later: Option<Puts>,
    /// Its number in a trace of the run; 0 if it has none.
    pub(crate) traced: AtomicU32,
}

/// The path below the export.
#[derive(Debug, Default)]
struct Names {
    now: Vec<u8>,
    /// The one by which it was opened, once it has another one.
    opened: Option<Vec<u8>>,
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
            names: Guarded::new(Names { now: path.rel.to_vec(), opened: None }),
            flags: AtomicU32::new(flags.0),
            ino: attr.ino,
            identity,
            mode: attr.mode,
            place: Whereabouts::new(place),
            end: AtomicU64::new(attr.size),
            dirty: AtomicBool::new(false),
            unsynced: AtomicU64::new(0),
            recorded: AtomicU64::new(0),
            common: Membership::default(),
            heard: AtomicU64::new(0),
            late: Late::default(),
            locks: Guarded::new(Locks::default()),
            lock_count: AtomicUsize::new(0),
            stays: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            moving: AtomicBool::new(false),
            locking: AtomicBool::new(false),
            syncing: AtomicBool::new(false),
            lanes: Lanes::default(),
            streams: Streams::default(),
            on_board: Some(place_of(attr.dev, attr.ino)),
            seen: None,
            later: None,
            traced: AtomicU32::new(0),
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
        let mut file = File::new(path, record.flags, &attr, identity, place);
        file.on_board = None;
        file.names.with(|names| names.opened = record.opened_as);
        file.set_shared(true);
        let owed = HostSet::all(record.unsynced.iter().copied(), record.more_unsynced);
        match record.common.map(Joined::find) {
            Some(Found::Here(joined)) => {
                // Who began before has been told, or will be.
                file.heard.store(joined.common().told(), Ordering::Relaxed);
                file.late.begin_with(joined.common());
                file.common.set(joined);
            }
            // It was on its way for so long that nobody knows any more what is not synced.
            Some(Found::Anothers) => file.mark_unsynced(HostSet::all(std::iter::empty(), true)),
            Some(Found::Nowhere) | None => {}
        }
        file.mark_unsynced(owed);
        file.recorded.store(owed.0, Ordering::Relaxed);
        file
    }

    /// What a child process needs; `here` is the host of the node that holds it. What is written through
    /// that later may not be synced when the child goes on.
    pub(crate) fn record(&self, here: HostSet) -> FileRecord {
        let place = self.place();
        self.join_others();
        let common = self.common.get().map(|joined| joined.at());
        let here = if common.is_some() { HostSet::default() } else { here };
        let owed = HostSet(self.unsynced.load(Ordering::Relaxed) | here.0);
        self.recorded.store(owed.0, Ordering::Relaxed);
        FileRecord {
            export: self.export,
            rel: self.rel(),
            opened_as: self.names.with(|names| names.opened.clone()).flatten(),
            flags: self.flags(),
            ino: self.ino,
            identity: self.identity,
            mode: self.mode,
            node: place.address.clone(),
            handle: place.handle,
            session: place.session,
            unsynced: owed.iter().flatten().collect(),
            more_unsynced: owed.iter().any(|host| host.is_none()),
            common,
        }
    }

    /// It is going to be shared: what is known of it is known together from now on, if there is room for it.
    fn join_others(&self) {
        if self.common.get().is_some() {
            return;
        }
        let Some(new) = Joined::new() else { return };
        self.common.set(new);
        let Some(joined) = self.common.get() else { return };
        // Whoever marked a host before saw nobody to tell.
        joined.mark(HostSet(self.unsynced.swap(0, Ordering::SeqCst)));
        self.fail_together();
        let place = self.place().handle;
        self.with_locks(|locks| {
            if locks.has_flock() {
                joined.common().note_flock(place, true);
            }
            if locks.has_ranges(LockOwner::Handle) {
                joined.common().note_ranges(place, self.who(), Ranges::Locked);
            }
        });
    }

    /// What this program is called among those that share open files.
    fn who(&self) -> u64 {
        static WHO: AtomicU64 = AtomicU64::new(0);
        let who = WHO.load(Ordering::Relaxed);
        if who as u32 == sys::pid() {
            return who;
        }
        let [a, b, c, d, ..] = sys::random16();
        let new = u64::from(u32::from_le_bytes([a, b, c, d]) >> 1) << 32 | u64::from(sys::pid());
        WHO.store(new, Ordering::Relaxed);
        new
    }

    /// What is known together with others that share it.
    pub(crate) fn common(&self) -> Option<&'static Common> {
        self.common.get().map(|joined| joined.common())
    }

    /// Whether hosts have its data of which its record says nothing.
    pub(crate) fn is_record_old(&self) -> bool {
        self.common.get().is_none()
            && self.unsynced.load(Ordering::Relaxed) & !self.recorded.load(Ordering::Relaxed) != 0
    }

    /// The path below the export, as it was last known.
    pub fn rel(&self) -> Vec<u8> {
        self.names.with(|names| names.now.clone()).unwrap_or_default()
    }

    /// The path below the export by which it was opened.
    pub(crate) fn opened_as(&self) -> Vec<u8> {
        self.names.with(|names| names.opened.as_ref().unwrap_or(&names.now).clone()).unwrap_or_default()
    }

    /// The file was renamed.
    pub fn set_rel(&self, new: Vec<u8>) {
        self.names.with(|names| {
            let old = std::mem::replace(&mut names.now, new);
            names.opened.get_or_insert(old);
        });
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
        if self.common.get().is_none() {
            if host.0 & !self.unsynced.load(Ordering::SeqCst) == 0 {
                return;
            }
            self.unsynced.fetch_or(host.0, Ordering::SeqCst);
        }
        // Whoever shares it from just now on is told, too.
        if let Some(joined) = self.common.get() {
            joined.mark(host);
        }
    }

    /// The hosts that have taken data since this was last asked.
    pub(crate) fn take_unsynced(&self) -> HostSet {
        let sync = self.begin_sync();
        self.end_sync(sync);
        sync.hosts
    }

    /// The hosts that have taken data which nobody has synced, through whichever process that shares the file.
    pub(crate) fn begin_sync(&self) -> Sync {
        let own = self.unsynced.swap(0, Ordering::SeqCst);
        let together = self.common.get().map(|joined| (joined, joined.common().owed.begin_sync()));
        let others = together.map_or(HostSet::default(), |(joined, taken)| joined.undertaken(taken));
        Sync { hosts: HostSet(own | others.0), undertaken: together.map(|(_, taken)| taken) }
    }

    /// That is done, or the program is told.
    pub(crate) fn end_sync(&self, sync: Sync) {
        if let (Some(common), Some(undertaken)) = (self.common(), sync.undertaken) {
            common.owed.end_sync(undertaken);
        }
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
    pub(crate) fn sync_alone(&self) -> Option<Alone<'_>> {
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

    /// What `decide` makes of the locks that are held through this file.
    pub(crate) fn with_locks<T>(&self, decide: impl FnOnce(&mut Locks) -> T) -> Option<T> {
        self.locks.with(|locks| {
            let decided = decide(locks);
            let own = if self.common.get().is_some() { locks.own() } else { locks.len() };
            self.lock_count.store(own, Ordering::Relaxed);
            decided
        })
    }

    /// Whether other processes know what is known of its locks.
    pub(crate) fn is_known_together(&self) -> bool {
        self.common.get().is_some()
    }

    /// Whether locks that it held are lost, and this process has not heard of it. It has now.
    pub(crate) fn hears_of_loss(&self) -> bool {
        let Some(common) = self.common() else { return false };
        let lost = common.lost();
        if self.heard.load(Ordering::Relaxed) == lost {
            return false;
        }
        self.heard.store(lost, Ordering::Relaxed);
        common.note_told(lost);
        true
    }

    /// The program before this one in the same process had locks of its own on it, which nodes do not keep for another: the
    /// next call says so.
    pub fn expect_loss(&self) {
        self.heard.store(u64::MAX, Ordering::Relaxed);
    }

    /// It was opened elsewhere, and that node is `gone` or not: whether this process has to hear of locks that are lost.
    pub(crate) fn left(&self, place: RemoteHandle, gone: bool) -> bool {
        if let Some(common) = self.common() {
            common.left(place.handle, gone);
        }
        self.hears_of_loss()
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

    /// What it has besides its place.
    pub(crate) fn ties(&self) -> Ties {
        let together = || self.common().is_some_and(|c| c.holds() && c.holds_at(self.place().handle));
        Ties {
            locked: self.lock_count.load(Ordering::Relaxed) != 0 || together(),
            nameless: self.stays.load(Ordering::Relaxed),
            shared: self.is_shared(),
        }
    }

    /// Whether it must not move while its node lives: locks are held there, or it has no name.
    pub(crate) fn is_bound(&self) -> bool {
        let ties = self.ties();
        ties.locked || ties.nameless
    }

    /// It was to be locked another way, and another open file is in the way: what was held is released. If another process
    /// that shares the file has locked it since that was said, it is not: what this one did not take it does not give up.
    pub(crate) fn note_flock_refused(&self) {
        if self.with_locks(|locks| locks.has_flock()).unwrap_or(true) {
            self.note_flock(LockKind::Unlock);
        }
    }

    pub(crate) fn note_flock(&self, kind: LockKind) {
        self.streams.look_again();
        self.with_locks(|locks| locks.note_flock(kind));
        if let Some(common) = self.common() {
            common.note_flock(self.place().handle, kind != LockKind::Unlock);
        }
    }

    /// In a forked child: byte-range locks are the parent's, and so is whatever was under way.
    pub fn forget_process_locks(&self) {
        self.moving.store(false, Ordering::Relaxed);
        self.locking.store(false, Ordering::Relaxed);
        self.late.after_fork();
        self.streams.after_fork();
        self.lanes.open().for_each(File::forget_process_locks);
        // What another thread of the parent was just changing is not known here.
        self.locks.take_over(Locks::default());
        self.names.take_over(Names::default());
        self.place.take_over();
        self.with_locks(Locks::fork);
        self.enter_common();
    }

    /// In a forked child: it shares the file from now on.
    pub fn enter_common(&self) {
        self.common.enter();
    }

    /// This process has closed it.
    pub(crate) fn leave_common(&self) {
        self.common.leave();
    }

    /// Whether the open file itself holds locks (`flock`, open-file byte ranges).
    pub fn holds_locks(&self) -> bool {
        self.common().map_or_else(|| self.locks_of(LockOwner::Handle), Common::holds)
    }

    /// Whether this process, or the one it was forked from, took locks of the open file.
    pub fn took_locks(&self) -> bool {
        self.locks.with(|locks| locks.has(LockOwner::Handle)).unwrap_or(true)
    }

    /// Whether this process holds byte-range locks of its own through this file.
    pub fn has_process_locks(&self) -> bool {
        self.locks_of(LockOwner::Process)
    }

    fn locks_of(&self, owner: LockOwner) -> bool {
        self.lock_count.load(Ordering::Relaxed) != 0
            && self.locks.with(|locks| locks.has(owner)).unwrap_or(true)
    }

    /// The byte ranges locked through this file.
    pub fn ranges(&self) -> Vec<(LockOwner, LockRange)> {
        self.locks.with(|locks| locks.ranges().to_vec()).unwrap_or_default()
    }

    /// A lock was changed as `range` says.
    pub(crate) fn note_lock(&self, owner: LockOwner, range: LockRange) {
        self.streams.look_again();
        let rest = self.with_locks(|locks| {
            locks.note(owner, range);
            locks.has_ranges(owner)
        });
        if let (LockOwner::Handle, Some(common)) = (owner, self.common()) {
            let change = match range.kind {
                LockKind::Unlock if range.start == 0 && range.len == 0 => Ranges::Free,
                LockKind::Unlock => Ranges::Released { rest: rest.unwrap_or(true) },
                _ => Ranges::Locked,
            };
            common.note_ranges(self.place().handle, self.who(), change);
        }
    }
}

/// A sync under way.
#[derive(Clone, Copy)]
pub(crate) struct Sync {
    pub(crate) hosts: HostSet,
    undertaken: Option<Undertaken>,
}

/// The address of a place that a signal handler found being changed.
static NOWHERE: std::sync::OnceLock<Address> = std::sync::OnceLock::new();
