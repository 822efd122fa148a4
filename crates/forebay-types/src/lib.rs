//! The words every Forebay crate shares: who (flow, node, server, job), when ([`Nanos`]) and how
//! much ([`Bandwidth`]). No behaviour beyond arithmetic lives here, and no I/O.

mod ready;

pub use ready::Ready;

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// All requests of one job: the unit of fair sharing.
    FlowId(u32)
);
id!(
    /// One I/O node.
    NodeId(u32)
);
id!(
    /// One data server of the parallel file system.
    ServerId(u32)
);
id!(
    /// One file, as a scheduler tells files apart.
    FileId(u64)
);
id!(
    /// One request, unique within the I/O node that holds it.
    RequestId(u64)
);
id!(
    /// One open file on an I/O node.
    HandleId(u64)
);
id!(
    /// One client process, as the I/O nodes tell processes apart.
    ClientId(u64)
);
id!(
    /// The version of a mapping of compute nodes to I/O nodes. Larger is newer.
    Epoch(u64)
);

/// A point in time, or a span of it, in nanoseconds. Decision code is handed `now` and never reads
/// a clock; where the origin lies is the caller's affair, except that time windows that several
/// nodes must agree on count from the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The origin.
    pub const ZERO: Nanos = Nanos(0);

    /// So many microseconds.
    pub const fn from_micros(us: u64) -> Nanos {
        Nanos(us.saturating_mul(1_000))
    }

    /// So many milliseconds.
    pub const fn from_millis(ms: u64) -> Nanos {
        Nanos(ms.saturating_mul(1_000_000))
    }

    /// So many seconds.
    pub const fn from_secs(s: u64) -> Nanos {
        Nanos(s.saturating_mul(1_000_000_000))
    }

    /// In seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The span from `earlier` to here, zero if `earlier` is later.
    pub const fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add for Nanos {
    type Output = Nanos;
    fn add(self, rhs: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(rhs.0))
    }
}

impl std::ops::Sub for Nanos {
    type Output = Nanos;
    fn sub(self, rhs: Nanos) -> Nanos {
        self.since(rhs)
    }
}

impl From<std::time::Duration> for Nanos {
    fn from(d: std::time::Duration) -> Nanos {
        Nanos(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for std::time::Duration {
    fn from(n: Nanos) -> std::time::Duration {
        std::time::Duration::from_nanos(n.0)
    }
}

/// Whether a request reads data, writes data, or does neither (metadata).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OpKind {
    /// Data comes from storage.
    Read,
    /// Data goes to storage.
    Write,
    /// Names and attributes.
    Metadata,
}

/// A rate of data, in MB/s (10^6 bytes a second), as the sources report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bandwidth(pub f64);

impl Bandwidth {
    /// `bytes` in `span`; zero for an empty span.
    pub fn of(bytes: u64, span: Nanos) -> Bandwidth {
        if span.0 == 0 { Bandwidth(0.0) } else { Bandwidth(bytes as f64 / span.as_secs_f64() / 1e6) }
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 >= 1000.0 {
            write!(f, "{:.2} GB/s", self.0 / 1000.0)
        } else {
            write!(f, "{:.1} MB/s", self.0)
        }
    }
}
