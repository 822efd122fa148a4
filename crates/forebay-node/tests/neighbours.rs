//! Slow and greedy clients: they are cut off, or wait themselves; other jobs go on.

mod common;

use common::*;
use forebay_wire::frame::Opcode;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Over a Unix socket, which buffers little.
fn connect(node: &TestNode, job: &str) -> (Client, UnixStream) {
    let stream = UnixStream::connect(&node.unix).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let other = stream.try_clone().unwrap();
    let version = forebay_wire::VERSION_MAX;
    (Client::over(Box::new(stream), &SECRET, job, new_session(), version).unwrap(), other)
}

/// Asks for an answer of so many bytes and takes it slowly; says how much of it came.
fn sip(node: &TestNode, job: &str, len: usize, stop: &AtomicBool) -> usize {
    let (mut c, mut stream) = connect(node, job);
    let h = c.open("large", RW).unwrap();
    let header = c.read_header(h, 0, len);
    c.send(&header, &[]);
    let (mut sip, mut taken) = ([0; 1024], 0);
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut sip) {
            Ok(n) if n > 0 => taken += n,
            _ => break,
        }
        std::thread::sleep(Duration::from_millis(30));
    }
    taken
}

#[test]
fn who_takes_answers_slowly_leaves_other_jobs_their_memory() {
    let node = TestNode::with(|c| {
        c.memory = 32 << 20;
        c.stall_timeout = Duration::from_secs(1);
    });
    std::fs::write(node.path("large"), vec![1; 4 << 20]).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        // 32 KB/s each.
        let slow: Vec<_> = (0..64).map(|_| s.spawn(|| sip(&node, "slow", 4 << 20, &stop))).collect();
        eventually("they hold what they can", || node.report().payload_memory >= 24 << 20);
        for job in ["one", "another"] {
            let (mut c, _) = connect(&node, job);
            let h = c.create(job);
            for _ in 0..5 {
                let r = c.data(Opcode::Write, h, 0, &vec![2; 4 << 20]);
                assert_eq!(r.status(), 0, "{}", r.text());
            }
        }
        stop.store(true, Ordering::Relaxed);
        for t in slow {
            t.join().unwrap();
        }
    });
    eventually("their memory is free", || node.report().payload_memory == 0);
}

#[test]
fn who_takes_an_answer_too_slowly_is_cut_off() {
    // It takes something now and then: silence is not what it is cut off for.
    let node = TestNode::with(|c| c.stall_timeout = Duration::from_secs(4));
    std::fs::write(node.path("large"), vec![1; 1 << 20]).unwrap();
    // At this speed the whole of it would take half a minute.
    let taken = sip(&node, "slow", 1 << 20, &AtomicBool::new(false));
    assert!(taken < 1 << 20, "{taken}");
    eventually("its memory is free", || node.report().payload_memory == 0);
}

/// Jobs come and go: neither the node's table nor its queue keeps more than the last of them.
#[test]
fn flows_of_ended_jobs_are_dropped_by_the_queue_too() {
    let node = TestNode::start();
    let mut most = 0;
    for n in 0..200 {
        let mut c = Client::connect(node.address, &SECRET, &format!("job{n}"), new_session()).unwrap();
        let h = c.create("file");
        assert_eq!(c.write(h, 0, b"data"), Ok(4));
        most = most.max(node.report().service.len());
        c.goodbye(false);
    }
    assert!(most > 0, "the queue counts flows");
    eventually("ended jobs stay", || {
        let report = node.report();
        report.service.len() <= 64 && report.flows.len() <= 64
    });
}
