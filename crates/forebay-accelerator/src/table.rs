//! What is known of descriptors: a file that is open on an I/O node, too, or how often to leave them alone. It is never
//! believed without a look ([`crate::look`]).

use crate::look::Seen;
use crate::state;
use forebay_client::gate::{Gates, Pass};
use forebay_client::{Client, File};
use forebay_hook::shared::{Busy, Shared};
use forebay_hook::sys::sys;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Descriptor numbers from here on are the kernel's alone.
const MOST: usize = 1 << 16;
/// How often it is looked whether a number is free: two seconds.
const NAPS: u32 = 20_000;

/// An open file of the mount that is open on an I/O node, too.
pub(crate) struct Open {
    pub(crate) device: (u32, u32),
    pub(crate) ino: u64,
    /// Of the descriptor.
    pub(crate) flags: i32,
    pub(crate) pass: Pass,
    pub(crate) file: File,
    /// The thread that moves the offset.
    pub(crate) offset: Busy,
    /// To be closed by whoever uses it last.
    left: AtomicBool,
}

impl Open {
    pub(crate) fn new(seen: &Seen, flags: i32, pass: Pass, file: File) -> Arc<Open> {
        let (device, ino, left) = (seen.device, seen.ino, AtomicBool::new(false));
        Arc::new(Open { device, ino, flags, pass, file, offset: Busy::new(), left })
    }

    /// Whether a descriptor still is this file.
    pub(crate) fn is(&self, seen: &Seen) -> bool {
        (self.device, self.ino) == (seen.device, seen.ino)
    }
}

struct Slot {
    open: Shared<Open>,
    /// Calls that were seen, and calls that are not looked at.
    calls: AtomicU32,
    skip: AtomicU32,
}

static SLOTS: [Slot; MOST] =
    [const { Slot { open: Shared::empty(), calls: AtomicU32::new(0), skip: AtomicU32::new(0) } }; MOST];
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

fn slot(fd: i32) -> Option<&'static Slot> {
    usize::try_from(fd).ok().and_then(|i| SLOTS.get(i))
}

/// What was known of a descriptor.
#[inline]
pub(crate) fn get(fd: i32) -> Option<Arc<Open>> {
    slot(fd)?.open.get()
}

/// Whether something was known of a descriptor: the cheapest question.
#[inline]
pub(crate) fn is_known(fd: i32) -> bool {
    slot(fd).is_some_and(|slot| !slot.open.is_empty())
}

/// Whether there is nothing to look for at a descriptor, this time.
#[inline]
pub(crate) fn is_skipped(fd: i32) -> bool {
    let Some(slot) = slot(fd) else { return true };
    let left = slot.skip.load(Ordering::Relaxed);
    if left > 0 {
        slot.skip.store(left - 1, Ordering::Relaxed);
    }
    left > 0
}

/// The next `calls` on a descriptor are not looked at.
pub(crate) fn skip(fd: i32, calls: u32) {
    if let Some(slot) = slot(fd) {
        slot.skip.store(calls, Ordering::Relaxed);
    }
}

/// One more call on a file of the mount: how many there were.
pub(crate) fn count(fd: i32) -> u32 {
    slot(fd).map_or(0, |slot| slot.calls.fetch_add(1, Ordering::Relaxed).saturating_add(1))
}

/// A descriptor is this file.
pub(crate) fn put(fd: i32, open: Arc<Open>) {
    let Some(slot) = slot(fd) else { return };
    HIGHEST.fetch_max(fd as usize + 1, Ordering::Relaxed);
    slot.replace(Some(open));
}

/// A descriptor is not that file, or not any more.
pub(crate) fn drop_open(fd: i32) {
    if let Some(slot) = slot(fd).filter(|slot| !slot.open.is_empty()) {
        slot.replace(None);
    }
}

impl Slot {
    fn replace(&self, new: Option<Arc<Open>>) {
        if let Some(old) = self.open.replace(new) {
            // All that was written was answered.
            let _ = close(old);
        }
    }
}

/// A descriptor is something else, or will be.
pub(crate) fn forget(fd: i32) -> Option<Arc<Open>> {
    let slot = slot(fd)?;
    if slot.calls.load(Ordering::Relaxed) != 0 {
        slot.calls.store(0, Ordering::Relaxed);
    }
    if slot.skip.load(Ordering::Relaxed) != 0 {
        slot.skip.store(0, Ordering::Relaxed);
    }
    if slot.open.is_empty() { None } else { slot.open.replace(None) }
}

/// The file is not used any more, but by calls that are under way: closes it on its I/O node, after the last of them.
pub(crate) fn close(open: Arc<Open>) -> Result<(), i32> {
    open.left.store(true, Ordering::Release);
    match Arc::into_inner(open) {
        Some(mut last) => last.end(),
        None => Ok(()),
    }
}

impl Open {
    fn end(&mut self) -> Result<(), i32> {
        if !std::mem::take(self.left.get_mut()) {
            return Ok(());
        }
        let client = state::get().and_then(|state| state.client_if_any());
        client.map_or(Ok(()), |client| client.close(&self.file).map_err(|e| e.errno()))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // All that was written was answered.
        let _ = self.end();
    }
}

/// The client of this process, if it has one of its own.
fn client() -> Option<&'static Client> {
    state::get().filter(|state| state.is_home())?.client_if_any()
}

/// Whether a descriptor is the library's own.
pub(crate) fn owns(fd: i32) -> bool {
    client().is_some_and(|client| client.owns_fd(fd))
}

/// The program closes a descriptor, or puts another file there: what its I/O node says to that. `EBADF`: it is the library's
/// own.
pub(crate) fn closes(fd: i32) -> Result<(), i32> {
    if state::get().is_none_or(|state| !state.is_home()) {
        return Ok(());
    }
    if owns(fd) {
        return Err(libc::EBADF);
    }
    forget(fd).map_or(Ok(()), close)
}

/// The program closes a range of descriptors: the library's own among them, in their order.
pub(crate) fn own_in(first: u32, last: u32) -> Vec<u32> {
    if state::get().is_some_and(|state| state.is_home()) {
        let highest = HIGHEST.load(Ordering::Relaxed) as u32;
        (first..last.saturating_add(1).min(highest)).for_each(|fd| drop_open(fd as i32));
    }
    let mut own: Vec<u32> =
        client().map_or(Vec::new(), Client::fds).into_iter().map(|fd| fd as u32).collect();
    own.retain(|fd| (first..=last).contains(fd));
    own.sort_unstable();
    own
}

/// The program wants the number of a descriptor of the library's own: whether it can have it.
pub(crate) fn vacates(fd: i32) -> bool {
    let Some(client) = client() else { return true };
    for _ in 0..NAPS {
        client.vacate_fd(fd);
        if !client.owns_fd(fd) {
            return true;
        }
        // Another thread uses it just now.
        let nap = libc::timespec { tv_sec: 0, tv_nsec: 100_000 };
        sys!(nanosleep, &raw const nap, 0);
    }
    false
}

/// Closes what is not to be used any more: any gate may have been shut.
#[cold]
pub(crate) fn sweep(gates: &Gates) {
    for slot in &SLOTS[..HIGHEST.load(Ordering::Relaxed)] {
        if slot.open.get().is_some_and(|open| !gates.is_good(open.pass)) {
            slot.replace(None);
        }
    }
}

/// In a forked child: all of it is the parent's.
pub(crate) fn after_fork() {
    for slot in &SLOTS[..HIGHEST.load(Ordering::Relaxed)] {
        slot.open.after_fork();
        // Another thread of the parent may have been in the midst of changing it.
        std::mem::forget(slot.open.replace(None));
    }
}
