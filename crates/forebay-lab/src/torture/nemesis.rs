//! The nemesis: what is done to the nodes and the arbiter while the workers work.

use super::ground::{Ground, NODES};
use super::history::now;
use anyhow::Result;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long after a storage was slow its host's nodes are not stopped: a call that is held back for longer
/// than 1.5 leases on a host of which nobody answers is what remains, and is written down.
const SETTLES: Duration = Duration::from_millis(900);

/// What a node or the arbiter is in, and until when.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Up,
    Dead { elsewhere: bool },
    Stopped,
    Draining { elsewhere: bool },
    Slow,
}

struct Subject {
    state: State,
    until: Instant,
    /// When its storage was last slow.
    slowed: Option<Instant>,
}

pub(super) struct Nemesis {
    subjects: Vec<Subject>,
    arbiter: (State, Instant),
    rng: ChaCha8Rng,
    /// How often each kind was done.
    pub(super) done: BTreeMap<&'static str, u64>,
    /// When hosts that forget were down.
    pub(super) crashes: Vec<(u64, u64)>,
}

impl Nemesis {
    pub(super) fn new(seed: u64) -> Nemesis {
        let now = Instant::now();
        let subject = || Subject { state: State::Up, until: now, slowed: None };
        Nemesis {
            subjects: (0..2 * NODES).map(|_| subject()).collect(),
            arbiter: (State::Up, now),
            rng: ChaCha8Rng::seed_from_u64(seed),
            done: BTreeMap::new(),
            crashes: Vec::new(),
        }
    }

    /// How many faults there were.
    pub(super) fn count(&self) -> u64 {
        self.done.values().sum()
    }

    fn ms(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.rng.random_range(from..to))
    }

    fn tell(&mut self, what: &'static str) {
        *self.done.entry(what).or_default() += 1;
    }

    /// Something goes wrong, and what has been wrong for long enough is put right.
    pub(super) fn act(&mut self, ground: &mut Ground) -> Result<()> {
        self.heal(ground, false)?;
        let i = self.rng.random_range(0..2 * NODES);
        if self.subjects[i].state != State::Up {
            return Ok(());
        }
        if ground.is_durable(i) { self.harm_forgetful(ground, i) } else { self.harm(ground, i) }
    }

    fn harm(&mut self, ground: &mut Ground, i: usize) -> Result<()> {
        match self.rng.random_range(0..100) {
            0..20 => self.kill(ground, i, false, "kill"),
            20..28 => self.kill(ground, i, true, "restart elsewhere"),
            28..45 => {
                let slow =
                    |s: &Subject| s.state == State::Slow || s.slowed.is_some_and(|t| t.elapsed() < SETTLES);
                let host = ground.host(i);
                if (0..NODES).any(|n| ground.host(n) == host && slow(&self.subjects[n])) {
                    return Ok(());
                }
                let long = self.ms(30, 2200);
                signal(ground, i, Signal::STOP);
                self.set(i, State::Stopped, long);
                self.tell("stop and go on");
            }
            45..58 => {
                let elsewhere = self.rng.random_bool(0.3);
                signal(ground, i, Signal::TERM);
                self.set(i, State::Draining { elsewhere }, Duration::ZERO);
                self.tell("drain");
            }
            58..66 => {
                let host = ground.host(i);
                if (0..NODES).any(|n| ground.host(n) == host && self.subjects[n].state == State::Stopped) {
                    return Ok(());
                }
                let late = self.rng.random_range(1..300u32);
                std::fs::write(ground.slow_file(i), late.to_string())?;
                let long = self.ms(200, 1200);
                self.set(i, State::Slow, long);
                self.tell("slow storage");
            }
            66..84 => {
                let mut nodes: Vec<usize> = (0..NODES).collect();
                nodes.shuffle(&mut self.rng);
                nodes.truncate(self.rng.random_range(1..=NODES));
                // An arbiter that is away moves nobody.
                if self.arbiter.0 == State::Up && ground.pin(&nodes).is_ok() {
                    self.tell("move the job");
                }
            }
            84..90 => {
                let spared = self.rng.random_range(0..2 * NODES);
                for n in (0..NODES).filter(|n| *n != spared) {
                    if self.subjects[n].state == State::Up {
                        self.kill(
                            ground,
                            n,
                            false,
                            if spared < NODES { "kill all but one" } else { "kill all" },
                        );
                    }
                }
            }
            _ if self.arbiter.0 != State::Up => {}
            90..96 => {
                if let Some(arbiter) = &ground.arbiter {
                    arbiter.process.signal(Signal::STOP)?;
                }
                self.arbiter = (State::Stopped, Instant::now() + self.ms(100, 2500));
                self.tell("pause the arbiter");
            }
            _ => {
                ground.arbiter = None;
                self.arbiter = (State::Dead { elsewhere: false }, Instant::now() + self.ms(0, 1000));
                self.tell("kill the arbiter");
            }
        }
        Ok(())
    }

    fn harm_forgetful(&mut self, ground: &mut Ground, i: usize) -> Result<()> {
        match self.rng.random_range(0..10) {
            0..4 => self.kill(ground, i, false, "kill"),
            4..6 => {
                signal(ground, i, Signal::TERM);
                self.set(i, State::Draining { elsewhere: false }, Duration::ZERO);
                self.tell("drain");
            }
            _ => {
                let host = ground.host(i);
                let begun = now();
                ground.crash_host(host)?;
                self.crashes.push((begun, now()));
                for n in (NODES..2 * NODES).filter(|n| ground.host(*n) == host) {
                    self.set(n, State::Up, Duration::ZERO);
                }
                self.tell("crash of a host that forgets");
            }
        }
        Ok(())
    }

    fn set(&mut self, i: usize, state: State, long: Duration) {
        (self.subjects[i].state, self.subjects[i].until) = (state, Instant::now() + long);
    }

    fn kill(&mut self, ground: &mut Ground, i: usize, elsewhere: bool, what: &'static str) {
        ground.members[i].process = None;
        let long = self.ms(0, 900);
        self.set(i, State::Dead { elsewhere }, long);
        self.tell(what);
    }

    /// Puts right what has been wrong for long enough, or `all`.
    pub(super) fn heal(&mut self, ground: &mut Ground, all: bool) -> Result<()> {
        for i in 0..self.subjects.len() {
            let due = all || Instant::now() >= self.subjects[i].until;
            match self.subjects[i].state {
                State::Dead { elsewhere } if due => ground.start_node(i, elsewhere)?,
                State::Stopped if due => signal(ground, i, Signal::CONT),
                State::Slow if due => {
                    std::fs::remove_file(ground.slow_file(i))?;
                    self.subjects[i].slowed = Some(Instant::now());
                }
                State::Draining { elsewhere } => {
                    let ended = match &mut ground.members[i].process {
                        Some(node) => node.process.try_wait()?.is_some(),
                        None => true,
                    };
                    if !ended && !all {
                        continue;
                    }
                    ground.members[i].process = None;
                    ground.start_node(i, elsewhere)?;
                }
                _ => continue,
            }
            self.subjects[i].state = State::Up;
        }
        let due = all || Instant::now() >= self.arbiter.1;
        match self.arbiter.0 {
            State::Stopped if due => {
                if let Some(arbiter) = &ground.arbiter {
                    arbiter.process.signal(Signal::CONT)?;
                }
                self.arbiter.0 = State::Up;
            }
            State::Dead { .. } if due => {
                ground.start_arbiter()?;
                self.arbiter.0 = State::Up;
            }
            _ => {}
        }
        Ok(())
    }
}

/// To a node, if it still runs.
fn signal(ground: &Ground, i: usize, signal: Signal) {
    if let Some(node) = &ground.members[i].process {
        // One that has ended by itself is found out by its clients.
        let _ = node.process.signal(signal);
    }
}
