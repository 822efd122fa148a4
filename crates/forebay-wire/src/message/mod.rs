//! Metadata operations and their answers. Data (read, write, append) travels in the header and the
//! raw body instead; everything else is a [`Meta`], encoded with postcard.

mod answer;
mod lock;

pub use answer::{Answer, Attr, Entry, Fate, FileSnapshot, FsStat, SMALL_FILE};
pub use lock::{LockKind, LockOwner, LockRange, LockRecord};

use crate::flags::OpenFlags;
use crate::hello::{Incarnation, SessionId};
use crate::session::call::Kind;
use crate::{MAX_META, MAX_NAME, MAX_PATH, WireError};
use serde::{Deserialize, Serialize};

/// An exported directory, by its place in [`crate::hello::Welcome::exports`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ExportId(pub u16);

/// A path below an export. Empty means the export itself. The node resolves it beneath the export;
/// `..` and symbolic links that leave it fail with `EXDEV` and [`crate::frame::flag::ESCAPES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Path<'a> {
    /// Below which export.
    pub export: ExportId,
    /// Relative to it.
    #[serde(borrow, with = "serde_bytes")]
    pub rel: &'a [u8],
}

/// What an operation that takes either is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target<'a> {
    /// By name, following a symbolic link at the end.
    #[serde(borrow)]
    Path(Path<'a>),
    /// By name, the link itself.
    Link(Path<'a>),
    /// By open file.
    Handle(u64),
}

/// A point in time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetTime {
    /// Leave it.
    Omit,
    /// The node's now.
    Now,
    /// Seconds and nanoseconds since the epoch.
    At(i64, u32),
}

/// Which end of data or hole to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SeekKind {
    /// The next data.
    Data,
    /// The next hole.
    Hole,
}

/// Where in the mode of what is made its umask begins; below are permissions and kind.
pub const UMASK_SHIFT: u32 = 16;

/// A metadata operation. Locks never block on the node: the client asks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // the fields are those of the system call of the same name
pub enum Meta<'a> {
    /// Open, create; the answer is [`Answer::Opened`]. `identity` is not 0 when the client opens again
    /// what it had open before: another file of that name is then `ESTALE`.
    /// `mode` of what is made: its permissions, and from [`UMASK_SHIFT`] on the umask to make it under, which
    /// counts only where the directory has no default access control list.
    Open {
        #[serde(borrow)]
        path: Path<'a>,
        flags: OpenFlags,
        mode: u32,
        identity: u64,
    },
    /// Forget the handle.
    Close {
        handle: u64,
    },
    /// Take over an open file of another session of the same job (after fork or exec).
    Adopt {
        session: SessionId,
        handle: u64,
    },
    Fsync {
        handle: u64,
        data_only: bool,
    },
    Stat {
        target: Target<'a>,
    },
    Truncate {
        target: Target<'a>,
        size: u64,
    },
    Fallocate {
        handle: u64,
        mode: i32,
        offset: u64,
        len: u64,
    },
    Unlink {
        path: Path<'a>,
    },
    Rmdir {
        path: Path<'a>,
    },
    Mkdir {
        path: Path<'a>,
        mode: u32,
    },
    Mknod {
        path: Path<'a>,
        mode: u32,
        dev: u64,
    },
    /// `flags` as for `renameat2`.
    Rename {
        from: Path<'a>,
        to: Path<'a>,
        flags: u32,
    },
    Link {
        from: Target<'a>,
        to: Path<'a>,
    },
    Symlink {
        #[serde(with = "serde_bytes")]
        target: &'a [u8],
        path: Path<'a>,
    },
    Readlink {
        path: Path<'a>,
    },
    Chmod {
        target: Target<'a>,
        mode: u32,
    },
    /// `u32::MAX` leaves an id as it is.
    Chown {
        target: Target<'a>,
        uid: u32,
        gid: u32,
    },
    Utimens {
        target: Target<'a>,
        atime: SetTime,
        mtime: SetTime,
    },
    /// Entries of an open directory after `cookie` (0: from the start), about `max` bytes of them.
    Readdir {
        handle: u64,
        cookie: u64,
        max: u32,
    },
    /// `effective`: check the effective ids (`AT_EACCESS`).
    Access {
        path: Path<'a>,
        mode: u32,
        follow: bool,
    },
    Statfs {
        target: Target<'a>,
    },
    Getxattr {
        target: Target<'a>,
        #[serde(with = "serde_bytes")]
        name: &'a [u8],
    },
    Setxattr {
        target: Target<'a>,
        #[serde(with = "serde_bytes")]
        name: &'a [u8],
        #[serde(with = "serde_bytes")]
        value: &'a [u8],
        flags: i32,
    },
    Listxattr {
        target: Target<'a>,
    },
    Removexattr {
        target: Target<'a>,
        #[serde(with = "serde_bytes")]
        name: &'a [u8],
    },
    /// Try to change a byte-range lock: done, or `EAGAIN`.
    Lock {
        handle: u64,
        owner: LockOwner,
        range: LockRange,
    },
    /// Who would be in the way; the answer is [`Answer::Lock`].
    TestLock {
        handle: u64,
        owner: LockOwner,
        range: LockRange,
    },
    /// Try `flock`: `kind` on the whole open file.
    Flock {
        handle: u64,
        kind: LockKind,
    },
    Seek {
        handle: u64,
        offset: u64,
        kind: SeekKind,
    },
    /// The flags of `F_SETFL` that reach the file (append, direct).
    SetFlags {
        handle: u64,
        flags: OpenFlags,
    },
    /// Where the clients of this job belong; the answer is [`Answer::Mapping`].
    Mapping,
    /// What became of a node process of this host and of the request `id` (0: of none) that `session`
    /// first sent it `age_ms` ago; the answer is [`Answer::Verdict`].
    Verdict {
        incarnation: Incarnation,
        session: SessionId,
        id: u64,
        age_ms: u32,
    },
    /// To the job's home node: this process waits for `wanted`, while it holds `held`
    /// ([`LockRecord::encode_all`]). `EDEADLK` if that closes a circle. Refreshed while it waits;
    /// with [`LockKind::Unlock`] the wait is over.
    LockWait {
        wanted: LockRecord,
        #[serde(with = "serde_bytes")]
        held: &'a [u8],
    },
    /// Who, among the processes this node serves, holds a lock in the way of `range` on the file of
    /// that identity; the answer is [`Answer::Lock`].
    LockHolder {
        identity: u64,
        range: LockRange,
    },
    /// Memory that both ends share, for an open file ([`crate::session::stream`]). Refused (`EOPNOTSUPP`)
    /// where they do not run on one host for one user.
    Share {
        handle: u64,
        how: Sharing,
    },
}

/// What is shared. `fd`: the client's descriptor of the memory, which cannot shrink and begins with `nonce`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // said above
pub enum Sharing {
    /// The client writes into the memory. `EBUSY` if somebody does so already for this file.
    Write { fd: i32, nonce: u64 },
    /// The client has a ring for small things that are done to the files it makes
    /// ([`crate::session::later`]); `handle` is none.
    Later { fd: i32, nonce: u64 },
    /// The client places what it writes through this connection in large pieces
    /// ([`crate::frame::flag::PLACED`]); `handle` is none.
    Payload { fd: i32, nonce: u64 },
    /// All that the client has written to memory is to be in the file now.
    Settle,
    /// The same, and nothing is shared any more. The answer is the error if something could not be written.
    End,
    /// The file is used past this node (mapped into memory): nobody may share it any more.
    Never,
    /// What anybody has written to any file is to be in it now: a program begins that asks no node.
    SettleAll,
}

impl<'a> Meta<'a> {
    /// Every operation's name, by [`Meta::index`].
    pub const NAMES: &'static [&'static str] = &[
        "open",
        "close",
        "adopt",
        "fsync",
        "stat",
        "truncate",
        "fallocate",
        "unlink",
        "rmdir",
        "mkdir",
        "mknod",
        "rename",
        "link",
        "symlink",
        "readlink",
        "chmod",
        "chown",
        "utimens",
        "readdir",
        "access",
        "statfs",
        "getxattr",
        "setxattr",
        "listxattr",
        "removexattr",
        "lock",
        "testlock",
        "flock",
        "seek",
        "setflags",
        "mapping",
        "verdict",
        "lockwait",
        "lockholder",
        "share",
    ];

    /// The operation's place in [`Meta::NAMES`].
    pub fn index(&self) -> usize {
        match self {
            Meta::Open { .. } => 0,
            Meta::Close { .. } => 1,
            Meta::Adopt { .. } => 2,
            Meta::Fsync { .. } => 3,
            Meta::Stat { .. } => 4,
            Meta::Truncate { .. } => 5,
            Meta::Fallocate { .. } => 6,
            Meta::Unlink { .. } => 7,
            Meta::Rmdir { .. } => 8,
            Meta::Mkdir { .. } => 9,
            Meta::Mknod { .. } => 10,
            Meta::Rename { .. } => 11,
            Meta::Link { .. } => 12,
            Meta::Symlink { .. } => 13,
            Meta::Readlink { .. } => 14,
            Meta::Chmod { .. } => 15,
            Meta::Chown { .. } => 16,
            Meta::Utimens { .. } => 17,
            Meta::Readdir { .. } => 18,
            Meta::Access { .. } => 19,
            Meta::Statfs { .. } => 20,
            Meta::Getxattr { .. } => 21,
            Meta::Setxattr { .. } => 22,
            Meta::Listxattr { .. } => 23,
            Meta::Removexattr { .. } => 24,
            Meta::Lock { .. } => 25,
            Meta::TestLock { .. } => 26,
            Meta::Flock { .. } => 27,
            Meta::Seek { .. } => 28,
            Meta::SetFlags { .. } => 29,
            Meta::Mapping => 30,
            Meta::Verdict { .. } => 31,
            Meta::LockWait { .. } => 32,
            Meta::LockHolder { .. } => 33,
            Meta::Share { .. } => 34,
        }
    }

    /// The operation's name, for reports.
    pub fn name(&self) -> &'static str {
        Meta::NAMES[self.index()]
    }

    /// Whether doing it twice is not the same as doing it once, so that a node remembers its answer.
    pub fn needs_reply_cache(&self) -> bool {
        match self {
            Meta::Open { flags, .. } => {
                flags.has(OpenFlags::EXCL) || flags.has(OpenFlags::TMPFILE) || flags.has(OpenFlags::TRUNC)
            }
            Meta::Unlink { .. }
            | Meta::Rmdir { .. }
            | Meta::Mkdir { .. }
            | Meta::Mknod { .. }
            | Meta::Rename { .. }
            | Meta::Link { .. }
            | Meta::Symlink { .. }
            | Meta::Setxattr { .. }
            | Meta::Removexattr { .. }
            | Meta::Fallocate { .. }
            | Meta::Truncate { .. } => true,
            _ => false,
        }
    }

    /// Whether it changes anything that others can see, so that it needs a session's valid lease.
    pub fn changes(&self) -> bool {
        match self {
            Meta::Open { flags, .. } => {
                flags.has(OpenFlags::CREATE) || flags.has(OpenFlags::TRUNC) || flags.has(OpenFlags::TMPFILE)
            }
            Meta::Close { .. }
            | Meta::Adopt { .. }
            | Meta::Fsync { .. }
            | Meta::Stat { .. }
            | Meta::Readlink { .. }
            | Meta::Readdir { .. }
            | Meta::Access { .. }
            | Meta::Statfs { .. }
            | Meta::Getxattr { .. }
            | Meta::Listxattr { .. }
            | Meta::TestLock { .. }
            | Meta::Seek { .. }
            | Meta::SetFlags { .. }
            | Meta::Mapping
            | Meta::Verdict { .. }
            | Meta::LockWait { .. }
            | Meta::LockHolder { .. }
            | Meta::Share { .. } => false,
            Meta::Truncate { .. }
            | Meta::Fallocate { .. }
            | Meta::Unlink { .. }
            | Meta::Rmdir { .. }
            | Meta::Mkdir { .. }
            | Meta::Mknod { .. }
            | Meta::Rename { .. }
            | Meta::Link { .. }
            | Meta::Symlink { .. }
            | Meta::Chmod { .. }
            | Meta::Chown { .. }
            | Meta::Utimens { .. }
            | Meta::Setxattr { .. }
            | Meta::Removexattr { .. }
            | Meta::Lock { .. }
            | Meta::Flock { .. } => true,
        }
    }

    /// What it makes or changes attributes of: a look at it afterwards may be asked for with it.
    pub fn subject(&self) -> Option<Target<'a>> {
        match *self {
            Meta::Mkdir { path, .. } | Meta::Mknod { path, .. } | Meta::Symlink { path, .. } => {
                Some(Target::Link(path))
            }
            Meta::Link { to, .. } => Some(Target::Link(to)),
            Meta::Chmod { target, .. }
            | Meta::Chown { target, .. }
            | Meta::Utimens { target, .. }
            | Meta::Truncate { target, .. } => Some(target),
            _ => None,
        }
    }

    /// What a client must know before it sends it a second time.
    pub fn kind(&self) -> Kind {
        match self {
            Meta::Truncate { .. } => Kind::Again,
            Meta::Open { flags, .. } if !flags.has(OpenFlags::EXCL) && !flags.has(OpenFlags::TMPFILE) => {
                if self.changes() {
                    Kind::Again
                } else {
                    Kind::Look
                }
            }
            _ if self.needs_reply_cache() => Kind::Once,
            _ if self.changes() => Kind::Again,
            _ => Kind::Look,
        }
    }

    /// Decodes a request's body. Paths are checked by [`Path::check`].
    pub fn decode(body: &'a [u8]) -> Result<Meta<'a>, WireError> {
        let (meta, rest) = postcard::take_from_bytes(body).map_err(|_| WireError::Malformed("metadata"))?;
        if !rest.is_empty() {
            return Err(WireError::Malformed("metadata"));
        }
        Ok(meta)
    }

    /// Encodes into `out`, replacing what it holds.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode_into(self, out);
    }
}

impl Path<'_> {
    /// The errno for a path that no file can have, if it is one.
    pub fn check(&self) -> Result<(), i32> {
        if self.rel.len() >= MAX_PATH {
            return Err(libc::ENAMETOOLONG);
        }
        if self.rel.contains(&0) {
            return Err(libc::EINVAL);
        }
        if self.rel.starts_with(b"/") {
            return Err(libc::EXDEV);
        }
        if self.rel.split(|&b| b == b'/').any(|name| name.len() > MAX_NAME) {
            return Err(libc::ENAMETOOLONG);
        }
        Ok(())
    }
}

/// Decodes a handshake message.
pub fn decode<'a, T: Deserialize<'a>>(body: &'a [u8], what: &'static str) -> Result<T, WireError> {
    postcard::from_bytes(body).map_err(|_| WireError::Malformed(what))
}

/// Encodes any message of this crate into `out`, replacing what it holds.
pub fn encode_into<T: Serialize>(message: &T, out: &mut Vec<u8>) {
    out.clear();
    append_to(message, out);
    debug_assert!(out.len() <= MAX_META as usize);
}

/// Encodes any message of this crate behind what `out` holds.
pub fn append_to<T: Serialize>(message: &T, out: &mut Vec<u8>) {
    *out = postcard::to_extend(message, std::mem::take(out)).expect("a Vec takes any message");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(rel: &[u8]) -> Path<'_> {
        Path { export: ExportId(0), rel }
    }

    #[test]
    fn round_trip() {
        let ops = [
            Meta::Open { path: path(b"a/b"), flags: OpenFlags::READ, mode: 0o644, identity: 0 },
            Meta::Rename { from: path(b"x"), to: path(b"y"), flags: 1 },
            Meta::Verdict {
                incarnation: Incarnation([1; 16]),
                session: SessionId([2; 16]),
                id: 3,
                age_ms: 4,
            },
            Meta::Setxattr { target: Target::Handle(4), name: b"user.a", value: &[0, 255], flags: 0 },
            Meta::Utimens {
                target: Target::Link(path(b"l")),
                atime: SetTime::Omit,
                mtime: SetTime::At(-1, 5),
            },
        ];
        let mut buf = Vec::new();
        for op in ops {
            op.encode(&mut buf);
            assert_eq!(Meta::decode(&buf), Ok(op));
            buf.push(0);
            assert!(Meta::decode(&buf).is_err(), "trailing bytes are refused");
        }
        let answer =
            Answer::Entries { entries: vec![Entry { ino: 1, next: 2, kind: 4, name: b"d" }], end: true };
        answer.encode(&mut buf);
        assert_eq!(Answer::decode(&buf), Ok(answer));
    }

    #[test]
    fn bad_paths() {
        assert_eq!(path(&[b'a'; 256]).check(), Err(libc::ENAMETOOLONG));
        assert_eq!(path(&b"a/".repeat(2100)).check(), Err(libc::ENAMETOOLONG));
        assert_eq!(path(b"a\0b").check(), Err(libc::EINVAL));
        assert_eq!(path(b"/etc").check(), Err(libc::EXDEV));
        assert_eq!(path(b"a/../b").check(), Ok(()));
    }

    proptest! {
        #[test]
        fn hostile_bodies(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Meta::decode(&bytes);
            let _ = Answer::decode(&bytes);
            let _ = decode::<crate::hello::Hello<'_>>(&bytes, "hello");
        }
    }
}
