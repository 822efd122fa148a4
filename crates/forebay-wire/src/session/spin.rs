//! Whether, and for how long, a short wait is spun before it is slept. Waking a sleeping processor takes
//! longer than many an answer: whoever looks again and again has it the moment it comes. [`Spin`] is one
//! waiter's memory of how long answers take; [`Cores`] is what a process knows of the machine, since time
//! that somebody else could use is not spun away.

use forebay_types::Nanos;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The longest that is spun for one wait: longer than it takes to wake the other side. If it were less, two that
/// once have slept would miss each other for ever.
pub const LONGEST: Nanos = Nanos(100_000);
/// The shortest: an answer that is late by little is not worth a sleep, which takes longer than this.
const SHORTEST: Nanos = Nanos(25_000);
/// So many waits in a row that were spun for nothing make a waiter tired.
const PATIENCE: u32 = 3;
/// The waits that it then sleeps at once: eight the first time, twice as many every time after that.
const FIRST_REST: u32 = 8;
const LONGEST_REST: u32 = 1024;
/// How long a look at the machine is good for; and one that found something else than the last.
const GOOD_FOR: Nanos = Nanos::from_millis(20);
const SURPRISE: Nanos = Nanos::from_millis(1);

/// One waiter: how long it spins, by what spinning brought it.
#[derive(Clone, Debug)]
pub struct Spin {
    reach: Nanos,
    missed: u32,
    rest: u32,
    next_rest: u32,
}

impl Default for Spin {
    fn default() -> Spin {
        Spin { reach: LONGEST, missed: 0, rest: 0, next_rest: FIRST_REST }
    }
}

impl Spin {
    /// How long the wait that begins now may be spun; zero: not at all.
    pub fn budget(&mut self) -> Nanos {
        if self.rest == 0 {
            return self.reach;
        }
        self.rest -= 1;
        Nanos::ZERO
    }

    /// It came while the wait was spun, after `took`.
    pub fn hit(&mut self, took: Nanos) {
        // About twice the usual time.
        let reach = (self.reach.0 * 7 + took.0.min(LONGEST.0) * 2) / 8;
        self.reach = Nanos(reach).clamp(SHORTEST, LONGEST);
        self.missed = 0;
        self.next_rest = FIRST_REST;
    }

    /// The wait was spun, and slept in the end.
    pub fn miss(&mut self) {
        // The other side may have slept, and not be slow.
        self.reach = LONGEST;
        self.missed += 1;
        if self.missed >= PATIENCE {
            self.missed = PATIENCE - 1;
            self.rest = self.next_rest;
            self.next_rest = (self.next_rest * 2).min(LONGEST_REST);
        }
    }
}

/// Whether the machine has a processor to spare, as last seen. Shared by all threads of a process.
#[derive(Debug)]
pub struct Cores {
    /// When to look next.
    next: AtomicU64,
    spare: AtomicBool,
    /// Nobody has looked yet, or the last look found otherwise.
    doubt: AtomicBool,
    processors: AtomicUsize,
}

impl Default for Cores {
    fn default() -> Cores {
        Cores::new()
    }
}

impl Cores {
    /// Nothing seen yet.
    pub const fn new() -> Cores {
        let (spare, doubt) = (AtomicBool::new(false), AtomicBool::new(true));
        Cores { next: AtomicU64::new(0), spare, doubt, processors: AtomicUsize::new(1) }
    }

    /// Whether it is the caller's turn to look, and tell [`Cores::saw`].
    pub fn look(&self, now: Nanos) -> bool {
        let next = self.next.load(Ordering::Relaxed);
        let then = now.0.saturating_add(GOOD_FOR.0).max(1);
        now.0 >= next && self.next.compare_exchange(next, then, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// At `now` so many threads were running or wanted to, on so many processors: the caller and perhaps its
    /// partner, who needs a processor too, among them.
    pub fn saw(&self, now: Nanos, running: usize, processors: usize) {
        let spare = processors > 1 && running <= processors;
        let before = self.processors.swap(processors, Ordering::Relaxed);
        if before != processors {
            // Not a matter of chance.
            self.doubt.store(true, Ordering::Relaxed);
        }
        // Something is always running for a moment, and a partner may just be waking: twice is no accident.
        if self.spare() == spare || self.doubt.load(Ordering::Relaxed) {
            self.spare.store(spare, Ordering::Relaxed);
            self.doubt.store(false, Ordering::Relaxed);
        } else {
            self.doubt.store(true, Ordering::Relaxed);
            self.next.store(now.0.saturating_add(SURPRISE.0), Ordering::Relaxed);
        }
    }

    /// How many processors there were.
    pub fn processors(&self) -> usize {
        self.processors.load(Ordering::Relaxed)
    }

    /// Whether there is a processor to spare.
    pub fn spare(&self) -> bool {
        self.spare.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(n: u64) -> Nanos {
        Nanos(n * 1000)
    }

    /// Waits `count` times for answers that take `takes`: what was spun in all, and how many were caught.
    fn wait(spin: &mut Spin, count: usize, takes: Nanos) -> (Nanos, usize) {
        let (mut spun, mut caught) = (0, 0);
        for _ in 0..count {
            let budget = spin.budget();
            if budget == Nanos::ZERO {
                continue;
            }
            spun += budget.min(takes).0;
            if takes <= budget {
                caught += 1;
                spin.hit(takes);
            } else {
                spin.miss();
            }
        }
        (Nanos(spun), caught)
    }

    #[test]
    fn quick_answers_are_caught_and_the_reach_follows_them() {
        let mut spin = Spin::default();
        assert_eq!(wait(&mut spin, 1000, us(20)).1, 1000);
        assert!(spin.budget() >= us(30) && spin.budget() <= us(41), "{:?}", spin.budget());
        // They take longer now: one is missed, the next are not.
        assert!(wait(&mut spin, 100, us(80)).1 >= 99);
        assert!(wait(&mut spin, 1000, us(1)).1 == 1000 && spin.budget() == SHORTEST);
    }

    #[test]
    fn slow_answers_cost_next_to_nothing() {
        let mut spin = Spin::default();
        let (spun, caught) = wait(&mut spin, 100_000, us(400));
        assert_eq!(caught, 0);
        assert!(spun < us(100_000 / 5), "a fifth of a microsecond a wait: {spun:?}");
        // And when they are quick again, that is noticed.
        assert!(wait(&mut spin, 5_000, us(8)).1 > 3_000);
    }

    #[test]
    fn one_slow_answer_among_quick_ones_changes_nothing() {
        let mut spin = Spin::default();
        for _ in 0..100 {
            assert_eq!(wait(&mut spin, 9, us(10)).1, 9);
            assert_eq!(wait(&mut spin, 1, us(900)).1, 0);
        }
    }

    #[test]
    fn nobody_spins_where_others_want_the_processors() {
        let cores = Cores::new();
        assert!(!cores.spare(), "nothing is known yet");
        assert!(cores.look(us(5)));
        assert!(!cores.look(us(6)), "one look is enough");
        cores.saw(us(5), 2, 2);
        assert!(cores.spare(), "the second one is the partner");
        cores.saw(us(6), 3, 2);
        assert!(cores.spare(), "for a moment");
        assert!(!cores.look(us(900)) && cores.look(us(6) + SURPRISE), "which is not long");
        cores.saw(us(6) + SURPRISE, 3, 2);
        assert!(!cores.spare());
        assert!(!cores.look(us(10_000)) && cores.look(us(6) + SURPRISE + GOOD_FOR));
        cores.saw(us(30_000), 2, 2);
        assert!(!cores.spare(), "for a moment");
        cores.saw(us(31_000), 3, 2);
        cores.saw(us(51_000), 1, 2);
        assert!(!cores.spare(), "twice, with nothing in between");
        cores.saw(us(52_000), 1, 2);
        assert!(cores.spare());
        let alone = Cores::new();
        alone.saw(us(1), 1, 1);
        assert!(!alone.spare(), "never on one processor");
        alone.saw(us(30_000), 1, 2);
        assert!(alone.spare() && alone.processors() == 2, "but when it is free again");
        alone.saw(us(60_000), 1, 1);
        assert!(!alone.spare(), "and not when it is bound again");
    }
}
