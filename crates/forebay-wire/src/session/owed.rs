//! Which hosts have data of an open file unsynced, as the processes that share it know together. A host goes by a short
//! name that all of them use for it; here it has a bit, as long as it has such data.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering::SeqCst};

/// So many hosts are told apart at a time.
pub const HOSTS: usize = 15;
/// The bit of those beyond.
const OTHERS: usize = HOSTS;
/// There are so many names.
pub const NAMES: usize = DOUBTED as usize - 1;
/// Somebody looks whether the bit can be another host's.
const DOUBTED: u16 = 1 << 15;

/// All zero is a good beginning.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Owed {
    /// The names of the bits, plus one.
    names: [AtomicU16; HOSTS],
    state: AtomicU64,
}

/// In one word, so that no host is between the two sets.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    /// They have taken data.
    unsynced: u16,
    /// Those that somebody is having synced, or was when he ended.
    undertaken: u16,
    /// How many syncs have begun.
    syncs: u32,
}

/// A sync under way: what it has undertaken, and which one it is.
#[derive(Clone, Copy, Debug)]
pub struct Undertaken {
    hosts: u16,
    number: u32,
}

impl Owed {
    fn change(&self, how: impl Fn(State) -> State) -> State {
        let mut old = self.state.load(SeqCst);
        loop {
            let new = how(State::of(old));
            match self.state.compare_exchange_weak(old, new.word(), SeqCst, SeqCst) {
                Ok(_) => return new,
                Err(now) => old = now,
            }
        }
    }

    /// It is for another open file from now on.
    pub fn clear(&self) {
        self.state.store(0, SeqCst);
        self.names.iter().for_each(|name| name.store(0, SeqCst));
    }

    /// That host has taken data; without a name it is one of those that nobody can tell apart.
    pub fn mark(&self, name: Option<u16>) {
        let name = name.map_or(DOUBTED, |name| name.saturating_add(1));
        // Who gives a bit to another host looks first whether it is set; who sets it looks then whose it is.
        let marked = name < DOUBTED
            && (0..HOSTS).any(|_| {
                self.bit(name).is_some_and(|bit| {
                    self.set(bit);
                    self.names[bit].load(SeqCst) == name
                })
            });
        if !marked {
            self.set(OTHERS);
        }
    }

    fn set(&self, bit: usize) {
        if State::of(self.state.load(SeqCst)).unsynced & 1 << bit == 0 {
            self.change(|state| State { unsynced: state.unsynced | 1 << bit, ..state });
        }
    }

    /// The bit of that name. Two threads that look for one at the same moment may find two, which does no harm.
    fn bit(&self, name: u16) -> Option<usize> {
        let put = |bit: usize, old, new| self.names[bit].compare_exchange(old, new, SeqCst, SeqCst).is_ok();
        let here = |&bit: &usize| match self.names[bit].load(SeqCst) {
            0 => put(bit, 0, name),
            other => other == name,
        };
        let idle = |&bit: &usize| {
            let old = self.names[bit].load(SeqCst);
            if old >= DOUBTED || self.holds(bit) || !put(bit, old, old | DOUBTED) {
                return false;
            }
            let idle = !self.holds(bit);
            self.names[bit].store(if idle { name } else { old }, SeqCst);
            idle
        };
        (0..HOSTS).find(here).or_else(|| (0..HOSTS).find(idle))
    }

    fn holds(&self, bit: usize) -> bool {
        let State { unsynced, undertaken, .. } = State::of(self.state.load(SeqCst));
        (unsynced | undertaken) & 1 << bit != 0
    }

    /// Somebody has what was written until now synced. What others have undertaken is not synced yet, perhaps never:
    /// it is undertaken once more.
    pub fn begin_sync(&self) -> Undertaken {
        let State { undertaken, syncs, .. } = self.change(|state| {
            let taken = state.unsynced;
            let undertaken = state.undertaken | taken;
            State { unsynced: 0, undertaken, syncs: state.syncs.wrapping_add(1) }
        });
        Undertaken { hosts: undertaken, number: syncs }
    }

    /// The names of the hosts that a sync which has not ended is for; none stands for some that nobody can tell apart.
    pub fn hosts(&self, sync: Undertaken) -> impl Iterator<Item = Option<u16>> + '_ {
        let name = |bit: usize| (self.names.get(bit)?.load(SeqCst) & !DOUBTED).checked_sub(1);
        (0..=OTHERS).filter(move |bit| sync.hosts & 1 << bit != 0).map(name)
    }

    /// It is synced, or somebody was told that it is not. With another sync under way the next one has it done again.
    pub fn end_sync(&self, sync: Undertaken) {
        self.change(|state| {
            let done = if state.syncs == sync.number { sync.hosts } else { 0 };
            State { undertaken: state.undertaken & !done, ..state }
        });
    }
}

impl State {
    fn of(word: u64) -> State {
        State { unsynced: word as u16, undertaken: (word >> 16) as u16, syncs: (word >> 32) as u32 }
    }

    fn word(self) -> u64 {
        u64::from(self.syncs) << 32 | u64::from(self.undertaken) << 16 | u64::from(self.unsynced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sync(owed: &Owed) -> (Undertaken, Vec<Option<u16>>) {
        let sync = owed.begin_sync();
        let mut hosts: Vec<_> = owed.hosts(sync).collect();
        hosts.sort();
        (sync, hosts)
    }

    #[test]
    fn a_sync_covers_what_others_wrote_and_did_not_sync() {
        let c = Owed::default();
        c.mark(Some(1));
        let (first, hosts) = sync(&c);
        assert_eq!(hosts, [Some(1)]);
        c.mark(Some(2));
        let (second, hosts) = sync(&c);
        assert_eq!(hosts, [Some(1), Some(2)], "what another has undertaken is not synced yet");
        c.end_sync(first);
        assert_eq!(sync(&c).1, [Some(1), Some(2)], "nor when that one has ended: the second has not");
        c.end_sync(second);
        c.end_sync(sync(&c).0);
        assert_eq!(sync(&c).1, []);
        c.mark(Some(3));
        let _killed = c.begin_sync();
        assert_eq!(sync(&c).1, [Some(3)], "who was killed has synced nothing");
    }

    #[test]
    fn a_thousand_hosts_are_told_apart_one_after_the_other() {
        let c = Owed::default();
        for host in 0..1000 {
            c.mark(Some(host));
            let (all, hosts) = sync(&c);
            assert_eq!(hosts, [Some(host)]);
            c.end_sync(all);
        }
        let many = 0..HOSTS as u16;
        many.clone().for_each(|host| c.mark(Some(host)));
        let _killed = c.begin_sync();
        c.mark(Some(500));
        let (all, hosts) = sync(&c);
        let wanted: Vec<_> = [None].into_iter().chain(many.map(Some)).collect();
        assert_eq!(hosts, wanted, "none of them is forgotten, and there is one more");
        c.end_sync(all);
        for unknown in [None, Some(NAMES as u16), Some(u16::MAX)] {
            c.mark(unknown);
            let (all, hosts) = sync(&c);
            assert_eq!(hosts, [None]);
            c.end_sync(all);
        }
        c.mark(Some(NAMES as u16 - 1));
        assert_eq!(sync(&c).1, [Some(NAMES as u16 - 1)]);
        c.clear();
        assert_eq!(sync(&c).1, []);
    }

    #[test]
    fn hosts_that_come_and_go_at_once_are_not_mistaken_for_each_other() {
        let c = &Owed::default();
        let synced: &[AtomicU64] = &std::array::from_fn::<_, { 4 * HOSTS }, _>(|_| AtomicU64::new(0));
        let work = |thread: usize| {
            for turn in 0..20_000 {
                let host = (turn * 7 + thread * 13) % synced.len();
                let before = synced[host].load(SeqCst);
                c.mark(Some(host as u16));
                let (all, hosts) = sync(c);
                hosts.iter().flatten().for_each(|host| _ = synced[usize::from(*host)].fetch_add(1, SeqCst));
                // By this thread, or by another one that had undertaken it.
                assert!(hosts.contains(&None) || synced[host].load(SeqCst) > before);
                c.end_sync(all);
            }
        };
        std::thread::scope(|s| (0..4).for_each(|thread| _ = s.spawn(move || work(thread))));
    }
}
