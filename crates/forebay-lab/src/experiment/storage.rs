//! The emulated storage that learning is tried on. A request takes about a millisecond of a data
//! server, as on a disk, and longer when other I/O nodes are at the same server: so no window is best
//! for every pattern. Windows shorter than a request do not keep the nodes apart; windows longer than
//! what a node's processes can ask of one server leave the server idle.

use anyhow::Result;
use forebay_sched::SchedulerConfig;
use forebay_sched::emulate::StorageModel;
use forebay_sim::models;
use serde::Serialize;

/// The lines of an I/O node's configuration file by which it has the emulated storage of this name.
pub(super) fn emulated(name: &str) -> Result<String> {
    #[derive(Serialize)]
    #[serde(rename_all = "kebab-case")]
    struct Lines {
        emulated_storage: StorageModel,
    }
    Ok(toml::to_string(&Lines { emulated_storage: models::named(name)?.storage })?)
}

const SERVERS: u32 = 4;
const STRIPE_KIB: u32 = 32;
const BANDWIDTH_MB: u32 = 100;
const LATENCY_US: u32 = 100;
const PENALTY: f64 = 0.5;

/// What a request takes beside its bytes.
pub(super) struct Storage {
    per_request_us: u32,
    seek_us: u32,
}

/// What rewards were recorded on.
pub(super) const RECORDED: Storage = Storage { per_request_us: 400, seek_us: 500 };

/// Four writes to one file are well within a window of 4 ms, and four reads of different files are well
/// beyond it: which window is best does not hang on how fast a machine wakes its threads.
pub(super) const DISTINCT: Storage = Storage { per_request_us: 300, seek_us: 600 };

impl Storage {
    /// The lines of an I/O node's configuration file: emulated servers that all nodes share, the scheduler
    /// to begin with and the length of intervals.
    pub(super) fn settings(&self, scheduler: &SchedulerConfig, interval_ms: u64) -> String {
        let Storage { per_request_us, seek_us } = self;
        format!(
            "interval-ms = {interval_ms}\n\
             scheduler = \"{scheduler}\"\n\
             emulated-storage-socket = \"{{dir}}/servers\"\n\
             [emulated-storage]\n\
             servers = {SERVERS}\n\
             stripe = \"{STRIPE_KIB}KiB\"\n\
             [emulated-storage.server]\n\
             bandwidth = \"{BANDWIDTH_MB}MB\"\n\
             per-request = \"{per_request_us}us\"\n\
             latency = \"{LATENCY_US}us\"\n\
             seek = \"{seek_us}us\"\n\
             penalty = {PENALTY}\n"
        )
    }

    /// The same for people.
    pub(super) fn describe(&self) -> String {
        let Storage { per_request_us, seek_us } = self;
        format!(
            "{SERVERS} data servers of {BANDWIDTH_MB} MB/s, {STRIPE_KIB} KiB stripes, {per_request_us} µs a request \
         and {LATENCY_US} µs on the way, seeks of up to {seek_us} µs, {:.0} % more for each further I/O node at a \
         server",
            PENALTY * 100.0
        )
    }
}
