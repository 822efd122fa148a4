//! The sequence of requests of one process in a data step.

use crate::scenario::{Data, Layout, Spatiality};
use forebay_types::OpKind;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Read or write.
    pub op: OpKind,
    /// Where in the process' file.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// The requests of one process, in order. A process moves `total_size / processes` bytes, less what
/// does not fill a request.
#[derive(Clone, Debug)]
pub struct Requests<'a> {
    data: &'a Data,
    seed: u64,
    /// Where this process' piece of the file begins.
    base: u64,
    /// From one of its requests to the next, with one size only.
    stride: u64,
    /// Bytes it may still use.
    left: u64,
    /// Requests made.
    made: u64,
    /// Requests to make, with one size only.
    slots: u64,
    /// Where the next request of a mix begins.
    at: u64,
}

impl<'a> Requests<'a> {
    /// The requests of process `rank` of `processes`. The same arguments give the same requests.
    pub fn new(data: &'a Data, rank: u32, processes: u32, seed: u64) -> Requests<'a> {
        let (rank64, processes) = (u64::from(rank), u64::from(processes.max(1)));
        let share = data.total_size / processes;
        let largest = data.largest().max(1);
        let slots = share / largest;
        let shared = data.target.layout == Layout::Shared;
        let (base, stride) = match data.spatiality {
            Spatiality::Strided if shared => (rank64 * largest, processes * largest),
            _ if shared => (rank64 * slots * largest, largest),
            _ => (0, largest),
        };
        let seed = mix(seed ^ mix(rank64));
        let left = if data.sizes.len() > 1 { slots * largest } else { 0 };
        Requests { data, seed, base, stride, left, made: 0, slots, at: base }
    }

    fn size(&self) -> u64 {
        let [only] = &self.data.sizes[..] else {
            let total: f64 = self.data.sizes.iter().map(|s| s.weight).sum();
            let mut point = unit(mix(self.seed.wrapping_add(self.made.wrapping_mul(3)))) * total;
            for s in &self.data.sizes {
                if point < s.weight {
                    return s.size;
                }
                point -= s.weight;
            }
            return self.data.sizes.last().map_or(0, |s| s.size);
        };
        only.size
    }

    fn op(&self, offset: u64) -> OpKind {
        let share = self.data.read_share;
        if share <= 0.0 {
            OpKind::Write
        } else if share >= 1.0 || unit(mix(self.seed ^ mix(offset.wrapping_add(0x5eed)))) < share {
            OpKind::Read
        } else {
            OpKind::Write
        }
    }
}

impl Iterator for Requests<'_> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if self.data.sizes.len() == 1 || self.data.spatiality != Spatiality::Contiguous {
            // One slot of the largest size per request.
            if self.made == self.slots {
                return None;
            }
            let slot = match self.data.spatiality {
                Spatiality::Random => permute(self.made, self.slots, self.seed),
                _ => self.made,
            };
            let offset = self.base + slot * self.stride;
            let request = Request { op: self.op(offset), offset, len: self.size() };
            self.made += 1;
            return Some(request);
        }
        let len = self.size().min(self.left);
        if len == 0 {
            return None;
        }
        let request = Request { op: self.op(self.at), offset: self.at, len };
        self.left -= len;
        self.at += len;
        self.made += 1;
        Some(request)
    }
}

/// Steele, Lea and Flood's finaliser (SplitMix64): a number that looks random.
pub(super) fn mix(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A random number as one in [0, 1).
fn unit(x: u64) -> f64 {
    (x >> 11) as f64 / (1_u64 << 53) as f64
}

/// The place of `i` in a random order of `0..n`, without keeping the order: a Feistel network on the
/// next even number of bits, walked until the result is below `n`.
fn permute(i: u64, n: u64, seed: u64) -> u64 {
    if n < 2 {
        return 0;
    }
    let half = (64 - (n - 1).leading_zeros()).div_ceil(2).max(1);
    let mask = (1_u64 << half) - 1;
    let mut x = i;
    loop {
        let (mut left, mut right) = (x >> half, x & mask);
        for round in 0..4_u64 {
            (left, right) = (right, left ^ (mix(seed ^ (right << 3) ^ round) & mask));
        }
        x = (left << half) | right;
        if x < n {
            return x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Fsync, SizeShare, Target};
    use proptest::prelude::*;
    use std::time::Duration;

    fn data(
        layout: Layout,
        spatiality: Spatiality,
        total_size: u64,
        sizes: &[(u64, f64)],
        read_share: f64,
    ) -> Data {
        Data {
            target: Target { path: "f".into(), layout, direct_io: false },
            read_share,
            spatiality,
            total_size,
            sizes: sizes.iter().map(|&(size, weight)| SizeShare { size, weight }).collect(),
            think: Duration::ZERO,
            stone_wall: Duration::ZERO,
            validation: false,
            fsync: Fsync::Never,
        }
    }

    fn offsets(d: &Data, rank: u32, processes: u32) -> Vec<u64> {
        Requests::new(d, rank, processes, 1).map(|r| r.offset).collect()
    }

    /// FORGE's arithmetic, which it has from MPI-IO Test.
    #[test]
    fn offsets_are_forges() {
        let size = &[(10, 1.0)];
        let d = data(Layout::Shared, Spatiality::Contiguous, 60, size, 0.0);
        assert_eq!(offsets(&d, 1, 2), [30, 40, 50]);
        let d = data(Layout::Shared, Spatiality::Strided, 60, size, 0.0);
        assert_eq!(offsets(&d, 1, 2), [10, 30, 50]);
        let d = data(Layout::Individual, Spatiality::Contiguous, 60, size, 0.0);
        assert_eq!(offsets(&d, 1, 2), [0, 10, 20]);
    }

    fn layouts() -> impl Strategy<Value = (Layout, Spatiality)> {
        prop_oneof![
            Just((Layout::Shared, Spatiality::Contiguous)),
            Just((Layout::Shared, Spatiality::Strided)),
            Just((Layout::Shared, Spatiality::Random)),
            Just((Layout::Individual, Spatiality::Contiguous)),
            Just((Layout::Individual, Spatiality::Random)),
        ]
    }

    proptest! {
        /// No byte twice, none outside; with one size, none left out.
        #[test]
        fn requests_tile_the_file(
            (layout, spatiality) in layouts(),
            processes in 1..6_u32,
            slots in 1..40_u64,
            sizes in prop::collection::vec((1..50_u64, 0.1..5.0), 1..4),
            seed: u64,
        ) {
            let largest = sizes.iter().map(|s| s.0).max().unwrap();
            let d = data(layout, spatiality, largest * slots * u64::from(processes), &sizes, 0.0);
            let end = if layout == Layout::Shared { d.total_size } else { d.total_size / u64::from(processes) };
            let mut shared = vec![0_u8; usize::try_from(end).unwrap()];
            for rank in 0..processes {
                let mut own = vec![0_u8; shared.len()];
                let map = if layout == Layout::Shared { &mut shared } else { &mut own };
                for r in Requests::new(&d, rank, processes, seed) {
                    for b in &mut map[r.offset as usize..(r.offset + r.len) as usize] {
                        *b += 1;
                        prop_assert_eq!(*b, 1);
                    }
                }
                if sizes.len() == 1 && layout == Layout::Individual {
                    prop_assert!(own.iter().all(|b| *b == 1));
                }
            }
            if sizes.len() == 1 && layout == Layout::Shared {
                prop_assert!(shared.iter().all(|b| *b == 1));
            }
        }

        #[test]
        fn permutations_are_complete(n in 1..3000_u64, seed: u64) {
            let mut seen: Vec<u64> = (0..n).map(|i| permute(i, n, seed)).collect();
            seen.sort_unstable();
            prop_assert!(seen.into_iter().eq(0..n));
        }
    }

    #[test]
    fn mixes_have_about_their_shares() {
        let d = data(Layout::Individual, Spatiality::Random, 10_000 * 4096, &[(4096, 3.0), (512, 1.0)], 0.7);
        let all: Vec<Request> = Requests::new(&d, 0, 1, 9).collect();
        assert_eq!(all.len(), 10_000);
        let share = |f: fn(&Request) -> bool| all.iter().filter(|r| f(r)).count() as f64 / 10_000.0;
        assert!((share(|r| r.op == OpKind::Read) - 0.7).abs() < 0.02);
        assert!((share(|r| r.len == 4096) - 0.75).abs() < 0.02);
        let in_order = all.windows(2).filter(|w| w[1].offset == w[0].offset + 4096).count();
        assert!(in_order < 50, "{in_order}");
    }
}
