//! Clients that fork and end, and open files on their way from one node to another.

use crate::client::{Client, Doing, ESTALE, Place, Purpose};
use crate::world::{Failed, Frame, World};
use forebay_types::Nanos;
use forebay_wire::session::news::News;
use forebay_wire::session::place::Moved;
use std::collections::BTreeMap;
use std::rc::Rc;

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
                let left = self.links.get(&old.node).filter(|_| close).map(|known| known.link);
                if let Some(link) = left {
                    w.send(link, true, Frame::Close(w.now, old.handle, linger));
                }
                if self.left(old.handle, !close) || lock_lost {
                    return self.finish(w, Err(Failed::LockLost));
                }
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
}
