//! Whom an I/O node acts as when it carries a job's requests out.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The user and group that root becomes where it counts for nothing.
const NOBODY: u32 = 65_534;

/// More groups than this no process has (`NGROUPS_MAX`).
const MOST_GROUPS: usize = 65_536;

/// A user as the file system knows one: by numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// The user.
    pub uid: u32,
    /// The user's own group: what is made belongs to it.
    pub gid: u32,
    /// All further groups.
    #[serde(default)]
    pub groups: Vec<u32>,
}

impl Identity {
    /// Who owns nothing and belongs nowhere.
    pub const fn nobody() -> Identity {
        Identity { uid: NOBODY, gid: NOBODY, groups: Vec::new() }
    }

    /// Whether the kernel could take these numbers: the largest one means "as it is" to it.
    pub fn is_usable(&self) -> bool {
        let all = [self.uid, self.gid];
        all.iter().chain(&self.groups).all(|&id| id != u32::MAX) && self.groups.len() <= MOST_GROUPS
    }

    /// As everybody else is served: root, and who is only in root's group, counts for nothing.
    pub fn squashed(self) -> Identity {
        if self.uid == 0 {
            return Identity::nobody();
        }
        let squash = |gid| if gid == 0 { NOBODY } else { gid };
        Identity { gid: squash(self.gid), groups: self.groups.into_iter().map(squash).collect(), ..self }
    }

    /// Whether a file of this mode, user and group lets them do all of `wanted` (the bits of one class: 4 reads, 2
    /// writes). What an access control list allows beyond its mode is not known here.
    pub fn may(&self, wanted: u32, mode: u32, uid: u32, gid: u32) -> bool {
        let class = match self.uid == uid {
            true => mode >> 6,
            false if self.gid == gid || self.groups.contains(&gid) => mode >> 3,
            false => mode,
        };
        class & wanted == wanted
    }

    /// `UID:GID` or `UID:GID:GROUP,GROUP`.
    pub fn from_numbers(text: &str) -> Option<Identity> {
        let mut parts = text.splitn(3, ':');
        let (uid, gid) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let groups = match parts.next() {
            Some(list) => list.split(',').map(|g| g.trim().parse().ok()).collect::<Option<_>>()?,
            None => Vec::new(),
        };
        Some(Identity { uid, gid, groups }).filter(Identity::is_usable)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "uid {}, gid {}", self.uid, self.gid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_squashing() {
        let some = Identity::from_numbers("7:8:9,10").unwrap();
        assert_eq!(some, Identity { uid: 7, gid: 8, groups: vec![9, 10] });
        assert_eq!(some.clone().squashed(), some);
        assert!(Identity::from_numbers("7:8").unwrap().groups.is_empty());
        for wrong in ["", "7", "7:", "a:b", "7:8:", "7:8:x", "4294967295:1", "1:4294967295", "1:2:4294967295"]
        {
            assert_eq!(Identity::from_numbers(wrong), None, "{wrong}");
        }
        let who = Identity::from_numbers("7:8:9").unwrap();
        let may = |mode, uid, gid| [4, 2, 6].map(|wanted| who.may(wanted, mode, uid, gid));
        assert_eq!(may(0o100400, 7, 8), [true, false, false]);
        assert_eq!(may(0o077, 7, 8), [false; 3], "one's own is judged as that");
        assert_eq!(may(0o640, 1, 9), [true, false, false]);
        assert_eq!(may(0o606, 1, 8), [false; 3]);
        assert_eq!(may(0o606, 1, 1), [true; 3]);
        assert_eq!(Identity::from_numbers("0:0").unwrap().squashed(), Identity::nobody());
        let rooted = Identity::from_numbers("7:0:0,5").unwrap().squashed();
        assert_eq!(rooted, Identity { uid: 7, gid: NOBODY, groups: vec![NOBODY, 5] });
    }
}
