//! A slab with names: state per flow, or per file and operation, found by a dense slot number.

use rustc_hash::FxHashMap;
use std::hash::Hash;

/// Values by slot, slots by key. A slot is given to another key once its own was removed.
#[derive(Clone, Debug)]
pub(crate) struct Table<K, V> {
    slots: FxHashMap<K, u32>,
    values: Vec<V>,
    free: Vec<u32>,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Table<K, V> {
        Table { slots: FxHashMap::default(), values: Vec::new(), free: Vec::new() }
    }
}

impl<K: Hash + Eq + Copy, V: Default> Table<K, V> {
    /// The slot of `key`, made if need be. A slot used again keeps the value it had, so that its
    /// buffers serve again: whoever removes leaves it clean.
    pub(crate) fn slot(&mut self, key: K) -> u32 {
        let (free, values) = (&mut self.free, &mut self.values);
        *self.slots.entry(key).or_insert_with(|| {
            free.pop().unwrap_or_else(|| {
                values.push(V::default());
                u32::try_from(values.len() - 1).expect("fewer than 2^32 keys at a time fit in memory")
            })
        })
    }

    /// The slot of `key`, if it has one.
    pub(crate) fn find(&self, key: &K) -> Option<u32> {
        self.slots.get(key).copied()
    }

    /// Gives up the slot of `key`.
    pub(crate) fn remove(&mut self, key: &K) {
        self.free.extend(self.slots.remove(key));
    }

    /// Every value, those of free slots included.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.values.iter_mut()
    }

    /// Forgets every key, and keeps the values for later.
    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.values.clear();
        self.free.clear();
    }
}

impl<K, V> std::ops::Index<u32> for Table<K, V> {
    type Output = V;
    fn index(&self, slot: u32) -> &V {
        &self.values[slot as usize]
    }
}

impl<K, V> std::ops::IndexMut<u32> for Table<K, V> {
    fn index_mut(&mut self, slot: u32) -> &mut V {
        &mut self.values[slot as usize]
    }
}
