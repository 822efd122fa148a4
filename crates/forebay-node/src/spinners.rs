//! The connections whose threads wait with open eyes for a next request: fewer than there are processors,
//! and none where others want those.

use forebay_types::Nanos;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many there are.
#[derive(Debug, Default)]
pub(crate) struct Spinners {
    now: AtomicUsize,
}

/// One of them, as long as it lives.
pub(crate) struct Spinning<'a>(&'a AtomicUsize);

impl Spinners {
    /// One more, if there may be.
    pub(crate) fn enter(&self, now: Nanos) -> Option<Spinning<'_>> {
        if !forebay_client::may_spin(now) {
            return None;
        }
        let spinning = Spinning(&self.now);
        (self.now.fetch_add(1, Ordering::Relaxed) + 1 < forebay_client::processors()).then_some(spinning)
    }
}

impl Drop for Spinning<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
