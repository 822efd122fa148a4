//! The network: connections that are delayed, lose what is sent, and are reset with some of it still on the way.

use crate::node::Desk;
use crate::plan::Sort;
use crate::world::{Event, Frame, Link, Stamp, World};
use forebay_types::Nanos;

impl World {
    /// Whether frames get through between a client and an address.
    pub(crate) fn connected(&self, client: usize, slot: usize) -> bool {
        !self.cuts.iter().any(|&(c, s, until)| (c, s) == (client, slot) && self.now < until)
    }

    /// A client connects: the link, if somebody listens there.
    pub(crate) fn connect(&mut self, client: usize, slot: usize) -> Option<usize> {
        let process = self.slots[slot].filter(|_| self.connected(client, slot));
        let Some(process) = process else {
            // Refused at once, or nothing heard: the client's own patience ends that.
            if self.slots[slot].is_none() {
                let delay = self.random.skewed(Nanos::from_millis(5));
                self.at(self.now + delay, Event::Refused(client, slot));
            }
            return None;
        };
        let last = [self.now; 2];
        self.links.push(Link { client, process, slot, open: true, deaf: false, flying: Vec::new(), last });
        let link = self.links.len() - 1;
        self.processes[process].desks.insert(link, Desk::default());
        Some(link)
    }

    /// Sends a frame; lost if the link is cut, and then nothing that follows arrives either.
    pub(crate) fn send(&mut self, link: usize, to_node: bool, frame: Frame) {
        let Link { client, slot, open, deaf, process, .. } = self.links[link];
        if !open || deaf {
            return;
        }
        let chance = self.plan.sort != Sort::Kin && self.random.one_in(3000);
        if chance || !self.connected(client, slot) {
            self.lost += 1;
            // Part of it may have arrived: the connection is of no use any more.
            if self.random.one_in(4) {
                self.reset(link);
            } else {
                self.links[link].deaf = true;
            }
            return;
        }
        let delay = Nanos(20_000) + self.random.skewed(Nanos::from_millis(300));
        let last = &mut self.links[link].last[usize::from(to_node)];
        let when = (self.now + delay).max(*last);
        *last = when;
        let process = &self.processes[process];
        let stamp = Stamp { epoch: process.epoch, draining: process.draining.is_some() };
        let number = self.at(when, Event::Arrive(link, to_node, frame, stamp));
        if to_node {
            self.links[link].flying.push((when, number));
        }
    }

    /// The connection breaks. Of what is on the way to the node, some may still arrive, perhaps much later: its
    /// client may have sent it again by then.
    pub(crate) fn reset(&mut self, link: usize) {
        if !std::mem::replace(&mut self.links[link].open, false) {
            return;
        }
        let flying = std::mem::take(&mut self.links[link].flying);
        let flying: Vec<(Nanos, u64)> =
            flying.into_iter().filter(|(_, number)| self.events.contains_key(number)).collect();
        let arrive = self.random.below(flying.len() as u64 + 1) as usize;
        let late = if self.random.one_in(4) { self.random.skewed(Nanos::from_secs(4)) } else { Nanos::ZERO };
        let mut last = self.now;
        for (i, (when, number)) in flying.into_iter().enumerate() {
            let event = self.events.remove(&number);
            if let Some(event) = event.filter(|_| i < arrive) {
                last = when + late;
                self.at(last, event);
            }
        }
        self.at(last + Nanos(1), Event::Arrive(link, true, Frame::End, Stamp::default()));
        self.notice(link);
    }

    /// The client has ended: what it sent arrives, and then no more.
    pub(crate) fn hang_up(&mut self, link: usize) {
        if std::mem::replace(&mut self.links[link].open, false) {
            let last = self.links[link].last[1];
            self.at(last + Nanos(1), Event::Arrive(link, true, Frame::End, Stamp::default()));
        }
    }

    /// The node closes it, with whatever is on the way.
    pub(crate) fn closed_by_node(&mut self, link: usize) {
        if std::mem::replace(&mut self.links[link].open, false) {
            for (_, number) in std::mem::take(&mut self.links[link].flying) {
                self.events.remove(&number);
            }
            self.notice(link);
        }
    }

    fn notice(&mut self, link: usize) {
        let delay = self.random.skewed(Nanos::from_millis(20));
        self.at(self.now + delay, Event::Broken(link));
    }
}
