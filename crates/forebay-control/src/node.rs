//! Between an I/O node and the arbiter, as JSON text messages over the node's WebSocket.
//!
//! The node opens it and says [`ToArbiter::Hello`]; the arbiter answers [`ToNode::Welcome`], then
//! [`ToNode::Mapping`] with all jobs, and from then on says what changes the moment it does. The node
//! reports each interval. When the connection breaks, the node goes on with what it last heard and
//! tries again.
//!
//! Whatever changes a node carries the arbiter's [`Term`]. A node follows the newest term it has
//! seen and refuses older ones: an arbiter that was replaced cannot give orders any more.

use forebay_types::rates::{KINDS, Rates};
use forebay_types::{
    Beside, Epoch, FlowId, Identity, Interval, JobBlame, Moment, Nanos, NodeId, SchedulerSpec,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The fencing token: larger for every arbiter that takes over, or that starts again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Term(pub u64);

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What an I/O node says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
pub enum ToArbiter {
    /// First of all.
    Hello(NodeHello),
    /// Each interval, also when nothing happened: it is the heartbeat.
    Report(Box<NodeReport>),
    /// Several times a second while jobs with limits use them: what each has used since the last time.
    Used {
        /// The jobs.
        jobs: Vec<JobUse>,
    },
    /// To [`ToNode::Probe`].
    Probed {
        /// The probe's number.
        id: u64,
        /// How long the node's storage took.
        took: Nanos,
        /// What went wrong, if anything did.
        error: Option<String>,
    },
    /// To [`ToNode::Ask`].
    Answer {
        /// The question's number.
        id: u64,
        /// What the node remembers.
        answer: Answer,
    },
    /// To an order of an arbiter that has been replaced.
    Refused {
        /// The order's term.
        term: Term,
        /// The newest term the node has seen.
        newest: Term,
    },
    /// The node drains: its jobs have to be moved, and it will be gone soon.
    Leaving,
}

/// Who the node is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeHello {
    /// [`crate::CONTROL_VERSION`].
    pub version: u16,
    /// Its number; unique among the nodes of one arbiter.
    pub node: NodeId,
    /// The machine it runs on.
    pub host: String,
    /// Where clients reach it, best first (`tcp:HOST:PORT`, `unix:PATH`).
    pub addresses: Vec<String>,
    /// The directories it serves, by name, in the order clients know them.
    pub exports: Vec<String>,
    /// Requests it carries out at once.
    pub dispatchers: u32,
    /// Bytes of payload it holds at most.
    pub memory: u64,
    /// The scheduler in force.
    pub scheduler: SchedulerSpec,
    /// How long its intervals are.
    pub interval: Nanos,
    /// The newest term it has seen; 0 is none.
    pub term: Term,
    /// What jobs may have there, as an arbiter last said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<JobShare>,
}

/// What the node did in one interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeReport {
    /// The interval's metrics, flow by flow.
    pub interval: Interval,
    /// The names of the jobs of those flows.
    #[serde(deserialize_with = "by_flow")]
    pub jobs: BTreeMap<FlowId, String>,
    /// The jobs that have processes here, busy or not.
    #[serde(default)]
    pub present: Vec<String>,
    /// Requests that wait at this moment.
    pub waiting: u64,
    /// Open connections.
    pub connections: u64,
    /// Median time from a request's receipt to its answer, over the interval; 0 without requests.
    pub latency_p50: Nanos,
    /// The 99th percentile of the same.
    pub latency_p99: Nanos,
    /// How long each job's reads and writes took in the interval: by name, the least nanoseconds of each
    /// bucket of a `Histogram` and how many fell into it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub job_latencies: BTreeMap<String, Vec<(u64, u64)>>,
    /// By job, the compute nodes that have moved data here and were not told of on this connection before, each
    /// by its `host_number`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub job_hosts: BTreeMap<String, Vec<u64>>,
    /// Reads and writes that were answered with an error in the interval.
    pub errors: u64,
    /// The scheduler in force during the whole interval; `None` if it changed meanwhile.
    pub scheduler: Option<SchedulerSpec>,
}

/// Inside a tagged message, serde hands the keys of a map on as the strings they are in JSON.
fn by_flow<'de, D: serde::Deserializer<'de>>(from: D) -> Result<BTreeMap<FlowId, String>, D::Error> {
    let named = BTreeMap::<String, String>::deserialize(from)?;
    let flow = |(key, job): (String, String)| key.parse().map(|n| (FlowId(n), job));
    named.into_iter().map(flow).collect::<Result<_, _>>().map_err(serde::de::Error::custom)
}

/// What the arbiter says to a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
pub enum ToNode {
    /// The node is known from now on.
    Welcome {
        /// The arbiter's term.
        term: Term,
    },
    /// The node was refused, and why; the connection ends.
    Sorry {
        /// One clear sentence.
        reason: String,
    },
    /// Which jobs there are and where their clients belong.
    Mapping {
        /// Who says so.
        term: Term,
        /// All jobs, so that others are to be forgotten; or only those that changed.
        complete: bool,
        /// The jobs.
        jobs: Vec<JobMapping>,
        /// Jobs that have ended.
        #[serde(default)]
        ended: Vec<String>,
    },
    /// The scheduler to use from now on.
    Scheduler {
        /// Who says so.
        term: Term,
        /// Its name and parameters.
        set: SchedulerSpec,
    },
    /// What jobs may have on this node from now on: all of them that are told apart from others.
    Shares {
        /// Who says so.
        term: Term,
        /// Jobs that are not in the list have no limit.
        jobs: Vec<JobShare>,
        /// The other nodes that are to hear what is served here, unless this node was told by hand.
        #[serde(default)]
        peers: Vec<String>,
    },
    /// Try your storage and say how long it took.
    Probe {
        /// To be repeated in the answer.
        id: u64,
    },
    /// What do you remember?
    Ask {
        /// To be repeated in the answer.
        id: u64,
        /// Of what.
        question: Question,
    },
    /// Finish what was accepted, tell clients to move, end.
    Drain {
        /// Who says so.
        term: Term,
    },
}

/// About the last requests that a node has served.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "about", rename_all = "kebab-case")]
pub enum Question {
    /// Where the time of a job's requests went since it began.
    Job {
        /// Its name.
        job: String,
        /// For how long it has been there; of one that has ended all is wanted that is remembered of its name.
        age_ms: Option<u64>,
        /// And what would have been under this scheduler?
        #[serde(default, skip_serializing_if = "Option::is_none")]
        what_if: Option<SchedulerSpec>,
    },
    /// Who was at the storage in these moments.
    Moments {
        /// When.
        moments: Vec<Moment>,
    },
}

/// To a [`Question`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// To [`Question::Job`].
    Job(Box<JobBlame>),
    /// To [`Question::Moments`].
    Moments(Beside),
    /// It cannot say, and why.
    No(String),
}

/// What one job has used on one node of late.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobUse {
    /// The job's name.
    pub job: String,
    /// Bytes, operations and metadata operations a second.
    pub used: [f64; KINDS],
    /// Which of these some of its requests had to wait for.
    pub held: [bool; KINDS],
}

/// What one job may have on one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobShare {
    /// The job's name.
    pub job: String,
    /// At most so much.
    #[serde(default)]
    pub limit: Rates,
    /// At most so much on all nodes together.
    #[serde(default, skip_serializing_if = "Rates::is_none")]
    pub whole: Rates,
    /// The other nodes that have a part of it: what one does not use is given to those that would use more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<(NodeId, String)>,
    /// The job has no part here: should its clients come all the same, they may have as much as on one of its nodes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub standby: bool,
    /// Its share against other jobs here; as before unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
}

/// Where the clients of one job belong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobMapping {
    /// The job's name.
    pub job: String,
    /// Its secret, 64 hexadecimal digits.
    pub secret: String,
    /// Its share against other jobs, at least 1.
    pub weight: u32,
    /// The version of this job's mapping. Larger is newer.
    pub epoch: Epoch,
    /// The addresses of its I/O nodes, at least one. Client number i uses the i-th, and around.
    pub nodes: Vec<String>,
    /// Whose job it is, where that was proved: as whom its requests are to be carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Identity>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_with_jobs_survives_the_way() {
        let report = NodeReport {
            interval: Interval {
                start: Nanos(1),
                end: Nanos(2),
                load: Default::default(),
                flows: Vec::new(),
            },
            jobs: BTreeMap::from([(FlowId(7), "a".to_owned())]),
            present: vec!["a".to_owned()],
            waiting: 0,
            connections: 1,
            latency_p50: Nanos(1),
            latency_p99: Nanos(2),
            job_latencies: BTreeMap::new(),
            job_hosts: BTreeMap::from([("a".to_owned(), vec![u64::MAX])]),
            errors: 0,
            scheduler: None,
        };
        let said = ToArbiter::Report(Box::new(report));
        let text = serde_json::to_string(&said).unwrap();
        assert_eq!(serde_json::from_str::<ToArbiter>(&text).unwrap(), said);
        assert!(serde_json::from_str::<ToArbiter>(&text.replace("\"7\"", "\"x\"")).is_err());
        let others = vec![(NodeId(2), "tcp:127.0.0.1:9".to_owned())];
        let share = JobShare { job: "a".into(), others, ..JobShare::default() };
        let said = ToNode::Shares { term: Term(1), jobs: vec![share], peers: Vec::new() };
        let text = serde_json::to_string(&said).unwrap();
        assert_eq!(serde_json::from_str::<ToNode>(&text).unwrap(), said);
    }
}
