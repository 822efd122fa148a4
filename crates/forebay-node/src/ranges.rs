//! The byte ranges one owner has locked in a file, as POSIX has them: a new lock replaces what it
//! covers, releasing may leave two pieces. The kernel keeps the same; it only does not say whose they are.

use forebay_wire::message::{LockKind, LockRange};

/// Locked ranges: in order, never overlapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges {
    held: Vec<LockRange>,
}

fn piece(kind: LockKind, start: u64, end: u64) -> LockRange {
    LockRange { kind, start, len: if end == u64::MAX { 0 } else { end - start } }
}

impl Ranges {
    /// The owner has locked or released a range.
    pub(crate) fn set(&mut self, new: LockRange) {
        let (start, end) = (new.start, new.end());
        let mut next = Vec::with_capacity(self.held.len() + 2);
        for old in &self.held {
            if old.start < start {
                next.push(piece(old.kind, old.start, old.end().min(start)));
            }
            if old.end() > end {
                next.push(piece(old.kind, old.start.max(end), old.end()));
            }
        }
        if new.kind != LockKind::Unlock && start < end {
            next.push(piece(new.kind, start, end));
        }
        next.sort_unstable_by_key(|r| r.start);
        // Neighbours of one kind are one lock: a program that locks byte after byte needs no more room.
        next.dedup_by(|b, a| {
            let joins = a.kind == b.kind && a.end() == b.start;
            if joins {
                *a = piece(a.kind, a.start, b.end());
            }
            joins
        });
        self.held = next;
    }

    /// The first range that keeps another owner from having `wanted`.
    pub(crate) fn in_the_way_of(&self, wanted: &LockRange) -> Option<LockRange> {
        self.held.iter().find(|r| r.conflicts(wanted)).copied()
    }

    /// Whether nothing is locked.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kind() -> impl Strategy<Value = LockKind> {
        prop::sample::select(vec![LockKind::Read, LockKind::Write, LockKind::Unlock])
    }

    proptest! {
        /// Against a model with one cell a byte, the last of which stands for all that follow.
        #[test]
        fn as_byte_by_byte(changes in prop::collection::vec((kind(), 0u64..20, 0u64..20), 0..40)) {
            let mut ranges = Ranges::default();
            let mut model = [LockKind::Unlock; 41];
            for (kind, start, len) in changes {
                ranges.set(LockRange { kind, start, len });
                let end = if len == 0 { model.len() } else { (start + len) as usize };
                model[start as usize..end].fill(kind);
                for (at, &held) in model.iter().enumerate() {
                    let at = at as u64;
                    let byte = |kind| LockRange { kind, start: at, len: 1 };
                    prop_assert_eq!(ranges.in_the_way_of(&byte(LockKind::Write)).is_some(), held != LockKind::Unlock);
                    prop_assert_eq!(ranges.in_the_way_of(&byte(LockKind::Read)).is_some(), held == LockKind::Write);
                }
                let changes = model.windows(2).filter(|w| w[0] != w[1]).count();
                prop_assert!(ranges.held.len() <= changes + 1, "{:?}", ranges);
            }
        }
    }
}
