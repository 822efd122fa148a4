//! Between the wire's attributes and the structures of `stat`, `statx` and `statfs`.

use forebay_client::{Attr, FsStat};
pub(crate) use forebay_client::{stat, statx};

/// What programs (`tail`, `df`, `cp`) take for a network file system.
const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;

pub(crate) fn from_stat(s: &libc::stat) -> Attr {
    let time = |sec: i64, nsec: i64| (sec, nsec as u32);
    Attr {
        dev: s.st_dev,
        ino: s.st_ino,
        mode: s.st_mode,
        nlink: s.st_nlink as u32,
        uid: s.st_uid,
        gid: s.st_gid,
        rdev: s.st_rdev,
        size: s.st_size as u64,
        blksize: s.st_blksize as u32,
        blocks: s.st_blocks as u64,
        atime: time(s.st_atime, s.st_atime_nsec),
        mtime: time(s.st_mtime, s.st_mtime_nsec),
        ctime: time(s.st_ctime, s.st_ctime_nsec),
        btime: None,
    }
}

pub(crate) fn statfs(f: &FsStat) -> libc::statfs64 {
    // SAFETY: a plain struct of integers.
    let mut s: libc::statfs64 = unsafe { std::mem::zeroed() };
    s.f_type = FUSE_SUPER_MAGIC as _;
    s.f_bsize = f.bsize as _;
    s.f_frsize = f.frsize as _;
    s.f_blocks = f.blocks;
    s.f_bfree = f.bfree;
    s.f_bavail = f.bavail;
    s.f_files = f.files;
    s.f_ffree = f.ffree;
    s.f_namelen = f.namelen as _;
    s.f_flags = f.flags as _;
    // SAFETY: fsid_t is two integers.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const f.fsid).cast::<u8>(), (&raw mut s.f_fsid).cast::<u8>(), 8)
    };
    s
}

pub(crate) fn statvfs(f: &FsStat) -> libc::statvfs {
    // SAFETY: a plain struct of integers.
    let mut s: libc::statvfs = unsafe { std::mem::zeroed() };
    s.f_bsize = f.bsize as _;
    s.f_frsize = f.frsize as _;
    s.f_blocks = f.blocks;
    s.f_bfree = f.bfree;
    s.f_bavail = f.bavail;
    s.f_files = f.files;
    s.f_ffree = f.ffree;
    s.f_favail = f.ffree;
    s.f_fsid = f.fsid as _;
    s.f_flag = f.flags as _;
    s.f_namemax = f.namelen as _;
    s
}

/// The attributes of a directory above a forwarded one that this machine does not have.
pub(crate) fn above(path: &[u8]) -> Attr {
    // A stable inode number that no file system hands out: the path's hash with the top bit set.
    let hash =
        path.iter().fold(0xcbf2_9ce4_8422_2325u64, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    Attr {
        dev: libc::makedev(0xfb, 0xa1),
        ino: hash | 1 << 63,
        mode: libc::S_IFDIR | 0o755,
        nlink: 2,
        blksize: 4096,
        ..Attr::default()
    }
}
