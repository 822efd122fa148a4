//! From what a log counted to a scenario that does the like.

use super::log::{Log, PosixRecord};
use crate::derived::{ONWARD, parts, scenario};
use crate::scenario::{Data, Fsync, Job, Layout, MAX_PROCESSES, Scenario, Spatiality, Step, Target};
use std::collections::BTreeSet;
use std::time::Duration;

/// A scenario with the log's processes, volumes, request sizes and order: for shared files and for
/// files of single processes, first what was written, then what was read.
pub fn derive(log: &Log, name: &str) -> Result<Scenario, String> {
    let mut jobs: Vec<Job> = Vec::new();
    for (layout, label) in [(Layout::Shared, "shared"), (Layout::FilePerProcess, "own")] {
        let records: Vec<&PosixRecord> =
            log.posix.iter().filter(|r| (r.rank < 0) == (layout == Layout::Shared)).collect();
        for reads in [false, true] {
            let Some(sum) = Sum::of(&records, reads) else { continue };
            let ranks = match layout {
                Layout::Shared => log.processes,
                Layout::FilePerProcess => {
                    let active =
                        records.iter().filter(|r| if reads { r.bytes_read > 0 } else { r.bytes_written > 0 });
                    active.map(|r| r.rank).collect::<BTreeSet<_>>().len() as u64
                }
            };
            // No more processes than requests: each must have one.
            let processes =
                u32::try_from(ranks.min(sum.requests).max(1)).unwrap_or(u32::MAX).min(MAX_PROCESSES);
            let steps = parts(sum.bytes, sum.counts(), u64::from(processes)).into_iter().map(
                |(total_size, sizes)| {
                    Step::Data(Data {
                        target: Target { path: format!("{name}-{label}"), layout, direct_io: false },
                        read_share: f64::from(u8::from(reads)),
                        spatiality: sum.spatiality(layout),
                        total_size,
                        sizes,
                        think: Duration::ZERO,
                        stone_wall: Duration::ZERO,
                        validation: false,
                        fsync: Fsync::Never,
                    })
                },
            );
            match jobs.iter_mut().find(|j| j.processes() == processes) {
                Some(job) => job.steps.extend(steps),
                None => jobs.push(Job {
                    name: format!("ranks{processes}"),
                    compute_nodes: processes,
                    processes_per_node: 1,
                    delay: Duration::ZERO,
                    steps: steps.collect(),
                }),
            }
        }
    }
    if jobs.is_empty() {
        return Err("the log has no POSIX reads or writes in it".into());
    }
    Ok(scenario(name, jobs))
}

/// Upper ends of Darshan's ten size classes.
const CLASSES: [u64; 10] =
    [100, 1 << 10, 10 << 10, 100 << 10, 1 << 20, 4 << 20, 10 << 20, 100 << 20, 1 << 30, u64::MAX];

/// What all records of a kind say together, of reads or of writes.
#[derive(Default)]
struct Sum {
    bytes: u64,
    requests: u64,
    consecutive: u64,
    sequential: u64,
    /// Size and number, where the log knows them.
    known: Vec<(u64, u64)>,
}

impl Sum {
    fn of(records: &[&PosixRecord], reads: bool) -> Option<Sum> {
        let mut sum = Sum::default();
        for r in records {
            let (requests, bytes, consecutive, sequential, mut classes) = if reads {
                (r.reads, r.bytes_read, r.consec_reads, r.seq_reads, r.size_read)
            } else {
                (r.writes, r.bytes_written, r.consec_writes, r.seq_writes, r.size_write)
            };
            sum.requests += requests;
            sum.bytes += bytes;
            sum.consecutive += consecutive;
            sum.sequential += sequential;
            // The commonest sizes are of reads and writes together; the classes tell them apart.
            for (size, count) in r.access {
                let class = CLASSES.iter().position(|end| size <= *end).unwrap_or(9);
                let count = count.min(classes[class]);
                classes[class] -= count;
                if size > 0 && count > 0 {
                    match sum.known.iter_mut().find(|k| k.0 == size) {
                        Some(k) => k.1 += count,
                        None => sum.known.push((size, count)),
                    }
                }
            }
        }
        (sum.bytes > 0 && sum.requests > 0).then_some(sum)
    }

    /// Sizes and how many requests had them: those that are known, and the mean of the others.
    fn counts(&self) -> Vec<(u64, u64)> {
        let known_bytes: u128 = self.known.iter().map(|(s, n)| u128::from(*s) * u128::from(*n)).sum();
        let known_count: u64 = self.known.iter().map(|k| k.1).sum();
        let mean = |bytes: u128, n: u64| u64::try_from(bytes.div_ceil(u128::from(n))).unwrap_or(u64::MAX);
        let rest_count = self.requests.saturating_sub(known_count);
        match u128::from(self.bytes).checked_sub(known_bytes) {
            Some(0) if !self.known.is_empty() => self.known.clone(),
            Some(rest) if rest_count > 0 => {
                let mut all = self.known.clone();
                all.push((mean(rest, rest_count), rest_count));
                all
            }
            // Sizes that reads and writes have in common were counted for the wrong side.
            _ => vec![(mean(self.bytes.into(), self.requests), self.requests)],
        }
    }

    /// Consecutive: each request begins where the one before ended. Sequential: somewhere after it.
    fn spatiality(&self, layout: Layout) -> Spatiality {
        let of = self.requests as f64;
        if self.consecutive as f64 >= 0.5 * of || self.requests <= 2 {
            Spatiality::Contiguous
        } else if self.sequential as f64 >= ONWARD * of {
            // Gaps in a file of one's own come from others' data nowhere: plain order is nearest.
            if layout == Layout::Shared { Spatiality::Strided } else { Spatiality::Contiguous }
        } else {
            Spatiality::Random
        }
    }
}
