//! What the processes of an experiment do: one access pattern, over and over, until told to stop.

use super::testbed::{open, processes};
use anyhow::{Result, bail};
use forebay_client::Client;
use forebay_types::{OpKind, Pattern};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How many requests a process makes before it begins anew.
const PASS: u64 = 512;

/// An access pattern at work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Workload {
    /// What an I/O node should take it for.
    pub(super) pattern: Pattern,
    /// Reads or writes.
    pub(super) op: OpKind,
    /// Bytes of a request.
    pub(super) request: usize,
    /// Processes.
    pub(super) processes: usize,
    /// Pause of a process after each request.
    pub(super) pause: Duration,
}

impl Workload {
    /// Reads and writes of 32 and 256 KiB, a file each and one shared file contiguously and strided.
    pub(super) fn twelve(processes: usize) -> Vec<Workload> {
        let mut all = Vec::new();
        for request in [32 << 10, 256 << 10] {
            for op in [OpKind::Write, OpKind::Read] {
                for pattern in [Pattern::SharedContiguous, Pattern::SharedStrided, Pattern::FppContiguous] {
                    all.push(Workload { pattern, op, request, processes, pause: Duration::ZERO });
                }
            }
        }
        all
    }

    /// `write` or `read`.
    pub(super) fn operation(&self) -> &'static str {
        if self.op == OpKind::Write { "write" } else { "read" }
    }

    /// In words.
    pub(super) fn name(&self) -> String {
        format!("{} {} {} KiB", self.operation(), self.pattern, self.request >> 10)
    }

    /// Where a process' next request goes: which file, and where in it.
    fn place(&self, rank: usize, step: u64) -> (String, u64) {
        let (rank64, step) = (rank as u64, step % PASS);
        let block = match self.pattern {
            Pattern::SharedContiguous => rank64 * PASS + step,
            Pattern::SharedStrided => step * self.processes as u64 + rank64,
            Pattern::Random => rank64 * PASS + scatter(step + rank64 * 77),
            Pattern::FppContiguous | Pattern::Unknown => step,
        };
        let file =
            if self.pattern == Pattern::FppContiguous { format!("own-{rank}") } else { "shared".into() };
        (file, block * self.request as u64)
    }

    /// Makes the files long enough to read from.
    pub(super) fn prepare(&self, data: &Path) -> Result<()> {
        let own = PASS * self.request as u64;
        for rank in 0..self.processes {
            let (name, _) = self.place(rank, 0);
            let shared = name == "shared";
            let file = std::fs::File::options().create(true).append(true).open(data.join(&name))?;
            let length = if shared { own * self.processes as u64 } else { own };
            if file.metadata()?.len() < length {
                file.set_len(length)?;
            }
        }
        Ok(())
    }

    /// Works until `stop`; `connect` gives a process its client. What was moved is added to `moved`
    /// as it goes.
    pub(super) fn run(
        &self,
        connect: impl Fn(usize) -> Result<Client> + Sync,
        stop: &AtomicBool,
        moved: &AtomicU64,
    ) -> Result<()> {
        processes(self.processes, |rank| {
            let client = connect(rank)?;
            let file = open(&client, &self.place(rank, 0).0)?;
            let mut buffer = vec![7u8; self.request];
            let mut step = 0;
            while !stop.load(Relaxed) {
                let (_, offset) = self.place(rank, step);
                let n = match self.op {
                    OpKind::Write => client.pwrite(&file, &buffer, offset)?,
                    _ => client.pread(&file, &mut buffer, offset)?,
                };
                if n != self.request {
                    bail!("process {rank}: {n} of {} bytes moved at {offset}", self.request);
                }
                moved.fetch_add(n as u64, Relaxed);
                step += 1;
                if !self.pause.is_zero() {
                    std::thread::sleep(self.pause);
                }
            }
            client.close(&file)?;
            client.leave();
            Ok(())
        })?;
        Ok(())
    }

    /// The same for `span`; bytes moved.
    pub(super) fn run_for(
        &self,
        connect: impl Fn(usize) -> Result<Client> + Sync,
        span: Duration,
    ) -> Result<u64> {
        let (stop, moved) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|s| {
            s.spawn(|| {
                std::thread::sleep(span);
                stop.store(true, Relaxed);
            });
            self.run(connect, &stop, &moved)
        })?;
        Ok(moved.into_inner())
    }
}

/// A block of a pass, each once, in no order: odd factors and shifts that can be undone.
fn scatter(step: u64) -> u64 {
    let x = step * 205 % PASS;
    let x = (x ^ (x >> 4)) * 333 % PASS;
    x ^ (x >> 5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_pattern_meets_its_blocks_once_a_pass() {
        for pattern in
            [Pattern::FppContiguous, Pattern::SharedContiguous, Pattern::SharedStrided, Pattern::Random]
        {
            let w =
                Workload { pattern, op: OpKind::Write, request: 4096, processes: 3, pause: Duration::ZERO };
            let places: BTreeSet<(String, u64)> =
                (0..3).flat_map(|rank| (0..PASS).map(move |step| w.place(rank, step))).collect();
            assert_eq!(places.len() as u64, 3 * PASS, "{pattern}");
        }
    }
}
