//! Who is who: flows, nodes, servers, files, requests, clients, epochs.

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
    /// One client process, as the I/O nodes tell processes apart.
    ClientId(u64)
);
id!(
    /// The version of a mapping of compute nodes to I/O nodes. Larger is newer.
    Epoch(u64)
);
