//! Which directories a node may still take to be where it found them. Without I/O.
//!
//! A directory is kept for whoever found it, by its path in the export, for a short time from before it was
//! looked for. All are forgotten as soon as something was moved, removed or got other rights through this node: what
//! exactly that was does not matter, so no path has to be compared with another. What was looked for while
//! that happened is not kept.

use forebay_types::Nanos;

/// Directories `D` that somebody `W` has found.
#[derive(Debug)]
pub(crate) struct Kept<W, D> {
    entries: Vec<Entry<W, D>>,
    /// How often something was changed that may have moved a directory or closed it to somebody.
    changes: u64,
    most: usize,
    time: Nanos,
}

#[derive(Debug)]
struct Entry<W, D> {
    who: W,
    export: usize,
    path: Box<[u8]>,
    dir: D,
    began: Nanos,
}

/// Somebody is about to look for a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    began: Nanos,
    changes: u64,
}

impl<W: PartialEq, D: Clone> Kept<W, D> {
    /// At most so many directories, for so long.
    pub(crate) fn new(most: usize, time: Nanos) -> Kept<W, D> {
        Kept { entries: Vec::new(), changes: 0, most, time }
    }

    /// The directory, if it was found not long ago and nothing has been changed since.
    pub(crate) fn find(&self, who: &W, export: usize, path: &[u8], now: Nanos) -> Option<D> {
        let wanted = |e: &&Entry<W, D>| *e.path == *path && e.export == export && e.who == *who;
        let found = self.entries.iter().find(wanted)?;
        self.is_fresh(found, now).then(|| found.dir.clone())
    }

    /// To be asked before a directory is looked for.
    pub(crate) fn look(&self, now: Nanos) -> Look {
        Look { began: now, changes: self.changes }
    }

    /// This was found. Gives what is not kept any more.
    pub(crate) fn keep(&mut self, look: Look, who: W, export: usize, path: &[u8], dir: D) -> Option<D> {
        if look.changes != self.changes || self.most == 0 {
            return Some(dir);
        }
        let same = |e: &Entry<W, D>| *e.path == *path && e.export == export && e.who == who;
        let full = self.entries.len() >= self.most;
        let at = self.entries.iter().position(same).or_else(|| if full { self.oldest() } else { None });
        // Who looked later may have been faster.
        if at.is_some_and(|at| same(&self.entries[at]) && self.entries[at].began > look.began) {
            return Some(dir);
        }
        let gone = at.map(|at| self.entries.swap_remove(at).dir);
        self.entries.push(Entry { who, export, path: path.into(), dir, began: look.began });
        gone
    }

    /// To be told after anything was changed that could have moved a directory or closed it to somebody, and before
    /// anybody hears of it. Gives what is not kept any more.
    pub(crate) fn changed(&mut self) -> Vec<D> {
        self.changes += 1;
        self.entries.drain(..).map(|e| e.dir).collect()
    }

    /// What has been kept for long enough.
    pub(crate) fn expire(&mut self, now: Nanos) -> Vec<D> {
        let time = self.time;
        let old = self.entries.extract_if(.., |e| now.since(e.began) >= time);
        old.map(|e| e.dir).collect()
    }

    fn is_fresh(&self, entry: &Entry<W, D>, now: Nanos) -> bool {
        now.since(entry.began) < self.time
    }

    fn oldest(&self) -> Option<usize> {
        (0..self.entries.len()).min_by_key(|at| self.entries[*at].began)
    }
}

/// The directory part of a path and its last name, if both can be taken one by one: no empty part, no `.` and no `..`.
pub(crate) fn split(rel: &[u8]) -> Option<(&[u8], &[u8])> {
    let slash = rel.iter().rposition(|&b| b == b'/')?;
    let plain = |part: &[u8]| !part.is_empty() && part != b"." && part != b"..";
    rel.split(|&b| b == b'/').all(plain).then(|| (&rel[..slash], &rel[slash + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    const TIME: Nanos = Nanos(20);

    #[test]
    fn kept_for_whom_and_for_how_long() {
        let mut kept = Kept::new(4, TIME);
        let look = kept.look(Nanos(100));
        assert_eq!(kept.keep(look, 'a', 0, b"p/q", 7), None);
        assert_eq!(kept.find(&'a', 0, b"p/q", Nanos(119)), Some(7));
        assert_eq!(kept.find(&'a', 0, b"p/q", Nanos(120)), None, "counted from before the look");
        assert_eq!(kept.find(&'b', 0, b"p/q", Nanos(101)), None, "somebody else's");
        assert_eq!(kept.find(&'a', 1, b"p/q", Nanos(101)), None, "another export's");
        assert_eq!(kept.find(&'a', 0, b"p", Nanos(101)), None);
        assert!(kept.expire(Nanos(119)).is_empty());
        assert_eq!(kept.expire(Nanos(120)), [7]);
    }

    #[test]
    fn nothing_is_kept_that_was_looked_for_during_a_change() {
        let mut kept = Kept::new(4, TIME);
        let look = kept.look(Nanos(100));
        assert!(kept.changed().is_empty());
        assert_eq!(kept.keep(look, 'a', 0, b"p", 7), Some(7));
        assert_eq!(kept.find(&'a', 0, b"p", Nanos(101)), None);
        let look = kept.look(Nanos(102));
        assert_eq!(kept.keep(look, 'a', 0, b"p", 8), None);
        assert_eq!(kept.changed(), [8]);
        assert_eq!(kept.find(&'a', 0, b"p", Nanos(103)), None);
    }

    #[test]
    fn the_oldest_makes_room_and_the_later_look_stays() {
        let mut kept = Kept::new(2, TIME);
        for (at, path) in [(1u64, "a"), (2, "b")] {
            let look = kept.look(Nanos(at));
            assert_eq!(kept.keep(look, (), 0, path.as_bytes(), at), None);
        }
        let (early, late) = (kept.look(Nanos(3)), kept.look(Nanos(4)));
        assert_eq!(kept.keep(late, (), 0, b"c", 4), Some(1));
        assert_eq!(kept.keep(early, (), 0, b"c", 3), Some(3), "it has something newer");
        assert_eq!(kept.find(&(), 0, b"c", Nanos(5)), Some(4));
        assert_eq!(kept.find(&(), 0, b"b", Nanos(5)), Some(2));
        let mut none = Kept::new(0, TIME);
        let look = none.look(Nanos(1));
        assert_eq!(none.keep(look, (), 0, b"a", 1), Some(1));
    }

    #[test]
    fn paths_that_are_taken_apart() {
        assert_eq!(split(b"a/b/c"), Some((&b"a/b"[..], &b"c"[..])));
        assert_eq!(split(b"a/..b"), Some((&b"a"[..], &b"..b"[..])));
        for rel in ["", "a", "a/", "/a", "a//b", "./a", "a/.", "a/../b", "a/..", "../a", "a/b/"] {
            assert_eq!(split(rel.as_bytes()), None, "{rel}");
        }
    }

    /// What can happen. Two users, three names of directories, four directories.
    #[derive(Clone, Debug)]
    enum Event {
        /// The name gets another directory, or none, through the node. Its answer comes with `Told`.
        Moved(u8, Option<u8>),
        /// The same past the node.
        MovedBehind(u8, Option<u8>),
        /// A user loses or gets the right to find the name, through the node.
        Rights(u8, u8, bool),
        /// Somebody begins to look for a name …
        Looks(u8, u8),
        /// … and the oldest look that is under way ends.
        Found,
        /// The node has forgotten, and the changes so far are told.
        Told,
        /// Time passes.
        Waits(u64),
        /// The tidying thread comes by.
        Expires,
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let (who, name, dir) = (0..2u8, 0..3u8, prop::option::of(0..4u8));
        let event = prop_oneof![
            2 => (name.clone(), dir.clone()).prop_map(|(n, d)| Event::Moved(n, d)),
            1 => (name.clone(), dir).prop_map(|(n, d)| Event::MovedBehind(n, d)),
            1 => (who.clone(), name.clone(), any::<bool>()).prop_map(|(w, n, may)| Event::Rights(w, n, may)),
            6 => (who, name).prop_map(|(w, n)| Event::Looks(w, n)),
            6 => Just(Event::Found),
            3 => Just(Event::Told),
            3 => (0..30u64).prop_map(Event::Waits),
            1 => Just(Event::Expires),
        ];
        prop::collection::vec(event, 0..80)
    }

    proptest! {
        /// What is found without a look is what a look would have found at some moment since the last change that was
        /// told, and not longer ago than the time allows.
        #[test]
        fn what_is_kept_was_there_not_long_ago(events in events(), most in 0..4usize) {
            let mut kept = Kept::new(most, TIME);
            let mut now = Nanos(1000);
            let mut there: BTreeMap<u8, u8> = BTreeMap::new();
            let mut barred: BTreeSet<(u8, u8)> = BTreeSet::new();
            // How everything was, since when; the newest last. From where on all that was done had been told.
            let mut past = vec![(now, there.clone(), barred.clone())];
            let (mut told, mut pending) = (0, false);
            let mut looks = Vec::new();
            for event in events {
                match event {
                    Event::Moved(name, dir) | Event::MovedBehind(name, dir) => {
                        match dir {
                            Some(dir) => there.insert(name, dir),
                            None => there.remove(&name),
                        };
                        pending |= matches!(event, Event::Moved(..));
                    }
                    Event::Rights(who, name, may) => {
                        if may { barred.remove(&(who, name)); } else { barred.insert((who, name)); }
                        pending = true;
                    }
                    Event::Looks(who, name) => {
                        // As the node does: first what is kept, then a look.
                        let path = [b'p', name];
                        if let Some(dir) = kept.find(&who, 0, &path, now) {
                            let ok = (told..past.len()).any(|at| {
                                let (_, names, closed) = &past[at];
                                let until = past.get(at + 1).map_or(now, |next| next.0);
                                // Not before what was told, not too long ago, and what a look gave then.
                                now.since(until) < TIME
                                    && names.get(&name) == Some(&dir)
                                    && !closed.contains(&(who, name))
                            });
                            prop_assert!(ok, "{who} found {dir} as {name} at {now:?}");
                        } else {
                            let look = kept.look(now);
                            let found = there.get(&name).copied().filter(|_| !barred.contains(&(who, name)));
                            looks.push((look, who, path, found));
                        }
                    }
                    Event::Found => {
                        if !looks.is_empty() {
                            let (look, who, path, found) = looks.remove(0);
                            if let Some(dir) = found {
                                kept.keep(look, who, 0, &path, dir);
                            }
                            prop_assert!(kept.entries.len() <= most);
                        }
                    }
                    Event::Told => {
                        if pending {
                            kept.changed();
                            pending = false;
                            told = past.len();
                        }
                    }
                    Event::Waits(ns) => now = now + Nanos(ns),
                    Event::Expires => drop(kept.expire(now)),
                }
                past.push((now, there.clone(), barred.clone()));
            }
        }
    }
}
