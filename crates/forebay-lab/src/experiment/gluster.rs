//! GlusterFS: a shared file in small strided requests on a real parallel file
//! system, directly and through I/O nodes that merge what belongs together.

use super::Experiment;
use super::testbed::{open, processes};
use crate::machine::{load, program};
use crate::outcome::{Outcome, Table, csv};
use crate::{Progress, Size};
use anyhow::{Context, Result, bail};
use forebay_client::{Client, Fallback, File};
use forebay_embed::RunDir;
use forebay_embed::{At, Layer, LayerConfig, Transport};
use forebay_node::stats::{Distribution, NodeStatistics};
use forebay_plot::{Axis, BarSeries, Bars};
use forebay_types::OpKind;
use forebay_types::stats::{median, quantile};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, Instant};

pub(super) const PROCESSES: usize = 8;
const REQUEST: usize = 32 << 10;
const WAYS: [&str; 3] = ["direct", "1 I/O node", "2 I/O nodes"];

/// A shared file in small requests on GlusterFS: directly, and through one and two I/O nodes.
///
/// Eight clients (threads, each with a descriptor or connection of its own) write one file 1D-strided
/// in 32 KiB requests, and read it. The ways are interleaved in every repetition. Before each is read,
/// the pages of its file are dropped from the caches of every mount and, if `bricks` are given, from those
/// under the bricks; what the brick processes then read is shown. Shows the medians, and the mean size
/// of the requests that leave the I/O nodes. `scripts/gluster start DIR` makes and mounts a volume, and
/// `scripts/gluster mount DIR AT` mounts it once more; any other mounted file system does too.
#[derive(Clone, Debug)]
pub struct Gluster {
    /// How much to do.
    pub size: Size,
    /// A directory on the file system, as compute nodes see it.
    pub mount: PathBuf,
    /// The same directory as the I/O nodes see it, on mounts of their own, as on machines of their own.
    /// The compute nodes' unless given.
    pub node_mounts: Vec<PathBuf>,
    /// Where the bricks are, if they are on this machine (and this is root): below here their caches
    /// are dropped, too, and their processes are asked what they read.
    pub bricks: Option<PathBuf>,
    /// Repetitions.
    pub repeat: usize,
    /// How the I/O nodes schedule.
    pub scheduler: String,
    /// How many requests an I/O node has at the file system at the same time.
    pub dispatchers: usize,
}

impl Default for Gluster {
    fn default() -> Gluster {
        Gluster {
            size: Size::Small,
            mount: PathBuf::from("."),
            node_mounts: Vec::new(),
            bricks: None,
            repeat: 5,
            scheduler: "aioli:wait=3ms".into(),
            dispatchers: 1,
        }
    }
}

/// A way to the file: directly, or through as many I/O nodes as there are layers of one.
pub(super) struct Way {
    nodes: Vec<Layer>,
}

impl Way {
    pub(super) fn start(nodes: usize, name: &std::ffi::OsStr, args: &Gluster) -> Result<Way> {
        let start = |n: usize| {
            let mounts = &args.node_mounts;
            let export = mounts.get(n).or(mounts.last()).unwrap_or(&args.mount).join(name);
            Ok(Layer::start(&LayerConfig {
                program: program()?,
                io_nodes: 1,
                at: vec![At { dir: args.mount.join(name), export }],
                transport: Transport::Unix,
                deadline: Duration::from_secs(60),
                fallback: Fallback::Error,
                protect: forebay_types::Protect::None,
                node_args: ["--scheduler", &args.scheduler, "--dispatchers", &args.dispatchers.to_string()]
                    .map(str::to_owned)
                    .to_vec(),
                across: None,
                joins: true,
                job: "gluster".into(),
            })?)
        };
        Ok(Way { nodes: (0..nodes).map(start).collect::<Result<_>>()? })
    }

    /// Neighbours share a node: their requests are neighbours, too.
    pub(super) fn open(&self, dir: &Path, name: &str, rank: usize) -> Result<Open> {
        let Some(node) = self.nodes.get(rank * self.nodes.len() / PROCESSES) else {
            return Open::directly(dir, name);
        };
        Open::through(Client::new(node.config().clone(), None)?, name)
    }
}

/// What holds copies of a file: the mounts, and the directories of the bricks.
pub(super) struct Caches {
    pub(super) dirs: Vec<PathBuf>,
    pub(super) bricks: Option<PathBuf>,
}

impl Caches {
    /// Drops what the caches hold of the file, which everybody has closed.
    pub(super) fn drop_pages(&self, name: &str) -> Result<()> {
        for dir in &self.dirs {
            drop_pages(&dir.join(name))?;
        }
        let mut below: Vec<PathBuf> = self.bricks.iter().cloned().collect();
        while let Some(dir) = below.pop() {
            let entries =
                std::fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))?;
            for entry in entries {
                let entry = entry?;
                let kind = entry.file_type()?;
                if kind.is_dir() {
                    below.push(entry.path());
                } else if kind.is_file() {
                    drop_pages(&entry.path())?;
                }
            }
        }
        Ok(())
    }

    /// What the brick processes have read so far: from files, and of that from their disks.
    fn bricks_read(&self) -> [u64; 2] {
        let Some(bricks) = &self.bricks else { return [0; 2] };
        let mut sums = [0; 2];
        for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let text = |name: &str| std::fs::read(process.path().join(name)).unwrap_or_default();
            let command = String::from_utf8_lossy(&text("cmdline")).into_owned();
            if command.contains("glusterfsd") && command.contains(&*bricks.to_string_lossy()) {
                let counts = String::from_utf8_lossy(&text("io")).into_owned();
                for (sum, name) in sums.iter_mut().zip(["rchar: ", "read_bytes: "]) {
                    let line = counts.lines().find_map(|l| l.strip_prefix(name));
                    *sum += line.and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
                }
            }
        }
        sums
    }
}

/// Drops a file's pages from the page cache of the mount it is seen through.
fn drop_pages(path: &Path) -> Result<()> {
    let fail = || format!("cannot drop {} from the cache", path.display());
    let file = match std::fs::File::open(path) {
        // A brick removes files in its own time.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        other => other.with_context(fail)?,
    };
    // Only what has been written back can be dropped.
    file.sync_data().with_context(fail)?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).with_context(fail)?;
    Ok(())
}

/// The file, opened by one process.
pub(super) enum Open {
    Direct(std::fs::File),
    Forwarded(Box<(Client, File)>),
}

impl Open {
    /// The file of this name in a directory, which is made if need be.
    pub(super) fn directly(dir: &Path, name: &str) -> Result<Open> {
        let mut options = std::fs::File::options();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.open(dir.join(name)).with_context(|| format!("cannot open {name}"))?;
        Ok(Open::Direct(file))
    }

    /// The same through the I/O node of a client.
    pub(super) fn through(client: Client, name: &str) -> Result<Open> {
        let file = open(&client, name)?;
        Ok(Open::Forwarded(Box::new((client, file))))
    }

    pub(super) fn write(&self, data: &[u8], offset: u64) -> Result<usize> {
        Ok(match self {
            Open::Direct(file) => file.write_at(data, offset)?,
            Open::Forwarded(open) => open.0.pwrite(&open.1, data, offset)?,
        })
    }

    pub(super) fn read(&self, into: &mut [u8], offset: u64) -> Result<usize> {
        Ok(match self {
            Open::Direct(file) => file.read_at(into, offset)?,
            Open::Forwarded(open) => open.0.pread(&open.1, into, offset)?,
        })
    }

    pub(super) fn close(self) -> Result<()> {
        if let Open::Forwarded(open) = self {
            let (client, file) = *open;
            client.close(&file)?;
            client.leave();
        }
        Ok(())
    }
}

/// What was seen of one way, of writes and of reads.
#[derive(Default)]
struct WayRates {
    rates: [Vec<f64>; 2],
    /// What the bricks read while it read, from files and from disks, against what was asked for.
    bricks: [Vec<f64>; 2],
}

impl Experiment for Gluster {
    fn run(&self, progress: &dyn Progress) -> Result<Outcome> {
        let requests = self.size.choose(4, 256, 2048);
        let dir = RunDir::create(&self.mount)?;
        let name = dir.path().file_name().context("a temporary directory has a name")?;
        let mounts = std::iter::once(&self.mount).chain(&self.node_mounts);
        let caches = Caches { dirs: mounts.map(|m| m.join(name)).collect(), bricks: self.bricks.clone() };
        let mut ways =
            [0, 1, 2].into_iter().map(|n| Way::start(n, name, self)).collect::<Result<Vec<_>>>()?;
        let repeat = self.repeat.max(1);
        progress.begin(repeat * WAYS.len());
        let mut seen: [WayRates; WAYS.len()] = std::array::from_fn(|_| WayRates::default());
        let mut rows = Vec::new();
        let asked = (PROCESSES * requests * REQUEST) as f64;
        for round in 0..repeat {
            for i in 0..WAYS.len() {
                let w = (i + round) % WAYS.len();
                progress.doing(WAYS[w]);
                let file = format!("shared-{w}");
                for (o, op) in [OpKind::Write, OpKind::Read].into_iter().enumerate() {
                    if op == OpKind::Read {
                        caches.drop_pages(&file)?;
                    }
                    let before = caches.bricks_read();
                    let rate = asked / moving(&ways[w], dir.path(), &file, requests, op)?.as_secs_f64() / 1e6;
                    let after = caches.bricks_read();
                    let read = [0, 1].map(|k| after[k].saturating_sub(before[k]) as f64 / asked);
                    seen[w].rates[o].push(rate);
                    if op == OpKind::Read {
                        for (all, share) in seen[w].bricks.iter_mut().zip(read) {
                            all.push(share);
                        }
                    }
                    rows.push([
                        WAYS[w].into(),
                        format!("{op:?}").to_lowercase(),
                        round.to_string(),
                        format!("{rate:.3}"),
                        format!("{:.3}", read[0]),
                        format!("{:.3}", read[1]),
                    ]);
                }
                std::fs::remove_file(dir.path().join(file))?;
                progress.advance(1);
            }
        }
        let sizes = ways.iter_mut().map(mean_sizes).collect::<Result<Vec<_>>>()?;
        let mut found = Outcome::default();
        found.line(format!(
            "medians of {repeat} (and their quartiles): {PROCESSES} clients, one file 1D-strided, {requests} requests of 32 KiB each, {} ({})",
            self.scheduler,
            load()
        ));
        found.line(format!(
            "reads: after dropping the file from the caches of the mounts{}",
            if self.bricks.is_some() {
                " and under the bricks"
            } else {
                "; under the bricks it stays cached"
            }
        ));
        let medians = self.judge(&mut found, &seen, &sizes);
        let chart = Bars {
            title: "A shared file in 32 KiB strided requests".into(),
            categories: WAYS.map(str::to_owned).to_vec(),
            y: Axis::linear("MB/s"),
            series: ["write", "read"]
                .into_iter()
                .enumerate()
                .map(|(o, name)| BarSeries::new(name, medians.iter().map(|m| m[o])))
                .collect(),
            labels: true,
            ..Bars::default()
        };
        let header = ["way", "operation", "repetition", "mb_per_s", "bricks_read", "disks_read"];
        found.figures("gluster", csv(header, &rows), chart.svg());
        Ok(found)
    }
}

impl Gluster {
    fn judge(&self, found: &mut Outcome, seen: &[WayRates], sizes: &[[f64; 2]]) -> Vec<[f64; 2]> {
        let medians: Vec<[f64; 2]> = seen.iter().map(|s| [0, 1].map(|o| median(&s.rates[o]))).collect();
        let mut header =
            vec!["way", "write MB/s", "× direct", "mean write", "read MB/s", "× direct", "mean read"];
        if self.bricks.is_some() {
            header.extend(["bricks read", "from disk"]);
        }
        let mut t = Table::new(header);
        for (w, way) in seen.iter().enumerate() {
            let mut cells = vec![WAYS[w].to_owned()];
            for o in [0, 1] {
                let quartile = |q: u32| quantile(&way.rates[o], f64::from(q) / 4.0);
                cells.extend([
                    format!("{:.1} ({:.0}–{:.0})", medians[w][o], quartile(1), quartile(3)),
                    format!("{:.2}", medians[w][o] / medians[0][o]),
                    format!("{:.0} KiB", sizes[w][o] / 1024.0),
                ]);
            }
            if self.bricks.is_some() {
                cells.extend(way.bricks.iter().map(|all| format!("{:.0} %", median(all) * 100.0)));
            }
            t.row(cells);
        }
        found.table(t);
        let best = |o: usize| medians[1][o].max(medians[2][o]) / medians[0][o];
        found.judge(format!("forwarded writes ≥2.5× direct: {:.2}×", best(0)), best(0) >= 2.5);
        found.judge(format!("forwarded reads not slower: {:.2}×", best(1)), best(1) >= 1.0);
        medians
    }
}

/// The mean size of the writes and reads that went to the file system; ends the nodes.
fn mean_sizes(way: &mut Way) -> Result<[f64; 2]> {
    if way.nodes.is_empty() {
        return Ok([REQUEST as f64; 2]);
    }
    let mut reports = Vec::new();
    for node in way.nodes.iter_mut().flat_map(Layer::stop) {
        if let Some(problem) = node.problem {
            bail!("I/O node {}: {problem}", node.node);
        }
        let stats = node.stats.context("an I/O node left no statistics")?;
        reports.push(serde_json::from_value::<NodeStatistics>(stats)?);
    }
    let mean = |of: fn(&NodeStatistics) -> &Distribution| {
        let (mut bytes, mut count) = (0.0, 0.0);
        for d in reports.iter().map(of) {
            bytes += d.mean * d.count as f64;
            count += d.count as f64;
        }
        bytes / f64::max(count, 1.0)
    };
    Ok([mean(|r| &r.issued_write), mean(|r| &r.issued_read)])
}

/// How long it takes from the common start to the last close.
fn moving(way: &Way, dir: &Path, name: &str, requests: usize, op: OpKind) -> Result<Duration> {
    let start = Barrier::new(PROCESSES);
    let times = processes(PROCESSES, |rank| {
        let opened = way.open(dir, name, rank);
        // Even one that failed: the others wait for it.
        start.wait();
        let open = opened?;
        let began = Instant::now();
        let mut buffer = vec![0u8; REQUEST];
        for step in 0..requests {
            let block = step * PROCESSES + rank;
            let (offset, stamp) = ((block * REQUEST) as u64, (block as u64).to_le_bytes());
            let moved = if op == OpKind::Write {
                buffer[..8].copy_from_slice(&stamp);
                open.write(&buffer, offset)?
            } else {
                open.read(&mut buffer, offset)?
            };
            if moved != REQUEST || buffer[..8] != stamp {
                let found = buffer.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
                open.read(&mut buffer, offset)?;
                let again = buffer.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
                bail!(
                    "process {rank}, {} I/O nodes: block {block} came back as {found} ({moved} bytes), and as {again} when read again",
                    way.nodes.len()
                );
            }
        }
        open.close()?;
        Ok((began, Instant::now()))
    })?;
    let began = times.iter().map(|t| t.0).min().unwrap_or_else(Instant::now);
    let ended = times.iter().map(|t| t.1).max().unwrap_or(began);
    Ok(ended.duration_since(began))
}
