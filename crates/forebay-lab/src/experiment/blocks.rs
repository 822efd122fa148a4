//! Files of stamped blocks that processes write and read in some order: every page of what is read is checked.

use super::gluster::{Caches, Open};
use super::testbed::processes;
use anyhow::{Context, Result, bail};
use forebay_types::OpKind;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// In which order a process goes through its blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Order {
    Contiguous,
    Strided,
    Random,
}

/// How the processes use files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pattern {
    pub(super) shared: bool,
    pub(super) order: Order,
}

impl Pattern {
    pub(super) fn name(self) -> String {
        let files = if self.shared { "shared" } else { "own" };
        format!("{files} {}", format!("{:?}", self.order).to_lowercase())
    }

    /// The block of its file that one of `count` processes uses at a step, of so many steps.
    fn block(self, (rank, count): (usize, usize), step: usize, steps: usize) -> usize {
        let among = match self.order {
            Order::Contiguous => step,
            // Every eighth, then those behind them; of a shared file the processes have a block each in turn.
            Order::Strided if self.shared => return step * count + rank,
            Order::Strided => (step % steps.div_ceil(8)) * 8 + step / steps.div_ceil(8),
            Order::Random => scatter(step, steps),
        };
        if self.shared { rank * steps + among } else { among }
    }

    fn file(self, name: &str, rank: usize) -> String {
        if self.shared { name.to_owned() } else { format!("{name}-{rank}") }
    }
}

/// Each of `steps` (a power of two) once, in no order.
fn scatter(step: usize, steps: usize) -> usize {
    let mixed = step.wrapping_mul(205) % steps;
    ((mixed ^ (mixed >> 2)).wrapping_mul(77)) % steps
}

/// Every page of a block begins with this.
fn stamp(rank_file: usize, block: usize, page: usize) -> [u8; 8] {
    ((rank_file as u64) << 48 | (block as u64) << 16 | page as u64).to_le_bytes()
}

const PAGE: usize = 4096;

/// What all processes do once.
pub(super) struct Work<'a> {
    pub(super) pattern: Pattern,
    pub(super) processes: usize,
    /// Bytes.
    pub(super) request: usize,
    /// Requests of a process: a power of two.
    pub(super) steps: usize,
    /// The file, or what the names of the processes' files begin with.
    pub(super) file: &'a str,
}

impl Work<'_> {
    fn files(&self) -> Vec<String> {
        let count = if self.pattern.shared { 1 } else { self.processes };
        (0..count).map(|rank| self.pattern.file(self.file, rank)).collect()
    }

    pub(super) fn drop_pages(&self, caches: &Caches) -> Result<()> {
        self.files().iter().try_for_each(|f| caches.drop_pages(f))
    }

    pub(super) fn remove(&self, dir: &Path) -> Result<()> {
        let remove =
            |f: &String| std::fs::remove_file(dir.join(f)).with_context(|| format!("cannot remove {f}"));
        self.files().iter().try_for_each(remove)
    }

    /// Bytes that all processes move together, over this time: MB/s.
    pub(super) fn rate(&self, took: Duration) -> f64 {
        (self.processes * self.steps * self.request) as f64 / took.as_secs_f64().max(1e-9) / 1e6
    }

    /// How long it takes from the common start to the last close; what is read is checked. `open` opens a file of this
    /// name for a process.
    pub(super) fn go(
        &self,
        open: &(impl Fn(&str, usize) -> Result<Open> + Sync),
        op: OpKind,
    ) -> Result<Duration> {
        let start = Barrier::new(self.processes);
        let times = processes(self.processes, |rank| {
            let opened = open(&self.pattern.file(self.file, rank), rank);
            // Even one that failed: the others wait for it.
            start.wait();
            let open = opened?;
            let owner = if self.pattern.shared { 0 } else { rank };
            let began = Instant::now();
            let mut buffer = vec![0u8; self.request];
            for step in 0..self.steps {
                let block = self.pattern.block((rank, self.processes), step, self.steps);
                let offset = (block * self.request) as u64;
                let moved = if op == OpKind::Write {
                    for (page, bytes) in buffer.chunks_mut(PAGE).enumerate() {
                        bytes[..8].copy_from_slice(&stamp(owner, block, page));
                    }
                    open.write(&buffer, offset)?
                } else {
                    open.read(&mut buffer, offset)?
                };
                let right = |(page, bytes): (usize, &[u8])| bytes[..8] == stamp(owner, block, page);
                if moved != self.request || !buffer.chunks(PAGE).enumerate().all(right) {
                    bail!(
                        "{}, process {rank}: block {block} is not what was written ({moved} bytes)",
                        self.file
                    );
                }
            }
            open.close()?;
            Ok((began, Instant::now()))
        })?;
        let began = times.iter().map(|t| t.0).min().unwrap_or_else(Instant::now);
        let ended = times.iter().map(|t| t.1).max().unwrap_or(began);
        Ok(ended.duration_since(began))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_pattern_has_every_block_once() {
        for order in [Order::Contiguous, Order::Strided, Order::Random] {
            for (shared, steps, count) in [(true, 8, 8), (false, 16, 8), (true, 64, 16), (false, 64, 4)] {
                let pattern = Pattern { shared, order };
                let of = |rank: usize| (0..steps).map(move |s| (if shared { 0 } else { rank }, s, rank));
                let all: BTreeSet<(usize, usize)> = (0..count)
                    .flat_map(of)
                    .map(|(file, s, rank)| (file, pattern.block((rank, count), s, steps)))
                    .collect();
                assert_eq!(all.len(), count * steps, "{} {steps}", pattern.name());
                assert!(all.iter().all(|(_, b)| *b < count * steps));
            }
        }
    }
}
