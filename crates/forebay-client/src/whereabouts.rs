//! Where an open file is open right now: read by every call without a lock or a system call, changed
//! seldom.

use crate::guarded::Guarded;
use forebay_types::Address;
use forebay_wire::hello::SessionId;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};

/// So often does a reader look again while somebody changes it, which takes some hundred nanoseconds.
const LOOKS: u32 = 10_000_000;

/// Where a file is open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteHandle {
    /// The node's index; not known of a file that came with `exec`.
    pub(crate) node: usize,
    pub(crate) address: &'static Address,
    pub(crate) handle: u64,
    pub(crate) session: SessionId,
    /// The node does not know the handle (any more).
    pub(crate) lost: bool,
}

/// A place that many read and one at a time changes. Whoever changes it holds its signals back, so that
/// no handler waits for what it interrupted.
#[derive(Debug)]
pub(crate) struct Whereabouts {
    writing: Guarded<()>,
    /// Odd while it is being changed.
    version: AtomicU64,
    address: AtomicPtr<Address>,
    /// Node, handle, both halves of the session, lost.
    words: [AtomicU64; 5],
}

impl Whereabouts {
    pub(crate) fn new(place: RemoteHandle) -> Whereabouts {
        let new = Whereabouts {
            writing: Guarded::new(()),
            version: AtomicU64::new(0),
            address: AtomicPtr::new(std::ptr::from_ref(place.address).cast_mut()),
            words: [const { AtomicU64::new(0) }; 5],
        };
        new.store(place);
        new
    }

    fn store(&self, place: RemoteHandle) {
        self.address.store(std::ptr::from_ref(place.address).cast_mut(), Ordering::Relaxed);
        let session = u128::from_le_bytes(place.session.0);
        let words =
            [place.node as u64, place.handle, session as u64, (session >> 64) as u64, u64::from(place.lost)];
        for (slot, word) in self.words.iter().zip(words) {
            slot.store(word, Ordering::Relaxed);
        }
    }

    fn load(&self) -> RemoteHandle {
        let [node, handle, low, high, lost] = self.words.each_ref().map(|w| w.load(Ordering::Relaxed));
        // SAFETY: only addresses that live as long as the process are ever stored there.
        let address = unsafe { &*self.address.load(Ordering::Relaxed).cast_const() };
        let session = SessionId((u128::from(high) << 64 | u128::from(low)).to_le_bytes());
        RemoteHandle { node: node as usize, address, handle, session, lost: lost != 0 }
    }

    /// The place. `None`: whoever changes it does not come to an end.
    pub(crate) fn get(&self) -> Option<RemoteHandle> {
        (0..LOOKS).find_map(|look| {
            let before = self.version.load(Ordering::Acquire);
            let place = self.load();
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == before {
                return Some(place);
            }
            if look % 1000 == 999 {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
            None
        })
    }

    /// Changes the place.
    pub(crate) fn change(&self, change: impl FnOnce(&mut RemoteHandle)) {
        self.writing.with(|()| {
            let mut place = self.load();
            change(&mut place);
            self.version.fetch_add(1, Ordering::Relaxed);
            fence(Ordering::Release);
            self.store(place);
            self.version.fetch_add(1, Ordering::Release);
        });
    }

    /// In a forked child, whose only thread this is: if another thread of the parent was changing the
    /// place when the child was made, it is lost.
    pub(crate) fn take_over(&self) {
        self.writing.take_over(());
        if !self.version.load(Ordering::Relaxed).is_multiple_of(2) {
            self.words[4].store(1, Ordering::Relaxed);
            self.version.fetch_add(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(n: u64) -> RemoteHandle {
        let address = Box::leak(Box::new(Address::Unix(format!("/{n}").into())));
        RemoteHandle { node: n as usize, address, handle: n, session: SessionId([n as u8; 16]), lost: false }
    }

    #[test]
    fn nobody_sees_half_a_change() {
        let places: Vec<RemoteHandle> = (0..8).map(place).collect();
        let at = Whereabouts::new(places[0]);
        std::thread::scope(|s| {
            s.spawn(|| (0..20_000).for_each(|i| at.change(|p| *p = places[i % 8])));
            for _ in 0..2 {
                s.spawn(|| {
                    for _ in 0..20_000 {
                        let seen = at.get().expect("changes end");
                        let whole = places[seen.node];
                        assert!(std::ptr::eq(seen.address, whole.address));
                        assert_eq!((seen.handle, seen.session), (whole.handle, whole.session));
                    }
                });
            }
        });
    }

    #[test]
    fn a_child_of_a_fork_finds_an_end() {
        let at = Whereabouts::new(place(3));
        at.version.store(1, Ordering::Relaxed);
        at.take_over();
        assert!(at.get().is_some_and(|p| p.lost));
        at.change(|p| p.lost = false);
        assert!(at.get().is_some_and(|p| !p.lost && p.handle == 3));
    }
}
