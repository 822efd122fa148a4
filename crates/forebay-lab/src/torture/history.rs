//! What a worker did, as it goes into a file: one line each.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What kind of object an operation was on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) enum Kind {
    /// A word of a shared file.
    Block,
    /// A file that is appended to.
    Log,
    /// Two symbolic links.
    Links,
    /// Two directories.
    Dirs,
    /// Two files.
    Files,
    /// A number in a file, under a lock.
    Counter,
    /// A block of a file that one thread writes and syncs.
    Durable,
    /// The length of a file.
    Length,
    /// A file that is open while another gets its name.
    Replaced,
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Act {
    Write(u64),
    Read(u64),
    /// A record; where it ended.
    Append(u64, u64),
    /// A name, and what it is to stand for.
    Make(usize, u64),
    Remove(usize),
    /// From that name to the other one.
    Rename(usize),
    Look(usize, Option<u64>),
    /// What the counter was before.
    Add(u64),
    Sync,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum End {
    Done,
    /// With an errno that says that it was not done.
    Refused(i32),
    /// With an errno that leaves it open.
    Open(i32),
}

/// An operation. Times are nanoseconds of the machine's monotonic clock.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    #[serde(rename = "w")]
    pub(super) worker: u32,
    #[serde(rename = "k")]
    pub(super) kind: Kind,
    #[serde(rename = "o")]
    pub(super) object: u64,
    #[serde(rename = "b")]
    pub(super) begun: u64,
    #[serde(rename = "e")]
    pub(super) ended: u64,
    #[serde(rename = "a")]
    pub(super) act: Act,
    #[serde(rename = "r")]
    pub(super) end: End,
    /// Meanwhile the client said of a write that it may have been carried out twice: its node was gone.
    #[serde(rename = "x", default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) repeated: bool,
}

/// A line of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Line {
    /// An operation.
    #[serde(rename = "o")]
    Op(Entry),
    /// A call that failed though it must not; which, after how many nanoseconds, with which errno.
    Failed { what: String, begun: u64, took: u64, errno: i32 },
    /// One that failed at its deadline.
    Late { what: String, begun: u64, took: u64, errno: i32 },
    /// One that told that something since then is lost with its node: if that was killed, or if it was harmed at all.
    Lost { what: String, since: u64, ended: u64, killed: bool },
    /// One of the first of its kind that were told `EIO`.
    Told { what: String, begun: u64, ended: u64 },
    /// A call that never returned.
    Hung { what: String, begun: u64 },
    /// At the end: how many calls there were, and how long the longest took; and how many of each kind were told `EIO`.
    Calls { count: u64, longest: u64, what: String, told: BTreeMap<String, Times> },
}

/// How often something was, and when first and last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Times {
    pub(super) count: u64,
    pub(super) first: u64,
    pub(super) last: u64,
}

impl Times {
    pub(super) fn once(at: u64) -> Times {
        Times { count: 1, first: at, last: at }
    }

    pub(super) fn add(&mut self, more: Times) {
        self.count += more.count;
        (self.first, self.last) = (self.first.min(more.first), self.last.max(more.last));
    }
}

/// The machine's monotonic clock, the same in all its processes.
pub(super) fn now() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (t.tv_sec as u64) * 1_000_000_000 + t.tv_nsec as u64
}
