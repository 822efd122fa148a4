//! The end of sessions and of nodes that drain, and what outlives a session for those who inherited from it.

use crate::node::Opened;
use crate::world::{Event, Lifeline, World};
use forebay_types::Nanos;
use forebay_wire::session::place::Ties;
use forebay_wire::session::presence::{self, Drain, GRACE, Remaining, Step, may_close};

/// How often a node looks after its sessions, and after its drain.
const TICK: Nanos = Nanos::from_millis(100);
const DRAIN: Nanos = Nanos::from_secs(5);

impl World {
    pub(crate) fn lapse(&mut self, p: usize, session: usize) {
        let (now, process) = (self.now, &mut self.processes[p]);
        let held = &process.sessions[session];
        if process.ended || held.gone || !held.presence.is_over(now, GRACE, false) {
            return;
        }
        if process.frozen || !held.presence.is_over(now, GRACE, held.busy()) {
            self.at(now + TICK, Event::Lapse(p, session));
            return;
        }
        process.leave(session, None, true);
        self.unlock(p, session);
    }

    pub(crate) fn is_draining(&self, p: usize) -> bool {
        self.processes[p].draining.is_some()
    }

    pub(crate) fn begin_drain(&mut self, p: usize) {
        self.processes[p].draining = Some(Drain::new(self.now, DRAIN));
        self.drain(p);
    }

    /// Whether a draining node waits for a client that says nothing.
    fn holds_on(&self, p: usize, session: usize) -> bool {
        let held = &self.processes[p].sessions[session];
        let ties = |(file, handle): &Opened| {
            let locked = self.flock == Some((p, *handle));
            Ties { locked, nameless: *file != self.file, shared: false }
        };
        let locks = self.lock == Some((p, held.client));
        presence::holds_on(held.busy(), locks, held.share.all().map(ties))
    }

    pub(crate) fn drain(&mut self, p: usize) {
        let now = self.now;
        let ended = self.processes[p].ended;
        let Some(drain) = self.processes[p].draining.filter(|_| !ended) else { return };
        self.at(now + TICK, Event::Tick(p));
        let process = &self.processes[p];
        if process.frozen {
            return;
        }
        let open: Vec<usize> =
            process.desks.iter().filter(|(_, desk)| !desk.ended).map(|(link, _)| *link).collect();
        let ties: Vec<usize> = (0..self.lifelines.len()).filter(|&i| self.lifelines[i].is_to(p)).collect();
        let unread = |link: &usize| process.desks[link].busy || !process.desks[link].inbox.is_empty();
        let left = Remaining {
            connections: open.len() + ties.len(),
            busy: !process.calls.is_empty() || open.iter().any(unread),
            owed: process.sessions.iter().any(|s| !s.gone && s.presence.is_owed(s.busy())),
        };
        if let Step::End { .. } = drain.next(now, left) {
            let slot = process.slot;
            return self.kill(slot);
        }
        for link in open {
            let desk = &self.processes[p].desks[&link];
            let (quiet_for, unanswered) = (now.since(desk.heard), desk.busy || !desk.inbox.is_empty());
            let session = desk.session;
            if may_close(quiet_for, unanswered, || session.is_some_and(|s| self.holds_on(p, s))) {
                self.closed_by_node(link);
                let process = &mut self.processes[p];
                if let Some(desk) = process.desks.get_mut(&link) {
                    desk.ended = true;
                }
                if let Some(session) = session {
                    process.sessions[session].presence.left(now, false);
                    self.at(now + GRACE, Event::Lapse(p, session));
                }
            }
        }
        for i in ties {
            if !self.holds_on(p, self.lifelines[i].session) {
                self.untied(i);
            }
        }
    }

    /// A client forks: who comes of it holds on to what is open at the other end of a connection.
    pub(crate) fn tie(&mut self, link: usize, parent: usize) {
        let (process, slot) = (self.links[link].process, self.links[link].slot);
        let p = &mut self.processes[process];
        let known = self.lifelines.iter().any(|l| l.is_to(process) && l.owner == parent);
        let Some(&session) = p.current.get(&parent).filter(|_| !known && !p.ended && !p.frozen) else {
            return;
        };
        let whole = self.links[link].open && !self.links[link].deaf;
        if whole && self.connected(parent, slot) {
            let line = self.processes[process].sessions[session].share.tied();
            self.lifelines.push(Lifeline {
                line,
                process,
                session,
                owner: parent,
                holders: vec![parent],
                open: true,
            });
        }
    }

    /// A process has ended: its lifelines do with the last who has them.
    pub(crate) fn let_go(&mut self, client: usize) {
        for i in 0..self.lifelines.len() {
            let holders = &mut self.lifelines[i].holders;
            let held = holders.contains(&client);
            holders.retain(|other| *other != client);
            if held && holders.is_empty() {
                let delay = self.random.skewed(Nanos::from_millis(300));
                self.at(self.now + delay, Event::Untied(i));
            }
        }
    }

    pub(crate) fn untied(&mut self, i: usize) {
        let Lifeline { line, process, session, open, .. } = self.lifelines[i];
        if !open || self.processes[process].ended {
            return;
        }
        if self.processes[process].frozen {
            self.at(self.now + TICK, Event::Untied(i));
            return;
        }
        self.lifelines[i].open = false;
        let linger = self.now + GRACE;
        self.processes[process].share(session, |share, release| drop(share.untied(line, linger, release)));
    }
}

impl Lifeline {
    fn is_to(&self, process: usize) -> bool {
        self.open && self.process == process
    }
}
