//! What goes wrong between clients and nodes, and with requests that are at a node's storage.

use super::{HANGS, Nemesis, SETTLES, State, Then, signal};
use crate::torture::ground::{ALONE, NODES, TortureCluster};
use crate::torture::history::now;
use anyhow::Result;
use rand::Rng;
use rand::seq::IndexedRandom;
use rustix::process::Signal;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What has not ended for so long after its storage was slow has been at the storage.
const AT_STORAGE: Duration = Duration::from_millis(150);
/// So long after the job was moved its processes are there; and so long after they were held up, they have asked.
const COME: Duration = Duration::from_millis(30);
const SENT: Duration = Duration::from_millis(4);
/// So long after that it has done what it had.
const DONE: Duration = Duration::from_millis(300);
/// Storage hangs once in so long at most.
const HANGS_EVERY: u64 = 60_000_000_000;

impl Nemesis {
    /// Some of the job's processes go to that node, others to one of another host: somebody whose requests meet what
    /// comes, and somebody who writes over what is late. Who can vouch for it is one of the job's nodes, too: a process
    /// that was started without knowing of him would have nobody to ask. Whether they were sent there.
    pub(super) fn lure(&mut self, ground: &TortureCluster, i: usize) -> bool {
        let apart = |n: &usize| ground.members[*n].host != ground.members[i].host;
        let up = |n: &usize| self.subjects[*n].state == State::Up;
        let others: Vec<usize> = (0..NODES).filter(|n| apart(n) && up(n)).collect();
        let Some(other) = others.choose(&mut self.rng) else { return false };
        let nodes: Vec<usize> = [i, *other].into_iter().chain(ground.neighbours(i)).collect();
        let moved = self.pin(ground, &nodes);
        if moved {
            sleep(COME);
        }
        moved
    }

    /// Connections to it are held back in one direction or both, break before or after that, and are refused; or its
    /// cable is pulled.
    pub(super) fn harm_way(&mut self, ground: &mut TortureCluster, i: usize) -> Result<()> {
        // Where somebody can vouch for it, that is mostly wanted.
        let silent = ground.neighbours(i).any(|n| self.subjects[n].state != State::Up);
        let wanted = match ground.link(i) {
            None => 0.3,
            Some(_) if silent => 0.1,
            Some(_) => 1.0,
        };
        if self.is_slow_host(ground, i) || !self.rng.random_bool(wanted) {
            return Ok(());
        }
        self.lure(ground, i);
        match self.rng.random_range(0..20) {
            n if n == 0 || ground.link(i).is_none() => return self.cut(ground, i),
            1..8 => self.requests_late(ground, i),
            8..12 => self.answers_lost(ground, i),
            12..16 => self.answers_lost_and_killed(ground, i),
            16 => self.silence(ground, i),
            n => self.hold(ground, i, n < 18),
        }
        Ok(())
    }

    fn cut(&mut self, ground: &TortureCluster, i: usize) -> Result<()> {
        if ground.net.is_some() {
            ground.cut(i, true)?;
            let long = self.ms(200, 2500);
            self.set(i, State::Cut, long);
            self.tell("cut a link", i);
        }
        Ok(())
    }

    /// What clients have sent arrives late: for them the node is gone meanwhile. That is as long as it takes to ask its
    /// neighbour, who says that it lives; or shorter than its lease, but longer than a part of it; or longer than their
    /// fence. The last is seen only where a neighbour says that it has not begun: alone, they wait or say that they repeat.
    fn requests_late(&mut self, ground: &TortureCluster, i: usize) {
        let Some(link) = ground.link(i) else { return };
        let alone = ground.neighbours(i).next().is_none();
        let late = match self.rng.random_range(0..10) {
            0..3 => self.ms(40, 250),
            3..6 => self.ms(270, 480),
            6.. if alone => self.ms(270, 480),
            _ => self.ms(850, 1600),
        };
        let more = if self.rng.random_bool(0.5) { self.ms(0, 100) } else { self.ms(500, 900) };
        link.hold(true, false);
        // On a busy machine it takes longer until they have asked.
        sleep(SENT + self.ms(0, 20));
        link.refuse();
        link.reset();
        link.open_after(late, more);
        self.set(i, State::Held { reset: false }, late + more);
        self.tell("requests arrive late, others are refused", i);
    }

    /// What clients have asked for has been done, and they do not hear of it. For them the node is gone: for less than
    /// it keeps a session, or for more.
    fn answers_lost(&mut self, ground: &TortureCluster, i: usize) {
        let Some(link) = ground.link(i) else { return };
        // Who can ask a neighbour does so at once; others come back, in time for their session or too late.
        let alone = ground.neighbours(i).next().is_none();
        let long = if alone && self.rng.random_bool(0.6) { self.ms(50, 400) } else { self.ms(900, 1600) };
        link.hold(false, true);
        self.let_others_go_on();
        link.refuse();
        link.reset();
        link.open_after(Duration::ZERO, long);
        self.set(i, State::Held { reset: false }, long);
        self.tell("lose answers, others are refused", i);
    }

    /// What it has done, others see, and change: or it is all the same when it is done again.
    fn let_others_go_on(&mut self) {
        let long = if self.rng.random_bool(0.5) { self.ms(4, 40) } else { self.ms(60, 220) };
        sleep(long);
    }

    /// The same, and it is killed: only its ledger knows what it has done.
    fn answers_lost_and_killed(&mut self, ground: &mut TortureCluster, i: usize) {
        let Some(link) = ground.link(i) else { return };
        link.hold(false, true);
        self.let_others_go_on();
        link.refuse();
        link.reset();
        self.kill(ground, i, false, "lose answers, then kill");
        if let Some(link) = ground.link(i) {
            link.hold(false, false);
        }
    }

    /// Answers are lost, and then nobody reaches it for longer than it keeps a session that nobody uses.
    fn silence(&mut self, ground: &TortureCluster, i: usize) {
        let Some(link) = ground.link(i) else { return };
        link.hold(false, true);
        let long = self.ms(40, 200);
        self.set(i, State::Losing, long);
        self.tell("lose answers, then silence", i);
    }

    /// Nobody is refused.
    fn hold(&mut self, ground: &TortureCluster, i: usize, requests: bool) {
        let Some(link) = ground.link(i) else { return };
        // Answers that nobody hears any more: what was asked has been done.
        let (now, later) = match requests {
            true => (self.rng.random_bool(0.7), false),
            false => (false, self.rng.random_bool(0.8)),
        };
        link.hold(requests, !requests);
        if now {
            // What is on its way has left its client.
            sleep(SENT);
            link.reset();
        }
        // Shorter than it takes to give a node up, so that it is asked once more; or longer.
        let long = match (requests, self.rng.random_bool(0.5)) {
            (true, _) => self.ms(20, 900),
            (false, true) => self.ms(20, 500),
            (false, false) => self.ms(500, 2600),
        };
        self.set(i, State::Held { reset: later }, long);
        self.tell(if requests { "hold requests back" } else { "hold answers back" }, i);
        if now || later {
            self.tell("break connections", i);
        }
    }

    /// First its storage gets slow, so that requests wait there. Only where a neighbour can tell that they do, or
    /// the node itself is asked again.
    pub(super) fn harm_storage(&mut self, ground: &mut TortureCluster, i: usize) -> Result<()> {
        let host: Vec<usize> = ground.neighbours(i).chain([i]).collect();
        let still =
            |n: &usize| self.subjects[*n].state != State::Up || Instant::now() < self.subjects[*n].spared;
        if host.iter().any(still) || self.is_slow_host(ground, i) {
            return Ok(());
        }
        let (neighbour, linked) = (host.len() > 1, ground.link(i).is_some());
        let hung_lately = self.hung.last().is_some_and(|(_, to)| now() < to + HANGS_EVERY);
        let then = match self.rng.random_range(0..20) {
            _ if i == ALONE && self.patient && !hung_lately => Then::Hang,
            0..5 if linked => Then::Break,
            5..11 if linked && neighbour => Then::Refuse,
            11..15 if neighbour && ground.net.is_some() => Then::Cut,
            _ if neighbour => Then::Stop,
            _ if linked => Then::Break,
            _ => return Ok(()),
        };
        // Later than its clients give it up, and go elsewhere if they may.
        let late = match then {
            Then::Break => self.ms(300, 900),
            Then::Refuse => self.ms(1000, 1600),
            Then::Stop | Then::Cut => self.ms(1500, 2300),
            Then::Hang => HANGS,
        };
        let long = match then {
            Then::Break | Then::Hang => Duration::ZERO,
            Then::Refuse => late,
            Then::Stop | Then::Cut => self.ms(1500, 2300),
        };
        // Who does not know the neighbour has nobody to ask, waits for 1.5 leases, and is written over: that remains.
        let asked = matches!(then, Then::Refuse | Then::Stop | Then::Cut);
        if !self.lure(ground, i) && asked {
            return Ok(());
        }
        std::fs::write(ground.slow_file(i), late.as_millis().to_string())?;
        self.set(i, State::Filling(then, long), AT_STORAGE);
        for n in host {
            self.subjects[n].spared = Instant::now() + 2 * AT_STORAGE + long.max(late) + DONE;
        }
        if then == Then::Hang {
            let long = (2 * AT_STORAGE + late + SETTLES).as_nanos() as u64;
            self.hung.push((now(), now() + long));
        }
        Ok(())
    }

    /// Its storage has requests.
    pub(super) fn filled(
        &mut self,
        ground: &mut TortureCluster,
        i: usize,
        then: Then,
        long: Duration,
    ) -> Result<()> {
        std::fs::remove_file(ground.slow_file(i))?;
        self.subjects[i].slowed = Some(Instant::now());
        let (state, what) = match then {
            Then::Stop => {
                signal(ground, i, Signal::STOP);
                (State::Stopped, "stop with requests at the storage")
            }
            Then::Cut => {
                ground.cut(i, true)?;
                (State::Cut, "cut a link, requests at the storage")
            }
            Then::Break | Then::Refuse => {
                if let Some(link) = ground.link(i) {
                    if then == Then::Refuse {
                        link.refuse();
                        link.open_after(Duration::ZERO, long);
                    }
                    link.reset();
                }
                match then {
                    Then::Refuse => (State::Held { reset: false }, "refuse, requests at the storage"),
                    _ => (State::Up, "break connections, requests at the storage"),
                }
            }
            Then::Hang => (State::Up, "storage hangs"),
        };
        self.set(i, state, long);
        self.tell(what, i);
        Ok(())
    }
}
