//! Placement: what holds for any decision, and that it moves no more than it must.

use forebay_policy::placement::place;
use forebay_policy::{BandwidthCurve, Decision, Fair, Job, Mckp, One, Policy, Pool, Static};
use forebay_types::NodeId;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn jobs(curves: &[Vec<u32>]) -> Vec<Job> {
    let job = |(i, mbs): (usize, &Vec<u32>)| {
        let pairs = [0, 1, 2, 4, 8].into_iter().zip(mbs.iter().map(|&b| f64::from(b)));
        Job::new(format!("{i}"), 16, 16).with_curve(BandwidthCurve::from_pairs(pairs).unwrap())
    };
    curves.iter().enumerate().map(job).collect()
}

proptest! {
    #[test]
    fn nodes_are_admitted_distinct_and_own(
        curves in prop::collection::vec(prop::collection::vec(0u32..2000, 5), 1..12),
        again in prop::collection::vec(prop::collection::vec(0u32..2000, 5), 12),
        admitted in prop::collection::vec(any::<bool>(), 1..30),
        direct in any::<bool>(),
    ) {
        let mut pool = Pool { direct, ..Pool::of(admitted.len() as u32) };
        for (node, &admitted) in pool.nodes.iter_mut().zip(&admitted) {
            node.admitted = admitted;
        }
        let mut jobs = jobs(&curves);
        // Twice: the second time from where the first left them, with other curves.
        for round in 0..2 {
            let Ok(decision) = Mckp.decide(&jobs, &pool) else { return Ok(()) };
            let placed = place(&decision, &jobs, &pool);
            let mut users: BTreeMap<NodeId, usize> = BTreeMap::new();
            let mut sharing: BTreeMap<NodeId, usize> = BTreeMap::new();
            for (nodes, chosen) in placed.iter().zip(&decision.jobs) {
                let expected = if chosen.shared { 1 } else { chosen.io_nodes as usize };
                prop_assert_eq!(nodes.len(), expected);
                for &n in nodes {
                    prop_assert!(pool.nodes[n.0 as usize].admitted);
                    if chosen.shared {
                        *sharing.entry(n).or_default() += 1;
                    } else {
                        *users.entry(n).or_default() += 1;
                    }
                }
            }
            prop_assert!(users.values().all(|&u| u == 1));
            prop_assert!(sharing.keys().all(|n| !users.contains_key(n)));
            let free = pool.available() as usize - users.len();
            let all: usize = sharing.values().sum();
            prop_assert_eq!(sharing.len(), all.min(free), "they are on all that nobody has for himself");
            prop_assert!(sharing.values().all(|&n| n <= all.div_ceil(free.max(1))), "{:?}", sharing);
            prop_assert_eq!(decision.used() as usize, users.len() + sharing.len());
            if round == 1 {
                for ((job, nodes), chosen) in jobs.iter().zip(&placed).zip(&decision.jobs) {
                    let held = job.current.as_ref().unwrap();
                    if !held.shared && !chosen.shared {
                        let kept = nodes.iter().filter(|n| held.nodes.contains(n)).count();
                        prop_assert_eq!(kept, held.nodes.len().min(nodes.len()), "{:?} to {:?}", held, nodes);
                    }
                }
            }
            for ((job, nodes), chosen) in jobs.iter_mut().zip(placed).zip(&decision.jobs) {
                job.current = Some(chosen.held(nodes));
            }
            let new = crate::jobs(&again[..curves.len()]);
            for (job, new) in jobs.iter_mut().zip(new) {
                job.curve = new.curve;
            }
        }
    }
}

/// How many jobs each I/O node has.
fn loads(placed: &[Vec<NodeId>], pool: &Pool) -> BTreeMap<NodeId, usize> {
    let mut loads: BTreeMap<NodeId, usize> = pool.admitted().map(|n| (n, 0)).collect();
    placed.iter().flatten().for_each(|n| *loads.entry(*n).or_default() += 1);
    loads
}

fn held(jobs: &mut [Job], decision: &Decision, placed: Vec<Vec<NodeId>>) {
    for ((job, nodes), chosen) in jobs.iter_mut().zip(placed).zip(&decision.jobs) {
        job.current = Some(chosen.held(nodes));
    }
}

proptest! {
    /// Jobs of which nothing is known come and go: more than there are I/O nodes are spread evenly, and
    /// nobody moves who need not.
    #[test]
    fn no_io_node_stands_idle_while_jobs_share(
        io_nodes in 1u32..12,
        steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 1..40),
        fair in any::<bool>(),
    ) {
        let pool = Pool { direct: false, ..Pool::of(io_nodes) };
        let fair = fair.then(|| Fair::new(Default::default()).unwrap());
        let policy: &dyn Policy = match &fair {
            Some(fair) => fair,
            None => &Mckp,
        };
        let mut jobs: Vec<Job> = Vec::new();
        for (i, (begins, which)) in steps.into_iter().enumerate() {
            if begins || jobs.is_empty() {
                jobs.push(Job::new(format!("{i}"), 1, 1));
            } else {
                jobs.remove(which.index(jobs.len()));
            }
            let decision = policy.decide(&jobs, &pool).unwrap();
            let placed = place(&decision, &jobs, &pool);
            prop_assert!(placed.iter().all(|nodes| nodes.len() == 1), "{:?}", placed);
            let loads = loads(&placed, &pool);
            let (least, most) = (loads.values().min().unwrap(), loads.values().max().unwrap());
            prop_assert!(most - least <= 1, "{} jobs: {:?}", jobs.len(), loads);
            let before = jobs.iter().filter_map(|j| j.current.as_ref());
            let moved = jobs.iter().zip(&placed).filter(|(j, to)| j.current.as_ref().is_some_and(|c| c.nodes != **to));
            // One begins or ends: at most one other has to make up for it.
            prop_assert!(moved.count() <= 1, "{:?} to {:?}", before.collect::<Vec<_>>(), placed);
            held(&mut jobs, &decision, placed);
        }
    }
}

#[test]
fn jobs_without_a_curve_have_what_static_would_give_them() {
    for (io_nodes, count) in [(3, 4), (4, 6), (2, 9)] {
        let pool = Pool { direct: false, ..Pool::of(io_nodes) };
        let jobs: Vec<Job> = (0..count).map(|i| Job::new(format!("{i}"), 1, 1)).collect();
        let even = |policy: &dyn Policy| {
            let mut loads: Vec<usize> =
                loads(&place(&policy.decide(&jobs, &pool).unwrap(), &jobs, &pool), &pool)
                    .into_values()
                    .collect();
            loads.sort_unstable();
            loads
        };
        assert_eq!(even(&Mckp), even(&Static), "{count} jobs on {io_nodes}");
        assert_eq!(even(&Fair::new(Default::default()).unwrap()), even(&Static));
    }
    // A job that could use all of them leaves the unknown ones theirs.
    let pool = Pool { direct: false, ..Pool::of(4) };
    let mut jobs: Vec<Job> = (0..5).map(|i| Job::new(format!("{i}"), 4, 4)).collect();
    jobs[0].curve = Some(BandwidthCurve::from_pairs([(1, 10.0), (2, 100.0), (4, 1000.0)]).unwrap().into());
    let decision = Mckp.decide(&jobs, &pool).unwrap();
    assert_eq!(decision.jobs.iter().map(|j| j.io_nodes).collect::<Vec<_>>(), [1, 0, 0, 0, 0]);
    let placed = place(&decision, &jobs, &pool);
    let mut loads: Vec<usize> = loads(&placed, &pool).into_values().collect();
    loads.sort_unstable();
    assert_eq!(loads, [1, 1, 1, 2]);
}

#[test]
fn when_more_is_handed_out_than_there_is_the_load_is_even() {
    let jobs = jobs(&vec![vec![1, 2, 3, 4, 5]; 7]);
    let pool = Pool::of(3);
    let placed = place(&One.decide(&jobs, &pool).unwrap(), &jobs, &pool);
    let mut users: BTreeMap<NodeId, usize> = BTreeMap::new();
    placed.iter().flatten().for_each(|&n| *users.entry(n).or_default() += 1);
    let mut loads: Vec<_> = users.into_values().collect();
    loads.sort_unstable();
    assert_eq!(loads, [2, 2, 3]);
}

#[test]
fn of_two_jobs_that_shared_an_io_node_one_moves() {
    let mut jobs = jobs(&vec![vec![0, 5, 1, 1, 1]; 2]);
    for job in &mut jobs {
        job.current =
            Some(forebay_policy::Current { io_nodes: 1, nodes: vec![NodeId(2)], ..Default::default() });
    }
    let pool = Pool::of(4);
    let placed = place(&Mckp.decide(&jobs, &pool).unwrap(), &jobs, &pool);
    assert_eq!(placed[0], [NodeId(2)]);
    assert_eq!(placed[1], [NodeId(0)]);
}
