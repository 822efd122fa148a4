//! The control state and the seam to where it is kept: jobs with their mapping, I/O nodes, what was
//! learned, and the two counters. Small and written before anyone hears of a change, so that an
//! arbiter killed at any moment goes on where it was. History is another matter ([`crate::history`]).
//!
//! Every store keeps the same entries, a key and a JSON value each ([`Change::entry`]):
//! `job/ID`, `node/NUMBER`, `limit/SUBJECT`, `learned/KEY`, `epoch`.

mod sqlite;

pub use sqlite::SqliteStore;
pub(crate) use sqlite::private_file;

use forebay_control::job::JobRequest;
use forebay_control::limit::Limit;
use forebay_control::node::Term;
use forebay_policy::Current;
use forebay_types::{Epoch, Identity, NodeId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A job as it is kept. How long its lease still has is not: it starts afresh with the arbiter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredJob {
    /// What it registered with; its id is never empty and its secret always there.
    pub request: JobRequest,
    /// Jobs are considered in this order.
    pub order: u64,
    /// When it registered, in milliseconds since 1970.
    pub since_unix_ms: u64,
    /// The version of its mapping.
    pub epoch: Epoch,
    /// What it holds; `nodes` in the order of its clients. `None` before its first decision.
    pub held: Option<Current>,
    /// The addresses of those nodes, in the same order.
    pub addresses: Vec<String>,
    /// It goes to the file system directly; its address is where what it still has open can stay.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub direct: bool,
    /// The I/O nodes an admin wants it on; none leaves it to the policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pinned: Vec<NodeId>,
    /// Whose it is, where that was proved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Identity>,
    /// The runs that make it up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<u32>,
}

/// An I/O node as it is kept: enough to know it again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredNode {
    /// Its number.
    pub id: NodeId,
    /// The machine.
    pub host: String,
    /// Where clients reach it.
    pub addresses: Vec<String>,
    /// It was told to end, or said that it would.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
    /// Nobody counts on it any more: it has ended, or was given up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
}

/// A change of the control state.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A job is new or different.
    Job(Box<StoredJob>),
    /// A job has ended.
    JobEnded(String),
    /// A node is new or different.
    Node(StoredNode),
    /// A node was forgotten.
    NodeForgotten(NodeId),
    /// The newest epoch that was given out.
    Epoch(Epoch),
    /// A limit is new or different.
    Limit(Box<Limit>),
    /// A limit holds no longer.
    LimitRemoved(String),
    /// Something that was learned; `None` forgets it.
    Learned {
        /// Whose and what.
        key: String,
        /// As its owner writes it.
        value: Option<serde_json::Value>,
    },
}

/// Everything that was kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kept {
    /// The newest epoch that was given out.
    pub epoch: Epoch,
    /// The jobs, by name.
    pub jobs: BTreeMap<String, StoredJob>,
    /// The nodes, by number.
    pub nodes: BTreeMap<NodeId, StoredNode>,
    /// The limits, by subject.
    pub limits: BTreeMap<String, Limit>,
    /// What was learned.
    pub learned: BTreeMap<String, serde_json::Value>,
}

/// Why the state could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another arbiter has taken over: this one must not give orders any more.
    #[error("another arbiter has taken over: {0}")]
    Replaced(String),
    /// The store does not work. Nothing may be said to nodes that was not stored.
    #[error("the control state cannot be stored: {0}")]
    Failed(String),
    /// The arbiter cannot begin: nothing is wrong with what is stored.
    #[error("{0}")]
    Begin(String),
    /// What is stored makes no sense.
    #[error("the stored control state is damaged: {key}: {why}")]
    Damaged {
        /// Which entry.
        key: String,
        /// What is wrong with it.
        why: String,
    },
}

/// Where the control state is kept.
pub trait ControlStore: Send {
    /// Takes the lead: a term larger than any before, and everything that was kept.
    fn lead(&mut self) -> Result<(Term, Kept), StoreError>;

    /// Makes the changes durable, all or none of them, if this arbiter still leads.
    fn apply(&mut self, changes: &[Change]) -> Result<(), StoreError>;
}

impl Change {
    /// The key and value to put; without a value, the key is to be deleted.
    pub fn entry(&self) -> (String, Option<String>) {
        fn json<T: Serialize>(value: &T) -> Option<String> {
            Some(serde_json::to_string(value).expect("plain data without non-string keys"))
        }
        match self {
            Change::Job(job) => (format!("job/{}", job.request.id), json(job)),
            Change::JobEnded(id) => (format!("job/{id}"), None),
            Change::Node(node) => (format!("node/{}", node.id), json(node)),
            Change::NodeForgotten(id) => (format!("node/{id}"), None),
            Change::Epoch(epoch) => ("epoch".to_owned(), json(epoch)),
            Change::Limit(limit) => (format!("limit/{}", limit.subject), json(limit)),
            Change::LimitRemoved(id) => (format!("limit/{id}"), None),
            Change::Learned { key, value } => (format!("learned/{key}"), value.as_ref().and_then(json)),
        }
    }
}

impl Kept {
    /// Adds a stored entry. Keys that are none of [`Change::entry`]'s are left alone.
    pub fn add(&mut self, key: &str, value: &str) -> Result<(), StoreError> {
        let damaged = |e: serde_json::Error| StoreError::Damaged { key: key.to_owned(), why: e.to_string() };
        if key == "epoch" {
            self.epoch = serde_json::from_str(value).map_err(damaged)?;
        } else if let Some(id) = key.strip_prefix("job/") {
            let job: StoredJob = serde_json::from_str(value).map_err(damaged)?;
            self.jobs.insert(id.to_owned(), job);
        } else if key.starts_with("node/") {
            let node: StoredNode = serde_json::from_str(value).map_err(damaged)?;
            self.nodes.insert(node.id, node);
        } else if let Some(id) = key.strip_prefix("limit/") {
            self.limits.insert(id.to_owned(), serde_json::from_str(value).map_err(damaged)?);
        } else if let Some(name) = key.strip_prefix("learned/") {
            self.learned.insert(name.to_owned(), serde_json::from_str(value).map_err(damaged)?);
        }
        Ok(())
    }

    /// The same state after a change.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Job(job) => {
                self.jobs.insert(job.request.id.clone(), (**job).clone());
            }
            Change::JobEnded(id) => {
                self.jobs.remove(id);
            }
            Change::Node(node) => {
                self.nodes.insert(node.id, node.clone());
            }
            Change::NodeForgotten(id) => {
                self.nodes.remove(id);
            }
            Change::Epoch(epoch) => self.epoch = *epoch,
            Change::Limit(limit) => {
                self.limits.insert(limit.subject.to_string(), (**limit).clone());
            }
            Change::LimitRemoved(id) => {
                self.limits.remove(id);
            }
            Change::Learned { key, value: Some(value) } => {
                self.learned.insert(key.clone(), value.clone());
            }
            Change::Learned { key, value: None } => {
                self.learned.remove(key);
            }
        }
    }
}
