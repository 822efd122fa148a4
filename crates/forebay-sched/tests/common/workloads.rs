//! The jobs of the experiments.

use super::world::{Act, Io, Process};
use forebay_types::{Nanos, OpKind};

const REQUEST: u64 = 32 << 10;

/// How the processes of the TWINS experiment share their data.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pattern {
    SharedContiguous,
    SharedStrided,
    FilePerProcess,
}

/// 32 processes on 4 I/O nodes, each with `count` requests of 32 KiB, one at a time.
pub(crate) fn readers(pattern: Pattern, count: u64) -> Vec<Process> {
    (0..32u64)
        .map(|rank| {
            let mut step = 0;
            let next = move || {
                let (file, block) = match pattern {
                    Pattern::SharedContiguous => (1, rank * count + step),
                    Pattern::SharedStrided => (1, step * 32 + rank),
                    Pattern::FilePerProcess => (rank, step),
                };
                step += 1;
                let io = Io { op: OpKind::Read, file, offset: block * REQUEST, len: REQUEST };
                (step <= count).then(|| Act::Io(vec![io]))
            };
            Process { node: (rank / 8) as usize, flow: 0, next: Box::new(next) }
        })
        .collect()
}

/// Flow 0: 8 processes that write 32 requests of 320 B to 32 KiB, one at a time, then compute 100 ms.
pub(crate) fn small_bursts() -> Vec<Process> {
    (0..8u64)
        .map(|rank| {
            let mut step = 0u64;
            let next = move || {
                step += 1;
                if step.is_multiple_of(33) {
                    return Some(Act::Think(Nanos::from_millis(100)));
                }
                let len = [320, 1024, 4096, 32 << 10][(step % 4) as usize];
                let offset = ((rank << 20) + step) << 15;
                Some(Act::Io(vec![Io { op: OpKind::Write, file: 1, offset, len }]))
            };
            Process { node: 0, flow: 0, next: Box::new(next) }
        })
        .collect()
}

/// Flow 1: 16 processes that write 32 MiB after 32 MiB, each in pieces of `piece` bytes at once.
pub(crate) fn large_writes(piece: u64) -> Vec<Process> {
    (0..16u64)
        .map(|rank| {
            let mut step = 0u64;
            let next = move || {
                let base = step * (32 << 20);
                step += 1;
                let io = |i| Io { op: OpKind::Write, file: 100 + rank, offset: base + i * piece, len: piece };
                Some(Act::Io((0..(32 << 20) / piece).map(io).collect()))
            };
            Process { node: 0, flow: 1, next: Box::new(next) }
        })
        .collect()
}

/// Flows 0 and 1: 32 processes each that do nothing but metadata operations.
pub(crate) fn metadata() -> Vec<Process> {
    (0..64u64)
        .map(|p| {
            let next = move || Some(Act::Io(vec![Io { op: OpKind::Metadata, file: p, offset: 0, len: 0 }]));
            Process { node: 0, flow: (p % 2) as u32, next: Box::new(next) }
        })
        .collect()
}
