//! The file system: what the kernel asks, as calls of the client. One file a kind of operation:
//! [`names`], [`attrs`], [`files`], [`dirs`], [`locks`].

mod attrs;
mod dirs;
mod files;
mod fresh;
mod handles;
mod kept;
mod locks;
mod lost;
mod names;
mod passes;
mod sighted;
mod written;

use crate::abi::{self, EntryOut};
use crate::tree::Tree;
use crate::turn;
use forebay_client::gate::Gates;
use forebay_client::{Answer, Attr, Client, Error, ExportId, Ids, Meta, Path, Target, UMASK_SHIFT};
use fresh::Fresh;
use handles::{Handles, Held};
use kept::{FOR_EVER, Kept};
use locks::Locks;
use passes::Passes;
use rustix::fd::OwnedFd;
use sighted::Sighted;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use zerocopy::IntoBytes;

/// How long what the kernel was told stays true without asking again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Contract {
    /// Nothing is kept: what one process has written, all processes on all hosts see.
    #[default]
    Strict,
    /// The kernel keeps pages and attributes; a file is looked at anew when it is opened.
    CloseToOpen,
    /// Nobody else changes anything meanwhile: the kernel keeps what is written, too, until a file is closed
    /// or synced.
    Exclusive,
    /// Nothing changes: names, missing names and contents are fetched once and kept. Nothing can be
    /// written, and what was changed elsewhere is refused.
    Immutable,
}

/// What a mount shows, and to whom.
#[derive(Clone, Debug)]
pub struct Options {
    /// The export, by its place in the client's configuration.
    pub export: u16,
    /// What may be kept.
    pub contract: Contract,
    /// Whose files they are shown as.
    pub ids: Ids,
    /// Where programs find which files they may use past the mount, if any.
    pub gates: Option<&'static Gates>,
}

/// An errno, as the kernel gets it.
pub(crate) type Errno = i32;
pub(crate) type Outcome<T> = Result<T, Errno>;

/// Who asks, and about which node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) unique: u64,
    pub(crate) node: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
}

/// What is left to do of an operation, on a thread that may wait.
pub(crate) type Rest = Box<dyn FnOnce(&Fs) -> Outcome<Reply> + Send>;

/// An answer to the kernel.
pub(crate) enum Reply {
    /// Done, nothing to tell.
    Done,
    /// These bytes.
    Bytes(Vec<u8>),
    /// So many bytes of the buffer that was lent.
    Lent(usize),
    /// The kernel expects none.
    Silent,
    /// Has to wait for others: to be finished in a thread of its own.
    Later(Rest),
}

impl Reply {
    pub(crate) fn of(value: &(impl IntoBytes + zerocopy::Immutable)) -> Reply {
        Reply::Bytes(value.as_bytes().to_vec())
    }
}

/// One mounted export.
pub(crate) struct Fs {
    client: Arc<Client>,
    export: ExportId,
    contract: Contract,
    pub(crate) ids: Ids,
    tree: RwLock<Tree>,
    /// Held for writing while a directory changes its name: the paths below it are being used.
    renaming: RwLock<()>,
    handles: Handles,
    locks: Locks,
    fresh: Fresh,
    kept: Kept,
    sighted: Sighted,
    passes: Passes,
    /// The kernel, to tell it something it has not asked for.
    kernel: OnceLock<OwnedFd>,
}

/// Where an operation on a node goes.
enum At {
    /// By the thread that asks.
    Open(Arc<Held>, u32),
    Path(Vec<u8>),
}

/// The errno of a call that failed.
fn errno(e: Error) -> Errno {
    match e {
        // The kernel resolves names; a link found in the middle was put there since.
        Error::Escapes => libc::ESTALE,
        e => e.errno(),
    }
}

impl Fs {
    pub(crate) fn new(client: Arc<Client>, options: Options) -> Fs {
        Fs {
            client,
            export: ExportId(options.export),
            contract: options.contract,
            ids: options.ids,
            tree: RwLock::new(Tree::new()),
            renaming: RwLock::new(()),
            handles: Handles::default(),
            locks: Locks::default(),
            fresh: Fresh::default(),
            kept: Kept::default(),
            sighted: Sighted::default(),
            passes: Passes::new(options.gates, options.contract),
            kernel: OnceLock::new(),
        }
    }

    pub(crate) fn contract(&self) -> Contract {
        self.contract
    }

    fn tree(&self) -> RwLockReadGuard<'_, Tree> {
        self.tree.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn tree_mut(&self) -> RwLockWriteGuard<'_, Tree> {
        self.tree.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Paths stay what they are while the result lives.
    fn paths_hold(&self) -> RwLockReadGuard<'_, ()> {
        turn::read(&self.renaming)
    }

    fn path<'a>(&self, rel: &'a [u8]) -> Path<'a> {
        Path { export: self.export, rel }
    }

    /// The path of `name` in the directory `parent`; a removed directory has nothing in it.
    fn child(&self, parent: u64, name: &[u8]) -> Outcome<Vec<u8>> {
        self.tree().child(parent, name).ok_or(libc::ENOENT)
    }

    /// Where an operation on `node` goes: to an open file of it, which is right whatever happens to
    /// its names, or else to its name.
    fn at(&self, who: &Asked) -> Outcome<At> {
        if let Some(held) = self.handles.of(who.node) {
            return Ok(At::Open(held, who.pid));
        }
        self.tree().path(who.node).map(At::Path).ok_or(libc::ESTALE)
    }

    fn meta_at<'m, T>(
        &self,
        at: &'m At,
        op: impl Fn(Target<'m>) -> Meta<'m>,
        answer: impl FnOnce(Answer<'_>) -> Option<T>,
    ) -> Outcome<T> {
        match at {
            At::Path(rel) => self.client.meta(op(Target::Link(self.path(rel))), answer).map_err(errno),
            At::Open(held, who) => {
                let done = self.client.meta_on(&held.file, |handle| op(Target::Handle(handle)), answer);
                held.by_name(*who, done)
            }
        }
    }

    /// A change, and what is there afterwards.
    fn change_at<'m>(&self, at: &'m At, op: impl Fn(Target<'m>) -> Meta<'m>) -> Outcome<Attr> {
        let seen = match at {
            At::Path(rel) => self.client.meta_and_look(op(Target::Link(self.path(rel)))).map_err(errno),
            At::Open(held, who) => {
                let look = self.client.meta_on_and_look(&held.file, |handle| op(Target::Handle(handle)));
                held.by_name(*who, look)
            }
        };
        match seen? {
            Some(attr) => Ok(attr),
            None => self.stat_at(at),
        }
    }

    fn stat_at(&self, at: &At) -> Outcome<Attr> {
        self.meta_at(at, |target| Meta::Stat { target }, attr_of)
    }

    fn stat_path(&self, rel: &[u8]) -> Outcome<Attr> {
        self.client.meta(Meta::Stat { target: Target::Link(self.path(rel)) }, attr_of).map_err(errno)
    }

    /// Others may see a change from now on.
    fn changed(&self) {
        self.fresh.changed();
    }

    /// The kernel may keep a name and attributes for so many seconds.
    fn validity(&self, attr: &Attr) -> (u64, u64) {
        match self.contract {
            Contract::Strict => (0, 0),
            Contract::CloseToOpen => (u64::from(attr.mode & libc::S_IFMT == libc::S_IFDIR), 1),
            Contract::Exclusive => (1, 1),
            Contract::Immutable => (FOR_EVER, FOR_EVER),
        }
    }

    /// The answer that tells of a name, which becomes known with it.
    fn entry(&self, parent: u64, name: &[u8], attr: &Attr) -> EntryOut {
        let node = self.tree_mut().found(parent, name, attr);
        self.entry_of(node, attr)
    }

    fn entry_of(&self, node: u64, attr: &Attr) -> EntryOut {
        let (entry_valid, attr_valid) = self.validity(attr);
        EntryOut {
            nodeid: node,
            generation: 0,
            entry_valid,
            attr_valid,
            entry_valid_nsec: 0,
            attr_valid_nsec: 0,
            attr: self.show(attr),
        }
    }

    /// Attributes as the kernel has them.
    fn show(&self, a: &Attr) -> abi::Attr {
        let (uid, gid) = self.ids.shown(a);
        abi::Attr {
            ino: a.ino,
            size: a.size,
            blocks: a.blocks,
            atime: a.atime.0 as u64,
            mtime: a.mtime.0 as u64,
            ctime: a.ctime.0 as u64,
            atimensec: a.atime.1,
            mtimensec: a.mtime.1,
            ctimensec: a.ctime.1,
            mode: a.mode,
            nlink: a.nlink,
            uid,
            gid,
            rdev: kernel_dev(a.rdev),
            blksize: a.blksize,
            flags: 0,
        }
    }

    /// The last words: everything open is closed, so that the nodes know at once.
    pub(crate) fn end(&self) {
        self.write_all_out();
        self.locks.clear();
        self.kept.clear();
        self.handles.clear();
        self.client.leave();
    }
}

fn attr_of(answer: Answer<'_>) -> Option<Attr> {
    match answer {
        Answer::Attr(attr) => Some(attr),
        _ => None,
    }
}

/// The mode that something new is made with: the node heeds the umask unless the directory has a default access
/// control list.
fn masked(mode: u32, umask: u32) -> u32 {
    mode | (umask & 0o777) << UMASK_SHIFT
}

/// A device's number as `new_encode_dev` of the kernel packs it.
fn kernel_dev(dev: u64) -> u32 {
    let (major, minor) = (libc::major(dev), libc::minor(dev));
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// The opposite of [`kernel_dev`].
fn user_dev(dev: u32) -> u64 {
    libc::makedev((dev >> 8) & 0xfff, (dev & 0xff) | ((dev >> 12) & 0xfff00))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers() {
        for (major, minor) in [(0, 0), (1, 3), (8, 17), (259, 300_000), (4095, 1_048_575)] {
            let dev = libc::makedev(major, minor);
            assert_eq!(user_dev(kernel_dev(dev)), dev, "{major}:{minor}");
        }
    }
}
