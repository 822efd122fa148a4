//! The kernel's side of FUSE: the structures of `linux/fuse.h`, protocol 7, and the bits used here.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The protocol's major version.
pub(crate) const MAJOR: u32 = 7;
/// The newest minor version whose structures stand here.
pub(crate) const MINOR: u32 = 38;
/// The oldest kernel that is served: 4.20, which has everything below.
pub(crate) const MINOR_MIN: u32 = 28;
/// The inode number of the mount's root.
pub(crate) const ROOT: u64 = 1;

macro_rules! opcodes {
    ($($name:ident = $value:expr;)*) => {
        /// What the kernel can ask.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Opcode { $($name),* }

        impl Opcode {
            pub(crate) fn of(raw: u32) -> Option<Opcode> {
                match raw { $($value => Some(Opcode::$name),)* _ => None }
            }
        }
    };
}

opcodes! {
    Lookup = 1; Forget = 2; Getattr = 3; Setattr = 4; Readlink = 5; Symlink = 6; Mknod = 8; Mkdir = 9;
    Unlink = 10; Rmdir = 11; Rename = 12; Link = 13; Open = 14; Read = 15; Write = 16; Statfs = 17;
    Release = 18; Fsync = 20; Setxattr = 21; Getxattr = 22; Listxattr = 23; Removexattr = 24; Flush = 25;
    Init = 26; Opendir = 27; Readdir = 28; Releasedir = 29; Fsyncdir = 30; Getlk = 31; Setlk = 32;
    Setlkw = 33; Access = 34; Create = 35; Interrupt = 36; Destroy = 38; Ioctl = 39; BatchForget = 42;
    Fallocate = 43; Rename2 = 45; Lseek = 46; CopyFileRange = 47; Tmpfile = 51;
}

/// Bits of `INIT`.
pub(crate) mod init {
    pub(crate) const ASYNC_READ: u64 = 1;
    pub(crate) const POSIX_LOCKS: u64 = 1 << 1;
    pub(crate) const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    pub(crate) const FLOCK_LOCKS: u64 = 1 << 10;
    pub(crate) const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const WRITEBACK_CACHE: u64 = 1 << 16;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
}

/// Bits of [`SetattrIn::valid`].
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

pub(crate) const FOPEN_DIRECT_IO: u32 = 1;
pub(crate) const FOPEN_KEEP_CACHE: u32 = 1 << 1;
pub(crate) const FOPEN_CACHE_DIR: u32 = 1 << 3;
pub(crate) const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
pub(crate) const GETATTR_FH: u32 = 1;
pub(crate) const LK_FLOCK: u32 = 1;
/// A read of a program's: others are the kernel's own, for the pages of a mapping.
pub(crate) const READ_LOCKOWNER: u32 = 1 << 1;
pub(crate) const WRITE_CACHE: u32 = 1;
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
pub(crate) const OPEN_KILL_SUIDGID: u32 = 1;
pub(crate) const FSYNC_FDATASYNC: u32 = 1;
/// In the place of an answer's error: the kernel is to write out and forget the pages of an inode.
pub(crate) const NOTIFY_INVAL_INODE: i32 = 2;

macro_rules! layouts {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty),* $(,)? })*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name { $(pub(crate) $field: $kind),* })*
    };
}

layouts! {
    InHeader { len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32, extlen: u16, pad: u16 }
    OutHeader { len: u32, error: i32, unique: u64 }
    Attr {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32,
        ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    EntryOut {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32,
        attr_valid_nsec: u32, attr: Attr,
    }
    AttrOut { attr_valid: u64, attr_valid_nsec: u32, pad: u32, attr: Attr }
    InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32 }
    InitOut {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16, congestion: u16,
        max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16, flags2: u32, unused: [u32; 7],
    }
    ForgetIn { nlookup: u64 }
    BatchForgetIn { count: u32, pad: u32 }
    ForgetOne { nodeid: u64, nlookup: u64 }
    GetattrIn { flags: u32, pad: u32, fh: u64 }
    SetattrIn {
        valid: u32, pad: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    MknodIn { mode: u32, rdev: u32, umask: u32, pad: u32 }
    MkdirIn { mode: u32, umask: u32 }
    RenameIn { newdir: u64 }
    Rename2In { newdir: u64, flags: u32, pad: u32 }
    LinkIn { oldnodeid: u64 }
    OpenIn { flags: u32, open_flags: u32 }
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    OpenOut { fh: u64, open_flags: u32, backing: u32 }
    ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    FlushIn { fh: u64, unused: u32, pad: u32, lock_owner: u64 }
    /// Of reads and writes alike.
    TransferIn { fh: u64, offset: u64, size: u32, what: u32, lock_owner: u64, flags: u32, pad: u32 }
    WriteOut { size: u32, pad: u32 }
    Statfs {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32,
        pad: u32, spare: [u32; 6],
    }
    FsyncIn { fh: u64, flags: u32, pad: u32 }
    SetxattrIn { size: u32, flags: u32 }
    GetxattrIn { size: u32, pad: u32 }
    GetxattrOut { size: u32, pad: u32 }
    FileLock { start: u64, end: u64, kind: u32, pid: u32 }
    LkIn { fh: u64, owner: u64, lk: FileLock, flags: u32, pad: u32 }
    AccessIn { mask: u32, pad: u32 }
    InterruptIn { unique: u64 }
    FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, pad: u32 }
    LseekIn { fh: u64, offset: u64, whence: u32, pad: u32 }
    LseekOut { offset: u64 }
    CopyIn { fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64 }
    IoctlIn { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    IoctlOut { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    Dirent { ino: u64, off: u64, namelen: u32, kind: u32 }
    InvalInode { ino: u64, off: i64, len: i64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_sizes() {
        assert_eq!(size_of::<InHeader>(), 40);
        assert_eq!(size_of::<OutHeader>(), 16);
        assert_eq!(size_of::<Attr>(), 88);
        assert_eq!(size_of::<EntryOut>(), 128);
        assert_eq!(size_of::<AttrOut>(), 104);
        assert_eq!(size_of::<InitOut>(), 64);
        assert_eq!(size_of::<SetattrIn>(), 88);
        assert_eq!(size_of::<TransferIn>(), 40);
        assert_eq!(size_of::<Statfs>(), 80);
        assert_eq!(size_of::<LkIn>(), 48);
        assert_eq!(size_of::<IoctlIn>(), 32);
        assert_eq!(size_of::<IoctlOut>(), 16);
        assert_eq!(size_of::<CopyIn>(), 56);
        assert_eq!(size_of::<Dirent>(), 24);
    }
}
