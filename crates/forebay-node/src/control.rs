//! Control of a running node: JSON in, JSON out, over the same connections as data.

use crate::blame::JobBlame;
use crate::config::WEIGHT;
use crate::node::Node;
use crate::session::Session;
use crate::stats::{JobStatistics, NodeStatistics};
pub use forebay_control::job::CONTROL_JOB;
use forebay_control::node::{JobMapping, Term};
use forebay_sched::SchedulerConfig;
use forebay_types::rates::KINDS;
use forebay_types::{Address, ClientReport, Interval, Nanos, NodeId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What a node can be asked or told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "cmd", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Command {
    /// Are you there?
    Ping,
    /// Which ranks and hosts of my own job have you seen?
    Clients,
    /// What have you done for my own job?
    Job,
    /// What have you done?
    Stats,
    /// The access pattern's metrics of the intervals that ended after this time (Unix epoch, in
    /// nanoseconds).
    Intervals {
        /// 0: all that are kept.
        #[serde(default)]
        after: Nanos,
    },
    /// Which scheduler; with `set`, from now on this one.
    Scheduler {
        /// As in the configuration, for example `twins:window=1ms`.
        set: Option<SchedulerConfig>,
    },
    /// Gives a job another share.
    Weight {
        /// The job's name.
        job: String,
        /// Its weight, at least 1.
        weight: u32,
    },
    /// From now on these are the other I/O nodes (see `peers` in the configuration).
    Peers {
        /// Their addresses.
        set: Vec<Address>,
    },
    /// Where has the time of this job's last requests gone?
    Blame {
        /// The job's name.
        job: String,
        /// Of those that came since then, by the node's clock: earlier ones are of another job of the name.
        #[serde(default)]
        since: Nanos,
        /// And what would have been under this scheduler?
        #[serde(default)]
        what_if: Option<SchedulerConfig>,
    },
    /// From another I/O node: what it has served in all.
    Served {
        /// Which node.
        node: NodeId,
        /// When it began to count.
        since: Nanos,
        /// By job, in bytes of service.
        served: Vec<(String, u64)>,
    },
    /// From another I/O node: of which limited jobs it wants more than it has, and what it has left for here.
    Lend {
        /// Which node.
        node: NodeId,
        /// When it said so.
        at: Nanos,
        /// The jobs.
        jobs: Vec<JobWord>,
    },
    /// Where the clients of jobs belong, as an arbiter says it; they learn it from every reply.
    Mapping {
        /// Orders of an older term than one seen before are refused.
        term: Term,
        /// There are no other jobs.
        #[serde(default)]
        complete: bool,
        /// The jobs.
        jobs: Vec<JobMapping>,
        /// Jobs that have ended.
        #[serde(default)]
        ended: Vec<String>,
    },
    /// Finish what was accepted, tell clients to move, end.
    Drain,
}

/// What an I/O node says to another of a limited job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobWord {
    /// The job's name.
    pub job: String,
    /// What it would use more of: bytes, operations, metadata operations.
    pub hungry: [bool; KINDS],
    /// What it leaves of each.
    pub given: [f64; KINDS],
}

/// The answer to a [`Command`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// What was wrong with the command, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// To [`Command::Clients`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<Vec<ClientReport>>,
    /// To [`Command::Job`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Box<JobStatistics>>,
    /// To [`Command::Stats`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<Box<NodeStatistics>>,
    /// To [`Command::Intervals`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intervals: Option<Vec<Interval>>,
    /// To [`Command::Blame`]; none if the node does not know the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blame: Option<Box<JobBlame>>,
    /// To [`Command::Scheduler`]: the one in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<SchedulerConfig>,
}

pub(crate) fn answer(node: &Arc<Node>, session: &Session, body: &[u8]) -> Reply {
    let command: Command = match serde_json::from_slice(body) {
        Ok(command) => command,
        Err(e) => return Reply { error: Some(format!("no such command: {e}")), ..Reply::default() },
    };
    let harmless = match &command {
        Command::Ping | Command::Clients | Command::Job => true,
        Command::Blame { job, what_if: None, .. } => *job == session.job.stats.job,
        _ => false,
    };
    if !session.admin && !harmless {
        let error = Some("only sessions under the node's own secret may control it".to_owned());
        return Reply { error, ..Reply::default() };
    }
    let mut reply = Reply::default();
    match command {
        Command::Ping => {}
        Command::Clients => reply.clients = Some(session.job.clients.report(Some(session.id.run()))),
        Command::Job => reply.job = Some(Box::new(node.report_of(&session.job, session.id.run()))),
        Command::Stats => reply.stats = Some(Box::new(node.report())),
        Command::Intervals { after } => reply.intervals = Some(node.engine.intervals(after)),
        Command::Scheduler { set } => {
            if let Some(config) = set {
                node.set_scheduler(config);
            }
            reply.scheduler = Some(node.scheduler());
        }
        Command::Weight { weight, .. } if !WEIGHT.contains(&weight.into()) => {
            reply.error =
                Some(format!("a weight of {weight}: it can be {} to {}", WEIGHT.start(), WEIGHT.end()));
        }
        Command::Weight { job, weight } => match node.jobs.flow(&job) {
            Some(flow) => node.engine.with_queue(|queue| queue.set_weight(flow, weight)),
            None => reply.error = Some(format!("this node has not seen a job `{job}`")),
        },
        Command::Blame { job, since, what_if } => {
            reply.blame = node.blame(&job, since, what_if.as_ref()).map(Box::new);
        }
        Command::Peers { set } => reply.error = node.set_peers(&set).err(),
        Command::Served { node: other, since, served } => {
            let served = served.iter().filter_map(|(job, n)| Some((node.jobs.flow(job)?, *n))).collect();
            for (flow, bytes) in node.peers.heard(other, since, served) {
                node.engine.with_queue(|queue| queue.credit_remote(flow, bytes));
            }
        }
        Command::Lend { node: other, at, jobs } => node.heard_words(other, at, &jobs),
        Command::Mapping { term, complete, jobs, ended } => {
            if let Err(newest) = node.remap(term, complete, &jobs, &ended) {
                reply.error = Some(format!("this mapping is of term {term}, and term {newest} has begun"));
            }
        }
        Command::Drain => node.begin_drain(),
    }
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_as_people_write_them() {
        let parse = |s: &str| serde_json::from_str::<Command>(s);
        assert_eq!(parse(r#"{"cmd":"stats"}"#).unwrap(), Command::Stats);
        let set = parse(r#"{"cmd":"scheduler","set":"fifo:merge=4"}"#).unwrap();
        assert!(matches!(set, Command::Scheduler { set: Some(c) } if c.merge.count == 4));
        assert!(matches!(parse(r#"{"cmd":"scheduler"}"#).unwrap(), Command::Scheduler { set: None }));
        assert!(parse(r#"{"cmd":"reboot"}"#).is_err());
    }
}
