//! Open files on their way: from a node that died, drains or was only the parent's, to one that serves.

use crate::call::Bound;
use crate::client::Client;
use crate::error::Error;
use crate::file::{File, Place};
use crate::sys;
use forebay_types::Nanos;
use forebay_wire::flags::OpenFlags;
use forebay_wire::message::{Answer, ExportId, Meta, Path, Target};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a lock is asked for again: the node that held it for us may be about to end, or its
/// session with us about to run out.
const LOCK_PATIENCE: Nanos = Nanos::from_secs(4);
const LOCK_NAP: Duration = Duration::from_millis(20);

impl Client {
    /// Makes sure that `file` is open on a node that lives, and says where.
    pub(crate) fn ensure_here(&self, file: &File, started: Nanos) -> Result<Place, Error> {
        loop {
            if let Some(here) = self.still_here(file) {
                return Ok(here);
            }
            // One thread moves it, the others wait: a second handle would fight for the same locks.
            if let Some(_moving) = file.begin_move() {
                return match self.still_here(file) {
                    Some(here) => Ok(here),
                    None => self.bring_here(file, started),
                };
            }
            if sys::now().since(started) >= self.config.deadline().into() {
                let last = "another thread was opening the file again".into();
                return Err(Error::NoNode { deadline_ms: self.config.deadline_ms, last });
            }
            let _ = sys::nap(Duration::from_micros(200));
        }
    }

    fn still_here(&self, file: &File) -> Option<Place> {
        let place = file.place();
        let now = sys::now();
        let ours = !place.lost && place.session == self.session && !self.nodes.is_down(place.node, now);
        (ours && (file.is_bound() || place.node == self.nodes.pick(now))).then_some(place)
    }

    fn bring_here(&self, file: &File, started: Nanos) -> Result<Place, Error> {
        let place = file.place();
        let alive = !self.nodes.is_down(place.node, sys::now());
        if !place.lost && place.session != self.session && alive {
            let adopt = Meta::Adopt { session: place.session, handle: place.handle };
            let adopted = self.meta_bound(Bound::Node(place.node), started, adopt, |a| match a {
                Answer::Opened { handle, attr } => Some((handle, attr)),
                _ => None,
            });
            match adopted {
                Ok((handle, attr)) => {
                    let here = Place { node: place.node, handle, session: self.session, lost: false };
                    file.end.store(attr.size, Ordering::Relaxed);
                    file.set_place(here);
                    return Ok(here);
                }
                Err(Error::StaleHandle | Error::NoNode { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        self.open_again(file, place, started)
    }

    fn open_again(&self, file: &File, old: Place, started: Nanos) -> Result<Place, Error> {
        let path = Path { export: ExportId(file.export), rel: file.rel() };
        // The name was resolved before; a link that stands in its place now is another file.
        let flags = file.flags().without(OpenFlags::NOFOLLOW);
        let known = !old.lost && old.session == self.session;
        let usable = known && !self.nodes.is_down(old.node, sys::now());
        match self.open_on(Bound::Free, path, flags, 0, file.ino, started) {
            Ok((node, handle, _)) => {
                let here = Place { node, handle, session: self.session, lost: false };
                file.set_place(here);
                if usable {
                    let close = Meta::Close { handle: old.handle };
                    let _ = self.meta_bound(Bound::Node(old.node), started, close, |_| Some(()));
                }
                self.take_locks_again(file, here, old, started)?;
                Ok(here)
            }
            // It has no name any more, or may not be opened by it: it stays where it is open.
            Err(Error::Refused { .. }) if usable || known && self.holds(old, started) => {
                file.set_stays();
                Ok(old)
            }
            Err(Error::Refused {
                errno: libc::ENOENT | libc::ESTALE | libc::ENOTDIR | libc::ELOOP, ..
            }) => Err(Error::Lost(self.config.nodes[old.node % self.config.nodes.len()].clone())),
            Err(e) => Err(e),
        }
    }

    /// Whether a node that seemed to be down still has the file open for us.
    fn holds(&self, old: Place, started: Nanos) -> bool {
        let stat = Meta::Stat { target: Target::Handle(old.handle) };
        self.meta_bound(Bound::Node(old.node), started, stat, |_| Some(())).is_ok()
    }

    fn take_locks_again(&self, file: &File, here: Place, old: Place, started: Nanos) -> Result<(), Error> {
        let held =
            file.locks().iter().map(|&(owner, range)| Meta::Lock { handle: here.handle, owner, range });
        let whole = file.flock().map(|kind| Meta::Flock { handle: here.handle, kind });
        for lock in held.chain(whole) {
            let since = sys::now();
            loop {
                match self.meta_bound(Bound::Node(here.node), started, lock, |_| Some(())) {
                    Ok(()) => break,
                    Err(Error::Refused { errno: libc::EAGAIN, .. })
                        if sys::now().since(since) < LOCK_PATIENCE
                            && sys::now().since(started) < self.config.deadline().into() =>
                    {
                        let _ = sys::nap(LOCK_NAP);
                    }
                    Err(Error::Refused { .. }) => {
                        // Said once; from here on the file has no locks.
                        file.forget_locks();
                        return Err(Error::LockLost(self.config.nodes[old.node].clone()));
                    }
                    Err(e) => {
                        // This node too is gone: all of it again on the next one.
                        file.lose_place();
                        return Err(e);
                    }
                }
            }
        }
        Ok(())
    }
}
