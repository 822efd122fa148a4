//! Several I/O nodes on storage that scales with them, and the small records of one rank.

use super::path::{Case, Kind, measure, start_layer};
use super::worker::Op;
use crate::Progress;
use crate::experiment::Experiment;
use crate::machine::{load, program};
use crate::outcome::{Outcome, Table};
use anyhow::{Context, Result, bail};
use forebay_embed::{Layer, Process, RunDir, Transport};
use forebay_types::Protect;
use forebay_types::stats::median;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Measure 1, 2 and 4 I/O nodes, each on emulated storage of its own.
///
/// One process writes a large file in 16 MiB requests, as the one aggregator of a collective write does, and
/// eight forked workers write 1 MiB requests to a file each. An I/O node's storage takes 100 MB/s.
#[derive(Clone, Debug)]
pub struct Scaling {
    /// Where the files are; a memory file system.
    pub dir: PathBuf,
    /// A tenth of the work: to see that it runs.
    pub quick: bool,
}

/// The emulated storage of one I/O node.
const STORAGE: &str = "[emulated-storage]\nservers = 1\nstripe = \"1MiB\"\n[emulated-storage.server]\n\
    bandwidth = \"100MB\"\nper-request = \"50us\"\nlatency = \"50us\"\nseek = \"0us\"\npenalty = 0.0\n";

/// Eight workers that write as many 1 MiB pieces each as the first argument says; prints MB/s.
const FORKED: &str = r#"
import os, sys, time
count, block = int(sys.argv[1]), b"x" * (1 << 20)
open("parent", "wb").close()
began, children = time.monotonic(), []
for i in range(8):
    child = os.fork()
    if child == 0:
        fd = os.open("worker%d" % i, os.O_WRONLY | os.O_CREAT, 0o600)
        for k in range(count): assert os.pwrite(fd, block, k << 20) == 1 << 20
        os.close(fd)
        os._exit(0)
    children.append(child)
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
print(8 * count * (1 << 20) / (time.monotonic() - began) / 1e6)
"#;

impl Experiment for Scaling {
    fn run(&self, progress: &dyn Progress) -> Result<Outcome> {
        let nodes = [1, 2, 4];
        let program = program()?;
        let count = if self.quick { 2 } else { 20 };
        progress.begin(nodes.len() * 2);
        let mut seen = Vec::new();
        for n in nodes {
            progress.doing(&format!("{n} I/O nodes"));
            let home = RunDir::create(&self.dir)?;
            let settings = home.path().join("node.toml");
            std::fs::write(&settings, STORAGE)?;
            let data = home.path().join("data");
            std::fs::create_dir(&data)?;
            let args = vec!["--config".to_owned(), settings.display().to_string()];
            let layer = start_layer(&program, &data, Transport::Unix, Protect::None, n, args)?;
            let library = layer.write_preload()?;
            let one = Case {
                what: "one process",
                op: Op::Write,
                size: 16 << 20,
                processes: 1,
                count,
                kind: Kind::Throughput(0.0),
                pinned: false,
            };
            let alone = measure(&one, &data, |file| {
                forwarded(one.worker(&program, file), &library, &layer).context("cannot start a worker")
            })?;
            progress.advance(1);
            seen.push([alone, workers(&data, &library, &layer, count * 2)?]);
            progress.advance(1);
        }
        let mut found = Outcome::default();
        found.line(format!("emulated storage of 100 MB/s for each I/O node; {}", load()));
        let mut t = Table::new(["I/O nodes", "one process, MB/s", "8 forked workers, MB/s"]);
        for (n, rates) in nodes.iter().zip(&seen) {
            t.row([n.to_string(), format!("{:.0}", rates[0]), format!("{:.0}", rates[1])]);
        }
        found.table(t);
        for (i, who) in ["one process", "8 forked workers"].into_iter().enumerate() {
            for (n, rates) in nodes.iter().zip(&seen).skip(1) {
                let share = rates[i] / (seen[0][i] * *n as f64);
                found.judge(format!("{who}, {n} I/O nodes: {share:.2} of linear (≥ 0.8)"), share >= 0.8);
            }
        }
        Ok(found)
    }
}

fn forwarded(mut c: Command, library: &Path, layer: &Layer) -> Result<Process> {
    c.env("LD_PRELOAD", library).env("FOREBAY_CONFIG", layer.client_config());
    Ok(Process::start(c.stdin(Stdio::piped()).stdout(Stdio::piped()))?)
}

fn workers(data: &Path, library: &Path, layer: &Layer, count: usize) -> Result<f64> {
    let mut c = Command::new("python3");
    c.args(["-c", FORKED, &count.to_string()]).current_dir(data).env("PWD", data);
    c.env("LD_PRELOAD", library).env("FOREBAY_CONFIG", layer.client_config());
    let mut workers = Process::start(c.stdin(Stdio::null()).stdout(Stdio::piped()))
        .context("forked workers need python3")?;
    let mut said = String::new();
    workers.output().context("no pipe")?.read_to_string(&mut said)?;
    if !workers.wait()?.success() {
        bail!("a worker failed: see above");
    }
    Ok(said.trim().parse()?)
}

/// Measure the small records of one rank: 550,000 writes of 464 bytes, directly and forwarded.
///
/// What E3SM's I case does. Medians of interleaved repetitions.
#[derive(Clone, Debug)]
pub struct Records {
    /// Where the file is: a disk's file system.
    pub dir: PathBuf,
    /// A tenth of the work: to see that it runs.
    pub quick: bool,
}

impl Experiment for Records {
    fn run(&self, progress: &dyn Progress) -> Result<Outcome> {
        let program = program()?;
        let home = RunDir::create(&self.dir)?;
        let layer = start_layer(&program, home.path(), Transport::Unix, Protect::None, 1, Vec::new())?;
        let library = layer.write_preload()?;
        let count = if self.quick { 20_000 } else { 550_000 };
        let repeat = if self.quick { 1 } else { 5 };
        let case = Case {
            what: "464-byte writes",
            op: Op::Write,
            size: 464,
            processes: 1,
            count,
            kind: Kind::Rate(1.0),
            pinned: false,
        };
        progress.begin(repeat * 2);
        let mut seen = [Vec::new(), Vec::new()];
        for round in 0..repeat {
            for i in 0..2 {
                let way = (i + round) % 2;
                seen[way].push(measure(&case, home.path(), |file| {
                    let mut c = case.worker(&program, file);
                    match way {
                        0 => Ok(Process::start(c.stdin(Stdio::piped()).stdout(Stdio::piped()))?),
                        _ => forwarded(c, &library, &layer),
                    }
                })?);
                progress.advance(1);
            }
        }
        let share = median(&seen[1].iter().zip(&seen[0]).map(|(f, d)| f / d).collect::<Vec<_>>());
        let [direct, forebay] = seen.map(|s| median(&s));
        let mut found = Outcome::default();
        found.line(format!("{count} writes of 464 bytes in {}; {}", self.dir.display(), load()));
        found.judge(
            format!("{forebay:.0} writes/s, directly {direct:.0}/s: {share:.2} of it (≥ 1)"),
            share >= 1.0,
        );
        Ok(found)
    }
}
