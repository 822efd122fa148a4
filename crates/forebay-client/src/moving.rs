//! On the move: where the arbiter says, between two requests; and open files from a node that died,
//! drains, was left or was only the parent's, to the one that serves.

use crate::call::Bound;
use crate::client::Client;
use crate::error::Error;
use crate::file::{File, Place};
use crate::sys;
use forebay_types::{Address, Epoch, Nanos};
use forebay_wire::flags::OpenFlags;
use forebay_wire::frame::{Header, flag};
use forebay_wire::message::{Answer, ExportId, Meta, Path, Target};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a lock is asked for again: the node that held it for us may be about to end, or its
/// session with us about to run out.
const LOCK_PATIENCE: Nanos = Nanos::from_secs(4);
const LOCK_NAP: Duration = Duration::from_millis(20);

impl Client {
    /// A node answered.
    pub(crate) fn heard_from(&self, node: usize, header: &Header) {
        self.nodes.mark_up(node, header.has(flag::MOVE));
        self.heard_epoch(Epoch(header.stamp.get()));
    }

    /// A node told the version of its mapping.
    pub(crate) fn heard_epoch(&self, epoch: Epoch) {
        if epoch.0 > self.newest.load(Ordering::Relaxed) {
            self.newest.store(epoch.0, Ordering::Relaxed);
        }
    }

    /// Asks for the mapping if there is a newer one than this process follows, and goes by it.
    pub(crate) fn follow(&self, started: Nanos) {
        let newest = self.newest.load(Ordering::Relaxed);
        // The question itself comes here too.
        if newest <= self.nodes.epoch().0 || self.following.swap(true, Ordering::Acquire) {
            return;
        }
        let node = self.nodes.pick(sys::now());
        let asked = self.meta_bound(Bound::Node(node), started, Meta::Mapping, |a| match a {
            Answer::Mapping { epoch, nodes } => {
                Some((epoch, nodes.iter().filter_map(|n| n.parse().ok()).collect::<Vec<Address>>()))
            }
            _ => None,
        });
        match asked {
            Ok((epoch, nodes)) if epoch > self.nodes.epoch() => self.nodes.remap(epoch, &nodes),
            // The node is gone, or knows less than another one: heard again, it is asked for again.
            _ => self.newest.store(self.nodes.epoch().0, Ordering::Relaxed),
        }
        self.following.store(false, Ordering::Release);
    }

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

    /// A file of this session.
    pub(crate) fn place(&self, node: usize, handle: u64) -> Place {
        Place { node, address: self.nodes.address(node), handle, session: self.session, lost: false }
    }

    fn still_here(&self, file: &File) -> Option<Place> {
        let place = file.place();
        let now = sys::now();
        let ours = !place.lost && place.session == self.session && !self.nodes.is_down(place.node, now);
        (ours && (file.is_bound() || place.node == self.nodes.pick(now))).then_some(place)
    }

    fn bring_here(&self, file: &File, started: Nanos) -> Result<Place, Error> {
        let mut place = file.place();
        if place.session != self.session {
            place.node = self.nodes.index(place.address);
        }
        let alive = !self.nodes.is_down(place.node, sys::now());
        if !place.lost && place.session != self.session && alive {
            let adopt = Meta::Adopt { session: place.session, handle: place.handle };
            let adopted = self.meta_bound(Bound::Node(place.node), started, adopt, |a| match a {
                Answer::Opened { handle, attr, .. } => Some((handle, attr)),
                _ => None,
            });
            match adopted {
                Ok((handle, attr)) => {
                    let here = self.place(place.node, handle);
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
        match self.open_on(Bound::Free, path, flags, 0, file.identity, started) {
            Ok(opened) => {
                let here = self.place(opened.node, opened.handle);
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
            }) => Err(Error::Lost(old.address.clone())),
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
                        return Err(Error::LockLost(old.address.clone()));
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
