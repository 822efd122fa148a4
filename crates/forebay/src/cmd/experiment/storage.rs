//! The emulated storage that learning is tried on. A request takes about a millisecond of a data
//! server, as on a disk, and longer when other I/O nodes are at the same server: so no window is best
//! for every pattern. Windows shorter than a request do not keep the nodes apart; windows longer than
//! what a node's processes can ask of one server leave the server idle.

use forebay_sched::SchedulerConfig;

const SERVERS: u32 = 4;
const STRIPE_KIB: u32 = 32;
const BANDWIDTH_MB: u32 = 100;
const PER_REQUEST_US: u32 = 400;
const LATENCY_US: u32 = 100;
const SEEK_US: u32 = 500;
const PENALTY: f64 = 0.5;

/// The lines of an I/O node's configuration file: emulated servers that all nodes share, the scheduler
/// to begin with and the length of intervals.
pub(super) fn settings(scheduler: &SchedulerConfig, interval_ms: u64) -> String {
    format!(
        "interval-ms = {interval_ms}\n\
         scheduler = \"{scheduler}\"\n\
         emulated-storage-socket = \"{{dir}}/servers\"\n\
         [emulated-storage]\n\
         servers = {SERVERS}\n\
         stripe = \"{STRIPE_KIB}KiB\"\n\
         [emulated-storage.server]\n\
         bandwidth = \"{BANDWIDTH_MB}MB\"\n\
         per-request = \"{PER_REQUEST_US}us\"\n\
         latency = \"{LATENCY_US}us\"\n\
         seek = \"{SEEK_US}us\"\n\
         penalty = {PENALTY}\n"
    )
}

/// The same for people.
pub(super) fn describe() -> String {
    format!(
        "{SERVERS} data servers of {BANDWIDTH_MB} MB/s, {STRIPE_KIB} KiB stripes, {PER_REQUEST_US} µs a request \
         and {LATENCY_US} µs on the way, seeks of up to {SEEK_US} µs, {:.0} % more for each further I/O node at a \
         server",
        PENALTY * 100.0
    )
}
