//! The fence: how long a node may still begin a request after the last byte that may have reached it.

use forebay_types::Nanos;

/// The node's lease and half as long again, for the transit of the frame that the node measures its
/// client's clock by.
pub fn fence(lease: Nanos) -> Nanos {
    lease + Nanos(lease.0 / 2)
}
