//! Prints what every scheduler costs with 10^3 to 10^6 requests waiting.

use forebay_sched::SchedulerConfig;
use forebay_sched::bench::{QUEUED, measure};
use forebay_types::Nanos;
use std::time::Instant;

fn main() {
    let start = Instant::now();
    let mut clock = || Nanos::from(start.elapsed());
    let only = std::env::args().nth(1);
    println!("{:<12} {:>8} {:>8} {:>8} {:>8}  growth  merged", "ns/request", "10^3", "10^4", "10^5", "10^6");
    for name in SchedulerConfig::NAMES.iter().filter(|n| only.as_deref().is_none_or(|o| o == **n)) {
        let config: SchedulerConfig = name.parse().expect("every scheduler has defaults");
        let costs = QUEUED.map(|queued| measure(&config, queued, 400_000, &mut clock));
        let [a, b, c, d] = costs.map(|c| c.nanos);
        println!("{name:<12} {a:>8.1} {b:>8.1} {c:>8.1} {d:>8.1} {:>7.2} {:>7.2}", d / a, costs[2].merged);
    }
}
