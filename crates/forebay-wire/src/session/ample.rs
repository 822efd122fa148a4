//! Whether writes to a file system may be put off: only while it has ample space, so that what was acknowledged fits.
//! Looked at as often as it takes to fill what is between.

use forebay_types::Nanos;

/// So much must be available, besides what clients may have put off.
pub const MARGIN: u64 = 256 << 20;
/// Nobody fills a file system faster, in bytes a second.
const FASTEST: u64 = 4 << 30;
const OFTEN: Nanos = Nanos::from_millis(10);
const SELDOM: Nanos = Nanos::from_millis(1000);
/// One that is not ample is looked at after this.
const AGAIN: Nanos = Nanos::from_millis(100);
/// After a write that was put off and did not fit (a quota, most likely), none is for so long.
const REFUSED: Nanos = Nanos::from_millis(60_000);

/// What is known of one file system.
#[derive(Clone, Debug, Default)]
pub struct Ample {
    available: Option<u64>,
    look_at: Nanos,
    refused_until: Nanos,
}

impl Ample {
    /// Whether it is time to look, once: whoever asks then does.
    pub fn is_due(&mut self, now: Nanos) -> bool {
        let due = now >= self.look_at;
        if due {
            self.look_at = now + SELDOM;
        }
        due
    }

    /// So much was available, if it could be told, and so much may have been put off.
    pub fn looked(&mut self, available: Option<u64>, promised: u64, now: Nanos) {
        self.available = available;
        let over = available.unwrap_or(0).saturating_sub(promised.saturating_add(MARGIN));
        self.look_at = now
            + match over {
                0 => AGAIN,
                over => Nanos((over / (FASTEST / 1_000_000_000)).clamp(OFTEN.0, SELDOM.0)),
            };
    }

    /// A write that was put off did not fit.
    pub fn refused(&mut self, now: Nanos) {
        self.refused_until = now + REFUSED;
    }

    /// Whether writes may be put off, as much as that.
    pub fn may(&self, promised: u64, now: Nanos) -> bool {
        let enough = |available| available >= promised.saturating_add(MARGIN);
        now >= self.refused_until && self.available.is_some_and(enough)
    }

    /// When it is to be looked at again.
    pub fn look_at(&self) -> Nanos {
        self.look_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Nanos = Nanos::from_millis(5_000_000);

    #[test]
    fn writes_are_put_off_while_there_is_ample_space() {
        let mut disk = Ample::default();
        assert!(!disk.may(0, T), "nobody has looked");
        for (available, promised, may) in [
            (None, 0, false),
            (Some(0), 0, false),
            (Some(MARGIN - 1), 0, false),
            (Some(MARGIN), 0, true),
            (Some(MARGIN), 1, false),
            (Some(MARGIN + 512), 512, true),
            (Some(u64::MAX - 1), u64::MAX, false),
        ] {
            disk.looked(available, promised, T);
            assert_eq!(disk.may(promised, T), may, "{available:?} {promised}");
        }
    }

    #[test]
    fn after_one_that_did_not_fit_none_is_put_off_for_a_minute() {
        let mut disk = Ample::default();
        disk.looked(Some(u64::MAX), 0, T);
        disk.refused(T);
        assert!(!disk.may(0, T + Nanos::from_millis(59_999)));
        assert!(disk.may(0, T + Nanos::from_millis(60_000)));
    }

    #[test]
    fn the_less_there_is_the_sooner_it_is_looked_at() {
        let mut disk = Ample::default();
        assert!(disk.is_due(T) && !disk.is_due(T), "one looks");
        let mut after = |available, promised| {
            disk.looked(Some(available), promised, T);
            disk.look_at().since(T)
        };
        assert_eq!(after(u64::MAX, 0), SELDOM);
        assert_eq!(after(MARGIN + (1 << 30), 0), Nanos((1 << 30) / 4), "0.27 s for 1 GiB");
        assert_eq!(after(MARGIN + (1 << 30), 1 << 30), AGAIN, "all of it is promised");
        assert_eq!(after(MARGIN + 1, 0), OFTEN);
        assert_eq!(after(0, 0), AGAIN);
    }
}
