//! Clients put off writes only to file systems with ample space ([`forebay_wire::session::ample`]): one thread looks at
//! those that are used so, and tells whoever has such memory.

use crate::file::OpenFile;
use crate::node::Node;
use crate::sys;
use forebay_types::Nanos;
use forebay_wire::session::ample::Ample;
use forebay_wire::session::stream::RING;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The thread does not sleep longer.
const LONGEST: Duration = Duration::from_millis(500);
const SHORTEST: Duration = Duration::from_millis(10);

/// What is known of the file systems to which writes are put off, by device.
#[derive(Default)]
pub(crate) struct Space {
    known: Mutex<HashMap<u64, Ample>>,
    changed: Condvar,
}

impl Space {
    fn known(&self) -> MutexGuard<'_, HashMap<u64, Ample>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until it is time to look, or something was found.
    fn wait(&self) {
        let known = self.known();
        let now = sys::now();
        // Nobody uses those that should have been looked at.
        let next = known.values().map(Ample::look_at).filter(|at| *at > now).min();
        let rest = next.map_or(LONGEST, |at| at.since(now).into()).clamp(SHORTEST, LONGEST);
        drop(self.changed.wait_timeout(known, rest).unwrap_or_else(PoisonError::into_inner));
    }
}

/// How much may still be written there; nothing if the file system does not say.
fn available(file: &OpenFile) -> Option<u64> {
    let v = rustix::fs::fstatvfs(file.fd()).ok().filter(|v| v.f_blocks > 0)?;
    Some(v.f_bavail.saturating_mul(v.f_frsize))
}

impl Node {
    /// Whether writes to this file may be put off.
    pub(crate) fn may_put_off(&self, file: &OpenFile) -> bool {
        let promised = (self.areas.count() + self.rings.count() + 1) as u64 * RING as u64;
        let now = sys::now();
        let mut known = self.space.known();
        let disk = known.entry(file.dev).or_default();
        if !disk.is_due(now) {
            return disk.may(promised, now);
        }
        drop(known);
        let there = available(file);
        let mut known = self.space.known();
        let disk = known.entry(file.dev).or_default();
        disk.looked(there, promised, now);
        // Whoever waits may have to look sooner.
        self.space.changed.notify_one();
        disk.may(promised, now)
    }

    /// What was put off could not be done: if it did not fit, nothing is put off there for a while.
    pub(crate) fn refused(&self, file: &OpenFile, errno: Errno) {
        if matches!(errno, Errno::NOSPC | Errno::DQUOT) {
            let now: Nanos = sys::now();
            self.space.known().entry(file.dev).or_default().refused(now);
            self.space.changed.notify_one();
        }
    }

    /// Looks, as long as the node lives, and tells clients.
    pub(crate) fn watch_space(&self) {
        while !self.stopped() {
            self.space.wait();
            self.tell_areas_of_space();
            self.tell_rings_of_space();
        }
    }
}
