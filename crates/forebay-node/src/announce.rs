//! The announcer: one connection to the arbiter, by which the node reports each interval and hears
//! where jobs belong and how to schedule. Without an arbiter everything goes on as it last said; the
//! announcer keeps trying, one address after the other.

use crate::node::Node;
use crate::stats::Latencies;
use crate::{blame, probe, sys};
use forebay_control::CONTROL_VERSION;
use forebay_control::node::{NodeHello, NodeReport, Term, ToArbiter, ToNode};
use forebay_control::socket::{SocketError, Stream};
use forebay_sched::SchedulerConfig;
use forebay_types::{Address, FlowId, Nanos};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tungstenite::{Error, Message, WebSocket};

/// How often reports are looked for while the arbiter says nothing.
const TICK: Duration = Duration::from_millis(20);
/// How often it is told what limited jobs use; at the next tick, if one is held back that was not, or the
/// other way round: what it may have is elsewhere, or is missing elsewhere, until the arbiter knows.
const USES: Duration = Duration::from_millis(100);
/// So often in a row and no more; each time that nothing was urgent makes up for one.
const URGENT: u32 = 10;
/// So many compute nodes of a job are told of at once; the others next time.
const MOST_HOSTS: usize = 4096;
/// How long the answer to a probe is waited for before anything else is done.
const AT_ONCE: Duration = Duration::from_millis(2);
/// The arbiter says something several times a second; one that is silent for so long hangs.
const SILENCE: Duration = Duration::from_secs(2);
/// Answers that may wait to be sent.
const ANSWERS: usize = 8;
/// Between two tries, doubling.
const NAP: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// How much more than this thread's, in steps of the system's priorities, those count that serve requests.
const NICE: i32 = 5;

/// Why a connection to an arbiter ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error("it sent what this node does not understand: {0}")]
    Nonsense(serde_json::Error),
    #[error("it wants a scheduler that this node does not have: {0}")]
    Scheduler(forebay_sched::ConfigError),
}

impl From<Error> for Ended {
    fn from(e: Error) -> Ended {
        SocketError::from(e).into()
    }
}

/// Announces the node in a thread of its own until it has drained, and said so.
pub(crate) fn start(node: &Arc<Node>, listening: &[Address]) -> std::io::Result<Option<JoinHandle<()>>> {
    if node.config.arbiters.is_empty() {
        return Ok(None);
    }
    let node = Arc::clone(node);
    let mut listening = listening.to_vec();
    // Whoever is elsewhere cannot use a path on this machine.
    listening.sort_by_key(|l| matches!(l, Address::Unix(_)));
    let build = std::thread::Builder::new().name("announcer".into()).stack_size(512 << 10);
    build
        .spawn(move || {
            // Of this thread and those it starts (probes): what is said about requests can wait for them.
            let _ = rustix::process::setpriority_process(None, NICE);
            announce(&node, &listening);
        })
        .map(Some)
}

fn announce(node: &Arc<Node>, listening: &[Address]) {
    let mut nap = NAP.0;
    let mut complaints = Complaints::default();
    let arbiters = &node.config.arbiters;
    for (i, url) in arbiters.iter().enumerate().cycle() {
        if node.stopped() {
            return;
        }
        let mut welcomed = false;
        let Err(ended) = converse(node, listening, url, &mut welcomed) else { return };
        if welcomed {
            nap = NAP.0;
            complaints.clear();
            tracing::warn!("lost the arbiter at {url}: {ended}; going on as it last said");
        } else if let Some(all) = complaints.note(url, &ended, i + 1 == arbiters.len()) {
            tracing::warn!("node {} is known to no arbiter, and tries on: {all}", node.config.id);
        }
        std::thread::sleep(nap);
        nap = (nap * 2).min(NAP.1);
    }
}

/// What is wrong with each arbiter, so that it is said once and not at every try: of several, all but
/// one refuse every node.
#[derive(Default)]
struct Complaints {
    round: Vec<String>,
    said: String,
}

impl Complaints {
    /// Notes why there is no arbiter at `url`; after the `last` one, what there is to say, if it is new.
    fn note(&mut self, url: &str, ended: &Ended, last: bool) -> Option<&str> {
        self.round.push(format!("{url}: {ended}"));
        if !last {
            return None;
        }
        let all = std::mem::take(&mut self.round).join("; ");
        (all != self.said).then(|| {
            self.said = all;
            self.said.as_str()
        })
    }

    fn clear(&mut self) {
        *self = Complaints::default();
    }
}

/// One connection, until it breaks or (`Ok`) the node has drained.
fn converse(node: &Arc<Node>, listening: &[Address], url: &str, welcomed: &mut bool) -> Result<(), Ended> {
    let (socket, here) = connect(node, url)?;
    let (answers, probed) = sync_channel(ANSWERS);
    let mut conversation = Conversation {
        node,
        url,
        welcomed,
        socket,
        heard: Instant::now(),
        reported: sys::wall_clock(),
        latencies: node.jobs.latencies(),
        answers,
        asked: false,
        leaving: false,
        used: Instant::now(),
        idle: true,
        told: BTreeMap::new(),
        held: Vec::new(),
        urgent: URGENT,
    };
    conversation.say(&ToArbiter::Hello(hello(node, listening, here)))?;
    conversation.run(&probed)
}

fn connect(node: &Node, url: &str) -> Result<(WebSocket<Stream>, IpAddr), Ended> {
    let socket = forebay_control::socket::connect(url, node.config.secret.as_ref())?;
    let stream = socket.get_ref().tcp();
    stream.set_read_timeout(Some(TICK)).map_err(SocketError::Connect)?;
    let here = stream.local_addr().map_err(SocketError::Connect)?.ip();
    Ok((socket, here))
}

fn hello(node: &Arc<Node>, listening: &[Address], here: IpAddr) -> NodeHello {
    let reachable = |l: &Address| match l {
        Address::Tcp(at) if at.ip().is_unspecified() => {
            Address::Tcp(SocketAddr::new(here, at.port())).to_string()
        }
        other => other.to_string(),
    };
    let told = &node.config.reached_at;
    let addresses = if told.is_empty() { listening } else { told };
    NodeHello {
        version: CONTROL_VERSION,
        node: node.config.id,
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        addresses: addresses.iter().map(reachable).collect(),
        exports: node.exports.iter().map(|e| e.name.clone()).collect(),
        dispatchers: u32::try_from(node.config.dispatchers).unwrap_or(u32::MAX),
        memory: node.config.memory as u64,
        scheduler: (&node.scheduler()).into(),
        interval: node.config.interval.into(),
        term: node.jobs.term(),
        shares: node.shares(),
    }
}

struct Conversation<'a> {
    node: &'a Arc<Node>,
    url: &'a str,
    /// The arbiter has taken this node in.
    welcomed: &'a mut bool,
    socket: WebSocket<Stream>,
    heard: Instant,
    /// The end of the last interval that was reported.
    reported: Nanos,
    /// What had been answered by then.
    latencies: Latencies,
    answers: SyncSender<ToArbiter>,
    /// A probe has just been begun.
    asked: bool,
    leaving: bool,
    /// When it was last looked at what limited jobs use, and whether that was nothing.
    used: Instant,
    idle: bool,
    /// By job, the compute nodes that the arbiter has heard of.
    told: BTreeMap<String, BTreeSet<u64>>,
    /// The flows that were held back then, and how often that may be told out of turn.
    held: Vec<FlowId>,
    urgent: u32,
}

impl Conversation<'_> {
    fn run(&mut self, probed: &Receiver<ToArbiter>) -> Result<(), Ended> {
        loop {
            match self.socket.read() {
                Ok(Message::Text(text)) => {
                    self.heard = Instant::now();
                    self.hear(serde_json::from_str(text.as_str()).map_err(Ended::Nonsense)?)?;
                }
                Ok(Message::Close(_)) => return Err(Error::ConnectionClosed.into()),
                Ok(_) => self.heard = Instant::now(),
                // A read with a time-out is also interrupted when the process was stopped and goes on.
                Err(Error::Io(e))
                    if matches!(
                        e.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) => {}
                Err(e) => return Err(e.into()),
            }
            if self.heard.elapsed() > SILENCE {
                return Err(SocketError::Silent.into());
            }
            // Most probes are done at once: the arbiter sees how long the node takes, not this loop.
            let wait = if std::mem::take(&mut self.asked) { AT_ONCE } else { Duration::ZERO };
            while let Ok(answer) = probed.recv_timeout(wait) {
                self.say(&answer)?;
            }
            self.report()?;
            self.tell_uses()?;
            if self.node.draining() && !self.leaving {
                self.leaving = true;
                self.say(&ToArbiter::Leaving)?;
            }
            if self.node.stopped() {
                return Ok(());
            }
        }
    }

    fn say(&mut self, message: &ToArbiter) -> Result<(), Ended> {
        let json = serde_json::to_string(message).map_err(Ended::Nonsense)?;
        Ok(self.socket.send(Message::text(json))?)
    }

    fn hear(&mut self, message: ToNode) -> Result<(), Ended> {
        match message {
            ToNode::Welcome { term } => {
                *self.welcomed = true;
                tracing::info!("the arbiter at {} (term {term}) knows this node", self.url);
            }
            ToNode::Sorry { reason } => return Err(SocketError::Refused(reason).into()),
            ToNode::Mapping { term, complete, jobs, ended } => {
                let done = self.node.remap(term, complete, &jobs, &ended);
                self.answer_to(term, done)?;
            }
            ToNode::Scheduler { term, set } => {
                tracing::debug!("the arbiter sets the scheduler {set:?}");
                let set = SchedulerConfig::try_from(&set).map_err(Ended::Scheduler)?;
                let done = self.node.jobs.obey(term).map(|()| self.node.set_scheduler(set));
                self.answer_to(term, done)?;
            }
            ToNode::Shares { term, jobs, peers } => {
                let done = self.node.jobs.obey(term).map(|()| self.node.share_out(&jobs, &peers));
                self.answer_to(term, done)?;
            }
            ToNode::Drain { term } => {
                let done = self.node.jobs.obey(term).map(|()| self.node.begin_drain());
                self.answer_to(term, done)?;
            }
            ToNode::Probe { id } => {
                tracing::trace!("the arbiter probes the storage ({id})");
                self.asked = true;
                probe::start(self.node, id, self.answers.clone());
            }
            ToNode::Ask { id, question } => {
                tracing::debug!("the arbiter asks what is remembered ({id})");
                blame::start(self.node, id, question, self.answers.clone());
            }
        }
        Ok(())
    }

    fn answer_to(&mut self, term: Term, done: Result<(), Term>) -> Result<(), Ended> {
        match done {
            Ok(()) => Ok(()),
            Err(newest) => self.say(&ToArbiter::Refused { term, newest }),
        }
    }

    /// What limited jobs use, while they use anything.
    fn tell_uses(&mut self) -> Result<(), Ended> {
        let span = self.used.elapsed();
        if span < TICK || !*self.welcomed {
            return Ok(());
        }
        let held = self.node.engine.with_queue(|queue| queue.held());
        if span >= USES {
            self.urgent = (self.urgent + 1).min(URGENT);
        } else if held != self.held && self.urgent > 0 {
            self.urgent -= 1;
        } else {
            return Ok(());
        }
        (self.used, self.held) = (Instant::now(), held);
        let jobs = self.node.used(span.into());
        let idle = jobs.iter().all(|j| !j.held.contains(&true) && j.used.iter().all(|u| *u == 0.0));
        if idle && self.idle {
            return Ok(());
        }
        self.idle = idle;
        self.say(&ToArbiter::Used { jobs })
    }

    /// The compute nodes that do I/O and were not told of yet, by job.
    fn new_hosts(&mut self) -> BTreeMap<String, Vec<u64>> {
        let all = self.node.jobs.hosts();
        self.told.retain(|job, _| all.contains_key(job));
        let mut new = BTreeMap::new();
        for (job, hosts) in all {
            let told = self.told.entry(job.clone()).or_default();
            let some: Vec<u64> = hosts.difference(told).copied().take(MOST_HOSTS).collect();
            told.extend(&some);
            if !some.is_empty() {
                new.insert(job, some);
            }
        }
        new
    }

    fn report(&mut self) -> Result<(), Ended> {
        for interval in self.node.engine.intervals(self.reported) {
            self.reported = interval.end;
            let latencies = self.node.jobs.latencies();
            let late = latencies.since(&self.latencies);
            self.latencies = latencies;
            let name = |flow| Some((flow, self.node.jobs.name(flow)?));
            let (waiting, scheduler) = self.node.at_work(interval.start);
            let report = NodeReport {
                jobs: interval.flows.iter().filter_map(|f| name(f.flow)).collect(),
                present: self.node.jobs.present(),
                waiting,
                connections: self.node.connection_count() as u64,
                latency_p50: late.quantile(0.5),
                latency_p99: late.quantile(0.99),
                job_latencies: late.by_job(),
                job_hosts: self.new_hosts(),
                errors: late.errors,
                scheduler: scheduler.as_ref().map(Into::into),
                interval,
            };
            tracing::trace!("reports {} jobs, {waiting} requests waiting", report.jobs.len());
            self.say(&ToArbiter::Report(Box::new(report)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_once() {
        let mut complaints = Complaints::default();
        let refused = |why: &str| Ended::from(SocketError::Refused(why.to_owned()));
        assert!(complaints.note("http://a", &refused("standby"), false).is_none());
        let all = complaints.note("http://b", &SocketError::Silent.into(), true).unwrap();
        assert!(all.contains("http://a") && all.contains("standby") && all.contains("http://b"), "{all}");
        for _ in 0..3 {
            assert!(complaints.note("http://a", &refused("standby"), false).is_none());
            assert!(complaints.note("http://b", &SocketError::Silent.into(), true).is_none(), "nothing new");
        }
        complaints.note("http://a", &refused("another secret"), false);
        assert!(
            complaints.note("http://b", &SocketError::Silent.into(), true).is_some(),
            "something else is wrong now"
        );
    }
}
