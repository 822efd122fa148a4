//! Distributions of latencies and sizes: logarithmic buckets, eight to a power of two, so that a
//! quantile is right to within an eighth of itself at the cost of a shift and an addition a value.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Buckets to a power of two, as a power of two.
const SUB_BITS: u32 = 3;
const SUBS: u64 = 1 << SUB_BITS;
/// How many buckets there are; values from 2^42 on share the last.
pub const BUCKETS: usize = 40 << SUB_BITS;

/// A histogram that any number of threads, and of processes that map it, add to. It is made of atomic
/// integers alone: every bit pattern is a value of it, and all zero is the empty one.
#[repr(C)]
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
    max: AtomicU64,
}

/// What a [`Histogram`] held at some time, or gained between two times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    buckets: Vec<u64>,
    sum: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            sum: AtomicU64::new(0),
            max: AtomicU64::new(0),
        }
    }
}

impl Clone for Histogram {
    fn clone(&self) -> Histogram {
        Histogram {
            buckets: std::array::from_fn(|i| AtomicU64::new(self.buckets[i].load(Relaxed))),
            sum: AtomicU64::new(self.sum.load(Relaxed)),
            max: AtomicU64::new(self.max.load(Relaxed)),
        }
    }
}

impl Histogram {
    /// One value more.
    #[inline]
    pub fn record(&self, value: u64) {
        self.buckets[bucket(value)].fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
        if value > self.max.load(Relaxed) {
            self.max.fetch_max(value, Relaxed);
        }
    }

    /// One value more, where nobody else can be adding: no atomic operation.
    #[inline]
    pub fn add(&mut self, value: u64) {
        *self.buckets[bucket(value)].get_mut() += 1;
        let sum = self.sum.get_mut();
        *sum = sum.wrapping_add(value);
        let max = self.max.get_mut();
        *max = (*max).max(value);
    }

    /// Empty again.
    pub fn clear(&mut self) {
        *self = Histogram::default();
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
        Counts { buckets: vec![0; BUCKETS], sum: 0, max: 0 }
    }
}

impl Counts {
    /// How many values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
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
    /// than the largest. 0 of nothing.
    pub fn quantile(&self, q: f64) -> u64 {
        self.bucket_of(q).map_or(0, |i| u64::midpoint(floor(i), floor(i + 1) - 1).min(self.max))
    }

    /// The same by the lower edge of the bucket: exact for powers of two, which request sizes mostly are.
    pub fn quantile_floor(&self, q: f64) -> u64 {
        self.bucket_of(q).map_or(0, floor)
    }

    fn bucket_of(&self, q: f64) -> Option<usize> {
        let rank = ((q * self.count() as f64).ceil() as u64).max(1);
        let mut seen = 0;
        self.buckets.iter().position(|n| {
            seen += n;
            seen >= rank
        })
    }

    /// Those of `other` as well.
    pub fn merge(&mut self, other: &Counts) {
        for (sum, n) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += n;
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
        self.buckets.iter().enumerate().filter(|(_, n)| **n > 0).map(|(i, n)| (floor(i), *n))
    }
}

#[inline]
fn bucket(value: u64) -> usize {
    if value < SUBS {
        return value as usize;
    }
    let shift = value.ilog2() - SUB_BITS;
    let index = ((shift as usize + 1) << SUB_BITS) + ((value >> shift) - SUBS) as usize;
    index.min(BUCKETS - 1)
}

/// The smallest value that falls into bucket `index`.
fn floor(index: usize) -> u64 {
    let subs = SUBS as usize;
    if index < subs {
        return index as u64;
    }
    let shift = (index >> SUB_BITS) - 1;
    ((index & (subs - 1)) + subs) as u64 * (1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_value_lies_in_its_bucket(value in 0u64..1 << 42) {
            let i = bucket(value);
            prop_assert!(floor(i) <= value);
            prop_assert!(i + 1 == BUCKETS || value < floor(i + 1));
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
        h.clear();
        assert_eq!((h.counts().count(), h.counts().quantile(0.5), h.counts().mean()), (0, 0, 0.0));
    }
}
