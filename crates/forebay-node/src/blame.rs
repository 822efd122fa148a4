//! Who slowed a job on this node, for whoever asks; and asking.

use crate::control::{Command, Reply};
use crate::node::Node;
use forebay_client::{Address, Client, Config};
use forebay_sched::SchedulerConfig;
use forebay_sched::blame::blame;
use forebay_sched::whatif::replay;
use forebay_types::Secret;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The job under which somebody asks who has the node's secret.
const ASKING: &str = "forebay-control";

/// Where the time of a job's requests went, in seconds, summed over its last requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobBlame {
    /// How many requests this is about.
    pub requests: u64,
    /// Over how long they came.
    pub span: f64,
    /// From arrival to the end.
    pub total: f64,
    /// At the storage.
    pub service: f64,
    /// Held back by a limit.
    pub throttled: f64,
    /// Waiting while requests of this job were at the storage; its own among them.
    pub behind: BTreeMap<String, f64>,
    /// Waiting while nothing was: the scheduler wanted it so.
    pub idle: f64,
    /// The same requests through the scheduler in force, and through the one that was asked about: a
    /// request's time without limits, summed up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what_if: Option<(f64, f64)>,
}

impl JobBlame {
    /// The same job on another node.
    pub fn add(&mut self, other: &JobBlame) {
        self.requests += other.requests;
        self.span = self.span.max(other.span);
        self.total += other.total;
        self.service += other.service;
        self.throttled += other.throttled;
        self.idle += other.idle;
        for (job, seconds) in &other.behind {
            *self.behind.entry(job.clone()).or_default() += seconds;
        }
        self.what_if = match (self.what_if, other.what_if) {
            (Some(a), Some(b)) => Some((a.0 + b.0, a.1 + b.1)),
            (a, b) => a.or(b),
        };
    }
}

impl Node {
    /// Where the time of a job's last requests went here; `None` if it is not known.
    pub(crate) fn blame(&self, job: &str, other: Option<&SchedulerConfig>) -> Option<JobBlame> {
        let flow = self.jobs.flow(job)?;
        let (seen, config, weights) = self.engine.with_queue(|queue| {
            let weights = queue.accounts().flows().into_iter().map(|(flow, s)| (flow, s.weight));
            (queue.trace().all(), queue.config().clone(), weights.collect::<Vec<_>>())
        });
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
            let time = |config: &SchedulerConfig| {
                let all = replay(&seen, config, self.site(), self.config.dispatchers, &weights);
                all.get(&flow).map_or(0.0, |fared| fared.time)
            };
            (time(&config), time(other))
        });
        Some(JobBlame {
            requests: found.requests,
            span: last.since(first).as_secs_f64(),
            total: found.total,
            service: found.service,
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

/// Asks an I/O node where a job's time went.
pub fn ask(
    address: &Address,
    secret: &Secret,
    job: &str,
    what_if: Option<&SchedulerConfig>,
) -> Result<JobBlame, AskError> {
    let failed = |why: String| AskError { address: address.clone(), why };
    let config =
        Config { deadline_ms: 10_000, ..Config::new(ASKING, secret.to_hex(), vec![address.clone()]) };
    let client = Client::new(config, None).map_err(|e| failed(e.to_string()))?;
    let command = Command::Blame { job: job.to_owned(), what_if: what_if.cloned() };
    let command = serde_json::to_vec(&command).map_err(|e| failed(e.to_string()))?;
    let answer = client.control(0, &command).map_err(|e| failed(e.to_string()))?;
    client.leave();
    let reply: Reply = serde_json::from_slice(&answer).map_err(|e| failed(e.to_string()))?;
    match reply {
        Reply { error: Some(error), .. } => Err(failed(error)),
        Reply { blame, .. } => Ok(blame.map_or_else(JobBlame::default, |b| *b)),
    }
}
