//! A priority queue over small slot numbers whose priorities change in place.

const NOWHERE: u32 = u32::MAX;
const ARITY: usize = 4;

/// The slot with the smallest key first. A slot is in it at most once.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotHeap<K> {
    entries: Vec<(K, u32)>,
    /// Where each slot stands in `entries`.
    places: Vec<u32>,
}

impl<K: Ord + Copy> SlotHeap<K> {
    /// The smallest key and its slot.
    pub(crate) fn peek(&self) -> Option<(K, u32)> {
        self.entries.first().copied()
    }

    /// Puts a slot in, or gives it another key.
    pub(crate) fn set(&mut self, slot: u32, key: K) {
        if self.places.len() <= slot as usize {
            self.places.resize(slot as usize + 1, NOWHERE);
        }
        let at = self.places[slot as usize];
        if at == NOWHERE {
            self.entries.push((key, slot));
            self.up(self.entries.len() - 1);
        } else {
            let at = at as usize;
            let old = std::mem::replace(&mut self.entries[at].0, key);
            if key < old { self.up(at) } else { self.down(at) }
        }
    }

    /// Takes a slot out, if it is in.
    pub(crate) fn remove(&mut self, slot: u32) {
        let at = self.places.get(slot as usize).copied().unwrap_or(NOWHERE);
        if at == NOWHERE {
            return;
        }
        self.places[slot as usize] = NOWHERE;
        let at = at as usize;
        let Some(last) = self.entries.pop() else { return };
        if at < self.entries.len() {
            let old = std::mem::replace(&mut self.entries[at], last).0;
            self.places[last.1 as usize] = at as u32;
            if last.0 < old { self.up(at) } else { self.down(at) }
        }
    }

    fn up(&mut self, mut at: usize) {
        let moving = self.entries[at];
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if self.entries[parent].0 <= moving.0 {
                break;
            }
            self.place(at, self.entries[parent]);
            at = parent;
        }
        self.place(at, moving);
    }

    fn down(&mut self, mut at: usize) {
        let moving = self.entries[at];
        loop {
            let first = at * ARITY + 1;
            let children = self.entries.iter().enumerate().skip(first).take(ARITY);
            let Some((least, entry)) = children.min_by_key(|(_, e)| e.0) else { break };
            if moving.0 <= entry.0 {
                break;
            }
            self.place(at, *entry);
            at = least;
        }
        self.place(at, moving);
    }

    fn place(&mut self, at: usize, entry: (K, u32)) {
        self.entries[at] = entry;
        self.places[entry.1 as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn agrees_with_a_sorted_map(steps in prop::collection::vec((0u32..20, prop::option::of(0u64..50)), 1..400)) {
            let mut heap = SlotHeap::default();
            let mut model = BTreeMap::new();
            for (slot, key) in steps {
                match key {
                    Some(key) => {
                        heap.set(slot, (key, slot));
                        model.insert(slot, key);
                    }
                    None => {
                        heap.remove(slot);
                        model.remove(&slot);
                    }
                }
                let least = model.iter().map(|(s, k)| ((*k, *s), *s)).min();
                prop_assert_eq!(heap.peek(), least);
            }
        }
    }
}
