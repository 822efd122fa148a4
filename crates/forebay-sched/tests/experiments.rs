//! The experiments of the sources on the emulated storage, in virtual time and so the same on every
//! run: what the schedulers are for comes out.

#[path = "common/workloads.rs"]
mod workloads;
#[path = "common/world.rs"]
mod world;

use forebay_sched::emulate::{ServerModel, StorageModel};
use forebay_types::{FlowId, Nanos};
use workloads::{Pattern, large_writes, metadata, readers, small_bursts};
use world::{Seen, World};

const WINDOWS: [&str; 7] = ["125us", "250us", "500us", "1ms", "2ms", "4ms", "8ms"];

fn makespan(pattern: Pattern, scheduler: &str) -> f64 {
    let mut world = World::new(StorageModel::default(), scheduler, 4, 16, readers(pattern, 64));
    let time = world.run(Nanos(u64::MAX >> 1));
    assert_eq!(world.seen[0].bytes, 32 * 64 * (32 << 10), "all was read");
    assert_eq!(world.seen[0].end, time);
    time.as_secs_f64()
}

#[test]
fn a_twins_window_beats_fifo_and_hbrr_on_shared_files_and_the_smallest_does_no_harm() {
    for pattern in [Pattern::SharedContiguous, Pattern::SharedStrided, Pattern::FilePerProcess] {
        let base = makespan(pattern, "fifo").min(makespan(pattern, "hbrr"));
        let times = WINDOWS.map(|w| makespan(pattern, &format!("twins:window={w}")));
        let best = times.iter().copied().fold(f64::MAX, f64::min);
        assert!(
            times[0] <= base * 1.05,
            "{pattern:?}: {} s with the smallest window, {base} s without",
            times[0]
        );
        if !matches!(pattern, Pattern::FilePerProcess) {
            assert!(best <= base * 0.85, "{pattern:?}: {best} s at best, {base} s without");
        }
    }
}

/// Flow 0 and 1 after three seconds.
fn contest(scheduler: &str) -> (Seen, Seen) {
    let server = ServerModel { seek: Nanos::from_micros(100), ..ServerModel::default() };
    let model = StorageModel { server, ..StorageModel::default() };
    let mut processes = small_bursts();
    processes.extend(large_writes(4 << 20));
    let mut world = World::new(model, scheduler, 1, 64, processes);
    world.run(Nanos::from_secs(3));
    (world.seen[0], world.seen[1])
}

#[test]
fn sfq_d_plus_isolates_small_requests_at_a_small_loss() {
    let wait = |s: &Seen| s.io_time.as_secs_f64() / s.requests as f64;
    let (fifo, _) = contest("fifo");
    let (sfq, sfq_large) = contest("sfq-d");
    let (plus, plus_large) = contest("sfq-d-plus");
    let (_, capped_large) = contest("capped:rate=20MB");
    assert!(wait(&sfq) / wait(&plus) >= 3.35, "against sfq-d: {}", wait(&sfq) / wait(&plus));
    assert!(wait(&fifo) / wait(&plus) >= 8.0, "against fifo: {}", wait(&fifo) / wait(&plus));
    let total = |a: Seen, b: Seen| (a.bytes + b.bytes) as f64;
    let kept = total(plus, plus_large) / total(sfq, sfq_large);
    assert!(kept >= 0.89, "{kept} of the total is left");
    assert!(capped_large.bytes < plus_large.bytes / 10, "the capped writer idles");
}

#[test]
fn two_jobs_share_metadata_two_to_one() {
    for scheduler in ["sfq-d", "sfq-d-plus", "wfq:quantum=10KB"] {
        let mut world = World::new(StorageModel::default(), scheduler, 1, 8, metadata());
        world.set_weight(0, 2);
        world.run(Nanos::from_secs(2));
        let flows = world.accounts(0).flows();
        assert_eq!((flows[0].0, flows[0].1.weight), (FlowId(0), 2));
        assert!(world.accounts(0).jain() >= 0.98, "{scheduler}: {flows:?}");
    }
}
