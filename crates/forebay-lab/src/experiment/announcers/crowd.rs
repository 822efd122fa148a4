//! Very many connections that report to an arbiter as I/O nodes do.

use crate::fleet::Arbiter;
use crate::machine::wall_clock;
use anyhow::{Context, Result, bail};
use forebay_control::CONTROL_VERSION;
use forebay_control::node::{NodeHello, NodeReport, Term, ToArbiter, ToNode};
use forebay_control::socket::{Stream, connect as connect_to};
use forebay_tune::Arms;
use forebay_types::{FlowId, FlowMetrics, Interval, Load, Nanos, NodeId, SchedulerSpec, Secret};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use tungstenite::{Error, Message, Utf8Bytes, WebSocket};

/// Threads that the connections are divided among.
const THREADS: usize = 2;
/// From one round to the next.
const SECOND: Duration = Duration::from_secs(1);
/// The nodes of a system do not begin their intervals together: reports of a round are spread over this.
const SPREAD: Duration = Duration::from_millis(600);

struct Announcer {
    node: u32,
    socket: WebSocket<Stream>,
    scheduler: SchedulerSpec,
    /// When it was told to use another scheduler in this round, and the message.
    told: Option<(Instant, Utf8Bytes)>,
}

/// What one thread saw of a round: when it had sent its last report, and heard the decision first and
/// last.
type Round = (Instant, Option<[Instant; 2]>);

/// So many announcers report for so many rounds; in seconds, how long each round that changed the
/// scheduler took from the last report until the first announcer was told, and until the last was.
pub(super) fn run(
    arbiter: &Arbiter,
    announcers: usize,
    rounds: usize,
    done: &(dyn Fn() + Sync),
) -> Result<Vec<[f64; 2]>> {
    let ready = Barrier::new(THREADS);
    let seen: Vec<Result<Vec<Round>>> = std::thread::scope(|s| {
        let threads: Vec<_> = (0..THREADS)
            .map(|t| {
                let ready = &ready;
                let tell = move || {
                    if t == 0 {
                        done()
                    }
                };
                s.spawn(move || {
                    let mine = (0..announcers).filter(|n| n % THREADS == t);
                    let crowd = Crowd::connect(arbiter, mine);
                    ready.wait();
                    crowd?.play(rounds, &tell)
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| bail!("a thread failed"))).collect()
    });
    let seen: Vec<Vec<Round>> = seen.into_iter().collect::<Result<_>>()?;
    let mut times = Vec::new();
    for round in 0..rounds {
        let sent = seen.iter().map(|s| s[round].0).max();
        let heard: Option<Vec<[Instant; 2]>> = seen.iter().map(|s| s[round].1).collect();
        if let (Some(sent), Some(heard)) = (sent, heard) {
            let since = |at: Option<Instant>| {
                at.map_or(f64::NAN, |at| at.saturating_duration_since(sent).as_secs_f64())
            };
            times.push([since(heard.iter().map(|h| h[0]).min()), since(heard.iter().map(|h| h[1]).max())]);
        }
    }
    if times.is_empty() {
        bail!("no round changed the scheduler");
    }
    Ok(times)
}

/// One thread's announcers. Like nodes they hear what they are told when it comes.
struct Crowd {
    all: Vec<Announcer>,
    epoll: OwnedFd,
}

impl Crowd {
    fn connect(arbiter: &Arbiter, nodes: impl Iterator<Item = usize>) -> Result<Crowd> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut all = Vec::new();
        for node in nodes {
            let announcer = connect(arbiter, node as u32)?;
            let data = epoll::EventData::new_u64(all.len() as u64);
            epoll::add(&epoll, announcer.socket.get_ref().tcp(), data, epoll::EventFlags::IN)?;
            all.push(announcer);
        }
        Ok(Crowd { all, epoll })
    }

    /// Reports round after round, one announcer after the other, and hears what comes meanwhile.
    fn play(&mut self, rounds: usize, done: &dyn Fn()) -> Result<Vec<Round>> {
        let mut seen = Vec::with_capacity(rounds);
        let start = Instant::now();
        for round in 0..rounds {
            let began = start + SECOND * round as u32;
            let count = self.all.len() as u32;
            for i in 0..count {
                self.hear_until(began + SPREAD * i / count)?;
                let announcer = &mut self.all[i as usize];
                let text = announcer.report(round)?;
                announcer.say(text)?;
            }
            let sent = Instant::now();
            self.hear_until(began + SECOND)?;
            let told: Option<Vec<Instant>> =
                self.all.iter().map(|a| a.told.as_ref().map(|(at, _)| *at)).collect();
            self.all.iter_mut().try_for_each(Announcer::obey)?;
            seen.push((sent, told.and_then(|t| Some([*t.iter().min()?, *t.iter().max()?]))));
            done();
        }
        Ok(seen)
    }

    fn hear_until(&mut self, until: Instant) -> Result<()> {
        let mut events = Vec::with_capacity(64);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let wait = rustix::event::Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            };
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            for event in events.drain(..) {
                if let Some(announcer) = self.all.get_mut(event.data.u64() as usize) {
                    announcer.hear()?;
                }
            }
        }
    }
}

fn connect(arbiter: &Arbiter, node: u32) -> Result<Announcer> {
    let secret = Secret::from_hex(arbiter.secret()).context("the arbiter's secret")?;
    let mut socket = connect_to(&format!("http://127.0.0.1:{}", arbiter.port()), Some(&secret))?;
    socket.get_ref().tcp().set_read_timeout(Some(Duration::from_secs(10)))?;
    let arms = Arms::twins_windows();
    let scheduler = SchedulerSpec::from(&arms.all()[arms.default_arm()]);
    let hello = NodeHello {
        version: CONTROL_VERSION,
        node: NodeId(node),
        host: "announcer".into(),
        addresses: vec![format!("tcp:127.0.0.1:{}", 1 + node)],
        exports: vec!["data".into()],
        dispatchers: 16,
        memory: 1 << 28,
        scheduler: scheduler.clone(),
        interval: Nanos::from(SECOND),
        term: Term(0),
        shares: Vec::new(),
    };
    socket.send(Message::text(serde_json::to_string(&ToArbiter::Hello(hello))?))?;
    // The welcome, so that nobody reports before all are known.
    loop {
        if let Message::Text(text) = socket.read()? {
            match serde_json::from_str(text.as_str())? {
                ToNode::Welcome { .. } => break,
                ToNode::Sorry { reason } => bail!("the arbiter refused announcer {node}: {reason}"),
                _ => {}
            }
        }
    }
    socket.get_ref().tcp().set_nonblocking(true)?;
    Ok(Announcer { node, socket, scheduler, told: None })
}

impl Announcer {
    /// Takes in all that the arbiter has said.
    fn hear(&mut self) -> Result<()> {
        loop {
            let text = match self.socket.read() {
                Ok(Message::Text(text)) => text,
                Ok(_) => continue,
                Err(Error::Io(e)) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e.into()),
            };
            if text.contains("\"scheduler\"") {
                // A node understands one message; here those of all nodes would be in each other's way.
                self.told = Some((Instant::now(), text));
                continue;
            }
            match serde_json::from_str(text.as_str())? {
                ToNode::Probe { id } => {
                    let probed = ToArbiter::Probed { id, took: Nanos::from_micros(200), error: None };
                    self.say(serde_json::to_string(&probed)?)?;
                }
                ToNode::Sorry { reason } => bail!("the arbiter refused announcer {}: {reason}", self.node),
                _ => {}
            }
        }
    }

    fn obey(&mut self) -> Result<()> {
        if let Some((_, text)) = self.told.take()
            && let ToNode::Scheduler { set, .. } = serde_json::from_str(text.as_str())?
        {
            self.scheduler = set;
        }
        Ok(())
    }

    fn say(&mut self, text: String) -> Result<()> {
        match self.socket.send(Message::text(text)) {
            // It is kept, and goes with what comes next.
            Err(Error::Io(e)) if e.kind() == ErrorKind::WouldBlock => Ok(()),
            sent => Ok(sent?),
        }
    }

    fn report(&self, round: usize) -> Result<String> {
        let end = wall_clock();
        let busy = Nanos::from_millis(900);
        let served = 30_000_000 + u64::from(self.node % 7) * 1_000_000 + round as u64 % 5 * 100_000;
        let requests = served >> 15;
        let flow = FlowMetrics {
            flow: FlowId(1),
            files: 1,
            clients: 4,
            streams: 4,
            writes: requests,
            bytes_written: served,
            size_min: 32 << 10,
            size_mean: 32768.0,
            size_max: 32 << 10,
            size_p50: 32 << 10,
            size_p90: 32 << 10,
            size_p99: 32 << 10,
            judged: requests,
            jumps: requests,
            regular: requests,
            forward: requests,
            served,
            busy,
            outstanding: 3.5,
            ..FlowMetrics::default()
        };
        let load = Load { offered: served, served, busy, outstanding: 3.5 };
        let report = NodeReport {
            present: Vec::new(),
            interval: Interval {
                start: Nanos(end.0 - SECOND.as_nanos() as u64),
                end,
                load,
                flows: vec![flow],
            },
            jobs: BTreeMap::from([(FlowId(1), "announced".to_owned())]),
            waiting: 3,
            connections: 4,
            latency_p50: Nanos::from_micros(900),
            latency_p99: Nanos::from_millis(4),
            job_latencies: BTreeMap::new(),
            job_hosts: BTreeMap::new(),
            errors: 0,
            scheduler: Some(self.scheduler.clone()),
        };
        Ok(serde_json::to_string(&ToArbiter::Report(Box::new(report)))?)
    }
}
