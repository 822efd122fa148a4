//! A job that is slowed by another hears by which, and what another scheduler would have done for it.

mod common;

use common::*;
use forebay_node::config::EmulatedServers;
use forebay_node::control::Command;
use forebay_sched::emulate::{ServerModel, StorageModel};
use forebay_types::Nanos;
use forebay_wire::frame::Opcode;
use std::sync::atomic::{AtomicBool, Ordering};

/// One server that takes a millisecond for a request, whoever sends it.
fn storage() -> EmulatedServers {
    let server = ServerModel { per_request: Nanos::from_millis(1), ..ServerModel::default() };
    EmulatedServers::new(StorageModel { servers: 1, stripe: 1 << 20, server })
}

/// Keeps sixteen writes under way until told to end.
fn crowd(mut client: Client, end: &AtomicBool) {
    let handle = client.create("large");
    let mut under_way = 0;
    for step in 0u64.. {
        if end.load(Ordering::Relaxed) {
            break;
        }
        let mut header = client.header(Opcode::Write, 65536);
        (header.handle, header.offset) = (handle.into(), (step % 64 * 65536).into());
        client.send(&header, &[1; 65536]);
        under_way += 1;
        if under_way == 16 {
            assert_eq!(client.receive().status(), 0);
            under_way -= 1;
        }
    }
    for _ in 0..under_way {
        assert_eq!(client.receive().status(), 0);
    }
}

#[test]
fn the_aggressor_is_named() {
    let node = TestNode::with(|c| {
        c.emulated = Some(storage());
        c.dispatchers = 1;
        c.scheduler = "fifo:merge=1".parse().unwrap();
    });
    let connect = |job: &str| Client::connect(node.address, &SECRET, job, new_session()).unwrap();
    let end = AtomicBool::new(false);
    let (mut victim, aggressor) = (connect("victim"), connect("aggressor"));
    std::thread::scope(|s| {
        s.spawn(|| crowd(aggressor, &end));
        let handle = victim.create("small");
        eventually("the aggressor is at work", || node.report().waiting > 4);
        for step in 0..60 {
            assert_eq!(victim.write(handle, step * 4096, &[2; 4096]), Ok(4096));
        }
        end.store(true, Ordering::Relaxed);
    });
    let what_if = Some("sfq:merge=1".parse().unwrap());
    let reply = victim.control(&Command::Blame { job: "victim".into(), since: Nanos::ZERO, what_if });
    let found = reply.blame.expect("the node knows the job");
    println!("{found:?}");
    assert_eq!(found.requests, 60);
    let waited = found.total - found.service;
    assert!(waited > found.service, "sixteen are before it: {found:?}");
    // It sends one at a time, so that all its waiting is the other's doing.
    assert!(found.behind["aggressor"] >= 0.8 * waited, "{found:?}");
    assert_eq!(found.throttled, 0.0);
    let parts = found.service + found.storage + found.idle + found.behind.values().sum::<f64>();
    assert!((parts / found.total - 1.0).abs() < 1e-6, "nothing is left unexplained: {found:?}");
    let (now, then) = found.what_if.expect("it was asked for");
    assert!(then < now * 0.5, "in turns it would wait for one, not for sixteen: {found:?}");
    let nobody = victim.control(&Command::Blame { job: "nobody".into(), since: Nanos::ZERO, what_if: None });
    assert_eq!((nobody.blame, nobody.error), (None, None));
    // Another job of the name begins.
    let began = victim.control(&Command::Job).job.expect("its own").time;
    let handle = victim.create("again");
    for step in 0..5 {
        assert_eq!(victim.write(handle, step * 4096, &[2; 4096]), Ok(4096));
    }
    for (since, requests) in [(Nanos::ZERO, 65), (began, 5)] {
        let reply = victim.control(&Command::Blame { job: "victim".into(), since, what_if: None });
        let found = reply.blame.expect("the node knows the job");
        assert_eq!(found.requests, requests);
        assert_eq!(found.behind.contains_key("aggressor"), since == Nanos::ZERO, "{found:?}");
    }
}
