//! What was looked at on the job's only I/O node, which is on this host and counts every change: as long as nothing
//! was changed there ([`forebay_client::Client::is_still`]), it need not be asked again. For changes that the node does
//! not know of, that is only believed for a moment, unless nobody else changes anything.

use super::fresh::AT_ONCE;
use super::{Fs, Outcome};
use forebay_client::{Attr, Moment};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So many names, and as many files; one more, and it begins anew.
const MOST: usize = 4096;
const A_WHILE: Duration = Duration::from_secs(1);

type Name = (u64, Box<[u8]>);
type Table<K, V> = Mutex<HashMap<K, Look<V>, foldhash::fast::RandomState>>;

/// What was seen, and when.
#[derive(Clone, Copy)]
struct Look<V> {
    seen: V,
    moment: Moment,
    at: Instant,
}

#[derive(Default)]
pub(super) struct Sighted {
    /// What a name is, or that there is none.
    names: Table<Name, Option<Attr>>,
    nodes: Table<u64, Attr>,
}

fn put<K: std::hash::Hash + Eq, V>(table: &Table<K, V>, key: K, seen: V, moment: Moment, at: Instant) {
    let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
    if table.len() >= MOST {
        table.clear();
    }
    table.insert(key, Look { seen, moment, at });
}

fn get<K: std::hash::Hash + Eq, V: Copy>(table: &Table<K, V>, key: &K) -> Option<Look<V>> {
    table.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied()
}

impl Fs {
    fn is_still<V>(&self, look: &Look<V>) -> bool {
        let believed = if self.is_exclusive() { A_WHILE } else { AT_ONCE };
        look.at.elapsed() < believed && self.client.is_still(&look.moment)
    }

    /// Looks at a name with `look`, unless it is known what it is.
    pub(super) fn look_at_name(
        &self,
        parent: u64,
        name: &[u8],
        look: impl FnOnce() -> Outcome<Attr>,
    ) -> Outcome<Attr> {
        let key: Name = (parent, name.into());
        if let Some(look) = get(&self.sighted.names, &key)
            && self.is_still(&look)
        {
            return look.seen.ok_or(libc::ENOENT);
        }
        let at = Instant::now();
        let before = {
            let tree = self.tree();
            let known = tree.at(parent, name).unwrap_or(parent);
            tree.attr(known).map(|a| (a.dev, a.ino))
        };
        let moment = before.and_then(|(dev, ino)| self.client.moment(dev, ino));
        let seen = look();
        match (&seen, moment) {
            (Ok(attr), Some(moment)) if before == Some((attr.dev, attr.ino)) => {
                put(&self.sighted.names, key, Some(*attr), moment, at);
            }
            (Err(libc::ENOENT), Some(moment)) => put(&self.sighted.names, key, None, moment, at),
            _ => {}
        }
        seen
    }

    /// Looks at a file with `look`, unless it is known what it is.
    pub(super) fn look_at_node(&self, node: u64, look: impl FnOnce() -> Outcome<Attr>) -> Outcome<Attr> {
        if let Some(look) = get(&self.sighted.nodes, &node)
            && self.is_still(&look)
        {
            return Ok(look.seen);
        }
        let at = Instant::now();
        let before = self.tree().attr(node).map(|a| (a.dev, a.ino));
        let moment = before.and_then(|(dev, ino)| self.client.moment(dev, ino));
        let seen = look()?;
        if let Some(moment) = moment.filter(|_| before == Some((seen.dev, seen.ino))) {
            put(&self.sighted.nodes, node, seen, moment, at);
        }
        Ok(seen)
    }
}
