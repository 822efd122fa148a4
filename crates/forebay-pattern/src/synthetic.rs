//! Synthetic rows: a small model of processes that send their requests to I/O nodes, run through the
//! real [`Collector`]. It is a stand-in for measurements, for tests and for a first model; it knows
//! no network, no file system and no client library, and what is trained on it says so.

use crate::collect::{Access, Collector};
use crate::data::{Label, Row};
use forebay_types::Pattern;
use forebay_types::{ClientId, FileId, FlowId, Nanos, OpKind};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Which combinations to play.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Request sizes in bytes.
    pub sizes: Vec<u64>,
    /// Processes of the job.
    pub processes: Vec<u32>,
    /// I/O nodes of the job; combinations with fewer than two processes a node are left out, since a
    /// node that sees one process cannot tell a shared file from an own one.
    pub io_nodes: Vec<u32>,
    /// Intervals kept of each run, after a first one that is thrown away.
    pub seconds: u32,
}

impl Default for Plan {
    /// The thesis's request sizes and I/O nodes, and process counts around its own.
    fn default() -> Plan {
        Plan {
            sizes: vec![32 << 10, 64 << 10, 128 << 10, 256 << 10],
            processes: vec![4, 8, 16, 32, 64, 128, 256, 512],
            io_nodes: vec![1, 2, 4, 8],
            seconds: 10,
        }
    }
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    OwnContiguous,
    OwnStrided,
    OwnRandom,
    SharedContiguous,
    SharedStrided,
    SharedRandom,
}

/// A workload: what the first `share` of the processes do and what the others do.
struct Workload {
    class: Pattern,
    first: Habit,
    others: Habit,
    share: f64,
}

const WORKLOADS: [(Pattern, Habit, Habit); 10] = [
    (Pattern::FppContiguous, Habit::OwnContiguous, Habit::OwnContiguous),
    (Pattern::SharedContiguous, Habit::SharedContiguous, Habit::SharedContiguous),
    (Pattern::SharedStrided, Habit::SharedStrided, Habit::SharedStrided),
    (Pattern::Random, Habit::SharedRandom, Habit::SharedRandom),
    (Pattern::Random, Habit::OwnRandom, Habit::OwnRandom),
    // Things that have no name among the classes.
    (Pattern::Unknown, Habit::OwnStrided, Habit::OwnStrided),
    (Pattern::Unknown, Habit::OwnContiguous, Habit::SharedRandom),
    (Pattern::Unknown, Habit::SharedContiguous, Habit::SharedStrided),
    (Pattern::Unknown, Habit::SharedStrided, Habit::SharedRandom),
    (Pattern::Unknown, Habit::OwnContiguous, Habit::SharedStrided),
];

/// Plays every combination of `plan` and returns what the I/O nodes saw.
pub fn rows(plan: &Plan, seed: u64) -> Vec<Row> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut rows = Vec::new();
    let mut run = 0;
    for &request_size in &plan.sizes {
        for &processes in &plan.processes {
            for &io_nodes in plan.io_nodes.iter().filter(|&&n| n * 2 <= processes) {
                for (class, first, others) in WORKLOADS {
                    let share = rng.random_range(0.35..0.65);
                    let workload = Workload { class, first, others, share };
                    let pass = (10f64.powf(rng.random_range(1.5..3.5))) as u64;
                    let job = Job { request_size, processes, io_nodes, workload, pass };
                    job.play(run, plan.seconds, &mut rng, &mut rows);
                    run += 1;
                }
            }
        }
    }
    rows
}

struct Job {
    request_size: u64,
    processes: u32,
    io_nodes: u32,
    workload: Workload,
    /// Requests of one process in one pass over the data; then the benchmark begins anew.
    pass: u64,
}

struct Process {
    id: u32,
    habit: Habit,
    /// Requests sent so far.
    sent: u64,
    /// How fast it is, around 1.
    pace: f64,
}

impl Job {
    fn play(&self, run: u32, seconds: u32, rng: &mut ChaCha8Rng, rows: &mut Vec<Row>) {
        let op = if rng.random() { OpKind::Read } else { OpKind::Write };
        // A few hundred to a few thousand requests a second and node: slow disks to a fast network.
        let rate =
            10f64.powf(rng.random_range(1.8..3.2)).max(f64::from(self.processes / self.io_nodes) * 2.0);
        for node in 0..self.io_nodes {
            let processes = (0..self.processes).filter(|p| p % self.io_nodes == node);
            let processes = processes.map(|id| self.process(id, rng)).collect();
            self.play_node(run, node, seconds, op, rate, processes, rng, rows);
        }
    }

    fn process(&self, id: u32, rng: &mut ChaCha8Rng) -> Process {
        let w = &self.workload;
        // By rank within the node, so that every node sees both kinds.
        let rank = (f64::from(id / self.io_nodes) + 0.5) / f64::from(self.processes / self.io_nodes);
        let habit = if rank < w.share { w.first } else { w.others };
        Process { id, habit, sent: rng.random_range(0..8), pace: rng.random_range(0.7..1.4) }
    }

    #[expect(clippy::too_many_arguments, reason = "one caller, and the pieces belong to it")]
    fn play_node(
        &self,
        run: u32,
        node: u32,
        seconds: u32,
        op: OpKind,
        rate: f64,
        mut processes: Vec<Process>,
        rng: &mut ChaCha8Rng,
        rows: &mut Vec<Row>,
    ) {
        const SECOND: u64 = 1_000_000_000;
        let mut collector = Collector::new(Nanos::ZERO);
        // (time, process, whether it is a completion): each process waits for its answer, thinks a
        // little, and asks again; the node serves one request at a time, in order.
        let mut events = BinaryHeap::new();
        let service = 1e9 / rate;
        for i in 0..processes.len() {
            events.push(Reverse((rng.random_range(0..(service * 4.0) as u64 + 1), i, false)));
        }
        let mut free = 0;
        let mut second = 0;
        while let Some(Reverse((now, i, completion))) = events.pop() {
            while now >= (u64::from(second) + 1) * SECOND {
                let interval = collector.close(Nanos((u64::from(second) + 1) * SECOND));
                if second > 0 {
                    rows.extend(interval.flows.into_iter().map(|metrics| {
                        let label = Label {
                            run,
                            node,
                            second,
                            class: self.workload.class,
                            request_size: self.request_size,
                            processes: self.processes,
                            io_nodes: self.io_nodes,
                        };
                        Row { label, metrics }
                    }));
                }
                second += 1;
                if second > seconds {
                    return;
                }
            }
            if completion {
                collector.complete(Nanos(now), FlowId(1), op, self.request_size);
                let think = service * processes[i].pace * rng.random_range(0.0..1.0);
                events.push(Reverse((now + think as u64, i, false)));
            } else {
                let access = self.next(&mut processes[i], op, rng);
                collector.arrive(Nanos(now), &access);
                // Exponential service, as if something else used the storage too.
                let took = -service * (1.0 - rng.random::<f64>()).ln();
                free = free.max(now) + took as u64;
                events.push(Reverse((free, i, true)));
            }
        }
    }

    fn next(&self, process: &mut Process, op: OpKind, rng: &mut ChaCha8Rng) -> Access {
        let (id, n, size, pass) =
            (u64::from(process.id), u64::from(self.processes), self.request_size, self.pass);
        let k = process.sent % pass;
        process.sent += 1;
        let (file, offset) = match process.habit {
            Habit::OwnContiguous => (1000 + id, k * size),
            Habit::OwnStrided => (1000 + id, k * size * 4),
            Habit::OwnRandom => (1000 + id, rng.random_range(0..pass) * size),
            Habit::SharedContiguous => (1, (id * pass + k) * size),
            Habit::SharedStrided => (2, (k * n + id) * size),
            Habit::SharedRandom => (3, rng.random_range(0..pass * n) * size),
        };
        Access { flow: FlowId(1), client: ClientId(id), file: FileId(file), op, offset, len: size }
    }
}
