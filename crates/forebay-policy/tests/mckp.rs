//! MCKP against an integer-programming solver, against the thesis, and at its edges.

use forebay_policy::{
    BandwidthCurve, Current, Job, Mckp, Policy, PolicyError, PolicyKind, Pool, Proportional, SharingRule,
    Static,
};
use good_lp::{Expression, Solution, SolverModel, constraint, microlp, variable, variables};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn job(id: &str, compute_nodes: u32, pairs: &[(u32, f64)]) -> Job {
    let curve = BandwidthCurve::from_pairs(pairs.iter().copied()).unwrap();
    Job::new(id, compute_nodes, compute_nodes * 4).with_curve(curve)
}

/// The knapsack as an integer program: written from the problem, not from the policy.
fn integer_program(jobs: &[Job], io_nodes: u32) -> f64 {
    let mut vars = variables!();
    let (mut total, mut used) = (Expression::default(), Expression::default());
    let mut one_each = Vec::new();
    for job in jobs {
        let mut picked = Expression::default();
        for p in job.curve.as_ref().unwrap().points() {
            if p.io_nodes > 0 && !job.compute_nodes.is_multiple_of(p.io_nodes) {
                continue;
            }
            let x = vars.add(variable().binary());
            total += p.bandwidth.0 * x;
            used += f64::from(p.io_nodes) * x;
            picked += x;
        }
        one_each.push(picked);
    }
    let mut model =
        vars.maximise(total.clone()).using(microlp).with(constraint!(used <= f64::from(io_nodes)));
    for picked in one_each {
        model = model.with(constraint!(picked == 1.0));
    }
    model.solve().unwrap().eval(&total)
}

#[test]
fn equals_integer_programming_on_1000_random_instances() {
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    for instance in 0..1000 {
        let mut jobs = Vec::new();
        for i in 0..rng.random_range(1..=7) {
            let compute_nodes = [6, 8, 12, 16, 30, 32][rng.random_range(0..6)];
            let mut pairs = vec![(0, rng.random_range(0.0..500.0))];
            for n in [1, 2, 3, 4, 5, 6, 8, 12, 16] {
                if rng.random_bool(0.5) {
                    pairs.push((n, rng.random_range(0.0..1500.0)));
                }
            }
            jobs.push(job(&format!("{i}"), compute_nodes, &pairs));
        }
        let io_nodes = rng.random_range(1..=24);
        let decision = Mckp.decide(&jobs, &Pool::of(io_nodes)).unwrap();
        let expected = integer_program(&jobs, io_nodes);
        assert!(
            (decision.total.0 - expected).abs() < 1e-6 * expected.max(1.0),
            "instance {instance}: {} by dynamic programming, {expected} by integer programming",
            decision.total.0
        );
        assert!(decision.used() <= u64::from(io_nodes));
        assert!(jobs.iter().zip(&decision.jobs).all(|(j, d)| j.divides(d.io_nodes)));
        let totals = Mckp::totals(&jobs, 24).unwrap();
        assert!((totals[(io_nodes as usize).min(totals.len() - 1)] - decision.total.0).abs() < 1e-6);
    }
}

/// The six applications of the thesis's Table 5.3, with the points its text gives.
fn table_5_3() -> Vec<Job> {
    vec![
        job("BT-C", 32, &[(0, 195.7), (1, 77.6)]),
        job("BT-D", 64, &[(1, 597.2), (2, 594.2)]),
        job("IOR-MPI", 16, &[(1, 268.4), (8, 5089.9)]),
        job("POSIX-L", 64, &[(2, 411.9), (4, 1049.9), (8, 1963.9)]),
        job("MAD", 32, &[(0, 255.9), (1, 77.8)]),
        job("S3D", 64, &[(0, 241.3), (2, 48.1)]),
    ]
}

#[test]
fn decides_as_the_thesis_does_in_table_5_3() {
    let jobs = table_5_3();
    let pool = Pool::of(12);
    let counts = |policy: &dyn Policy| -> Vec<u32> {
        policy.decide(&jobs, &pool).unwrap().jobs.iter().map(|j| j.io_nodes).collect()
    };
    assert_eq!(counts(&Mckp), [0, 1, 8, 2, 0, 0]);
    assert_eq!(counts(&Static), [1, 2, 1, 2, 1, 2]);
    assert_eq!(counts(&Proportional(forebay_policy::By::ComputeNodes)), [1, 2, 1, 2, 1, 2]);
    let (mckp, fixed) = (Mckp.decide(&jobs, &pool).unwrap(), Static.decide(&jobs, &pool).unwrap());
    assert!((mckp.total.0 - 6791.9).abs() < 1e-6 && (fixed.total.0 - 1478.0).abs() < 1e-6);
}

#[test]
fn explains_what_more_would_have_been_worth() {
    let jobs = table_5_3();
    let pool = Pool::of(12);
    let explained = Mckp.decide(&jobs, &pool).unwrap().explain(&jobs, &pool);
    let of = |id: &str| explained.iter().find(|e| e.id == id).unwrap();
    assert_eq!(of("BT-C").why, "direct access is its best");
    assert_eq!(of("IOR-MPI").why, "its best count");
    // POSIX-L would have liked 8: six more than the 2 it got.
    assert!(
        of("POSIX-L").why.starts_with("6 more would give it +1.55 GB/s, others at least +"),
        "{}",
        of("POSIX-L").why
    );
    assert_eq!(of("POSIX-L").alternatives.iter().map(|a| a.io_nodes).collect::<Vec<_>>(), [4, 8]);
    assert_eq!(of("IOR-MPI").static_io_nodes, 1);
    assert!((of("IOR-MPI").gain.unwrap() - (5089.9 - 268.4)).abs() < 1e-9);
}

#[test]
fn an_unknown_job_gets_the_default_and_the_others_the_rest() {
    let mut jobs = table_5_3();
    jobs.push(Job::new("new", 64, 64));
    let pool = Pool::of(12);
    let decision = Mckp.decide(&jobs, &pool).unwrap();
    let fixed = Static.decide(&jobs, &pool).unwrap();
    assert_eq!(decision.jobs[6].io_nodes, fixed.jobs[6].io_nodes);
    assert!(decision.jobs[6].io_nodes > 0);
    assert_eq!(decision.unpredicted(), 1);
    assert!(decision.used() <= 12);
}

#[test]
fn without_direct_access_everyone_gets_one_or_shares() {
    let jobs: Vec<Job> =
        (0..5).map(|i| job(&format!("{i}"), 8, &[(0, 9.0), (1, 10.0 + f64::from(i)), (4, 90.0)])).collect();
    let pool = |n, sharing| Pool { direct: false, sharing, ..Pool::of(n) };
    let roomy = Mckp.decide(&jobs, &pool(8, SharingRule::Needed)).unwrap();
    assert!(roomy.jobs.iter().all(|j| j.io_nodes >= 1 && !j.shared));
    assert_eq!(roomy.jobs.iter().filter(|j| j.io_nodes == 4).count(), 1);

    // Three for five jobs: one is set aside, two jobs have one of their own.
    let tight = Mckp.decide(&jobs, &pool(3, SharingRule::Needed)).unwrap();
    assert_eq!(tight.jobs.iter().filter(|j| j.shared).count(), 3);
    assert_eq!(tight.used(), 3);
    // Those who lose least by sharing share.
    assert_eq!(tight.jobs.iter().map(|j| j.shared).collect::<Vec<_>>(), [true, true, true, false, false]);
    assert_eq!(tight.jobs[0].bandwidth.unwrap().0, 10.0 / 5.0);

    // Enough for one each, but a lone I/O node shared by most leaves four for one of them.
    let better = Mckp.decide(&jobs, &pool(5, SharingRule::Better)).unwrap();
    assert!(better.total.0 > Mckp.decide(&jobs, &pool(5, SharingRule::Needed)).unwrap().total.0);

    let none = Mckp.decide(&jobs, &pool(0, SharingRule::Needed));
    assert_eq!(none.unwrap_err(), PolicyError::NoIoNodes { jobs: 5 });
}

#[test]
fn nobody_is_put_on_io_nodes_that_are_not_admitted() {
    let jobs = table_5_3();
    let mut pool = Pool::of(12);
    for node in &mut pool.nodes[..9] {
        node.admitted = false;
    }
    for kind in PolicyKind::ALL.into_iter().filter(|&k| k != PolicyKind::Oracle) {
        let decision = kind.build(&Default::default()).unwrap().decide(&jobs, &pool).unwrap();
        assert_eq!(decision.io_nodes, 3, "{kind}");
        let placed = forebay_policy::placement::place(&decision, &jobs, &pool);
        assert!(placed.iter().flatten().all(|n| n.0 >= 9), "{kind}");
    }
}

#[test]
fn static_leaves_running_jobs_alone_and_divides_by_the_machine() {
    let mut jobs = table_5_3();
    jobs[0].current = Some(Current { io_nodes: 4, ..Current::default() });
    let pool = Pool { compute_nodes: Some(96), ..Pool::of(12) };
    let decision = Static.decide(&jobs, &pool).unwrap();
    assert_eq!(decision.jobs[0].io_nodes, 4);
    // 64 of 96 compute nodes are worth 8 of 12 I/O nodes.
    assert_eq!(decision.jobs[3].io_nodes, 8);

    // 1.4 of 12 is rounded, not rounded up; 0.1 is one.
    let fully = |id, nodes| job(id, nodes, &[(0, 1.0), (1, 2.0), (2, 3.0), (4, 4.0), (8, 5.0)]);
    let jobs = [fully("a", 32), fully("b", 2), fully("c", 240)];
    let counts: Vec<_> =
        Static.decide(&jobs, &Pool::of(12)).unwrap().jobs.iter().map(|j| j.io_nodes).collect();
    assert_eq!(counts, [1, 1, 8]);
}
