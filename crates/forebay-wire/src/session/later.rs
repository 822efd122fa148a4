//! Small things that are done to an open file between its making and its close, without a trip each: a client
//! puts them into a ring of memory that the node of its host has too ([`super::stream::Cells`] say how far),
//! one entry after the other. The node does them in that order: before it carries out anything that could
//! tell the difference, with the file's close, when the client has ended, and soon in any case.

use crate::WireError;
use crate::message::{Meta, SetTime, Target, append_to};
use serde::{Deserialize, Serialize};

/// The files that a process makes before it is worth an effort.
pub const FILES: u32 = 4;
/// The longest entry.
pub const LONGEST: usize = super::stream::SMALL + 64;
/// Its length, and the file's handle.
const HEAD: usize = 4 + 8;

/// What is done to an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // the fields are those of the system call of the same name
pub enum Later<'a> {
    Write {
        offset: u64,
        #[serde(borrow, with = "serde_bytes")]
        data: &'a [u8],
    },
    Chmod {
        mode: u32,
    },
    Chown {
        uid: u32,
        gid: u32,
    },
    Utimens {
        atime: SetTime,
        mtime: SetTime,
    },
}

impl<'a> Later<'a> {
    /// An entry, in the place of what `out` holds.
    pub fn encode(&self, handle: u64, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&handle.to_le_bytes());
        append_to(self, out);
        let len = (out.len() as u32).to_le_bytes();
        out[..4].copy_from_slice(&len);
    }

    /// What a change of attributes is as an entry, if it can be one.
    pub fn of(meta: &Meta<'_>) -> Option<Later<'static>> {
        Some(match *meta {
            Meta::Chmod { target: Target::Handle(_), mode } => Later::Chmod { mode },
            Meta::Chown { target: Target::Handle(_), uid, gid } => Later::Chown { uid, gid },
            Meta::Utimens { target: Target::Handle(_), atime, mtime } => Later::Utimens { atime, mtime },
            _ => return None,
        })
    }

    /// As an operation of its own; nothing for a write.
    pub fn meta(&self, handle: u64) -> Option<Meta<'static>> {
        let target = Target::Handle(handle);
        Some(match *self {
            Later::Write { .. } => return None,
            Later::Chmod { mode } => Meta::Chmod { target, mode },
            Later::Chown { uid, gid } => Meta::Chown { target, uid, gid },
            Later::Utimens { atime, mtime } => Meta::Utimens { target, atime, mtime },
        })
    }

    /// The first entry: the file's handle, what is to be done, and how long the entry is.
    pub fn decode(bytes: &'a [u8]) -> Result<(u64, Later<'a>, usize), WireError> {
        const WRONG: WireError = WireError::Malformed("entry");
        let (len, rest) = bytes.split_first_chunk().ok_or(WRONG)?;
        let (handle, _) = rest.split_first_chunk().ok_or(WRONG)?;
        let len = u32::from_le_bytes(*len) as usize;
        if !(HEAD + 1..=LONGEST).contains(&len) {
            return Err(WRONG);
        }
        let body = bytes.get(HEAD..len).ok_or(WRONG)?;
        match postcard::take_from_bytes(body) {
            Ok((what, [])) => Ok((u64::from_le_bytes(*handle), what, len)),
            _ => Err(WRONG),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_after_the_other() {
        let all = [
            Later::Write { offset: 5, data: b"words" },
            Later::Chmod { mode: 0o644 },
            Later::Chown { uid: 1, gid: u32::MAX },
            Later::Utimens { atime: SetTime::Omit, mtime: SetTime::At(-1, 5) },
        ];
        let (mut ring, mut entry) = (Vec::new(), Vec::new());
        for (i, what) in all.iter().enumerate() {
            what.encode(i as u64, &mut entry);
            ring.extend_from_slice(&entry);
        }
        let mut at = 0;
        for (i, what) in all.iter().enumerate() {
            let (handle, found, len) = Later::decode(&ring[at..]).unwrap();
            assert_eq!((handle, &found), (i as u64, what));
            assert_eq!(what.meta(3).map(|meta| Later::of(&meta)), (i > 0).then_some(Some(*what)));
            at += len;
        }
        assert_eq!(at, ring.len());
        assert!(Later::decode(&ring[at..]).is_err(), "nothing more");
        assert!(Later::decode(&ring[..10]).is_err(), "cut off");
        for len in [0, 11, 12, u32::MAX] {
            let mut wrong = ring.clone();
            wrong[..4].copy_from_slice(&len.to_le_bytes());
            assert!(Later::decode(&wrong).is_err(), "{len}");
        }
        let most = vec![7; super::super::stream::SMALL];
        Later::Write { offset: u64::MAX, data: &most }.encode(u64::MAX, &mut entry);
        assert!(Later::decode(&entry).is_ok());
    }
}
