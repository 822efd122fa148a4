//! The connections of one process. A slot is taken by a compare-and-swap, so a signal handler that
//! interrupts a call on one connection simply takes another, and a forked child can forget all of
//! them without a lock that some other thread may have held.

use crate::conn::Conn;
use crate::sys;
use forebay_types::Nanos;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

/// As many calls as one process can have under way at once.
const SLOTS: usize = 32;

struct Slot {
    taken: AtomicBool,
    /// The node index of the connection in here plus one; 0 if there is none. A hint without a lock.
    node: AtomicI32,
    fd: AtomicI32,
    /// What tells its socket from whatever else may get that number.
    socket: AtomicU64,
    conn: UnsafeCell<Option<Conn>>,
}

pub(crate) struct Pool {
    /// On the heap: a program's threads may have small stacks.
    slots: Box<[Slot]>,
}

// SAFETY: a slot's `conn` is touched only by whoever holds its `taken` flag (see `Taken`), or by a
// forked child's only thread in `forget`.
unsafe impl Sync for Pool {}
// SAFETY: a connection may be used from any thread.
unsafe impl Send for Pool {}

/// A slot that is ours for the time being.
pub(crate) struct Taken<'a> {
    slot: &'a Slot,
}

impl Pool {
    pub(crate) fn new() -> Pool {
        Pool {
            slots: (0..SLOTS)
                .map(|_| Slot {
                    taken: AtomicBool::new(false),
                    node: AtomicI32::new(0),
                    fd: AtomicI32::new(-1),
                    socket: AtomicU64::new(0),
                    conn: UnsafeCell::new(None),
                })
                .collect(),
        }
    }

    /// A free slot, by preference one with a connection to `node`, then an empty one; waits while
    /// all are taken, up to `until`, and says by `now` how late it has become.
    pub(crate) fn take(&self, node: usize, now: &mut Nanos, until: Nanos) -> Option<Taken<'_>> {
        let wanted = node as i32 + 1;
        loop {
            for pass in [Some(wanted), Some(0), None] {
                for slot in self.slots.iter() {
                    if pass.is_some_and(|p| slot.node.load(Ordering::Relaxed) != p) {
                        continue;
                    }
                    if !slot.taken.load(Ordering::Relaxed)
                        && slot
                            .taken
                            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                            .is_ok()
                    {
                        let mut taken = Taken { slot };
                        if slot.node.load(Ordering::Relaxed) != wanted {
                            taken.drop_conn();
                        }
                        return Some(taken);
                    }
                }
            }
            if *now >= until {
                return None;
            }
            // More threads than slots: their calls take tens of microseconds each.
            let _ = sys::nap(Duration::from_micros(50));
            *now = sys::now();
        }
    }

    /// The descriptors in use, for a front end that protects them.
    pub(crate) fn owns_fd(&self, fd: i32) -> bool {
        self.slots.iter().any(|s| s.fd.load(Ordering::Relaxed) == fd)
    }

    pub(crate) fn fds(&self) -> Vec<i32> {
        self.slots.iter().map(|s| s.fd.load(Ordering::Relaxed)).filter(|&fd| fd >= 0).collect()
    }

    /// Lets go of connections whose descriptor somebody has closed: its number may be another file's.
    pub(crate) fn check(&self) {
        for slot in self.slots.iter() {
            let fd = slot.fd.load(Ordering::Relaxed);
            if fd >= 0
                && sys::inode_of(fd) != slot.socket.load(Ordering::Relaxed)
                && slot.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                let taken = Taken { slot };
                // SAFETY: as in `Taken::conn`. Nothing is closed: the number is not ours.
                std::mem::forget(unsafe { &mut *slot.conn.get() }.take());
                slot.node.store(0, Ordering::Relaxed);
                slot.fd.store(-1, Ordering::Relaxed);
                drop(taken);
            }
        }
    }

    /// The nodes that connections lead to.
    pub(crate) fn nodes(&self) -> Vec<usize> {
        let mut nodes: Vec<usize> = self
            .slots
            .iter()
            .filter_map(|s| usize::try_from(s.node.load(Ordering::Relaxed) - 1).ok())
            .collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Takes every idle connection in turn.
    pub(crate) fn for_each_idle(&self, mut f: impl FnMut(&mut Taken<'_>)) {
        for slot in self.slots.iter() {
            if slot.node.load(Ordering::Relaxed) != 0
                && slot.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                f(&mut Taken { slot });
            }
        }
    }

    /// Whether the other end of a connection that nobody uses is gone, or no connection is left.
    pub(crate) fn is_left(&self) -> bool {
        let mut closed = false;
        self.for_each_idle(|taken| closed |= taken.conn().is_some_and(|conn| conn.is_closed()));
        closed || self.slots.iter().all(|slot| slot.node.load(Ordering::Relaxed) == 0)
    }

    /// In a forked child: the connections are the parent's. Closes this process's copies.
    ///
    /// # Safety
    /// No other thread may exist in this process.
    pub(crate) unsafe fn forget(&self) {
        for slot in self.slots.iter() {
            let fd = slot.fd.swap(-1, Ordering::Relaxed);
            if fd >= 0 {
                sys::close(fd);
            }
            // The connection's memory is left alone: a thread of the parent may have been in the
            // middle of changing it when the child was made.
            // SAFETY: the caller is the only thread; whoever held the slot in the parent is not here.
            unsafe { slot.conn.get().write(None) };
            slot.node.store(0, Ordering::Relaxed);
            slot.taken.store(false, Ordering::Release);
        }
    }
}

impl Taken<'_> {
    /// The connection in the slot.
    pub(crate) fn conn(&mut self) -> Option<&mut Conn> {
        // SAFETY: we hold the slot's flag until this value is dropped.
        unsafe { &mut *self.slot.conn.get() }.as_mut()
    }

    pub(crate) fn put_conn(&mut self, node: usize, conn: Conn) -> &mut Conn {
        self.slot.socket.store(sys::inode_of(conn.raw_fd()), Ordering::Relaxed);
        self.slot.fd.store(conn.raw_fd(), Ordering::Relaxed);
        self.slot.node.store(node as i32 + 1, Ordering::Relaxed);
        // SAFETY: as in `conn`.
        unsafe { &mut *self.slot.conn.get() }.insert(conn)
    }

    pub(crate) fn drop_conn(&mut self) {
        self.slot.node.store(0, Ordering::Relaxed);
        self.slot.fd.store(-1, Ordering::Relaxed);
        // SAFETY: as in `conn`.
        unsafe { *self.slot.conn.get() = None };
    }

    pub(crate) fn is_to(&self, node: usize) -> bool {
        self.slot.node.load(Ordering::Relaxed) == node as i32 + 1
    }

    /// Moves the connection to another descriptor number if it is `fd`.
    pub(crate) fn relocate(&mut self, fd: i32) {
        if self.slot.fd.load(Ordering::Relaxed) == fd
            && let Some(conn) = self.conn()
        {
            conn.relocate();
            let now = conn.raw_fd();
            self.slot.fd.store(now, Ordering::Relaxed);
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.slot.taken.store(false, Ordering::Release);
    }
}
