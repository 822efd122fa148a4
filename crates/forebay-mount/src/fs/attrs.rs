//! Attributes, extended ones, access control lists, totals of the file system.

use super::{Asked, At, Fs, Outcome, Reply, errno};
use crate::abi::{self, AttrOut, GetxattrOut, SetattrIn, Statfs, fattr};
use forebay_client::{Answer, Attr, File, FsStat, Meta, OpenFlags, SetTime};

fn done(_: Answer<'_>) -> Option<()> {
    Some(())
}

fn bytes(answer: Answer<'_>) -> Option<Vec<u8>> {
    match answer {
        Answer::Bytes(b) => Some(b.to_vec()),
        _ => None,
    }
}

impl Fs {
    fn attr_out(&self, node: u64, attr: &Attr) -> Outcome<Reply> {
        self.unchanged(node, attr)?;
        if !self.tree_mut().update(node, attr) {
            return Err(libc::ESTALE);
        }
        let (_, attr_valid) = self.validity(attr);
        Ok(Reply::of(&AttrOut { attr_valid, attr_valid_nsec: 0, pad: 0, attr: self.show(attr) }))
    }

    pub(crate) fn getattr(&self, who: &Asked, fh: Option<u64>) -> Outcome<Reply> {
        let told = self.fresh.take(who.pid, who.node);
        if let (Some(attr), None, false) = (told, fh, self.passes.has(who.node)) {
            return self.attr_out(who.node, &attr);
        }
        let _paths = self.paths_hold();
        let at = match fh.and_then(|fh| self.handles.get(fh).ok()) {
            Some(open) => At::Open(open.held, who.pid),
            None => match self.at(who) {
                Ok(at) => at,
                Err(e) => return self.nameless(who.node).unwrap_or(Err(e)),
            },
        };
        let opened = match &at {
            At::Open(held, _) => self.client.attributes(&held.file),
            At::Path(_) => None,
        };
        let attr = match opened {
            Some(attr) => attr,
            None => self.look_at_node(who.node, || self.stat_at(&at))?,
        };
        self.attr_out(who.node, &attr)
    }

    /// The last that was known of a file or directory whose last name was removed through this mount.
    fn nameless(&self, node: u64) -> Option<Outcome<Reply>> {
        let attr = *self.tree().attr(node)?;
        (attr.nlink == 0).then(|| self.attr_out(node, &attr))
    }

    pub(crate) fn setattr(&self, who: &Asked, set: &SetattrIn) -> Outcome<Reply> {
        let _paths = self.paths_hold();
        let has = |bit| set.valid & bit != 0;
        let at = match self.handles.get(set.fh) {
            Ok(open) if has(fattr::FH) => {
                open.held.lost.tell(who.pid)?;
                At::Open(open.held, who.pid)
            }
            _ => self.at(who)?,
        };
        let mut seen = None;
        if has(fattr::UID) || has(fattr::GID) {
            let uid = if has(fattr::UID) { set.uid } else { u32::MAX };
            let gid = if has(fattr::GID) { set.gid } else { u32::MAX };
            seen = Some(self.change_at(&at, |target| Meta::Chown { target, uid, gid })?);
        }
        if has(fattr::MODE) {
            let mode = set.mode & 0o7777;
            seen = Some(self.change_at(&at, |target| Meta::Chmod { target, mode })?);
        }
        if has(fattr::SIZE) {
            seen = Some(self.truncate(who, &at, set.size)?);
            if has(fattr::KILL_SUIDGID) {
                self.drop_privileges(who.node, &at)?;
                seen = None;
            }
        }
        if has(fattr::ATIME) || has(fattr::MTIME) {
            let time = |set_it: u32, now: u32, s: u64, ns: u32| match (has(set_it), has(now)) {
                (false, _) => SetTime::Omit,
                (true, true) => SetTime::Now,
                (true, false) => SetTime::At(s as i64, ns),
            };
            let atime = time(fattr::ATIME, fattr::ATIME_NOW, set.atime, set.atimensec);
            let mtime = time(fattr::MTIME, fattr::MTIME_NOW, set.mtime, set.mtimensec);
            seen = Some(self.change_at(&at, |target| Meta::Utimens { target, atime, mtime })?);
        }
        self.changed();
        let attr = match seen {
            Some(attr) => attr,
            None => self.stat_at(&at)?,
        };
        self.attr_out(who.node, &attr)
    }

    /// Cuts or extends a file: through a descriptor that may write, or by name.
    fn truncate(&self, who: &Asked, at: &At, size: u64) -> Outcome<Attr> {
        let node = who.node;
        let writes = |file: &File| file.flags().has(OpenFlags::WRITE);
        let writable = match at {
            At::Open(held, _) if writes(&held.file) => None,
            _ => {
                let open = self.handles.that(node, writes).map(|held| At::Open(held, who.pid));
                open.or_else(|| self.tree().path(node).map(At::Path))
            }
        };
        let at = writable.as_ref().unwrap_or(at);
        self.change_at(at, |target| Meta::Truncate { target, size })
    }

    /// A file that somebody without privileges has changed does not give any. Where the I/O node runs
    /// as the user, the file system under it does this.
    pub(super) fn drop_privileges(&self, node: u64, at: &At) -> Outcome<()> {
        let mode = self.tree().attr(node).map_or(0, |a| a.mode);
        let mut less = mode & !libc::S_ISUID;
        if mode & libc::S_IXGRP != 0 {
            less &= !libc::S_ISGID;
        }
        if !self.ids.kernel_checks() || less == mode {
            return Ok(());
        }
        self.meta_at(at, |target| Meta::Chmod { target, mode: less & 0o7777 }, done)
    }

    pub(crate) fn access(&self, who: &Asked, mask: u32) -> Outcome<Reply> {
        let _paths = self.paths_hold();
        let Some(rel) = self.tree().path(who.node) else { return Ok(Reply::Done) };
        let op = Meta::Access { path: self.path(&rel), mode: mask & 7, follow: false };
        self.client.meta(op, done).map_err(errno)?;
        Ok(Reply::Done)
    }

    pub(crate) fn statfs(&self, who: &Asked) -> Outcome<Reply> {
        let _paths = self.paths_hold();
        let at = self.at(who)?;
        let fs = self.meta_at(
            &at,
            |target| Meta::Statfs { target },
            |answer| match answer {
                Answer::Fs(fs) => Some(fs),
                _ => None,
            },
        )?;
        let FsStat { blocks, bfree, bavail, files, ffree, .. } = fs;
        let short = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let (bsize, namelen, frsize) = (short(fs.bsize), short(fs.namelen), short(fs.frsize));
        let statfs =
            Statfs { blocks, bfree, bavail, files, ffree, bsize, namelen, frsize, ..Statfs::default() };
        Ok(Reply::of(&statfs))
    }

    /// An answer whose length the kernel may be asking for first.
    fn sized(value: Vec<u8>, room: u32) -> Outcome<Reply> {
        if room == 0 {
            return Ok(Reply::of(&GetxattrOut { size: value.len() as u32, pad: 0 }));
        }
        if value.len() > room as usize { Err(libc::ERANGE) } else { Ok(Reply::Bytes(value)) }
    }

    pub(crate) fn getxattr(&self, who: &Asked, name: &[u8], room: u32) -> Outcome<Reply> {
        let _paths = self.paths_hold();
        let at = self.at(who)?;
        let value = self.meta_at(&at, |target| Meta::Getxattr { target, name }, bytes)?;
        Fs::sized(value, room)
    }

    pub(crate) fn listxattr(&self, who: &Asked, room: u32) -> Outcome<Reply> {
        let _paths = self.paths_hold();
        let at = self.at(who)?;
        let list = self.meta_at(&at, |target| Meta::Listxattr { target }, bytes)?;
        Fs::sized(list, room)
    }

    pub(crate) fn setxattr(&self, who: &Asked, name: &[u8], value: &[u8], flags: u32) -> Outcome<Reply> {
        let _paths = self.paths_hold();
        let at = self.at(who)?;
        let flags = flags as i32;
        self.meta_at(&at, |target| Meta::Setxattr { target, name, value, flags }, done)?;
        self.changed();
        Ok(Reply::Done)
    }

    pub(crate) fn removexattr(&self, who: &Asked, name: &[u8]) -> Outcome<Reply> {
        let _paths = self.paths_hold();
        let at = self.at(who)?;
        self.meta_at(&at, |target| Meta::Removexattr { target, name }, done)?;
        self.changed();
        Ok(Reply::Done)
    }

    /// The first question of every request that is none about attributes.
    pub(crate) fn something_else(&self, who: &Asked, opcode: abi::Opcode) {
        if opcode != abi::Opcode::Getattr {
            self.fresh.forget(who.pid);
        }
    }
}
