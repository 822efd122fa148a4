//! The sources' experiments as simulations: the same processes, requests and nodes that the live
//! experiments run, on a storage model.

use crate::requests::program::{Bursts, Delayed, Program, Stream};
use crate::requests::{Machine, Outcome, Process, Span, job, run};
use forebay_sched::SchedulerConfig;
use forebay_sched::emulate::StorageModel;
use forebay_types::{FileId, FlowId, Nanos, OpKind, Pattern};

/// The windows that TWINS was tried with.
pub const WINDOWS: [&str; 7] = ["125us", "250us", "500us", "1ms", "2ms", "4ms", "8ms"];

/// A scheduler with this window.
pub fn twins_window(window: &str) -> SchedulerConfig {
    format!("twins:window={window}").parse().expect("one of the windows above")
}

/// What is deliberately broken, to see that a check can fail. Only simulated set-ups have these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Broken {
    /// All I/O nodes walk the servers in the same order.
    pub rotation: bool,
    /// Requests are not merged.
    pub merging: bool,
    /// SFQ(D)+ without slots and backfill: SFQ(D) of the same depth.
    pub backfill: bool,
    /// All jobs have the same weight.
    pub weights: bool,
    /// Servers are served no worse when several I/O nodes are at them.
    pub concurrency: bool,
    /// The windows are those of arrival order: none.
    pub windows: bool,
}

impl Broken {
    /// The scheduler and the machine with what is broken.
    pub fn apply(self, machine: &mut Machine) {
        machine.same_site |= self.rotation;
        let name = machine.scheduler.name();
        if self.windows && name == "twins" || self.backfill && name == "sfq-d-plus" {
            let other = if name == "twins" { "fifo" } else { "sfq-d" };
            machine.scheduler = other.parse().expect("a scheduler's name");
        }
        if self.merging {
            machine.scheduler.merge.count = 1;
        }
        if self.weights {
            machine.weights.clear();
        }
        if self.concurrency {
            machine.storage.server.penalty = 0.0;
            if let Some(write) = &mut machine.storage.server.write {
                write.penalty = 0.0;
            }
        }
    }
}

/// Processes that read or write at full speed: the experiments with windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Streams {
    /// Processes of each application.
    pub processes: u32,
    /// Requests of each.
    pub requests: u64,
    /// Bytes of a request.
    pub size: u64,
    /// Compute nodes.
    pub compute_nodes: u32,
    /// I/O nodes; none is direct access.
    pub io_nodes: u32,
    /// How they lie in files.
    pub pattern: Pattern,
    /// Reads or writes.
    pub op: OpKind,
    /// Applications, each with files and half of the compute nodes of its own.
    pub applications: u32,
    /// By how much the second application starts later.
    pub delay: Nanos,
}

impl Streams {
    /// The TWINS paper's: 128 processes of 32 nodes, 1024 requests of 32 KiB, 4 I/O nodes.
    pub fn paper(pattern: Pattern, op: OpKind) -> Streams {
        Streams {
            processes: 128,
            requests: 1024,
            size: 32 << 10,
            compute_nodes: 32,
            io_nodes: 4,
            pattern,
            op,
            applications: 1,
            delay: Nanos::ZERO,
        }
    }

    /// As the live experiment runs it: 32 processes, 64 requests.
    pub fn small(pattern: Pattern, op: OpKind) -> Streams {
        Streams { processes: 32, requests: 64, compute_nodes: 8, ..Streams::paper(pattern, op) }
    }

    /// Its processes.
    pub fn processes(&self) -> Vec<Process> {
        let mut all = Vec::new();
        let apart = |count: u32, a: u32| {
            let each = (count / self.applications.max(1)).max(1);
            a * each..(a + 1) * each
        };
        for a in 0..self.applications.max(1) {
            // Both applications use all I/O nodes, as clients are spread over them.
            all.extend(job(
                a,
                self.processes,
                apart(self.compute_nodes, a),
                0..self.io_nodes.max(1),
                |rank| {
                    let n = u64::from(self.processes);
                    let file = 1 + u64::from(a) * 1_000_000;
                    let delay = (a > 0).then_some(self.delay);
                    let then = Stream::new(self.pattern, self.op, self.size, self.requests, rank, n, file);
                    Box::new(Delayed { delay, then }) as Box<dyn Program>
                },
            ));
        }
        all
    }

    /// Runs it.
    pub fn run(
        &self,
        model: &StorageModel,
        scheduler: &SchedulerConfig,
        seed: u64,
        broken: Broken,
    ) -> Outcome {
        let mut machine = Machine::new(self.io_nodes, model.clone(), scheduler.clone());
        machine.seed = seed;
        broken.apply(&mut machine);
        run(&machine, self.processes(), Span::ALL)
    }
}

/// A job of small bursts beside writers of large requests, through one I/O node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Isolation {
    /// Processes of the small job.
    pub small: u32,
    /// Processes of the large one.
    pub large: u32,
    /// Bytes of a large request.
    pub large_size: u64,
    /// How long is measured.
    pub span: Nanos,
}

impl Default for Isolation {
    /// As the live experiment.
    fn default() -> Isolation {
        Isolation { small: 8, large: 16, large_size: 32 << 20, span: Nanos::from_secs(12) }
    }
}

impl Isolation {
    /// Runs it; flow 0 is the small job.
    pub fn run(
        &self,
        model: &StorageModel,
        scheduler: &SchedulerConfig,
        seed: u64,
        broken: Broken,
    ) -> Outcome {
        let mut machine = Machine::new(1, model.clone(), scheduler.clone());
        (machine.dispatchers, machine.seed) = (64, seed);
        broken.apply(&mut machine);
        let mut all = job(0, self.small, 0..self.small.max(1), 0..1, |rank| {
            Box::new(Bursts {
                op: OpKind::Write,
                file: FileId(1),
                sizes: vec![320, 1024, 4096, 32 << 10],
                base: rank << 24,
                stride: 1 << 15,
                wrap: 512,
                burst: 32,
                pause: Nanos::from_millis(100),
                step: 0,
            })
        });
        let first = self.small;
        all.extend(job(1, self.large, first..first + self.large.max(1), 0..1, |rank| {
            Box::new(Bursts {
                op: OpKind::Write,
                file: FileId(100 + rank),
                sizes: vec![self.large_size],
                base: 0,
                stride: self.large_size,
                wrap: 2,
                burst: 0,
                pause: Nanos::ZERO,
                step: 0,
            })
        }));
        let from = Nanos::from_secs(1);
        run(&machine, all, Span { from, until: from + self.span })
    }
}

/// Two jobs of nothing but metadata operations with weights 2 and 1: operations a second of both.
pub fn metadata(model: &StorageModel, scheduler: &SchedulerConfig, span: Nanos, broken: Broken) -> [f64; 2] {
    let mut machine = Machine::new(1, model.clone(), scheduler.clone());
    machine.dispatchers = 8;
    machine.weights = vec![(FlowId(0), 2), (FlowId(1), 1)];
    broken.apply(&mut machine);
    let one = |flow| {
        job(flow, 32, 0..8, 0..1, |_| {
            Box::new(Bursts {
                op: OpKind::Metadata,
                file: FileId(0),
                sizes: vec![0],
                base: 0,
                stride: 0,
                wrap: 1,
                burst: 0,
                pause: Nanos::ZERO,
                step: 0,
            })
        })
    };
    let from = Nanos::from_secs(1);
    let outcome =
        run(&machine, one(0).into_iter().chain(one(1)).collect(), Span { from, until: from + span });
    [0, 1].map(|f| outcome.flow(f).calls as f64 / span.as_secs_f64())
}

/// Jain's index of what flows got by weight: 1 is exactly by weight.
pub fn jain(by_weight: &[f64]) -> f64 {
    let sum: f64 = by_weight.iter().sum();
    let squares: f64 = by_weight.iter().map(|x| x * x).sum();
    sum * sum / (by_weight.len() as f64 * squares)
}
