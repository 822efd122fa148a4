//! What an admin has pinned is not the policy's to give.

use super::*;

fn at(c: &Core, id: &str) -> Vec<u32> {
    let mut nodes: Vec<u32> = c.jobs[id].nodes().iter().map(|n| n.0).collect();
    nodes.sort_unstable();
    nodes
}

#[test]
fn pinned_jobs_and_their_nodes_are_out_of_the_pool() {
    let mut c = core(PolicyKind::Mckp, &Kept::default(), 1, secs(0));
    for n in 0..4 {
        c.node_hello(secs(0), ConnectionId(u64::from(n)), hello(n)).unwrap();
    }
    c.register(secs(1), request("narrow", Some("narrow")), SECRET).unwrap();
    c.register(secs(1), request("wide", Some("wide")), SECRET).unwrap();
    // Each pinned node is one less for the others: two are best for `wide` then, and none of them is `narrow`'s.
    c.pin(secs(2), "narrow", vec![NodeId(0), NodeId(1)]).unwrap();
    assert_eq!((at(&c, "narrow"), at(&c, "wide")), (vec![0, 1], vec![2, 3]));
    // With fewer I/O nodes left than jobs are, those of a pinned one are not kept free.
    c.pin(secs(3), "narrow", (0..4).map(NodeId).collect()).unwrap();
    assert_eq!(at(&c, "narrow"), [0, 1, 2, 3]);
    assert!(!at(&c, "wide").is_empty());
    // All are pinned.
    c.pin(secs(4), "wide", vec![NodeId(3)]).unwrap();
    assert_eq!((at(&c, "narrow"), at(&c, "wide")), (vec![0, 1, 2, 3], vec![3]));
    c.pin(secs(5), "narrow", vec![NodeId(3)]).unwrap();
    c.register(secs(6), request("third", Some("wide")), SECRET).unwrap();
    assert!(!at(&c, "third").contains(&3), "{:?}", at(&c, "third"));
    c.pin(secs(7), "narrow", Vec::new()).unwrap();
    assert!(at(&c, "narrow") != [3] && at(&c, "wide") == [3]);
}
