//! Between a job and the arbiter, as JSON over HTTP.

use forebay_types::{Epoch, NodeId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// As which job somebody comes who is to control an I/O node, unless it lets in only another one. No job has this name.
pub const CONTROL_JOB: &str = "forebay-control";

/// `POST /v1/jobs`: a job begins. Posting the same id again (after the arbiter was away) renews it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobRequest {
    /// Its name, unique; made up by the arbiter if it is empty.
    #[serde(default)]
    pub id: String,
    /// The application: the next run of the same one is predicted from this one.
    #[serde(default)]
    pub app: String,
    /// Whose it is.
    #[serde(default)]
    pub user: String,
    /// On whose account it runs, as the batch system says.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub account: String,
    /// Compute nodes it runs on; at least 1.
    #[serde(default = "one")]
    pub compute_nodes: u32,
    /// Their names, where they are known, neighbours beside each other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Processes it runs; at least 1.
    #[serde(default = "one")]
    pub processes: u32,
    /// What a MB/s of it counts against one of another job.
    #[serde(default = "one")]
    pub weight: u32,
    /// The secret it has, when it registers again; 64 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// `false`: no experiments with scheduler parameters while it runs.
    #[serde(default = "yes")]
    pub explore: bool,
    /// The access pattern its bandwidth is expected to follow, in the words of the explorer's
    /// tables, where the user knows; else its history tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
}

/// So many names of hosts may be told…
pub const MOST_HOSTS: usize = 4096;
/// …of so many bytes together.
pub const MOST_HOSTS_BYTES: usize = 32 << 10;

impl Default for JobRequest {
    /// A job of one process.
    fn default() -> JobRequest {
        JobRequest {
            id: String::new(),
            app: String::new(),
            user: String::new(),
            account: String::new(),
            compute_nodes: 1,
            hosts: Vec::new(),
            processes: 1,
            weight: 1,
            secret: None,
            explore: true,
            pattern: None,
        }
    }
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

/// The answer to [`JobRequest`] and to a renewed lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobGrant {
    /// The job's name.
    pub id: String,
    /// Its secret; only in the answer to a registration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Renew within this long, or the job is taken for dead. In milliseconds.
    pub lease_ms: u64,
    /// The version of its mapping.
    pub epoch: Epoch,
    /// Its I/O nodes.
    pub nodes: Vec<NodeId>,
    /// Their addresses, in the same order.
    pub addresses: Vec<String>,
    /// Addresses of the other I/O nodes, for when all of its own are gone.
    #[serde(default)]
    pub spare: Vec<String>,
    /// Why it got those, in one sentence.
    pub reason: String,
    /// Where the site has a fixed map: by host, the address of the one that serves it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fixed: BTreeMap<String, String>,
}

/// `PUT /v1/jobs/ID/nodes`: an admin wants the job on these I/O nodes, whatever the policy says; the
/// answer is its [`JobGrant`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PinRequest {
    /// In the order of the job's clients. None leaves the job to the policy again.
    pub nodes: Vec<NodeId>,
}

/// An answer that says no.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// What failed and what to do, in one or two sentences.
    pub error: String,
    /// Where the arbiter that leads is, from one that does not and knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
}
