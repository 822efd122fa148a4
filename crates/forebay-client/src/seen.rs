//! What a node of this host saw of a file when it opened it, used as long as the node's board
//! ([`forebay_wire::session::board`]) says that it still is so: without a trip.

use crate::client::{Client, Opened};
use crate::conn::Conn;
use crate::error::Error;
use crate::file::File;
use crate::later::Puts;
use crate::stream::GOOD_FOR;
use crate::sys;
use forebay_types::Nanos;
use forebay_wire::flags::OpenFlags;
use forebay_wire::hello::BoardAt;
use forebay_wire::message::{Attr, Path};
use forebay_wire::session::board::{Board, Scope, Still, place_of};
use std::sync::atomic::{AtomicU32, Ordering};

/// A process maps the boards of so many node processes, one after the other.
const MOST: u32 = 16;

/// The board that is looked at: of the node process that this process was last connected to.
#[derive(Debug, Default)]
pub(crate) struct Posted {
    board: sys::BoardCell,
    mapped: AtomicU32,
}

impl Posted {
    /// In a forked child: the memory is there, too.
    pub(crate) fn inherit(&self) -> Posted {
        let child = Posted::default();
        child.board.set(self.board.get());
        child
    }
}

/// A file when it was opened.
#[derive(Debug)]
pub(crate) struct Sighting {
    attr: Attr,
    still: Still,
    at: Nanos,
}

/// A moment at the job's only node: what is looked at after it holds as long as this does.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    still: Still,
    at: Nanos,
}

impl Client {
    /// To be taken before the file is looked at, by name or otherwise. Nothing if nobody can tell what changes.
    pub fn moment(&self, dev: u64, ino: u64) -> Option<Moment> {
        let at = sys::now();
        let still = self.board(at)?.still(place_of(dev, ino), Scope::Nothing, false)?;
        Some(Moment { still, at })
    }

    /// Whether no name and nothing of the file was changed through the node since.
    pub fn is_still(&self, moment: &Moment) -> bool {
        let now = sys::now();
        now.since(moment.at) < GOOD_FOR
            && self.board(now).is_some_and(|board| board.attributes_hold(&moment.still))
    }

    /// All that was written through the file is in it; or the error that nobody was told.
    pub fn flush(&self, file: &File) -> Result<(), Error> {
        self.settle(file)
    }

    /// The board of the job's only node, if this process can look at it, and the node lives.
    pub(crate) fn board(&self, now: Nanos) -> Option<&'static Board> {
        let board = self.board.board.get().filter(|_| self.config.share)?;
        self.node_lives(now).then_some(board)
    }

    pub(crate) fn sees_board(&self) -> bool {
        self.config.share && self.board.board.get().is_some()
    }

    /// Whether there is a board, or may be one with the first connection.
    pub(crate) fn may_see_board(&self) -> bool {
        self.sees_board() || self.config.share && self.board.mapped.load(Ordering::Relaxed) == 0
    }

    /// There is a new connection: this is who serves, and its board the one that is looked at, or none.
    pub(crate) fn serves(&self, conn: &Conn) {
        self.serving.store(conn.process.incarnation.part(), Ordering::SeqCst);
        let at = conn.welcome.board.filter(|_| self.config.share);
        let same = |board: &Board| at.is_some_and(|at| board.nonce.load(Ordering::Relaxed) == at.nonce);
        if self.board.board.get().is_some_and(same) {
            return;
        }
        let more = |_: &BoardAt| self.board.mapped.fetch_add(1, Ordering::Relaxed) < MOST;
        self.board
            .board
            .set(at.filter(more).and_then(|at| sys::board(rustix::fd::AsFd::as_fd(conn.socket.fd()), at)));
    }

    /// A file that a node has opened, after `started`.
    pub(crate) fn file_of(
        &self,
        path: Path<'_>,
        flags: OpenFlags,
        opened: Opened,
        started: Nanos,
    ) -> (File, Attr) {
        let Opened { node, handle, attr, identity, seen } = opened;
        let mut file = File::new(path, flags, &attr, identity, self.place(node, handle));
        if let Some((still, contents, later)) = seen {
            file.saw(attr, still, contents, started);
            let number = self.next_id.fetch_add(1, Ordering::Relaxed);
            file.later = later.then_some(Puts { number, handle });
        }
        (file, attr)
    }

    /// Opens a file that another process has open, if that is what still has this name.
    pub fn open_same(&self, path: Path<'_>, flags: OpenFlags, identity: u64) -> Result<File, Error> {
        let asked = if self.may_see_board() { flags | OpenFlags::SEEN } else { flags };
        let started = sys::now();
        let opened = self.open_on_some(path, asked, 0, identity)?;
        let (mut file, _) = self.file_of(path, flags, opened.map_err(|_| Error::local(libc::EIO))?, started);
        file.later = None;
        Ok(file)
    }

    /// The attributes of an open file, if they are known without asking.
    pub fn attributes(&self, file: &File) -> Option<Attr> {
        let seen = file.seen.as_ref().filter(|_| !file.is_shared() && !file.streams.is_aged())?;
        let now = sys::now();
        let fresh = now.since(seen.at) < GOOD_FOR;
        (fresh && self.board(now)?.attributes_hold(&seen.still)).then_some(seen.attr)
    }
}

impl File {
    /// What the node saw after `at`, in answer to its open.
    pub(crate) fn saw(&mut self, attr: Attr, still: Still, contents: Option<Vec<u8>>, at: Nanos) {
        self.seen = Some(Sighting { attr, still, at });
        if let Some(contents) = contents {
            self.streams.begin_with(contents, still, at);
        }
    }

    /// Its attributes when it was opened.
    pub(crate) fn made_as(&self) -> Option<&Attr> {
        self.seen.as_ref().map(|seen| &seen.attr)
    }
}
