//! DFRA: months of jobs on a machine like TaihuLight, and pairs of applications on one I/O node.

use super::{Break, Figures, Measured, Setup, put};
use anyhow::Result;
use forebay_policy::dfra::{DfraConfig, History, IoProfile};
use forebay_sched::SchedulerConfig;
use forebay_sched::emulate::StorageModel;
use forebay_sim::fluid::behaviour::Population;
use forebay_sim::fluid::{self, Fared, LargeMachine, Mapping, Month};
use forebay_sim::models;
use forebay_sim::requests::program::{Bursts, Program};
use forebay_sim::requests::{FlowTotals, Machine, Outcome, Process, Span, job, run};
use forebay_types::{FileId, IoMode, Nanos, NodeId, OpKind};

const SEEDS: [u64; 2] = [1, 2];

/// How long the paper's history is.
const MONTHS: f64 = 17.0;

/// How often the run before, at the same scale, says mode and volume within 20 %.
pub(super) fn history(setup: &Setup<'_>) -> Result<Figures> {
    let mut values = Vec::new();
    for seed in SEEDS {
        let jobs = Population::default().draw(MONTHS * 30.44, seed);
        let (mut history, mut right) = (History::default(), 0u32);
        for job in &jobs {
            let profile = IoProfile {
                bytes: job.behaviour.bytes as u64,
                io_compute_nodes: job.behaviour.io_compute_nodes,
                mode: job.behaviour.mode,
                bandwidth_mbs: 0.0,
                iops: 0.0,
                metadata_rate: 0.0,
                metadata_waiting: 0.0,
            };
            let app = job.application.to_string();
            let known = history.predict(&app, "", job.compute_nodes);
            right += u32::from(known.is_some_and(|before| before.predicted(&profile, 0.2)));
            if !setup.breaks(Break::History) {
                history.record(&app, "", job.compute_nodes, profile);
            }
        }
        values.push(100.0 * f64::from(right) / jobs.len().max(1) as f64);
    }
    Ok(Figures::from([("predicted".to_owned(), Measured::of(values, "seeds"))]))
}

pub(super) fn figures(setup: &Setup<'_>) -> Result<Figures> {
    let days = if setup.full { MONTHS * 30.44 } else { 20.0 };
    let mut machine = LargeMachine::taihulight();
    if setup.breaks(Break::Reserve) {
        machine.io_nodes = machine.default.io_nodes;
    }
    let population = Population::default();
    let mut seen: std::collections::BTreeMap<&str, Vec<f64>> = Default::default();
    for seed in SEEDS {
        let jobs = population.draw(days, seed);
        let dfra = fluid::run(&machine, &Mapping::Dfra(DfraConfig::default()), &jobs)?;
        let ffm = fluid::run(&machine, &Mapping::Fixed, &jobs)?;
        let rr = fluid::run(&machine, &Mapping::RoundRobin(32), &jobs)?;
        let s = &dfra.screening;
        let percent = |n: u32| 100.0 * f64::from(n) / f64::from(s.jobs.max(1));
        let own = |f: &Fared| f.dedicated && f.io_nodes > 1;
        let (scaled, most) = speedup(&ffm, &dfra, own);
        let wanted = dfra.scaled + dfra.isolated + dfra.short;
        for (name, value) in [
            ("benefit", percent(s.benefit)),
            ("volume", percent(s.volume)),
            ("parallelism", percent(s.parallelism)),
            ("metadata", percent(s.metadata)),
            ("benefit-hours", 100.0 * dfra.benefit_node_hours),
            ("nodes-in-use", dfra.default_mean + dfra.dedicated_mean),
            ("short", 100.0 * f64::from(dfra.short + dfra.cut) / f64::from(wanted.max(1))),
            ("large-shared", 100.0 * ffm.large_shared),
            ("speedup-scaled", scaled),
            ("speedup-most", most),
            ("speedup-all", speedup(&ffm, &dfra, |f| f.dedicated).0),
            ("round-robin", speedup(&ffm, &rr, |_| true).0),
            ("dfra-over-round-robin", speedup(&rr, &dfra, |f| f.dedicated).0),
        ] {
            seen.entry(name).or_default().push(value);
        }
    }
    let mut figures: Figures =
        seen.into_iter().map(|(name, values)| (name.to_owned(), Measured::of(values, "seeds"))).collect();
    put(&mut figures, "failslow", Measured::exact(failslow()?));
    Ok(figures)
}

/// How many times as fast the I/O of some jobs was, in the geometric mean, and at most.
fn speedup(before: &Month, after: &Month, of: fn(&Fared) -> bool) -> (f64, f64) {
    let (ratios, mean) = fluid::speedup(before, after, of);
    (mean, ratios.max)
}

/// How much longer the I/O of a job takes that has one abnormal I/O node among its 32.
fn failslow() -> Result<f64> {
    use fluid::behaviour::{Behaviour, Submitted};
    let behaviour = Behaviour {
        mode: IoMode::NToN,
        io_compute_nodes: 1024,
        bytes: 1e12,
        request: 1e6,
        metadata: 0.0,
        phases: 1,
    };
    let one = Submitted { application: 0, compute_nodes: 1024, arrival: 0.0, computes: 100.0, behaviour };
    let time = |slow: Vec<(NodeId, f64)>| {
        let machine = LargeMachine { slow, ..LargeMachine::taihulight() };
        anyhow::Ok(
            fluid::run(&machine, &Mapping::RoundRobin(32), std::slice::from_ref(&one))?.jobs[0].io_seconds,
        )
    };
    // The one that was found had 7 % of its read and 12 % of its write bandwidth.
    Ok(time(vec![(NodeId(8), 0.07)])? / time(Vec::new())?)
}

/// An application of the paper's Table 2.
#[derive(Clone, Copy)]
struct Application {
    name: &'static str,
    mode: IoMode,
    op: OpKind,
    size: u64,
    /// Calls in a row and the pause after them; none for I/O without end.
    burst: (u64, Nanos),
    /// Whether it opens and stats rather than reads and writes.
    metadata: bool,
}

const BUSY: (u64, Nanos) = (0, Nanos::ZERO);
const CALM: (u64, Nanos) = (1, Nanos::from_millis(20));

const APPLICATIONS: [Application; 7] = [
    Application {
        name: "mpi-io",
        mode: IoMode::NToN,
        op: OpKind::Write,
        size: 1 << 20,
        burst: BUSY,
        metadata: false,
    },
    Application {
        name: "apt",
        mode: IoMode::NToN,
        op: OpKind::Write,
        size: 1 << 10,
        burst: BUSY,
        metadata: false,
    },
    Application {
        name: "dndc",
        mode: IoMode::NToN,
        op: OpKind::Read,
        size: 4 << 10,
        burst: BUSY,
        metadata: true,
    },
    Application {
        name: "wrf1",
        mode: IoMode::OneTo1,
        op: OpKind::Write,
        size: 1 << 20,
        burst: CALM,
        metadata: false,
    },
    Application {
        name: "shentu",
        mode: IoMode::NToN,
        op: OpKind::Read,
        size: 128 << 10,
        burst: BUSY,
        metadata: false,
    },
    Application {
        name: "cam",
        mode: IoMode::OneTo1,
        op: OpKind::Write,
        size: 256 << 10,
        burst: CALM,
        metadata: false,
    },
    Application {
        name: "awp",
        mode: IoMode::NTo1,
        op: OpKind::Write,
        size: 64 << 10,
        burst: BUSY,
        metadata: false,
    },
];

impl Application {
    /// Its processes, as flow `flow` on I/O node `node`.
    fn processes(&self, flow: u32, node: u32, count: u32, stripe: u64) -> Vec<Process> {
        let count = if self.mode == IoMode::OneTo1 { 1 } else { count };
        let file = 1 + u64::from(flow) * 1_000_000;
        job(flow, count, flow * 256..flow * 256 + 256, node..node + 1, |rank| {
            let shared = self.mode == IoMode::NTo1;
            // A file lies on one server, as by default on Lustre: its stripe is its part of the servers.
            let base = if shared {
                u64::from(flow) * stripe + rank * self.size
            } else {
                (rank + 7 * u64::from(flow)) * stripe
            };
            let stride = if shared { self.size * u64::from(count) } else { self.size };
            let op = if self.metadata { OpKind::Metadata } else { self.op };
            let (burst, pause) = self.burst;
            let program: Box<dyn Program> = Box::new(Bursts {
                op,
                file: FileId(if shared { file } else { file + rank }),
                sizes: vec![if self.metadata { 0 } else { self.size }],
                base,
                stride,
                wrap: 1024,
                burst,
                pause,
                step: 0,
            });
            program
        })
    }

    /// What the monitoring would say of a run alone.
    fn profile(&self, alone: &FlowTotals, span: Nanos) -> IoProfile {
        let per_second = |n: u64| n as f64 / span.as_secs_f64();
        let metadata = if self.metadata { per_second(alone.calls) } else { 0.0 };
        IoProfile {
            bytes: alone.bytes,
            io_compute_nodes: if self.mode == IoMode::OneTo1 { 1 } else { 256 },
            mode: self.mode,
            bandwidth_mbs: per_second(alone.bytes) / 1e6,
            iops: if self.metadata { 0.0 } else { per_second(alone.calls) },
            metadata_rate: metadata,
            metadata_waiting: 0.0,
        }
    }
}

/// A machine with two I/O nodes of sixteen threads and 2.5 GB/s.
fn forwarding(storage: &StorageModel, scheduler: SchedulerConfig) -> Machine {
    let mut machine = Machine::new(2, storage.clone(), scheduler);
    machine.dispatchers = 16;
    machine.node_link.bandwidth = 2_500_000_000;
    machine.compute_link.bandwidth = 2_500_000_000;
    machine
}

/// Slowdowns of applications by each other: on one I/O node, as DFRA places them, and under SFQ(D)+.
pub(super) fn pairs(setup: &Setup<'_>) -> Result<Figures> {
    let storage = models::named("taihulight")?.storage;
    let count = if setup.full { 1024 } else { 128 };
    let from = Nanos::from_millis(200);
    let length = Nanos::from_millis(if setup.full { 4000 } else { 500 });
    let span = Span { from, until: from + length };
    let fifo: SchedulerConfig = "fifo".parse()?;
    let plus: SchedulerConfig = "sfq-d-plus".parse()?;
    let go = |scheduler: &SchedulerConfig, processes: Vec<Process>| -> Outcome {
        run(&forwarding(&storage, scheduler.clone()), processes, span)
    };
    let processes = |a: &Application, flow, node| a.processes(flow, node, count, storage.stripe);
    let alone: Vec<FlowTotals> = APPLICATIONS.iter().map(|a| go(&fifo, processes(a, 0, 0)).flow(0)).collect();
    let config = DfraConfig::default();
    let mut figures = Figures::new();
    let (mut most_shared, mut most_dfra, mut most_plus) = (1.0f64, 1.0f64, 1.0f64);
    for (i, a) in APPLICATIONS.iter().enumerate() {
        for (k, b) in APPLICATIONS.iter().enumerate().skip(i + 1) {
            let pair = |scheduler: &SchedulerConfig, apart: bool| {
                let mut all = processes(a, 0, 0);
                all.extend(processes(b, 1, u32::from(apart)));
                let outcome = go(scheduler, all);
                let slower = |flow: u32, alone: &FlowTotals| {
                    outcome.flow(flow).mean().0 as f64 / alone.mean().0.max(1) as f64
                };
                [slower(0, &alone[i]), slower(1, &alone[k])]
            };
            let shared = pair(&fifo, false);
            let foreseen =
                config.interference(&a.profile(&alone[i], length), Some(&b.profile(&alone[k], length)), None);
            let apart = foreseen.is_some() && !setup.breaks(Break::Isolation);
            let dfra = pair(&fifo, apart);
            let fair = pair(&plus, false);
            for (x, y, slot) in [(a, b, 0), (b, a, 1)] {
                let name = format!("{}-by-{}", x.name, y.name);
                put(&mut figures, &name, Measured::exact(shared[slot]));
                put(&mut figures, &format!("{name}-dfra"), Measured::exact(dfra[slot]));
                put(&mut figures, &format!("{name}-plus"), Measured::exact(fair[slot]));
            }
            most_shared = most_shared.max(shared[0]).max(shared[1]);
            most_dfra = most_dfra.max(dfra[0]).max(dfra[1]);
            most_plus = most_plus.max(fair[0]).max(fair[1]);
        }
    }
    put(&mut figures, "most-shared", Measured::exact(most_shared));
    put(&mut figures, "most-dfra", Measured::exact(most_dfra));
    put(&mut figures, "most-plus", Measured::exact(most_plus));
    Ok(figures)
}
