//! Between a job and the arbiter, as JSON over HTTP.

use forebay_types::exposition::OTHERS;
use forebay_types::{Epoch, NodeId, names};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// As which job somebody comes who is to control an I/O node, unless it lets in only another one. No job has this name.
pub const CONTROL_JOB: &str = "forebay-control";

/// The longest name of a job, application or user, in bytes.
pub const LONGEST: usize = 255;

/// Refuses what cannot be printed, or is too long.
pub fn printable(name: &str) -> Result<(), String> {
    if name.len() > LONGEST {
        return Err(format!("is longer than {LONGEST} bytes"));
    }
    names::seen(name)
}

/// Refuses what no job can be called.
pub fn check_name(id: &str) -> Result<(), String> {
    printable(id)?;
    match id {
        _ if id.contains('/') => Err("has a slash".to_owned()),
        CONTROL_JOB => Err("is whoever controls an I/O node".to_owned()),
        OTHERS => Err("stands for all jobs that are not named in metrics".to_owned()),
        _ => Ok(()),
    }
}

/// What a job or an application can be called that comes nearest to the name of a file.
pub fn fitting(name: &str) -> String {
    let mut fit: String = name.chars().map(|c| if names::unseen(c) || c == '/' { '-' } else { c }).collect();
    if fit.is_empty() || matches!(&*fit, CONTROL_JOB | OTHERS) {
        fit.insert_str(0, "job-");
    }
    while fit.len() > LONGEST {
        fit.pop();
    }
    fit
}

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
    /// Its compute nodes have the file system mounted: it can do without I/O nodes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub direct: bool,
    /// The access pattern its bandwidth is expected to follow, in the words of the explorer's
    /// tables, where the user knows; else its history tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// Which of the runs that make up the job registers: it lasts until the last of them has ended. 0 where
    /// nobody tells them apart.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub run: u32,
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
            direct: false,
            pattern: None,
            run: 0,
        }
    }
}

fn one() -> u32 {
    1
}

fn is_zero(run: &u32) -> bool {
    *run == 0
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
    /// It has no I/O nodes: its processes go to the file system themselves. The address is for those that cannot, and
    /// for what is open still.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub direct: bool,
    /// Why it got those, in one sentence.
    pub reason: String,
    /// What is not as whoever began the job may think.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Where the site's fixed map holds: by compute node, the address of its I/O node. Else neighbours share one.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_to_fit_is_taken() {
        let long = "ü".repeat(200);
        for name in ["app", "a\nb", "a\u{202e}b", "(others)", "forebay-control", "", "a b 🦀", &long] {
            assert_eq!(check_name(&fitting(name)), Ok(()), "{name:?}");
        }
        assert_eq!((fitting("app").as_str(), fitting("a\n/b").as_str()), ("app", "a--b"));
    }
}
