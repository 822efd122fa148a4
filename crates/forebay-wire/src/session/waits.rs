//! Who waits for whose locks: the graph in which the job's home node finds the request that would make
//! processes wait for each other for ever, and a mount that of its own processes. Who waits tells it, and again
//! and again while he waits; what is not repeated is forgotten.

use crate::message::{LockKind, LockRecord};
use forebay_types::Nanos;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

/// What is not repeated for so long has ended.
const EXPIRE: Nanos = Nanos::from_millis(500);
/// More processes of one job that wait for locks at a time than this are not looked at.
const MOST: usize = 1 << 16;

/// Those who wait, by whatever tells them apart.
#[derive(Debug)]
pub struct Waits<K> {
    waiting: HashMap<K, Waiting>,
}

impl<K> Default for Waits<K> {
    fn default() -> Waits<K> {
        Waits { waiting: HashMap::new() }
    }
}

#[derive(Debug)]
struct Waiting {
    wanted: LockRecord,
    held: Vec<LockRecord>,
    until: Nanos,
}

impl<K: Copy + Eq + Hash> Waits<K> {
    /// `who` waits for `wanted` and holds `held`. `true`: it would wait for itself, and must not.
    pub fn waits(&mut self, who: K, wanted: LockRecord, held: Vec<LockRecord>, now: Nanos) -> bool {
        self.waiting.retain(|_, w| w.until > now);
        self.waiting.remove(&who);
        if wanted.range.kind == LockKind::Unlock || self.waiting.len() >= MOST {
            return false;
        }
        if self.leads_back(&wanted, &held) {
            return true;
        }
        self.waiting.insert(who, Waiting { wanted, held, until: now + EXPIRE });
        false
    }

    /// Whether somebody who holds what is `wanted` waits, directly or not, for what is `held`.
    fn leads_back(&self, wanted: &LockRecord, held: &[LockRecord]) -> bool {
        let mut seen = HashSet::new();
        let mut open = vec![wanted];
        while let Some(wanted) = open.pop() {
            for (who, other) in &self.waiting {
                if !seen.contains(who) && other.held.iter().any(|h| h.conflicts(wanted)) {
                    if held.iter().any(|h| h.conflicts(&other.wanted)) {
                        return true;
                    }
                    seen.insert(*who);
                    open.push(&other.wanted);
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::LockRange;
    use proptest::prelude::*;

    fn who(n: u8) -> u8 {
        n
    }

    fn lock(identity: u64) -> LockRecord {
        LockRecord { identity, range: LockRange { kind: LockKind::Write, start: 0, len: 1 } }
    }

    #[test]
    fn the_one_that_closes_the_circle_is_told() {
        let mut w = Waits::default();
        let now = Nanos::from_secs(1);
        assert!(!w.waits(who(1), lock(2), vec![lock(1)], now));
        assert!(!w.waits(who(2), lock(3), vec![lock(2)], now));
        assert!(!w.waits(who(1), lock(2), vec![lock(1)], now), "repeating is no circle");
        assert!(w.waits(who(3), lock(1), vec![lock(3)], now));
        // Who was told does not wait.
        assert!(!w.waits(who(2), lock(3), vec![lock(2)], now));
    }

    #[test]
    fn who_stopped_waiting_is_not_in_the_way() {
        let mut w = Waits::default();
        let now = Nanos::from_secs(1);
        assert!(!w.waits(who(1), lock(2), vec![lock(1)], now));
        assert!(!w.waits(who(2), lock(1), vec![lock(2)], now + EXPIRE), "it has expired");
        let mut over = lock(1);
        over.range.kind = LockKind::Unlock;
        assert!(!w.waits(who(2), over, vec![], now + EXPIRE));
        assert!(!w.waits(who(1), lock(2), vec![lock(1)], now + EXPIRE), "it said so");
    }

    proptest! {
        /// Everybody holds one lock and waits for one: those who wait never form a circle, and who is
        /// refused would have closed one.
        #[test]
        fn no_circle_remains(asks in prop::collection::vec((0u8..8, 0u64..8), 1..60)) {
            let mut w = Waits::default();
            let now = Nanos::from_secs(1);
            let mut waits: HashMap<u8, u64> = HashMap::new();
            let circle = |waits: &HashMap<u8, u64>, from: u8| {
                let mut at = from;
                for _ in 0..9 {
                    match waits.get(&at) {
                        Some(&next) => at = next as u8,
                        None => return false,
                    }
                    if at == from {
                        return true;
                    }
                }
                false
            };
            for (n, wanted) in asks.into_iter().filter(|(n, w)| u64::from(*n) != *w) {
                waits.insert(n, wanted);
                let dead = circle(&waits, n);
                prop_assert_eq!(w.waits(who(n), lock(wanted), vec![lock(n.into())], now), dead);
                if dead {
                    waits.remove(&n);
                }
            }
        }
    }
}
