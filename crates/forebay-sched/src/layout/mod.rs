//! Which data server holds an offset of a file. The node asks the file system once per file (an
//! extended attribute, or its own config) and hands the bytes to a parser here.

mod ceph;
mod gluster;
mod lustre;

pub use ceph::CephLayout;
pub use gluster::{DhtTable, GlusterLayout, GlusterVolume, Shards};
pub use lustre::LustreLayout;

use forebay_types::ServerId;
use serde::{Deserialize, Serialize};

/// How a file lies on the data servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A plain stripe, from the config.
    Stripe(Stripe),
    /// Lustre: the servers are OSTs.
    Lustre(LustreLayout),
    /// CephFS: the servers are stand-ins, one for each object.
    Ceph(CephLayout),
    /// GlusterFS: the servers are bricks, or sets of bricks that hold the same.
    Gluster(GlusterLayout),
}

/// Some of the data servers; those whose numbers differ by a multiple of 64 are taken for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Servers(u64);

impl From<ServerId> for Servers {
    fn from(one: ServerId) -> Servers {
        Servers(1 << (one.0 % 64))
    }
}

impl Servers {
    /// These and those.
    #[must_use]
    pub fn and(self, more: Servers) -> Servers {
        Servers(self.0 | more.0)
    }

    /// Whether one is among both.
    pub fn meets(self, other: Servers) -> bool {
        self.0 & other.0 != 0
    }

    /// How many.
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Each of them.
    pub fn each(self) -> impl Iterator<Item = usize> {
        (0..64).filter(move |n| (self.0 >> n) & 1 == 1)
    }
}

impl Layout {
    /// The data servers of so many bytes from `offset` on.
    pub fn servers(&self, offset: u64, len: u64) -> Servers {
        let mut all = Servers::from(self.server(offset));
        let (mut at, end) = (offset, offset.saturating_add(len));
        // After as many pieces there is none left that it could add, or far too many to tell.
        for _ in 0..64 {
            at = self.next_piece(at);
            if at >= end {
                break;
            }
            all = all.and(self.server(at).into());
        }
        all
    }

    /// Where the next piece begins that may lie elsewhere than the byte at `offset`.
    fn next_piece(&self, offset: u64) -> u64 {
        let size = match self {
            Layout::Stripe(l) if l.count <= 1 => return u64::MAX,
            Layout::Stripe(l) => l.size,
            Layout::Lustre(l) => l.piece(offset),
            Layout::Ceph(l) => l.piece(),
            Layout::Gluster(l) => match &l.shards {
                Some(s) => s.block,
                None => return u64::MAX,
            },
        };
        let size = size.max(1);
        (offset / size).saturating_add(1).saturating_mul(size)
    }

    /// The data server of the byte at `offset`.
    pub fn server(&self, offset: u64) -> ServerId {
        match self {
            Layout::Stripe(l) => l.server(offset),
            Layout::Lustre(l) => l.server(offset),
            Layout::Ceph(l) => l.server(offset),
            Layout::Gluster(l) => l.server(offset),
        }
    }
}

/// Files in pieces of `size` bytes over `count` servers in turn, beginning with `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stripe {
    /// Bytes of a piece.
    #[serde(with = "forebay_types::size")]
    pub size: u64,
    /// How many servers.
    pub count: u32,
    /// The server of the first piece.
    #[serde(default)]
    pub first: u32,
}

impl Stripe {
    /// The data server of the byte at `offset`.
    pub fn server(&self, offset: u64) -> ServerId {
        let count = u64::from(self.count.max(1));
        ServerId(((offset / self.size.max(1) % count + u64::from(self.first)) % count) as u32)
    }
}

/// What is wrong with a layout that a file system gave.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum LayoutError {
    /// Shorter than its own header says.
    #[error("the {what} layout ends after {len} bytes, {needed} are needed")]
    Short {
        /// Of which file system.
        what: &'static str,
        /// What there is.
        len: usize,
        /// What there should be.
        needed: usize,
    },
    /// A kind nobody told us of.
    #[error("the Lustre layout has the unknown magic number {0:#010x}")]
    Magic(u32),
    /// The file has no objects on data servers: never written, released to an archive, or on the
    /// metadata server.
    #[error("the Lustre layout names no data servers for this file yet")]
    NoObjects,
    /// Text or a number that makes no sense.
    #[error("the {what} layout is not understood: {reason}")]
    Malformed {
        /// Of which file system.
        what: &'static str,
        /// Why.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configured_stripe_goes_round() {
        let stripe = Stripe { size: 64 << 10, count: 4, first: 3 };
        let servers: Vec<u32> = (0..6).map(|i| stripe.server(i * (64 << 10) + 17).0).collect();
        assert_eq!(servers, [3, 0, 1, 2, 3, 0]);
        assert_eq!(Stripe { size: 0, count: 0, first: 9 }.server(u64::MAX), ServerId(0));
    }

    #[test]
    fn a_request_may_reach_over_several_servers() {
        let layout = Layout::Stripe(Stripe { size: 1000, count: 4, first: 3 });
        let over = |offset, len| layout.servers(offset, len).each().collect::<Vec<_>>();
        assert_eq!(over(0, 1000), [3]);
        assert_eq!(over(500, 1000), [0, 3]);
        assert_eq!(over(1000, 2001), [0, 1, 2]);
        assert_eq!(over(1999, u64::MAX), [0, 1, 2, 3]);
        assert_eq!(over(7, 0), [3]);
        let one = Layout::Stripe(Stripe { size: 1000, count: 1, first: 0 });
        assert_eq!(one.servers(5, 1 << 40).each().collect::<Vec<_>>(), [0]);
        assert!(Servers::from(ServerId(2)).meets(layout.servers(3000, 1)));
        let nowhere = Layout::Stripe(Stripe { size: 0, count: 9, first: 0 });
        assert_eq!(nowhere.servers(u64::MAX - 1, u64::MAX).count(), 1);
    }
}
