//! Who slowed a job on this node, for whoever asks; and asking.

use crate::control::{CONTROL_JOB, Command, Reply};
use crate::node::Node;
use forebay_client::{Address, Client, Config};
use forebay_sched::SchedulerConfig;
use forebay_sched::blame::blame;
use forebay_sched::whatif::{Fared, replay};
pub use forebay_types::JobBlame;
use forebay_types::{ClientReport, FlowId, Nanos, Secret};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So many requests that were sent again are remembered.
const REPLAYS: usize = 1024;

/// A request is noted this much before the queue sees it, at most.
const SOONER: Nanos = Nanos::from_millis(100);

/// What requests had lost before they were sent here again: when, whose, how long.
#[derive(Debug, Default)]
pub(crate) struct Replays(Mutex<VecDeque<(Nanos, FlowId, Nanos)>>);

impl Replays {
    /// A request came that was sent `lost` ago for the first time.
    pub(crate) fn note(&self, now: Nanos, flow: FlowId, lost: Nanos) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == REPLAYS {
            all.pop_front();
        }
        all.push_back((now, flow, lost));
    }

    /// What a flow has lost since then, in seconds.
    fn lost(&self, flow: FlowId, since: Nanos) -> f64 {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.iter().filter(|(at, whose, _)| *whose == flow && *at + SOONER >= since);
        own.map(|(.., lost)| lost.as_secs_f64()).sum()
    }
}

/// For a person: the largest part first.
pub struct BlameText<'a> {
    /// Of which job.
    pub job: &'a str,
    /// What was found.
    pub blame: &'a JobBlame,
    /// The scheduler that was asked about.
    pub what_if: Option<&'a SchedulerConfig>,
}

impl fmt::Display for BlameText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BlameText { job, blame: b, what_if } = self;
        let (requests, span) = (b.requests, b.span);
        let mean = b.total / requests.max(1) as f64 * 1e3;
        writeln!(f, "job {job}: {requests} requests in {span:.1} s, {mean:.3} ms each")?;
        for (share, what) in b.parts(job) {
            writeln!(f, "{:5.1} %  {what}", share * 100.0)?;
        }
        match what_if.and_then(|spec| b.foreseen(spec)) {
            Some(said) => writeln!(f, "{said}"),
            None => Ok(()),
        }
    }
}

impl Node {
    /// Where the time of a job's last requests went here, of those that came since then; `None` if it is not
    /// known.
    pub(crate) fn blame(&self, job: &str, since: Nanos, other: Option<&SchedulerConfig>) -> Option<JobBlame> {
        let flow = self.jobs.flow(job)?;
        let (mut seen, config, weights) = self.engine.with_queue(|queue| {
            let weights = queue.accounts().flows().into_iter().map(|(flow, s)| (flow, s.weight));
            (queue.trace().all(), queue.config().clone(), weights.collect::<Vec<_>>())
        });
        // Those of an earlier job of the name.
        seen.retain(|s| s.request.flow != flow || s.request.arrival >= since);
        let found = blame(&seen, flow);
        let name = |flow| self.jobs.name(flow).unwrap_or_else(|| "(ended)".to_owned());
        let mut behind: BTreeMap<String, f64> = BTreeMap::new();
        for (flow, seconds) in &found.behind {
            *behind.entry(name(*flow)).or_default() += seconds;
        }
        let own = || seen.iter().filter(|s| s.request.flow == flow);
        let first = own().map(|s| s.request.arrival).min().unwrap_or_default();
        let last = own().map(|s| s.done).max().unwrap_or_default();
        let what_if = other.map(|other| {
            let mean = |config: &SchedulerConfig| {
                let all = replay(&seen, config, self.site(), self.config.dispatchers, &weights);
                all.get(&flow).map_or(0.0, Fared::mean)
            };
            // What the replay does not know of the node it does not know under either.
            let (took, now) = (found.total - found.throttled, mean(&config));
            (took, if now > 0.0 { took * mean(other) / now } else { took })
        });
        let failover = self.replays.lost(flow, first);
        Some(JobBlame {
            requests: found.requests,
            span: last.since(first).as_secs_f64(),
            total: found.total + failover,
            failover,
            service: found.service,
            storage: found.storage,
            throttled: found.throttled,
            behind,
            idle: found.idle,
            what_if,
        })
    }
}

/// Why there is nobody to blame.
#[derive(Debug, thiserror::Error)]
#[error("the I/O node at {address}: {why}")]
pub struct AskError {
    address: Address,
    why: String,
}

/// A job that is asked about.
pub struct BlameQuery<'a> {
    /// Its name.
    pub job: &'a str,
    /// For how long it had been there, at least, ...
    pub age: Duration,
    /// ... and when that was.
    pub at: Instant,
    /// And what would have been under this scheduler?
    pub what_if: Option<&'a SchedulerConfig>,
}

impl BlameQuery<'_> {
    /// Asks an I/O node where the job's time went. Its clock need not be right.
    pub fn of(&self, address: &Address, secret: &Secret) -> Result<JobBlame, AskError> {
        let now = control(address, secret, &Command::Job)?.job.map_or(Nanos::ZERO, |job| job.time);
        let since = now.since((self.age + self.at.elapsed()).into());
        let what_if = self.what_if.cloned();
        let command = Command::Blame { job: self.job.to_owned(), since, what_if };
        Ok(control(address, secret, &command)?.blame.map_or_else(JobBlame::default, |b| *b))
    }
}

/// Asks an I/O node for the ranks of a job that it has seen.
pub fn ask_ranks(address: &Address, secret: &Secret, job: &str) -> Result<Vec<ClientReport>, AskError> {
    let stats = control(address, secret, &Command::Stats)?.stats;
    let flow = stats.and_then(|s| s.flows.into_iter().find(|f| f.job == job));
    Ok(flow.map_or(Vec::new(), |f| f.clients))
}

fn control(address: &Address, secret: &Secret, command: &Command) -> Result<Reply, AskError> {
    let failed = |why: String| AskError { address: address.clone(), why };
    let config =
        Config { deadline_ms: 3000, ..Config::new(CONTROL_JOB, secret.to_hex(), vec![address.clone()]) };
    let client = Client::new(config, None).map_err(|e| failed(e.to_string()))?;
    let command = serde_json::to_vec(command).map_err(|e| failed(e.to_string()))?;
    let answer = client.control(0, &command).map_err(|e| failed(e.to_string()))?;
    client.leave();
    match serde_json::from_slice(&answer).map_err(|e| failed(e.to_string()))? {
        Reply { error: Some(error), .. } => Err(failed(error)),
        reply => Ok(reply),
    }
}
