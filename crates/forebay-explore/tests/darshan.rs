//! Darshan logs: what is read is what PyDarshan reads, and the scenarios do what the logs say.

use forebay_explore::darshan::{derive, read, to_toml};
use forebay_explore::scenario::{Layout, Scenario, Spatiality, Step, native};
use forebay_explore::workload::Requests;
use forebay_types::OpKind;
use proptest::prelude::*;

struct Known {
    name: &'static str,
    bytes: &'static [u8],
    processes: u64,
    read: u64,
    written: u64,
    reads: u64,
    writes: u64,
}

macro_rules! log {
    ($name:literal, $processes:expr, $read:expr, $written:expr, $reads:expr, $writes:expr) => {
        Known {
            name: $name,
            bytes: include_bytes!(concat!("darshan/", $name, ".darshan")),
            processes: $processes,
            read: $read,
            written: $written,
            reads: $reads,
            writes: $writes,
        }
    };
}

/// PyDarshan's numbers.
const LOGS: [Known; 5] = [
    log!("example", 2048, 0, 2_199_023_259_968, 0, 16_402),
    log!("ior_hdf5_example", 4, 4_202_504, 4_195_800, 36, 23),
    log!("macsio", 16, 39_816_960, 54_737_540, 6, 7_816),
    log!("sample-goodost", 48, 0, 51_539_607_552, 0, 6_144),
    log!("macsio-341", 16, 39_816_960, 54_737_540, 6, 7_816),
];

#[test]
fn totals_are_pydarshans() {
    for k in &LOGS {
        let log = read(k.bytes).unwrap();
        let sum = |f: fn(&forebay_explore::darshan::PosixRecord) -> u64| log.posix.iter().map(f).sum::<u64>();
        assert_eq!(log.processes, k.processes, "{}", k.name);
        assert_eq!((sum(|r| r.bytes_read), sum(|r| r.bytes_written)), (k.read, k.written), "{}", k.name);
        assert_eq!((sum(|r| r.reads), sum(|r| r.writes)), (k.reads, k.writes), "{}", k.name);
    }
}

/// Bytes and requests that the scenario's processes would make, counted one by one.
fn volume(s: &Scenario) -> [(u64, u64); 2] {
    let mut out = [(0, 0); 2];
    for job in &s.jobs {
        for step in &job.steps {
            let Step::Data(d) = step else { continue };
            for rank in 0..job.processes() {
                for r in Requests::new(d, rank, job.processes(), s.seed) {
                    let side = &mut out[usize::from(r.op == OpKind::Read)];
                    *side = (side.0 + r.len, side.1 + 1);
                }
            }
        }
    }
    out
}

#[test]
fn scenarios_move_what_the_log_moved() {
    for k in &LOGS {
        let s = derive(&read(k.bytes).unwrap(), k.name).unwrap();
        s.check().unwrap();
        let [(written, writes), (bytes_read, reads)] = volume(&s);
        let near = |ours: u64, theirs: u64, within: f64| {
            (ours as f64 - theirs as f64).abs() <= theirs as f64 * within
        };
        assert!(near(written, k.written, 0.01), "{}: {written} written", k.name);
        assert!(near(bytes_read, k.read, 0.01), "{}: {bytes_read} read", k.name);
        // As many requests, give or take one per process and phase: the sizes are of the right kind.
        let slack = 4 * k.processes;
        let like = |ours: u64, theirs: u64| ours.abs_diff(theirs) <= slack.max(theirs / 20);
        assert!(like(writes, k.writes) && like(reads, k.reads), "{}: {writes}, {reads}", k.name);
        let again = native::parse(&to_toml(&s, "from a log"), "x").unwrap();
        assert_eq!(again[0], s, "{}", k.name);
    }
}

#[test]
fn layout_and_order_are_recognised() {
    let first = |k: &Known| {
        let s = derive(&read(k.bytes).unwrap(), k.name).unwrap();
        let Step::Data(d) = &s.jobs[0].steps[0] else { panic!() };
        (s.jobs[0].processes(), d.target.layout, d.spatiality)
    };
    assert_eq!(first(&LOGS[0]).1, Layout::Shared);
    assert_eq!(first(&LOGS[3]), (48, Layout::FilePerProcess, Spatiality::Contiguous));
}

#[test]
fn what_is_no_log_is_refused() {
    for (bytes, says) in [
        (&b""[..], "not a Darshan log"),
        (&[0; 4096][..], "not a Darshan log"),
        (&LOGS[1].bytes[..200], "within the header"),
        (&LOGS[1].bytes[..1200], "beyond its end"),
    ] {
        let e = read(bytes).unwrap_err().to_string();
        assert!(e.contains(says), "{e}");
    }
}

proptest! {
    #[test]
    fn damaged_logs_do_not_panic(changes in prop::collection::vec((0..3900_usize, any::<u8>()), 1..6), cut in 0..4000_usize) {
        let mut bytes = LOGS[1].bytes.to_vec();
        for (at, b) in changes {
            if let Some(x) = bytes.get_mut(at) {
                *x = b;
            }
        }
        bytes.truncate(bytes.len().saturating_sub(cut / 4));
        if let Ok(log) = read(&bytes) {
            let _ = derive(&log, "x");
        }
    }
}
