//! Locks. The kernel keeps them by open file, never waits here, and drops them when the descriptor
//! closes: so they are gone when the client is.

use super::{Call, DONE};
use crate::fail::Outcome;
use crate::file::{self, LockFile, OpenFile};
use crate::sys::{self, RawLock};
use forebay_wire::flags::OpenFlags;
use forebay_wire::message::{Answer, LockKind, LockOwner, LockRange};
use rustix::fd::BorrowedFd;
use rustix::fs::FlockOperation;
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
            LockOwner::Process => Owner::Process(self.session.lock_file(&file)?),
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
        sys::ofd_set(owner.fd(), raw(range)?).map_err(busy)?;
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
        // As with the kernel's own locks of open files: −1 where no one process can be named.
        let pid = self.node.sessions.lock_holder(&file, self.session).unwrap_or(u32::MAX);
        Ok(Answer::Lock(Some((found, pid))))
    }

    pub(super) fn flock(&self, handle: u64, kind: LockKind) -> Outcome<Answer<'static>> {
        let file = self.file(handle)?;
        let operation = match kind {
            LockKind::Read => FlockOperation::NonBlockingLockShared,
            LockKind::Write => FlockOperation::NonBlockingLockExclusive,
            LockKind::Unlock => FlockOperation::NonBlockingUnlock,
        };
        self.may_change()?;
        file::flock(&file, operation)?;
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
