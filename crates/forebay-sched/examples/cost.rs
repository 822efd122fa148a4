//! Prints what every scheduler costs with 10^3 to 10^6 requests waiting, as `forebay bench sched` does;
//! a program small enough to look at with `perf` and `callgrind`. Arguments: a scheduler (or `all`), and
//! how many files.

use forebay_sched::SchedulerConfig;
use forebay_sched::bench::{FILES, QUEUED, lone, measure};
use forebay_types::Nanos;
use rustix::time::{ClockId, clock_gettime};

fn main() {
    // The time of this thread alone, so that neighbours count less.
    let mut clock = || {
        let t = clock_gettime(ClockId::ThreadCPUTime);
        Nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
    };
    let only = std::env::args().nth(1).filter(|name| name != "all");
    let files = std::env::args().nth(2).and_then(|n| n.parse().ok()).unwrap_or(FILES);
    println!(
        "{:<12} {:>8} {:>8} {:>8} {:>8} {:>8}  growth  merged",
        "ns/request", "lone", "10^3", "10^4", "10^5", "10^6"
    );
    for name in SchedulerConfig::NAMES.iter().filter(|n| only.as_deref().is_none_or(|o| o == **n)) {
        let config: SchedulerConfig = name.parse().expect("every scheduler has defaults");
        let costs = QUEUED.map(|queued| measure(&config, files, queued, 400_000, &mut clock));
        let [a, b, c, d] = costs.map(|c| c.nanos);
        let alone = lone(&config, 200_000, &mut clock);
        println!(
            "{name:<12} {alone:>8.1} {a:>8.1} {b:>8.1} {c:>8.1} {d:>8.1} {:>7.2} {:>7.2}",
            d / a,
            costs[2].merged
        );
    }
}
