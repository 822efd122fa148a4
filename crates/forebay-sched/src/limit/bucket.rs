//! A token bucket: what may go now, filled as time passes.

use forebay_types::Nanos;

/// What was not used can be used later, if not later than this: nobody is woken to the microsecond, and
/// whoever changes places is away for a moment. All I/O nodes of a job together save no more than
/// this, which is 2 % of two seconds.
pub(super) const BURST: Nanos = Nanos::from_millis(40);

#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    /// A second.
    rate: f64,
    /// What all I/O nodes together have a second.
    whole: f64,
    /// What is left; what is owed is below zero.
    level: f64,
    /// When that was.
    at: Nanos,
    /// Since when it is taken from.
    began: Nanos,
}

impl Bucket {
    pub(super) fn new(rate: f64, whole: f64, now: Nanos) -> Bucket {
        let mut bucket = Bucket { rate: 0.0, whole: 0.0, level: 0.0, at: now, began: now };
        bucket.set(rate, whole, now);
        bucket
    }

    /// What is owed stays owed at the new rate.
    pub(super) fn set(&mut self, rate: f64, whole: f64, now: Nanos) {
        self.fill(now);
        self.rate = floored(rate);
        self.whole = floored(whole).max(self.rate);
        self.level = self.level.min(self.most());
    }

    /// Time has passed.
    fn fill(&mut self, now: Nanos) {
        let saved = self.rate * BURST.as_secs_f64();
        if self.level < saved {
            self.level = (self.level + self.rate * now.since(self.at).as_secs_f64()).min(saved);
        }
        self.at = self.at.max(now);
    }

    /// What others have saved for it counts as what it saved itself, and all together have no more.
    fn most(&self) -> f64 {
        self.whole * BURST.as_secs_f64()
    }

    pub(super) fn take(&mut self, now: Nanos, amount: f64) {
        self.fill(now);
        self.level -= amount;
    }

    /// So much of what a request of then took was not needed: as if it had not been taken.
    pub(super) fn give_back(&mut self, now: Nanos, taken: Nanos, amount: f64) {
        if taken < self.began {
            return;
        }
        self.fill(now);
        self.level = (self.level + amount).min(self.level.max(self.rate * BURST.as_secs_f64()));
    }

    /// From another I/O node.
    pub(super) fn put(&mut self, now: Nanos, amount: f64) {
        self.fill(now);
        self.level = (self.level + amount).min(self.most());
    }

    /// What can be given away without being missed at once; too little is nothing.
    pub(super) fn spare(&mut self, now: Nanos) -> f64 {
        self.fill(now);
        let spare = self.level - self.rate * RESERVE.as_secs_f64();
        if spare >= self.whole * LEAST.as_secs_f64() { spare } else { 0.0 }
    }

    /// What was saved is lost; what is owed stays.
    pub(super) fn empty(&mut self) {
        self.level = self.level.min(0.0);
    }

    /// When all that went through is paid for.
    pub(super) fn ready(&self) -> Nanos {
        if self.owes() { self.at + span(-self.level, self.rate) } else { self.at }
    }

    /// Whether something that went through was not paid for when somebody last looked.
    pub(super) fn owes(&self) -> bool {
        // What is less than a nanosecond's worth is a sum's inaccuracy.
        self.level < -self.rate * 1e-9
    }

    /// Nothing is owed.
    pub(super) fn forgive(&mut self, now: Nanos) {
        (self.level, self.at, self.began) = (0.0, now, now);
    }
}

/// Of its own rate: kept by whoever gives to others.
const RESERVE: Nanos = Nanos::from_millis(5);
/// Of the whole rate: less than this is not given.
const LEAST: Nanos = Nanos::from_micros(200);

/// A rate of nothing would be a wait for ever.
fn floored(rate: f64) -> f64 {
    if rate.is_finite() { rate.max(1e-3) } else { 1e18 }
}

/// How long `amount` takes at `rate` a second.
fn span(amount: f64, rate: f64) -> Nanos {
    // A cast of what is too large saturates; half of the range leaves room for sums.
    Nanos(((amount / rate * 1e9).ceil() as u64).min(u64::MAX / 4))
}
