//! Whose files are shown. In a user namespace of one user only that user and one group have numbers;
//! the kernel lets nobody write to a file whose owner or group has none there.

use forebay_client::Attr;

/// How owners and groups are shown, and who checks permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    pub(crate) fn kernel_checks(&self) -> bool {
        matches!(self, Ids::All)
    }

    /// The owner and the group to show.
    pub(crate) fn shown(&self, attr: &Attr) -> (u32, u32) {
        let Ids::Mapped { uid, gid, groups } = self else { return (attr.uid, attr.gid) };
        let in_group = attr.gid == *gid || groups.contains(&attr.gid);
        let may_write = attr.uid == *uid || (in_group && attr.mode & 0o020 != 0) || attr.mode & 0o002 != 0;
        if may_write { (*uid, *gid) } else { (attr.uid, attr.gid) }
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
        assert_eq!(Ids::All.shown(&Attr { uid: 5, gid: 6, mode: 0o777, ..Attr::default() }), (5, 6));
    }
}
