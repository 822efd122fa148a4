//! Traces: the scenarios do what the traces say, whatever is in them.

use forebay_explore::derived::Derived;
use forebay_explore::scenario::{Data, Fsync, Layout, Operation, Spatiality, Step, native};
use forebay_explore::trace::derived;
use forebay_types::trace::{Call, Header, Process, RECORD, Record, to_bytes};
use proptest::prelude::*;
use std::time::Duration;

const MS: u64 = 1_000_000;
const START: u64 = 1_763_520_000_000_000_000;

/// A trace under construction: every call takes 1 ms.
#[derive(Default)]
struct Making {
    records: Vec<Record>,
    hosts: u32,
    ranks: u32,
}

impl Making {
    fn call(&mut self, process: u32, file: u32, call: Call, at_ms: u64, offset: u64, bytes: u64) {
        let began = START + at_ms * MS;
        self.records.push(Record { call, process, file, offset, bytes, began, nanos: MS });
    }

    fn bytes(&self) -> Vec<u8> {
        let process = |n: u32| Process {
            host: format!("c{}", n % self.hosts.max(1)),
            pid: 100 + n,
            rank: (n < self.ranks).then_some(n),
        };
        let header = Header {
            command: "./app".into(),
            records: self.records.len() as u64,
            processes: (0..16).map(process).collect(),
            files: (0..16).map(|n| format!("/data/{n}").into_bytes()).collect(),
            ..Header::default()
        };
        let mut out = Vec::new();
        header.write(&mut out).unwrap();
        self.records.iter().for_each(|r| out.extend(to_bytes(r.words())));
        out
    }

    fn derived(&self) -> Derived {
        let derived = of(&self.bytes()).unwrap();
        let again = native::parse(&derived.to_toml(), "x").unwrap();
        assert_eq!(again[0], derived.scenario, "{}", derived.to_toml());
        derived
    }
}

fn of(bytes: &[u8]) -> Result<Derived, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.trace");
    std::fs::write(&path, bytes).unwrap();
    derived(&path).map_err(|e| e.to_string())
}

fn data(step: &Step) -> &Data {
    let Step::Data(d) = step else { panic!("{step:?}") };
    d
}

fn summary(d: &Data) -> (Operation, Layout, Spatiality, u64, Vec<u64>) {
    (d.operation(), d.target.layout, d.spatiality, d.total_size, d.sizes.iter().map(|s| s.size).collect())
}

#[test]
fn phases_are_told_apart_and_named() {
    let mut t = Making { hosts: 2, ranks: 4, ..Making::default() };
    for i in 0..50 {
        for rank in 0..4u32 {
            let turn = 4 * i + u64::from(rank);
            // Strided writes to one file; after five seconds pieces of their own files, at random; then one piece each.
            t.call(rank, 0, Call::Write, 2 * i, turn * 4096, 4096);
            t.call(rank, 1 + rank, Call::Read, 5000 + 2 * i, (i * 33 % 50) * 1000, 1000);
            t.call(rank, 0, Call::Read, 10_000 + 2 * i, (50 * u64::from(rank) + i) * 4096, 4096);
        }
    }
    let found = t.derived();
    let [job] = &found.scenario.jobs[..] else { panic!("{:?}", found.scenario.jobs) };
    assert_eq!((job.compute_nodes, job.processes_per_node, job.steps.len()), (2, 2, 5));
    let at = |i: usize| summary(data(&job.steps[i]));
    assert_eq!(at(0), (Operation::Write, Layout::Shared, Spatiality::Strided, 819_200, vec![4096]));
    assert_eq!(at(2), (Operation::Read, Layout::FilePerProcess, Spatiality::Random, 200_000, vec![1000]));
    assert_eq!(at(4), (Operation::Read, Layout::Shared, Spatiality::Contiguous, 819_200, vec![4096]));
    assert_eq!(data(&job.steps[0]).target.path, data(&job.steps[4]).target.path, "what was written is read");
    assert_eq!(job.steps[1], Step::Think(Duration::from_secs(1)), "and no five");
    for line in ["4 processes on 2 hosts, 600 calls: 3 phases of I/O", "strided", "a file each", "no I/O"] {
        assert!(found.found.contains(line), "{line}: {}", found.found);
    }
    assert!(found.found.contains("pauses without I/O are 1 s"), "{}", found.found);
    assert!(!found.found.contains("phase 1, write:"), "nothing is to be said of it: {}", found.found);
}

#[test]
fn what_has_no_words_is_said() {
    let mut t = Making::default();
    // Process 0 alone writes a header, and is done long before all four write and read what they share.
    t.call(0, 9, Call::Write, 0, 0, 100);
    t.call(0, 9, Call::Sync, 2, 0, 0);
    for i in 0..100u64 {
        for process in 0..4u32 {
            let call = if i % 2 == 0 { Call::Write } else { Call::Read };
            // Eleven sizes, none of which makes up most of the bytes.
            t.call(process, 3, call, 4000 + 2 * i, i * 1_000_000, 10_000 + i % 11);
        }
    }
    let found = t.derived();
    let jobs = &found.scenario.jobs;
    assert_eq!(jobs.iter().map(|j| j.processes()).collect::<Vec<_>>(), [1, 4]);
    assert_eq!(jobs[0].steps.len(), 1);
    assert_eq!(data(&jobs[0].steps[0]).fsync, Fsync::End);
    assert!(jobs[1].delay >= Duration::from_secs(1) && jobs[1].delay < Duration::from_millis(1100));
    let mixed = data(&jobs[1].steps[0]);
    assert_eq!((mixed.operation(), mixed.read_share, mixed.sizes.len()), (Operation::Mixed, 0.5, 8));
    assert_eq!(mixed.spatiality, Spatiality::Strided);
    for says in ["of its sizes the 8 with the most bytes are taken, 7", "jobs of their own", "write, synced"]
    {
        assert!(found.found.contains(says), "{says}: {}", found.found);
    }
    let cut = of(&t.bytes()[..t.bytes().len() - 10 * RECORD]).unwrap();
    assert!(cut.found.contains("10 of its 402 records are missing"), "{}", cut.found);
    assert!(of(&Making::default().bytes()).err().unwrap().contains("no reads or writes"));
    assert!(of(b"garbage").err().unwrap().contains("app.trace: not a trace"));
    assert!(of(&[7; 1 << 17]).err().unwrap().contains("not a trace of `forebay run --record`"));
}

#[test]
fn a_file_of_which_one_process_has_what_another_wrote_is_not_shared() {
    let mut t = Making::default();
    for i in 0..20 {
        t.call(0, 1, Call::Write, 2 * i, i * 8192, 8192);
        t.call(5, 1, Call::Read, 50 + 2 * i, i * 8192, 8192);
    }
    let found = t.derived();
    let [job] = &found.scenario.jobs[..] else { panic!("{:?}", found.scenario.jobs) };
    assert_eq!((job.processes(), job.steps.len()), (1, 2));
    for (step, operation) in job.steps.iter().zip([Operation::Write, Operation::Read]) {
        let own = (operation, Layout::FilePerProcess, Spatiality::Contiguous, 163_840, vec![8192]);
        assert_eq!(summary(data(step)), own);
        assert_eq!(data(step).target.path, "app-own1");
    }
}

fn any_record() -> impl Strategy<Value = Record> {
    let call = prop::sample::select(vec![Call::Open, Call::Close, Call::Read, Call::Write, Call::Sync]);
    let number = || prop_oneof![0..100_000u64, any::<u64>(), Just(u64::MAX)];
    (call, 0..16u32, 0..16u32, number(), number(), number(), number()).prop_map(
        |(call, process, file, offset, bytes, began, nanos)| Record {
            call,
            process,
            file,
            offset,
            bytes,
            began,
            nanos,
        },
    )
}

proptest! {
    #[test]
    fn whatever_was_done_gives_a_scenario_or_a_reason(
        records in prop::collection::vec(any_record(), 0..60), ranks in 0..16u32, hosts in 1..5u32
    ) {
        let making = Making { records, hosts, ranks };
        if let Ok(found) = of(&making.bytes()) {
            found.scenario.check().unwrap();
            let again = native::parse(&found.to_toml(), "x");
            prop_assert!(again.is_ok(), "{again:?} {}", found.to_toml());
        }
    }
}

/// Of requests at random half begin behind the one before.
#[test]
fn what_is_random_has_no_order() {
    for seed in 1..=20u64 {
        for shared in [true, false] {
            let (mut t, mut state) = (Making { hosts: 1, ranks: 4, ..Making::default() }, seed);
            for i in 0..300 {
                for rank in 0..4u32 {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let (block, file) = ((state >> 33) % 10_000, if shared { 0 } else { rank });
                    t.call(rank, file, Call::Read, 4 * i + u64::from(rank), 4096 * block, 4096);
                }
            }
            let found = data(&t.derived().scenario.jobs[0].steps[0]).spatiality;
            assert_eq!(found, Spatiality::Random, "seed {seed}, shared {shared}");
        }
    }
}
