//! Very many connections that report to an arbiter as I/O nodes do.

use crate::cmd::fleet::{ArbiterProcess, wall_clock};
use anyhow::{Context, Result, bail};
use forebay_control::node::{NodeHello, NodeReport, Term, ToArbiter, ToNode};
use forebay_control::{CONTROL_VERSION, NODE_PATH};
use forebay_pattern::{FlowMetrics, Interval, Load};
use forebay_sched::SchedulerConfig;
use forebay_tune::Arms;
use forebay_types::{FlowId, Nanos, NodeId};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use tungstenite::client::IntoClientRequest;
use tungstenite::http::header::AUTHORIZATION;
use tungstenite::{Error, Message, Utf8Bytes, WebSocket};

/// Threads that the connections are divided among.
const THREADS: usize = 4;
/// From one round to the next.
const SECOND: Duration = Duration::from_secs(1);
/// The nodes of a system do not begin their intervals together: reports of a round are spread over this.
const SPREAD: Duration = Duration::from_millis(600);
/// A round in which nothing is told within this long changed nothing.
const QUIET: Duration = Duration::from_millis(350);

struct Announcer {
    node: u32,
    socket: WebSocket<TcpStream>,
    scheduler: SchedulerConfig,
}

/// What one thread saw of a round: when it had sent its last report, and heard its last decision.
type Seen = (Instant, Option<Instant>);

/// So many announcers report for so many rounds; in seconds, how long each round that changed the
/// scheduler took from the last report to the last decision.
pub(super) fn run(
    arbiter: &ArbiterProcess,
    announcers: usize,
    rounds: usize,
    done: &(dyn Fn() + Sync),
) -> Result<Vec<f64>> {
    let (start, end) = (Barrier::new(THREADS), Barrier::new(THREADS));
    let seen: Vec<Result<Vec<Seen>>> = std::thread::scope(|s| {
        let threads: Vec<_> = (0..THREADS)
            .map(|t| {
                let (start, end) = (&start, &end);
                s.spawn(move || {
                    let all: Result<Vec<Announcer>> = (0..announcers)
                        .filter(|n| n % THREADS == t)
                        .map(|n| connect(arbiter, n as u32))
                        .collect();
                    play(all, rounds, start, end, &|| {
                        if t == 0 {
                            done()
                        }
                    })
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| bail!("a thread failed"))).collect()
    });
    let seen: Vec<Vec<Seen>> = seen.into_iter().collect::<Result<_>>()?;
    let mut times = Vec::new();
    for round in 0..rounds {
        let sent = seen.iter().map(|s| s[round].0).max();
        let heard: Option<Vec<Instant>> = seen.iter().map(|s| s[round].1).collect();
        if let (Some(sent), Some(heard)) = (sent, heard.and_then(|h| h.into_iter().max())) {
            times.push(heard.saturating_duration_since(sent).as_secs_f64());
        }
    }
    if times.is_empty() {
        bail!("no round changed the scheduler");
    }
    Ok(times)
}

fn connect(arbiter: &ArbiterProcess, node: u32) -> Result<Announcer> {
    let stream = TcpStream::connect(("127.0.0.1", arbiter.port())).context("cannot reach the arbiter")?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut request = format!("ws://127.0.0.1:{}{NODE_PATH}", arbiter.port()).into_client_request()?;
    request.headers_mut().insert(AUTHORIZATION, format!("Bearer {}", arbiter.secret()).parse()?);
    let (mut socket, _) = tungstenite::client(request, stream).map_err(|e| anyhow::anyhow!("{e}"))?;
    let arms = Arms::twins_windows();
    let scheduler = arms.all()[arms.default_arm()].clone();
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
    };
    socket.send(Message::text(serde_json::to_string(&ToArbiter::Hello(hello))?))?;
    let mut announcer = Announcer { node, socket, scheduler };
    // The welcome, so that nobody reports before all are known.
    while !matches!(announcer.hear()?, Some(ToNode::Welcome { .. })) {}
    announcer.socket.get_ref().set_read_timeout(Some(QUIET))?;
    Ok(announcer)
}

impl Announcer {
    /// What the arbiter says next; `None` if it says nothing for the read time-out.
    fn hear(&mut self) -> Result<Option<ToNode>> {
        loop {
            match self.socket.read() {
                Ok(Message::Text(text)) => match serde_json::from_str(text.as_str())? {
                    ToNode::Sorry { reason } => {
                        bail!("the arbiter refused announcer {}: {reason}", self.node)
                    }
                    message => return Ok(Some(message)),
                },
                Ok(_) => {}
                Err(Error::Io(e)) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Ok(None);
                }
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Waits for a scheduler, and gives what was said; `None` if none comes for the read time-out. What
    /// was said is read later: a node reads one message, and this machine reads those of all nodes.
    fn hear_scheduler(&mut self) -> Result<Option<Utf8Bytes>> {
        loop {
            match self.socket.read() {
                Ok(Message::Text(text)) if text.contains("\"scheduler\"") => return Ok(Some(text)),
                Ok(_) => {}
                Err(Error::Io(e)) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Ok(None);
                }
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn obey(&mut self, text: &str) -> Result<()> {
        if let ToNode::Scheduler { set, .. } = serde_json::from_str(text)? {
            self.scheduler = set;
        }
        Ok(())
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
            errors: 0,
            scheduler: Some(self.scheduler.clone()),
        };
        Ok(serde_json::to_string(&ToArbiter::Report(Box::new(report)))?)
    }
}

/// One thread's announcers, round after round. A thread whose connections failed still keeps the
/// others company at the barriers, and says so at the end.
fn play(
    announcers: Result<Vec<Announcer>>,
    rounds: usize,
    start: &Barrier,
    end: &Barrier,
    done: &dyn Fn(),
) -> Result<Vec<Seen>> {
    let mut announcers = announcers;
    let mut seen = Vec::with_capacity(rounds);
    for round in 0..rounds {
        start.wait();
        let began = Instant::now();
        let played = announcers.and_then(|mut all| {
            let seen = one_round(&mut all, round)?;
            Ok((all, seen))
        });
        announcers = match played {
            Ok((all, one)) => {
                seen.push(one);
                Ok(all)
            }
            Err(e) => Err(e),
        };
        end.wait();
        done();
        std::thread::sleep(SECOND.saturating_sub(began.elapsed()));
    }
    announcers.map(|_| seen)
}

fn one_round(all: &mut [Announcer], round: usize) -> Result<Seen> {
    let (began, count) = (Instant::now(), all.len() as u32);
    for (i, announcer) in all.iter_mut().enumerate() {
        let due = began + SPREAD * i as u32 / count;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let text = announcer.report(round)?;
        announcer.socket.send(Message::text(text))?;
    }
    let sent = Instant::now();
    let mut said = Vec::with_capacity(all.len());
    for announcer in all.iter_mut() {
        match announcer.hear_scheduler()? {
            Some(text) => said.push(text),
            // All are told, or nobody.
            None => break,
        }
    }
    let heard = Instant::now();
    for (announcer, text) in all.iter_mut().zip(&said) {
        announcer.obey(text.as_str())?;
    }
    Ok((sent, (said.len() == all.len()).then_some(heard)))
}
