//! Attributes as the kernel gives them to programs.

use forebay_wire::message::Attr;

/// For `stat`.
pub fn stat(a: &Attr) -> libc::stat {
    // SAFETY: a plain struct of integers.
    let mut s: libc::stat = unsafe { std::mem::zeroed() };
    s.st_dev = a.dev;
    s.st_ino = a.ino;
    s.st_mode = a.mode;
    s.st_nlink = a.nlink as _;
    s.st_uid = a.uid;
    s.st_gid = a.gid;
    s.st_rdev = a.rdev;
    s.st_size = a.size as i64;
    s.st_blksize = a.blksize as _;
    s.st_blocks = a.blocks as i64;
    s.st_atime = a.atime.0;
    s.st_atime_nsec = i64::from(a.atime.1);
    s.st_mtime = a.mtime.0;
    s.st_mtime_nsec = i64::from(a.mtime.1);
    s.st_ctime = a.ctime.0;
    s.st_ctime_nsec = i64::from(a.ctime.1);
    s
}

/// For `statx`.
pub fn statx(a: &Attr) -> libc::statx {
    // SAFETY: a plain struct of integers.
    let mut s: libc::statx = unsafe { std::mem::zeroed() };
    let time = |(sec, nsec): (i64, u32)| {
        // SAFETY: a plain struct of integers.
        let mut t: libc::statx_timestamp = unsafe { std::mem::zeroed() };
        t.tv_sec = sec;
        t.tv_nsec = nsec;
        t
    };
    s.stx_mask = libc::STATX_BASIC_STATS;
    s.stx_blksize = a.blksize;
    s.stx_nlink = a.nlink;
    s.stx_uid = a.uid;
    s.stx_gid = a.gid;
    s.stx_mode = a.mode as u16;
    s.stx_ino = a.ino;
    s.stx_size = a.size;
    s.stx_blocks = a.blocks;
    s.stx_atime = time(a.atime);
    s.stx_mtime = time(a.mtime);
    s.stx_ctime = time(a.ctime);
    if let Some(b) = a.btime {
        s.stx_btime = time(b);
        s.stx_mask |= libc::STATX_BTIME;
    }
    s.stx_dev_major = libc::major(a.dev);
    s.stx_dev_minor = libc::minor(a.dev);
    s.stx_rdev_major = libc::major(a.rdev);
    s.stx_rdev_minor = libc::minor(a.rdev);
    s
}
