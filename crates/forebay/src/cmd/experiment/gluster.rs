//! `forebay experiment gluster`: a shared file in small strided requests on a real parallel file
//! system, directly and through I/O nodes that merge what belongs together.

use super::ground::{at, processes};
use super::{Common, csv, load, median, progress, verdict};
use crate::cmd::table;
use anyhow::{Context, Result, bail};
use clap::{Args, ValueHint};
use forebay_client::{Client, Config, Fallback, File, OpenFlags};
use forebay_embed::{At, Layer, LayerConfig, Transport};
use forebay_node::stats::{Distribution, Report};
use forebay_plot::{Axis, BarSeries, Bars};
use forebay_types::OpKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Barrier;
use std::time::{Duration, Instant};

const PROCESSES: usize = 8;
const REQUEST: usize = 32 << 10;
const WAYS: [&str; 3] = ["direct", "1 I/O node", "2 I/O nodes"];

/// A shared file in small requests on GlusterFS: directly, and through one and two I/O nodes.
///
/// Eight clients (threads, each with a descriptor or connection of its own) write and read one file
/// 1D-strided in 32 KiB requests. The ways are interleaved in every repetition. Shows the medians, and
/// the mean size of the requests that leave the I/O nodes. `scripts/gluster start DIR` makes and mounts
/// a volume; any other mounted file system does too.
#[derive(Args)]
pub(super) struct GlusterArgs {
    #[command(flatten)]
    common: Common,
    /// A directory on the file system.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    mount: PathBuf,
    /// Repetitions.
    #[arg(long, value_name = "N", default_value_t = 5)]
    repeat: usize,
    /// How the I/O nodes schedule.
    #[arg(long, value_name = "SPEC", default_value = "aioli")]
    scheduler: String,
    /// How many requests an I/O node has at the file system at the same time.
    #[arg(long, value_name = "N", default_value_t = 1)]
    dispatchers: usize,
}

/// A way to the file.
enum Way {
    Direct,
    Forwarded(Box<Layer>),
}

impl Way {
    fn start(nodes: usize, dir: &Path, args: &GlusterArgs) -> Result<Way> {
        if nodes == 0 {
            return Ok(Way::Direct);
        }
        let layer = Layer::start(&LayerConfig {
            program: std::env::current_exe().context("cannot find this program's own file")?,
            io_nodes: nodes,
            at: vec![At { dir: dir.to_owned(), export: dir.to_owned() }],
            transport: Transport::Unix,
            deadline: Duration::from_secs(60),
            fallback: Fallback::Error,
            node_args: ["--scheduler", &args.scheduler, "--dispatchers", &args.dispatchers.to_string()]
                .map(str::to_owned)
                .to_vec(),
            job: "gluster".into(),
        })?;
        Ok(Way::Forwarded(Box::new(layer)))
    }

    /// Neighbours share a node: their requests are neighbours, too.
    fn open(&self, dir: &Path, name: &str, rank: usize) -> Result<Open> {
        match self {
            Way::Direct => {
                let mut options = std::fs::File::options();
                let file =
                    options.read(true).write(true).create(true).truncate(false).open(dir.join(name))?;
                Ok(Open::Direct(file))
            }
            Way::Forwarded(layer) => {
                let all = &layer.config().nodes;
                let nodes = vec![all[rank * all.len() / PROCESSES].clone()];
                let client = Client::new(Config { nodes, ..layer.config().clone() }, None)?;
                let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
                let file = client.open(at(name), flags, 0o600)?.0;
                Ok(Open::Forwarded(Box::new(client), file))
            }
        }
    }
}

/// The file, opened by one process.
enum Open {
    Direct(std::fs::File),
    Forwarded(Box<Client>, File),
}

impl Open {
    fn write(&self, data: &[u8], offset: u64) -> Result<usize> {
        Ok(match self {
            Open::Direct(file) => file.write_at(data, offset)?,
            Open::Forwarded(client, file) => client.pwrite(file, data, offset)?,
        })
    }

    fn read(&self, into: &mut [u8], offset: u64) -> Result<usize> {
        Ok(match self {
            Open::Direct(file) => file.read_at(into, offset)?,
            Open::Forwarded(client, file) => client.pread(file, into, offset)?,
        })
    }

    fn close(self) -> Result<()> {
        if let Open::Forwarded(client, file) = self {
            client.close(&file)?;
            client.leave();
        }
        Ok(())
    }
}

impl GlusterArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        let requests = if self.common.full { 2048 } else { 256 };
        let dir = tempfile::Builder::new()
            .prefix("forebay-experiment-")
            .tempdir_in(&self.mount)
            .with_context(|| format!("cannot write to {}", self.mount.display()))?;
        let mut ways =
            [0, 1, 2].into_iter().map(|n| Way::start(n, dir.path(), &self)).collect::<Result<Vec<_>>>()?;
        let repeat = self.repeat.max(1);
        let bar = progress(repeat * WAYS.len());
        let mut seen = [const { [const { Vec::new() }; 2] }; WAYS.len()];
        let mut rows = Vec::new();
        for round in 0..repeat {
            for i in 0..WAYS.len() {
                let w = (i + round) % WAYS.len();
                bar.set_message(WAYS[w]);
                for (o, op) in [OpKind::Write, OpKind::Read].into_iter().enumerate() {
                    let rate = bandwidth(&ways[w], dir.path(), w, requests, op)?;
                    seen[w][o].push(rate);
                    rows.push([
                        WAYS[w].into(),
                        format!("{op:?}").to_lowercase(),
                        round.to_string(),
                        format!("{rate:.3}"),
                    ]);
                }
                std::fs::remove_file(dir.path().join(format!("shared-{w}")))?;
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        let medians = seen.map(|ops| ops.map(median));
        let mut sizes = Vec::new();
        for way in &mut ways {
            sizes.push(match way {
                Way::Direct => [REQUEST as f64; 2],
                Way::Forwarded(layer) => mean_sizes(layer)?,
            });
        }
        println!(
            "medians of {repeat}: {PROCESSES} clients, one file 1D-strided, {requests} requests of 32 KiB each, {} ({})\n",
            self.scheduler,
            load()
        );
        let header = ["way", "write MB/s", "× direct", "read MB/s", "× direct", "mean write", "mean read"];
        let mut t = table::new(&header, &[]);
        for (w, [write, read]) in medians.iter().enumerate() {
            let size = |o: usize| format!("{:.0} KiB", sizes[w][o] / 1024.0);
            t.add_row([
                WAYS[w].to_owned(),
                format!("{write:.1}"),
                format!("{:.2}", write / medians[0][0]),
                format!("{read:.1}"),
                format!("{:.2}", read / medians[0][1]),
                size(0),
                size(1),
            ]);
        }
        println!("{t}\n");
        let best = |o: usize| medians[1][o].max(medians[2][o]) / medians[0][o];
        verdict(&format!("forwarded writes ≥2.5× direct: {:.2}×", best(0)), best(0) >= 2.5);
        verdict(&format!("forwarded reads not slower: {:.2}×", best(1)), best(1) >= 1.0);
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
        self.common.write(
            "gluster",
            &csv(["way", "operation", "repetition", "mb_per_s"], &rows),
            &chart.svg(),
        )?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The mean size of the writes and reads that the nodes sent to the file system; ends them.
fn mean_sizes(layer: &mut Layer) -> Result<[f64; 2]> {
    let mut reports = Vec::new();
    for node in layer.stop() {
        if let Some(problem) = node.problem {
            bail!("I/O node {}: {problem}", node.node);
        }
        let stats = node.stats.context("an I/O node left no statistics")?;
        reports.push(serde_json::from_value::<Report>(stats)?);
    }
    let mean = |of: fn(&Report) -> &Distribution| {
        let (mut bytes, mut count) = (0.0, 0.0);
        for d in reports.iter().map(of) {
            bytes += d.mean * d.count as f64;
            count += d.count as f64;
        }
        bytes / f64::max(count, 1.0)
    };
    Ok([mean(|r| &r.issued_write), mean(|r| &r.issued_read)])
}

/// MB/s from the common start to the last close.
fn bandwidth(way: &Way, dir: &Path, w: usize, requests: usize, op: OpKind) -> Result<f64> {
    let start = Barrier::new(PROCESSES);
    let name = format!("shared-{w}");
    let times = processes(PROCESSES, |rank| {
        let opened = way.open(dir, &name, rank);
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
                bail!("process {rank}: block {block} came back wrong ({moved} bytes)");
            }
        }
        open.close()?;
        Ok((began, Instant::now()))
    })?;
    let began = times.iter().map(|t| t.0).min().unwrap_or_else(Instant::now);
    let ended = times.iter().map(|t| t.1).max().unwrap_or(began);
    Ok((PROCESSES * requests * REQUEST) as f64 / ended.duration_since(began).as_secs_f64() / 1e6)
}
