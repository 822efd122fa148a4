//! A row of small slot numbers out of which any can step.

/// The first slot is the one that has stood longest. A slot is in it at most once.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotList {
    /// A ring: place 0 stands between the last and the first, slot `s` has place `s + 1`. What is not in
    /// the row is a ring of its own.
    links: Vec<Link>,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
}

impl SlotList {
    /// The one that has stood longest.
    pub(crate) fn first(&self) -> Option<u32> {
        self.links.first()?.after.checked_sub(1)
    }

    /// Puts a slot at the end, wherever it was.
    pub(crate) fn push(&mut self, slot: u32) {
        let place = slot + 1;
        for new in self.links.len() as u32..=place {
            self.links.push(Link { before: new, after: new });
        }
        self.remove(slot);
        let last = self.links[0].before;
        self.links[place as usize] = Link { before: last, after: 0 };
        self.links[last as usize].after = place;
        self.links[0].before = place;
    }

    /// Takes a slot out, if it is in.
    pub(crate) fn remove(&mut self, slot: u32) {
        let place = slot + 1;
        let Some(&Link { before, after }) = self.links.get(place as usize) else { return };
        self.links[before as usize].after = after;
        self.links[after as usize].before = before;
        self.links[place as usize] = Link { before: place, after: place };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_vector(steps in prop::collection::vec((0u32..20, prop::bool::ANY), 1..400)) {
            let mut list = SlotList::default();
            let mut model: Vec<u32> = Vec::new();
            for (slot, stays) in steps {
                model.retain(|s| *s != slot);
                if stays {
                    list.push(slot);
                    model.push(slot);
                } else {
                    list.remove(slot);
                }
                prop_assert_eq!(list.first(), model.first().copied());
            }
        }
    }
}
