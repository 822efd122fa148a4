//! Requests that wait: every scheduler serves all of them, merged ones keep their own answers.

mod common;

use common::*;
use forebay_node::config::EmulatedServers;
use forebay_node::control::Command;
use forebay_sched::SchedulerConfig;
use forebay_sched::emulate::{ServerModel, StorageModel};
use forebay_types::Nanos;
use forebay_wire::flags::OpenFlags;
use forebay_wire::frame::{Opcode, flag};
use forebay_wire::message::{Meta, Target};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Slow enough that requests wait for each other.
fn slow(servers: u32) -> EmulatedServers {
    slower(servers, Nanos::from_micros(200))
}

fn slower(servers: u32, per_request: Nanos) -> EmulatedServers {
    EmulatedServers::new(StorageModel {
        servers,
        stripe: 16 << 10,
        server: ServerModel {
            bandwidth: 2_000_000_000,
            per_request,
            latency: Nanos::from_micros(50),
            seek: Nanos::from_micros(10),
            seek_half: 1 << 20,
            penalty: 0.1,
            ..ServerModel::default()
        },
    })
}

fn pattern(id: usize, i: u64) -> Vec<u8> {
    (0..4096).map(|b| (id as u64 * 31 + i * 7 + b) as u8).collect()
}

/// Writes and reads back, several requests at a time, and some metadata in between.
fn work(mut c: Client, id: usize) {
    let h = c.open(&format!("file-{}", id % 2), RW | OpenFlags::CREATE).unwrap();
    let base = id as u64 * (1 << 20);
    for round in 0..3u64 {
        let mut expected = HashMap::new();
        for i in 0..8 {
            let at = base + (round * 8 + i) * 4096;
            let mut header = c.header(Opcode::Write, 4096);
            (header.handle, header.offset) = (h.into(), at.into());
            c.send(&header, &pattern(id, round * 8 + i));
            expected.insert(header.id.get(), at);
        }
        for _ in 0..8 {
            let r = c.receive();
            assert_eq!((r.status(), r.header.length.get()), (0, 4096), "{}", r.text());
            assert_eq!(expected.remove(&r.header.id.get()), Some(r.header.offset.get()));
        }
        let name = format!("dir-{id}-{round}");
        c.done(&Meta::Mkdir { path: path(&name), mode: 0o700 }).unwrap();
        c.stat(Target::Path(path(&name))).unwrap();
    }
    let mut expected = HashMap::new();
    for i in 0..24u64 {
        let header = c.read_header(h, base + i * 4096, 4096);
        c.send(&header, &[]);
        expected.insert(header.id.get(), i);
    }
    for _ in 0..24 {
        let r = c.receive();
        let i = expected.remove(&r.header.id.get()).unwrap();
        assert_eq!(r.body, pattern(id, i));
    }
    let end = c.append(h, 0, b"end").unwrap();
    assert!(end >= base + 24 * 4096);
    c.close(h).unwrap();
}

#[test]
fn every_scheduler_serves_everything() {
    for name in SchedulerConfig::NAMES {
        let spec = if name == "twins" { "twins:window=250us" } else { name };
        let node = TestNode::with(|c| {
            c.scheduler = spec.parse().unwrap_or_else(|e| panic!("{e}"));
            c.emulated = Some(slow(4));
            c.dispatchers = 2;
        });
        std::thread::scope(|s| {
            for id in 0..4 {
                let job = if id < 2 { "a" } else { "b" };
                let c = Client::connect(node.address, &SECRET, job, new_session()).unwrap();
                s.spawn(move || work(c, id));
            }
        });
        let report = node.report();
        assert_eq!(report.waiting, 0, "{name}");
        let served: u64 = report.service.values().map(|s| s.written_bytes).sum();
        assert_eq!(served, 4 * (24 * 4096 + 3), "{name}");
        assert!(report.dispatched_requests > 0, "{name}: something had to wait");
        if name.starts_with("sfq") {
            assert!(report.service.values().all(|s| s.metadata > 0), "{name}: metadata is scheduled");
        }
    }
}

#[test]
fn contiguous_requests_become_one_and_keep_their_own_answers() {
    let node = TestNode::with(|c| {
        c.emulated = Some(slow(1));
        c.dispatchers = 1;
        c.scheduler = "fifo:merge=16".parse().unwrap();
        c.lease = Duration::from_millis(400);
    });
    let (mut c, mut other) = (node.client(), node.client());
    let h = c.create("f");
    let late = other.open("f", RW).unwrap();
    for i in 0..30u64 {
        let mut header = c.header(Opcode::Write, 1000);
        (header.handle, header.offset) = (h.into(), (i * 1000).into());
        c.send(&header, &[i as u8; 1000]);
    }
    for _ in 0..30 {
        assert_eq!(c.receive().status(), 0);
    }
    let report = node.report();
    assert!(report.merged_requests > 10, "{}", report.merged_requests);
    assert!(report.issued_write.max > 1000);
    let data = std::fs::read(node.path("f")).unwrap();
    assert!(data.len() == 30_000 && data.chunks(1000).enumerate().all(|(i, c)| c == [i as u8; 1000]));
    // Reads, of which the last goes over the end.
    let ids: Vec<u64> = (0..30u64)
        .map(|i| {
            let header = c.read_header(h, i * 1000 + 500, 1000);
            c.send(&header, &[]);
            header.id.get()
        })
        .collect();
    for _ in 0..30 {
        let r = c.receive();
        let i = ids.iter().position(|id| *id == r.header.id.get()).unwrap();
        assert_eq!(r.body.len(), if i == 29 { 500 } else { 1000 });
        assert_eq!(r.body[..500], [i as u8; 500]);
    }
    assert!(node.report().issued_read.max > 1000);
    // One whose lease is over among others: it alone fails.
    std::thread::sleep(Duration::from_millis(500));
    other.skew = -10_000_000_000;
    for i in 0..10u64 {
        let mut header = c.header(Opcode::Write, 1000);
        (header.handle, header.offset) = (h.into(), (i * 2000).into());
        c.send(&header, &[100; 1000]);
        let mut header = other.header(Opcode::Write, 1000);
        (header.handle, header.offset) = (late.into(), (i * 2000 + 1000).into());
        other.send(&header, &[200; 1000]);
    }
    for _ in 0..10 {
        assert_eq!(c.receive().status(), 0);
        assert!(other.receive().header.has(flag::EXPIRED));
    }
    let data = std::fs::read(node.path("f")).unwrap();
    assert!(data[..20_000].chunks(2000).all(|c| c[..1000] == [100; 1000] && c[1000] < 30));
}

#[test]
fn the_scheduler_changes_while_requests_wait() {
    let node = TestNode::with(|c| {
        c.emulated = Some(slow(4));
        c.dispatchers = 2;
    });
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        let workers: Vec<_> = (0..4)
            .map(|id| {
                s.spawn({
                    let c = node.client();
                    move || work(c, id)
                })
            })
            .collect();
        let mut control = node.client();
        let done = &done;
        s.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                for name in SchedulerConfig::NAMES {
                    let set = Command::Scheduler { set: Some(name.parse().unwrap()) };
                    assert_eq!(control.control(&set).scheduler.unwrap().name(), name);
                }
            }
        });
        for w in workers {
            w.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(node.report().waiting, 0);
}

#[test]
fn more_unanswered_requests_than_credits_end_the_connection() {
    let node = TestNode::with(|c| {
        c.emulated = Some(slow(1));
        c.dispatchers = 1;
        c.credits = 4;
    });
    let mut c = node.client();
    let mut good = node.client();
    assert_eq!(c.welcome.credits, 4);
    let h = c.create("f");
    let mut packet = Vec::new();
    for i in 0..40u64 {
        let mut header = c.header(Opcode::Write, 100);
        (header.handle, header.offset) = (h.into(), (i * 100_000).into());
        packet.extend_from_slice(header.as_bytes());
        packet.extend_from_slice(&[0; 100]);
    }
    c.stream.write_all(&packet).unwrap();
    let mut last = c.receive();
    while last.status() == 0 {
        last = c.receive();
    }
    assert_eq!(last.status(), libc::EDQUOT);
    assert!(last.text().contains("4"));
    let g = good.create("g");
    assert_eq!(good.write(g, 0, b"served"), Ok(6));
}

#[test]
fn a_long_request_does_not_look_like_a_dead_node() {
    let node = TestNode::with(|c| {
        c.emulated = Some(EmulatedServers::new(StorageModel {
            servers: 1,
            stripe: 1 << 20,
            server: ServerModel { per_request: Nanos::from_millis(900), ..ServerModel::default() },
        }));
    });
    let mut c = node.client();
    let mut header = c.header(Opcode::Ping, 0);
    c.exchange(&header, &[]);
    let mut body = Vec::new();
    Meta::Stat { target: Target::Path(path("")) }.encode(&mut body);
    header = c.header(Opcode::Meta, body.len());
    c.send(&header, &body);
    let sign = receive(&mut c.stream).unwrap();
    assert_eq!((sign.header.id.get(), sign.status()), (0, 0), "a sign of life comes before the answer");
    let r = c.receive();
    assert_eq!((r.header.id.get(), r.status()), (header.id.get(), 0));
}

#[test]
fn intervals_tell_the_pattern() {
    let node = TestNode::with(|c| c.interval = Duration::from_millis(150));
    let (mut a, mut b) = (node.client(), node.client());
    let (ha, hb) = (a.create("shared"), b.create("shared"));
    let mut rows = Vec::new();
    for round in 0..50_000u64 {
        a.write(ha, round * 8192, &[0; 4096]).unwrap();
        b.write(hb, round * 8192 + 4096, &[0; 4096]).unwrap();
        a.append(ha, 0, b"x").unwrap();
        let intervals = a.control(&Command::Intervals { after: Nanos::ZERO }).intervals.unwrap();
        rows = intervals.iter().filter_map(|i| i.dominant()).filter(|f| f.writes > 30).cloned().collect();
        if !rows.is_empty() {
            break;
        }
    }
    let row = rows.last().expect("an interval with work in it");
    assert_eq!((row.files, row.clients), (1, 2));
    assert_eq!(row.size_max, 4096);
    assert!(row.served > 0 && row.bytes_written > 0);
    let last = a.control(&Command::Intervals { after: Nanos::ZERO }).intervals.unwrap().last().unwrap().end;
    let newer = a.control(&Command::Intervals { after: last }).intervals.unwrap();
    assert!(newer.iter().all(|i| i.end > last));
}

/// Reads that reach beyond the end of the file, alone and several as one.
#[test]
fn what_is_not_there_is_not_counted() {
    for scheduler in ["fifo:merge=1", "fifo:merge=4"] {
        let node = TestNode::with(|c| {
            c.scheduler = scheduler.parse().unwrap();
            c.emulated = Some(slower(1, Nanos::from_millis(1)));
            c.dispatchers = 1;
            c.interval = Duration::from_millis(50);
        });
        let mut c = node.client();
        let handle = c.create("small");
        c.write(handle, 0, &[1; 5000]).unwrap();
        for _ in 0..3 {
            for block in 0..4 {
                let header = c.read_header(handle, block * 4096, 4096);
                c.send(&header, &[]);
            }
            let read: usize = (0..4).map(|_| c.receive().body.len()).sum();
            assert_eq!(read, 5000);
        }
        let service = node.report().service;
        assert_eq!(service.values().map(|s| s.read_bytes).sum::<u64>(), 15_000, "{scheduler}");
        let mut moved = (0, 0);
        for _ in 0..600 {
            let intervals = c.control(&Command::Intervals { after: Nanos::ZERO }).intervals.unwrap();
            let flows = intervals.iter().flat_map(|i| &i.flows).map(|f| f.moved());
            moved = flows.fold((0, 0), |sum, (read, written)| (sum.0 + read, sum.1 + written));
            if moved.0 >= 15_000 {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(moved, (15_000, 5000), "{scheduler}");
    }
}

/// Two jobs with equal weights on one node, one of which is served much on another node.
#[test]
fn what_other_nodes_serve_counts() {
    const BLOCK: usize = 4 << 20;
    let serve = |elsewhere: u64| {
        // Small requests take milliseconds, large ones half a second.
        let server = ServerModel {
            bandwidth: 8_000_000,
            per_request: Nanos::from_millis(5),
            ..ServerModel::default()
        };
        let here = TestNode::with(|c| {
            c.scheduler = "sfq".parse().unwrap();
            c.emulated = Some(EmulatedServers::new(StorageModel { servers: 1, stripe: 1 << 30, server }));
            c.dispatchers = 1;
            c.credits = 64;
            // Nobody pings while this test waits: what is queued must not lapse on a busy machine.
            c.lease = Duration::from_secs(120);
        });
        let there = TestNode::with(|c| {
            c.id = forebay_types::NodeId(1);
            c.peers = vec![forebay_types::Address::Tcp(here.address)];
            c.share_threshold = 1;
        });
        let join =
            |node: &TestNode, job: &str| Client::connect(node.address, &SECRET, job, new_session()).unwrap();
        let [mut rich, mut poor, mut first] = ["rich", "poor", "first"].map(|job| join(&here, job));
        let (hr, hp, hf) = (rich.create("r"), poor.create("p"), first.create("f"));
        let mut far = join(&there, "rich");
        let h = far.create("far");
        for i in 0..elsewhere {
            far.write(h, i * 65_536, &[0; 65_536]).unwrap();
        }
        let flow = rich.welcome.flow.0;
        eventually("the other node has told all of it", || {
            here.report().service.get(&flow).map_or(0, |s| s.elsewhere) >= elsewhere * 65_536
        });
        let send = |c: &mut Client, handle: u64, count: u64, len: usize| {
            for i in 0..count {
                let mut header = c.header(Opcode::Write, len);
                (header.handle, header.offset) = (handle.into(), (i * 2 * len as u64).into());
                c.send(&header, &vec![1; len]);
            }
        };
        // While the storage is busy for a second, both send all they have. The requests that keep it busy
        // count for less than what the rich one got elsewhere.
        send(&mut first, hf, 3, BLOCK);
        eventually("the storage is busy", || here.report().waiting > 0);
        send(&mut poor, hp, 30, 4096);
        send(&mut rich, hr, 30, 4096);
        eventually("all wait", || here.report().waiting >= 60);
        // How much was the rich one served when the poor one is done?
        for _ in 0..30 {
            assert_eq!(poor.receive().status(), 0);
        }
        let served = here.report().service[&flow].requests;
        for _ in 0..30 {
            assert_eq!(rich.receive().status(), 0);
        }
        served
    };
    let (alone, shared) = (serve(0), serve(400));
    assert!(shared + 8 < alone, "{shared} against {alone} of 30 while the other job had 30");
}
