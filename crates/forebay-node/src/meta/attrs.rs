//! Operations on attributes.

use super::{Call, DONE, Object};
use crate::fail::Outcome;
use crate::file::OpenFile;
use crate::path::{self, Parent, proc_name};
use forebay_wire::flags::OpenFlags;
use forebay_wire::message::{Answer, FsStat, Path, SetTime, Target};
use forebay_wire::session::later::Later;
use rustix::fd::AsFd;
use rustix::fs::{
    Access, AtFlags, CWD, Gid, Mode, StatxFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::Errno;

/// The largest extended attribute and the longest list of names Linux has.
const XATTR_MAX: usize = 64 << 10;

/// What the `xattr` calls can be pointed at: they take no `O_PATH` descriptor.
enum XattrTarget {
    /// An open file.
    File(Object),
    /// A name under `/proc/self/fd`, to be followed; the descriptor must stay open.
    Follow(String, #[allow(dead_code)] Object),
}

impl<'a> Call<'a> {
    pub(super) fn stat(&self, target: &Target<'_>) -> Outcome<Answer<'static>> {
        let attr = match target {
            Target::Path(p) => path::check(&self.node.exports, p)?.stat(true)?,
            Target::Link(p) => path::check(&self.node.exports, p)?.stat(false)?,
            Target::Handle(h) => path::attr_of(self.file(*h)?.fd())?,
        };
        Ok(Answer::Attr(attr))
    }

    pub(super) fn chmod(&self, target: &Target<'_>, mode: u32) -> Outcome<Answer<'static>> {
        let mode = Mode::from_raw_mode(mode & 0o7777);
        let object = self.object(target)?;
        self.may_change()?;
        match &object {
            Object::Open(file) if !file.flags().has(OpenFlags::PATH) => rustix::fs::fchmod(file.fd(), mode)?,
            _ => rustix::fs::chmod(proc_name(object.fd()), mode)?,
        }
        Ok(DONE)
    }

    pub(super) fn chown(&self, target: &Target<'_>, uid: u32, gid: u32) -> Outcome<Answer<'static>> {
        let (uid, gid) = owner(uid, gid);
        let object = self.object(target)?;
        self.may_change()?;
        rustix::fs::chownat(object.fd(), c"", uid, gid, AtFlags::EMPTY_PATH)?;
        Ok(DONE)
    }

    pub(super) fn utimens(
        &self,
        target: &Target<'_>,
        atime: SetTime,
        mtime: SetTime,
    ) -> Outcome<Answer<'static>> {
        let times = Timestamps { last_access: time(atime)?, last_modification: time(mtime)? };
        let object = self.object(target)?;
        self.may_change()?;
        match &object {
            Object::Open(file) if !file.flags().has(OpenFlags::PATH) => {
                rustix::fs::futimens(file.fd(), &times)?
            }
            _ => rustix::fs::utimensat(object.fd(), c"", &times, AtFlags::EMPTY_PATH)?,
        }
        Ok(DONE)
    }

    pub(super) fn access(&self, path: &Path<'_>, mode: u32, follow: bool) -> Outcome<Answer<'static>> {
        let checked = path::check(&self.node.exports, path)?;
        let wanted = u8::try_from(mode).ok().filter(|m| *m <= 7).ok_or(Errno::INVAL)?;
        if wanted == 0 {
            checked.stat(follow)?;
            return Ok(DONE);
        }
        let fd = checked.locate(follow)?;
        if !follow && path::is_link(&path::attr_of(fd.as_fd())?) {
            // A link itself may always be read, written and searched.
            return Ok(DONE);
        }
        let wanted = Access::from_bits_retain(wanted.into());
        rustix::fs::accessat(CWD, proc_name(fd.as_fd()), wanted, AtFlags::EACCESS)?;
        Ok(DONE)
    }

    pub(super) fn statfs(&self, target: &Target<'_>) -> Outcome<Answer<'static>> {
        let object = self.object(target)?;
        let s = rustix::fs::fstatfs(object.fd())?;
        let v = rustix::fs::fstatvfs(object.fd())?;
        Ok(Answer::Fs(FsStat {
            bsize: s.f_bsize.unsigned_abs(),
            frsize: v.f_frsize,
            blocks: s.f_blocks,
            bfree: s.f_bfree,
            bavail: s.f_bavail,
            files: s.f_files,
            ffree: s.f_ffree,
            fsid: v.f_fsid,
            namelen: v.f_namemax,
            flags: v.f_flag.bits(),
            kind: s.f_type.unsigned_abs(),
        }))
    }

    /// The link itself is named through its directory, which must stay open: there is no other way to
    /// reach its attributes.
    fn link_name(&self, target: &'a Target<'a>) -> Outcome<Option<(Vec<u8>, Parent<'a>)>> {
        let Target::Link(path) = target else { return Ok(None) };
        let Some(place) = path::check(&self.node.exports, path)?.entry()? else { return Ok(None) };
        let mut name = proc_name(place.dir()).into_bytes();
        name.push(b'/');
        name.extend_from_slice(place.name);
        Ok(Some((name, place)))
    }

    fn xattr_target(&self, target: &Target<'_>) -> Outcome<XattrTarget> {
        let object = self.object(target)?;
        Ok(match object {
            Object::Open(_) => XattrTarget::File(object),
            Object::Located(_) => XattrTarget::Follow(proc_name(object.fd()), object),
        })
    }

    pub(super) fn getxattr(&self, target: &Target<'_>, name: &[u8], out: &mut Vec<u8>) -> Outcome<()> {
        let mut value = Vec::with_capacity(256);
        grow(&mut value, |value| {
            if let Some((link, _place)) = self.link_name(target)? {
                return Ok(rustix::fs::lgetxattr(&link[..], name, rustix::buffer::spare_capacity(value))?);
            }
            Ok(match self.xattr_target(target)? {
                XattrTarget::File(o) => {
                    rustix::fs::fgetxattr(o.fd(), name, rustix::buffer::spare_capacity(value))?
                }
                XattrTarget::Follow(p, _) => {
                    rustix::fs::getxattr(p, name, rustix::buffer::spare_capacity(value))?
                }
            })
        })?;
        Answer::Bytes(&value).append_to(out);
        Ok(())
    }

    pub(super) fn listxattr(&self, target: &Target<'_>, out: &mut Vec<u8>) -> Outcome<()> {
        let mut list = Vec::with_capacity(256);
        grow(&mut list, |list| {
            if let Some((link, _place)) = self.link_name(target)? {
                return Ok(rustix::fs::llistxattr(&link[..], rustix::buffer::spare_capacity(list))?);
            }
            Ok(match self.xattr_target(target)? {
                XattrTarget::File(o) => rustix::fs::flistxattr(o.fd(), rustix::buffer::spare_capacity(list))?,
                XattrTarget::Follow(p, _) => rustix::fs::listxattr(p, rustix::buffer::spare_capacity(list))?,
            })
        })?;
        Answer::Bytes(&list).append_to(out);
        Ok(())
    }

    pub(super) fn setxattr(
        &self,
        target: &Target<'_>,
        name: &[u8],
        value: &[u8],
        flags: i32,
    ) -> Outcome<Answer<'static>> {
        let flags = XattrFlags::from_bits_retain(flags as u32);
        if let Some((link, _place)) = self.link_name(target)? {
            self.may_change()?;
            rustix::fs::lsetxattr(&link[..], name, value, flags)?;
            return Ok(DONE);
        }
        let at = self.xattr_target(target)?;
        self.may_change()?;
        match at {
            XattrTarget::File(o) => rustix::fs::fsetxattr(o.fd(), name, value, flags)?,
            XattrTarget::Follow(p, _) => rustix::fs::setxattr(p, name, value, flags)?,
        }
        Ok(DONE)
    }

    pub(super) fn removexattr(&self, target: &Target<'_>, name: &[u8]) -> Outcome<Answer<'static>> {
        if let Some((link, _place)) = self.link_name(target)? {
            self.may_change()?;
            rustix::fs::lremovexattr(&link[..], name)?;
            return Ok(DONE);
        }
        let at = self.xattr_target(target)?;
        self.may_change()?;
        match at {
            XattrTarget::File(o) => rustix::fs::fremovexattr(o.fd(), name)?,
            XattrTarget::Follow(p, _) => rustix::fs::removexattr(p, name)?,
        }
        Ok(DONE)
    }
}

/// What a client has put off, without its writes.
pub(crate) fn set_attribute(file: &OpenFile, what: Later<'_>) -> Result<(), Errno> {
    match what {
        Later::Write { .. } => Err(Errno::INVAL),
        Later::Chmod { mode } => rustix::fs::fchmod(file.fd(), Mode::from_raw_mode(mode & 0o7777)),
        Later::Chown { uid, gid } => {
            let (uid, gid) = owner(uid, gid);
            rustix::fs::fchown(file.fd(), uid, gid)
        }
        Later::Utimens { atime, mtime } => {
            let times = Timestamps { last_access: time(atime)?, last_modification: time(mtime)? };
            rustix::fs::futimens(file.fd(), &times)
        }
    }
}

/// Whether a change of owner leaves everything as it is, but for the time of the last change: of a file that was
/// just written to, so that it has no capabilities, which would go with it as set-id bits do.
pub(crate) fn changes_nothing(file: &OpenFile, what: Later<'_>) -> bool {
    let Later::Chown { uid, gid } = what else { return false };
    let asked = StatxFlags::UID | StatxFlags::GID | StatxFlags::MODE;
    let same = |id: u32, is: u32| id == u32::MAX || id == is;
    rustix::fs::statx(file.fd(), c"", AtFlags::EMPTY_PATH, asked).is_ok_and(|s| {
        let set_id = libc::S_ISUID | libc::S_ISGID;
        same(uid, s.stx_uid) && same(gid, s.stx_gid) && u32::from(s.stx_mode) & set_id == 0
    })
}

fn owner(uid: u32, gid: u32) -> (Option<Uid>, Option<Gid>) {
    ((uid != u32::MAX).then(|| Uid::from_raw(uid)), (gid != u32::MAX).then(|| Gid::from_raw(gid)))
}

/// Calls `get` with a small buffer, and once more with the largest if that was too small.
fn grow(buffer: &mut Vec<u8>, mut get: impl FnMut(&mut Vec<u8>) -> Outcome<usize>) -> Outcome<()> {
    match get(buffer) {
        Err(e) if e.errno == Errno::RANGE && buffer.capacity() < XATTR_MAX => {
            buffer.clear();
            buffer.reserve_exact(XATTR_MAX);
            get(buffer).map(drop)
        }
        other => other.map(drop),
    }
}

fn time(t: SetTime) -> Result<Timespec, Errno> {
    Ok(match t {
        SetTime::Omit => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        SetTime::Now => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        SetTime::At(s, ns) if ns < 1_000_000_000 => Timespec { tv_sec: s, tv_nsec: ns.into() },
        SetTime::At(..) => return Err(Errno::INVAL),
    })
}
