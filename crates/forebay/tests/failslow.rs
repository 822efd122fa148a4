//! One of four I/O nodes is stopped for nine tenths of the time: it is screened out, its jobs are moved,
//! and it is used again after it behaves. `forebay experiment failslow` measures the same.

use forebay_control::view::NodeState;
use forebay_testkit::{ArbiterSpec, Signal, Site, Verifiers, until};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const NODES: usize = 4;

#[test]
fn a_slow_node_is_screened_out_and_taken_back() {
    let site = Site::new();
    // It need not behave for as long as in earnest.
    let settings = "policy = \"static\"\n[health]\nprobation = 3.0\n".into();
    let arbiter = site.arbiter(&ArbiterSpec { settings, ..ArbiterSpec::default() });
    let url = arbiter.url();
    let nodes: Vec<_> = (0..NODES).map(|n| site.node(n, url)).collect();
    let state = |n: u32| {
        let all = site.nodes(url)?;
        all.into_iter().find(|v| v.id.0 == n)
    };
    for n in 0..NODES as u32 {
        until(Duration::from_secs(20), "a node does not come", || {
            state(n).filter(|v| v.state == NodeState::Admitted)
        });
    }
    let grants: Vec<_> = (0..NODES)
        .map(|n| site.register(url, &format!("job-{n}"), None).expect("an answer").expect("a grant"))
        .collect();
    let clients = grants.iter().flat_map(|g| {
        let secret = g.secret.as_deref().expect("a secret");
        [site.client(g, secret), site.client(g, secret)]
    });
    let load = Verifiers::start(clients.collect());
    std::thread::sleep(Duration::from_secs(5));
    let victim = grants[1].nodes[0];
    let on_it = || {
        let mapping = site.mapping(url)?;
        Some(mapping.jobs.iter().filter(|j| j.nodes.contains(&victim)).count())
    };
    assert!(on_it().is_some_and(|n| n > 0), "the node serves jobs");

    let slow = AtomicBool::new(true);
    std::thread::scope(|s| {
        let node = &nodes[victim.0 as usize];
        s.spawn(|| {
            while slow.load(Ordering::Relaxed) {
                node.process.signal(Signal::STOP).expect("it runs");
                std::thread::sleep(Duration::from_millis(180));
                node.process.signal(Signal::CONT).expect("it runs");
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let since = Instant::now();
        // Ten seconds on a machine of its own.
        let verdict = until(Duration::from_secs(30), "the slow node is not screened out", || {
            state(victim.0).filter(|v| v.state == NodeState::Screened)
        });
        println!("screened out after {:?}: {:?}", since.elapsed(), verdict.reason);
        assert!(verdict.reason.is_some_and(|r| r.contains("probes wait")), "it says why");
        until(Duration::from_secs(5), "its jobs are not moved", || on_it().filter(|n| *n == 0));
        let others = site.nodes(url).expect("the nodes");
        assert!(others.iter().all(|v| v.id == victim || v.state == NodeState::Admitted), "{others:?}");
        std::thread::sleep(Duration::from_secs(3));
        slow.store(false, Ordering::Relaxed);
    });
    let since = Instant::now();
    until(Duration::from_secs(60), "the node is not taken back", || {
        state(victim.0).filter(|v| v.state == NodeState::Admitted)
    });
    println!("taken back after {:?}", since.elapsed());
    assert!(load.finish() > 0);
}
