//! The hosts whose kernels have taken this process's data, numbered, so that a file can keep the set
//! of those it is not yet synced on in one word.

use forebay_wire::hello::HostBoot;
use std::sync::OnceLock;

/// The last number stands for all further hosts.
pub(crate) const NUMBERED: usize = 63;

static HOSTS: [OnceLock<HostBoot>; NUMBERED] = [const { OnceLock::new() }; NUMBERED];

/// A set of hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostSet(pub(crate) u64);

impl HostSet {
    /// The host alone.
    pub(crate) fn of(host: HostBoot) -> HostSet {
        let found = HOSTS.iter().position(|slot| *slot.get_or_init(|| host) == host);
        HostSet(1 << found.unwrap_or(NUMBERED))
    }

    /// All of these; `more`: and others, which nobody knows.
    pub(crate) fn all(hosts: impl Iterator<Item = HostBoot>, more: bool) -> HostSet {
        let more = HostSet(u64::from(more) << NUMBERED);
        hosts.fold(more, |all, host| HostSet(all.0 | HostSet::of(host).0))
    }

    /// Those that have no number stay: another one of them is not the same.
    pub(crate) fn without(self, other: HostSet) -> HostSet {
        HostSet(self.0 & !(other.0 & !(1 << NUMBERED)))
    }

    /// Its hosts; `None` stands for some that have no number.
    pub(crate) fn iter(self) -> impl Iterator<Item = Option<HostBoot>> {
        (0..64).filter(move |i| self.0 & 1 << i != 0).map(|i| HOSTS.get(i).and_then(|s| s.get().copied()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets() {
        let (a, b) = (HostBoot([1; 16]), HostBoot([2; 16]));
        let both = HostSet(HostSet::of(a).0 | HostSet::of(b).0);
        assert_eq!(HostSet::of(a), HostSet::of(a));
        assert_eq!(both.iter().flatten().collect::<Vec<_>>().len(), 2);
        assert_eq!(both.without(HostSet::of(a)).iter().next(), Some(Some(b)));
        let many: Vec<HostSet> = (0..=255).map(|n| HostSet::of(HostBoot([n; 16]))).collect();
        let (one, other) = (many[254], many[255]);
        assert_eq!(one.without(other).iter().next(), Some(None), "one of too many is not the other");
    }
}
