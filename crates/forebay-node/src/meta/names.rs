//! Operations on directories' entries.

use super::{Call, DONE};
use crate::fail::Outcome;
use crate::path::proc_name;
use forebay_wire::message::{Answer, Path, Target};
use rustix::fs::{AtFlags, CWD, FileType, RenameFlags};
use rustix::io::Errno;

impl<'a> Call<'a> {
    pub(super) fn unlink(&self, path: &Path<'_>) -> Outcome<Answer<'static>> {
        let place = self.path(path)?.place(Errno::ISDIR)?;
        self.may_change()?;
        rustix::fs::unlinkat(place.dir(), place.name, AtFlags::empty())?;
        Ok(DONE)
    }

    pub(super) fn rmdir(&self, path: &Path<'_>) -> Outcome<Answer<'static>> {
        let place = self.path(path)?.place(Errno::BUSY)?;
        self.may_change()?;
        rustix::fs::unlinkat(place.dir(), place.name, AtFlags::REMOVEDIR)?;
        Ok(DONE)
    }

    pub(super) fn mkdir(&self, path: &Path<'_>, mode: u32) -> Outcome<Answer<'static>> {
        let place = self.path(path)?.place(Errno::EXIST)?;
        self.may_change()?;
        super::making(mode, |mode| rustix::fs::mkdirat(place.dir(), place.name, mode))?;
        Ok(DONE)
    }

    pub(super) fn mknod(&self, path: &Path<'_>, mode: u32, dev: u64) -> Outcome<Answer<'static>> {
        let place = self.path(path)?.place(Errno::EXIST)?;
        // Without a type, mknod(2) makes a regular file.
        let kind = match mode & libc::S_IFMT {
            0 => FileType::RegularFile,
            kind => FileType::from_raw_mode(kind),
        };
        self.may_change()?;
        super::making(mode, |mode| rustix::fs::mknodat(place.dir(), place.name, kind, mode, dev))?;
        Ok(DONE)
    }

    pub(super) fn rename(&self, from: &Path<'_>, to: &Path<'_>, flags: u32) -> Outcome<Answer<'static>> {
        let from = self.path(from)?.place(Errno::BUSY)?;
        let to = self.path(to)?.place(Errno::BUSY)?;
        self.may_change()?;
        if flags == 0 {
            rustix::fs::renameat(from.dir(), from.name, to.dir(), to.name)?;
        } else {
            let flags = RenameFlags::from_bits_retain(flags);
            rustix::fs::renameat_with(from.dir(), from.name, to.dir(), to.name, flags)?;
        }
        Ok(DONE)
    }

    pub(super) fn link(&self, from: &Target<'_>, to: &Path<'_>) -> Outcome<Answer<'static>> {
        let place = match self.path(to).and_then(|p| p.place(Errno::EXIST)) {
            Ok(place) => place,
            // As in the kernel, what is wrong with the first name is told first.
            Err(e) => return self.object(from).and(Err(e)),
        };
        if let Target::Link(path) = from
            && let Some(source) = self.path(path)?.entry()?
        {
            self.may_change()?;
            rustix::fs::linkat(source.dir(), source.name, place.dir(), place.name, AtFlags::empty())?;
            return Ok(DONE);
        }
        let source = self.object(from)?;
        self.may_change()?;
        let name = proc_name(source.fd());
        rustix::fs::linkat(CWD, name, place.dir(), place.name, AtFlags::SYMLINK_FOLLOW)?;
        Ok(DONE)
    }

    pub(super) fn symlink(&self, target: &[u8], path: &Path<'_>) -> Outcome<Answer<'static>> {
        if target.contains(&0) {
            return Err(Errno::INVAL.into());
        }
        let place = self.path(path)?.place(Errno::EXIST)?;
        self.may_change()?;
        rustix::fs::symlinkat(target, place.dir(), place.name)?;
        Ok(DONE)
    }

    pub(super) fn readlink(&self, path: &Path<'_>, out: &mut Vec<u8>) -> Outcome<()> {
        let checked = self.path(path)?;
        let Some(place) = checked.entry()? else {
            // `.`, `..` and names that end in a slash are directories, if they are anything.
            checked.locate(false)?;
            return Err(Errno::INVAL.into());
        };
        let mut target = [0u8; libc::PATH_MAX as usize];
        let n = rustix::fs::readlinkat_raw(place.dir(), place.name, &mut target[..])?;
        Answer::Bytes(&target[..n]).append_to(out);
        Ok(())
    }
}
