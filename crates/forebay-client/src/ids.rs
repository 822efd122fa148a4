//! Whose files are shown. In a user namespace of one user only that user and one group have numbers;
//! the kernel lets nobody write to a file whose owner or group has none there.

use forebay_wire::message::Attr;
use serde::{Deserialize, Serialize};

/// The file in a run's directory that tells of it.
pub const IDS: &str = "ids";
/// Whom the kernel shows where an owner has no number.
const NOBODY: u32 = 65534;

/// How owners and groups are shown, and who checks permissions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ids {
    /// As they are; the kernel checks permissions, and what is made belongs to whoever made it. For
    /// mounts of root.
    All,
    /// As they are; the I/O node checks permissions. For the mount of one user on the machine itself.
    AsTheyAre,
    /// In a user namespace: what the user may write to is shown as the user's own, since the kernel
    /// would refuse it otherwise; everything else as nobody's. The I/O node checks permissions.
    Mapped {
        /// The user.
        uid: u32,
        /// The user's group.
        gid: u32,
        /// The user's further groups.
        groups: Vec<u32>,
    },
}

impl Ids {
    /// Whether the kernel is to check permissions.
    pub fn kernel_checks(&self) -> bool {
        matches!(self, Ids::All)
    }

    /// The owner and the group to show.
    pub fn shown(&self, attr: &Attr) -> (u32, u32) {
        let Ids::Mapped { uid, gid, groups } = self else { return (attr.uid, attr.gid) };
        let in_group = attr.gid == *gid || groups.contains(&attr.gid);
        let may_write = attr.uid == *uid || (in_group && attr.mode & 0o020 != 0) || attr.mode & 0o002 != 0;
        if may_write { (*uid, *gid) } else { (attr.uid, attr.gid) }
    }

    /// The same as the processes see it for which the mount was made: in the user namespace of one user nobody else has a number.
    pub fn seen(&self, attr: &Attr) -> (u32, u32) {
        let (owner, group) = self.shown(attr);
        let Ids::Mapped { uid, gid, .. } = self else { return (owner, group) };
        (if owner == *uid { owner } else { NOBODY }, if group == *gid { group } else { NOBODY })
    }

    /// The numbers that a process has which sees them so, as the kernel tells them (`/proc/self/uid_map`): the first inside, the
    /// first outside, and how many. Nothing: whoever they are.
    pub fn numbers(&self) -> Option<[u32; 3]> {
        match self {
            Ids::All => Some([0, 0, u32::MAX]),
            Ids::AsTheyAre => None,
            Ids::Mapped { uid, .. } => Some([*uid, *uid, 1]),
        }
    }

    /// For others of the run.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// What [`Ids::to_json`] told.
    pub fn from_json(text: &[u8]) -> Option<Ids> {
        serde_json::from_slice(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_written_is_shown_as_ones_own() {
        let ids = Ids::Mapped { uid: 1000, gid: 1000, groups: vec![2000] };
        let shown = |uid, gid, mode| ids.shown(&Attr { uid, gid, mode, ..Attr::default() });
        assert_eq!(shown(1000, 2000, 0o600), (1000, 1000));
        assert_eq!(shown(5, 2000, 0o660), (1000, 1000));
        assert_eq!(shown(5, 2000, 0o640), (5, 2000));
        assert_eq!(shown(5, 6, 0o777), (1000, 1000));
        assert_eq!(shown(5, 6, 0o755), (5, 6));
        let seen = |uid, gid, mode| ids.seen(&Attr { uid, gid, mode, ..Attr::default() });
        assert_eq!(seen(5, 2000, 0o660), (1000, 1000));
        assert_eq!(seen(5, 1000, 0o640), (NOBODY, 1000));
        assert_eq!(Ids::from_json(ids.to_json().as_bytes()), Some(ids.clone()));
        assert_eq!(Ids::All.shown(&Attr { uid: 5, gid: 6, mode: 0o777, ..Attr::default() }), (5, 6));
    }
}
