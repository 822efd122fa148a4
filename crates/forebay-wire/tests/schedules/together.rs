//! What the processes that share an open file know of it together: what is not synced, whoever wrote it, and which
//! locks it holds, whoever took them.

use crate::client::{Client, Current, Doing};
use crate::kin::Purpose;
use crate::world::{Failed, Op, World};
use forebay_wire::hello::HostBoot;
use forebay_wire::message::LockKind;
use forebay_wire::session::common::Common;
use forebay_wire::session::duty::{self, Duty};
use forebay_wire::session::owed::Undertaken;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// An open file of one process, or of several.
pub(crate) struct Open {
    pub(crate) id: usize,
    /// It was shared: what is known of it is in `common` from then on.
    pub(crate) together: Cell<bool>,
    common: Common,
    /// What its programs believe: under these handles it is locked, since that turn of the lock.
    locked: RefCell<BTreeMap<u64, u64>>,
    /// Releases, and how many of them are under way: whoever locks meanwhile may have it released at once.
    releases: Cell<u64>,
    releasing: Cell<u32>,
}

impl Open {
    pub(crate) fn new(w: &mut World) -> Rc<Open> {
        w.opens += 1;
        Rc::new(Open {
            id: w.opens,
            together: Cell::default(),
            common: Common::default(),
            locked: RefCell::default(),
            releases: Cell::default(),
            releasing: Cell::default(),
        })
    }

    fn mark(&self, host: HostBoot) {
        self.common.owed.mark(Some(u16::from(host.0[0] - 1)));
    }

    /// A set of hosts, of which the last one stands for all that nobody can tell apart.
    fn undertaken(&self, sync: Undertaken) -> u64 {
        self.common.owed.hosts(sync).fold(0, |all, name| all | 1 << name.unwrap_or(63))
    }
}

/// What a program believed of its open file's lock when a call began.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Believed {
    handle: u64,
    since: u64,
    /// The lock's turn at that moment.
    now: u64,
}

/// What a process has heard of its open file's locks.
#[derive(Clone, Default)]
pub(crate) struct Hearing {
    /// Of so many losses, and of those under these handles.
    losses: u64,
    told_of: BTreeSet<u64>,
    /// It is locking, and nobody releases since there were so many releases.
    alone_since: Option<u64>,
}

/// A sync under way.
pub(crate) struct Sync {
    pub(crate) hosts: u64,
    undertaken: Option<Undertaken>,
}

/// The hosts of a set.
pub(crate) fn hosts(set: u64) -> impl Iterator<Item = HostBoot> {
    (0..64).filter(move |i| set >> i & 1 == 1).map(|i| HostBoot([i as u8 + 1; 16]))
}

impl Client {
    /// Before it forks: what it knows alone is known together from now on.
    pub(crate) fn share(&mut self) {
        if !self.open.together.replace(true) {
            hosts(std::mem::take(&mut self.owed)).for_each(|host| self.open.mark(host));
            if self.locks.has_flock() {
                self.open.common.note_flock(self.place.handle, true);
            }
        }
    }

    pub(crate) fn is_locked(&self) -> bool {
        match self.open.together.get() {
            true => self.locks.own() > 0 || self.open.common.holds_at(self.place.handle),
            false => !self.locks.is_empty(),
        }
    }

    /// Its program opens the file that is there now.
    pub(crate) fn open_anew(&mut self, w: &mut World) {
        (self.open, self.hearing, self.owed) = (Open::new(w), Hearing::default(), 0);
    }

    pub(crate) fn mark_unsynced(&mut self, host: HostBoot) {
        if self.open.together.get() { self.open.mark(host) } else { self.owed |= 1 << (host.0[0] - 1) }
    }

    /// Whether locks were lost of which this process has not heard.
    pub(crate) fn hears_of_loss(&mut self) -> bool {
        let lost = self.open.common.lost();
        self.open.together.get() && std::mem::replace(&mut self.hearing.losses, lost) != lost
    }

    /// The file was opened elsewhere, and that node is `gone` or not: whether this process has to hear of lost locks.
    pub(crate) fn left(&mut self, handle: u64, gone: bool) -> bool {
        if self.open.together.get() {
            self.open.common.left(handle, gone);
        }
        self.hears_of_loss()
    }

    /// Since when, if its program believes that the file is locked where it is open.
    pub(crate) fn believes(&self) -> Option<u64> {
        let handle = self.place.handle;
        self.open.locked.borrow().get(&handle).copied().filter(|_| !self.hearing.told_of.contains(&handle))
    }

    /// A call begins.
    pub(crate) fn begins(&mut self, w: &World, op: Op) -> Option<Believed> {
        let (handle, since) = (self.place.handle, self.believes());
        match op {
            Op::Sync => {
                let undertaken = self.open.together.get().then(|| self.open.common.owed.begin_sync());
                let hosts =
                    std::mem::take(&mut self.owed) | undertaken.map_or(0, |u| self.open.undertaken(u));
                self.sync = Some(Sync { hosts, undertaken });
            }
            Op::Funlock => {
                self.open.locked.borrow_mut().remove(&handle);
                self.open.releases.set(self.open.releases.get() + 1);
                self.open.releasing.set(self.open.releasing.get() + 1);
                return None;
            }
            Op::Flock => {
                let alone = self.open.releasing.get() == 0;
                self.hearing.alone_since = alone.then(|| self.open.releases.get());
                return None;
            }
            op if op.is_of_names() => return None,
            _ => {}
        }
        since.map(|since| Believed { handle, since, now: w.flock_turns })
    }

    /// And ends so.
    pub(crate) fn ends(&mut self, w: &mut World, c: &Current, result: Result<[u64; 4], Failed>) {
        let handle = self.place.handle;
        if let Some(Believed { handle, since, now }) = c.believed
            && result.is_ok()
            && since != now
            && self.open.locked.borrow().get(&handle) == Some(&since)
        {
            let what =
                format!("Locks: call {} went well, though its open file's lock was another's", c.number);
            w.break_promise(what);
        }
        match (c.op, result) {
            (Op::Flock, Ok(_)) => {
                self.note_flock(LockKind::Write);
                self.hearing.told_of.remove(&handle);
                if self.hearing.alone_since == Some(self.open.releases.get()) {
                    self.open.locked.borrow_mut().entry(handle).or_insert(w.flock_turns);
                }
            }
            (Op::Flock, Err(Failed::Refused(_))) if self.locks.has_flock() => {
                self.note_flock(LockKind::Unlock);
            }
            (Op::Funlock, _) => {
                self.open.releasing.set(self.open.releasing.get() - 1);
                if result.is_ok() {
                    self.note_flock(LockKind::Unlock);
                }
            }
            _ => {}
        }
        if result == Err(Failed::LockLost) {
            self.hearing.told_of.extend(self.open.locked.borrow().keys());
        }
        if let Some(sync) = self.sync.take() {
            // Nobody was asked: it is owed still.
            if matches!(result, Err(Failed::NoNode | Failed::LockLost)) {
                hosts(sync.hosts).for_each(|host| self.mark_unsynced(host));
            }
            if let Some(undertaken) = sync.undertaken {
                self.open.common.owed.end_sync(undertaken);
            }
        }
    }

    /// What the sync under way still needs, after the node that it was sent to.
    pub(crate) fn discharge(&mut self, w: &mut World) {
        let Some(c) = &self.current else { return };
        let deadline = c.call.deadline();
        if self.duty.is_none() {
            let Some(host) = self.duties.pop() else { return self.finish(w, Ok([0; 4])) };
            self.duty = Some(Duty::new(host, w.now, deadline));
        }
        let Some(duty) = &mut self.duty else { return };
        let host = duty.host;
        match duty.next(w.now, &self.nodes) {
            duty::Step::Through(slot) => {
                self.next_id += 1;
                let id = self.next_id;
                self.begin(w, slot, Purpose::Duty { id, host });
            }
            duty::Step::Nap(until) => {
                self.doing = Doing::Napping;
                self.arm(w, until);
            }
            duty::Step::Unsynced => {
                self.duty = None;
                self.duties.clear();
                self.finish(w, Err(Failed::Unsynced));
            }
        }
    }

    fn note_flock(&mut self, kind: LockKind) {
        self.locks.note_flock(kind);
        if self.open.together.get() {
            self.open.common.note_flock(self.place.handle, kind != LockKind::Unlock);
        }
    }
}
