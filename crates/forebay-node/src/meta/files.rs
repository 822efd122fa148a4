//! Operations on open files.

use super::{Call, DONE};
use crate::areas::Quiet;
use crate::engine::Turn;
use crate::fail::{Failure, Outcome};
use crate::file::OpenFile;
use crate::room::Taken;
use crate::stats::Op;
use crate::storage::Storage;
use crate::{path, sys};
use forebay_types::Protect;
use forebay_wire::flags::OpenFlags;
use forebay_wire::frame::{Header, Opcode, flag};
use forebay_wire::message::{Answer, Attr, Entry, FileSnapshot, Path, SMALL_FILE, SeekKind, Target};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FallocateFlags, Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;
use std::io::IoSliceMut;
use std::sync::Arc;

/// The most directory entries of one page, in bytes as the kernel has them: encoded they stay below
/// 128 KiB.
const PAGE_LIMIT: usize = 64 << 10;
const DIRENTS: usize = 32 << 10;

impl<'a> Call<'a> {
    pub(super) fn open(
        &self,
        path: &Path<'_>,
        flags: OpenFlags,
        mode: u32,
        identity: u64,
        out: &mut Vec<u8>,
    ) -> Outcome<()> {
        self.session.set_here(flags.has(OpenFlags::SEEN));
        let checked = self.path(path)?;
        let room = self.node.files.take(self.session.job.whom()).ok_or(Failure::NO_ROOM)?;
        let (raw, mode) = linux_flags(flags, mode);
        if flags.has(OpenFlags::CREATE) || flags.has(OpenFlags::TRUNC) || flags.has(OpenFlags::TMPFILE) {
            self.may_change()?;
        }
        let (creates, new) = (flags.has(OpenFlags::CREATE), flags.has(OpenFlags::CREATE | OpenFlags::EXCL));
        // Of a file that is new one look is enough, unless somebody finds it meanwhile.
        let asks = flags.has(OpenFlags::SEEN);
        let quiet = (asks && new).then(|| self.node.areas.quiet(self.changing)).flatten();
        let fd = super::making(mode, |mode| checked.open(raw, mode))?;
        self.kept.set(false);
        // Before a file is said to stay as it is, only what it is; but one that is to be made may be there and empty.
        let twice = asks && quiet.is_none() && (!creates || new || flags.has(OpenFlags::TRUNC));
        let attr = if twice { path::nature_of(fd.as_fd())? } else { path::attr_of(fd.as_fd())? };
        if identity != 0 && path::identity(fd.as_fd(), &attr) != identity {
            return Err(Failure::new(Errno::STALE, "another file has this name now"));
        }
        if checked.hides_bytes(fd.as_fd(), &attr) {
            return Err(Failure::new(
                Errno::OPNOTSUPP,
                "files that do not say how long they are are not forwarded",
            ));
        }
        self.opened(fd, attr, flags, quiet, (checked.protect, room), out)
    }

    /// Enters a file that was opened.
    fn opened(
        &self,
        fd: OwnedFd,
        attr: Attr,
        asked: OpenFlags,
        quiet: Option<Quiet>,
        (protect, room): (Protect, Taken),
        out: &mut Vec<u8>,
    ) -> Outcome<()> {
        self.node.areas.opens();
        let flags = asked.without(OpenFlags::SEEN);
        let kind = attr.mode & libc::S_IFMT;
        if kind != libc::S_IFREG && kind != libc::S_IFDIR && !flags.has(OpenFlags::PATH) {
            return Err(Failure::new(Errno::OPNOTSUPP, "pipes, sockets and devices are not forwarded"));
        }
        let limits = &self.node.config;
        let identity = path::identity(fd.as_fd(), &attr);
        self.identity.set(identity);
        let file = Arc::new(OpenFile::new(fd, &attr, identity, flags, protect, room));
        let entered = Arc::clone(&file);
        let handle = self.session.enter(entered, limits.max_handles_per_session, limits.max_handles)?;
        // Nobody hears of the handle if that fails.
        let look = || path::attr_of(file.fd()).inspect_err(|_| drop(self.close(handle)));
        let asks = asked.has(OpenFlags::SEEN);
        let later = asks && self.node.may_come_later(self.session, handle, &file, attr.size == 0);
        let still = asks.then(|| self.node.areas.still(&file, self.changing, later)).flatten();
        let Some(still) = still else {
            if later {
                // Nobody else knows the handle: there is nothing to be done, and nothing went wrong.
                let _ = self.node.settle_later(self.session, handle, true);
            }
            let attr = if asks { look()? } else { attr };
            Answer::Opened { handle, attr, identity, seen: None }.append_to(out);
            return Ok(());
        };
        // What was seen before may have changed.
        let alone = quiet.is_some_and(|then| self.node.areas.is_quiet_since(&then));
        let attr = if alone { attr } else { look()? };
        let contents = self.contents(&file, &attr);
        let seen = Some(FileSnapshot { still, contents: contents.as_deref(), later });
        Answer::Opened { handle, attr, identity, seen }.append_to(out);
        Ok(())
    }

    /// All that is in a small file that is opened to be read.
    fn contents(&self, file: &OpenFile, attr: &Attr) -> Option<Vec<u8>> {
        let unfit = OpenFlags::WRITE | OpenFlags::DIRECT | OpenFlags::PATH;
        let fits = file.flags().has(OpenFlags::READ) && file.flags().0 & unfit.0 == 0;
        if !fits || attr.mode & libc::S_IFMT != libc::S_IFREG || attr.size > SMALL_FILE {
            return None;
        }
        if attr.size == 0 {
            return Some(Vec::new());
        }
        // A read like any other: if it had to wait, or it is not certain that it has not, it is left to the client.
        let (node, began) = (self.node, sys::now());
        if node.engine.contended() || node.engine.schedules_metadata() {
            return None;
        }
        let mut header = Header::request(Opcode::Read, self.header.id.get(), 0);
        header.length = attr.size.into();
        let (request, servers, access) = node.describe(self.session, file, &header, Opcode::Read, began);
        let turn = node.engine.arrive(request, servers, &access, true, None, || None);
        let Ok(Turn::Inline(ticket, _)) = turn else { return None };
        let mut all = vec![0; attr.size as usize];
        let read = |s: &dyn Storage| s.read(node.target(file, 0), &mut [IoSliceMut::new(&mut all)]);
        let got = node.at_storage(self.session, read);
        let ended = sys::now();
        node.complete(&ticket, &[got.as_ref().map_or(0, |n| *n as u64)], ended);
        let n = got.ok()?;
        node.stats.read(n);
        self.session.record(Op::READ, n as u64, ended.since(began), false);
        (n as u64 == attr.size).then_some(all)
    }

    pub(super) fn close(&self, handle: u64) -> Outcome<Answer<'static>> {
        // Until when it may still be adopted, if a forked process may want to.
        let linger = self.header.has(flag::LINGER).then(|| sys::now() + self.node.config.grace.into());
        let later = self.node.settle_later(self.session, handle, true);
        let written = self.node.stop_sharing(self.session, Some(handle));
        let file = self.session.close(handle, linger)?;
        let learned = match file.is_written().then(|| file.leave()).flatten() {
            Some(fd) => self.node.at_storage(self.session, |s| s.close(fd)),
            None => Ok(()),
        };
        later.and(written).and(learned).map(|()| DONE)
    }

    pub(super) fn adopt(&self, handle: u64) -> Outcome<Answer<'static>> {
        let file = self.session.adopt(handle, self.node.config.max_handles_per_session)?;
        let attr = path::attr_of(file.fd())?;
        Ok(Answer::Opened { handle, attr, identity: file.identity, seen: None })
    }

    pub(super) fn fsync(&self, handle: u64, data_only: bool) -> Outcome<Answer<'static>> {
        let file = self.file(handle)?;
        // Done already, as everything that was put off; but whether it went well is told here.
        let later = self.node.settle_later(self.session, handle, false);
        let synced = self.node.storage.sync(file.fd(), data_only);
        later?;
        synced?;
        Ok(DONE)
    }

    pub(super) fn truncate(&self, target: &Target<'_>, size: u64) -> Outcome<Answer<'static>> {
        if size > i64::MAX as u64 {
            return Err(Errno::INVAL.into());
        }
        let path = match target {
            Target::Handle(h) => {
                let file = self.file(*h)?;
                self.may_change()?;
                rustix::fs::ftruncate(file.fd(), size)?;
                return Ok(DONE);
            }
            Target::Path(p) | Target::Link(p) => p,
        };
        let nofollow = if matches!(target, Target::Link(_)) { OFlags::NOFOLLOW } else { OFlags::empty() };
        let checked = self.path(path)?;
        let fd = checked
            .open(OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | nofollow, Mode::empty())
            // A pipe without a reader, or a device: truncate(2) says this.
            .map_err(|e| if e.errno == Errno::NXIO { Errno::INVAL.into() } else { e })?;
        self.may_change()?;
        rustix::fs::ftruncate(&fd, size)?;
        Ok(DONE)
    }

    pub(super) fn fallocate(
        &self,
        handle: u64,
        mode: i32,
        offset: u64,
        len: u64,
    ) -> Outcome<Answer<'static>> {
        if offset > i64::MAX as u64 || len > i64::MAX as u64 {
            return Err(Errno::FBIG.into());
        }
        let file = self.file(handle)?;
        self.may_change()?;
        rustix::fs::fallocate(file.fd(), FallocateFlags::from_bits_retain(mode as u32), offset, len)?;
        Ok(DONE)
    }

    pub(super) fn seek(&self, handle: u64, offset: u64, kind: SeekKind) -> Outcome<Answer<'static>> {
        let file = self.file(handle)?;
        if offset > i64::MAX as u64 {
            return Err(Errno::NXIO.into());
        }
        let to = match kind {
            SeekKind::Data => SeekFrom::Data(offset),
            SeekKind::Hole => SeekFrom::Hole(offset),
        };
        let mut position = file.position();
        position.cookie = None;
        Ok(Answer::Offset(rustix::fs::seek(file.fd(), to)?))
    }

    pub(super) fn set_flags(&self, handle: u64, flags: OpenFlags) -> Outcome<Answer<'static>> {
        self.file(handle)?.set_flags(flags)?;
        Ok(DONE)
    }

    pub(super) fn readdir(&self, handle: u64, cookie: u64, max: u32, out: &mut Vec<u8>) -> Outcome<()> {
        let file = self.file(handle)?;
        if !file.directory {
            return Err(Errno::NOTDIR.into());
        }
        let max = (max as usize).clamp(4096, PAGE_LIMIT);
        let mut names: Vec<u8> = Vec::new();
        let mut found: Vec<(u64, u64, u8, usize)> = Vec::new();
        let mut end = true;
        let mut position = file.position();
        if position.cookie.take() != Some(cookie) {
            // The kernel's cookies are whole 64-bit numbers on some file systems.
            rustix::fs::seek(file.fd(), SeekFrom::Start(cookie))?;
        }
        let mut dirents: Vec<u8> = Vec::with_capacity(DIRENTS.min(max));
        let mut dir = RawDir::new(file.fd(), dirents.spare_capacity_mut());
        let mut bytes = 0;
        let mut next = cookie;
        while let Some(entry) = dir.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            next = entry.next_entry_cookie();
            let kind = dirent_kind(entry.file_type());
            bytes += name.len() + 24;
            names.extend_from_slice(name);
            found.push((entry.ino(), next, kind, names.len()));
            if dir.is_buffer_empty() && bytes >= max {
                end = false;
                break;
            }
        }
        position.cookie = Some(next);
        drop(position);
        let mut from = 0;
        let entries = found
            .iter()
            .map(|&(ino, next, kind, to)| {
                let name = &names[from..to];
                from = to;
                Entry { ino, next, kind, name }
            })
            .collect();
        Answer::Entries { entries, end }.append_to(out);
        Ok(())
    }
}

/// What `openat2` is given. It refuses what `open` ignores, so that is left out here. Pipes must not
/// block the node's thread.
fn linux_flags(flags: OpenFlags, mode: u32) -> (OFlags, u32) {
    let mut raw = OFlags::from_bits_retain(flags.to_linux() as u32);
    if flags.has(OpenFlags::PATH) {
        raw &= OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    } else {
        raw |= OFlags::NONBLOCK | OFlags::NOCTTY;
    }
    let creates = flags.has(OpenFlags::CREATE) || flags.has(OpenFlags::TMPFILE);
    let mode = if creates && !flags.has(OpenFlags::PATH) { mode } else { 0 };
    (raw, mode)
}

fn dirent_kind(kind: rustix::fs::FileType) -> u8 {
    use rustix::fs::FileType;
    match kind {
        FileType::RegularFile => libc::DT_REG,
        FileType::Directory => libc::DT_DIR,
        FileType::Symlink => libc::DT_LNK,
        FileType::Fifo => libc::DT_FIFO,
        FileType::Socket => libc::DT_SOCK,
        FileType::CharacterDevice => libc::DT_CHR,
        FileType::BlockDevice => libc::DT_BLK,
        FileType::Unknown => libc::DT_UNKNOWN,
    }
}
