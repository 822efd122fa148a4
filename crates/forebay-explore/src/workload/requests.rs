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

/// The requests of one process, in order. Every process moves `total_size / processes` bytes; where
/// that is not a whole number of requests, the last one is shorter.
#[derive(Clone, Debug)]
pub struct Requests<'a> {
    data: &'a Data,
    seed: u64,
    /// Where this process' piece of the file begins.
    base: u64,
    /// From one slot of its piece to the next, where requests have slots.
    stride: u64,
    /// Bytes it has still to move.
    left: u64,
    /// Requests made.
    made: u64,
    /// Requests in all, where they come in random order.
    slots: u64,
    /// Where the next request begins, where they follow each other.
    at: u64,
}

impl<'a> Requests<'a> {
    /// The requests of process `rank` of `processes`. The same arguments give the same requests.
    pub fn new(data: &'a Data, rank: u32, processes: u32, seed: u64) -> Requests<'a> {
        let (rank64, processes) = (u64::from(rank), u64::from(processes.max(1)));
        let mut share = data.total_size / processes;
        if data.target.direct_io {
            share -= share % 512;
        }
        let largest = data.largest().max(1);
        let smallest = data.sizes.iter().map(|s| s.size).min().unwrap_or(1).max(1);
        let shared = data.target.layout == Layout::Shared;
        let (piece, stride) = match data.spatiality {
            Spatiality::Contiguous => (share, largest),
            Spatiality::Strided => (largest, if shared { processes * largest } else { largest }),
            // Room for all its requests, if all were small.
            Spatiality::Random => (share.div_ceil(smallest).saturating_mul(largest), largest),
        };
        let base = if shared { rank64.saturating_mul(piece) } else { 0 };
        let seed = mix(seed ^ mix(rank64));
        let mut requests = Requests { data, seed, base, stride, left: share, made: 0, slots: 0, at: base };
        if data.spatiality == Spatiality::Random {
            requests.slots = match &data.sizes[..] {
                [only] => share.div_ceil(only.size.max(1)),
                _ => requests.count_mix(),
            };
        }
        requests
    }

    /// How many requests of a mix make up this process' bytes.
    fn count_mix(&self) -> u64 {
        let mut ahead = self.clone();
        while ahead.left > 0 {
            ahead.left = ahead.left.saturating_sub(ahead.size().max(1));
            ahead.made += 1;
        }
        ahead.made
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
        let len = self.size().min(self.left);
        if len == 0 {
            return None;
        }
        let offset = match self.data.spatiality {
            Spatiality::Contiguous => self.at,
            Spatiality::Strided => self.base.saturating_add(self.made.saturating_mul(self.stride)),
            Spatiality::Random => {
                self.base.saturating_add(permute(self.made, self.slots, self.seed) * self.stride)
            }
        };
        self.left -= len;
        self.at = self.at.saturating_add(len);
        self.made += 1;
        Some(Request { op: self.op(offset), offset, len })
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
        let d = data(Layout::FilePerProcess, Spatiality::Contiguous, 60, size, 0.0);
        assert_eq!(offsets(&d, 1, 2), [0, 10, 20]);
    }

    fn layouts() -> impl Strategy<Value = (Layout, Spatiality)> {
        prop_oneof![
            Just((Layout::Shared, Spatiality::Contiguous)),
            Just((Layout::Shared, Spatiality::Strided)),
            Just((Layout::Shared, Spatiality::Random)),
            Just((Layout::FilePerProcess, Spatiality::Contiguous)),
            Just((Layout::FilePerProcess, Spatiality::Random)),
        ]
    }

    proptest! {
        /// Every process moves its share, no byte twice; contiguous requests leave none out.
        #[test]
        fn requests_tile_the_file(
            (layout, spatiality) in layouts(),
            processes in 1..6_u32,
            share in 1..400_u64,
            sizes in prop::collection::vec((1..50_u64, 0.1..5.0), 1..4),
            seed: u64,
        ) {
            let d = data(layout, spatiality, share * u64::from(processes), &sizes, 0.0);
            let mut shared = std::collections::HashSet::new();
            for rank in 0..processes {
                let mut own = std::collections::HashSet::new();
                let map = if layout == Layout::Shared { &mut shared } else { &mut own };
                let mut moved = 0;
                for r in Requests::new(&d, rank, processes, seed) {
                    moved += r.len;
                    for b in r.offset..r.offset + r.len {
                        prop_assert!(map.insert(b), "byte {b} twice");
                    }
                }
                prop_assert_eq!(moved, share);
                if spatiality == Spatiality::Contiguous && layout == Layout::FilePerProcess {
                    prop_assert!((0..share).all(|b| own.contains(&b)));
                }
            }
            if spatiality == Spatiality::Contiguous && layout == Layout::Shared {
                prop_assert!((0..d.total_size).all(|b| shared.contains(&b)));
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
        let d =
            data(Layout::FilePerProcess, Spatiality::Random, 10_000 * 3200, &[(4096, 3.0), (512, 1.0)], 0.7);
        let all: Vec<Request> = Requests::new(&d, 0, 1, 9).collect();
        let share = |f: fn(&Request) -> bool| all.iter().filter(|r| f(r)).count() as f64 / all.len() as f64;
        assert!((share(|r| r.op == OpKind::Read) - 0.7).abs() < 0.02);
        assert!((share(|r| r.len == 4096) - 0.75).abs() < 0.02);
        let in_order = all.windows(2).filter(|w| w[1].offset == w[0].offset + 4096).count();
        assert!(in_order < 50, "{in_order}");
    }
}
