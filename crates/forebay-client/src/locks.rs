//! Locks: tried on the file's node, waited for by the caller, who learns of deadlocks here.

use crate::call::{Body, On, Request, TURN};
use crate::client::Client;
use crate::counters::OpIndex;
use crate::error::Error;
use crate::file::File;
use crate::sys;
use forebay_types::Nanos;
use forebay_wire::message::{Answer, LockKind, LockOwner, LockRange, LockRecord, Meta, Target};
use forebay_wire::session::locks::Locks;

/// Somebody who has waited for so long tells the job's home node, and again after as long.
const TELL_AFTER: Nanos = Nanos::from_millis(200);

/// A process's wait for a byte-range lock.
#[derive(Debug)]
pub struct LockWait {
    since: Nanos,
    told: Option<(usize, Nanos)>,
}

impl Client {
    /// Tries to change a byte-range lock, or with `whole` an `flock`; `EAGAIN` if it is held.
    pub fn lock(&self, file: &File, owner: LockOwner, range: LockRange, whole: bool) -> Result<(), Error> {
        file.mark_dirty();
        let started = sys::now();
        let _alone = loop {
            match file.begin_locking() {
                Some(alone) => break alone,
                // Only this thread itself, by a signal handler, can hold on for so long.
                None if sys::now().since(started) >= self.limit() => return Err(Error::local(libc::EDEADLK)),
                None => drop(sys::nap(TURN)),
            }
        };
        let changed = self.meta_on(
            file,
            |handle| {
                if whole {
                    Meta::Flock { handle, kind: range.kind }
                } else {
                    Meta::Lock { handle, owner, range }
                }
            },
            |_| Some(()),
        );
        match &changed {
            Ok(()) if whole => file.note_flock(range.kind),
            Ok(()) => file.note_lock(owner, range),
            // The kernel releases what was to become another kind, and then does not give that.
            Err(e) if whole && e.errno() == libc::EAGAIN => file.note_flock_refused(),
            Err(_) => {}
        }
        changed
    }

    /// Whether the node that has locks of this file has them still: who closes it without a further call is told, once.
    pub fn still_locked(&self, file: &File) -> Result<(), Error> {
        if !file.ties().locked {
            return Ok(());
        }
        let now = sys::now();
        let (place, at) = self.at(file, now);
        let op = Meta::Stat { target: Target::Handle(place.handle) };
        let mut body = Vec::with_capacity(16);
        op.encode(&mut body);
        let request = Request::meta(&op, Body::Bytes(&body));
        let gone = at.lost || self.nodes.is_down(at.node, now);
        let asked = || self.call(OpIndex::meta(&op), On::Node(at.node), request, None, |_, _, _| Ok(()));
        match if gone { Err(Error::StaleHandle) } else { asked() } {
            Err(Error::NoNode { .. } | Error::Protocol(..) | Error::StaleHandle) => {
                let told = file.with_locks(Locks::lose).unwrap_or(true);
                if told { Err(Error::LockLost(place.address.clone())) } else { Ok(()) }
            }
            other => other,
        }
    }

    /// The lock in the way of `range`, and its owner's process id; `u32::MAX` where no process of the
    /// job is known to hold it.
    pub fn test_lock(
        &self,
        file: &File,
        owner: LockOwner,
        range: LockRange,
    ) -> Result<Option<(LockRange, u32)>, Error> {
        let answer = |a: Answer<'_>| match a {
            Answer::Lock(l) => Some(l),
            _ => None,
        };
        let found = self.meta_on(file, |handle| Meta::TestLock { handle, owner, range }, answer)?;
        let Some((held, u32::MAX)) = found else { return Ok(found) };
        // Its node does not serve the holder: one of the others may.
        let here = file.place().node;
        let until = sys::now() + self.limit();
        let asked = LockRange { kind: LockKind::Write, ..held };
        let op = Meta::LockHolder { identity: file.identity, range: asked };
        for node in (0..self.nodes.len()).filter(|&n| n != here && !self.nodes.is_down(n, sys::now())) {
            if let Ok((_, _, body)) = self.exchange(node, &op, until)
                && let Ok(Answer::Lock(Some((_, pid)))) = Answer::decode(&body)
                && pid != u32::MAX
            {
                return Ok(Some((held, pid)));
            }
        }
        Ok(found)
    }
}

impl LockWait {
    /// The wait begins.
    pub fn begin() -> LockWait {
        LockWait { since: sys::now(), told: None }
    }

    /// The lock was refused once more; `held` are the files through which this process has locks.
    /// `EDEADLK` if processes of the job wait for each other in a circle.
    pub fn refused<'a>(
        &mut self,
        client: &Client,
        file: &File,
        range: LockRange,
        held: impl Iterator<Item = &'a File>,
    ) -> Result<(), Error> {
        let now = sys::now();
        if now.since(self.told.map_or(self.since, |(_, at)| at)) < TELL_AFTER {
            return Ok(());
        }
        let records: Vec<LockRecord> = held
            .flat_map(|f| f.ranges().into_iter().map(|(owner, range)| (owner, f.identity, range)))
            .filter(|(owner, ..)| *owner == LockOwner::Process)
            .map(|(_, identity, range)| LockRecord { identity, range })
            .take(1000)
            .collect();
        let home = client.nodes.home(now);
        self.told = Some((home, now));
        let wanted = LockRecord { identity: file.identity, range };
        let op = Meta::LockWait { wanted, held: &LockRecord::encode_all(&records) };
        match client.exchange(home, &op, now + client.limit()) {
            Ok((_, header, _)) if header.status.get() == libc::EDEADLK as u32 => {
                Err(Error::local(libc::EDEADLK))
            }
            // A home that is gone or cannot tell: the wait goes on as before.
            _ => Ok(()),
        }
    }

    /// The wait is over.
    pub fn end(self, client: &Client) {
        if let Some((home, _)) = self.told {
            let range = LockRange { kind: LockKind::Unlock, start: 0, len: 0 };
            let op = Meta::LockWait { wanted: LockRecord { identity: 0, range }, held: &[0] };
            // What the home did not hear, it forgets in half a second.
            let _ = client.exchange(home, &op, sys::now() + client.limit());
        }
    }
}
