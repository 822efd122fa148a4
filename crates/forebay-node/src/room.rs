//! Room that users share: descriptors for open files, and connections. Whoever has as many as are left for all others
//! gets no more: so one user has at most half of them, the next at least half of the rest, and somebody who comes with
//! nothing finds some.

use crate::sys::acting::Whom;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Descriptors for what the node itself has open, directories that it keeps among them.
const OWN: RangeInclusive<usize> = 64..=384;

/// What is shared: so many of one kind.
#[derive(Debug)]
pub(crate) struct Room {
    /// In words, for the log.
    what: &'static str,
    pub(crate) most: usize,
    /// Users are told apart; else whoever comes gets what there is.
    apart: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    by: HashMap<u32, usize>,
    /// Of whom the log says that they are refused.
    said: Vec<u32>,
}

/// One of them, until dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    room: Arc<Room>,
    by: Option<u32>,
}

/// At most so many connections of one user need a descriptor for what is being done at the same time.
const AT_ONCE: usize = 256;

/// How many connections and open files there can be, within so many descriptors: of the connections no more than are
/// `wanted`. Each needs one for itself, and, where users are to be kept `apart`, one for what is being done: nobody's
/// requests fail because of another's. Where all are one user's, each may have a file open instead.
pub(crate) fn divide(descriptors: usize, wanted: usize, apart: bool) -> (usize, usize) {
    let own = (descriptors / 8).clamp(*OWN.start(), *OWN.end());
    let most = if apart { descriptors / 4 } else { descriptors.saturating_sub(own + AT_ONCE) / 2 };
    let connections = wanted.min(most.max(descriptors / 4)).max(1);
    let doing = if apart { connections } else { connections.min(AT_ONCE) };
    (connections, descriptors.saturating_sub(own + connections + doing).max(1))
}

impl Room {
    pub(crate) fn new(what: &'static str, most: usize, apart: bool) -> Arc<Room> {
        Arc::new(Room { what, most, apart, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more for `whom`; the node itself is no user.
    pub(crate) fn take(self: &Arc<Room>, whom: &Whom) -> Option<Taken> {
        let by = match whom {
            Whom::User(user) if self.apart => Some(user.uid),
            _ => None,
        };
        let mut state = self.lock();
        let left = self.most.saturating_sub(state.used);
        let own = by.map_or(0, |uid| state.by.get(&uid).copied().unwrap_or(0));
        if left == 0 || by.is_some() && own >= left {
            let uid = by.unwrap_or(u32::MAX);
            if !state.said.contains(&uid) {
                state.said.push(uid);
                let whose = by.map_or("everybody".to_owned(), |uid| format!("user {uid}"));
                tracing::warn!(
                    "no more {} for {whose}: {own} of {} are theirs, and {left} are left for all others",
                    self.what,
                    self.most
                );
            }
            return None;
        }
        state.used += 1;
        if let Some(uid) = by {
            *state.by.entry(uid).or_insert(0) += 1;
        }
        drop(state);
        Some(Taken { room: Arc::clone(self), by })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut state = self.room.lock();
        state.used -= 1;
        if let Some(uid) = self.by
            && let Some(own) = state.by.get_mut(&uid)
        {
            *own -= 1;
            if *own == 0 {
                state.by.remove(&uid);
            }
        }
        // Whoever is refused after this is worth another line.
        if !state.said.is_empty() && 4 * state.used <= self.room.most {
            state.said.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_types::Identity;

    fn user(uid: u32) -> Whom {
        Whom::User(Arc::new(Identity { uid, gid: uid, groups: Vec::new() }))
    }

    fn all(room: &Arc<Room>, whom: &Whom) -> Vec<Taken> {
        std::iter::from_fn(|| room.take(whom)).collect()
    }

    #[test]
    fn nobody_has_more_than_is_left_for_others() {
        let room = Room::new("places", 100, true);
        let first = all(&room, &user(1));
        assert_eq!(first.len(), 50);
        let second = all(&room, &user(2));
        assert_eq!(second.len(), 25);
        assert_eq!(all(&room, &user(3)).len(), 13, "they are given back at once");
        assert!(room.take(&user(1)).is_none() && room.take(&user(4)).is_some());
        assert_eq!(room.lock().said, [1, 2, 3], "each is named once");
        let own = all(&room, &Whom::Node);
        assert_eq!(own.len(), 25, "what the node itself needs is there");
        assert!(room.take(&user(4)).is_none());
        drop((first, second, own));
        assert!(room.lock().by.is_empty() && room.lock().used == 0 && room.lock().said.is_empty());
    }

    #[test]
    fn where_users_are_not_told_apart_one_may_have_all() {
        let room = Room::new("places", 10, false);
        assert_eq!(all(&room, &user(1)).len(), 10);
    }

    #[test]
    fn connections_leave_room_for_files_and_the_other_way_round() {
        assert_eq!(divide(1 << 20, 8192, true), (8192, (1 << 20) - 384 - 16384));
        assert_eq!(divide(1024, 8192, true), (256, 384));
        assert_eq!(divide(20_000, 10_500, true), (5000, 9616));
        assert_eq!(divide(20_000, 10_500, false), (9680, 9680), "a file for each");
        assert_eq!(divide(1024, 8192, false), (320, 320));
        for apart in [false, true] {
            assert_eq!(divide(0, 8192, apart), (1, 1));
            assert_eq!(divide(usize::MAX, 10, apart).0, 10);
        }
    }
}
