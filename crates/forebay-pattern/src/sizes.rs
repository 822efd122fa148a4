//! Request sizes in logarithmic buckets: four to a power of two, so a quantile is right to within a
//! quarter of itself, at the cost of one shift and one increment a request.

/// Sub-buckets to a power of two, as a power of two.
const SUB_BITS: u32 = 2;
const SUBS: usize = 1 << SUB_BITS;
/// Sizes of 2^40 bytes and more share the last bucket.
const MAX_BITS: u32 = 40;
const BUCKETS: usize = ((MAX_BITS - SUB_BITS + 1) as usize) * SUBS + 1;

/// How often each size was seen.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    counts: [u32; BUCKETS],
}

impl Sizes {
    pub(crate) fn new() -> Sizes {
        Sizes { counts: [0; BUCKETS] }
    }

    #[inline]
    pub(crate) fn add(&mut self, size: u64) {
        let count = &mut self.counts[bucket(size)];
        *count = count.saturating_add(1);
    }

    pub(crate) fn clear(&mut self) {
        self.counts = [0; BUCKETS];
    }

    /// The size that `q` (0 to 1) of the requests do not exceed, to within a bucket, kept between
    /// `min` and `max`, which the caller knows exactly. Zero if nothing was seen.
    pub(crate) fn quantile(&self, q: f64, min: u64, max: u64) -> u64 {
        let total: u64 = self.counts.iter().map(|&c| u64::from(c)).sum();
        if total == 0 {
            return 0;
        }
        let rank = ((q * total as f64).ceil() as u64).clamp(1, total);
        let mut seen = 0;
        for (i, &c) in self.counts.iter().enumerate() {
            seen += u64::from(c);
            if seen >= rank {
                return lower_edge(i).clamp(min, max);
            }
        }
        max
    }
}

#[inline]
fn bucket(size: u64) -> usize {
    if size < SUBS as u64 {
        return size as usize;
    }
    let exponent = 63 - size.leading_zeros();
    if exponent >= MAX_BITS {
        return BUCKETS - 1;
    }
    let sub = (size >> (exponent - SUB_BITS)) as usize & (SUBS - 1);
    (exponent - SUB_BITS + 1) as usize * SUBS + sub
}

/// The smallest size that falls into bucket `i`.
fn lower_edge(i: usize) -> u64 {
    if i < SUBS {
        return i as u64;
    }
    let exponent = (i / SUBS) as u32 + SUB_BITS - 1;
    (SUBS as u64 + (i % SUBS) as u64) << (exponent - SUB_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_size_lies_in_its_bucket(size in 0u64..(1 << MAX_BITS)) {
            let i = bucket(size);
            prop_assert!(lower_edge(i) <= size);
            prop_assert!(i + 1 == BUCKETS || size < lower_edge(i + 1));
        }

        #[test]
        fn quantiles_are_within_a_quarter(mut sizes in prop::collection::vec(1u64..1 << 30, 1..200), q in 0.0f64..=1.0) {
            let mut h = Sizes::new();
            sizes.iter().for_each(|&s| h.add(s));
            sizes.sort_unstable();
            let rank = ((q * sizes.len() as f64).ceil() as usize).clamp(1, sizes.len());
            let exact = sizes[rank - 1] as f64;
            let got = h.quantile(q, sizes[0], sizes[sizes.len() - 1]) as f64;
            prop_assert!(got <= exact && got >= exact / 1.25, "{got} for {exact}");
        }
    }

    #[test]
    fn huge_sizes_share_the_last_bucket() {
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!(bucket(1 << MAX_BITS), BUCKETS - 1);
        assert_eq!(lower_edge(BUCKETS - 1), 1 << MAX_BITS);
    }
}
