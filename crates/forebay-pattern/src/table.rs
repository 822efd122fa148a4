//! A map whose values keep their place: looked up by key once, then by slot number.

use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::hash::Hash;

/// Keys to slots, slots to values. Slots of dropped keys are used again.
#[derive(Debug)]
pub(crate) struct Table<K, V> {
    index: HashMap<K, u32, RandomState>,
    slots: Vec<V>,
    free: Vec<u32>,
    limit: usize,
}

impl<K: Hash + Eq + Copy, V> Table<K, V> {
    /// A table that takes at most `limit` keys, so that no client can take the node's memory.
    pub(crate) fn new(limit: usize) -> Table<K, V> {
        Table { index: HashMap::default(), slots: Vec::new(), free: Vec::new(), limit }
    }

    #[inline]
    pub(crate) fn find(&self, key: K) -> Option<u32> {
        self.index.get(&key).copied()
    }

    /// The slot of `key`, made with `value` if it is new; `None` if it is new and the table full.
    pub(crate) fn find_or_add(&mut self, key: K, value: impl FnOnce() -> V) -> Option<u32> {
        if let Some(slot) = self.find(key) {
            return Some(slot);
        }
        if self.index.len() >= self.limit {
            return None;
        }
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = value();
                slot
            }
            None => {
                self.slots.push(value());
                (self.slots.len() - 1) as u32
            }
        };
        self.index.insert(key, slot);
        Some(slot)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut V {
        &mut self.slots[slot as usize]
    }

    /// Every key in use with its slot, by slot.
    pub(crate) fn in_use(&self) -> Vec<(u32, K)> {
        let mut keys: Vec<(u32, K)> = self.index.iter().map(|(&key, &slot)| (slot, key)).collect();
        keys.sort_unstable_by_key(|&(slot, _)| slot);
        keys
    }

    /// Drops the keys whose value `keep` does not want.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&V) -> bool) {
        let (slots, free) = (&self.slots, &mut self.free);
        self.index.retain(|_, slot| {
            let stays = keep(&slots[*slot as usize]);
            if !stays {
                free.push(*slot);
            }
            stays
        });
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }
}
