//! Small things that are done to a file between its making and its close, without a trip each
//! ([`forebay_wire::session::later`]): they are in memory that the I/O node of this host has too, so that
//! they are not lost with this process, and are done with the close, which tells how it went.

use crate::call::{Body, On, Request};
use crate::client::Client;
use crate::counters::OpIndex;
use crate::error::Error;
use crate::file::File;
use crate::hosts::HostSet;
use crate::stream::{PATIENCE, Shared};
use crate::sys;
use forebay_wire::message::{Answer, Meta, SetTime, Sharing};
use forebay_wire::session::later::{FILES, Later};
use forebay_wire::session::stream::{RING, SMALL, places};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The ring of this process.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    shared: Option<Shared>,
    /// The file that everything there is about, by [`File::later`].
    owner: Option<Puts>,
    host: HostSet,
    /// Files that were made since there was none.
    made: u32,
    entry: Vec<u8>,
}

/// Of a file to which small things may be done later: what tells it from others of that kind, and its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Puts {
    pub(crate) number: u64,
    pub(crate) handle: u64,
}

impl Ring {
    /// The next files make another one.
    fn forget(&mut self) {
        (self.shared, self.owner, self.made) = (None, None, 0);
    }
}

/// What became of something that is to be put off.
enum Put {
    /// It is in the ring, up to there, and the node will find it.
    Off,
    /// It is there, but the node may not look any more.
    Asking(u64),
    /// It is not there, and what was put off before is not done, nor will it be.
    Lost,
}

impl Client {
    /// A file was made: the node is told of a ring when there have been some.
    pub(crate) fn made_file(&self) {
        if !self.config.stage || !self.sees_board() || self.unshared.load(Ordering::Relaxed) {
            return;
        }
        self.ring.with(|ring| {
            ring.made = ring.made.saturating_add(1);
            if ring.made == FILES {
                self.begin_ring(ring);
            }
        });
    }

    #[cold]
    fn begin_ring(&self, ring: &mut Ring) {
        let mut host = HostSet::default();
        let told = |how| {
            let op = Meta::Share { handle: 0, how };
            let mut body = Vec::with_capacity(16);
            op.encode(&mut body);
            let request = Request::meta(&op, Body::Bytes(&body));
            host = self.call(OpIndex::meta(&op), On::Names, request, None, |served, _, _| Ok(served.host))?;
            Ok(())
        };
        ring.shared = self.share(0, |fd, nonce| Sharing::Later { fd, nonce }, told);
        ring.host = host;
    }

    /// Puts something off until the file is closed, or somebody could tell. `None`: it is to be done now.
    fn put_off(&self, file: &File, what: Later<'_>) -> Option<Result<(), Error>> {
        if file.later.is_none() || !file.is_plain() || !self.streams(file) || file.streams.is_staged() {
            return None;
        }
        match self.ring.with(|ring| self.put_into(file, ring, what)).flatten()? {
            Put::Off => Some(Ok(())),
            Put::Lost => Some(self.settle_put_off(file).and(Err(Error::local(libc::EIO)))),
            Put::Asking(end) => {
                // It counts when the node has been asked. If it has not done this, it never will.
                let settled = self.settle_put_off(file);
                let done =
                    self.with_ring(|ring| ring.shared.as_ref().is_some_and(|s| s.area.cells().head() >= end));
                match settled {
                    Ok(()) => (done == Some(true)).then_some(Ok(())),
                    Err(e) => Some(Err(e)),
                }
            }
        }
    }

    fn put_into(&self, file: &File, ring: &mut Ring, what: Later<'_>) -> Option<Put> {
        let shared = ring.shared.as_ref()?;
        let (area, cells) = (&shared.area, shared.area.cells());
        let (head, tail) = (cells.head(), cells.tail());
        if !self.lives(shared, sys::now()) {
            return match head == tail {
                // Nothing is lost there.
                true => {
                    ring.forget();
                    None
                }
                false => (ring.owner == file.later).then_some(Put::Lost),
            };
        }
        if cells.troubled() || cells.is_tight() || ring.owner != file.later && head != tail {
            return None;
        }
        // What was opened anew is not known there.
        let place = file.place();
        let puts = file.later.filter(|puts| place.session == self.session && place.handle == puts.handle)?;
        what.encode(puts.handle, &mut ring.entry);
        let end = tail + ring.entry.len() as u64;
        if end > head + RING as u64 {
            return None;
        }
        ring.owner = Some(puts);
        let (first, second) = places(tail..end);
        let (a, b) = ring.entry.split_at(first.len());
        area.put(first, a);
        area.put(second, b);
        file.mark_dirty();
        file.mark_unsynced(ring.host);
        file.streams.put_off();
        Some(if cells.publish(end) { Put::Off } else { Put::Asking(end) })
    }

    /// With the ring, as soon as no other thread has it.
    fn with_ring<R>(&self, mut f: impl FnMut(&mut Ring) -> R) -> Option<R> {
        let until = sys::now() + PATIENCE.into();
        loop {
            match self.ring.with(&mut f) {
                // A thread left in the midst of it.
                None if sys::now() >= until => return None,
                None => drop(sys::nap(Duration::from_micros(50))),
                done => return done,
            }
        }
    }

    /// A small write to a file that was just made.
    pub(crate) fn write_later(&self, file: &File, data: &[u8], offset: u64) -> Option<Result<usize, Error>> {
        let end = offset.checked_add(data.len() as u64)?;
        let fits = file.later.is_some() && (1..=SMALL).contains(&data.len()) && i64::try_from(end).is_ok();
        if !fits {
            return None;
        }
        let started = sys::now();
        let outcome = self.put_off(file, Later::Write { offset, data })?.map(|()| data.len());
        self.count(OpIndex::WRITE, started, &outcome);
        Some(outcome)
    }

    /// A change of attributes that cannot fail, as far as one can tell: of a file that is this user's own.
    pub(crate) fn set_later(&self, file: &File, op: &Meta<'_>) -> Option<Result<(), Error>> {
        let what = Later::of(op).filter(|_| file.later.is_some())?;
        let attr = file.made_as()?;
        let kept = |id: u32, is: u32| id == u32::MAX || id == is;
        let certain = match what {
            Later::Write { .. } => false,
            Later::Chmod { .. } => true,
            Later::Chown { uid, gid } => kept(uid, attr.uid) && kept(gid, attr.gid),
            Later::Utimens { atime, mtime } => ![atime, mtime].contains(&SetTime::Now),
        };
        if !certain || attr.uid != sys::user() {
            return None;
        }
        let started = sys::now();
        let outcome = self.put_off(file, what)?.map(|()| 0);
        self.count(OpIndex::meta(op), started, &outcome);
        Some(outcome.map(drop))
    }

    /// What was put off is done; or the error that is to be told.
    pub(crate) fn settle_put_off(&self, file: &File) -> Result<(), Error> {
        let Some(upto) = self.owed(file) else { return Ok(()) };
        let settle = |handle| Meta::Share { handle, how: Sharing::Settle };
        let told = self.meta_on(file, settle, |a| matches!(a, Answer::Done).then_some(()));
        told.and(self.is_done(file, upto))
    }

    /// How far the ring is filled, if something was put off for this file: whoever asks sees to it that it is done.
    pub(crate) fn owed(&self, file: &File) -> Option<u64> {
        let tail = |ring: &mut Ring| ring.shared.as_ref().map(|s| s.area.cells().tail());
        file.streams.take_put_off().then(|| self.with_ring(tail).flatten()).flatten()
    }

    /// The node has been asked: what is not done is lost, as is an error of what was, if the node process is gone that
    /// knew it. It is not done again, over what others have written through its successor.
    pub(crate) fn is_done(&self, file: &File, upto: u64) -> Result<(), Error> {
        let lost = self.with_ring(|ring| {
            let Some(shared) = &ring.shared else { return false };
            let cells = shared.area.cells();
            let gone = shared.with != self.serving.load(Ordering::SeqCst) || !self.node_lives(sys::now());
            let lost = ring.owner == file.later && cells.head() < upto || gone && cells.owes();
            if lost {
                ring.forget();
            }
            lost
        });
        if lost == Some(true) { Err(Error::local(libc::EIO)) } else { Ok(()) }
    }
}
