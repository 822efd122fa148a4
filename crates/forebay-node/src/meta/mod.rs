//! Metadata operations, one function each: [`files`] for what is open, [`names`] for directories'
//! entries, [`attrs`] for attributes, [`locks`] for locks.

mod attrs;
mod files;
mod locks;
mod names;

pub(crate) use attrs::{changes_nothing, set_attribute};

use crate::fail::{Failure, Outcome};
use crate::file::OpenFile;
use crate::job::Job;
use crate::ledger::Verdict;
use crate::link::Link;
use crate::node::Node;
use crate::path::{self, Checked};
use crate::session::Session;
use crate::sys::{self, acting};
use forebay_wire::frame::{Header, flag};
use forebay_wire::message::{Answer, Meta, Path, Target, UMASK_SHIFT};
use forebay_wire::session::board::Scope;
use forebay_wire::session::ledger::Begun;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::Mode;
use rustix::io::Errno;
use std::cell::Cell;
use std::sync::Arc;

/// One metadata request and who asks.
pub(crate) struct Call<'a> {
    node: &'a Node,
    via: &'a Link,
    session: &'a Arc<Session>,
    header: &'a Header,
    /// It must not be done twice: it is entered in the ledger before it is tried.
    once: bool,
    begun: Cell<Option<Begun>>,
    /// The identity of the file that was opened.
    identity: Cell<u64>,
    /// What it is changing.
    changing: Scope,
    /// Every path is resolved from its export's root.
    afresh: Cell<bool>,
    /// A name is being looked for in a directory that may have been kept.
    kept: Cell<bool>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(
        node: &'a Node,
        via: &'a Link,
        session: &'a Arc<Session>,
        header: &'a Header,
        changing: Scope,
    ) -> Call<'a> {
        let (begun, identity) = (Cell::new(None), Cell::new(0));
        let (afresh, kept) = (Cell::new(false), Cell::new(false));
        Call { node, via, session, header, once: false, begun, identity, changing, afresh, kept }
    }

    /// Carries the operation out and appends the encoded answer to `out`.
    pub(crate) fn run(mut self, meta: &Meta<'_>, out: &mut Vec<u8>) -> Outcome<()> {
        self.once = meta.needs_reply_cache();
        let from = out.len();
        let mut done = self.carry_out(meta, out);
        if self.kept.get() && done.is_err_and(|failure| failure.errno == Errno::STALE) {
            // The directory may be gone: nothing was done in it.
            self.afresh.set(true);
            out.truncate(from);
            done = self.carry_out(meta, out);
        }
        if self.may_displace(meta) {
            self.node.directories.changed();
        }
        if let Some(begun) = self.begun.take() {
            let errno = done.as_ref().map_or_else(|f| f.errno.raw_os_error().unsigned_abs(), |()| 0);
            self.node.ledgers.done(begun, errno, [self.identity.get(), 0, 0, 0], sys::now());
        }
        done
    }

    fn carry_out(&self, meta: &Meta<'_>, out: &mut Vec<u8>) -> Outcome<()> {
        let answer = match *meta {
            Meta::Open { path, flags, mode, identity } => {
                return self.open(&path, flags, mode, identity, out);
            }
            Meta::Close { handle } => self.close(handle)?,
            Meta::Adopt { session: _, handle } => self.adopt(handle)?,
            Meta::Fsync { handle, data_only } => self.fsync(handle, data_only)?,
            Meta::Stat { target } => self.stat(&target)?,
            Meta::Truncate { target, size } => self.truncate(&target, size)?,
            Meta::Fallocate { handle, mode, offset, len } => self.fallocate(handle, mode, offset, len)?,
            Meta::Unlink { path } => self.unlink(&path)?,
            Meta::Rmdir { path } => self.rmdir(&path)?,
            Meta::Mkdir { path, mode } => self.mkdir(&path, mode)?,
            Meta::Mknod { path, mode, dev } => self.mknod(&path, mode, dev)?,
            Meta::Rename { from, to, flags } => self.rename(&from, &to, flags)?,
            Meta::Link { from, to } => self.link(&from, &to)?,
            Meta::Symlink { target, path } => self.symlink(target, &path)?,
            Meta::Readlink { path } => return self.readlink(&path, out),
            Meta::Chmod { target, mode } => self.chmod(&target, mode)?,
            Meta::Chown { target, uid, gid } => self.chown(&target, uid, gid)?,
            Meta::Utimens { target, atime, mtime } => self.utimens(&target, atime, mtime)?,
            Meta::Readdir { handle, cookie, max } => return self.readdir(handle, cookie, max, out),
            Meta::Access { path, mode, follow } => self.access(&path, mode, follow)?,
            Meta::Statfs { target } => self.statfs(&target)?,
            Meta::Getxattr { target, name } => return self.getxattr(&target, name, out),
            Meta::Setxattr { target, name, value, flags } => self.setxattr(&target, name, value, flags)?,
            Meta::Listxattr { target } => return self.listxattr(&target, out),
            Meta::Removexattr { target, name } => self.removexattr(&target, name)?,
            Meta::Lock { handle, owner, range } => self.lock(handle, owner, range)?,
            Meta::TestLock { handle, owner, range } => self.test_lock(handle, owner, range)?,
            Meta::Flock { handle, kind } => self.flock(handle, kind)?,
            Meta::Seek { handle, offset, kind } => self.seek(handle, offset, kind)?,
            Meta::SetFlags { handle, flags } => self.set_flags(handle, flags)?,
            Meta::Mapping => {
                let (epoch, nodes) = self.session.job.mapping();
                let nodes = nodes.iter().map(String::as_str).collect();
                Answer::Mapping { epoch, nodes }.append_to(out);
                return Ok(());
            }
            Meta::Verdict { incarnation, session, id, age_ms } => {
                let Verdict { known, dead, fate } =
                    self.node.ledgers.verdict(incarnation, session, id, age_ms);
                Answer::Verdict { known, dead, fate }
            }
            Meta::LockWait { wanted, held } => self.lock_wait(wanted, held)?,
            Meta::LockHolder { identity, range } => self.lock_holder(identity, range),
            Meta::Share { handle, how } => {
                self.node.share(self.via, self.session, handle, how)?;
                DONE
            }
        };
        self.looked(meta, answer).append_to(out);
        Ok(())
    }

    /// Whether a directory may be elsewhere, or closed to somebody, after this.
    fn may_displace(&self, meta: &Meta<'_>) -> bool {
        match meta {
            Meta::Rename { .. } | Meta::Rmdir { .. } => true,
            Meta::Chmod { target, .. }
            | Meta::Chown { target, .. }
            | Meta::Setxattr { target, .. }
            | Meta::Removexattr { target, .. } => match target {
                Target::Handle(handle) => self.session.find(*handle).map_or(true, |file| file.directory),
                Target::Path(_) | Target::Link(_) => true,
            },
            _ => false,
        }
    }

    /// What is there now, if a look at it was asked for and it can be told; else the answer as it is.
    fn looked<'m>(&self, meta: &Meta<'_>, answer: Answer<'m>) -> Answer<'m> {
        let subject = meta.subject().filter(|_| self.header.has(flag::LOOK));
        subject.and_then(|target| self.stat(&target).ok()).unwrap_or(answer)
    }

    pub(crate) fn path<'p>(&self, path: &Path<'p>) -> Outcome<Checked<'p>>
    where
        'a: 'p,
    {
        let at = self.via.reach.get().and_then(|reach| reach.export(path.export));
        let mut checked = path::check(at.and_then(|at| self.node.exports.get(at)), path)?;
        if self.session.is_here() && !self.afresh.get() {
            let job: &'a Job = &self.session.job;
            checked.keeper = at.and_then(|at| self.node.directories.keeper(at, job.whom()));
            self.kept.set(checked.keeper.is_some());
        }
        Ok(checked)
    }

    pub(crate) fn file(&self, handle: u64) -> Outcome<Arc<OpenFile>> {
        self.via.carries(self.session.find(handle)?)
    }

    /// To be asked right before a change. What must not be done twice is in the ledger before its lease
    /// is looked at: a node that is stopped in between cannot do it unseen.
    pub(crate) fn may_change(&self) -> Outcome<()> {
        if !self.once {
            return self.session.may_change(self.via, sys::now());
        }
        // Unless it was entered for a try that found a directory gone.
        let begin = || self.node.ledgers.begin(self.session.id, self.header.id.get());
        let begun = self.begun.take().or_else(begin).ok_or(Failure::BUSY)?;
        match self.session.may_change(self.via, sys::now()) {
            Ok(()) => {
                self.begun.set(Some(begun));
                Ok(())
            }
            Err(expired) => {
                self.node.ledgers.withdraw(begun);
                Err(expired)
            }
        }
    }

    /// What the operation is about, as a descriptor that may be of `O_PATH` kind.
    pub(crate) fn object(&self, target: &Target<'_>) -> Outcome<Object> {
        Ok(match target {
            Target::Path(p) => Object::Located(self.path(p)?.locate(true)?),
            Target::Link(p) => Object::Located(self.path(p)?.locate(false)?),
            Target::Handle(h) => Object::Open(self.file(*h)?),
        })
    }
}

/// Makes a file with the permissions of `mode`, under the umask that comes with it.
fn making<T, E>(mode: u32, make: impl Fn(Mode) -> Result<T, E>) -> Result<T, E> {
    let (bits, mask) = (mode & 0o7777, mode >> UMASK_SHIFT & 0o777);
    let asked = Mode::from_raw_mode(bits);
    // Where this thread cannot have an umask, default access control lists are not told apart.
    acting::under_umask(mask, || make(asked)).unwrap_or_else(|| make(Mode::from_raw_mode(bits & !mask)))
}

/// A file an operation is about.
pub(crate) enum Object {
    /// Found by name (`O_PATH`).
    Located(OwnedFd),
    /// Open in the session.
    Open(Arc<OpenFile>),
}

impl Object {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Object::Located(fd) => fd.as_fd(),
            Object::Open(file) => file.fd(),
        }
    }
}

/// The answer of operations that have nothing to tell.
pub(crate) const DONE: Answer<'static> = Answer::Done;
