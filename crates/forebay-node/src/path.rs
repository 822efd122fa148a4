//! The one place where a client's path becomes a place in the file system. Nothing here ever follows
//! a path out of its export: whole paths go through `openat2` with `RESOLVE_BENEATH`, and a system
//! call is given a bare name only where it does not follow a symbolic link of that name. Where directories are kept
//! ([`crate::directories`]), the last name is looked for in one of them, without following links either.

use crate::directories::Keeper;
use crate::fail::{Failure, Outcome};
use crate::kept;
use crate::sys::FileHandle;
use forebay_types::{Identity, Protect};
use forebay_wire::WireError;
use forebay_wire::flags::OpenFlags;
use forebay_wire::message::{Attr, ExportId, Path};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, PoisonError};

const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);
/// What has one name only, and stays on its file system.
const PLAIN: ResolveFlags = BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_XDEV);

/// What `statfs` says of FUSE.
const FUSE: i64 = 0x6573_5546;
/// And of memory. It counts its inodes, and uses no number twice before it has counted through them all: with the moment
/// when it was made that is as good as a handle, which costs a good part of what it takes to make a file there.
const MEMORY: i64 = 0x0102_1994;
/// And of file systems that are this machine's alone (memory, ext4, XFS, Btrfs): what the kernel knows of them is true.
const LOCAL: [i64; 4] = [MEMORY, 0xef53, 0x5846_5342, 0x9123_683e];

/// An exported directory.
#[derive(Debug)]
pub(crate) struct Export {
    pub(crate) name: String,
    pub(crate) root: OwnedFd,
    /// Its file system's device number.
    dev: u64,
    /// How what is below it is protected at least when it goes to another host.
    pub(crate) protect: Protect,
}

impl Export {
    /// Opens the directory to be exported.
    pub(crate) fn open(name: String, path: &std::path::Path, protect: Protect) -> Result<Export, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())?;
        // The kernel must have openat2, or nothing here would be safe.
        openat2(root.as_fd(), b"", flags, Mode::empty(), BENEATH)?;
        let dev = attr_of(root.as_fd())?.dev;
        Ok(Export { name, root, dev, protect })
    }

    /// Whether each part of a path may be a question to the servers of its file system. The kernel's own file systems
    /// know what they have told it.
    pub(crate) fn asks_for_each_part(&self) -> bool {
        rustix::fs::fstatfs(&self.root).is_ok_and(|s| s.f_type == FUSE)
    }
}

/// What a connection reaches: the exports that its client has named, by their places here, and how it is protected.
/// Nothing it reaches asks for more.
#[derive(Debug)]
pub(crate) struct Reach {
    exports: Box<[Option<usize>]>,
    protect: Protect,
}

impl Reach {
    /// For what a client names. `protect`: how the connection is protected; on this host nothing need be.
    pub(crate) fn new(
        exports: &[Export],
        names: &[&str],
        protect: Protect,
        local: bool,
    ) -> Result<Reach, WireError> {
        let place = |name: &&str| exports.iter().position(|e| e.name == *name);
        let named: Box<[Option<usize>]> = names.iter().map(place).collect();
        let protect = if local { Protect::Privacy } else { protect };
        let asked = named.iter().flatten().map(|at| exports[*at].protect).max().unwrap_or_default();
        if asked > protect {
            Err(WireError::Unprotected(asked))
        } else {
            Ok(Reach { exports: named, protect })
        }
    }

    /// The place of the export of that number, among those that the client has named.
    pub(crate) fn export(&self, number: ExportId) -> Option<usize> {
        *self.exports.get(usize::from(number.0))?
    }

    /// Whether what is protected at least so may be sent here.
    pub(crate) fn carries(&self, protect: Protect) -> bool {
        protect <= self.protect
    }
}

/// The directory part of a path, open, and the last name, which may be `.`, `..` or end in slashes:
/// calls that create or remove a name treat those as they should.
pub(crate) struct Parent<'a> {
    dir: Dir<'a>,
    pub(crate) name: &'a [u8],
}

enum Dir<'a> {
    Root(BorrowedFd<'a>),
    Below(OwnedFd),
    Kept(Arc<OwnedFd>),
}

impl Parent<'_> {
    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        match &self.dir {
            Dir::Root(fd) => *fd,
            Dir::Below(fd) => fd.as_fd(),
            Dir::Kept(fd) => fd.as_fd(),
        }
    }
}

/// A checked path: its export's root and the rest.
#[derive(Clone, Copy)]
pub(crate) struct Checked<'a> {
    root: BorrowedFd<'a>,
    rel: &'a [u8],
    dev: u64,
    /// How it is protected at least.
    pub(crate) protect: Protect,
    /// Who keeps its directory, if anybody does.
    pub(crate) keeper: Option<Keeper<'a>>,
}

/// Checks what a client sent.
pub(crate) fn check<'a>(export: Option<&'a Export>, path: &Path<'a>) -> Outcome<Checked<'a>> {
    path.check().map_err(|e| {
        if e == libc::EXDEV { Failure::ESCAPES } else { Failure::from(Errno::from_raw_os_error(e)) }
    })?;
    let export = export.ok_or(Failure::new(Errno::NOENT, "this node has no export that was named so"))?;
    let (root, rel, dev, protect) = (export.root.as_fd(), path.rel, export.dev, export.protect);
    Ok(Checked { root, rel, dev, protect, keeper: None })
}

/// Whether `name` is one component that stands for an entry of its directory.
fn simple(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/')
}

fn openat2(
    root: BorrowedFd<'_>,
    rel: &[u8],
    flags: OFlags,
    mode: Mode,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let rel = if rel.is_empty() { b"." } else { rel };
    // The kernel gives up on a `..` that races with a rename somewhere; it says EAGAIN.
    for _ in 0..32 {
        match rustix::fs::openat2(root, rel, flags | OFlags::CLOEXEC, mode, resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

impl<'a> Checked<'a> {
    /// The directory in which the last name is, if it may be kept and is reached without links, and that name.
    /// Fails as every use of the path would.
    fn kept(&self) -> Outcome<Option<(Arc<OwnedFd>, &'a [u8])>> {
        let Some((keeper, (dir, name))) = self.keeper.zip(kept::split(self.rel)) else { return Ok(None) };
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        match keeper.directory(dir, || openat2(self.root, dir, flags, Mode::empty(), PLAIN)) {
            Ok(dir) => Ok(Some((dir, name))),
            // Links and other file systems take the long way.
            Err(Errno::LOOP | Errno::XDEV) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Opens the file itself.
    pub(crate) fn open(&self, flags: OFlags, mode: Mode) -> Outcome<OwnedFd> {
        if let Some((dir, name)) = self.kept()? {
            match openat2(dir.as_fd(), name, flags, mode, BENEATH | ResolveFlags::NO_SYMLINKS) {
                // A link to be followed, perhaps out of the directory.
                Err(Errno::LOOP) => {}
                other => return Ok(other?),
            }
        }
        openat2(self.root, self.rel, flags, mode, BENEATH)
            .map_err(|e| if e == Errno::XDEV { Failure::ESCAPES } else { e.into() })
    }

    /// Whether an open file says that it has no bytes though it may: it is of the kernel's, mounted within the export.
    pub(crate) fn hides_bytes(&self, fd: BorrowedFd<'_>, attr: &Attr) -> bool {
        attr.size == 0
            && attr.dev != self.dev
            && attr.mode & libc::S_IFMT == libc::S_IFREG
            && forebay_types::kernel::made_when_read(fd).is_some()
    }

    /// A descriptor that stands for the file, without opening it.
    pub(crate) fn locate(&self, follow: bool) -> Outcome<OwnedFd> {
        let nofollow = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        self.open(OFlags::PATH | nofollow, Mode::empty())
    }

    /// The directory and the last name, for a call that creates, removes or renames it. The export
    /// itself is no such name: that fails with `root`.
    pub(crate) fn place(&self, root: Errno) -> Outcome<Parent<'a>> {
        let end = self.rel.iter().rposition(|&b| b != b'/').map_or(0, |i| i + 1);
        if end == 0 {
            return Err(root.into());
        }
        let Some(slash) = self.rel[..end].iter().rposition(|&b| b == b'/') else {
            return Ok(Parent { dir: Dir::Root(self.root), name: self.rel });
        };
        if let Some((dir, name)) = self.kept()? {
            return Ok(Parent { dir: Dir::Kept(dir), name });
        }
        let parent = Checked { rel: &self.rel[..slash], ..*self };
        let dir = parent.open(OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        Ok(Parent { dir: Dir::Below(dir), name: &self.rel[slash + 1..] })
    }

    /// As [`Checked::place`], but only where a call that does not follow links can take the name.
    pub(crate) fn entry(&self) -> Outcome<Option<Parent<'a>>> {
        let last = self.rel.iter().rposition(|&b| b == b'/').map_or(0, |i| i + 1);
        if simple(&self.rel[last..]) { self.place(Errno::INVAL).map(Some) } else { Ok(None) }
    }

    /// The file's attributes.
    pub(crate) fn stat(&self, follow: bool) -> Outcome<Attr> {
        let kept = if simple(self.rel) { None } else { self.kept()? };
        let place = match &kept {
            Some((dir, name)) => Some((dir.as_fd(), *name)),
            None => simple(self.rel).then_some((self.root, self.rel)),
        };
        if let Some((dir, name)) = place {
            // One system call: a plain name cannot leave the directory, and what turns out to be a
            // link to be followed takes the long way.
            let attr = attr_at(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if !(follow && is_link(&attr)) {
                return Ok(attr);
            }
        }
        Ok(attr_of(self.locate(follow)?.as_fd())?)
    }
}

/// Whether the attributes are a symbolic link's.
pub(crate) fn is_link(attr: &Attr) -> bool {
    attr.mode & libc::S_IFMT == libc::S_IFLNK
}

/// The attributes of an open file.
pub(crate) fn attr_of(fd: BorrowedFd<'_>) -> Result<Attr, Errno> {
    attr_at(fd, b"", AtFlags::EMPTY_PATH)
}

/// What nothing changes while a file is open: its device, number and kind, and what [`identity`] needs. Other attributes
/// may be old: no server is asked where that can be told without.
pub(crate) fn nature_of(fd: BorrowedFd<'_>) -> Result<Attr, Errno> {
    let attr = attr_at(fd, b"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC)?;
    let on = FileSystem::of(fd, attr.dev);
    if on.local || on.births == Some(false) { Ok(attr) } else { attr_of(fd) }
}

/// Whether an open file is known to have lost its last name, or to have a mode by which `who` could not open it like
/// this once more. Asks no server: it must not take long.
pub(crate) fn cannot_be_opened(fd: BorrowedFd<'_>, how: OpenFlags, who: Option<&Identity>) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let mask = StatxFlags::NLINK | StatxFlags::MODE | StatxFlags::UID | StatxFlags::GID;
    let Ok(s) = rustix::fs::statx(fd, c"", flags, mask) else { return false };
    let wanted = [(OpenFlags::READ, 0o4), (OpenFlags::WRITE, 0o2)];
    let wanted = wanted.iter().filter(|(flag, _)| how.has(*flag)).fold(0, |all, (_, bit)| all | bit);
    let barred = |who: &Identity| !who.may(wanted, s.stx_mode.into(), s.stx_uid, s.stx_gid);
    s.stx_nlink == 0 || !how.has(OpenFlags::PATH) && who.is_some_and(barred)
}

/// The attributes of an entry of a directory.
pub(crate) fn attr_at(dir: BorrowedFd<'_>, name: &[u8], flags: AtFlags) -> Result<Attr, Errno> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    rustix::fs::statx(dir, name, flags, mask).map(|s| attr(&s))
}

fn attr(s: &Statx) -> Attr {
    let time = |t: &rustix::fs::StatxTimestamp| (t.tv_sec, t.tv_nsec);
    let has_btime = s.stx_mask & StatxFlags::BTIME.bits() != 0;
    Attr {
        dev: rustix::fs::makedev(s.stx_dev_major, s.stx_dev_minor),
        ino: s.stx_ino,
        mode: s.stx_mode.into(),
        nlink: s.stx_nlink,
        uid: s.stx_uid,
        gid: s.stx_gid,
        rdev: rustix::fs::makedev(s.stx_rdev_major, s.stx_rdev_minor),
        size: s.stx_size,
        blksize: s.stx_blksize,
        blocks: s.stx_blocks,
        atime: time(&s.stx_atime),
        mtime: time(&s.stx_mtime),
        ctime: time(&s.stx_ctime),
        btime: has_btime.then(|| time(&s.stx_btime)),
    }
}

/// What tells a file from any other that had or will have its inode number, on whatever node.
pub(crate) fn identity(fd: BorrowedFd<'_>, attr: &Attr) -> u64 {
    let hasher = foldhash::quality::FixedState::default();
    let handle = if FileSystem::of(fd, attr.dev).lasting { FileHandle::of(fd) } else { None };
    match handle {
        Some(handle) => hasher.hash_one(handle),
        None => hasher.hash_one((attr.ino, attr.btime)),
    }
    .max(1)
}

/// What is known of a file system.
#[derive(Clone, Copy)]
struct FileSystem {
    /// Files are known by its handles, which are the same on every mount of it. Those of FUSE are numbers that one mount
    /// gives as it goes.
    lasting: bool,
    /// Without handles: whether it tells when a file was made.
    births: Option<bool>,
    /// No other machine changes it.
    local: bool,
}

impl FileSystem {
    /// The one that `fd` is on.
    fn of(fd: BorrowedFd<'_>, dev: u64) -> FileSystem {
        static KNOWN: Mutex<Vec<(u64, FileSystem)>> = Mutex::new(Vec::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, it)) = known.iter().find(|(d, _)| *d == dev) {
            return *it;
        }
        let kind = rustix::fs::fstatfs(fd).ok().map(|s| s.f_type);
        let local = kind.is_some_and(|k| LOCAL.contains(&k));
        let births = || attr_of(fd).ok().map(|attr| attr.btime.is_some());
        let (lasting, births) = match kind {
            None | Some(FUSE) => (false, births()),
            Some(MEMORY) if births() == Some(true) => (false, Some(true)),
            Some(_) => (true, None),
        };
        let it = FileSystem { lasting, births, local };
        // Devices come and go with mounts; the last few are enough.
        if known.len() == 64 {
            known.remove(0);
        }
        known.push((dev, it));
        it
    }
}

/// A name under which the kernel finds what a descriptor stands for, for calls that take no
/// descriptor, or none opened with `O_PATH`.
pub(crate) fn proc_name(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Opens again what a descriptor stands for, as an open file of its own.
pub(crate) fn reopen(fd: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(CWD, proc_name(fd), flags | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())
}

/// Whether `/proc` is there, which [`proc_name`] needs.
pub(crate) fn has_proc(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::statx(CWD, proc_name(fd), AtFlags::empty(), StatxFlags::TYPE).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::symlink;

    fn path(rel: &[u8]) -> Path<'_> {
        Path { export: ExportId(0), rel }
    }

    fn tree() -> (tempfile::TempDir, Export) {
        let top = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(top.path().join("in/a/b")).unwrap();
        std::fs::write(top.path().join("secret"), "s").unwrap();
        std::fs::write(top.path().join("in/f"), "f").unwrap();
        symlink("../secret", top.path().join("in/up")).unwrap();
        symlink("/etc", top.path().join("in/abs")).unwrap();
        symlink("..", top.path().join("in/a/dotdot")).unwrap();
        symlink("../..", top.path().join("in/a/out")).unwrap();
        symlink("f", top.path().join("in/l")).unwrap();
        let export = Export::open("x".into(), &top.path().join("in"), Protect::None).unwrap();
        (top, export)
    }

    #[test]
    fn nothing_leads_out() {
        let (_top, export) = tree();
        for rel in [
            "..",
            "../secret",
            "a/../../secret",
            "up",
            "abs",
            "abs/passwd",
            "a/out",
            "a/out/secret",
            "a/dotdot/../secret",
            "/etc/passwd",
            "a/b/../../..",
            "up/",
            "./..",
        ] {
            let checked = check(Some(&export), &path(rel.as_bytes()));
            let got = checked.and_then(|p| p.stat(true));
            assert_eq!(got.unwrap_err(), Failure::ESCAPES, "{rel}");
            let got = check(Some(&export), &path(rel.as_bytes()))
                .and_then(|p| p.open(OFlags::RDONLY, Mode::empty()));
            assert_eq!(got.unwrap_err(), Failure::ESCAPES, "{rel}");
        }
        for rel in ["a/out/new", "abs/new", "../new"] {
            let got =
                check(Some(&export), &path(rel.as_bytes())).and_then(|p| p.place(Errno::BUSY).map(|_| ()));
            assert_eq!(got.unwrap_err(), Failure::ESCAPES, "{rel}");
        }
        // What stays inside is found, also upwards.
        for rel in ["", ".", "f", "l", "a/..", "a/../f", "a/dotdot/f", "a/b/", "./a//b/../../l"] {
            check(Some(&export), &path(rel.as_bytes()))
                .unwrap()
                .stat(true)
                .unwrap_or_else(|e| panic!("{rel}: {e:?}"));
        }
        assert!(is_link(&check(Some(&export), &path(b"up")).unwrap().stat(false).unwrap()));
    }

    #[test]
    fn names_as_linux_has_them() {
        let (_top, export) = tree();
        let at = |rel: &'static [u8]| check(Some(&export), &path(rel)).unwrap();
        assert_eq!(at(b"f/").stat(true).unwrap_err().errno, Errno::NOTDIR);
        assert_eq!(at(b"l/").stat(false).unwrap_err().errno, Errno::NOTDIR);
        assert_eq!(at(b"none").stat(true).unwrap_err().errno, Errno::NOENT);
        assert_eq!(at(b"a/b//").place(Errno::BUSY).unwrap().name, b"b//");
        assert_eq!(at(b"").place(Errno::BUSY).err().unwrap().errno, Errno::BUSY);
        assert!(at(b"a/..").entry().unwrap().is_none());
        assert!(at(b"a/b/").entry().unwrap().is_none());
        assert_eq!(at(b"a/b").entry().unwrap().unwrap().name, b"b");
    }

    proptest! {
        /// Whatever is asked for, what is found lies below the export.
        #[test]
        fn random_paths_stay_inside(parts in prop::collection::vec(
            prop::sample::select(vec!["a", "b", "..", ".", "up", "abs", "out", "dotdot", "l", "f", "", "etc"]), 0..8))
        {
            let (top, export) = tree();
            let rel = parts.join("/");
            for follow in [true, false] {
                if let Ok(fd) = check(Some(&export), &path(rel.as_bytes())).and_then(|p| p.locate(follow)) {
                    let real = std::fs::read_link(proc_name(fd.as_fd())).unwrap();
                    prop_assert!(real.starts_with(top.path().canonicalize().unwrap().join("in")), "{} -> {:?}", rel, real);
                }
            }
        }
    }
}
