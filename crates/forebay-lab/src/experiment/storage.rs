//! Emulated storage by the name of its model, as lines of an I/O node's configuration file.

use anyhow::Result;
use forebay_sched::SchedulerConfig;
use forebay_sched::emulate::StorageModel;
use forebay_sim::models;
use serde::Serialize;

/// What rewards were recorded on.
pub(super) const RECORDED: &str = "windows-recorded";
/// Where the best windows of two patterns lie well apart.
pub(super) const DISTINCT: &str = "windows-distinct";

/// The lines by which an I/O node has the emulated storage of this name. They end with a table: other settings come
/// before them.
pub(super) fn emulated(name: &str) -> Result<String> {
    #[derive(Serialize)]
    #[serde(rename_all = "kebab-case")]
    struct Lines {
        emulated_storage: StorageModel,
    }
    Ok(toml::to_string(&Lines { emulated_storage: models::named(name)?.storage })?)
}

/// The same for servers that all nodes share, with the scheduler to begin with and the length of intervals.
pub(super) fn shared(name: &str, scheduler: &SchedulerConfig, interval_ms: u64) -> Result<String> {
    Ok(format!(
        "interval-ms = {interval_ms}\nscheduler = \"{scheduler}\"\nemulated-storage-socket = \"{{dir}}/servers\"\n{}",
        emulated(name)?
    ))
}
