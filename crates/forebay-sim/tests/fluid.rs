//! The job grain: conservation, determinism, sharing, and DFRA's division of the pool.

use forebay_policy::dfra::DfraConfig;
use forebay_sim::fluid::behaviour::{Behaviour, Population, Submitted};
use forebay_sim::fluid::{LargeMachine, Mapping, run};
use forebay_types::{IoMode, NodeId};

fn job(application: u32, compute_nodes: u32, arrival: f64, mode: IoMode, gigabytes: f64) -> Submitted {
    let io_compute_nodes = if mode == IoMode::OneTo1 { 1 } else { compute_nodes };
    let behaviour =
        Behaviour { mode, io_compute_nodes, bytes: gigabytes * 1e9, request: 1e6, metadata: 0.0, phases: 1 };
    Submitted { application, compute_nodes, arrival, computes: 1000.0, behaviour }
}

#[test]
fn alone_a_job_is_as_fast_as_its_nodes_and_two_share_evenly() {
    let machine = LargeMachine::taihulight();
    let nn = IoMode::NToN;
    // 64 nodes at 80 MB/s ask for 5.12 GB/s of an I/O node that gives 2.5 at best, less what requests cost.
    let node = 1e6 / (1e6 / 2.5e9 + 1.0 / 80_000.0);
    let alone = run(&machine, &Mapping::Fixed, &[job(1, 64, 0.0, nn, 250.0)]).unwrap();
    assert!((alone.jobs[0].io_seconds - 250e9 / node).abs() < 0.1, "{:?}", alone.jobs[0]);
    let few = run(&machine, &Mapping::Fixed, &[job(1, 8, 0.0, nn, 64.0)]).unwrap();
    assert!((few.jobs[0].io_seconds - 100.0).abs() < 0.1, "the compute nodes are the limit");
    let two =
        run(&machine, &Mapping::Fixed, &[job(1, 64, 0.0, nn, 250.0), job(2, 64, 0.0, nn, 250.0)]).unwrap();
    assert!(two.jobs.iter().all(|j| (j.io_seconds - 2.0 * alone.jobs[0].io_seconds).abs() < 0.1));
    assert!(two.jobs[1].shared && !two.jobs[0].shared);
}

#[test]
fn a_slow_node_holds_up_everyone_who_waits_for_it_and_dfra_goes_around() {
    let slow = LargeMachine { slow: vec![(NodeId(0), 0.07)], ..LargeMachine::taihulight() };
    let jobs = [job(1, 1024, 0.0, IoMode::NToN, 500.0), job(1, 1024, 50_000.0, IoMode::NToN, 500.0)];
    let well = run(&LargeMachine::taihulight(), &Mapping::Fixed, &jobs).unwrap();
    let fixed = run(&slow, &Mapping::Fixed, &jobs).unwrap();
    assert!((fixed.jobs[0].io_seconds / well.jobs[0].io_seconds - 1.0 / 0.07).abs() < 0.1);
    let dfra = run(&slow, &Mapping::Dfra(DfraConfig::default()), &jobs).unwrap();
    // The second run has a history: it is scaled up, onto nodes that are well.
    assert!(dfra.jobs[1].dedicated && dfra.jobs[1].io_nodes == 32, "{:?}", dfra.jobs[1]);
    assert!(dfra.jobs[1].io_seconds < 0.1 * well.jobs[1].io_seconds);
}

#[test]
fn the_same_seed_gives_the_same_days_and_all_jobs_end() {
    let jobs = Population::default().draw(4.0, 3);
    assert_eq!(jobs, Population::default().draw(4.0, 3));
    assert_ne!(jobs.len(), 0);
    for mapping in [Mapping::Fixed, Mapping::RoundRobin(32), Mapping::Dfra(DfraConfig::default())] {
        let month = run(&LargeMachine::taihulight(), &mapping, &jobs).unwrap();
        assert_eq!(month.screening.jobs as usize, jobs.len(), "{mapping:?}");
        let s = month.screening;
        assert_eq!(s.benefit + s.volume + s.parallelism + s.metadata, s.jobs);
        for (fared, job) in month.jobs.iter().zip(&jobs) {
            assert!(fared.start >= job.arrival && fared.io_seconds > 0.0);
            let whole = fared.start + job.computes + fared.io_seconds;
            assert!((fared.end - whole).abs() < 1e-3 * whole, "{fared:?}");
        }
        assert!(month.dedicated_most <= 160);
    }
}

#[test]
fn without_a_reserve_nobody_is_dedicated() {
    let machine = LargeMachine { io_nodes: 80, ..LargeMachine::taihulight() };
    let jobs = Population::default().draw(3.0, 1);
    let month = run(&machine, &Mapping::Dfra(DfraConfig::default()), &jobs).unwrap();
    assert_eq!((month.scaled, month.isolated, month.dedicated_most), (0, 0, 0));
    assert!(month.short > 0);
}
