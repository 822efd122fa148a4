//! Nothing is left waiting: under every scheduler, with few and many dispatchers, while schedulers
//! change, everything that was asked for is answered.

mod common;

use common::*;
use forebay_node::config::EmulatedServers;
use forebay_node::control::Command;
use forebay_sched::emulate::{ServerModel, StorageModel};
use forebay_types::Nanos;
use forebay_wire::flags::OpenFlags;
use forebay_wire::frame::Opcode;
use forebay_wire::message::{Meta, Target};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Every scheduler, with parameters that make it wait where it can.
const SCHEDULERS: [&str; 15] = [
    "noop",
    "fifo",
    "hbrr",
    "hbrr:quantum=1",
    "aioli",
    "aioli:wait=5ms,quantum=4KiB",
    "sjf",
    "mlf:quantum=1KiB",
    "sw:window=2ms",
    "wfq",
    "twins:window=300us",
    "sfq",
    "sfq-d:depth=2",
    "sfq-d-plus:depth=3",
    "capped:rate=50MB",
];

/// The next of a row of numbers that look random.
fn draw(state: &mut u64, below: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % below
}

/// Random requests, one or several at a time, and pauses.
fn load(mut c: Client, seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let h = c.open(&format!("file-{}", seed % 3), RW | OpenFlags::CREATE).unwrap();
    for _ in 0..12 {
        let burst = 1 + draw(&mut state, 6);
        for _ in 0..burst {
            let (block, len) = (draw(&mut state, 64), 1 + draw(&mut state, 8192) as usize);
            if draw(&mut state, 2) == 0 {
                let mut header = c.header(Opcode::Write, len);
                (header.handle, header.offset) = (h.into(), (block * 4096).into());
                c.send(&header, &vec![seed as u8; len]);
            } else {
                let header = c.read_header(h, block * 4096, len);
                c.send(&header, &[]);
            }
        }
        for _ in 0..burst {
            // Waits for at most twenty seconds.
            assert_eq!(c.receive().status(), 0);
        }
        match draw(&mut state, 4) {
            0 => drop(c.stat(Target::Path(path(""))).unwrap()),
            1 => std::thread::sleep(Duration::from_micros(draw(&mut state, 3000))),
            _ => {}
        }
    }
    c.done(&Meta::Close { handle: h }).unwrap();
}

/// The same load under one scheduler after the other, and under ones that change all the time.
fn always_drains(dispatchers: usize) {
    for (i, spec) in SCHEDULERS.iter().enumerate() {
        let node = TestNode::with(|c| {
            c.scheduler = spec.parse().unwrap_or_else(|e| panic!("{e}"));
            c.dispatchers = dispatchers;
            // Every other one on servers that keep it waiting.
            if i % 2 == 0 {
                let per_request = Nanos::from_micros(60);
                c.emulated = Some(EmulatedServers::new(StorageModel {
                    servers: 3,
                    stripe: 16 << 10,
                    server: ServerModel { per_request, ..ServerModel::default() },
                }));
            }
        });
        let join = |job: &str| Client::connect(node.address, &SECRET, job, new_session()).unwrap();
        for changing in [false, true] {
            let over = AtomicBool::new(false);
            std::thread::scope(|s| {
                let (mut control, over) = (join("control"), &over);
                if changing {
                    s.spawn(move || {
                        let mut state = 77 + i as u64;
                        while !over.load(Ordering::Relaxed) {
                            // Back to the one in question every other time, so that its state is met full.
                            let next = draw(&mut state, 2 * SCHEDULERS.len() as u64) as usize;
                            let set = SCHEDULERS.get(next).unwrap_or(spec).parse().unwrap();
                            control.control(&Command::Scheduler { set: Some(set) });
                            std::thread::sleep(Duration::from_micros(draw(&mut state, 2000)));
                        }
                    });
                }
                let clients: Vec<_> = (0..6)
                    .map(|n| {
                        let c = join(if n < 3 { "a" } else { "b" });
                        s.spawn(move || load(c, 1 + n + i as u64 * 16))
                    })
                    .collect();
                let ended: Vec<_> = clients.into_iter().map(|c| c.join()).collect();
                over.store(true, Ordering::Relaxed);
                let report = node.report();
                assert!(
                    ended.iter().all(|e| e.is_ok()),
                    "{spec}, {dispatchers} dispatchers, changing: {changing}; {} wait under {}",
                    report.waiting,
                    report.scheduler
                );
                assert_eq!(report.waiting, 0, "{spec}");
            });
        }
    }
}

#[test]
fn one_dispatcher_always_drains() {
    always_drains(1);
}

#[test]
fn two_dispatchers_always_drain() {
    always_drains(2);
}

#[test]
fn eight_dispatchers_always_drain() {
    always_drains(8);
}

/// A dispatcher that sleeps until a far time must not keep others from an earlier one.
#[test]
fn an_earlier_time_replaces_a_later_one() {
    let node = TestNode::with(|c| {
        c.scheduler = "twins:window=1000s".parse().unwrap();
        c.layout = forebay_node::config::LayoutSource::Stripe(forebay_sched::layout::Stripe {
            size: 4096,
            count: 2,
            first: 0,
        });
        c.dispatchers = 4;
    });
    // One request for each server: one of them waits for its window, and so does a dispatcher.
    let mut clients = [node.client(), node.client()];
    for (i, c) in clients.iter_mut().enumerate() {
        let h = c.create("f");
        let mut header = c.header(Opcode::Write, 1);
        (header.handle, header.offset) = (h.into(), (i as u64 * 4096).into());
        c.send(&header, b"x");
    }
    eventually("one waits", || node.report().waiting == 1);
    std::thread::sleep(Duration::from_millis(20));
    // More dispatchers sleep by now, and any of them may be the one to be woken.
    let mut control = node.client();
    for window in ["500s", "300s", "1ms"] {
        let set = format!("twins:window={window}").parse().unwrap();
        control.control(&Command::Scheduler { set: Some(set) });
    }
    for c in &mut clients {
        assert_eq!(c.receive().status(), 0);
    }
}
