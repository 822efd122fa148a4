//! What a node tells all clients of its host, in memory that it writes and they read: how often files have
//! been changed. Every change is counted before it begins and after it has ended, so whoever finds the counts
//! as they were before somebody looked at a file knows that it still is what was seen then, without a trip.
//!
//! Files are told apart by [`PLACES`] places; those that share one are taken for the same. What is changed by
//! its name only is counted for all.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};

/// So many files are told apart.
pub const PLACES: usize = 1024;
/// The memory: a board, and the rest of its last page.
pub const LEN: usize = size_of::<Board>().next_multiple_of(4096);

/// The counts. All zero is a good beginning.
#[derive(Debug)]
#[repr(C)]
pub struct Board {
    /// Which memory this is, so that nobody takes another for it.
    pub nonce: AtomicU64,
    /// Changes to the contents of a file that is not known.
    sweeps: Count,
    /// Changes to names, and to attributes by name.
    names: Count,
    places: [Count; PLACES],
}

#[derive(Debug, Default)]
#[repr(C)]
struct Count {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Count {
    fn begin(&self) {
        // Seen by whoever sees anything of the change.
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    fn end(&self) {
        self.ended.fetch_add(1, Ordering::SeqCst);
    }

    /// The count, if no change is under way but one that is `mine`.
    fn still(&self, mine: bool) -> Option<u64> {
        let ended = self.ended.load(Ordering::SeqCst);
        let begun = self.begun.load(Ordering::SeqCst);
        (begun == ended + u64::from(mine)).then_some(begun)
    }

    fn holds(&self, since: u64) -> bool {
        self.begun.load(Ordering::SeqCst) == since
    }
}

/// What is about to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Nothing.
    Nothing,
    /// The file at this place.
    Place(usize),
    /// Names, and attributes of files that are known by name only.
    Names,
    /// The same, and the contents of such a file.
    Everything,
}

/// Where the counts stood when somebody looked at a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Still {
    /// On which board, by its nonce.
    board: u64,
    place: u32,
    contents: u64,
    sweeps: u64,
    /// Nothing: attributes were just being changed.
    names: Option<u64>,
}

/// The place of a file.
pub fn place_of(dev: u64, ino: u64) -> usize {
    (ino ^ dev.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 32 & (PLACES - 1)
}

impl Default for Board {
    fn default() -> Board {
        Board {
            nonce: AtomicU64::new(0),
            sweeps: Count::default(),
            names: Count::default(),
            places: std::array::from_fn(|_| Count::default()),
        }
    }
}

impl Board {
    fn counts(&self, scope: Scope) -> impl Iterator<Item = &Count> {
        let (a, b) = match scope {
            Scope::Nothing => (None, None),
            Scope::Place(at) => (self.places.get(at), None),
            Scope::Names => (Some(&self.names), None),
            Scope::Everything => (Some(&self.sweeps), Some(&self.names)),
        };
        a.into_iter().chain(b)
    }

    /// Node: a change is about to begin.
    pub fn begin(&self, scope: Scope) {
        self.counts(scope).for_each(Count::begin);
    }

    /// Node: a change has ended.
    pub fn end(&self, scope: Scope) {
        self.counts(scope).for_each(Count::end);
    }

    /// Nothing changes the file at this place now, but for what the asker has himself begun (`mine`, and `held`:
    /// at this place). What is looked at after this stays so as long as it [`holds`](Board::contents_hold).
    pub fn still(&self, place: usize, mine: Scope, held: bool) -> Option<Still> {
        let sweeps = self.sweeps.still(mine == Scope::Everything)?;
        let names = self.names.still(matches!(mine, Scope::Names | Scope::Everything));
        let contents = self.places.get(place)?.still(held)?;
        Some(Still {
            board: self.nonce.load(Ordering::Relaxed),
            place: place as u32,
            contents,
            sweeps,
            names,
        })
    }

    /// Whether nothing has begun to change the file's contents since.
    pub fn contents_hold(&self, since: &Still) -> bool {
        let place = self.places.get(since.place as usize);
        since.board == self.nonce.load(Ordering::Relaxed)
            && place.is_some_and(|p| p.holds(since.contents))
            && self.sweeps.holds(since.sweeps)
    }

    /// Whether nothing has begun to change the file's contents or attributes since.
    pub fn attributes_hold(&self, since: &Still) -> bool {
        since.names.is_some_and(|names| self.names.holds(names)) && self.contents_hold(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_change_ends_what_was_seen() {
        let board = Board::default();
        let at = place_of(1, 2);
        let seen = board.still(at, Scope::Nothing, false).unwrap();
        assert!(board.contents_hold(&seen) && board.attributes_hold(&seen));
        board.begin(Scope::Place(at));
        assert!(!board.contents_hold(&seen) && !board.attributes_hold(&seen), "before the change");
        assert_eq!(board.still(at, Scope::Nothing, false), None, "it is under way");
        board.end(Scope::Place(at));
        assert!(!board.contents_hold(&seen), "and after it");
        let seen = board.still(at, Scope::Nothing, false).unwrap();
        board.begin(Scope::Names);
        assert!(board.contents_hold(&seen) && !board.attributes_hold(&seen), "a name");
        let meanwhile = board.still(at, Scope::Nothing, false).unwrap();
        assert!(board.contents_hold(&meanwhile) && !board.attributes_hold(&meanwhile));
        board.begin(Scope::Everything);
        assert_eq!(board.still(at, Scope::Nothing, false), None);
        assert!(!board.contents_hold(&seen));
        let nonsense = Still { place: u32::MAX, ..seen };
        assert!(!board.contents_hold(&nonsense));
        let (first, second) = (Board::default(), Board::default());
        second.nonce.store(1, Ordering::Relaxed);
        let seen = first.still(at, Scope::Nothing, false).unwrap();
        assert!(first.contents_hold(&seen) && !second.contents_hold(&seen), "another process counts");
    }

    #[test]
    fn what_oneself_changes_is_no_surprise() {
        let board = Board::default();
        board.begin(Scope::Everything);
        let made = board.still(3, Scope::Everything, false).unwrap();
        board.end(Scope::Everything);
        assert!(board.attributes_hold(&made));
        board.begin(Scope::Place(3));
        assert_eq!(board.still(3, Scope::Nothing, false), None, "others wait for its end");
        let made = board.still(3, Scope::Nothing, true).unwrap();
        assert!(board.attributes_hold(&made));
        board.end(Scope::Place(3));
        board.begin(Scope::Everything);
        board.begin(Scope::Names);
        let made = board.still(3, Scope::Everything, false).unwrap();
        assert!(!board.attributes_hold(&made), "another one changes names at the same time");
    }

    proptest! {
        /// Whoever uses what he has seen uses what is there, whatever changes it when.
        #[test]
        fn what_is_used_is_what_is_there(steps in prop::collection::vec(0u8..6, 1..200)) {
            let board = Board::default();
            let (mut file, mut changing, mut seen) = (0u32, None, None);
            for step in steps {
                match step {
                    0 | 1 if changing.is_none() => {
                        let scope = if step == 0 { Scope::Place(5) } else { Scope::Everything };
                        board.begin(scope);
                        changing = Some(scope);
                    }
                    2 => if let Some(scope) = changing.take() {
                        file += 1;
                        board.end(scope);
                    },
                    3 => { board.begin(Scope::Place(6)); board.end(Scope::Place(6)); }
                    4 => if let Some(still) = board.still(5, Scope::Nothing, false) {
                        seen = Some((still, file));
                    },
                    _ => if let Some((still, was)) = seen && board.contents_hold(&still) {
                        prop_assert_eq!(was, file);
                        prop_assert!(changing.is_none());
                    },
                }
            }
        }
    }
}
