//! What a scheduler costs: the time of one enqueue and one dispatch while so many requests wait. The
//! caller brings the clock, and decides what to do with the figures.

use crate::{Request, Scheduler, SchedulerConfig, Site, build};
use forebay_types::stats::median;
use forebay_types::{FileId, FlowId, Nanos, OpKind, RequestId, ServerId};

/// The numbers of waiting requests that are measured.
pub const QUEUED: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];

const SERVERS: u64 = 16;
const STRIPE: u64 = 64 << 10;
/// How many files there are, unless told.
pub const FILES: usize = 256;
/// Requests are drawn in blocks outside of the measured time.
const BLOCK: usize = 16_384;

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// How many requests waited meanwhile.
    pub queued: usize,
    /// Nanoseconds for one request in and out; the median over blocks.
    pub nanos: f64,
    /// The mean number of requests in a batch.
    pub merged: f64,
}

/// A reproducible stream of requests: 64 jobs; files that are each read or written front to back by
/// several processes slightly out of step; mostly 32 KiB, some small, some large, some metadata.
#[derive(Debug)]
pub struct Workload {
    state: u64,
    files: Vec<u64>,
    next: u64,
}

impl Workload {
    /// A workload of so many files.
    pub fn new(files: usize) -> Workload {
        Workload { state: 0x2545_f491_4f6c_dd1d, files: vec![0; files.max(1)], next: 0 }
    }

    /// A number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        ((u128::from(self.state) * u128::from(bound)) >> 64) as u64
    }

    /// The next request, arriving at `now`.
    pub fn request(&mut self, now: Nanos) -> Request {
        let id = self.next;
        self.next += 1;
        let file = self.below(self.files.len() as u64);
        let (op, len) = match self.below(32) {
            0 => (OpKind::Metadata, 0),
            1 => (OpKind::Read, 4 << 10),
            2 => (OpKind::Write, 1 << 20),
            _ if file.is_multiple_of(2) => (OpKind::Write, 32 << 10),
            _ => (OpKind::Read, 32 << 10),
        };
        // Eight processes in step but for the order within a step.
        let block = self.files[file as usize];
        self.files[file as usize] += 1;
        let offset = (block & !7 | (block.wrapping_mul(5) & 7)) * (32 << 10);
        Request {
            id: RequestId(id),
            arrival: now,
            file: FileId(file.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            offset,
            len,
            flow: FlowId((file % 64) as u32),
            server: ServerId((offset / STRIPE % SERVERS) as u32),
            op,
        }
    }
}

/// Measures one scheduler with `queued` requests of `files` files waiting, over at least `rounds`
/// requests.
pub fn measure(
    config: &SchedulerConfig,
    files: usize,
    queued: usize,
    rounds: usize,
    clock: &mut dyn FnMut() -> Nanos,
) -> Cost {
    let mut workload = Workload::new(files);
    let mut bench = Bench {
        scheduler: build(config, Site { node: 0, servers: SERVERS as u32 }),
        now: Nanos::from_secs(1),
    };
    for _ in 0..queued {
        let r = workload.request(bench.now);
        bench.scheduler.enqueue(bench.now, r);
        bench.now = bench.now + Nanos(100);
    }
    let (nanos, merged) = bench.time(&mut workload, rounds, clock);
    Cost { queued, nanos, merged }
}

/// Measures the fast path, in nanoseconds: a request that finds nothing waiting and goes at once.
pub fn lone(config: &SchedulerConfig, rounds: usize, clock: &mut dyn FnMut() -> Nanos) -> f64 {
    // One data server: its window is always open.
    let site = Site { node: 0, servers: 1 };
    let mut bench = Bench { scheduler: build(config, site), now: Nanos::from_secs(1) };
    bench.time(&mut Workload::new(FILES), rounds, clock).0
}

struct Bench {
    scheduler: Box<dyn Scheduler>,
    now: Nanos,
}

impl Bench {
    /// The median over blocks of the time for one request, and the mean size of a batch.
    fn time(
        &mut self,
        workload: &mut Workload,
        rounds: usize,
        clock: &mut dyn FnMut() -> Nanos,
    ) -> (f64, f64) {
        let (mut block, mut times) = (Vec::with_capacity(BLOCK), Vec::new());
        let (mut batches, mut served) = (0, 0);
        while served < rounds.max(1) {
            block.clear();
            block.extend((0..BLOCK).map(|_| workload.request(self.now)));
            let start = clock();
            batches += self.serve(&block);
            times.push(clock().since(start).0 as f64 / BLOCK as f64);
            served += BLOCK;
        }
        (median(&times), served as f64 / batches as f64)
    }

    /// Takes the block in, and as many requests out; says in how many batches.
    fn serve(&mut self, block: &[Request]) -> usize {
        let (mut batches, mut owed) = (0, 0);
        for r in block {
            self.scheduler.enqueue(self.now, *r);
            self.now = self.now + Nanos(100);
            owed += 1;
            while owed > 0 {
                match self.scheduler.dispatch(self.now) {
                    Some(batch) => {
                        owed -= batch.requests().len() as isize;
                        batches += 1;
                        self.scheduler.complete(self.now, &batch);
                    }
                    // A window, a wait or a cap: time passes.
                    None => self.now = self.scheduler.next_wakeup(self.now).unwrap_or(self.now),
                }
            }
        }
        batches
    }
}
