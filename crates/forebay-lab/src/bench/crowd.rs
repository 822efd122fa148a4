//! One I/O node and many clients: ten thousand connections that are active in turn, 64 that are active at
//! once, and the processor time that the node takes for a gigabyte.

use super::limit::LimitClient;
use super::path::{Server, raise_file_limit, resident, start_layer};
use crate::Progress;
use crate::experiment::Experiment;
use crate::machine::{load, program};
use crate::outcome::{Outcome, Table};
use anyhow::{Context, Result, bail};
use forebay_client::{Client, ExportId, File, OpenFlags, Path as WirePath};
use forebay_embed::{Layer, RunDir, Transport};
use forebay_types::Protect;
use forebay_types::stats::median;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Measure one I/O node with many clients.
///
/// Ten thousand connections, or as many as this machine's limit of descriptors allows, that read 4 KiB in turn: the node's memory, and the 99th percentile of a read against
/// that with a hundred. 64 clients that read 4 KiB all the time: operations a second against those of the
/// smallest possible forwarder. One client that reads and writes 1 MiB: processor seconds per GB of the I/O
/// node against those of the smallest possible forwarder. Over Unix sockets; every request makes a trip.
#[derive(Clone, Debug)]
pub struct Crowd {
    /// Where the files are; a memory file system.
    pub dir: PathBuf,
    /// A twentieth of the work: to see that it runs.
    pub quick: bool,
}

const FEW: usize = 100;
const ACTIVE: usize = 64;
const BLOCK: usize = 4 << 10;
const LARGE: usize = 1 << 20;
const FILE: u64 = 16 << 20;
const REPEAT: usize = 3;

impl Experiment for Crowd {
    fn run(&self, progress: &dyn Progress) -> Result<Outcome> {
        let (many, reads, span, large) = match self.quick {
            true => (500, 5_000, Duration::from_millis(200), 200),
            false => (10_000, 100_000, Duration::from_secs(3), 4_000),
        };
        // The node has two descriptors for each: the connection, and the file.
        let allowed = raise_file_limit(2 * many + 1000)?;
        let many = many.min(allowed.saturating_sub(1000) / 2);
        let home = RunDir::create(&self.dir)?;
        let settings = home.path().join("node.toml");
        std::fs::write(&settings, format!("max-connections = {}\n", many + 1000))?;
        let program = program()?;
        let args = vec!["--config".to_owned(), settings.display().to_string()];
        let layer = start_layer(&program, home.path(), Transport::Unix, Protect::None, 1, args)?;
        let limit = Server::start(&program, home.path(), Transport::Unix, false)?;
        std::fs::write(home.path().join("file"), vec![1u8; FILE as usize])?;
        let pid = *layer.pids().first().context("no I/O node")?;
        progress.begin(2 + 2 * REPEAT + 4 * REPEAT);
        let turns = |count: usize| {
            progress.doing(&format!("{count} connections"));
            let seen = in_turn(&layer, pid, count, reads);
            progress.advance(1);
            seen
        };
        let [few, crowd] = [turns(FEW)?, turns(many)?];
        let file = home.path().join("file");
        progress.doing("64 clients");
        let mut rates = [Vec::new(), Vec::new()];
        for _ in 0..REPEAT {
            rates[0].push(at_once(span, || Through::node(&layer))?);
            progress.advance(1);
            rates[1].push(at_once(span, || Through::limit(&limit.at, &file))?);
            progress.advance(1);
        }
        progress.doing("processor time");
        let mut costs: [[Vec<f64>; 2]; 2] = Default::default();
        for _ in 0..REPEAT {
            for (writes, costs) in costs.iter_mut().enumerate() {
                for (way, costs) in costs.iter_mut().enumerate() {
                    let (through, pid) = match way {
                        0 => (Through::node(&layer)?, pid),
                        _ => (Through::limit(&limit.at, &file)?, limit.process.id()),
                    };
                    costs.push(per_gb(through, pid, writes == 1, large)?);
                    progress.advance(1);
                }
            }
        }
        Ok(tell(many, [few, crowd], rates, costs))
    }
}

/// What was seen with so many connections.
struct Turns {
    mib: f64,
    p50: f64,
    p99: f64,
}

/// `rates` and `costs` of the node and of the limit, in turns; the latter of reads and of writes.
fn tell(many: usize, [few, crowd]: [Turns; 2], rates: [Vec<f64>; 2], costs: [[Vec<f64>; 2]; 2]) -> Outcome {
    let mut found = Outcome::default();
    found.line(load());
    let mut t = Table::new(["connections", "node, MiB", "4 KiB read, p50, µs", "p99, µs"]);
    for (count, seen) in [(FEW, &few), (many, &crowd)] {
        let figure = |v: f64| format!("{v:.1}");
        t.row([count.to_string(), figure(seen.mib), figure(seen.p50), figure(seen.p99)]);
    }
    found.table(t);
    found.judge(format!("{many} connections: {:.0} MiB (≤ 400)", crowd.mib), crowd.mib <= 400.0);
    let worse = crowd.p99 / few.p99;
    found.judge(format!("p99 {worse:.2} times that with {FEW} connections (≤ 3)"), worse <= 3.0);
    let of = |both: &[Vec<f64>; 2]| {
        median(&both[0].iter().zip(&both[1]).map(|(node, limit)| node / limit).collect::<Vec<_>>())
    };
    let share = of(&rates);
    let [node, limit] = rates.map(|r| median(&r));
    found.judge(
        format!("{ACTIVE} active clients: {node:.0}/s, the limit {limit:.0}/s, {share:.2} of it (≥ 0.95)"),
        share >= 0.95,
    );
    for (costs, what) in costs.into_iter().zip(["reads", "writes"]) {
        let share = of(&costs);
        let [node, limit] = costs.map(|c| median(&c));
        found.judge(
            format!(
                "1 MiB {what}: {node:.3} processor seconds per GB, the limit {limit:.3}, {share:.2} of it (≤ 0.8)"
            ),
            share <= 0.8,
        );
    }
    found
}

/// Requests to a file, by one way or the other.
enum Through {
    Node(Box<Client>, Box<File>),
    Limit(LimitClient),
}

impl Through {
    fn node(layer: &Layer) -> Result<Through> {
        let client = Client::new(layer.config().unshared(), None)?;
        let path = WirePath { export: ExportId(0), rel: b"file" };
        let (file, _) = client.open(path, OpenFlags::READ | OpenFlags::WRITE, 0)?;
        Ok(Through::Node(Box::new(client), Box::new(file)))
    }

    fn limit(at: &str, file: &Path) -> Result<Through> {
        let mut client = LimitClient::connect(at, false)?;
        client.open(file)?;
        Ok(Through::Limit(client))
    }

    fn read(&mut self, buf: &mut [u8], at: u64) -> Result<()> {
        let n = match self {
            Through::Node(client, file) => client.pread(file, buf, at)?,
            Through::Limit(client) => client.read(buf, at)?,
        };
        if n == buf.len() { Ok(()) } else { bail!("{n} bytes instead of {}", buf.len()) }
    }

    fn write(&mut self, data: &[u8], at: u64) -> Result<()> {
        let n = match self {
            Through::Node(client, file) => client.pwrite(file, data, at)?,
            Through::Limit(client) => client.write(data, at)?,
        };
        if n == data.len() { Ok(()) } else { bail!("{n} bytes instead of {}", data.len()) }
    }
}

impl Drop for Through {
    fn drop(&mut self) {
        if let Through::Node(client, _) = self {
            client.leave();
        }
    }
}

/// So many clients of the node read one after the other.
fn in_turn(layer: &Layer, pid: u32, count: usize, reads: usize) -> Result<Turns> {
    let mut clients = (0..count).map(|_| Through::node(layer)).collect::<Result<Vec<_>>>()?;
    let mut buf = [0; BLOCK];
    let mut each = Vec::with_capacity(reads);
    for i in 0..reads {
        let began = Instant::now();
        clients[i % count].read(&mut buf, (i * BLOCK) as u64 % FILE)?;
        each.push(began.elapsed());
    }
    each.sort_unstable();
    let at = |share: usize| each[reads * share / 100].as_secs_f64() * 1e6;
    Ok(Turns { mib: resident(pid)?, p50: at(50), p99: at(99) })
}

/// Operations a second of clients that all read for `span`.
fn at_once(span: Duration, through: impl Fn() -> Result<Through>) -> Result<f64> {
    let clients = (0..ACTIVE).map(|_| through()).collect::<Result<Vec<_>>>()?;
    let began = Instant::now();
    let counts = std::thread::scope(|s| {
        let work = |mut client: Through| -> Result<usize> {
            let (mut buf, mut done) = ([0; BLOCK], 0);
            while began.elapsed() < span {
                client.read(&mut buf, (done * BLOCK) as u64 % FILE)?;
                done += 1;
            }
            Ok(done)
        };
        let threads: Vec<_> = clients.into_iter().map(|client| s.spawn(move || work(client))).collect();
        let joined = threads.into_iter().map(|t| t.join().unwrap_or_else(|_| bail!("a client failed")));
        joined.collect::<Result<Vec<usize>>>()
    })?;
    Ok(counts.iter().sum::<usize>() as f64 / began.elapsed().as_secs_f64())
}

/// Processor seconds of the process for a gigabyte that is read or written.
fn per_gb(mut through: Through, pid: u32, writes: bool, count: usize) -> Result<f64> {
    let mut buf = vec![3; LARGE];
    let mut go = |count: usize| -> Result<()> {
        for i in 0..count {
            let at = (i * LARGE) as u64 % FILE;
            if writes { through.write(&buf, at)? } else { through.read(&mut buf, at)? }
        }
        Ok(())
    };
    go(count / 20)?;
    let before = processor(pid)?;
    go(count)?;
    Ok((processor(pid)? - before) / (count * LARGE) as f64 * 1e9)
}

/// The processor time a process has taken, in seconds.
fn processor(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').context("no process")?;
    let ticks: Vec<f64> =
        fields.split_whitespace().skip(11).take(2).filter_map(|word| word.parse().ok()).collect();
    Ok(ticks.iter().sum::<f64>() / rustix::param::clock_ticks_per_second() as f64)
}
