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

impl Layout {
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
}
