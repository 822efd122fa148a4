//! The node's memory of positional writes, which may be carried out twice, but not in the wrong order: a write
//! whose connection broke is sent again, and an older try of it that is found in a buffer after that must not
//! overwrite what its client has written since.

use std::collections::VecDeque;

/// How many repeated writes a session remembers: more than a client can have unanswered at once.
const KEPT: usize = 256;

/// A session's writes, by request id.
#[derive(Debug, Default)]
pub struct Writes {
    running: Vec<u64>,
    /// Writes that were sent more than once: the newest try of each.
    tries: VecDeque<(u64, u64)>,
}

/// Whether a try of a write may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It may.
    Now,
    /// An earlier try is being carried out: when that [is over](Writes::is_running), look again.
    Later,
    /// A newer try has come: this one is not carried out.
    Never,
}

impl Writes {
    /// A try of the write `id`, that was first sent `age_ms` ago, if it was sent before.
    pub fn arrive(&mut self, id: u64, age_ms: Option<u32>) -> Turn {
        // Later tries are older requests; the first one has no age.
        let this = age_ms.map_or(0, |age| u64::from(age) + 1);
        if self.tries.iter().any(|&(other, newest)| other == id && newest > this) {
            return Turn::Never;
        }
        if this == 0 {
            return Turn::Now;
        }
        self.tries.retain(|&(other, _)| other != id);
        if self.tries.len() == KEPT {
            self.tries.pop_front();
        }
        self.tries.push_back((id, this));
        if self.is_running(id) { Turn::Later } else { Turn::Now }
    }

    /// Whether a try of it is being carried out.
    pub fn is_running(&self, id: u64) -> bool {
        self.running.contains(&id)
    }

    /// Whether any is.
    pub fn are_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// It is being carried out.
    pub fn begin(&mut self, id: u64) {
        self.running.push(id);
    }

    /// It is over.
    pub fn end(&mut self, id: u64) {
        if let Some(at) = self.running.iter().position(|&other| other == id) {
            self.running.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_try_never_follows_a_newer_one() {
        let mut w = Writes::default();
        assert_eq!(w.arrive(1, None), Turn::Now);
        w.begin(1);
        assert_eq!(w.arrive(2, None), Turn::Now, "another one");
        assert_eq!(w.arrive(1, Some(0)), Turn::Later, "the first try is under way");
        assert_eq!(w.arrive(1, Some(700)), Turn::Later);
        w.end(1);
        assert!(!w.is_running(1) && !w.are_running());
        assert_eq!(w.arrive(1, Some(0)), Turn::Never, "a newer one has come");
        assert_eq!(w.arrive(1, None), Turn::Never);
        assert_eq!(w.arrive(1, Some(700)), Turn::Now);
        for id in 10..10 + KEPT as u64 {
            assert_eq!(w.arrive(id, Some(5)), Turn::Now);
        }
        assert_eq!(w.tries.len(), KEPT);
    }
}
