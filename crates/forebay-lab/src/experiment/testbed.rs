//! The I/O nodes of an experiment on one storage, and their clients. Nodes on emulated storage share the
//! emulated data servers over a socket; clients reach the nodes over Unix sockets as ever.

use crate::fleet::Fleet;
use anyhow::{Context, Result, bail};
use forebay_client::{Client, ExportId, File, OpenFlags, Path as WirePath};
use forebay_embed::RunDir;
use forebay_node::control::Command as Order;
use forebay_sched::emulate::StorageModel;
use forebay_types::{JobBlame, Nanos, OpKind};
use serde::Serialize;
use std::path::Path;

/// Running I/O nodes, and the directory they export.
pub(super) struct Testbed {
    fleet: Fleet,
    _data: Option<RunDir>,
}

/// What the nodes' configuration files hold beyond the usual.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Settings<'a> {
    dispatchers: usize,
    memory_mib: usize,
    drain_timeout_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    emulated_storage_socket: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    emulated_storage: Option<&'a StorageModel>,
}

impl Testbed {
    /// Starts `count` nodes that store in memory, no faster than the model says if there is one.
    pub(super) fn start(count: usize, model: Option<&StorageModel>, dispatchers: usize) -> Result<Testbed> {
        let data = RunDir::in_memory()?;
        let settings = Settings {
            dispatchers,
            memory_mib: 2048,
            drain_timeout_ms: 1000,
            emulated_storage_socket: (count > 1 && model.is_some()).then_some("{dir}/servers.sock"),
            emulated_storage: model,
        };
        Ok(Testbed {
            fleet: Fleet::start(data.path(), count, &toml::to_string(&settings)?)?,
            _data: Some(data),
        })
    }

    /// Starts `count` nodes that export a directory there is; `layout`: lines of their configuration.
    pub(super) fn on(dir: &Path, count: usize, layout: &str) -> Result<Testbed> {
        let settings = format!("dispatchers = 16\ndrain-timeout-ms = 1000\n{layout}");
        Ok(Testbed { fleet: Fleet::start(dir, count, &settings)?, _data: None })
    }

    /// A client of a job on one of the nodes; each is a compute process.
    pub(super) fn client(&self, job: &str, node: usize) -> Result<Client> {
        self.fleet.client(job, node)
    }

    /// Every node schedules so from now on.
    pub(super) fn schedule(&self, spec: &str) -> Result<()> {
        self.fleet.schedule(&spec.parse()?)
    }

    /// Gives a job another share on every node.
    pub(super) fn weigh(&self, job: &str, weight: u32) -> Result<()> {
        let order = Order::Weight { job: job.into(), weight };
        (0..self.fleet.len()).try_for_each(|n| self.fleet.tell(n, &order).map(drop))
    }

    /// What the first node says of a job's time, and of another scheduler.
    pub(super) fn blame(&self, job: &str, what_if: Option<&str>) -> Result<JobBlame> {
        let what_if = what_if.map(str::parse).transpose()?;
        let reply = self.fleet.tell(0, &Order::Blame { job: job.into(), since: Nanos::ZERO, what_if })?;
        Ok(*reply.blame.context("the I/O node does not know the job")?)
    }

    /// The bytes of writes that the nodes have answered to a job.
    pub(super) fn written(&self, job: &str) -> Result<u64> {
        let mut sum = 0;
        for n in 0..self.fleet.len() {
            let report =
                self.fleet.tell(n, &Order::Stats)?.stats.context("an I/O node gave no statistics")?;
            let flows = report.flows.iter().filter(|f| f.job == job);
            sum += flows.filter_map(|f| f.operations.get("write")).map(|o| o.bytes).sum::<u64>();
        }
        Ok(sum)
    }

    /// How many requests of a kind the nodes have sent to the file system, and their bytes.
    pub(super) fn issued(&self, op: OpKind) -> Result<(u64, f64)> {
        let (mut count, mut bytes) = (0, 0.0);
        for n in 0..self.fleet.len() {
            let reply = self.fleet.tell(n, &Order::Stats)?;
            let report = reply.stats.context("an I/O node gave no statistics")?;
            let sizes = if op == OpKind::Read { &report.issued_read } else { &report.issued_write };
            count += sizes.count;
            bytes += sizes.mean * sizes.count as f64;
        }
        Ok((count, bytes))
    }

    /// The processor time of the nodes' running threads so far, in seconds.
    pub(super) fn processor(&self) -> f64 {
        let nanos = |thread: std::fs::DirEntry| {
            let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        };
        let threads = self.fleet.pids().filter_map(|pid| std::fs::read_dir(format!("/proc/{pid}/task")).ok());
        threads.flatten().flatten().filter_map(nanos).sum::<u64>() as f64 / 1e9
    }

    /// Where the files are.
    pub(super) fn data(&self) -> &Path {
        self.fleet.data()
    }
}

/// A name in the exported directory.
pub(super) fn at(name: &str) -> WirePath<'_> {
    WirePath { export: ExportId(0), rel: name.as_bytes() }
}

/// Opens a file for reading and writing, and makes it if need be.
pub(super) fn open(client: &Client, name: &str) -> Result<File> {
    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    Ok(client.open(at(name), flags, 0o600).with_context(|| format!("cannot open {name}"))?.0)
}

/// Runs `work` as so many processes at once, from a common start; what they return, in order.
pub(super) fn processes<T: Send>(count: usize, work: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..count)
            .map(|rank| {
                s.spawn({
                    let work = &work;
                    move || work(rank)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|t| t.join().unwrap_or_else(|_| bail!("a process of the experiment failed")))
            .collect()
    })
}
