//! A slab with names: state per flow, or per file and operation, found by a dense slot number.

use rustc_hash::FxBuildHasher;
use std::hash::{BuildHasher, Hash};

/// No slot: the bucket is empty.
const NONE: u32 = u32::MAX;

/// Where a key may be found: part of its hash, and its slot. Buckets are this small, and the keys lie
/// with the values that are wanted next, so that the buckets of many thousand keys stay in the
/// processor's cache.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    hash: u32,
    slot: u32,
}

/// In this order from the start of a line of the cache on, so that what a value has in front comes with
/// the key.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Entry<K, V> {
    key: K,
    value: V,
}

/// Values by slot, slots by key. A slot is given to another key once its own was removed.
#[derive(Clone, Debug)]
pub(crate) struct Table<K, V> {
    /// A power of two, at most three quarters in use. A key stands in the first empty bucket from the one
    /// of its hash on.
    buckets: Vec<Bucket>,
    entries: Vec<Entry<K, V>>,
    free: Vec<u32>,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Table<K, V> {
        Table { buckets: Vec::new(), entries: Vec::new(), free: Vec::new() }
    }
}

impl<K: Hash + Eq + Copy, V: Default> Table<K, V> {
    /// The slot of `key`, made if need be. A slot used again keeps the value it had, so that its
    /// buffers serve again: whoever removes leaves it clean.
    pub(crate) fn slot(&mut self, key: K) -> u32 {
        let hash = hash(&key);
        match self.search(&key, hash) {
            Ok(at) => self.buckets[at].slot,
            Err(at) => self.add(key, hash, at),
        }
    }

    /// The slot of `key`, if it has one.
    pub(crate) fn find(&self, key: &K) -> Option<u32> {
        self.search(key, hash(key)).ok().map(|at| self.buckets[at].slot)
    }

    /// Whose a slot is, or was last.
    pub(crate) fn key(&self, slot: u32) -> K {
        self.entries[slot as usize].key
    }

    /// Gives up a slot.
    pub(crate) fn remove(&mut self, slot: u32) {
        let Some(mask) = self.buckets.len().checked_sub(1) else { return };
        let mut hole = hash(&self.key(slot)) as usize & mask;
        while self.buckets[hole].slot != slot {
            if self.buckets[hole].slot == NONE {
                return;
            }
            hole = (hole + 1) & mask;
        }
        self.free.push(slot);
        // Those behind move up, as far as the bucket of their hash.
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let bucket = self.buckets[at];
            if bucket.slot == NONE {
                break;
            }
            if (at.wrapping_sub(bucket.hash as usize) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.buckets[hole] = bucket;
                hole = at;
            }
        }
        self.buckets[hole].slot = NONE;
    }

    /// The bucket of `key`, or the empty one where it would be (none at all in an empty table).
    fn search(&self, key: &K, hash: u32) -> Result<usize, usize> {
        let mask = self.buckets.len().wrapping_sub(1);
        let mut at = hash as usize & mask;
        while let Some(bucket) = self.buckets.get(at) {
            if bucket.slot == NONE {
                break;
            }
            if bucket.hash == hash && self.entries[bucket.slot as usize].key == *key {
                return Ok(at);
            }
            at = (at + 1) & mask;
        }
        Err(at)
    }

    #[cold]
    fn add(&mut self, key: K, hash: u32, mut at: usize) -> u32 {
        if (self.entries.len() - self.free.len() + 1) * 4 > self.buckets.len() * 3 {
            self.grow();
            at = self.vacant(hash);
        }
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize].key = key;
                slot
            }
            None => {
                self.entries.push(Entry { key, value: V::default() });
                u32::try_from(self.entries.len() - 1).expect("fewer than 2^32 keys at a time fit in memory")
            }
        };
        self.buckets[at] = Bucket { hash, slot };
        slot
    }

    fn grow(&mut self) {
        let size = (self.buckets.len() * 2).max(16);
        let old = std::mem::replace(&mut self.buckets, vec![Bucket { hash: 0, slot: NONE }; size]);
        for bucket in old.into_iter().filter(|b| b.slot != NONE) {
            let at = self.vacant(bucket.hash);
            self.buckets[at] = bucket;
        }
    }

    /// The first empty bucket for a hash; there always is one.
    fn vacant(&self, hash: u32) -> usize {
        let mask = self.buckets.len() - 1;
        let mut at = hash as usize & mask;
        while self.buckets[at].slot != NONE {
            at = (at + 1) & mask;
        }
        at
    }

    /// Every value, those of free slots included.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.entries.iter_mut().map(|e| &mut e.value)
    }

    /// Every key and value, those of free slots included.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut V)> {
        self.entries.iter_mut().map(|e| (e.key, &mut e.value))
    }

    /// Forgets every key and value.
    pub(crate) fn clear(&mut self) {
        *self = Table::default();
    }
}

fn hash(key: &impl Hash) -> u32 {
    let hash = FxBuildHasher.hash_one(key);
    (hash ^ (hash >> 32)) as u32
}

impl<K, V> std::ops::Index<u32> for Table<K, V> {
    type Output = V;
    fn index(&self, slot: u32) -> &V {
        &self.entries[slot as usize].value
    }
}

impl<K, V> std::ops::IndexMut<u32> for Table<K, V> {
    fn index_mut(&mut self, slot: u32) -> &mut V {
        &mut self.entries[slot as usize].value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn agrees_with_a_map(steps in prop::collection::vec((0u64..200, prop::bool::ANY), 1..2000)) {
            let mut table: Table<u64, u64> = Table::default();
            let mut model = HashMap::new();
            for (key, stays) in steps {
                if stays {
                    let slot = table.slot(key);
                    prop_assert_eq!(*model.entry(key).or_insert(slot), slot);
                    prop_assert_eq!(table.key(slot), key);
                } else {
                    if let Some(slot) = model.remove(&key) {
                        table.remove(slot);
                    }
                }
                for key in 0..200 {
                    prop_assert_eq!(table.find(&key), model.get(&key).copied());
                }
            }
        }
    }
}
