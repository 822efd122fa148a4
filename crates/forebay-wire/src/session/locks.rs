//! The locks held through an open file, as its client knows them: what must be told when they are lost.

use crate::message::{LockKind, LockOwner, LockRange};

/// Locks of one open file.
#[derive(Clone, Debug, Default)]
pub struct Locks {
    ranges: Vec<(LockOwner, LockRange)>,
    flock: bool,
}

impl Locks {
    /// The byte ranges.
    pub fn ranges(&self) -> &[(LockOwner, LockRange)] {
        &self.ranges
    }

    /// How many there are, of all kinds.
    pub fn len(&self) -> usize {
        self.ranges.len() + usize::from(self.flock)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether that owner holds any.
    pub fn has(&self, owner: LockOwner) -> bool {
        self.has_ranges(owner) || self.flock && owner == LockOwner::Handle
    }

    /// How many are the process's own, not the open file's.
    pub fn own(&self) -> usize {
        self.ranges.iter().filter(|(owner, _)| *owner == LockOwner::Process).count()
    }

    /// Whether an `flock` is held.
    pub fn has_flock(&self) -> bool {
        self.flock
    }

    /// Whether that owner holds byte ranges.
    pub fn has_ranges(&self, owner: LockOwner) -> bool {
        self.ranges.iter().any(|(o, _)| *o == owner)
    }

    /// Those of the open file are known elsewhere, together with others that share it.
    pub fn leave_own(&mut self) {
        self.ranges.retain(|(owner, _)| *owner == LockOwner::Process);
        self.flock = false;
    }

    /// They are lost with the node that had them; whether there were any, which is to be told then.
    #[must_use]
    pub fn lose(&mut self) -> bool {
        let any = !self.is_empty();
        *self = Locks::default();
        any
    }

    /// A forked process has those of the open file, and none of its parent's own.
    pub fn fork(&mut self) {
        self.ranges.retain(|(owner, _)| *owner == LockOwner::Handle);
    }

    /// An `flock` was changed so.
    pub fn note_flock(&mut self, kind: LockKind) {
        self.flock = kind != LockKind::Unlock;
    }

    /// A byte range was changed so.
    pub fn note(&mut self, owner: LockOwner, range: LockRange) {
        let (from, to) = (range.start, range.end());
        let mut now = Vec::with_capacity(self.ranges.len() + 1);
        for &(o, held) in &self.ranges {
            let (a, b) = (held.start, held.end());
            if o != owner || b <= from || a >= to {
                now.push((o, held));
                continue;
            }
            if a < from {
                now.push((o, LockRange { kind: held.kind, start: a, len: from - a }));
            }
            if b > to {
                let len = if b == u64::MAX { 0 } else { b - to };
                now.push((o, LockRange { kind: held.kind, start: to, len }));
            }
        }
        if range.kind != LockKind::Unlock {
            now.push((owner, range));
        }
        self.ranges = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_split() {
        let mut locks = Locks::default();
        let r = |kind, start, len| LockRange { kind, start, len };
        locks.note(LockOwner::Process, r(LockKind::Write, 10, 0));
        locks.note(LockOwner::Process, r(LockKind::Unlock, 20, 10));
        let both = [r(LockKind::Write, 10, 10), r(LockKind::Write, 30, 0)].map(|r| (LockOwner::Process, r));
        assert_eq!(locks.ranges(), both);
        locks.note(LockOwner::Process, r(LockKind::Unlock, 0, 0));
        assert!(locks.is_empty() && !locks.lose());
    }

    #[test]
    fn a_child_has_what_the_open_file_has() {
        let mut locks = Locks::default();
        let range = LockRange { kind: LockKind::Read, start: 0, len: 1 };
        locks.note(LockOwner::Process, range);
        locks.note(LockOwner::Handle, range);
        locks.note_flock(LockKind::Read);
        assert_eq!(locks.len(), 3);
        locks.fork();
        assert!(!locks.has(LockOwner::Process) && locks.has(LockOwner::Handle));
        assert_eq!(locks.len(), 2);
        locks.note_flock(LockKind::Unlock);
        assert!(locks.lose() && !locks.lose());
    }
}
