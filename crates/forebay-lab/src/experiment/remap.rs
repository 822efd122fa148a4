//! Remapping: a running job is moved from I/O node to I/O node, again and again, while
//! it verifies every byte.

use super::Experiment;
use super::pool::Pool;
use crate::machine::{load, program};
use crate::outcome::{Outcome, csv};
use crate::{Progress, Size};
use anyhow::{Context, Result, bail};
use forebay_client::{Client, Config, ExportId, OpenFlags, Path as WirePath};
use forebay_embed::Process;
use forebay_plot::{Axis, Line, Series};
use forebay_types::Epoch;
use forebay_types::stats::{median, quantile};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const NODES: usize = 4;
const PROCESSES: usize = 8;
/// I/O nodes of the job at any time.
const HELD: usize = 2;
const EVERY: Duration = Duration::from_millis(200);
/// Of moving, and of standing still, in turn.
const SEGMENT: Duration = Duration::from_secs(2);
const BLOCK: usize = 64 << 10;
const SLOTS: u64 = 64;

/// Move a running job between I/O nodes every 200 ms while it verifies every byte.
///
/// An arbiter, 4 I/O nodes (processes, on a memory file system) and one job of 8 processes that write
/// and read back blocks of 64 KiB and check each byte. In turn for 2 s each, the job's mapping stands
/// still, and it is changed every 200 ms to 2 other I/O nodes through the arbiter. Shows how long it
/// takes from the decision until the last process has moved, and what throughput moving costs. With
/// `--kill-arbiter N`, the arbiter is killed N times meanwhile and started again. The processes leave no
/// processor idle; with `--rest` they do, as where arbiter and I/O nodes have hosts of their own.
#[derive(Clone, Debug)]
pub struct Remap {
    /// How much to do.
    pub size: Size,
    /// How long to move, in seconds, if not as the size says; as long again it stands still.
    pub seconds: Option<u64>,
    /// Kill the arbiter so many times meanwhile, and start it again.
    pub kill_arbiter: u32,
    /// Milliseconds for which each process rests between two blocks.
    pub rest: u64,
    /// Of the random choices.
    pub seed: u64,
    /// The arbiter's certificate for 127.0.0.1 and its key; `FOREBAY_CA` names whose word counts.
    pub tls: Option<(PathBuf, PathBuf)>,
}

impl Default for Remap {
    fn default() -> Remap {
        Remap { size: Size::Small, seconds: None, kill_arbiter: 0, rest: 0, seed: 1, tls: None }
    }
}

/// One process of the job; what `forebay experiment remap-worker` runs.
#[derive(Clone, Debug)]
pub struct RemapWorker {
    /// The client's configuration file.
    pub config: PathBuf,
    /// Which process it is.
    pub number: usize,
    /// Milliseconds for which it rests between two blocks.
    pub rest: u64,
}

/// What a worker says, a line each.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Said {
    /// Unix time, in nanoseconds.
    at: u64,
    /// Verified so far.
    bytes: u64,
    epoch: Epoch,
}

impl Said {
    fn say(&mut self, client: &Client) -> Result<()> {
        (self.at, self.epoch) = (now(), client.epoch());
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        std::io::stdout().write_all(&line)?;
        Ok(std::io::stdout().flush()?)
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
}

impl RemapWorker {
    /// Works until its standard input ends.
    pub fn run(&self) -> Result<()> {
        let config = Config::from_json(&std::fs::read(&self.config)?)?;
        let client = Client::new(config, None)?;
        let (send, over) = std::sync::mpsc::channel::<()>();
        std::thread::spawn(move || {
            // Whoever started us closes it.
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            drop(send);
        });
        let name = format!("remap.{}", self.number);
        let path = WirePath { export: ExportId(0), rel: name.as_bytes() };
        let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
        let (file, _) = client.open(path, flags, 0o644)?;
        let mut rng = ChaCha8Rng::seed_from_u64(self.number as u64);
        let mut newest = [0u64; SLOTS as usize];
        let (mut block, mut back) = (vec![0u8; BLOCK], vec![0u8; BLOCK]);
        let mut said = Said { at: 0, bytes: 0, epoch: client.epoch() };
        let mut due = Instant::now();
        for round in 1u64.. {
            let slot = rng.random_range(0..SLOTS);
            let word = (round << 16 | slot).to_le_bytes();
            block.chunks_exact_mut(8).for_each(|c| c.copy_from_slice(&word));
            if client.pwrite(&file, &block, slot * BLOCK as u64)? != BLOCK {
                bail!("process {}: a short write", self.number);
            }
            newest[slot as usize] = round;
            said.bytes += BLOCK as u64;
            if client.epoch() != said.epoch {
                said.say(&client)?;
            }
            let slot = rng.random_range(0..SLOTS);
            let want = newest[slot as usize];
            if want > 0 {
                let n = client.pread(&file, &mut back, slot * BLOCK as u64)?;
                let word = (want << 16 | slot).to_le_bytes();
                if n != BLOCK || back.chunks_exact(8).any(|c| c != word) {
                    bail!("process {}: a wrong byte in block {slot} of round {want}", self.number);
                }
                said.bytes += BLOCK as u64;
            }
            let ended = over.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected);
            if ended || client.epoch() != said.epoch || due.elapsed() >= Duration::from_millis(50) {
                due = Instant::now();
                said.say(&client)?;
            }
            if ended {
                break;
            }
            if self.rest > 0 {
                std::thread::sleep(Duration::from_millis(self.rest));
            }
        }
        client.close(&file)?;
        client.leave();
        Ok(())
    }
}

/// A worker under way.
struct Worker {
    process: Process,
    input: Option<ChildStdin>,
    lines: std::thread::JoinHandle<Vec<Said>>,
}

impl Worker {
    fn start(config: &Path, number: usize, rest: u64) -> Result<Worker> {
        let mut command = Command::new(program()?);
        let (rank, rest) = (number.to_string(), rest.to_string());
        command.args(["experiment", "remap-worker", "--number", &rank, "--rest", &rest, "--config"]);
        command.arg(config).env("OMPI_COMM_WORLD_RANK", rank);
        let mut process = Process::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let input = process.input();
        let output = BufReader::new(process.output().context("a worker's output")?);
        let lines = std::thread::spawn(move || {
            output.lines().map_while(Result::ok).filter_map(|l| serde_json::from_str(&l).ok()).collect()
        });
        Ok(Worker { process, input, lines })
    }

    fn finish(mut self) -> Result<Vec<Said>> {
        drop(self.input.take());
        let status = self.process.wait()?;
        let lines = self.lines.join().ok().context("a worker's output")?;
        if !status.success() {
            bail!("a process of the job failed ({status}): see above");
        }
        Ok(lines)
    }
}

/// When the mapping was changed, and its epoch.
struct Move {
    at: u64,
    epoch: Epoch,
}

/// A time of moving or of standing still.
struct Segment {
    moving: bool,
    from: u64,
    to: u64,
}

impl Experiment for Remap {
    fn run(&self, progress: &dyn Progress) -> Result<Outcome> {
        let seconds = self.seconds.unwrap_or(self.size.full_or(60, 20));
        let pairs = (seconds / SEGMENT.as_secs()).max(1);
        let mut pool = Pool::start(NODES, self.tls.as_ref())?;
        let grant = pool.register("remap", None)?;
        pool.pin("remap", &[0, 1])?;
        let config = pool.client_config(&grant)?;
        let mut workers = Vec::new();
        for number in 0..PROCESSES {
            workers.push(Worker::start(&config, number, self.rest)?);
        }
        progress.begin(2 * pairs as usize);
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let (mut moves, mut segments, mut killed) = (Vec::new(), Vec::new(), 0);
        std::thread::sleep(Duration::from_millis(500));
        for pair in 0..pairs {
            for moving in [false, true] {
                progress.doing(if moving { "moving" } else { "standing still" });
                let from = now();
                let end = Instant::now() + SEGMENT;
                while Instant::now() < end {
                    let next = Instant::now() + EVERY;
                    if moving {
                        moves.extend(change(&pool, &mut rng));
                        let due = (pair + 1) * u64::from(self.kill_arbiter) / pairs;
                        if u64::from(killed) < due {
                            std::thread::sleep(Duration::from_millis(rng.random_range(0..100)));
                            pool.replace_arbiter()?;
                            killed += 1;
                        }
                    }
                    // As `forebay run` does; while the arbiter is away it waits.
                    let _ = pool.register("remap", grant.secret.clone());
                    std::thread::sleep(next.saturating_duration_since(Instant::now()));
                }
                segments.push(Segment { moving, from, to: now() });
                progress.advance(1);
            }
        }
        let said = workers.into_iter().map(Worker::finish).collect::<Result<Vec<_>>>()?;
        Ok(judge(&moves, &segments, &said, killed, self.rest))
    }
}

fn judge(moves: &[Move], segments: &[Segment], said: &[Vec<Said>], killed: u32, rest: u64) -> Outcome {
    let mut found = Outcome::default();
    let took: Vec<f64> = moves.iter().filter_map(|m| last_moved(m, said)).collect();
    let quantile = |q: f64| quantile(&took, q);
    let rate = |s: &Segment| {
        said.iter().map(|w| verified(w, s.from, s.to)).sum::<f64>() / (s.to - s.from) as f64 * 1e3
    };
    let rates: Vec<f64> = segments.iter().map(rate).collect();
    let ratios: Vec<f64> = rates.chunks_exact(2).map(|pair| pair[1] / pair[0]).collect();
    let loss = 1.0 - median(&ratios);
    let of = |moving| {
        let some = segments.iter().zip(&rates).filter(|(s, _)| s.moving == moving);
        median(&some.map(|(_, r)| *r).collect::<Vec<_>>())
    };
    let bytes: u64 = said.iter().filter_map(|w| w.last()).map(|s| s.bytes).sum();
    let resting = if rest > 0 { format!(" that rest {rest} ms between blocks") } else { String::new() };
    found.line(format!("{PROCESSES} processes{resting}, {NODES} I/O nodes, {}\n", load()));
    let gb = bytes as f64 / 1e9;
    found.line(format!("verified                         {gb:>10.1} GB, no error, no wrong byte"));
    found.line(format!("mapping changed                  {:>10} times", moves.len()));
    if killed > 0 {
        found.line(format!("arbiter killed                   {killed:>10} times"));
    }
    if !took.is_empty() {
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(quantile);
        found.line(format!(
            "decision to last process moved   {p50:>10.1} ms median, {p99:.1} ms p99, {max:.1} ms at most"
        ));
        found.judge("the last process has moved within 100 ms (p99)", p99 < 100.0);
    }
    let (still, moving, less) = (of(false), of(true), loss * 100.0);
    found.line(format!("throughput, standing still       {still:>10.0} MB/s"));
    found.line(format!("throughput, moving every 200 ms  {moving:>10.0} MB/s, {less:.1} % less"));
    found.judge("moving costs less than 10 %", loss < 0.10);
    let rows: Vec<[String; 2]> =
        took.iter().enumerate().map(|(i, t)| [i.to_string(), format!("{t:.3}")]).collect();
    let points = took.iter().enumerate().map(|(i, t)| (*t, (i + 1) as f64 / took.len() as f64));
    let svg = Line {
        title: "From decision to the last process moved".into(),
        x: Axis::linear("ms"),
        y: Axis::linear("part of all moves"),
        series: vec![Series::new("moves", points)],
        ..Line::default()
    }
    .svg();
    found.figures("remap", csv(["rank", "last_moved_ms"], &rows), svg);
    found
}

/// Gives the job other I/O nodes; nothing while the arbiter is away.
fn change(pool: &Pool, rng: &mut ChaCha8Rng) -> Option<Move> {
    let mut all: Vec<u32> = (0..NODES as u32).collect();
    all.shuffle(rng);
    let at = now();
    let epoch = pool.pin("remap", &all[..HELD]).ok()?;
    Some(Move { at, epoch })
}

/// Milliseconds until all processes knew the mapping or a newer one.
fn last_moved(m: &Move, said: &[Vec<Said>]) -> Option<f64> {
    let first = |w: &Vec<Said>| w.iter().find(|s| s.epoch >= m.epoch).map(|s| s.at);
    let last = said.iter().map(first).try_fold(0, |last, at| Some(at?.max(last)))?;
    Some(last.saturating_sub(m.at) as f64 / 1e6)
}

/// Bytes that a process verified between two moments, from what it said around them.
fn verified(said: &[Said], from: u64, to: u64) -> f64 {
    let at = |t: u64| {
        let i = said.partition_point(|s| s.at <= t);
        match (i.checked_sub(1).map(|i| said[i]), said.get(i)) {
            (Some(a), Some(b)) => {
                let part = (t - a.at) as f64 / (b.at - a.at).max(1) as f64;
                a.bytes as f64 + part * (b.bytes - a.bytes) as f64
            }
            (Some(a), None) => a.bytes as f64,
            _ => 0.0,
        }
    };
    at(to) - at(from)
}
