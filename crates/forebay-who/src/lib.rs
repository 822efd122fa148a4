//! Who somebody is: the users and groups that this machine knows, and credentials of MUNGE, by which a
//! process proves to another of the same cluster as whom it runs.

mod munge;
mod sys;

pub use munge::{Claim, Munge, MungeError};

use forebay_types::Identity;

/// Why nobody is meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WhoError {
    /// There is no such user.
    #[error("{0:?} is no user of this machine: give a name, a number, or numbers as UID:GID[:GROUP,GROUP…]")]
    Unknown(String),
    /// What the system says.
    #[error("cannot look {0:?} up: {1}")]
    Lookup(String, String),
}

/// The user of that name or number, with all groups; `UID:GID[:GROUP,…]` needs no entry anywhere.
pub fn user(text: &str) -> Result<Identity, WhoError> {
    let text = text.trim();
    if text.contains(':') {
        return Identity::from_numbers(text).ok_or_else(|| WhoError::Unknown(text.to_owned()));
    }
    let failed = |e: std::io::Error| WhoError::Lookup(text.to_owned(), e.to_string());
    let entry = match text.parse() {
        Ok(uid) => sys::by_uid(uid),
        Err(_) => sys::by_name(text),
    };
    let entry = entry.map_err(failed)?.ok_or_else(|| WhoError::Unknown(text.to_owned()))?;
    let groups = sys::groups(&entry.name, entry.gid).map_err(failed)?;
    Ok(Identity { uid: entry.uid, gid: entry.gid, groups })
}

/// Who proved to run as `uid` and `gid`: with the groups this machine knows the user to have. A group that is none of
/// those counts for nothing, wherever the user has it from; who is not known here has nobody's.
pub fn proved(uid: u32, gid: u32) -> Result<Identity, WhoError> {
    let failed = |e: std::io::Error| WhoError::Lookup(uid.to_string(), e.to_string());
    let Some(entry) = sys::by_uid(uid).map_err(failed)? else {
        return Ok(Identity { uid, ..Identity::nobody() });
    };
    let groups = sys::groups(&entry.name, entry.gid).map_err(failed)?;
    let gid = if groups.contains(&gid) { gid } else { entry.gid };
    Ok(Identity { uid, gid, groups })
}

/// The user's name, if this machine knows one.
pub fn name(uid: u32) -> Option<String> {
    sys::by_uid(uid).ok().flatten().map(|entry| entry.name)
}

/// The number of a group.
pub fn group(name: &str) -> Option<u32> {
    name.parse().ok().or_else(|| sys::group(name).ok().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_by_name_and_by_number() {
        let root = user("root").unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(user("0").unwrap(), root);
        assert_eq!(name(0).as_deref(), Some("root"));
        assert_eq!(group("root"), Some(0));
        assert_eq!(user("7001:7002:7003").unwrap(), Identity { uid: 7001, gid: 7002, groups: vec![7003] });
        for wrong in ["", "no-such-user-here", "4294967295", "a\0b", "1:2:x"] {
            assert!(matches!(user(wrong), Err(WhoError::Unknown(_))), "{wrong:?}");
        }
        let stranger = proved(2_000_000_123, 77).unwrap();
        assert_eq!(stranger, Identity { uid: 2_000_000_123, ..Identity::nobody() });
        assert_eq!(proved(0, 0).unwrap(), root);
        assert_eq!(proved(0, 2_000_000_077).unwrap(), root, "a group that root is not in");
    }
}
