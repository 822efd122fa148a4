//! Fair MCKP: floors, weights, hysteresis, and the promise over a run.

use forebay_policy::{BandwidthCurve, Current, Fair, FairConfig, Job, Mckp, Policy, Pool, Progress, Static};
use forebay_types::Nanos;
use proptest::prelude::*;

fn fair(share: f64, move_cost: f64) -> Fair {
    Fair::new(FairConfig { share, move_cost, move_seconds: 0.0 }).unwrap()
}

fn job(id: usize, compute_nodes: u32, pairs: &[(u32, f64)]) -> Job {
    let curve = BandwidthCurve::from_pairs(pairs.iter().copied()).unwrap();
    Job::new(format!("{id}"), compute_nodes, compute_nodes).with_curve(curve)
}

fn instance() -> impl Strategy<Value = (Vec<Job>, u32)> {
    let one = (prop::sample::select(vec![8u32, 16, 32]), prop::collection::vec(0u32..2000, 5));
    (prop::collection::vec(one, 1..10), 1u32..40).prop_map(|(jobs, io_nodes)| {
        let jobs = jobs.iter().enumerate().map(|(i, (nodes, mbs))| {
            let pairs: Vec<_> = [0, 1, 2, 4, 8].into_iter().zip(mbs.iter().map(|&b| f64::from(b))).collect();
            job(i, *nodes, &pairs)
        });
        (jobs.collect(), io_nodes)
    })
}

proptest! {
    #[test]
    fn every_job_keeps_the_share_that_is_reported((jobs, io_nodes) in instance(), share in 0.0f64..=1.0) {
        let pool = Pool::of(io_nodes);
        let decision = fair(share, 0.0).decide(&jobs, &pool).unwrap();
        let fixed = Static.decide(&jobs, &pool).unwrap();
        let kept = decision.share.unwrap();
        prop_assert!(kept <= share);
        // STATIC fits, so its own bandwidths are a way to keep any share.
        if fixed.used() <= u64::from(io_nodes) {
            prop_assert_eq!(kept, share);
        }
        for (d, s) in decision.jobs.iter().zip(&fixed.jobs) {
            prop_assert!(d.bandwidth.unwrap().0 >= kept * s.bandwidth.unwrap().0 * (1.0 - 1e-9));
        }
        prop_assert!(decision.used() <= u64::from(io_nodes));
        prop_assert!(decision.total.0 <= Mckp.decide(&jobs, &pool).unwrap().total.0 * (1.0 + 1e-9));
    }

    #[test]
    fn without_a_share_it_is_mckp((jobs, io_nodes) in instance()) {
        let pool = Pool::of(io_nodes);
        let ours = fair(0.0, 0.0).decide(&jobs, &pool).unwrap();
        prop_assert!((ours.total.0 - Mckp.decide(&jobs, &pool).unwrap().total.0).abs() < 1e-6);
    }

    #[test]
    fn a_settled_allocation_is_not_disturbed((jobs, io_nodes) in instance(), share in 0.0f64..=1.0) {
        let pool = Pool::of(io_nodes);
        let policy = fair(share, 0.1);
        let first = policy.decide(&jobs, &pool).unwrap();
        let settled: Vec<Job> = jobs
            .iter()
            .zip(&first.jobs)
            .map(|(j, d)| Job { current: Some(d.held(Vec::new())), ..j.clone() })
            .collect();
        let again = policy.decide(&settled, &pool).unwrap();
        let counts = |d: &forebay_policy::Decision| d.jobs.iter().map(|j| j.io_nodes).collect::<Vec<_>>();
        prop_assert_eq!(counts(&first), counts(&again));
    }
}

/// A small one that MCKP takes everything from, and a large one.
fn unequal() -> Vec<Job> {
    vec![
        job(0, 8, &[(1, 10.0), (2, 40.0), (4, 80.0)]),
        job(1, 8, &[(1, 100.0), (2, 300.0), (4, 2000.0), (8, 2100.0)]),
    ]
}

fn pool(n: u32) -> Pool {
    Pool { direct: false, ..Pool::of(n) }
}

fn counts(policy: &impl Policy, jobs: &[Job], n: u32) -> Vec<u32> {
    policy.decide(jobs, &pool(n)).unwrap().jobs.iter().map(|j| j.io_nodes).collect()
}

#[test]
fn mckp_sacrifices_and_fair_does_not() {
    let jobs = unequal();
    assert_eq!(counts(&Static, &jobs, 8), [4, 4]);
    assert_eq!(counts(&Mckp, &jobs, 9), [1, 8]);
    assert_eq!(counts(&fair(0.5, 0.0), &jobs, 9), [4, 4]);
    let explained = fair(0.5, 0.0).decide(&jobs, &pool(7)).unwrap().explain(&jobs, &pool(7));
    assert_eq!(explained[0].io_nodes, 2);
}

#[test]
fn weights_shift_what_is_maximised() {
    let mut jobs = unequal();
    assert_eq!(counts(&fair(0.0, 0.0), &jobs, 5), [1, 4]);
    jobs[0].weight = 100.0;
    assert_eq!(counts(&fair(0.0, 0.0), &jobs, 5), [4, 1]);
    jobs[0].weight = 0.0;
    assert!(fair(0.0, 0.0).decide(&jobs, &pool(5)).is_err());
}

#[test]
fn a_small_gain_moves_nobody() {
    let mut jobs = unequal();
    jobs[1].current = Some(Current { io_nodes: 4, ..Current::default() });
    // 2100 instead of 2000 is not worth a move that costs 10 %; it is worth one that costs 1 %.
    assert_eq!(counts(&fair(0.0, 0.10), &jobs, 12)[1], 4);
    assert_eq!(counts(&fair(0.0, 0.01), &jobs, 12)[1], 8);
}

#[test]
fn a_job_with_slack_waits_its_turn_and_one_without_does_not() {
    let with = |elapsed_s: u64, served_mb: u64, volume_mb: Option<u64>| {
        let mut jobs = unequal();
        jobs[0].progress = Some(Progress {
            elapsed: Nanos::from_secs(elapsed_s),
            served_bytes: served_mb * 1_000_000,
            volume_bytes: volume_mb.map(|v| v * 1_000_000),
        });
        let decision = fair(0.5, 0.0).decide(&jobs, &pool(9)).unwrap();
        (decision.jobs[0].io_nodes, decision.review)
    };
    // STATIC means 80 MB/s to it. 8000 MB are due after 200 s and take 100 s at 80: 100 s of slack, of
    // which 10 MB/s use up 7/8 of each second.
    let (count, review) = with(0, 0, Some(8000));
    assert_eq!(count, 1);
    assert!((review.unwrap().as_secs_f64() - 100.0 / (1.0 - 10.0 / 80.0)).abs() < 1e-6);
    // The slack is gone: now it gets 80 MB/s.
    assert_eq!(with(110, 800, Some(8000)), (4, None));
    // Volume unknown: 40 MB/s are its share. It is owed 400 MB after 10 s.
    assert_eq!(with(10, 390, None).0, 4);
    assert_eq!(with(10, 4000, None).0, 1);
}

#[test]
fn settings_out_of_range_are_refused() {
    for (share, move_cost, move_seconds) in
        [(1.5, 0.0, 0.0), (f64::NAN, 0.0, 0.0), (0.5, -0.1, 0.0), (0.5, 0.0, -1.0)]
    {
        assert!(Fair::new(FairConfig { share, move_cost, move_seconds }).is_err());
    }
}
