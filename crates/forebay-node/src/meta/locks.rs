//! Locks. The kernel keeps them by open file, never waits here, and drops them when the descriptor
//! closes: so they are gone when the client is.

use super::{Call, DONE};
use crate::fail::{Failure, Outcome};
use crate::file::{LockFile, OpenFile};
use crate::sys::{self, RawLock};
use forebay_wire::flags::OpenFlags;
use forebay_wire::message::{Answer, LockKind, LockOwner, LockRange, LockRecord};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::sync::Arc;

/// Whose descriptor a lock is on.
enum Owner {
    Process(Arc<LockFile>),
    Handle(Arc<OpenFile>),
}

impl Owner {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Owner::Process(f) => f.fd(),
            Owner::Handle(f) => f.fd(),
        }
    }
}

impl Call<'_> {
    fn owner(&self, file: Arc<OpenFile>, owner: LockOwner) -> Outcome<Owner> {
        Ok(match owner {
            LockOwner::Process => Owner::Process(self.session.lock_file(&file, &self.node.files)?),
            LockOwner::Handle => Owner::Handle(file),
        })
    }

    pub(super) fn lock(&self, handle: u64, owner: LockOwner, range: LockRange) -> Outcome<Answer<'static>> {
        let file = self.file(handle)?;
        // The process's own descriptor may be open for more than the handle is.
        let flags = file.flags();
        let allowed = match range.kind {
            LockKind::Read => flags.has(OpenFlags::READ),
            LockKind::Write => flags.has(OpenFlags::WRITE),
            LockKind::Unlock => true,
        };
        if !allowed || flags.has(OpenFlags::PATH) {
            return Err(Errno::BADF.into());
        }
        let owner = self.owner(file, owner)?;
        self.may_change()?;
        match &owner {
            Owner::Process(locks) => locks.set(range, raw(range)?),
            Owner::Handle(file) => file.lock_range(range, raw(range)?),
        }
        .map_err(busy)?;
        Ok(DONE)
    }

    pub(super) fn test_lock(
        &self,
        handle: u64,
        owner: LockOwner,
        range: LockRange,
    ) -> Outcome<Answer<'static>> {
        let file = self.file(handle)?;
        if range.kind == LockKind::Unlock {
            return Err(Errno::INVAL.into());
        }
        let owner = self.owner(Arc::clone(&file), owner)?;
        let Some((kind, start, len)) = sys::ofd_get(owner.fd(), raw(range)?)? else {
            return Ok(Answer::Lock(None));
        };
        let kind = if kind == libc::F_RDLCK { LockKind::Read } else { LockKind::Write };
        let found = LockRange { kind, start: start.unsigned_abs(), len: len.unsigned_abs() };
        Ok(Answer::Lock(match self.node.sessions.lock_holder(file.identity, &range, self.session) {
            Some(holder) => Some(holder),
            // A process elsewhere, or an open file's: the kernel names nobody then.
            None => Some((found, u32::MAX)),
        }))
    }

    /// Who of those that this node serves holds what is in the way.
    pub(super) fn lock_holder(&self, identity: u64, range: LockRange) -> Answer<'static> {
        Answer::Lock(self.node.sessions.lock_holder(identity, &range, self.session))
    }

    /// A process of the job waits for a lock, here or on another node.
    pub(super) fn lock_wait(&self, wanted: LockRecord, held: &[u8]) -> Outcome<Answer<'static>> {
        let held = LockRecord::decode_all(held).map_err(|_| Errno::INVAL)?;
        if self.session.job.waits().waits(self.session.id, wanted, held, sys::now()) {
            return Err(Failure::new(
                Errno::DEADLK,
                "processes of the job would wait for each other's locks",
            ));
        }
        Ok(DONE)
    }

    pub(super) fn flock(&self, handle: u64, kind: LockKind) -> Outcome<Answer<'static>> {
        let file = self.file(handle)?;
        self.may_change()?;
        file.flock(kind)?;
        Ok(DONE)
    }
}

/// POSIX lets the kernel say either.
fn busy(e: Errno) -> Errno {
    if e == Errno::ACCESS { Errno::AGAIN } else { e }
}

fn raw(range: LockRange) -> Result<RawLock, Errno> {
    let kind = match range.kind {
        LockKind::Read => libc::F_RDLCK,
        LockKind::Write => libc::F_WRLCK,
        LockKind::Unlock => libc::F_UNLCK,
    };
    let start = i64::try_from(range.start).map_err(|_| Errno::INVAL)?;
    let len = i64::try_from(range.len).map_err(|_| Errno::INVAL)?;
    Ok((kind, start, len))
}
