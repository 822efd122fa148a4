//! What was heard of a job's mapping: whether to ask for a newer one, and whether to go by the answer. Every
//! call of every thread looks here, so that it is all atomic.

use forebay_types::Epoch;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What nodes have told besides the mapping that is followed.
#[derive(Debug, Default)]
pub struct News {
    newest: AtomicU64,
    asking: AtomicBool,
}

impl News {
    /// A node told the version of its mapping.
    pub fn heard(&self, epoch: Epoch) {
        if epoch.0 > self.newest.load(Ordering::Relaxed) {
            self.newest.store(epoch.0, Ordering::Relaxed);
        }
    }

    /// Whether there is a newer mapping than the one that is followed, and nobody is asking for it.
    pub fn is_due(&self, followed: Epoch) -> bool {
        self.newest.load(Ordering::Relaxed) > followed.0 && !self.asking.load(Ordering::Relaxed)
    }

    /// Somebody asks for it, until [`News::answered`]; false: somebody else does.
    #[must_use]
    pub fn ask(&self) -> bool {
        !self.asking.swap(true, Ordering::Acquire)
    }

    /// The version that the answer has, if there was one; `follow` is called if it is to be gone by.
    pub fn answered(&self, said: Option<Epoch>, followed: Epoch, follow: impl FnOnce(Epoch)) {
        match said {
            Some(epoch) if epoch > followed => follow(epoch),
            // The node is gone, or knows less than another one: heard again, it is asked for again.
            _ => self.newest.store(followed.0, Ordering::Relaxed),
        }
        self.asking.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_are_asked_for_once_and_again_when_heard_again() {
        let news = News::default();
        assert!(!news.is_due(Epoch(0)));
        news.heard(Epoch(3));
        news.heard(Epoch(2));
        assert!(news.is_due(Epoch(2)) && !news.is_due(Epoch(3)));
        assert!(news.ask() && !news.ask());
        assert!(!news.is_due(Epoch(0)), "somebody asks");
        news.answered(None, Epoch(2), |_| panic!("nothing to go by"));
        assert!(!news.is_due(Epoch(2)), "not again at once");
        news.heard(Epoch(3));
        assert!(news.ask());
        news.answered(Some(Epoch(1)), Epoch(2), |_| panic!("an older one"));
        news.heard(Epoch(4));
        assert!(news.ask());
        let mut followed = Epoch(2);
        news.answered(Some(Epoch(4)), followed, |epoch| followed = epoch);
        assert!(followed == Epoch(4) && !news.is_due(followed));
    }
}
