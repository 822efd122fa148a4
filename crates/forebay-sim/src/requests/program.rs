//! What the processes do: one [`Program`] a process, asked for its next call when the last one is
//! answered.

use forebay_types::{FileId, Nanos, OpKind, Pattern};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// One call of a process; it waits for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// What it does.
    pub op: OpKind,
    /// To which file.
    pub file: FileId,
    /// Where.
    pub offset: u64,
    /// How many bytes.
    pub len: u64,
}

/// What a process does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// I/O.
    Call(Call),
    /// Something else for so long.
    Compute(Nanos),
    /// Nothing any more.
    End,
}

/// A process.
pub trait Program: Send {
    /// What it does at `now`. `rng` is the process's own.
    fn next(&mut self, now: Nanos, rng: &mut ChaCha8Rng) -> Next;
}

/// So many requests of one size, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// How they lie.
    pub pattern: Pattern,
    /// Reads or writes.
    pub op: OpKind,
    /// Bytes of a request.
    pub size: u64,
    /// How many.
    pub requests: u64,
    /// This process's number.
    pub rank: u64,
    /// Of so many.
    pub processes: u64,
    /// The shared file, or the first of the processes' own.
    pub file: FileId,
    /// How many it has made.
    pub made: u64,
}

impl Stream {
    /// The `rank`-th of so many processes.
    pub fn new(
        pattern: Pattern,
        op: OpKind,
        size: u64,
        requests: u64,
        rank: u64,
        processes: u64,
        file: u64,
    ) -> Stream {
        Stream { pattern, op, size, requests, rank, processes, file: FileId(file), made: 0 }
    }
}

impl Program for Stream {
    fn next(&mut self, _: Nanos, rng: &mut ChaCha8Rng) -> Next {
        if self.made >= self.requests {
            return Next::End;
        }
        let block = match self.pattern {
            Pattern::SharedContiguous => self.rank * self.requests + self.made,
            Pattern::SharedStrided => self.made * self.processes + self.rank,
            Pattern::FppContiguous => self.made,
            Pattern::Random | Pattern::Unknown => {
                self.rank * self.requests + rng.random_range(0..self.requests)
            }
        };
        let file =
            if self.pattern == Pattern::FppContiguous { FileId(self.file.0 + self.rank) } else { self.file };
        self.made += 1;
        Next::Call(Call { op: self.op, file, offset: block * self.size, len: self.size })
    }
}

/// The same calls over and over: so many in a row, then a pause.
#[derive(Clone, Debug)]
pub struct Bursts {
    /// Reads, writes or metadata.
    pub op: OpKind,
    /// The file.
    pub file: FileId,
    /// Sizes, in turn.
    pub sizes: Vec<u64>,
    /// Where the process's part of the file begins.
    pub base: u64,
    /// From one request's start to the next's.
    pub stride: u64,
    /// Requests after which it starts at `base` again.
    pub wrap: u64,
    /// Calls in a row; 0 for no pauses.
    pub burst: u64,
    /// Between bursts.
    pub pause: Nanos,
    /// Calls made so far, pauses counted.
    pub step: u64,
}

impl Program for Bursts {
    fn next(&mut self, _: Nanos, rng: &mut ChaCha8Rng) -> Next {
        self.step += 1;
        if self.burst > 0 && self.step.is_multiple_of(self.burst + 1) {
            // Processes that began together do not stay together on a real machine.
            let jitter = rng.random_range(0..=self.pause.0 / 50);
            return Next::Compute(self.pause + Nanos(jitter));
        }
        let len = self.sizes[(self.step % self.sizes.len() as u64) as usize];
        let offset = self.base + self.step % self.wrap.max(1) * self.stride;
        Next::Call(Call { op: self.op, file: self.file, offset, len })
    }
}

/// A write and a read of a file of its own, again and again at a pace; who was held up does not catch up.
#[derive(Clone, Copy, Debug)]
pub struct Paced {
    /// The file.
    pub file: FileId,
    /// Bytes of a request.
    pub size: u64,
    /// Blocks of the file.
    pub blocks: u64,
    /// From the beginning of a round to that of the next.
    pub pace: Nanos,
    /// When this round was to begin.
    pub began: Nanos,
    /// Calls made so far, pauses counted.
    pub step: u64,
}

impl Program for Paced {
    fn next(&mut self, now: Nanos, _: &mut ChaCha8Rng) -> Next {
        let (round, part) = (self.step / 3, self.step % 3);
        self.step += 1;
        let call = |op, block: u64| {
            let offset = block % self.blocks.max(1) * self.size;
            Next::Call(Call { op, file: self.file, offset, len: self.size })
        };
        match part {
            0 => call(OpKind::Write, round * 7),
            1 => call(OpKind::Read, round * 13),
            _ => {
                self.began = (self.began + self.pace).max(now);
                Next::Compute(self.began.since(now))
            }
        }
    }
}

/// A program that begins late.
pub struct Delayed<P> {
    /// How late.
    pub delay: Option<Nanos>,
    /// What it then does.
    pub then: P,
}

impl<P: Program> Program for Delayed<P> {
    fn next(&mut self, now: Nanos, rng: &mut ChaCha8Rng) -> Next {
        match self.delay.take() {
            Some(delay) if delay > Nanos::ZERO => Next::Compute(delay),
            _ => self.then.next(now, rng),
        }
    }
}

/// One program after the other.
pub struct Sequence(pub std::collections::VecDeque<Box<dyn Program>>);

impl Program for Sequence {
    fn next(&mut self, now: Nanos, rng: &mut ChaCha8Rng) -> Next {
        while let Some(first) = self.0.front_mut() {
            match first.next(now, rng) {
                Next::End => self.0.pop_front(),
                next => return next,
            };
        }
        Next::End
    }
}
