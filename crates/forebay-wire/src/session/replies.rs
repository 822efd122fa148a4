//! The node's memory of answers to requests that must not be done twice.

use std::collections::VecDeque;

/// How many answers a session keeps: more than a client can have unanswered at once.
const KEPT: usize = 256;

/// Answers by request id, oldest first, bounded.
#[derive(Debug, Default)]
pub struct Replies {
    kept: VecDeque<(u64, Option<Vec<u8>>)>,
}

/// What is known of a request id.
#[derive(Debug, PartialEq, Eq)]
pub enum RequestState<'a> {
    /// Never seen: carry it out.
    New,
    /// Being carried out right now, on an earlier connection: its answer will come to be known.
    Running,
    /// Done: this was the answer, a whole frame.
    Answered(&'a [u8]),
}

impl Replies {
    /// What is known of `id`; a new one is noted as running.
    pub fn begin(&mut self, id: u64) -> RequestState<'_> {
        let Some(at) = self.kept.iter().position(|(k, _)| *k == id) else {
            // What is still being carried out must not be forgotten.
            if self.kept.len() >= KEPT
                && let Some(oldest) = self.kept.iter().position(|(_, answer)| answer.is_some())
            {
                self.kept.remove(oldest);
            }
            self.kept.push_back((id, None));
            return RequestState::New;
        };
        match &self.kept[at].1 {
            None => RequestState::Running,
            Some(frame) => RequestState::Answered(frame),
        }
    }

    /// The request `id` was not carried out (its lease had run out): it may be tried again.
    pub fn forget(&mut self, id: u64) {
        self.kept.retain(|(k, _)| *k != id);
    }

    /// The answer to `id` is `frame`.
    pub fn answered(&mut self, id: u64, frame: Vec<u8>) {
        if let Some((_, slot)) = self.kept.iter_mut().rev().find(|(k, _)| *k == id) {
            *slot = Some(frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once() {
        let mut r = Replies::default();
        assert_eq!(r.begin(1), RequestState::New);
        assert_eq!(r.begin(1), RequestState::Running);
        r.answered(1, vec![9]);
        assert_eq!(r.begin(1), RequestState::Answered(&[9]));
        assert_eq!(r.begin(0), RequestState::New);
        r.forget(0);
        assert_eq!(r.begin(0), RequestState::New);
        r.forget(0);
        assert_eq!(r.begin(5000), RequestState::New);
        for id in 2..=(KEPT as u64 + 1) {
            assert_eq!(r.begin(id), RequestState::New);
            r.answered(id, Vec::new());
        }
        assert_eq!(r.begin(1), RequestState::New, "the oldest is forgotten");
        assert_eq!(r.begin(5000), RequestState::Running, "but not what is under way");
    }
}
