//! Distributions of latencies and sizes: logarithmic buckets, eight to a power of two, so that a
//! quantile is right to within an eighth of itself at the cost of a shift and an addition a value; or 32,
//! where there are few histograms and people read them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// So many powers of two are told apart; values from 2^42 on share the last bucket.
const POWERS: usize = 40;

/// Eight buckets to a power of two.
pub type Histogram = LogHistogram<{ POWERS << 3 }>;

/// 32 buckets to a power of two: quantiles are right to within a thirty-second.
pub type FineHistogram = LogHistogram<{ POWERS << 5 }>;

/// How many buckets a power of two has, as a power of two.
const fn sub_bits(buckets: usize) -> u32 {
    (buckets / POWERS).ilog2()
}

/// A histogram that any number of threads, and of processes that map it, add to. It is made of atomic
/// integers alone: every bit pattern is a value of it, and all zero is the empty one.
#[repr(C)]
#[derive(Debug)]
pub struct LogHistogram<const BUCKETS: usize> {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
    max: AtomicU64,
}

/// What a histogram held at some time, or gained between two times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    buckets: Vec<u64>,
    sum: u64,
    max: u64,
}

impl<const BUCKETS: usize> Default for LogHistogram<BUCKETS> {
    fn default() -> Self {
        LogHistogram {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            sum: AtomicU64::new(0),
            max: AtomicU64::new(0),
        }
    }
}

impl<const BUCKETS: usize> Clone for LogHistogram<BUCKETS> {
    fn clone(&self) -> Self {
        LogHistogram {
            buckets: std::array::from_fn(|i| AtomicU64::new(self.buckets[i].load(Relaxed))),
            sum: AtomicU64::new(self.sum.load(Relaxed)),
            max: AtomicU64::new(self.max.load(Relaxed)),
        }
    }
}

impl<const BUCKETS: usize> LogHistogram<BUCKETS> {
    /// One value more.
    #[inline]
    pub fn record(&self, value: u64) {
        self.buckets[bucket(value, BUCKETS)].fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
        if value > self.max.load(Relaxed) {
            self.max.fetch_max(value, Relaxed);
        }
    }

    /// One value more, where whoever adds holds a lock and others only read: no atomic read-modify-write.
    #[inline]
    pub fn record_locked(&self, value: u64) {
        let add = |to: &AtomicU64, more: u64| to.store(to.load(Relaxed).wrapping_add(more), Relaxed);
        add(&self.buckets[bucket(value, BUCKETS)], 1);
        add(&self.sum, value);
        if value > self.max.load(Relaxed) {
            self.max.store(value, Relaxed);
        }
    }

    /// All that another one holds as well.
    pub fn absorb(&self, other: &Self) {
        for (own, theirs) in self.buckets.iter().zip(&other.buckets) {
            let more = theirs.load(Relaxed);
            if more > 0 {
                own.fetch_add(more, Relaxed);
            }
        }
        self.sum.fetch_add(other.sum.load(Relaxed), Relaxed);
        self.max.fetch_max(other.max.load(Relaxed), Relaxed);
    }

    /// The sum of all values.
    pub fn sum(&self) -> u64 {
        self.sum.load(Relaxed)
    }

    /// One value more, where nobody else can be adding: no atomic operation.
    #[inline]
    pub fn add(&mut self, value: u64) {
        *self.buckets[bucket(value, BUCKETS)].get_mut() += 1;
        let sum = self.sum.get_mut();
        *sum = sum.wrapping_add(value);
        let max = self.max.get_mut();
        *max = (*max).max(value);
    }

    /// Empty again.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// What one holds that has these buckets, as [`Counts::buckets`] tells them, and whose largest value is
    /// `max`.
    pub fn counts_of(buckets: impl IntoIterator<Item = (u64, u64)>, max: u64) -> Counts {
        let mut counts = Self::default().counts();
        counts.add(buckets);
        counts.max = counts.max.min(max);
        counts
    }

    /// What it holds now.
    pub fn counts(&self) -> Counts {
        Counts {
            buckets: self.buckets.iter().map(|b| b.load(Relaxed)).collect(),
            sum: self.sum.load(Relaxed),
            max: self.max.load(Relaxed),
        }
    }
}

impl Default for Counts {
    fn default() -> Counts {
        Histogram::default().counts()
    }
}

impl Counts {
    /// Of buckets as [`Counts::buckets`] tells them, of a [`Histogram`].
    pub fn of(buckets: impl IntoIterator<Item = (u64, u64)>) -> Counts {
        let mut counts = Counts::default();
        counts.add(buckets);
        counts
    }

    fn add(&mut self, buckets: impl IntoIterator<Item = (u64, u64)>) {
        for (value, n) in buckets {
            let i = bucket(value, self.buckets.len());
            self.buckets[i] = self.buckets[i].saturating_add(n);
            self.sum = self.sum.saturating_add(value.saturating_mul(n));
            self.max = self.max.max(floor(i + 1, self.buckets.len()) - 1);
        }
    }

    /// How many values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Their sum.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// How many values are below `bound`: exactly, for powers of two.
    pub fn below(&self, bound: u64) -> u64 {
        self.buckets().take_while(|(floor, _)| *floor < bound).map(|(_, n)| n).sum()
    }

    /// Their mean; 0 of nothing.
    pub fn mean(&self) -> f64 {
        let count = self.count();
        if count == 0 { 0.0 } else { self.sum as f64 / count as f64 }
    }

    /// The largest.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The value that `q` (0 to 1) of the values do not exceed: the middle of its bucket, and never more
    /// than the largest, which it is where it is the last one. 0 of nothing.
    pub fn quantile(&self, q: f64) -> u64 {
        let floor = |i| floor(i, self.buckets.len());
        let last = self.rank(q) == self.count();
        self.bucket_of(q).map_or(0, |i| match last && bucket(self.max, self.buckets.len()) == i {
            true => self.max,
            false => u64::midpoint(floor(i), floor(i + 1) - 1).min(self.max),
        })
    }

    /// The same by the lower edge of the bucket: exact for powers of two, which request sizes mostly are.
    pub fn quantile_floor(&self, q: f64) -> u64 {
        self.bucket_of(q).map_or(0, |i| floor(i, self.buckets.len()))
    }

    fn rank(&self, q: f64) -> u64 {
        ((q * self.count() as f64).ceil() as u64).max(1)
    }

    fn bucket_of(&self, q: f64) -> Option<usize> {
        let rank = self.rank(q);
        let mut seen = 0;
        self.buckets.iter().position(|n| {
            seen = n.saturating_add(seen);
            seen >= rank
        })
    }

    /// Those of `other`, of a histogram of the same kind, as well.
    pub fn merge(&mut self, other: &Counts) {
        for (sum, n) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum = sum.saturating_add(*n);
        }
        self.sum = self.sum.wrapping_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// What was added since `before`. The largest is that of all.
    pub fn since(&self, before: &Counts) -> Counts {
        Counts {
            buckets: self.buckets.iter().zip(&before.buckets).map(|(a, b)| a.saturating_sub(*b)).collect(),
            sum: self.sum.wrapping_sub(before.sum),
            max: self.max,
        }
    }

    /// The smallest value of each bucket that is not empty, and how many fell into it.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.buckets
            .iter()
            .enumerate()
            .filter(|(_, n)| **n > 0)
            .map(|(i, n)| (floor(i, self.buckets.len()), *n))
    }
}

/// The bucket that a value falls into, of so many.
#[inline]
fn bucket(value: u64, buckets: usize) -> usize {
    let sub_bits = sub_bits(buckets);
    let subs = 1 << sub_bits;
    if value < subs {
        return value as usize;
    }
    let shift = value.ilog2() - sub_bits;
    let index = ((shift as usize + 1) << sub_bits) + ((value >> shift) - subs) as usize;
    index.min(buckets - 1)
}

/// The smallest value that falls into bucket `index` of so many.
fn floor(index: usize, buckets: usize) -> u64 {
    let sub_bits = sub_bits(buckets);
    let subs = 1 << sub_bits;
    if index < subs {
        return index as u64;
    }
    let shift = (index >> sub_bits) - 1;
    ((index & (subs - 1)) + subs) as u64 * (1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_value_lies_in_its_bucket(value in 0u64..1 << 42) {
            for buckets in [POWERS << 3, POWERS << 5] {
                let i = bucket(value, buckets);
                prop_assert!(floor(i, buckets) <= value);
                prop_assert!(i + 1 == buckets || value < floor(i + 1, buckets));
            }
        }

        #[test]
        fn quantiles_are_within_an_eighth(mut values in prop::collection::vec(0u64..1 << 40, 1..200), q in 0.0f64..=1.0) {
            let shared = Histogram::default();
            let mut own = Histogram::default();
            for v in &values {
                shared.record(*v);
                own.add(*v);
            }
            prop_assert_eq!(shared.counts(), own.counts());
            values.sort_unstable();
            let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let (exact, got) = (values[rank - 1] as f64, own.counts().quantile(q) as f64);
            prop_assert!((got - exact).abs() <= exact / 8.0, "{got} for {exact}");
            let fine = FineHistogram::default();
            values.iter().for_each(|v| fine.record(*v));
            let got = fine.counts().quantile(q) as f64;
            prop_assert!((got - exact).abs() <= exact / 32.0, "{got} for {exact}");
            prop_assert_eq!(own.counts().max(), values[values.len() - 1]);
        }
    }

    #[test]
    fn sums_and_differences() {
        let mut h = Histogram::default();
        h.add(10);
        let before = h.counts();
        h.add(u64::MAX);
        let mut gained = h.counts().since(&before);
        assert_eq!((gained.count(), gained.max()), (1, u64::MAX));
        gained.merge(&before);
        assert_eq!(gained, h.counts());
        let told = FineHistogram::default();
        [7, 1000, 1_000_000].iter().for_each(|v| told.record(*v));
        let heard = FineHistogram::counts_of(told.counts().buckets(), 1_000_000);
        assert_eq!((heard.count(), heard.max()), (3, 1_000_000));
        assert_eq!(heard.quantile(0.5), told.counts().quantile(0.5));
        h.clear();
        assert_eq!((h.counts().count(), h.counts().quantile(0.5), h.counts().mean()), (0, 0, 0.0));
    }
}
