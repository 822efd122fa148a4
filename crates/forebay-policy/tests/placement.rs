//! Placement: what holds for any decision, and that it moves no more than it must.

use forebay_policy::placement::place;
use forebay_policy::{BandwidthCurve, Job, Mckp, One, Policy, Pool};
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
            let mut shared = None;
            for (nodes, chosen) in placed.iter().zip(&decision.jobs) {
                let expected = if chosen.shared { 1 } else { chosen.io_nodes as usize };
                prop_assert_eq!(nodes.len(), expected);
                for &n in nodes {
                    prop_assert!(pool.nodes[n.0 as usize].admitted);
                    if chosen.shared {
                        prop_assert_eq!(*shared.get_or_insert(n), n);
                    } else {
                        *users.entry(n).or_default() += 1;
                    }
                }
            }
            prop_assert!(users.values().all(|&u| u == 1));
            prop_assert!(shared.is_none_or(|n| !users.contains_key(&n)));
            if round == 1 {
                for ((job, nodes), chosen) in jobs.iter().zip(&placed).zip(&decision.jobs) {
                    let held = job.current.as_ref().unwrap();
                    if held.shared == chosen.shared {
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
