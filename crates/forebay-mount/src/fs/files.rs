//! Open files: made, read, written, copied, synchronised, closed.

use super::handles::{Held, Open};
use super::{Asked, At, Contract, Fs, Outcome, Reply, errno, masked};
use crate::abi::{
    self, CopyIn, CreateIn, EntryOut, FallocateIn, LseekOut, OpenIn, OpenOut, TransferIn, WriteOut,
};
use forebay_client::{Answer, Attr, Error, File, Meta, OpenFlags, SeekKind};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// How much one request copies: the kernel asks again for the rest.
const COPY_AT_ONCE: u64 = 16 << 20;
const COPY_PIECE: usize = 1 << 20;

/// How a file is opened on the node. Appending is asked for with each write, since a program may
/// change its mind about it.
fn node_flags(raw: u32) -> OpenFlags {
    OpenFlags::from_linux(raw as i32).without(OpenFlags::APPEND | OpenFlags::DIRECTORY) | OpenFlags::NOFOLLOW
}

fn done(_: Answer<'_>) -> Option<()> {
    Some(())
}

impl Fs {
    fn open_flags(&self, held: &Held) -> u32 {
        match self.contract {
            Contract::Strict => abi::FOPEN_DIRECT_IO | abi::FOPEN_PARALLEL_DIRECT_WRITES,
            Contract::Exclusive if !self.keeps_pages(held) => abi::FOPEN_DIRECT_IO,
            // Whoever opens it has looked the name up just now: pages that are too old are gone.
            Contract::CloseToOpen | Contract::Exclusive | Contract::Immutable => abi::FOPEN_KEEP_CACHE,
        }
    }

    /// Opens a file on the node in a way that the kernel can keep its pages, if that is allowed.
    fn open_on_node(&self, rel: &[u8], flags: OpenFlags, mode: u32) -> Result<(File, Attr), Error> {
        let more = self.readable(flags);
        match self.client.open(self.path(rel), more, mode) {
            Err(e) if more != flags && e.errno() == libc::EACCES => {
                self.client.open(self.path(rel), flags, mode)
            }
            other => other,
        }
    }

    fn opened(&self, node: u64, held: Arc<Held>, shared: bool) -> OpenOut {
        let open_flags = self.open_flags(&held);
        let fh = self.handles.enter(Open { node, held, shared, knows_gates: false, page: None });
        self.used_otherwise(node, None);
        OpenOut { fh, open_flags, backing: 0 }
    }

    pub(crate) fn open(&self, who: &Asked, open: &OpenIn) -> Outcome<Reply> {
        if let Some(held) = self.opened_before(who) {
            return Ok(Reply::of(&self.opened(who.node, held, true)));
        }
        let _coming = self.comes(who)?;
        let _paths = self.paths_hold();
        let flags = node_flags(open.flags);
        let Some(rel) = self.tree().path(who.node) else {
            return self.open_nameless(who, flags);
        };
        let (file, attr) = self.open_on_node(&rel, flags, 0).map_err(|e| match errno(e) {
            libc::ELOOP => libc::ESTALE,
            other => other,
        })?;
        let held = Held::new(file, &self.client);
        self.unchanged(who.node, &attr)?;
        if !self.tree_mut().update(who.node, &attr) {
            return Err(libc::ESTALE);
        }
        self.replaced(who.node, attr.ino);
        if self.is_immutable() {
            self.kept.keep(who.node, &held);
            return Ok(Reply::of(&self.opened(who.node, held, true)));
        }
        if flags.has(OpenFlags::TRUNC) {
            self.changed();
            if open.open_flags & abi::OPEN_KILL_SUIDGID != 0 {
                self.drop_privileges(who.node, &At::Open(Arc::clone(&held), who.pid))?;
            }
        }
        Ok(Reply::of(&self.opened(who.node, held, false)))
    }

    /// A file without a name can be opened once more (`/proc/self/fd/N`) if it is open already in a
    /// way that allows as much.
    fn open_nameless(&self, who: &Asked, flags: OpenFlags) -> Outcome<Reply> {
        let node = who.node;
        let access = OpenFlags(flags.0 & (OpenFlags::READ | OpenFlags::WRITE).0);
        let enough = |file: &File| file.flags().has(access);
        let held = self.handles.that(node, enough).ok_or(libc::ESTALE)?;
        if flags.has(OpenFlags::TRUNC) {
            let at = At::Open(Arc::clone(&held), who.pid);
            self.meta_at(&at, |target| Meta::Truncate { target, size: 0 }, done)?;
            self.changed();
        }
        Ok(Reply::of(&self.opened(node, held, true)))
    }

    pub(crate) fn create(&self, who: &Asked, name: &[u8], create: &CreateIn) -> Outcome<Reply> {
        let _paths = self.paths_hold();
        let rel = self.child(who.node, name)?;
        let mode = masked(create.mode & 0o7777, create.umask);
        let wanted = node_flags(create.flags) | OpenFlags::CREATE;
        // Where the kernel checks permissions it must not be this request that opens what another
        // host has made since; and only what is made here is given to whoever asked.
        let flags = if self.ids.kernel_checks() { wanted | OpenFlags::EXCL } else { wanted };
        let (file, attr) = self.open_on_node(&rel, flags, mode).map_err(|e| match errno(e) {
            libc::EEXIST if !wanted.has(OpenFlags::EXCL) => libc::ESTALE,
            other => other,
        })?;
        let held = Held::new(file, &self.client);
        let entry = self.made(who, name, &rel, attr)?;
        self.replaced(entry.nodeid, entry.attr.ino);
        let open = self.opened(entry.nodeid, held, false);
        Ok(entry_and_open(&entry, &open))
    }

    pub(crate) fn tmpfile(&self, who: &Asked, create: &CreateIn) -> Outcome<Reply> {
        let _paths = self.paths_hold();
        let rel = self.tree().path(who.node).ok_or(libc::ENOENT)?;
        let mode = masked(create.mode & 0o7777, create.umask);
        let flags =
            node_flags(create.flags).without(OpenFlags::CREATE | OpenFlags::NOFOLLOW) | OpenFlags::TMPFILE;
        let (file, attr) = self.open_on_node(&rel, flags, mode).map_err(errno)?;
        let held = Held::new(file, &self.client);
        let attr = self.given_open(who, &held, attr)?;
        let node = self.tree_mut().unnamed(&attr);
        let open = self.opened(node, held, false);
        Ok(entry_and_open(&self.entry_of(node, &attr), &open))
    }

    /// Makes a file without a name belong to whoever asked.
    fn given_open(&self, who: &Asked, held: &Arc<Held>, attr: Attr) -> Outcome<Attr> {
        if !self.ids.kernel_checks() || (attr.uid, attr.gid) == (who.uid, who.gid) {
            return Ok(attr);
        }
        let at = At::Open(Arc::clone(held), who.pid);
        self.meta_at(&at, |target| Meta::Chown { target, uid: who.uid, gid: who.gid }, done)?;
        self.meta_at(&at, |target| Meta::Chmod { target, mode: attr.mode & 0o7777 }, done)?;
        self.stat_at(&at)
    }

    /// Reads into the buffer that is lent.
    pub(crate) fn read(&self, who: &Asked, read: &TransferIn, into: &mut [u8]) -> Outcome<Reply> {
        let open = self.handles.used(who.pid, read.fh)?;
        if read.what & abi::READ_LOCKOWNER == 0 {
            self.only_here(open.node, true);
        }
        let into = into.get_mut(..read.size as usize).ok_or(libc::EINVAL)?;
        let got = self.client.pread(&open.held.file, into, read.offset);
        let n = open.held.told(who.pid, got)?;
        self.read_unchanged(open.node, &open.held)?;
        Ok(Reply::Lent(n))
    }

    pub(crate) fn write(&self, who: &Asked, write: &TransferIn, data: &[u8]) -> Outcome<Reply> {
        let open = self.handles.used(who.pid, write.fh)?;
        let data = data.get(..write.size as usize).ok_or(libc::EINVAL)?;
        let cached = write.what & abi::WRITE_CACHE != 0;
        if cached {
            self.only_here(open.node, true);
        }
        let appends = write.flags & libc::O_APPEND as u32 != 0 && !cached;
        let file = &open.held.file;
        let done = if appends {
            self.client.append(file, data).map(|(n, _)| n)
        } else {
            self.client.pwrite(file, data, write.offset)
        };
        let n = open.held.told(who.pid, done)?;
        self.changed();
        if write.what & abi::WRITE_KILL_SUIDGID != 0 {
            self.drop_privileges(who.node, &At::Open(Arc::clone(&open.held), who.pid))?;
        }
        Ok(Reply::of(&WriteOut { size: n as u32, pad: 0 }))
    }

    pub(crate) fn fsync(&self, who: &Asked, fh: u64, data_only: bool) -> Outcome<Reply> {
        let open = self.handles.used(who.pid, fh)?;
        let synced = self.client.meta_on(&open.held.file, |handle| Meta::Fsync { handle, data_only }, done);
        open.held.told(who.pid, synced)?;
        Ok(Reply::Done)
    }

    pub(crate) fn fallocate(&self, who: &Asked, f: &FallocateIn) -> Outcome<Reply> {
        let open = self.handles.used(who.pid, f.fh)?;
        let FallocateIn { offset, length: len, .. } = *f;
        let mode = f.mode as i32;
        let changed = self.client.meta_on(
            &open.held.file,
            |handle| Meta::Fallocate { handle, mode, offset, len },
            done,
        );
        open.held.told(who.pid, changed)?;
        self.changed();
        Ok(Reply::Done)
    }

    pub(crate) fn lseek(&self, who: &Asked, fh: u64, offset: u64, whence: u32) -> Outcome<Reply> {
        let kind = match whence as i32 {
            libc::SEEK_DATA => SeekKind::Data,
            libc::SEEK_HOLE => SeekKind::Hole,
            _ => return Err(libc::EINVAL),
        };
        let open = self.handles.used(who.pid, fh)?;
        self.write_out(open.node);
        let found = |answer: Answer<'_>| match answer {
            Answer::Offset(at) => Some(at),
            _ => None,
        };
        let sought =
            self.client.meta_on(&open.held.file, |handle| Meta::Seek { handle, offset, kind }, found);
        let offset = open.held.told(who.pid, sought)?;
        Ok(Reply::of(&LseekOut { offset }))
    }

    /// Copies through this process: the data makes one trip each way and stays out of the program.
    pub(crate) fn copy(&self, who: &Asked, copy: &CopyIn) -> Outcome<Reply> {
        if copy.flags != 0 {
            return Err(libc::EINVAL);
        }
        let (from, to) = (self.handles.used(who.pid, copy.fh_in)?, self.handles.used(who.pid, copy.fh_out)?);
        let len = copy.len.min(COPY_AT_ONCE);
        let mut piece = vec![0; COPY_PIECE.min(len as usize)];
        let mut copied = 0;
        while copied < len {
            let want = piece.len().min((len - copied) as usize);
            let got = self.client.pread(&from.held.file, &mut piece[..want], copy.off_in + copied);
            let step = from.held.told(who.pid, got).and_then(|n| match n {
                0 => Ok(0),
                n => {
                    let put = self.client.pwrite(&to.held.file, &piece[..n], copy.off_out + copied);
                    to.held.told(who.pid, put)
                }
            });
            match step {
                Ok(0) => break,
                Ok(n) => copied += n as u64,
                Err(e) if copied == 0 => return Err(e),
                Err(_) => break,
            }
        }
        self.changed();
        Ok(Reply::of(&WriteOut { size: copied as u32, pad: 0 }))
    }

    /// A descriptor was closed: what was written through it is told if it failed, and the process loses its locks on
    /// the file.
    pub(crate) fn flush(&self, who: &Asked, fh: u64, owner: u64) -> Outcome<Reply> {
        let Ok(Open { held, .. }) = self.handles.get(fh) else {
            self.locks_at_close(who, fh, owner)?;
            return Ok(Reply::Done);
        };
        let flushed = match held.file.flags().has(OpenFlags::WRITE) {
            true => self.client.flush(&held.file),
            false => Ok(()),
        };
        let unlocked = self.locks_at_close(who, fh, owner);
        let closed = unlocked.and(held.told(who.pid, flushed)).inspect_err(|_| held.note_refused_close());
        closed.map(|()| Reply::Done)
    }

    pub(crate) fn release(&self, fh: u64) -> Outcome<Reply> {
        if let Some(open) = self.handles.release(fh) {
            let node = open.node;
            self.locks_at_end(open, fh);
            self.used_otherwise(node, Some(fh));
        }
        Ok(Reply::Done)
    }
}

fn entry_and_open(entry: &EntryOut, open: &OpenOut) -> Reply {
    Reply::Bytes([entry.as_bytes(), open.as_bytes()].concat())
}
