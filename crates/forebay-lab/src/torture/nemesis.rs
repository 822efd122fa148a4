//! The nemesis: what is done to the nodes, the ways to them and the arbiters while the workers work.

mod ways;

use super::ground::{ALONE, LONE, NODES, Role, TortureCluster};
use super::history::now;
use anyhow::Result;
use forebay_embed::Etcd;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long after a storage was slow its host's nodes are not stopped or cut off: a call that is held back for
/// longer than 1.5 leases on a host of which nobody answers is what remains, and is written down.
const SETTLES: Duration = Duration::from_millis(900);
/// A mood lasts so long.
const MOOD: Duration = Duration::from_secs(3);
/// Storage that hangs does so for longer than the deadline of a call.
const HANGS: Duration = Duration::from_millis(11_500);
const KILL_LONE: &str = "kill the only node";
const CRASH: &str = "crash of a host that forgets";
/// Who is held up for longer by a busy machine leaves things broken for longer than is meant.
const HELD_UP: u64 = 2_000_000_000;
/// Longer than a call waits for anybody.
const FOR_LONG: Duration = Duration::from_millis(10_500);

/// What a node is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Up,
    Dead {
        elsewhere: bool,
    },
    Stopped,
    Draining {
        elsewhere: bool,
        /// When it has ended, it is away for so long.
        away: Duration,
    },
    Slow,
    /// Its storage is slow, and has requests; then comes the next, for so long.
    Filling(Then, Duration),
    /// Its answers are held back, and then lost with their connections; and nobody reaches it for a while.
    Losing,
    /// The way to it holds back, or nobody gets through; at the end its connections may be broken.
    Held {
        reset: bool,
    },
    Cut,
}

/// What is done to a node that has requests at its storage.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Stop,
    Break,
    Refuse,
    Cut,
    Hang,
}

/// For a while one kind of thing goes wrong, so that nothing else excuses what it leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    /// Anything, anywhere.
    Wild,
    /// Nodes are stopped.
    Still,
    /// The ways to nodes hold back, break and are cut.
    Ways,
    /// Nodes with requests at their storage are stopped and cut off, while a neighbour can tell.
    Storage,
}

struct Subject {
    state: State,
    until: Instant,
    /// When its storage was last slow.
    slowed: Option<Instant>,
    /// Until then nothing is done to it: it knows of requests that wait at the storage of its host.
    spared: Instant,
    /// When something was last done to it: clients that found it gone do not come back at once.
    harmed: Instant,
}

pub(super) struct Nemesis {
    subjects: Vec<Subject>,
    /// The state of each arbiter, and of each member of etcd.
    arbiters: Vec<(State, Instant)>,
    etcd: Vec<(State, Instant)>,
    moods: Vec<Mood>,
    mood_until: Instant,
    /// Some things may take longer than a call's deadline: storage that hangs, a node that drains and stays away.
    patient: bool,
    acted: u64,
    rng: ChaCha8Rng,
    /// How often each kind was done.
    pub(super) done: BTreeMap<&'static str, u64>,
    /// What was done when, and to which of them.
    pub(super) diary: Vec<(u64, &'static str, usize)>,
    /// When hosts that forget were down.
    pub(super) crashes: Vec<(u64, u64)>,
    /// When storage hung, or the nemesis itself was held up: then calls may have to wait until their deadline.
    pub(super) hung: Vec<(u64, u64)>,
}

impl Nemesis {
    pub(super) fn new(ground: &TortureCluster, seed: u64, patient: bool) -> Nemesis {
        let now = Instant::now();
        let subject = |_| Subject { state: State::Up, until: now, slowed: None, spared: now, harmed: now };
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut moods = vec![Mood::Wild, Mood::Still, Mood::Ways, Mood::Ways, Mood::Storage, Mood::Storage];
        moods.shuffle(&mut rng);
        Nemesis {
            subjects: ground.members.iter().map(subject).collect(),
            arbiters: vec![(State::Up, now); ground.arbiters.len()],
            etcd: vec![(State::Up, now); ground.etcd.as_ref().map_or(0, |_| Etcd::MEMBERS)],
            moods,
            mood_until: now + MOOD,
            patient,
            acted: super::history::now(),
            rng,
            done: BTreeMap::new(),
            diary: Vec::new(),
            crashes: Vec::new(),
            hung: Vec::new(),
        }
    }

    /// Whether the lone node was killed, or also something else was done to it, in that time or shortly before:
    /// it takes a millisecond to be noticed, and to be killed takes some, too.
    pub(super) fn harmed_the_lone(&self, since: u64, ended: u64, killed: bool) -> bool {
        let when = since.saturating_sub(if killed { 20_000_000 } else { 3_000_000_000 })..=ended;
        let meant = |what: &str, to: usize| if killed { what == KILL_LONE } else { to == LONE };
        self.diary.iter().any(|(at, what, to)| meant(what, *to) && when.contains(at))
    }

    /// What was last done before that to what serves these processes, and how many seconds before.
    pub(super) fn last_before(&self, at: u64, role: Role) -> Option<(f64, &'static str, usize)> {
        let known = self.diary.partition_point(|(when, ..)| *when <= at);
        let last = self.diary[..known].iter().rev().find(|(_, what, to)| {
            role == match *to {
                _ if *what == CRASH => Role::Forgetful,
                LONE => Role::Lone,
                to if to >= NODES => Role::Forgetful,
                _ => Role::Shared,
            }
        });
        last.map(|(when, what, to)| ((at - when) as f64 / 1e9, *what, *to))
    }

    /// How many faults there were.
    pub(super) fn count(&self) -> u64 {
        self.done.values().sum()
    }

    fn ms(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.rng.random_range(from..to))
    }

    /// Something was done: to one of those that there are several of.
    fn tell(&mut self, what: &'static str, to: usize) {
        *self.done.entry(what).or_default() += 1;
        self.diary.push((now(), what, to));
    }

    /// Something goes wrong, and what has been wrong for long enough is put right.
    pub(super) fn act(&mut self, ground: &mut TortureCluster) -> Result<()> {
        let before = std::mem::replace(&mut self.acted, now());
        if self.acted - before > HELD_UP {
            self.hung.push((before, self.acted));
        }
        self.heal(ground, false)?;
        if Instant::now() >= self.mood_until {
            self.moods.rotate_left(1);
            self.mood_until = Instant::now() + MOOD;
            if self.moods[0] == Mood::Wild {
                self.pin(ground, &[0, 1, 2, 3]);
            }
        }
        // Nodes that are started again take their time, in which nothing else is done.
        let aimed = self.moods[0] != Mood::Wild && self.rng.random_bool(0.85);
        let i = match aimed {
            true => [0; 2]
                .map(|_| self.rng.random_range(0..NODES))
                .into_iter()
                .min_by_key(|i| self.subjects[*i].harmed),
            false => Some(self.rng.random_range(0..self.subjects.len())),
        };
        let Some(i) = i.filter(|i| self.subjects[*i].state == State::Up) else { return Ok(()) };
        if Instant::now() < self.subjects[i].spared {
            return Ok(());
        }
        match ground.members[i].role {
            Role::Forgetful => self.harm_forgetful(ground, i),
            Role::Lone => self.harm_lone(ground, i),
            Role::Shared => match self.moods[0] {
                Mood::Wild => self.harm(ground, i),
                // Others go on, and write over what is late.
                _ if (0..NODES).filter(|n| self.subjects[*n].state != State::Up).count() > 1 => Ok(()),
                Mood::Still => {
                    self.lure(ground, i);
                    self.stop(ground, i);
                    Ok(())
                }
                Mood::Ways => self.harm_way(ground, i),
                Mood::Storage => self.harm_storage(ground, i),
            },
        }
    }

    fn harm(&mut self, ground: &mut TortureCluster, i: usize) -> Result<()> {
        match self.rng.random_range(0..100) {
            0..20 => self.kill(ground, i, false, "kill"),
            20..28 => self.kill(ground, i, true, "restart elsewhere"),
            28..45 => self.stop(ground, i),
            45..58 if i == ALONE && self.patient => {
                self.lure(ground, i);
                self.drain(ground, i, true, FOR_LONG);
            }
            45..58 => self.drain(ground, i, true, Duration::ZERO),
            58..66 => self.slow(ground, i)?,
            66..80 => {
                let mut nodes: Vec<usize> = (0..NODES).collect();
                nodes.shuffle(&mut self.rng);
                nodes.truncate(self.rng.random_range(1..=NODES));
                if self.pin(ground, &nodes) {
                    self.tell("move the job", nodes.len());
                }
            }
            80..86 => {
                let spared = self.rng.random_range(0..2 * NODES);
                let what = if spared < NODES { "kill all but one" } else { "kill all" };
                for n in (0..NODES).filter(|n| *n != spared) {
                    if self.subjects[n].state == State::Up && Instant::now() >= self.subjects[n].spared {
                        self.kill(ground, n, false, what);
                    }
                }
            }
            86..92 => self.harm_etcd(ground),
            _ => self.harm_arbiter(ground)?,
        }
        Ok(())
    }

    /// Puts the job on these nodes. An arbiter that is away moves nobody.
    fn pin(&self, ground: &TortureCluster, nodes: &[usize]) -> bool {
        self.arbiters.iter().all(|a| a.0 == State::Up) && ground.pin(nodes).is_ok()
    }

    /// The one that leads is stopped or killed; one at a time.
    fn harm_arbiter(&mut self, ground: &mut TortureCluster) -> Result<()> {
        if self.arbiters.iter().any(|a| a.0 != State::Up) {
            return Ok(());
        }
        let Some(leader) = ground.leader() else { return Ok(()) };
        if self.rng.random_bool(0.5) {
            if let Some(arbiter) = &ground.arbiters[leader].process {
                arbiter.process.signal(Signal::STOP)?;
            }
            self.arbiters[leader] = (State::Stopped, Instant::now() + self.ms(100, 2500));
            self.tell("pause the leading arbiter", leader);
        } else {
            ground.arbiters[leader].process = None;
            self.arbiters[leader] = (State::Dead { elsewhere: false }, Instant::now() + self.ms(0, 1000));
            self.tell("kill the leading arbiter", leader);
        }
        Ok(())
    }

    /// Of three members one may be gone.
    fn harm_etcd(&mut self, ground: &mut TortureCluster) {
        let n = self.rng.random_range(0..Etcd::MEMBERS);
        let Some(etcd) = ground.etcd.as_mut().filter(|_| self.etcd.iter().all(|m| m.0 == State::Up)) else {
            return;
        };
        etcd.kill(n);
        self.etcd[n] = (State::Dead { elsewhere: false }, Instant::now() + self.ms(200, 2500));
        self.tell("kill an etcd member", n);
    }

    fn harm_forgetful(&mut self, ground: &mut TortureCluster, i: usize) -> Result<()> {
        match self.rng.random_range(0..10) {
            0..4 => self.kill(ground, i, false, "kill"),
            4..6 => self.drain(ground, i, false, Duration::ZERO),
            _ => {
                let begun = now();
                let host = ground.members[i].host;
                ground.crash_host(host)?;
                self.crashes.push((begun, now()));
                let neighbours: Vec<usize> = ground.neighbours(i).collect();
                for n in neighbours.into_iter().chain([i]) {
                    self.set(n, State::Up, Duration::ZERO);
                }
                self.tell(CRASH, host);
            }
        }
        Ok(())
    }

    /// Its clients have no other: they wait until it is there again.
    fn harm_lone(&mut self, ground: &mut TortureCluster, i: usize) -> Result<()> {
        match self.rng.random_range(0..20) {
            0..2 => self.kill(ground, i, false, KILL_LONE),
            2..4 => self.stop(ground, i),
            4..5 => self.drain(ground, i, false, Duration::ZERO),
            5..6 => self.slow(ground, i)?,
            _ => {}
        }
        Ok(())
    }

    fn is_slow_host(&self, ground: &TortureCluster, i: usize) -> bool {
        let slow = |s: &Subject| {
            matches!(s.state, State::Slow | State::Filling(..))
                || s.slowed.is_some_and(|t| t.elapsed() < SETTLES)
        };
        ground.neighbours(i).chain([i]).any(|n| slow(&self.subjects[n]))
    }

    fn set(&mut self, i: usize, state: State, long: Duration) {
        let now = Instant::now();
        let s = &mut self.subjects[i];
        (s.state, s.until, s.harmed) = (state, now + long, now);
    }

    fn kill(&mut self, ground: &mut TortureCluster, i: usize, elsewhere: bool, what: &'static str) {
        self.tell(what, i);
        ground.members[i].process = None;
        let long = self.ms(0, 900);
        self.set(i, State::Dead { elsewhere }, long);
    }

    fn drain(&mut self, ground: &TortureCluster, i: usize, anywhere: bool, away: Duration) {
        let elsewhere = anywhere && self.rng.random_bool(0.3);
        signal(ground, i, Signal::TERM);
        self.set(i, State::Draining { elsewhere, away }, Duration::ZERO);
        self.tell(if away == Duration::ZERO { "drain" } else { "drain, and stay away" }, i);
    }

    /// Mostly for about as long as it takes until its clients give it up, or until its lease is over.
    fn stop(&mut self, ground: &TortureCluster, i: usize) {
        if self.is_slow_host(ground, i) {
            return;
        }
        let long = match self.rng.random_range(0..10) {
            0..5 => self.ms(500, 1000),
            5..8 => self.ms(1250, 2100),
            _ => self.ms(30, 2200),
        };
        signal(ground, i, Signal::STOP);
        self.set(i, State::Stopped, long);
        self.tell("stop and go on", i);
    }

    fn slow(&mut self, ground: &TortureCluster, i: usize) -> Result<()> {
        let away = |s: State| matches!(s, State::Stopped | State::Cut | State::Losing | State::Held { .. });
        if ground.neighbours(i).any(|n| away(self.subjects[n].state)) {
            return Ok(());
        }
        let late = self.rng.random_range(1..240u32);
        std::fs::write(ground.slow_file(i), late.to_string())?;
        let long = self.ms(200, 1200);
        self.set(i, State::Slow, long);
        self.tell("slow storage", i);
        Ok(())
    }

    /// Puts right what has been wrong for long enough, or `all`.
    pub(super) fn heal(&mut self, ground: &mut TortureCluster, all: bool) -> Result<()> {
        for i in 0..self.subjects.len() {
            if all || Instant::now() >= self.subjects[i].until {
                self.heal_node(ground, i, all)?;
            }
        }
        let due = |m: &(State, Instant)| m.0 != State::Up && (all || Instant::now() >= m.1);
        for n in 0..self.arbiters.len() {
            if !due(&self.arbiters[n]) {
                continue;
            }
            match &ground.arbiters[n].process {
                Some(arbiter) => arbiter.process.signal(Signal::CONT)?,
                None => ground.start_arbiter(n)?,
            }
            self.arbiters[n].0 = State::Up;
        }
        for n in 0..self.etcd.len() {
            if let Some(etcd) = ground.etcd.as_mut().filter(|_| due(&self.etcd[n])) {
                etcd.launch(n)?;
                self.etcd[n].0 = State::Up;
            }
        }
        Ok(())
    }

    fn heal_node(&mut self, ground: &mut TortureCluster, i: usize, all: bool) -> Result<()> {
        match self.subjects[i].state {
            State::Up => return Ok(()),
            State::Dead { elsewhere } => ground.start_node(i, elsewhere)?,
            State::Stopped => signal(ground, i, Signal::CONT),
            State::Filling(then, long) if !all => return self.filled(ground, i, then, long),
            State::Slow | State::Filling(..) => {
                std::fs::remove_file(ground.slow_file(i))?;
                self.subjects[i].slowed = Some(Instant::now());
            }
            State::Losing if !all => {
                if let Some(link) = ground.link(i) {
                    link.reset();
                    link.hold(true, true);
                }
                // Longer than a node keeps a session that nobody uses.
                let long = self.ms(1200, 2600);
                self.set(i, State::Held { reset: true }, long);
                return Ok(());
            }
            State::Held { reset: true } => {
                if let Some(link) = ground.link(i) {
                    link.reset();
                }
            }
            State::Losing | State::Held { .. } => {}
            State::Cut => ground.cut(i, false)?,
            State::Draining { elsewhere, away } => {
                let ended = match &mut ground.members[i].process {
                    Some(node) => node.process.try_wait()?.is_some(),
                    None => true,
                };
                if !ended && !all {
                    return Ok(());
                }
                ground.members[i].process = None;
                if away > Duration::ZERO && !all {
                    self.set(i, State::Dead { elsewhere }, away);
                    return Ok(());
                }
                ground.start_node(i, elsewhere)?;
            }
        }
        if let Some(link) = ground.link(i) {
            link.open();
        }
        self.subjects[i].state = State::Up;
        Ok(())
    }
}

/// To a node, if it still runs.
fn signal(ground: &TortureCluster, i: usize, signal: Signal) {
    if let Some(node) = &ground.members[i].process {
        // One that has ended by itself is found out by its clients.
        let _ = node.process.signal(signal);
    }
}
