//! Locks. `flock` is the open file's on the node. A byte range belongs to an owner of the kernel's (a
//! process, or an open file for `F_OFD_SETLK`): each owner gets an open file of its own on the node to
//! carry its ranges, since that is what the node's kernel tells owners apart by.

use super::handles::{Held, Open};
use super::{Asked, Fs, Outcome, Reply, errno};
use crate::abi::{FileLock, LK_FLOCK, LkIn};
use crate::turn;
use forebay_client::{Answer, LockKind, LockOwner, LockRange, LockRecord, Meta, Nanos, OpenFlags, Waits};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a lock that another host may hold is asked for again.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// How long the end of an open file that was closed may take to be heard of.
const CLOSING: Duration = Duration::from_millis(500);
/// How many locks may be waited for at once.
const MOST_WAITING: usize = 1024;
/// Interruptions of requests that have not come this far yet.
const EARLY: usize = 256;

/// Who holds byte ranges, and who waits.
pub(super) struct Locks {
    began: Instant,
    owners: Mutex<HashMap<(u64, u64), Owner>>,
    /// Open files with locks, by number, of which a descriptor was closed: the end of an open file
    /// comes a moment after its last close, and its locks end with it. Gone when that is done.
    closing: Mutex<HashMap<u64, u64>>,
    waiting: Mutex<Waiting>,
    /// Who waits for whose ranges, by owner; files by their nodes.
    waits: Mutex<Waits<u64>>,
    /// Somebody has released something.
    released: Condvar,
    release: Mutex<u64>,
}

impl Default for Locks {
    fn default() -> Locks {
        Locks {
            began: Instant::now(),
            owners: Mutex::default(),
            closing: Mutex::default(),
            waiting: Mutex::default(),
            waits: Mutex::default(),
            released: Condvar::default(),
            release: Mutex::default(),
        }
    }
}

#[derive(Default)]
struct Waiting {
    requests: HashMap<u64, Arc<AtomicBool>>,
    early: VecDeque<u64>,
}

#[derive(Clone)]
struct Owner {
    carrier: Arc<Held>,
    pid: u32,
    /// The open files through which it locked.
    through: Vec<u64>,
}

impl Locks {
    fn owners(&self) -> MutexGuard<'_, HashMap<(u64, u64), Owner>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the locks of an owner are still this one's. Asked under its `locking`, the answer holds as long.
    fn carries(&self, key: (u64, u64), carrier: &Arc<Held>) -> bool {
        self.owners().get(&key).is_some_and(|owner| Arc::ptr_eq(&owner.carrier, carrier))
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever waits may ask again.
    pub(super) fn released(&self) {
        *self.release.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.released.notify_all();
    }

    /// The ranges of an owner, in all files.
    fn held(&self, owner: u64) -> Vec<LockRecord> {
        let owners = self.owners();
        let own = owners.iter().filter(|((_, other), _)| *other == owner);
        let ranges = own.flat_map(|((node, _), o)| {
            o.carrier.file.ranges().into_iter().map(|(_, range)| LockRecord { identity: *node, range })
        });
        ranges.collect()
    }

    /// Whether an owner that waits for `wanted` would wait for itself, by way of others of this mount.
    fn is_circle(&self, owner: u64, wanted: LockRecord) -> bool {
        let held = self.held(owner);
        self.waits().waits(owner, wanted, held, self.now())
    }

    fn waits_no_more(&self, owner: u64) {
        let range = EVERYTHING;
        self.waits().waits(owner, LockRecord { identity: 0, range }, Vec::new(), self.now());
    }

    fn waits(&self) -> MutexGuard<'_, Waits<u64>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Nanos {
        Nanos::from(self.began.elapsed())
    }

    fn closing(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open files of `node`, other than `fh`, whose end may be on its way.
    fn ending(&self, node: u64, fh: u64) -> Vec<u64> {
        let closing = self.closing();
        closing.iter().filter(|(other, n)| **n == node && **other != fh).map(|(other, _)| *other).collect()
    }

    /// Waits until `files` have ended. One of which nothing is heard in time is still open somewhere.
    fn await_ends(&self, files: &[u64]) {
        turn::pass_on();
        let until = Instant::now() + CLOSING;
        let mut seen = self.release.lock().unwrap_or_else(PoisonError::into_inner);
        while files.iter().any(|fh| self.closing().contains_key(fh)) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.closing().retain(|fh, _| !files.contains(fh));
                return;
            }
            seen = self.released.wait_timeout(seen, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A descriptor of the open file `fh` was closed.
    fn closed(&self, node: u64, fh: u64, flocked: bool) {
        if flocked || self.owners().iter().any(|((n, _), o)| *n == node && o.through.contains(&fh)) {
            self.closing().insert(fh, node);
        }
    }

    /// The open file `fh` has ended, and what it had locked is free.
    fn ended(&self, fh: u64) {
        self.closing().remove(&fh);
        self.released();
    }

    pub(super) fn clear(&self) {
        for stop in self.waiting().requests.values() {
            stop.store(true, Ordering::Relaxed);
        }
        self.owners().clear();
        self.closing().clear();
        self.released();
    }
}

fn kind(raw: u32) -> Outcome<LockKind> {
    match raw as i32 {
        libc::F_RDLCK => Ok(LockKind::Read),
        libc::F_WRLCK => Ok(LockKind::Write),
        libc::F_UNLCK => Ok(LockKind::Unlock),
        _ => Err(libc::EINVAL),
    }
}

fn range(lk: &FileLock) -> Outcome<LockRange> {
    let (start, end) = (lk.start, lk.end);
    if end < start {
        return Err(libc::EINVAL);
    }
    let len = if end >= i64::MAX as u64 { 0 } else { end - start + 1 };
    Ok(LockRange { kind: kind(lk.kind)?, start, len })
}

const EVERYTHING: LockRange = LockRange { kind: LockKind::Unlock, start: 0, len: 0 };

impl Fs {
    fn lock_once(&self, who: u32, carrier: &Held, range: LockRange, whole: bool) -> Outcome<()> {
        let _alone = turn::lock(&carrier.locking);
        if whole {
            carrier.flocked.store(range.kind != LockKind::Unlock, Ordering::Relaxed);
        }
        let locked = self.client.lock(&carrier.file, LockOwner::Handle, range, whole);
        carrier.told(who, locked)
    }

    /// Asks once for what `lk` wants.
    fn try_lock(&self, who: &Asked, lk: &LkIn, range: LockRange) -> Outcome<()> {
        let node = who.node;
        let open = self.handles.used(who.pid, lk.fh)?;
        if lk.flags & LK_FLOCK != 0 {
            return if open.shared {
                Err(libc::ENOLCK)
            } else {
                self.lock_once(who.pid, &open.held, range, true)
            };
        }
        let key = (node, lk.owner);
        loop {
            let carrier = if range.kind == LockKind::Unlock {
                match self.locks.owners().get(&key) {
                    Some(owner) => Arc::clone(&owner.carrier),
                    None => return Ok(()),
                }
            } else {
                self.carrier(node, &open, lk)?
            };
            let _alone = turn::lock(&carrier.locking);
            // Another thread of the owner may have closed a descriptor meanwhile: what it took from the
            // owner is not to be given to a carrier that nobody knows any more.
            if self.locks.carries(key, &carrier) {
                let locked = self.client.lock(&carrier.file, LockOwner::Handle, range, false);
                return carrier.told(who.pid, locked);
            }
        }
    }

    pub(crate) fn setlk(&self, who: &Asked, lk: &LkIn, wait: bool) -> Outcome<Reply> {
        let range = range(&lk.lk)?;
        if range.kind != LockKind::Unlock {
            self.only_here(who.node, false);
        }
        let ending = if wait { Vec::new() } else { self.locks.ending(who.node, lk.fh) };
        let mut tried = self.try_lock(who, lk, range);
        if tried == Err(libc::EAGAIN) && !ending.is_empty() {
            self.locks.await_ends(&ending);
            tried = self.try_lock(who, lk, range);
        }
        match tried {
            Ok(()) => {
                if range.kind != LockKind::Write {
                    self.locks.released();
                }
                if range.kind != LockKind::Unlock {
                    self.look_again(who.node);
                }
                Ok(Reply::Done)
            }
            Err(libc::EAGAIN) if wait => self.lock_later(who, *lk, range),
            Err(e) => Err(e),
        }
    }

    /// The open file that carries the byte ranges of an owner: the kernel's own, where no other owner
    /// uses it and it may be read and written; else one more.
    fn carrier(&self, node: u64, open: &Open, lk: &LkIn) -> Outcome<Arc<Held>> {
        let both = OpenFlags::READ | OpenFlags::WRITE;
        let key = (node, lk.owner);
        {
            let mut owners = self.locks.owners();
            if let Some(owner) = owners.get_mut(&key) {
                if !owner.through.contains(&lk.fh) {
                    owner.through.push(lk.fh);
                }
                return Ok(Arc::clone(&owner.carrier));
            }
            let in_use = owners.values().any(|o| Arc::ptr_eq(&o.carrier, &open.held));
            if !in_use && open.held.file.flags().has(both) {
                let carrier = Arc::clone(&open.held);
                let owner = Owner { carrier: Arc::clone(&carrier), pid: lk.lk.pid, through: vec![lk.fh] };
                owners.insert(key, owner);
                return Ok(carrier);
            }
        }
        let rel = self.tree().path(node).ok_or(libc::ENOLCK)?;
        let again = |flags: OpenFlags| {
            let (file, attr) =
                self.client.open(self.path(&rel), flags | OpenFlags::NOFOLLOW, 0).map_err(errno)?;
            let held = Held::new(file, &self.client);
            if self.tree_mut().update(node, &attr) { Ok(held) } else { Err(libc::ESTALE) }
        };
        let own = open.held.file.flags();
        let carrier = again(both).or_else(|_| again(OpenFlags(own.0 & both.0)))?;
        let mut owners = self.locks.owners();
        // Another thread of the same process may have been faster.
        let owner = owners.entry(key).or_insert(Owner { carrier, pid: lk.lk.pid, through: vec![lk.fh] });
        Ok(Arc::clone(&owner.carrier))
    }

    /// Asks again until the lock is free or the kernel takes the request back.
    fn lock_later(&self, who: &Asked, lk: LkIn, range: LockRange) -> Outcome<Reply> {
        let (who, unique, node) = (*who, who.unique, who.node);
        let stop = Arc::new(AtomicBool::new(false));
        {
            let mut waiting = self.locks.waiting();
            if waiting.early.contains(&unique) {
                waiting.early.retain(|u| *u != unique);
                return Err(libc::EINTR);
            }
            if waiting.requests.len() >= MOST_WAITING {
                return Err(libc::ENOLCK);
            }
            waiting.requests.insert(unique, Arc::clone(&stop));
        }
        Ok(Reply::Later(Box::new(move |fs| {
            let wanted = (lk.flags & LK_FLOCK == 0).then_some(LockRecord { identity: node, range });
            let outcome = loop {
                let before = *fs.locks.release.lock().unwrap_or_else(PoisonError::into_inner);
                match fs.try_lock(&who, &lk, range) {
                    Err(libc::EAGAIN) => {}
                    other => break other,
                }
                if wanted.is_some_and(|wanted| fs.locks.is_circle(lk.owner, wanted)) {
                    break Err(libc::EDEADLK);
                }
                let seen = fs.locks.release.lock().unwrap_or_else(PoisonError::into_inner);
                let none = |now: &mut u64| *now == before && !stop.load(Ordering::Relaxed);
                drop(fs.locks.released.wait_timeout_while(seen, ASK_AGAIN, none));
                if stop.load(Ordering::Relaxed) {
                    break Err(libc::EINTR);
                }
            };
            fs.locks.waiting().requests.remove(&unique);
            fs.locks.waits_no_more(lk.owner);
            outcome.map(|()| {
                fs.look_again(node);
                Reply::Done
            })
        })))
    }

    /// The kernel takes a request back. Only waiting for a lock can be ended here; everything else ends
    /// within its deadline, unless its process is being killed.
    pub(crate) fn interrupt(&self, unique: u64) {
        let mut waiting = self.locks.waiting();
        match waiting.requests.get(&unique) {
            Some(stop) => {
                stop.store(true, Ordering::Relaxed);
                drop(waiting);
                self.locks.released();
            }
            None => {
                if waiting.early.len() >= EARLY {
                    waiting.early.pop_front();
                }
                waiting.early.push_back(unique);
            }
        }
    }

    pub(crate) fn getlk(&self, who: &Asked, lk: &LkIn) -> Outcome<Reply> {
        let range = range(&lk.lk)?;
        let open = self.handles.used(who.pid, lk.fh)?;
        let carrier = self.carrier(who.node, &open, lk)?;
        let found = |answer: Answer<'_>| match answer {
            Answer::Lock(lock) => Some(lock),
            _ => None,
        };
        let op = |handle| Meta::TestLock { handle, owner: LockOwner::Handle, range };
        let looked = self.client.meta_on(&carrier.file, op, found);
        let in_the_way = carrier.told(who.pid, looked)?;
        let Some((held, _)) = in_the_way else {
            return Ok(Reply::of(&FileLock { kind: libc::F_UNLCK as u32, ..lk.lk }));
        };
        let end = if held.len == 0 { i64::MAX as u64 } else { held.start + held.len - 1 };
        let kind = if held.kind == LockKind::Read { libc::F_RDLCK } else { libc::F_WRLCK };
        // The holder is named where it can only be one process of this machine.
        let pid = {
            let owners = self.locks.owners();
            let mut others =
                owners.iter().filter(|((node, owner), _)| *node == who.node && *owner != lk.owner);
            match (others.next(), others.next()) {
                (Some((_, one)), None) => one.pid,
                _ => 0,
            }
        };
        Ok(Reply::of(&FileLock { start: held.start, end, kind: kind as u32, pid }))
    }

    /// A process has closed a descriptor of the file: none of its ranges on it is left.
    fn drop_locks(&self, who: u32, node: u64, owner: u64) -> Outcome<()> {
        let key = (node, owner);
        loop {
            let Some(carrier) = self.locks.owners().get(&key).map(|o| Arc::clone(&o.carrier)) else {
                return Ok(());
            };
            let alone = turn::lock(&carrier.locking);
            if !self.locks.carries(key, &carrier) {
                continue;
            }
            self.locks.owners().remove(&key);
            // The carrier may outlive the locks: it may also be an open file of the kernel, and its close is
            // not waited for.
            let dropped = self.client.lock(&carrier.file, LockOwner::Handle, EVERYTHING, false);
            let dropped = carrier.told(who, dropped);
            drop(alone);
            drop(carrier);
            self.locks.released();
            return dropped;
        }
    }

    /// A descriptor was closed: the process loses its locks on the file.
    pub(super) fn locks_at_close(&self, who: &Asked, fh: u64, owner: u64) -> Outcome<()> {
        let node = who.node;
        self.drop_locks(who.pid, node, owner)?;
        let flocked = self.handles.get(fh).ok().filter(|open| open.held.flocked.load(Ordering::Relaxed));
        self.locks.closed(node, fh, flocked.is_some());
        // What it had locked as a whole is released with its last descriptor, of which nobody hears: but it is said now if
        // that was lost before.
        flocked.map_or(Ok(()), |open| open.held.told(who.pid, self.client.still_locked(&open.held.file)))
    }

    /// The kernel's last use of an open file is over: so is that of owners that only had this one.
    pub(super) fn locks_at_end(&self, open: Open, fh: u64) {
        let gone: Vec<u64> = {
            let mut owners = self.locks.owners();
            let all = owners.iter_mut().filter(|((n, _), _)| *n == open.node);
            all.filter_map(|((_, id), owner)| {
                owner.through.retain(|other| *other != fh);
                owner.through.is_empty().then_some(*id)
            })
            .collect()
        };
        let mut freed: Vec<_> = gone.into_iter().map(|owner| self.drop_locks(0, open.node, owner)).collect();
        if open.held.flocked.load(Ordering::Relaxed) {
            freed.push(self.lock_once(0, &open.held, EVERYTHING, true));
        }
        for e in freed.into_iter().filter_map(Result::err) {
            tracing::debug!("locks of a closed file: {}", std::io::Error::from_raw_os_error(e));
        }
        drop(open);
        self.locks.ended(fh);
    }
}
