//! Locks, as messages carry them.

use super::{decode, encode_into};
use crate::WireError;
use serde::{Deserialize, Serialize};

/// Byte-range lock kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockKind {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
    /// Release.
    Unlock,
}

/// Who holds a byte-range lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockOwner {
    /// The client process (`F_SETLK`).
    Process,
    /// The open file (`F_OFD_SETLK`).
    Handle,
}

/// A byte range; `len` 0 reaches to the end of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRange {
    /// What to do with it.
    pub kind: LockKind,
    /// First byte.
    pub start: u64,
    /// Number of bytes.
    pub len: u64,
}

impl LockRange {
    /// The first byte behind it.
    pub fn end(&self) -> u64 {
        if self.len == 0 { u64::MAX } else { self.start.saturating_add(self.len) }
    }

    /// Whether two processes cannot hold both at once.
    pub fn conflicts(&self, other: &LockRange) -> bool {
        let exclusive = self.kind == LockKind::Write || other.kind == LockKind::Write;
        let neither = self.kind == LockKind::Unlock || other.kind == LockKind::Unlock;
        exclusive && !neither && self.start < other.end() && other.start < self.end()
    }
}

/// A lock on a file, by the file's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRecord {
    /// The file, as [`super::Answer::Opened`] named it.
    pub identity: u64,
    /// The bytes.
    pub range: LockRange,
}

impl LockRecord {
    /// Whether two processes cannot hold both at once.
    pub fn conflicts(&self, other: &LockRecord) -> bool {
        self.identity == other.identity && self.range.conflicts(&other.range)
    }

    /// Several, for [`super::Meta::LockWait`].
    pub fn encode_all(records: &[LockRecord]) -> Vec<u8> {
        let mut out = Vec::with_capacity(records.len() * 24);
        encode_into(&records, &mut out);
        out
    }

    /// The records of a [`super::Meta::LockWait`].
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<LockRecord>, WireError> {
        decode(bytes, "locks")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicts() {
        let r = |kind, start, len| LockRecord { identity: 7, range: LockRange { kind, start, len } };
        let (read, write) = (LockKind::Read, LockKind::Write);
        assert!(r(write, 0, 10).conflicts(&r(read, 9, 1)));
        assert!(!r(write, 0, 10).conflicts(&r(write, 10, 0)));
        assert!(!r(read, 0, 0).conflicts(&r(read, 0, 0)));
        assert!(!r(LockKind::Unlock, 0, 0).conflicts(&r(write, 0, 0)));
        assert!(!r(write, 0, 0).conflicts(&LockRecord { identity: 8, ..r(write, 0, 0) }));
        let all = [r(read, 1, 2), r(write, u64::MAX, 0)];
        assert_eq!(LockRecord::decode_all(&LockRecord::encode_all(&all)), Ok(all.to_vec()));
        assert!(LockRecord::decode_all(&[0xff; 9]).is_err());
    }
}
