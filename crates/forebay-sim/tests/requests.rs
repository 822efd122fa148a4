//! The request-grain simulator: conservation, determinism, and the schedulers' known behaviour.

use forebay_sched::emulate::{AccessModel, StorageModel};
use forebay_sim::requests::program::{Bursts, Stream};
use forebay_sim::requests::tuner::Tuner;
use forebay_sim::requests::{Machine, Outcome, Process, Span, job, run, run_observed};
use forebay_sim::scenarios::{Broken, metadata};
use forebay_types::{FileId, Nanos, OpKind, Pattern};
use proptest::prelude::*;

fn stream(pattern: Pattern, op: OpKind, processes: u32, requests: u64, io_nodes: u32) -> Vec<Process> {
    job(0, processes, 0..8, 0..io_nodes.max(1), |rank| {
        Box::new(Stream::new(pattern, op, 32 << 10, requests, rank, processes.into(), 1))
    })
}

fn simulate(machine: &Machine, pattern: Pattern, op: OpKind) -> Outcome {
    run(machine, stream(pattern, op, 32, 64, machine.io_nodes), Span::ALL)
}

fn machine(scheduler: &str, io_nodes: u32) -> Machine {
    Machine::new(io_nodes, StorageModel::default(), scheduler.parse().unwrap())
}

#[test]
fn nothing_is_lost_under_any_scheduler() {
    for name in forebay_sched::SchedulerConfig::NAMES {
        for pattern in [Pattern::SharedContiguous, Pattern::SharedStrided, Pattern::FppContiguous] {
            let outcome = simulate(&machine(name, 4), pattern, OpKind::Write);
            let seen = outcome.flow(0);
            assert_eq!((seen.calls, seen.bytes), (32 * 64, 32 * 64 * (32 << 10)), "{name} {pattern:?}");
            assert_eq!(outcome.requests, 32 * 64, "{name}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_outcome() {
    let go = |seed| {
        let machine = Machine { seed, ..machine("sfq-d-plus", 2) };
        let bursts = job(0, 8, 0..4, 0..2, |rank| {
            let (file, op) = (FileId(1), OpKind::Write);
            let (sizes, pause) = (vec![320, 4096], Nanos::from_millis(3));
            Box::new(Bursts {
                op,
                file,
                sizes,
                base: rank << 24,
                stride: 1 << 15,
                wrap: 512,
                burst: 8,
                pause,
                step: 0,
            })
        });
        run(&machine, bursts, Span { from: Nanos::ZERO, until: Nanos::from_secs(1) }).flow(0)
    };
    assert_eq!(go(1), go(1));
    assert_ne!(go(1), go(2));
}

#[test]
fn windows_keep_nodes_apart_and_need_the_rotation() {
    // Long windows and a heavy penalty: what the rotation is for.
    let mut storage = StorageModel::default();
    storage.server.penalty = 0.5;
    let with = |scheduler: &str, same_site| {
        let machine = Machine { same_site, ..Machine::new(4, storage.clone(), scheduler.parse().unwrap()) };
        simulate(&machine, Pattern::SharedStrided, OpKind::Read).bandwidth().0
    };
    let (fifo, twins, stuck) =
        (with("fifo", false), with("twins:window=4ms", false), with("twins:window=4ms", true));
    assert!(twins > 1.1 * fifo, "{twins} against {fifo}");
    assert!(stuck < 0.8 * twins, "all nodes at one server: {stuck} against {twins}");
}

#[test]
fn weights_share_metadata_two_to_one_and_without_a_scheduler_evenly() {
    let share = |scheduler: &str| {
        let (model, scheduler) = (StorageModel::default(), scheduler.parse().unwrap());
        let [heavy, light] = metadata(&model, &scheduler, Nanos::from_secs(2), Broken::default());
        heavy / light
    };
    assert!((share("sfq-d") - 2.0).abs() < 0.05);
    assert!((share("fifo") - 1.0).abs() < 0.05);
}

#[test]
fn reads_and_writes_take_their_own_time_and_direct_access_has_no_node() {
    let mut storage = StorageModel::default();
    storage.server.write = Some(AccessModel {
        bandwidth: 20_000_000,
        per_request: Nanos::from_millis(1),
        seek: Nanos::ZERO,
        penalty: 0.0,
    });
    let machine = Machine::new(2, storage, "fifo".parse().unwrap());
    let read = simulate(&machine, Pattern::SharedStrided, OpKind::Read);
    let write = simulate(&machine, Pattern::SharedStrided, OpKind::Write);
    assert!(read.bandwidth().0 > 1.5 * write.bandwidth().0);
    let direct = Machine { io_nodes: 0, ..machine };
    let outcome = simulate(&direct, Pattern::SharedStrided, OpKind::Read);
    assert_eq!((outcome.batches, outcome.merged()), (32 * 64, 1.0));
}

#[test]
fn the_council_settles_on_a_window_that_is_not_the_worst() {
    let mut storage = StorageModel { stripe: 32 << 10, ..StorageModel::default() };
    storage.server.penalty = 0.5;
    let arms = forebay_tune::Arms::twins_windows();
    let config = forebay_tune::CouncilConfig::default();
    let council = forebay_tune::Council::new(arms.clone(), config).unwrap();
    let mut tuner = Tuner::new(council, forebay_pattern::Model::builtin());
    let start = arms.all()[arms.default_arm()].clone();
    let machine = Machine { interval: Nanos::from_millis(100), ..Machine::new(4, storage.clone(), start) };
    let processes = stream(Pattern::SharedStrided, OpKind::Read, 64, 4000, 4);
    run_observed(&machine, processes, Span { from: Nanos::ZERO, until: Nanos::from_secs(25) }, &mut tuner);
    let alone: Vec<f64> = arms
        .all()
        .iter()
        .map(|arm| {
            let machine = Machine { scheduler: arm.clone(), ..machine.clone() };
            simulate(&machine, Pattern::SharedStrided, OpKind::Read).bandwidth().0
        })
        .collect();
    let best = alone.iter().copied().fold(0.0, f64::max);
    let last: Vec<usize> = tuner.decisions.iter().rev().take(30).map(|d| d.arm).collect();
    let brought = last.iter().map(|&a| alone[a]).sum::<f64>() / last.len() as f64;
    assert!(tuner.decisions.iter().any(|d| d.context.is_some()), "no situation was recognised");
    assert!(brought > 0.85 * best, "{brought} of {best}: {alone:?} {last:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn time_is_never_less_than_the_servers_need(
        servers in 1u32..6, nodes in 0u32..5, processes in 1u32..20, requests in 1u64..30,
        size in 1u64..200_000, write in any::<bool>(),
    ) {
        let storage = StorageModel { servers, ..StorageModel::default() };
        let least = storage.server.bandwidth as f64 * f64::from(servers);
        let machine = Machine::new(nodes, storage, "hbrr".parse().unwrap());
        let op = if write { OpKind::Write } else { OpKind::Read };
        let work = job(0, processes, 0..4, 0..nodes.max(1), |rank| {
            Box::new(Stream::new(Pattern::SharedContiguous, op, size, requests, rank, processes.into(), 1))
        });
        let outcome = run(&machine, work, Span::ALL);
        let seen = outcome.flow(0);
        prop_assert_eq!(seen.bytes, u64::from(processes) * requests * size);
        prop_assert!(seen.makespan().as_secs_f64() >= seen.bytes as f64 / least);
    }
}
