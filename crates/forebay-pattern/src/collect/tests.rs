//! The collector against small examples and against the obvious way to compute the same.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn access(client: u64, file: u64, op: OpKind, offset: u64, len: u64) -> Access {
    Access { flow: FlowId(1), client: ClientId(client), file: FileId(file), op, offset, len }
}

fn write(client: u64, file: u64, offset: u64) -> Access {
    access(client, file, OpKind::Write, offset, 100)
}

#[test]
fn sequence_jumps_and_distance() {
    let mut c = Collector::new(Nanos::ZERO);
    // Client 1: 0, 100 (sequential), 500 (jump 300), 900 (jump 300, regular), 0 (back, irregular).
    for offset in [0, 100, 500, 900, 0] {
        c.arrive(Nanos(10), &write(1, 7, offset));
    }
    let m = &c.close(Nanos::from_secs(1)).flows[0];
    assert_eq!((m.judged, m.sequential, m.forward, m.jumps, m.regular), (4, 1, 2, 2, 1));
    assert_eq!(m.offset_distance, (100.0 + 400.0 + 400.0 + 900.0) / 4.0);
    assert_eq!(m.jump_width, (300.0 + 300.0 + 1000.0) / 3.0);
    assert_eq!((m.size_min, m.size_max, m.size_p50, m.size_mean), (100, 100, 100, 100.0));
}

#[test]
fn a_stream_goes_on_over_the_interval() {
    let mut c = Collector::new(Nanos::ZERO);
    c.arrive(Nanos(1), &write(1, 7, 0));
    c.close(Nanos(10));
    c.arrive(Nanos(11), &write(1, 7, 100));
    let m = &c.close(Nanos(20)).flows[0];
    assert_eq!((m.judged, m.sequential, m.writes, m.files, m.clients), (1, 1, 1, 1, 1));
    assert!(c.close(Nanos(30)).flows.is_empty());
}

#[test]
fn busy_time_and_outstanding() {
    let mut c = Collector::new(Nanos::ZERO);
    c.arrive(Nanos(100), &write(1, 7, 0));
    c.arrive(Nanos(200), &write(2, 7, 0));
    c.complete(Nanos(300), FlowId(1), OpKind::Write, 100);
    c.complete(Nanos(400), FlowId(1), OpKind::Write, 50);
    let i = c.close(Nanos(1000));
    assert_eq!(i.load, Load { offered: 200, served: 150, busy: Nanos(300), outstanding: 400.0 / 300.0 });
    assert_eq!(i.flows[0].busy, Nanos(300));
    // A request still in service makes the next interval busy from its beginning.
    c.arrive(Nanos(1500), &write(1, 7, 0));
    c.close(Nanos(2000));
    let i = c.close(Nanos(3000));
    assert_eq!((i.load.busy, i.load.outstanding), (Nanos(1000), 1.0));
}

#[test]
fn what_was_not_there_was_not_read() {
    let mut c = Collector::new(Nanos::ZERO);
    let read = access(1, 7, OpKind::Read, 0, 131_072);
    // A file of 4 KiB and its end, by a large buffer; and a write that is done in the next interval.
    for moved in [4096, 0] {
        c.arrive(Nanos(100), &read);
        c.complete(Nanos(200), FlowId(1), OpKind::Read, moved);
    }
    c.arrive(Nanos(300), &write(1, 7, 0));
    let i = c.close(Nanos(1000));
    let m = &i.flows[0];
    assert_eq!((m.moved(), m.served, i.load.served), ((4096, 0), 4096, 4096));
    assert_eq!((m.reads, m.bytes_read, m.size_max), (2, 262_144, 131_072), "as asked for");
    c.complete(Nanos(1100), FlowId(1), OpKind::Write, 60);
    assert_eq!(c.close(Nanos(2000)).flows[0].moved(), (0, 60));
}

#[test]
fn small_files_read_with_a_large_buffer_are_read_from_one_end_to_the_other() {
    let mut c = Collector::new(Nanos::ZERO);
    for file in 1..=20 {
        for (offset, moved) in [(0, 4096), (4096, 0)] {
            c.arrive(Nanos(100), &access(1, file, OpKind::Read, offset, 131_072));
            c.complete(Nanos(200), FlowId(1), OpKind::Read, moved);
            c.ended(FlowId(1), FileId(file), offset + moved);
        }
    }
    let m = &c.close(Nanos(1000)).flows[0];
    assert_eq!((m.judged, m.sequential, m.files), (20, 20, 20));
    // Elsewhere is elsewhere.
    c.arrive(Nanos(1100), &access(1, 1, OpKind::Read, 100, 131_072));
    assert_eq!(c.close(Nanos(2000)).flows[0].sequential, 0);
}

#[test]
fn time_between_arrivals() {
    let mut c = Collector::new(Nanos::ZERO);
    for now in [100, 200, 500] {
        c.arrive(Nanos(now), &write(1, 7, 0));
    }
    let m = &c.close(Nanos(1000)).flows[0];
    assert!((m.arrival_mean - 200e-9).abs() < 1e-15);
    assert!((m.arrival_cv - 0.5).abs() < 1e-9);
    // The gap to the last arrival of the interval before counts.
    c.arrive(Nanos(1100), &write(1, 7, 0));
    let m = &c.close(Nanos(2000)).flows[0];
    assert!((m.arrival_mean - 600e-9).abs() < 1e-15);
    assert_eq!(m.arrival_cv, 0.0);
}

#[test]
fn metadata_counts_clients_not_files() {
    let mut c = Collector::new(Nanos::ZERO);
    for client in 0..5 {
        c.arrive(Nanos(1), &access(client, 0, OpKind::Metadata, 0, 0));
    }
    let m = &c.close(Nanos::from_secs(1)).flows[0];
    assert_eq!((m.metadata, m.clients, m.files, m.data_requests()), (5, 5, 0, 0));
    assert_eq!(m.metadata_rate(Nanos::from_secs(1)), 5.0);
}

#[test]
fn memory_is_bounded_and_given_back() {
    let mut c = Collector::new(Nanos::ZERO);
    let n = MAX_STREAMS as u64 + 1000;
    for file in 0..n {
        c.arrive(Nanos(file), &write(1, file, 0));
    }
    let m = &c.close(Nanos::from_secs(1)).flows[0];
    assert_eq!(m.writes, n);
    assert_eq!(m.files as usize, MAX_STREAMS);
    assert_eq!(c.followed(), MAX_STREAMS);
    for s in 2..2 + u64::from(FORGET_AFTER) {
        c.close(Nanos::from_secs(s));
    }
    assert_eq!(c.followed(), 0);
    c.arrive(Nanos::from_secs(100), &write(1, 5, 0));
    assert_eq!(c.close(Nanos::from_secs(101)).flows[0].files, 1);
}

#[test]
fn the_busiest_file_is_named() {
    let mut c = Collector::new(Nanos::ZERO);
    for file in [9, 4, 9, 4, 2] {
        c.arrive(Nanos(1), &write(1, file, 0));
    }
    assert_eq!(c.close(Nanos(2)).flows[0].top_file, Some(FileId(4)));
}

fn accesses() -> impl Strategy<Value = Vec<(Access, bool)>> {
    let one = (0u32..3, 0u64..4, 0u64..4, 0u8..3, 0u64..6, 1u64..3).prop_map(
        |(flow, client, file, op, at, len)| {
            let op = [OpKind::Read, OpKind::Write, OpKind::Metadata][op as usize];
            Access {
                flow: FlowId(flow),
                client: ClientId(client),
                file: FileId(file),
                op,
                offset: at * 512,
                len: len * 512,
            }
        },
    );
    prop::collection::vec((one, prop::bool::weighted(0.1)), 1..200)
}

proptest! {
    /// The collector against the obvious way to compute the same, over several intervals.
    #[test]
    fn agrees_with_the_reference(events in accesses()) {
        let mut collector = Collector::new(Nanos::ZERO);
        let mut ends: BTreeMap<(FlowId, ClientId, FileId), u64> = BTreeMap::new();
        let mut last: BTreeMap<(FlowId, FileId), u64> = BTreeMap::new();
        let mut now = 0;
        let mut interval: Vec<(Access, Option<bool>, Option<u64>)> = Vec::new();
        for (access, close_after) in events {
            now += 1000;
            collector.arrive(Nanos(now), &access);
            let (mut sequential, mut distance) = (None, None);
            if access.op != OpKind::Metadata {
                let key = (access.flow, access.client, access.file);
                sequential = ends.insert(key, access.offset + access.len).map(|end| end == access.offset);
                distance = last.insert((access.flow, access.file), access.offset).map(|l| l.abs_diff(access.offset));
            }
            interval.push((access, sequential, distance));
            if close_after {
                let closed = collector.close(Nanos(now));
                check(&closed, &interval)?;
                interval.clear();
            }
        }
        check(&collector.close(Nanos(now + 1)), &interval)?;
    }
}

fn check(closed: &Interval, events: &[(Access, Option<bool>, Option<u64>)]) -> Result<(), TestCaseError> {
    let flows: BTreeSet<FlowId> = events.iter().map(|e| e.0.flow).collect();
    prop_assert_eq!(
        closed.flows.iter().map(|m| m.flow).collect::<Vec<_>>(),
        flows.into_iter().collect::<Vec<_>>()
    );
    for m in &closed.flows {
        let mine: Vec<_> = events.iter().filter(|e| e.0.flow == m.flow).collect();
        let data: Vec<_> = mine.iter().filter(|e| e.0.op != OpKind::Metadata).collect();
        let distinct = |f: &dyn Fn(&Access) -> (u64, u64), of: &[&(Access, Option<bool>, Option<u64>)]| {
            of.iter().map(|e| f(&e.0)).collect::<BTreeSet<_>>().len() as u32
        };
        let data: Vec<&(Access, Option<bool>, Option<u64>)> = data.into_iter().copied().collect();
        prop_assert_eq!(m.clients, distinct(&|a| (a.client.0, 0), &mine));
        prop_assert_eq!(m.files, distinct(&|a| (a.file.0, 0), &data));
        prop_assert_eq!(m.streams, distinct(&|a| (a.client.0, a.file.0), &data));
        prop_assert_eq!(m.metadata, (mine.len() - data.len()) as u64);
        prop_assert_eq!(m.bytes(), data.iter().map(|e| e.0.len).sum::<u64>());
        prop_assert_eq!(m.size_min, data.iter().map(|e| e.0.len).min().unwrap_or(0));
        prop_assert_eq!(m.size_max, data.iter().map(|e| e.0.len).max().unwrap_or(0));
        prop_assert_eq!(m.judged, data.iter().filter(|e| e.1.is_some()).count() as u64);
        prop_assert_eq!(m.sequential, data.iter().filter(|e| e.1 == Some(true)).count() as u64);
        let distances: Vec<u64> = data.iter().filter_map(|e| e.2).collect();
        let expected = if distances.is_empty() {
            0.0
        } else {
            distances.iter().sum::<u64>() as f64 / distances.len() as f64
        };
        prop_assert!((m.offset_distance - expected).abs() < 1e-6);
    }
    Ok(())
}
