//! Which compute nodes a job gets, and which I/O node each of them belongs to by default.

use forebay_types::NodeId;
use std::collections::BTreeMap;

/// A stretch of compute nodes.
pub(super) type Stretch = (u32, u32);

/// The free compute nodes: from a node on, so many.
#[derive(Debug)]
pub(super) struct ComputeNodes {
    free: BTreeMap<u32, u32>,
    left: u32,
}

impl ComputeNodes {
    pub(super) fn new(count: u32) -> ComputeNodes {
        ComputeNodes { free: BTreeMap::from([(0, count)]), left: count }
    }

    pub(super) fn left(&self) -> u32 {
        self.left
    }

    /// Takes nodes: one stretch that fits best if there is one, or else the first free ones.
    pub(super) fn take(&mut self, count: u32) -> Option<Vec<Stretch>> {
        if count > self.left {
            return None;
        }
        self.left -= count;
        let fits = self.free.iter().filter(|(_, len)| **len >= count).min_by_key(|(_, len)| **len);
        if let Some((&start, &len)) = fits {
            self.free.remove(&start);
            if len > count {
                self.free.insert(start + count, len - count);
            }
            return Some(vec![(start, count)]);
        }
        let (mut taken, mut missing) = (Vec::new(), count);
        while missing > 0 {
            let (start, len) = self.free.pop_first()?;
            let part = len.min(missing);
            taken.push((start, part));
            missing -= part;
            if part < len {
                self.free.insert(start + part, len - part);
            }
        }
        Some(taken)
    }

    pub(super) fn give_back(&mut self, stretches: &[Stretch]) {
        for &(mut start, mut len) in stretches {
            self.left += len;
            if let Some((&before, &size)) = self.free.range(..start).next_back()
                && before + size == start
            {
                self.free.remove(&before);
                (start, len) = (before, size + len);
            }
            if let Some(size) = self.free.remove(&(start + len)) {
                len += size;
            }
            self.free.insert(start, len);
        }
    }
}

/// A fixed map: groups of so many compute nodes, in turn over so many I/O nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedMap {
    /// Compute nodes of a group.
    pub group: u32,
    /// I/O nodes that the groups go round.
    pub io_nodes: u32,
}

impl FixedMap {
    /// The I/O nodes of these compute nodes, and how many of them each serves.
    pub(super) fn of(&self, stretches: &[Stretch]) -> Vec<(NodeId, u32)> {
        let mut counts: BTreeMap<NodeId, u32> = BTreeMap::new();
        for &(start, len) in stretches {
            let mut at = start;
            while at < start + len {
                let edge = (at / self.group + 1) * self.group;
                let part = edge.min(start + len) - at;
                *counts.entry(NodeId(at / self.group % self.io_nodes.max(1))).or_default() += part;
                at += part;
            }
        }
        counts.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_given_once_and_come_back_whole() {
        let mut nodes = ComputeNodes::new(1000);
        let (a, b, c) = (nodes.take(300).unwrap(), nodes.take(300).unwrap(), nodes.take(300).unwrap());
        assert_eq!((&a[..], &b[..], nodes.left()), (&[(0, 300)][..], &[(300, 300)][..], 100));
        nodes.give_back(&b);
        let scattered = nodes.take(350).unwrap();
        assert_eq!(scattered, [(300, 300), (900, 50)]);
        assert!(nodes.take(51).is_none());
        for stretch in [a, c, scattered] {
            nodes.give_back(&stretch);
        }
        assert_eq!((nodes.left(), nodes.take(1000).unwrap()), (1000, vec![(0, 1000)]));
    }

    #[test]
    fn a_map_counts_the_compute_nodes_of_every_io_node() {
        let map = FixedMap { group: 512, io_nodes: 80 };
        assert_eq!(map.of(&[(500, 24), (1024, 512)]), [(NodeId(0), 12), (NodeId(1), 12), (NodeId(2), 512)]);
        let round = FixedMap { group: 32, io_nodes: 3 };
        assert_eq!(round.of(&[(0, 128)]), [(NodeId(0), 64), (NodeId(1), 32), (NodeId(2), 32)]);
    }
}
