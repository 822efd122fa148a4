//! Fail-slow: one of four I/O nodes becomes slow without failing.

use super::Experiment;
use super::pool::Pool;
use super::testbed::open;
use crate::machine::load;
use crate::outcome::{Outcome, Table, csv};
use crate::{Progress, Size};
use anyhow::{Result, bail};
use forebay_control::view::NodeState;
use forebay_plot::{Axis, Line, Series};
use forebay_types::NodeId;
use forebay_types::stats::median;
use rustix::process::Signal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const NODES: usize = 4;
const JOBS: usize = 4;
const CLIENTS: usize = 2;
const REQUEST: usize = 64 << 10;
/// Blocks of a client's file.
const BLOCKS: u64 = 64;
/// Between two rounds of a write and a read: what three nodes of a small machine can carry.
const PACE: Duration = Duration::from_millis(8);
const SAMPLE: Duration = Duration::from_millis(250);
/// Stopped for nine tenths of each.
const CYCLE: Duration = Duration::from_millis(200);

/// An I/O node that is slowed to a tenth, under an arbiter that screens its nodes.
///
/// Four I/O nodes and an arbiter run as processes. Four jobs of two clients each write and read back
/// 64 KiB blocks at a steady pace, checking every byte, which three of the nodes can carry. Then one
/// node that serves a job is stopped (SIGSTOP) for nine tenths of every 200 ms, and later left alone
/// again. Shows when the arbiter screened it out and why, what the jobs moved before, meanwhile and
/// after, and when the node was used again.
#[derive(Clone, Debug)]
pub struct Failslow {
    /// How much to do.
    pub size: Size,
    /// How long the node is slow; at full size three times as long.
    pub seconds: u64,
}

impl Default for Failslow {
    fn default() -> Failslow {
        Failslow { size: Size::Small, seconds: 25 }
    }
}

/// What was seen, in seconds from the start.
#[derive(Default)]
struct Timeline {
    /// Time and MB/s of all jobs.
    rate: Vec<(f64, f64)>,
    slow_from: f64,
    slow_to: f64,
    /// The node, screened out at this time for this reason.
    screened: Option<(f64, String)>,
    readmitted: Option<f64>,
}

impl Experiment for Failslow {
    fn run(&self, progress: &dyn Progress) -> Result<Outcome> {
        let slow = Duration::from_secs(self.seconds * self.size.full_or(3, 1));
        let pool = Pool::start(NODES, None)?;
        let seen = watch(&pool, slow, progress)?;
        let mut found = judge(&seen);
        let lines: Vec<[String; 2]> =
            seen.rate.iter().map(|(t, r)| [format!("{t:.3}"), format!("{r:.3}")]).collect();
        found.figures("failslow", csv(["seconds", "mb_per_s"], &lines), chart(&seen));
        let at = |what: &str, seconds: Option<f64>| Some([what.to_owned(), format!("{:.3}", seconds?)]);
        let times = [
            at("slow from", Some(seen.slow_from)),
            at("slow to", Some(seen.slow_to)),
            at("screened", seen.screened.as_ref().map(|s| s.0)),
            at("readmitted", seen.readmitted),
        ];
        let times: Vec<[String; 2]> = times.into_iter().flatten().collect();
        found.file("failslow-times.csv", csv(["what", "seconds"], &times));
        Ok(found)
    }
}

fn watch(pool: &Pool, slow: Duration, progress: &dyn Progress) -> Result<Timeline> {
    let (before, patience) = (Duration::from_secs(12), Duration::from_secs(60));
    let bytes = AtomicU64::new(0);
    let end = AtomicBool::new(false);
    progress.begin((before + slow).as_secs() as usize + 20);
    std::thread::scope(|s| {
        let mut clients = Vec::new();
        let mut grants = Vec::new();
        for job in 0..JOBS {
            let grant = pool.register(&format!("job-{job}"), None)?;
            for rank in 0..CLIENTS {
                let client = pool.client(&grant)?;
                let (bytes, end) = (&bytes, &end);
                clients.push(s.spawn(move || work(&client, job * CLIENTS + rank, bytes, end)));
            }
            grants.push(grant);
        }
        let outcome = (|| {
            // Jobs have settled by now: a node that serves one of them.
            let victim = grants.last().and_then(|g| g.nodes.first().copied()).unwrap_or_default();
            let begin = Instant::now();
            let mut seen = Timeline::default();
            let mut last = (begin, bytes.load(Ordering::Relaxed));
            let (mut renewed, mut told) = (begin, 0);
            let slowing = AtomicBool::new(true);
            std::thread::scope(|t| {
                let outcome = (|| {
                    let mut cycling = None;
                    loop {
                        std::thread::sleep(SAMPLE);
                        let now = (Instant::now(), bytes.load(Ordering::Relaxed));
                        let rate = (now.1 - last.1) as f64 / 1e6 / (now.0 - last.0).as_secs_f64();
                        last = now;
                        let at = begin.elapsed().as_secs_f64();
                        seen.rate.push((at, rate));
                        progress.advance(at as usize - std::mem::replace(&mut told, at as usize));
                        progress.doing(match (&seen.screened, seen.readmitted) {
                            (_, Some(_)) => "the node is used again",
                            (Some(_), _) => "the node is screened out",
                            (None, _) if cycling.is_some() => "the node is slow",
                            _ => "all is well",
                        });
                        if clients.iter().any(|c| c.is_finished()) {
                            bail!("a client has ended early");
                        }
                        if renewed.elapsed() > Duration::from_secs(3) {
                            renewed = Instant::now();
                            for grant in &grants {
                                pool.register(&grant.id, grant.secret.clone())?;
                            }
                        }
                        look(pool, victim, at, &mut seen)?;
                        if cycling.is_none() && begin.elapsed() >= before {
                            seen.slow_from = begin.elapsed().as_secs_f64();
                            let slowing = &slowing;
                            cycling = Some(t.spawn(move || cycle(pool, victim, slowing)));
                        }
                        if begin.elapsed() >= before + slow && slowing.swap(false, Ordering::Relaxed) {
                            seen.slow_to = begin.elapsed().as_secs_f64();
                        }
                        let settled = seen.readmitted.is_some_and(|r| at > r + 5.0);
                        if settled || begin.elapsed() > before + slow + patience {
                            return Ok(());
                        }
                    }
                })();
                slowing.store(false, Ordering::Relaxed);
                outcome
            })?;
            Ok(seen)
        })();
        end.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().unwrap_or_else(|_| bail!("a client failed"))?;
        }
        outcome
    })
}

/// What the arbiter says of the node.
fn look(pool: &Pool, node: NodeId, at: f64, seen: &mut Timeline) -> Result<()> {
    let nodes = pool.nodes()?;
    let Some(view) = nodes.iter().find(|n| n.id == node) else { return Ok(()) };
    match view.state {
        NodeState::Screened if seen.screened.is_none() => {
            seen.screened = Some((at, view.reason.clone().unwrap_or_default()));
        }
        NodeState::Admitted if seen.screened.is_some() && seen.readmitted.is_none() => {
            seen.readmitted = Some(at);
        }
        _ => {}
    }
    Ok(())
}

/// Stops the node for nine tenths of the time; leaves it running.
fn cycle(pool: &Pool, node: NodeId, slowing: &AtomicBool) -> Result<()> {
    let node = node.0 as usize;
    while slowing.load(Ordering::Relaxed) {
        pool.signal(node, Signal::STOP)?;
        std::thread::sleep(CYCLE * 9 / 10);
        pool.signal(node, Signal::CONT)?;
        std::thread::sleep(CYCLE / 10);
    }
    Ok(())
}

/// One client: writes a block, reads another one, and knows what must be in it.
fn work(client: &forebay_client::Client, rank: usize, bytes: &AtomicU64, end: &AtomicBool) -> Result<()> {
    let file = open(client, &format!("file-{rank}"))?;
    let mut data = vec![0u8; REQUEST];
    let mut versions = [0u8; BLOCKS as usize];
    let mut next = Instant::now();
    for step in 0u64.. {
        if end.load(Ordering::Relaxed) {
            break;
        }
        let block = step * 7 % BLOCKS;
        let version = (step % 251) as u8 + 1;
        data.fill(version ^ rank as u8);
        client.pwrite(&file, &data, block * REQUEST as u64)?;
        versions[block as usize] = version;
        let other = step * 13 % BLOCKS;
        if versions[other as usize] != 0 {
            let got = client.pread(&file, &mut data, other * REQUEST as u64)?;
            let wanted = versions[other as usize] ^ rank as u8;
            if got != REQUEST || data.iter().any(|b| *b != wanted) {
                bail!("client {rank} reads a wrong block {other}");
            }
            bytes.fetch_add(REQUEST as u64, Ordering::Relaxed);
        }
        bytes.fetch_add(REQUEST as u64, Ordering::Relaxed);
        // A pace, not a sleep: who was held up does not catch up either.
        next = (next + PACE).max(Instant::now());
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    client.leave();
    Ok(())
}

fn judge(seen: &Timeline) -> Outcome {
    let mut found = Outcome::default();
    let rate = |from: f64, to: f64| {
        median(&seen.rate.iter().filter(|(t, _)| (from..to).contains(t)).map(|r| r.1).collect::<Vec<_>>())
    };
    let end = seen.rate.last().map_or(0.0, |r| r.0);
    let before = rate(2.0, seen.slow_from);
    found.line(format!(
        "{JOBS} jobs of {CLIENTS} clients on {NODES} I/O nodes, one stopped for 90 % of every {} ms ({})",
        CYCLE.as_millis(),
        load()
    ));
    let mut t = Table::new(["phase", "from", "to", "median MB/s", "of before"]);
    let mut phase = |name: &str, from: f64, to: f64| {
        let rate = rate(from, to);
        let cells = [from, to].map(|s| format!("{s:.1} s"));
        t.row([
            name.to_owned(),
            cells[0].clone(),
            cells[1].clone(),
            format!("{rate:.1}"),
            format!("{:.0} %", rate / before * 100.0),
        ]);
        rate / before
    };
    phase("all is well", 2.0, seen.slow_from);
    let Some((screened, reason)) = &seen.screened else {
        phase("one node is slow", seen.slow_from, seen.slow_to);
        found.table(t);
        found.judge("the slow node is screened out in <10 s: it never was", false);
        return found;
    };
    phase("one node is slow", seen.slow_from, *screened);
    // A second for what was under way.
    let recovered = phase("it is screened out", screened + 1.0, seen.slow_to);
    phase("it behaves again", seen.slow_to, seen.readmitted.unwrap_or(end));
    if let Some(readmitted) = seen.readmitted {
        phase("it is used again", readmitted + 1.0, end);
    }
    found.table(t);
    found.line(format!("the arbiter: {reason}"));
    let took = screened - seen.slow_from;
    found.judge(format!("the slow node is screened out in <10 s: {took:.1} s"), took < 10.0);
    found.judge(
        format!("the jobs' throughput recovers to ≥90 %: {:.0} %", recovered * 100.0),
        recovered >= 0.9,
    );
    match seen.readmitted {
        Some(at) => {
            found.judge(format!("it is used again after it behaves: after {:.1} s", at - seen.slow_to), true)
        }
        None => found.judge("it is used again after it behaves: not within a minute", false),
    }
    found
}

fn chart(seen: &Timeline) -> String {
    let top = seen.rate.iter().map(|r| r.1).fold(0.0, f64::max);
    let mark = |name: &str, at: f64| Series::new(name, [(at, 0.0), (at, top)]);
    let mut series =
        vec![Series::new("all jobs", seen.rate.iter().copied()), mark("node slowed to 10 %", seen.slow_from)];
    if let Some((at, _)) = &seen.screened {
        series.push(mark("verdict: slow", *at));
    }
    series.push(mark("it runs again", seen.slow_to));
    series.extend(seen.readmitted.map(|at| mark("re-admitted", at)));
    Line {
        title: "A fail-slow I/O node is screened out".into(),
        x: Axis::linear("seconds"),
        y: Axis::linear("MB/s"),
        series,
        ..Line::default()
    }
    .svg()
}
