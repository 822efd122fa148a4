//! Locks. `flock` is the open file's on the node. A byte range belongs to an owner of the kernel's (a
//! process, or an open file for `F_OFD_SETLK`): each owner gets an open file of its own on the node to
//! carry its ranges, since that is what the node's kernel tells owners apart by.

use super::handles::{Held, Open};
use super::{Asked, Fs, Outcome, Reply, errno};
use crate::abi::{FileLock, LK_FLOCK, LkIn};
use forebay_client::{Answer, LockKind, LockOwner, LockRange, Meta, OpenFlags};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a lock that another host may hold is asked for again.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// How long the end of an open file that was closed may take to be heard of.
const CLOSING: Duration = Duration::from_millis(50);
/// How many locks may be waited for at once.
const MOST_WAITING: usize = 1024;
/// Interruptions of requests that have not come this far yet.
const EARLY: usize = 256;

/// Who holds byte ranges, and who waits.
#[derive(Default)]
pub(super) struct Locks {
    owners: Mutex<HashMap<(u64, u64), Owner>>,
    waiting: Mutex<Waiting>,
    /// Somebody has released something.
    released: Condvar,
    release: Mutex<u64>,
}

#[derive(Default)]
struct Waiting {
    requests: HashMap<u64, Arc<AtomicBool>>,
    early: VecDeque<u64>,
}

#[derive(Clone)]
struct Owner {
    carrier: Arc<Held>,
    /// The carrier is also an open file of the kernel, which outlives the locks.
    borrowed: bool,
    pid: u32,
    /// The open files through which it locked.
    through: Vec<u64>,
    /// One of those was closed by somebody since: the end of an open file comes a moment after its
    /// last close, and the locks of an open file end with it.
    closing: bool,
}

impl Locks {
    fn owners(&self) -> MutexGuard<'_, HashMap<(u64, u64), Owner>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever waits may ask again.
    pub(super) fn released(&self) {
        *self.release.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.released.notify_all();
    }

    /// Whether a lock in the way may be one of an open file that was just closed; waits for its end,
    /// which is on its way if so.
    fn await_closing(&self, node: u64, except: u64) -> bool {
        let closing = || self.owners().iter().any(|((n, id), o)| *n == node && *id != except && o.closing);
        if !closing() {
            return false;
        }
        let until = Instant::now() + CLOSING;
        while closing() && Instant::now() < until {
            let seen = self.release.lock().unwrap_or_else(PoisonError::into_inner);
            drop(self.released.wait_timeout(seen, Duration::from_millis(2)));
        }
        true
    }

    /// A descriptor of the open file `fh` was closed by `owner`.
    pub(super) fn closed(&self, node: u64, fh: u64, owner: u64) {
        for ((n, id), o) in self.owners().iter_mut() {
            if *n == node && *id != owner && o.through.contains(&fh) {
                o.closing = true;
            }
        }
    }

    pub(super) fn clear(&self) {
        for stop in self.waiting().requests.values() {
            stop.store(true, Ordering::Relaxed);
        }
        self.owners().clear();
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
    fn lock_once(&self, carrier: &Held, range: LockRange, whole: bool) -> Outcome<()> {
        let _alone = carrier.locking.lock().unwrap_or_else(PoisonError::into_inner);
        self.client.lock(&carrier.file, LockOwner::Handle, range, whole).map_err(errno)
    }

    pub(crate) fn setlk(&self, who: &Asked, lk: &LkIn, wait: bool) -> Outcome<Reply> {
        let range = range(&lk.lk)?;
        let open = self.handles.get(lk.fh)?;
        let whole = lk.flags & LK_FLOCK != 0;
        let carrier = if whole {
            if open.shared {
                return Err(libc::ENOLCK);
            }
            open.held
        } else if range.kind == LockKind::Unlock {
            match self.locks.owners().get(&(who.node, lk.owner)) {
                Some(owner) => Arc::clone(&owner.carrier),
                None => return Ok(Reply::Done),
            }
        } else {
            self.carrier(who.node, &open, lk)?
        };
        let mut tried = self.lock_once(&carrier, range, whole);
        if tried == Err(libc::EAGAIN) && !whole && !wait && self.locks.await_closing(who.node, lk.owner) {
            tried = self.lock_once(&carrier, range, whole);
        }
        match tried {
            Ok(()) => {
                if range.kind != LockKind::Write {
                    self.locks.released();
                }
                Ok(Reply::Done)
            }
            Err(libc::EAGAIN) if wait => self.lock_later(who.unique, carrier, range, whole),
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
                owner.closing = false;
                return Ok(Arc::clone(&owner.carrier));
            }
            let in_use = owners.values().any(|o| Arc::ptr_eq(&o.carrier, &open.held));
            if !in_use && open.held.file.flags().has(both) {
                let carrier = Arc::clone(&open.held);
                let owner = Owner {
                    carrier: Arc::clone(&carrier),
                    borrowed: true,
                    pid: lk.lk.pid,
                    through: vec![lk.fh],
                    closing: false,
                };
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
        let owner = owners.entry(key).or_insert(Owner {
            carrier,
            borrowed: false,
            pid: lk.lk.pid,
            through: vec![lk.fh],
            closing: false,
        });
        Ok(Arc::clone(&owner.carrier))
    }

    /// Asks again until the lock is free or the kernel takes the request back.
    fn lock_later(&self, unique: u64, carrier: Arc<Held>, range: LockRange, whole: bool) -> Outcome<Reply> {
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
            let outcome = loop {
                let before = *fs.locks.release.lock().unwrap_or_else(PoisonError::into_inner);
                match fs.lock_once(&carrier, range, whole) {
                    Err(libc::EAGAIN) => {}
                    other => break other,
                }
                let seen = fs.locks.release.lock().unwrap_or_else(PoisonError::into_inner);
                let none = |now: &mut u64| *now == before && !stop.load(Ordering::Relaxed);
                drop(fs.locks.released.wait_timeout_while(seen, ASK_AGAIN, none));
                if stop.load(Ordering::Relaxed) {
                    break Err(libc::EINTR);
                }
            };
            fs.locks.waiting().requests.remove(&unique);
            outcome.map(|()| Reply::Done)
        })))
    }

    /// The kernel takes a request back. Only waiting for a lock can be ended; everything else ends
    /// within its deadline.
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
        let open = self.handles.get(lk.fh)?;
        let carrier = self.carrier(who.node, &open, lk)?;
        let found = |answer: Answer<'_>| match answer {
            Answer::Lock(lock) => Some(lock),
            _ => None,
        };
        let op = |handle| Meta::TestLock { handle, owner: LockOwner::Handle, range };
        let in_the_way = self.client.meta_on(&carrier.file, op, found).map_err(errno)?;
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
    pub(super) fn drop_locks(&self, node: u64, owner: u64) -> Outcome<()> {
        let Some(owner) = self.locks.owners().remove(&(node, owner)) else { return Ok(()) };
        let dropped = if owner.borrowed { self.lock_once(&owner.carrier, EVERYTHING, false) } else { Ok(()) };
        drop(owner);
        self.locks.released();
        dropped
    }

    /// The kernel's last use of an open file is over: so is that of owners that only had this one.
    pub(super) fn drop_locks_of_file(&self, node: u64, fh: u64) {
        let gone: Vec<u64> = {
            let mut owners = self.locks.owners();
            let all = owners.iter_mut().filter(|((n, _), _)| *n == node);
            all.filter_map(|((_, id), owner)| {
                owner.through.retain(|other| *other != fh);
                owner.through.is_empty().then_some(*id)
            })
            .collect()
        };
        for owner in gone {
            if let Err(e) = self.drop_locks(node, owner) {
                tracing::debug!("locks of a closed file: {}", std::io::Error::from_raw_os_error(e));
            }
        }
    }
}
