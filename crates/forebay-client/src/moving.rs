//! On the move: where the arbiter says, between two requests; and open files from a node that died,
//! drains, was left or was only the parent's, to the one that serves.

use crate::call::{TURN, refused};
use crate::client::Client;
use crate::config::Reread;
use crate::conn::{Failure, PING_AFTER};
use crate::error::Error;
use crate::file::File;
use crate::sys;
use crate::whereabouts::RemoteHandle;
use forebay_types::{Address, Epoch, Nanos};
use forebay_wire::flags::OpenFlags;
use forebay_wire::frame::{Header, flag};
use forebay_wire::message::{Answer, ExportId, Meta, Path, Target};
use forebay_wire::session::call::{Call, Kind, Process, Verdict};
use forebay_wire::session::locks::Locks;
use forebay_wire::session::place::{Adopted, Moved, Moving, Said};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The configuration is not read again sooner.
const REREAD_AFTER: Duration = Duration::from_millis(200);

/// The end of a step: it went as it should, or its node failed. `Err` of the outer kind ends the call.
type Stepped = Result<Result<(), Failure>, Error>;

impl Client {
    /// A node answered.
    pub(crate) fn heard_from(&self, node: usize, header: &Header) {
        self.nodes.mark_up(node, header.has(flag::MOVE));
        self.heard_epoch(Epoch(header.stamp.get()));
    }

    /// A node told the version of its mapping.
    pub(crate) fn heard_epoch(&self, epoch: Epoch) {
        self.news.heard(epoch);
    }

    /// Whether a node told of a newer mapping, and nobody is asking for it.
    pub(crate) fn has_news(&self) -> bool {
        self.news.is_due(self.nodes.epoch())
    }

    /// The index of the node at `address`.
    pub(crate) fn node_at(&self, address: &Address) -> usize {
        self.nodes.find(|known| *known == address).unwrap_or_else(|| {
            // A node once known is known until the process ends, and their number is limited.
            self.nodes.index(&&*Box::leak(Box::new(address.clone())))
        })
    }

    /// Asks `node` for the mapping, and goes by it.
    pub(crate) fn follow(&self, node: usize, call: &mut Call) -> Result<(), Failure> {
        if !self.news.ask() {
            return Ok(());
        }
        let asked = self.exchange(node, &Meta::Mapping, call.deadline());
        let (said, nodes) = match asked.as_ref().map(|(_, _, body)| Answer::decode(body)) {
            Ok(Ok(Answer::Mapping { epoch, nodes })) => (Some(epoch), nodes),
            _ => (None, Vec::new()),
        };
        self.news.answered(said, self.nodes.epoch(), |epoch| {
            let nodes: Vec<&'static Address> = nodes
                .iter()
                .filter_map(|n| n.parse().ok())
                .map(|address| *self.nodes.address(self.node_at(&address)))
                .collect();
            self.nodes.remap(epoch, &nodes);
        });
        asked.map(|_| ())
    }

    /// The arbiter itself says where the job belongs. Nodes tell it with every answer; this is for whoever may be
    /// silent for so long that all it knew are gone.
    pub fn moved(&self, epoch: Epoch, nodes: &[Address]) {
        // Whoever is asking a node hears as much.
        if nodes.is_empty() || !self.news.ask() {
            return;
        }
        self.news.answered(Some(epoch), self.nodes.epoch(), |epoch| {
            let nodes: Vec<&'static Address> =
                nodes.iter().map(|address| *self.nodes.address(self.node_at(address))).collect();
            self.nodes.remap(epoch, &nodes);
        });
    }

    /// None of the nodes that are known answers: the job may be on others by now, of which nobody is left who could have
    /// told. What new processes start with says so.
    pub(crate) fn look_elsewhere(&self) {
        let (now, Some(Reread(read))) = (sys::now(), &self.config.reread) else { return };
        let last = self.reread.load(Ordering::Relaxed);
        if !self.nodes.all_down(now)
            || now < Nanos(last) + REREAD_AFTER.into()
            || self.reread.compare_exchange(last, now.0, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        let Some(config) = read() else { return };
        for spare in &config.spare {
            self.node_at(spare);
        }
        self.moved(config.epoch, &config.nodes);
    }

    /// Asks `via` what became of a process that has a request of ours.
    pub(crate) fn ask(
        &self,
        via: usize,
        about: Process,
        age_ms: u32,
        call: &mut Call,
    ) -> Result<(), Failure> {
        let asked = sys::now();
        let op = Meta::Verdict { incarnation: about.incarnation, session: self.session, id: call.id, age_ms };
        let answer = self.exchange(via, &op, call.deadline().min(asked + PING_AFTER.into()));
        let verdict = match answer.as_ref().map(|(_, _, body)| Answer::decode(body)) {
            Ok(Ok(Answer::Verdict { known: true, dead, fate })) => Verdict::Known { dead, fate },
            Ok(_) => Verdict::Ignorant,
            Err(_) => Verdict::NoAnswer,
        };
        call.verdict(via, asked, verdict);
        answer.map(|_| ())
    }

    /// A file of this session.
    pub(crate) fn place(&self, node: usize, handle: u64) -> RemoteHandle {
        RemoteHandle { node, address: self.nodes.address(node), handle, session: self.session, lost: false }
    }

    /// Takes a share of a file that came by `exec`, if its node answers within `patience`: however late the
    /// program uses it, and whoever else has closed it by then, it is there. Otherwise its first use says what
    /// became of it.
    pub fn adopt_early(&self, file: &File, patience: Duration) -> bool {
        let now = sys::now();
        let mut call = self.begin(Kind::Look, now);
        call.restart(now, patience.into());
        let (_, at) = self.at(file, now);
        matches!(self.adopt_on(at.node, file, &mut call), Ok(Ok(())))
    }

    /// Takes the parent's open file over.
    pub(crate) fn adopt_on(&self, node: usize, file: &File, call: &mut Call) -> Stepped {
        let Some(_alone) = self.alone(file)? else { return Ok(Ok(())) };
        let (place, at) = self.at(file, sys::now());
        if at.ours || at.lost || at.node != node {
            return Ok(Ok(()));
        }
        let op = Meta::Adopt { session: place.session, handle: place.handle };
        match self.exchange(node, &op, call.deadline()) {
            Ok((_, header, body)) => {
                let got = opened(&header, &body);
                match Adopted::of(got.map(|(handle, _)| handle), header.has(flag::STALE_HANDLE)) {
                    Adopted::Ours(handle) => {
                        file.end.store(got.map_or(0, |(_, size)| size), Ordering::Relaxed);
                        file.set_place(self.place(node, handle));
                    }
                    Adopted::Gone => file.set_place(RemoteHandle { lost: true, ..place }),
                    Adopted::Refused => return Err(refused(&header, &body)),
                }
                Ok(Ok(()))
            }
            Err(failure) => {
                call.step_failed();
                Ok(Err(failure))
            }
        }
    }

    /// One thread moves a file, the others wait: a second handle would be nobody's. `None`: look again.
    fn alone<'a>(&self, file: &'a File) -> Result<Option<crate::file::Alone<'a>>, Error> {
        if file.is_closed() {
            return Err(Error::local(libc::EBADF));
        }
        let alone = file.begin_move();
        if alone.is_none() {
            let _ = sys::nap(TURN);
        } else if file.is_closed() {
            return Err(Error::local(libc::EBADF));
        }
        Ok(alone)
    }

    /// Opens a file on `node`, by its name.
    pub(crate) fn open_again(&self, node: usize, file: &File, call: &mut Call) -> Stepped {
        let before = file.place();
        let Some(_alone) = self.alone(file)? else { return Ok(Ok(())) };
        let (old, at) = self.at(file, sys::now());
        if (old.handle, old.session, old.lost) != (before.handle, before.session, before.lost) {
            return Ok(Ok(()));
        }
        let rel = file.rel();
        let path = Path { export: ExportId(file.export), rel: &rel };
        // The name was resolved before; a link that stands in its place now is another file.
        let flags = file.flags().without(OpenFlags::NOFOLLOW);
        let op = Meta::Open { path, flags, mode: 0, identity: file.identity };
        let (header, body) = match self.exchange(node, &op, call.deadline()) {
            Ok((_, header, body)) => (header, body),
            Err(failure) => {
                call.step_failed();
                return Ok(Err(failure));
            }
        };
        let handle = opened(&header, &body).map(|(handle, _)| handle);
        let errno = refused(&header, &body).errno();
        let said = handle.map_or(Said::Refused(errno), |_| Said::Opened);
        let moving = Moving::new(at, file.is_shared());
        let decide = |locks: &mut Locks| {
            if file.is_known_together() {
                locks.leave_own();
            }
            moving.answered(said, sys::now(), &self.nodes, locks)
        };
        // Only this thread itself, by a signal handler, can be at the locks for so long.
        let mut moved = file.with_locks(decide).ok_or_else(|| Error::local(libc::EIO))?;
        if let Moved::Ask(node) = moved {
            moved = moving.held(errno, self.holds(node, old.handle, call.deadline()));
        }
        match (moved, handle) {
            (Moved::There { close, linger, lock_lost }, Some(handle)) => {
                file.set_place(self.place(node, handle));
                // Whether it lives, only its word says.
                let mut known = false;
                if close {
                    let said = self.exchange_as(
                        at.node,
                        &Meta::Close { handle: old.handle },
                        call.deadline(),
                        linger,
                    );
                    known = self.note_close(file, said);
                }
                if file.left(old, !known) || lock_lost {
                    return Err(Error::LockLost(old.address.clone()));
                }
            }
            (Moved::Stays, _) => {
                self.nodes.mark_up(at.node, false);
                file.set_stays();
                // One that drains waits for what it knows to stay.
                let (handle, flags) = (old.handle, file.flags() | OpenFlags::STAYS);
                let _ = self.exchange(at.node, &Meta::SetFlags { handle, flags }, call.deadline());
            }
            (Moved::Lost, _) => return Err(Error::Lost(old.address.clone())),
            _ => return Err(refused(&header, &body)),
        }
        Ok(Ok(()))
    }

    /// A file was closed on a node that it has left. What that says of what was written is told later; if the node
    /// is gone, the handle is with it. Whether it knew the file.
    fn note_close(&self, file: &File, said: Result<(Process, Header, Vec<u8>), Failure>) -> bool {
        let Ok((_, header, _)) = said else { return false };
        let known = !header.has(flag::STALE_HANDLE);
        if known && header.status.get() != 0 {
            self.tell_later(file, i32::try_from(header.status.get()).unwrap_or(libc::EIO));
        }
        known
    }

    /// Whether a node that seemed to be down still has the file open for us.
    fn holds(&self, node: usize, handle: u64, until: Nanos) -> bool {
        let stat = Meta::Stat { target: Target::Handle(handle) };
        self.exchange(node, &stat, until).is_ok_and(|(_, header, _)| header.status.get() == 0)
    }
}

/// The handle and size of a file that was opened.
fn opened(header: &Header, body: &[u8]) -> Option<(u64, u64)> {
    match Answer::decode(body) {
        Ok(Answer::Opened { handle, attr, .. }) if header.status.get() == 0 => Some((handle, attr.size)),
        _ => None,
    }
}
