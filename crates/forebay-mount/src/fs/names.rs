//! Names: looked up, made, removed, renamed.

use super::kept::{FOR_EVER, missing};
use super::{Asked, Fs, Outcome, Reply, errno, masked, user_dev};
use crate::abi::EntryOut;
use crate::turn;
use forebay_client::{Answer, Attr, Meta, Target};

fn done(_: Answer<'_>) -> Option<()> {
    Some(())
}

impl Fs {
    pub(crate) fn lookup(&self, who: &Asked, name: &[u8]) -> Outcome<Reply> {
        let _paths = self.paths_hold();
        let changes = self.fresh.changes();
        let attr = match self.look_at_name(who.node, name, || self.stat_path(&self.child(who.node, name)?)) {
            Err(libc::ENOENT) if self.is_immutable() => return Ok(missing(FOR_EVER)),
            Err(libc::ENOENT) if self.is_exclusive() => return Ok(missing(1)),
            other => other?,
        };
        let known = self.tree().of(&attr);
        if let Some(node) = known {
            self.unchanged(node, &attr)?;
            self.renew_if_changed(node, &attr);
        }
        let entry = self.entry(who.node, name, &attr);
        self.fresh.told(who.pid, entry.nodeid, &attr, changes);
        Ok(Reply::of(&entry))
    }

    pub(crate) fn forget(&self, node: u64, count: u64) {
        self.tree_mut().forget(node, count);
    }

    /// Tells of a name that was just made. With permissions checked by the kernel it is given to
    /// whoever made it: the node did it in its own name.
    pub(super) fn made(&self, who: &Asked, name: &[u8], rel: &[u8], attr: Attr) -> Outcome<EntryOut> {
        let is_directory = attr.mode & libc::S_IFMT == libc::S_IFDIR;
        let attr = self.given(who, rel, attr).inspect_err(|_| {
            // I/O nodes that may not give it away (they act for another user than this mount's) have made it: it is
            // told not to be there, and so it goes.
            let path = self.path(rel);
            let gone = if is_directory { Meta::Rmdir { path } } else { Meta::Unlink { path } };
            let _ = self.client.meta(gone, done);
        })?;
        self.changed();
        Ok(self.entry(who.node, name, &attr))
    }

    /// Makes `rel`, and looks at it.
    fn make(&self, op: Meta<'_>, rel: &[u8]) -> Outcome<Attr> {
        match self.client.meta_and_look(op).map_err(errno)? {
            Some(attr) => Ok(attr),
            None => self.stat_path(rel),
        }
    }

    /// Makes `rel` belong to whoever asked.
    fn given(&self, who: &Asked, rel: &[u8], attr: Attr) -> Outcome<Attr> {
        if !self.ids.kernel_checks() {
            return Ok(attr);
        }
        // A directory with the set-group-id bit passes its group on.
        let passes = self.tree().attr(who.node).is_some_and(|p| p.mode & libc::S_ISGID != 0);
        let gid = if passes { attr.gid } else { who.gid };
        if (attr.uid, attr.gid) == (who.uid, gid) {
            return Ok(attr);
        }
        let target = Target::Link(self.path(rel));
        let given = self.make(Meta::Chown { target, uid: who.uid, gid }, rel)?;
        let special = attr.mode & (libc::S_ISUID | libc::S_ISGID);
        if special != 0 && attr.mode & libc::S_IFMT == libc::S_IFREG {
            // A change of owner took them away.
            return self.make(Meta::Chmod { target, mode: attr.mode & 0o7777 }, rel);
        }
        Ok(given)
    }

    pub(crate) fn mknod(&self, who: &Asked, name: &[u8], mode: u32, umask: u32, rdev: u32) -> Outcome<Reply> {
        let _paths = self.paths_hold();
        let rel = self.child(who.node, name)?;
        let mode = masked(mode, umask);
        let op = Meta::Mknod { path: self.path(&rel), mode, dev: user_dev(rdev) };
        let attr = self.make(op, &rel)?;
        self.made(who, name, &rel, attr).map(|e| Reply::of(&e))
    }

    pub(crate) fn mkdir(&self, who: &Asked, name: &[u8], mode: u32, umask: u32) -> Outcome<Reply> {
        let _paths = self.paths_hold();
        let rel = self.child(who.node, name)?;
        let mode = masked(mode, umask);
        let attr = self.make(Meta::Mkdir { path: self.path(&rel), mode }, &rel)?;
        self.made(who, name, &rel, attr).map(|e| Reply::of(&e))
    }

    pub(crate) fn symlink(&self, who: &Asked, name: &[u8], target: &[u8]) -> Outcome<Reply> {
        let _paths = self.paths_hold();
        let rel = self.child(who.node, name)?;
        let attr = self.make(Meta::Symlink { target, path: self.path(&rel) }, &rel)?;
        self.made(who, name, &rel, attr).map(|e| Reply::of(&e))
    }

    pub(crate) fn readlink(&self, who: &Asked) -> Outcome<Reply> {
        let _paths = self.paths_hold();
        let rel = self.tree().path(who.node).ok_or(libc::ESTALE)?;
        let bytes = |answer: Answer<'_>| match answer {
            Answer::Bytes(b) => Some(b.to_vec()),
            _ => None,
        };
        let target = self.client.meta(Meta::Readlink { path: self.path(&rel) }, bytes).map_err(errno)?;
        Ok(Reply::Bytes(target))
    }

    /// A further name for `node`, which may have none left: a file made without one is given one so.
    pub(crate) fn link(&self, who: &Asked, node: u64, name: &[u8]) -> Outcome<Reply> {
        let _paths = self.paths_hold();
        let rel = self.child(who.node, name)?;
        let to = self.path(&rel);
        let old = self.tree().path(node);
        let linked = match (old, self.handles.of(node)) {
            (Some(old), _) => {
                let from = Target::Link(self.path(&old));
                self.client.meta_and_look(Meta::Link { from, to })
            }
            (None, Some(held)) => self
                .client
                .meta_on_and_look(&held.file, |handle| Meta::Link { from: Target::Handle(handle), to }),
            (None, None) => return Err(libc::ENOENT),
        };
        let attr = match linked.map_err(errno)? {
            Some(attr) => attr,
            None => self.stat_path(&rel)?,
        };
        self.changed();
        let entry = self.entry(who.node, name, &attr);
        self.follow_renames(node);
        Ok(Reply::of(&entry))
    }

    pub(crate) fn unlink(&self, who: &Asked, name: &[u8]) -> Outcome<Reply> {
        let _paths = self.paths_hold();
        let rel = self.child(who.node, name)?;
        self.client.meta(Meta::Unlink { path: self.path(&rel) }, done).map_err(errno)?;
        self.changed();
        let node = self.tree_mut().gone(who.node, name);
        if let Some(node) = node {
            self.follow_renames(node);
            self.only_here(node, false);
        }
        Ok(Reply::Done)
    }

    pub(crate) fn rmdir(&self, who: &Asked, name: &[u8]) -> Outcome<Reply> {
        let _paths = self.paths_hold();
        let rel = self.child(who.node, name)?;
        self.client.meta(Meta::Rmdir { path: self.path(&rel) }, done).map_err(errno)?;
        self.changed();
        self.tree_mut().gone(who.node, name);
        Ok(Reply::Done)
    }

    pub(crate) fn rename(
        &self,
        who: &Asked,
        name: &[u8],
        newdir: u64,
        newname: &[u8],
        flags: u32,
    ) -> Outcome<Reply> {
        let exchange = flags & libc::RENAME_EXCHANGE != 0;
        // What is renamed may be a directory: nobody uses a path through it meanwhile. The kernel
        // keeps whoever uses the name of a plain file away itself.
        let plain = {
            let tree = self.tree();
            let kind = |dir, name: &[u8]| tree.kind(dir, name);
            let is_plain = |k: Option<u32>| k.is_some_and(|k| k != libc::S_IFDIR);
            is_plain(kind(who.node, name)) && (!exchange || is_plain(kind(newdir, newname)))
        };
        let (_shared, _alone) =
            if plain { (Some(self.paths_hold()), None) } else { (None, Some(turn::write(&self.renaming))) };
        let (from, to) = (self.child(who.node, name)?, self.child(newdir, newname)?);
        let op = Meta::Rename { from: self.path(&from), to: self.path(&to), flags };
        self.client.meta(op, done).map_err(errno)?;
        self.changed();
        let replaced = self.tree().at(newdir, newname);
        let moved = self.tree_mut().moved((who.node, name), (newdir, newname), exchange);
        for node in [moved, replaced].into_iter().flatten() {
            self.follow_renames(node);
        }
        if let Some(replaced) = replaced.filter(|_| !exchange) {
            self.only_here(replaced, false);
        }
        self.paths_changed(moved);
        Ok(Reply::Done)
    }

    /// Open files know the name to open them by again on another I/O node.
    fn follow_renames(&self, node: u64) {
        let tree = self.tree();
        let held: Vec<_> = if tree.is_dir(node) {
            self.handles.all().into_iter().filter(|(n, _)| tree.is_below(*n, node)).collect()
        } else {
            self.handles.all_of(node)
        };
        for (node, held) in held {
            if let Some(path) = tree.path(node)
                && path != held.file.rel()
            {
                held.file.set_rel(path);
            }
        }
    }
}
