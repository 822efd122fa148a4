//! What a node answers.

use super::{LockRange, append_to, encode_into};
use crate::WireError;
use crate::session::board::Still;
use forebay_types::Epoch;
use serde::{Deserialize, Serialize};

/// Attributes of a file, as `statx` gives them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // the fields are statx's
pub struct Attr {
    pub dev: u64,
    pub ino: u64,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u64,
    pub size: u64,
    pub blksize: u32,
    pub blocks: u64,
    pub atime: (i64, u32),
    pub mtime: (i64, u32),
    pub ctime: (i64, u32),
    /// Birth time, where the file system knows it.
    pub btime: Option<(i64, u32)>,
}

/// One entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry<'a> {
    /// Inode number.
    pub ino: u64,
    /// Where the next entry starts: a cookie for [`super::Meta::Readdir`].
    pub next: u64,
    /// `DT_*`.
    pub kind: u8,
    /// The name.
    #[serde(borrow, with = "serde_bytes")]
    pub name: &'a [u8],
}

/// File system totals, as `statfs` gives them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // the fields are statfs's
pub struct FsStat {
    pub bsize: u64,
    pub frsize: u64,
    pub blocks: u64,
    pub bfree: u64,
    pub bavail: u64,
    pub files: u64,
    pub ffree: u64,
    pub fsid: u64,
    pub namelen: u64,
    pub flags: u64,
    pub kind: u64,
}

/// What a node saw of a file that it opened, as long as the counts on its [`crate::session::board`] hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSnapshot<'a> {
    /// The counts.
    pub still: Still,
    /// All that is in the file, if it was opened to be read and is small.
    #[serde(borrow, with = "serde_bytes")]
    pub contents: Option<&'a [u8]>,
    /// Small things may be done to it later ([`crate::session::later`]).
    pub later: bool,
}

/// The most that is in a file of which the whole comes with the answer to its open.
pub const SMALL_FILE: u64 = 32 << 10;

/// The answer to a [`super::Meta`] that succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer<'a> {
    /// Done.
    Done,
    /// The file is open.
    Opened {
        /// Its handle on this node.
        handle: u64,
        /// Its attributes.
        attr: Attr,
        /// What tells it from any other file that had or will have its inode number; never 0.
        identity: u64,
        /// How long this stays true, if it was asked for ([`crate::flags::OpenFlags::SEEN`]).
        #[serde(borrow)]
        seen: Option<FileSnapshot<'a>>,
    },
    /// Attributes.
    Attr(Attr),
    /// File system totals.
    Fs(FsStat),
    /// A link's target, an attribute's value, a list of names separated by NUL.
    #[serde(borrow)]
    Bytes(#[serde(with = "serde_bytes")] &'a [u8]),
    /// Directory entries.
    Entries {
        /// The entries, in order.
        entries: Vec<Entry<'a>>,
        /// Whether the directory ends here.
        end: bool,
    },
    /// Where data or a hole begins.
    Offset(u64),
    /// The lock in the way, and its owner's process id there; `None` if the range is free.
    Lock(Option<(LockRange, u32)>),
    /// The job's I/O nodes.
    Mapping {
        /// The version; 0 if nobody has mapped this job.
        epoch: Epoch,
        /// Their addresses. Client number i uses the i-th, and around.
        #[serde(borrow)]
        nodes: Vec<&'a str>,
    },
    /// What became of a node process and of a request to it.
    Verdict {
        /// This node can read that process's ledger; otherwise the rest says nothing.
        known: bool,
        /// The process has ended, and no system call of it is under way.
        dead: bool,
        /// What the ledger says of the request.
        fate: Fate,
    },
}

/// What a ledger says of a request that must not be done twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// It was not begun.
    Absent,
    /// It was begun; how it ended is not known.
    Begun,
    /// It ended.
    Done {
        /// 0, or why it failed.
        errno: u32,
        /// What else its answer said: of an append, where it landed and how much; of a file made, its
        /// identity.
        values: [u64; 4],
    },
    /// The ledger does not reach back so far.
    Forgotten,
}

impl<'a> Answer<'a> {
    /// Decodes a reply's body.
    pub fn decode(body: &'a [u8]) -> Result<Answer<'a>, WireError> {
        postcard::from_bytes(body).map_err(|_| WireError::Malformed("answer"))
    }

    /// Encodes into `out`, replacing what it holds.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode_into(self, out);
    }

    /// Encodes behind what `out` holds, so that a header and its body are one piece.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        append_to(self, out);
    }
}
