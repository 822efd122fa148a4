//! The path of a request: the cost of the way, interleaved with the file itself and with the smallest
//! possible forwarder.

use super::worker::{Op, Timing};
use super::{number, word};
use crate::Progress;
use crate::machine::program;
use anyhow::{Context, Result, bail};
use forebay_client::{Client, Fallback, Meta, Path as WirePath, Target};
use forebay_embed::{At, Layer, LayerConfig, Process, RunDir, Transport};
use forebay_plot::say;
use forebay_types::Protect;
use forebay_types::stats::median;
use rustix::thread::CpuSet;
use serde::Serialize;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Measure the path of a request: direct, the smallest possible forwarder, and Forebay.
///
/// Every figure is the median of several repetitions that are interleaved in one run, on a memory
/// file system, over TCP on loopback or Unix sockets. *direct* is the file itself; *limit* is the smallest
/// possible synchronous forwarder (a blocking socket, a header, the payload, pwrite or pread, a reply, and
/// nothing else); *forebay* is an unmodified program through the preload library and one I/O node.
/// Latencies and metadata rates are measured twice: with both sides on one processor, where nobody can
/// spin, and *free*, as users see them, against a limit that spins for up to 100 µs before it sleeps;
/// throughput without pinning, against the limit that sleeps. The ratio is the median of the
/// repetitions' own ratios: what a machine does to one repetition it mostly does to all three ways.
#[derive(Clone, Debug)]
pub struct PathBench {
    /// Repetitions of each measurement.
    pub repeat: usize,
    /// Where the files are; a memory file system.
    pub dir: PathBuf,
    /// How the I/O node and the smallest forwarder are reached.
    pub transport: Transport,
    /// How the connections to the I/O node are protected; the smallest forwarder's are not.
    pub protect: Protect,
    /// A tenth of the work: to see that it runs.
    pub quick: bool,
    /// Only rows whose name has this in it.
    pub only: String,
}

impl Default for PathBench {
    fn default() -> PathBench {
        PathBench {
            repeat: 9,
            dir: "/dev/shm".into(),
            transport: Transport::Tcp,
            protect: Protect::None,
            quick: false,
            only: String::new(),
        }
    }
}

/// One kind of measurement, by all three ways; not a number where there is none.
#[derive(Clone, Debug, Serialize)]
pub struct PathRow {
    /// What was measured.
    pub what: String,
    /// Of the three.
    pub unit: &'static str,
    /// The file itself.
    pub direct: f64,
    /// The smallest possible forwarder.
    pub limit: f64,
    /// The preload library and an I/O node.
    pub forebay: f64,
    /// forebay over limit, median of the repetitions.
    pub ratio: f64,
    /// What the ratio is held against, if it is.
    pub target: String,
    /// Whether that is met.
    pub met: Option<bool>,
}

/// The measurements as a table for people.
pub fn path_table(rows: &[PathRow], repeat: usize) -> String {
    let mut out = format!(
        "medians of {repeat} interleaved repetitions; ratio: forebay / limit, median of the repetitions\n\n\
         {:<28} {:>5} {:>10} {:>10} {:>10} {:>7}  {:<8}\n",
        "", "", "direct", "limit", "forebay", "ratio", "target"
    );
    for r in rows {
        let [direct, limit, forebay, ratio] = [r.direct, r.limit, r.forebay, r.ratio].map(number);
        let (what, unit, target, met) = (&r.what, r.unit, &r.target, r.met.map_or("", word));
        say!(
            out,
            "{what:<28} {unit:>5} {direct:>10} {limit:>10} {forebay:>10} {ratio:>7}  {target:<8} {met}"
        );
    }
    out
}

/// One kind of measurement.
pub(super) struct Case {
    pub(super) what: &'static str,
    pub(super) op: Op,
    pub(super) size: usize,
    pub(super) processes: usize,
    pub(super) count: usize,
    pub(super) kind: Kind,
    /// Both sides on one processor.
    pub(super) pinned: bool,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// Microseconds, at most this many times the limit's.
    Latency(f64),
    /// MB/s, at least this share of the limit's.
    Throughput(f64),
    /// Operations a second, at least this share of the limit's.
    Rate(f64),
}

impl Kind {
    pub(super) fn unit(self) -> &'static str {
        match self {
            Kind::Latency(_) => "µs",
            Kind::Throughput(_) => "MB/s",
            Kind::Rate(_) => "1/s",
        }
    }
}

pub(super) fn cases(quick: bool) -> Vec<Case> {
    let n = |full: usize| if quick { (full / 10).max(20) } else { full };
    let case = |what, op, size, processes, count, kind| Case {
        what,
        op,
        size,
        processes,
        count: n(count),
        kind,
        pinned: false,
    };
    let pinned = |what, op, size, count, kind| Case { pinned: true, ..case(what, op, size, 1, count, kind) };
    vec![
        pinned("4 KiB write, p50, one core", Op::Write, 4 << 10, 10_000, Kind::Latency(1.3)),
        pinned("4 KiB read, p50, one core", Op::Read, 4 << 10, 10_000, Kind::Latency(1.3)),
        case("4 KiB write, p50, free", Op::Write, 4 << 10, 1, 10_000, Kind::Latency(1.15)),
        case("4 KiB read, p50, free", Op::Read, 4 << 10, 1, 10_000, Kind::Latency(1.15)),
        case("64 KiB write, 1 process", Op::Write, 64 << 10, 1, 12_000, Kind::Throughput(0.9)),
        case("64 KiB read, 1 process", Op::Read, 64 << 10, 1, 12_000, Kind::Throughput(0.9)),
        case("64 KiB write, 8 processes", Op::Write, 64 << 10, 8, 3_000, Kind::Throughput(0.9)),
        case("64 KiB read, 8 processes", Op::Read, 64 << 10, 8, 3_000, Kind::Throughput(0.9)),
        case("1 MiB write, 1 process", Op::Write, 1 << 20, 1, 800, Kind::Throughput(0.9)),
        case("1 MiB read, 1 process", Op::Read, 1 << 20, 1, 800, Kind::Throughput(0.9)),
        case("1 MiB write, 8 processes", Op::Write, 1 << 20, 8, 150, Kind::Throughput(0.9)),
        case("1 MiB read, 8 processes", Op::Read, 1 << 20, 8, 150, Kind::Throughput(0.9)),
        pinned("stat, one core", Op::Stat, 1, 10_000, Kind::Rate(0.7)),
        case("stat, free", Op::Stat, 1, 1, 10_000, Kind::Rate(0.7)),
        pinned("create + unlink, one core", Op::Create, 1, 5_000, Kind::Rate(0.7)),
        case("create + unlink, free", Op::Create, 1, 1, 5_000, Kind::Rate(0.7)),
    ]
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    Direct,
    Limit,
    Forebay,
}

/// What protected connections leave of the limit at 1 MiB, at least.
const PROTECTED: f64 = 0.5;

/// The rows that are no [`Case`].
const START_UP: &str = "start-up of /bin/true";
const IDLE: &str = "I/O node, idle";
const BUSY: &str = "I/O node, 1,000 connections";

const WAYS: [Way; 3] = [Way::Direct, Way::Limit, Way::Forebay];

/// A process of the bench that ends when this value does.
pub(super) struct Server {
    pub(super) process: Process,
    pub(super) at: String,
}

struct PathSetup {
    program: PathBuf,
    dir: RunDir,
    layer: Layer,
    library: PathBuf,
    limit: Server,
    spinning: Server,
}

impl PathBench {
    /// Whether a row of this name is wanted.
    pub(super) fn wants(&self, what: &str) -> bool {
        what.contains(&self.only)
    }

    /// What is to be measured of what `can` be; there are `other` rows, too.
    pub(super) fn cases(&self, can: impl Fn(&Case) -> bool, other: &[&str]) -> Result<Vec<Case>> {
        let all: Vec<Case> = cases(self.quick).into_iter().filter(can).collect();
        let names: Vec<&str> = all.iter().map(|case| case.what).chain(other.iter().copied()).collect();
        if !names.iter().any(|name| self.wants(name)) {
            bail!("--only {}: no row has this in its name. They are: {}", self.only, names.join("; "));
        }
        Ok(all.into_iter().filter(|case| self.wants(case.what)).collect())
    }

    /// Measures.
    pub fn run(&self, progress: &dyn Progress) -> Result<Vec<PathRow>> {
        let cases = self.cases(|_| true, &[START_UP, IDLE, BUSY])?;
        let ground = PathSetup::new(&self.dir, self.transport, self.protect)?;
        let repeat = self.repeat.max(1);
        progress.begin(cases.len() * repeat * WAYS.len());
        let mut rows = Vec::new();
        for case in &cases {
            progress.doing(case.what);
            let mut seen = [Vec::new(), Vec::new(), Vec::new()];
            for round in 0..repeat {
                // Each repetition in another order, so that no way always follows the same one.
                for i in 0..3 {
                    let way = (i + round) % 3;
                    seen[way].push(ground.measure(case, WAYS[way])?);
                    progress.advance(1);
                }
            }
            rows.push(row(case, self.protect, &seen));
        }
        if self.wants(START_UP) {
            rows.push(ground.start_up(if self.quick { 10 } else { 60 })?);
        }
        if self.wants(IDLE) || self.wants(BUSY) {
            rows.extend(ground.memory()?.into_iter().filter(|row| self.wants(&row.what)));
        }
        Ok(rows)
    }
}

fn row(case: &Case, protect: Protect, seen: &[Vec<f64>; 3]) -> PathRow {
    let ratio =
        median(&seen[2].iter().zip(&seen[1]).map(|(forebay, limit)| forebay / limit).collect::<Vec<_>>());
    let [direct, limit, forebay] = seen.each_ref().map(|times| median(times));
    // The limit is not protected: only large requests are held against it then.
    let wanted = match (protect, case.size) {
        (Protect::None, _) => Some(case.kind),
        (_, size) if size >= 1 << 20 => Some(Kind::Throughput(PROTECTED)),
        _ => None,
    };
    let (target, met) = match wanted {
        Some(Kind::Latency(most)) => (format!("≤ {most}"), Some(ratio <= most)),
        Some(Kind::Throughput(least) | Kind::Rate(least)) => (format!("≥ {least}"), Some(ratio >= least)),
        None => (String::new(), None),
    };
    let unit = case.kind.unit();
    PathRow { what: case.what.into(), unit, direct, limit, forebay, ratio, target, met }
}

impl PathSetup {
    fn new(base: &Path, transport: Transport, protect: Protect) -> Result<PathSetup> {
        let program = program()?;
        let dir = RunDir::create(base)?;
        let layer = start_layer(&program, dir.path(), transport, protect, 1, Vec::new())?;
        let library = layer.write_preload()?;
        let limit = Server::start(&program, dir.path(), transport, false)?;
        let spinning = Server::start(&program, dir.path(), transport, true)?;
        Ok(PathSetup { program, dir, layer, library, limit, spinning })
    }

    fn measure(&self, case: &Case, way: Way) -> Result<f64> {
        let cpus: Vec<usize> = if case.pinned { vec![0] } else { all_cpus() };
        pin(Some(self.limit.process.id()), &cpus)?;
        for pid in self.layer.pids() {
            pin(Some(pid), &cpus)?;
        }
        measure(case, self.dir.path(), |file| self.worker(case, way, file))
            .with_context(|| format!("{way:?}, {}", case.what))
    }

    fn worker(&self, case: &Case, way: Way, file: &Path) -> Result<Process> {
        let mut c = case.worker(&self.program, file);
        match way {
            Way::Direct => {}
            Way::Limit if case.pinned || matches!(case.kind, Kind::Throughput(_)) => {
                c.args(["--limit", &self.limit.at]);
            }
            Way::Limit => {
                c.args(["--spin", "--limit", &self.spinning.at]);
            }
            Way::Forebay => {
                c.env("LD_PRELOAD", &self.library).env("FOREBAY_CONFIG", self.layer.client_config());
                // What is measured is a trip.
                c.env("FOREBAY_STREAMS", "off");
            }
        }
        Process::start(c.stdin(Stdio::piped()).stdout(Stdio::piped())).context("cannot start a worker")
    }

    /// What the library adds to the shortest program.
    fn start_up(&self, count: usize) -> Result<PathRow> {
        let once = |preload: bool| -> Result<f64> {
            let mut c = Command::new("/bin/true");
            if preload {
                c.env("LD_PRELOAD", &self.library).env("FOREBAY_CONFIG", self.layer.client_config());
            }
            let t = Instant::now();
            c.status().context("cannot run /bin/true")?;
            Ok(t.elapsed().as_secs_f64() * 1e3)
        };
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for _ in 0..count {
            without.push(once(false)?);
            with.push(once(true)?);
        }
        let (direct, forebay) = (median(&without), median(&with));
        let cost = forebay - direct;
        Ok(PathRow {
            what: START_UP.into(),
            unit: "ms",
            direct,
            limit: f64::NAN,
            forebay,
            ratio: cost,
            target: "≤ 2 more".into(),
            met: Some(cost <= 2.0),
        })
    }

    /// The memory of an idle I/O node, and with a thousand connections.
    fn memory(&self) -> Result<Vec<PathRow>> {
        let layer =
            start_layer(&self.program, self.dir.path(), Transport::Tcp, Protect::None, 1, Vec::new())?;
        let pid = *layer.pids().first().context("no I/O node")?;
        let row = |what: &str, mib: f64, most: f64| PathRow {
            what: what.into(),
            unit: "MiB",
            direct: f64::NAN,
            limit: f64::NAN,
            forebay: mib,
            ratio: f64::NAN,
            target: format!("≤ {most}"),
            met: Some(mib <= most),
        };
        let idle = resident(pid)?;
        raise_file_limit(16_384)?;
        let clients: Vec<Client> =
            (0..1000).map(|_| Client::new(layer.config().clone(), None)).collect::<Result<_, _>>()?;
        for c in &clients {
            let path = WirePath { export: forebay_client::ExportId(0), rel: b"" };
            c.meta(Meta::Stat { target: Target::Path(path) }, |_| Some(()))?;
        }
        let busy = resident(pid)?;
        for c in &clients {
            c.leave();
        }
        Ok(vec![row(IDLE, idle, 20.0), row(BUSY, busy, 150.0)])
    }
}

impl Server {
    pub(super) fn start(program: &Path, dir: &Path, transport: Transport, spin: bool) -> Result<Server> {
        let mut command = Command::new(program);
        command.args(["bench", "limit-server"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        if spin {
            command.arg("--spin");
        }
        if transport == Transport::Unix {
            command.arg("--unix").arg(dir.join(if spin { "spinning" } else { "limit" }));
        }
        let mut process = Process::start(&mut command).context("cannot start the smallest forwarder")?;
        let mut at = String::new();
        BufReader::new(process.output().context("no pipe")?).read_line(&mut at)?;
        at.truncate(at.trim_end().len());
        if at.is_empty() {
            bail!("the smallest forwarder does not say where it is");
        }
        Ok(Server { process, at })
    }
}

impl Case {
    /// The command of a worker of this case.
    pub(super) fn worker(&self, program: &Path, file: &Path) -> Command {
        let mut c = Command::new(program);
        c.args(["bench", "worker", "--op", self.op.name()]);
        c.args(["--size", &self.size.to_string(), "--count", &self.count.to_string()]);
        c.arg("--file").arg(file);
        if self.pinned {
            c.args(["--cpu", "0"]);
        }
        c
    }
}

/// Has the case's workers work at once, each on a file of its own in `dir`: the figure.
pub(super) fn measure(case: &Case, dir: &Path, start: impl Fn(&Path) -> Result<Process>) -> Result<f64> {
    let mut workers = Vec::new();
    for i in 0..case.processes {
        let file = dir.join(format!("file{i}"));
        if !file.exists() {
            std::fs::write(&file, vec![1u8; 16 << 20])?;
        }
        workers.push(start(&file)?);
    }
    let mut pipes = Vec::new();
    for w in &mut workers {
        let mut out = BufReader::new(w.output().context("no pipe")?);
        let mut line = String::new();
        out.read_line(&mut line)?;
        if line.trim() != "ready" {
            bail!("a worker did not start");
        }
        pipes.push(out);
    }
    for w in &mut workers {
        w.input().context("no pipe")?.write_all(b"g")?;
    }
    let mut timings: Vec<Timing> = Vec::new();
    for (w, out) in workers.iter_mut().zip(&mut pipes) {
        let mut line = String::new();
        out.read_line(&mut line)?;
        timings.push(serde_json::from_str(&line).context("a worker failed")?);
        w.wait()?;
    }
    let start = timings.iter().map(|t| t.start).min().unwrap_or(0);
    let end = timings.iter().map(|t| t.end).max().unwrap_or(0);
    let seconds = (end.saturating_sub(start)).max(1) as f64 / 1e9;
    let operations = (case.count * case.processes) as f64;
    Ok(match case.kind {
        Kind::Latency(_) => timings.first().context("no worker")?.p50_ns as f64 / 1e3,
        Kind::Throughput(_) => operations * case.size as f64 / seconds / 1e6,
        Kind::Rate(_) => operations / seconds,
    })
}

/// I/O nodes with further arguments, for the directory by its own name.
pub(super) fn start_layer(
    program: &Path,
    dir: &Path,
    transport: Transport,
    protect: Protect,
    io_nodes: usize,
    node_args: Vec<String>,
) -> Result<Layer> {
    Ok(Layer::start(&LayerConfig {
        program: program.to_owned(),
        io_nodes,
        at: vec![At { dir: dir.to_owned(), export: dir.to_owned() }],
        transport,
        deadline: Duration::from_secs(30),
        fallback: Fallback::Error,
        protect,
        node_args,
        across: None,
        joins: true,
        job: "bench".into(),
    })?)
}

pub(super) fn resident(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1024.0)
}

/// As many descriptors as wanted, if that is allowed; how many there are.
pub(super) fn raise_file_limit(files: usize) -> Result<usize> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let want = now.maximum.unwrap_or(u64::MAX).min((files as u64).max(now.current.unwrap_or(0)));
    setrlimit(Resource::Nofile, Rlimit { current: Some(want), maximum: now.maximum })
        .with_context(|| format!("cannot have {files} descriptors"))?;
    Ok(want as usize)
}

/// Where this process could run when it was first asked, whatever it is bound to since.
pub(super) fn all_cpus() -> Vec<usize> {
    static ALL: OnceLock<Vec<usize>> = OnceLock::new();
    let all = || match rustix::thread::sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect(),
        Err(_) => vec![0],
    };
    ALL.get_or_init(all).clone()
}

/// Lets a process (all its threads; `None`: this one) run on these processors only.
pub(crate) fn pin(pid: Option<u32>, cpus: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    for &c in cpus {
        set.set(c);
    }
    let Some(pid) = pid else {
        return rustix::thread::sched_setaffinity(None, &set).context("cannot choose a processor");
    };
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let tid = task?.file_name().to_string_lossy().parse().ok().and_then(rustix::process::Pid::from_raw);
        // A thread may have ended since it was listed.
        let _ = rustix::thread::sched_setaffinity(tid, &set);
    }
    Ok(())
}
