//! Clients that fork and end, and open files on their way from one node to another.

use crate::client::{Client, Doing, ESTALE};
use crate::world::{Failed, Frame, World};
use forebay_types::Nanos;
use forebay_wire::hello::HostBoot;
use forebay_wire::session::call::Process;
use forebay_wire::session::news::News;
use forebay_wire::session::place::Moved;
use std::collections::BTreeMap;
use std::rc::Rc;

#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    Request,
    Look,
    Ask {
        via: usize,
        asked: Nanos,
        about: Process,
        age_ms: u32,
    },
    Map,
    Adopt,
    Open,
    /// Ask whether the file is still open there, which could not be opened elsewhere for that reason.
    Hold(i32),
    /// Close the file there, which is open elsewhere now.
    Leave {
        handle: u64,
        linger: bool,
        lock_lost: bool,
    },
    /// Sync what that host has: first the file is opened there.
    Duty {
        id: u64,
        host: HostBoot,
    },
}

/// Where the file is open, by whom.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) node: usize,
    pub(crate) handle: u64,
    pub(crate) client: usize,
    pub(crate) lost: bool,
    pub(crate) nameless: bool,
}

impl Client {
    pub(crate) fn ask_to_fork(&mut self) {
        self.to_fork = true;
    }

    pub(crate) fn is_to_fork(&self) -> bool {
        self.to_fork && !self.ended && self.current.is_none()
    }

    /// A process that goes on with what this one has open.
    pub(crate) fn fork(&mut self, w: &mut World, index: usize) -> Client {
        self.to_fork = false;
        self.forks += 1;
        for known in self.links.values() {
            w.tie(known.link, self.index);
        }
        for line in w.lifelines.iter_mut().filter(|line| line.holders.contains(&self.index)) {
            line.holders.push(index);
        }
        self.shared = true;
        let mut nodes = self.nodes.clone();
        nodes.fork(self.forks);
        self.share();
        let mut locks = self.locks.clone();
        locks.fork();
        let mut child = Client {
            index,
            nodes,
            news: News::default(),
            links: BTreeMap::new(),
            place: self.place,
            shared: true,
            locks,
            current: None,
            doing: Doing::Nothing,
            turn: 0,
            stopped_until: Nanos::ZERO,
            locked: None,
            next_id: 0,
            left: 2 + w.random.below(8),
            file: self.file,
            open: Rc::clone(&self.open),
            hearing: self.hearing.clone(),
            owed: 0,
            sync: None,
            duties: Vec::new(),
            duty: None,
            forks: 0,
            to_fork: false,
            to_end: false,
            ended: false,
        };
        let pause = w.random.skewed(Nanos::from_secs(12));
        child.arm(w, w.now + pause);
        child
    }

    pub(crate) fn ask_to_end(&mut self, w: &mut World) {
        self.to_end = true;
        self.end_if_asked(w);
    }

    /// Takes leave, between two calls.
    pub(crate) fn end_if_asked(&mut self, w: &mut World) {
        if !self.to_end || self.ended || self.current.is_some() {
            return;
        }
        self.ended = true;
        for known in self.links.values() {
            w.send(known.link, true, Frame::Goodbye(self.forks > 0));
            w.hang_up(known.link);
        }
        w.let_go(self.index);
    }

    /// Is killed.
    pub(crate) fn die(&mut self, w: &mut World) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        if let Some(c) = self.current.take() {
            w.done[c.number].excused = true;
        }
        if let Doing::Connecting { link: Some(link), .. } = std::mem::replace(&mut self.doing, Doing::Nothing)
        {
            w.reset(link);
        }
        for known in std::mem::take(&mut self.links).into_values() {
            w.reset(known.link);
        }
        w.let_go(self.index);
    }

    /// What has become of the file that was to be opened on a node.
    pub(crate) fn moved(&mut self, w: &mut World, node: usize, moved: Moved, got: Option<(u64, u64)>) {
        let old = self.place;
        match (moved, got) {
            (Moved::There { close, linger, lock_lost }, Some((file, handle))) => {
                self.file = Some(file);
                w.totals.moved += u64::from(old.node != node);
                self.place = Place { node, handle, client: self.index, lost: false, nameless: false };
                if close {
                    return self.begin(w, old.node, Purpose::Leave { handle: old.handle, linger, lock_lost });
                }
                return self.has_left(w, old.handle, false, lock_lost);
            }
            (Moved::Ask(old), _) => return self.begin(w, old, Purpose::Hold(ESTALE)),
            (Moved::Stays, _) => {
                w.totals.kept += 1;
                self.nodes.mark_up(old.node, false);
                self.place.nameless = true;
            }
            _ => return self.finish(w, Err(Failed::Stale)),
        }
        self.doing = Doing::Nothing;
        self.go(w);
    }

    /// The file is open elsewhere, and was closed where it was, if that node knew it still.
    pub(crate) fn has_left(&mut self, w: &mut World, handle: u64, known: bool, lock_lost: bool) {
        if self.left(handle, !known) || lock_lost {
            return self.finish(w, Err(Failed::LockLost));
        }
        self.doing = Doing::Nothing;
        self.go(w);
    }
}
