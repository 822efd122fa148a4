//! What the processes of a job did, counted together in one shared file: operations, bytes, errors
//! and latencies as the application saw them. A process that is killed loses nothing of it.

use forebay_types::FineHistogram;
use forebay_wire::message::Meta;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

const OPS: usize = FIRST_META + Meta::NAMES.len();
const FIRST_META: usize = 5;

/// What the layer does for itself, and no program asks for: told as one.
pub const HOUSEKEEPING: &str = "housekeeping";
const OWN: [&str; 4] = ["control", "adopt", "setflags", "share"];

/// An operation, as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpIndex(usize);

impl OpIndex {
    /// Reads.
    pub(crate) const READ: OpIndex = OpIndex(0);
    /// Writes.
    pub(crate) const WRITE: OpIndex = OpIndex(1);
    /// Appends.
    pub(crate) const APPEND: OpIndex = OpIndex(2);
    /// Control of the node.
    pub(crate) const CONTROL: OpIndex = OpIndex(3);
    /// Writes that were sent to another node though the first one, which is gone, may have carried them
    /// out: among the writes, too.
    pub(crate) const REPEATED: OpIndex = OpIndex(4);

    /// A metadata operation.
    pub(crate) fn meta(op: &Meta<'_>) -> OpIndex {
        OpIndex(FIRST_META + op.index())
    }

    fn name(self) -> &'static str {
        let name = match self.0 {
            0 => "read",
            1 => "write",
            2 => "append",
            3 => "control",
            4 => "repeated",
            n => Meta::NAMES[n - FIRST_META],
        };
        if OWN.contains(&name) { HOUSEKEEPING } else { name }
    }
}

#[derive(Debug)]
#[repr(C)]
struct Op {
    errors: AtomicU64,
    bytes: AtomicU64,
    latency: FineHistogram,
}

/// The counters of a job on this machine, in memory shared by its processes.
#[derive(Debug)]
#[repr(C)]
pub struct Counters {
    ops: [Op; OPS],
    /// Programs that were started as another user, who can reach no file of the run to say so.
    as_another: AtomicU64,
}

/// One operation's totals.
#[derive(Clone, Debug, PartialEq)]
pub struct OpTotals {
    /// Its name.
    pub name: &'static str,
    /// How often.
    pub count: u64,
    /// How many failed.
    pub errors: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Latency percentiles in nanoseconds: 50, 95 and 99, to 3 %, and the largest, exactly.
    pub latency_ns: [u64; 4],
}

impl Counters {
    /// A program is started as another user, without the library.
    pub fn count_as_another(&self) {
        self.as_another.fetch_add(1, Ordering::Relaxed);
    }

    /// How many were.
    pub fn as_another(&self) -> u64 {
        self.as_another.load(Ordering::Relaxed)
    }

    /// Makes the file, all zero.
    pub fn create(path: &Path) -> std::io::Result<&'static Counters> {
        let file = std::fs::File::options().read(true).write(true).create_new(true).open(path)?;
        file.set_len(size_of::<Counters>() as u64)?;
        Counters::map(&file)
    }

    /// Opens the file, and makes it if no process has yet.
    pub fn open_or_create(path: &Path) -> std::io::Result<&'static Counters> {
        let file = std::fs::File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        // Whoever else does it at the same time makes it as long as this.
        crate::sys::lengthen(&file, size_of::<Counters>() as u64)?;
        Counters::map(&file)
    }

    /// Opens the file that another process made.
    pub fn open(path: &Path) -> std::io::Result<&'static Counters> {
        let fd = rustix::fs::open(
            path,
            rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )?;
        if (rustix::fs::fstat(&fd)?.st_size as u64) < size_of::<Counters>() as u64 {
            return Err(std::io::Error::from_raw_os_error(libc::EINVAL));
        }
        Counters::map(&fd)
    }

    fn map(fd: &impl rustix::fd::AsFd) -> std::io::Result<&'static Counters> {
        // SAFETY: it is made of atomics, and the file is as long.
        unsafe { crate::sys::map_shared(fd) }
    }

    /// An operation ended after `nanos`, moving `bytes`.
    pub(crate) fn add(&self, op: OpIndex, nanos: u64, bytes: u64, failed: bool) {
        let o = &self.ops[op.0];
        if bytes > 0 {
            o.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        if failed {
            o.errors.fetch_add(1, Ordering::Relaxed);
        }
        o.latency.record(nanos);
    }

    /// One that was counted as done was not, or will be counted as that.
    pub(crate) fn fail(&self, op: OpIndex) {
        self.ops[op.0].errors.fetch_add(1, Ordering::Relaxed);
    }

    /// A number that changes with every write or truncation that may have been carried out twice: its node was gone,
    /// and nobody could tell.
    pub fn repeated(&self) -> u64 {
        let o = &self.ops[OpIndex::REPEATED.0];
        o.bytes.load(Ordering::Relaxed) + o.errors.load(Ordering::Relaxed)
    }

    /// The totals of every operation that happened, those of several files together.
    pub fn totals(files: &[&Counters]) -> Vec<OpTotals> {
        let mut all: Vec<OpTotals> = Vec::new();
        let (own, others): (Vec<usize>, Vec<usize>) =
            (0..OPS).partition(|i| OpIndex(*i).name() == HOUSEKEEPING);
        for group in others.chunks(1).chain([&own[..]]) {
            let ops = || group.iter().flat_map(|i| files.iter().map(|c| &c.ops[*i]));
            let sum = |of: fn(&Op) -> &AtomicU64| ops().map(|o| of(o).load(Ordering::Relaxed)).sum::<u64>();
            let Some(latency) = ops().map(|o| o.latency.counts()).reduce(|mut all, one| {
                all.merge(&one);
                all
            }) else {
                continue;
            };
            let count = latency.count();
            if count == 0 {
                continue;
            }
            let [p50, p95, p99] = [0.5, 0.95, 0.99].map(|q| latency.quantile(q));
            all.push(OpTotals {
                name: OpIndex(group[0]).name(),
                count,
                errors: sum(|o| &o.errors),
                bytes: sum(|o| &o.bytes),
                latency_ns: [p50, p95, p99, latency.max()],
            });
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_asked_for_is_told_as_one() {
        let dir = tempfile::tempdir().unwrap();
        let counters = Counters::create(&dir.path().join("counters")).unwrap();
        let meta = |name: &str| OpIndex(FIRST_META + Meta::NAMES.iter().position(|n| *n == name).unwrap());
        for name in ["adopt", "setflags", "share", "stat"] {
            counters.add(meta(name), 1000, 0, name == "share");
        }
        let totals = Counters::totals(&[counters]);
        let told: Vec<_> = totals.iter().map(|t| (t.name, t.count, t.errors)).collect();
        assert_eq!(told, [("stat", 1, 0), (HOUSEKEEPING, 3, 1)]);
    }

    #[test]
    fn the_largest_is_the_largest_and_nothing_is_above_it() {
        let dir = tempfile::tempdir().unwrap();
        let counters = Counters::create(&dir.path().join("counters")).unwrap();
        for micros in [10u64, 10, 10, 11, 9, 10, 10, 10, 10, 1_234_567] {
            counters.add(OpIndex::READ, micros * 1000, 1, false);
        }
        counters.add(OpIndex::WRITE, 1001, 1, false);
        let totals = Counters::totals(&[counters]);
        let [p50, p95, p99, max] = totals[0].latency_ns;
        assert_eq!(max, 1_234_567_000);
        assert!(p50.abs_diff(10_000) <= 10_000 / 32, "{p50}");
        assert!(p95 <= max && p99 <= max && p99 > 1_190_000_000, "{p95} {p99}");
        assert_eq!(totals[1].latency_ns, [1001; 4], "one value is all there is");
    }
}
