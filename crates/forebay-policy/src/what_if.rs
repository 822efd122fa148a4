//! A set of jobs as somebody wrote it down, and what a policy would decide for it.

use crate::dfra::IoProfile;
use crate::{BandwidthCurve, Current, Decision, Explanation, Job, Policy, PolicyError, Pool, Static};
use forebay_types::Bandwidth;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashSet};

/// A job's id as it was written, so that it comes back the same.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged, expecting = "an id must be text or a whole number")]
enum Id {
    Text(String),
    Number(i64),
}

#[derive(Deserialize)]
struct Entry {
    id: Id,
    compute_nodes: u32,
    processes: u32,
    curve: Option<BandwidthCurve>,
    #[serde(default)]
    app: String,
    #[serde(default)]
    user: String,
    #[serde(default = "one")]
    weight: f64,
    current: Option<u32>,
    history: Option<IoProfile>,
}

const FIELDS: [&str; 9] =
    ["id", "compute_nodes", "processes", "curve", "app", "user", "weight", "current", "history"];

fn one() -> f64 {
    1.0
}

/// Why a text is no set of jobs.
#[derive(Debug, thiserror::Error)]
pub enum JobSetError {
    /// It is no JSON, or not of this form.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// Two jobs are one.
    #[error("job {index}: there is another job with the id {id}")]
    Twice {
        /// Which in the list, from 0.
        index: usize,
        /// Its id.
        id: String,
    },
    /// A job without a machine.
    #[error("job {0}: it needs at least one compute node")]
    Nowhere(String),
    /// An id that cannot be shown.
    #[error("job {0}: its id is empty, or has control characters")]
    Id(usize),
    /// Nobody does its I/O.
    #[error("job {0}: it needs at least one process")]
    Idle(String),
    /// A job that counts nothing.
    #[error("job {0}: weight {1} is not above 0")]
    Weight(String, f64),
}

/// A set of jobs, read from JSON.
#[derive(Debug)]
pub struct JobSet {
    ids: Vec<Id>,
    /// The jobs.
    pub jobs: Vec<Job>,
    /// Fields that mean nothing: a misspelt one must not pass in silence.
    pub unknown_fields: BTreeSet<String>,
}

impl JobSet {
    /// Reads a list of jobs.
    pub fn parse(text: &str) -> Result<JobSet, JobSetError> {
        let entries: Vec<Entry> = serde_json::from_str(text)?;
        let raw: Vec<serde_json::Map<String, serde_json::Value>> = serde_json::from_str(text)?;
        let fields = raw.into_iter().flat_map(|m| m.into_iter().map(|(k, _)| k));
        let unknown_fields = fields.filter(|k| !FIELDS.contains(&k.as_str())).collect();
        let (mut ids, mut jobs) = (Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        for (index, e) in entries.into_iter().enumerate() {
            let id = match &e.id {
                Id::Text(t) => t.clone(),
                Id::Number(n) => n.to_string(),
            };
            if id.is_empty() || id.chars().any(char::is_control) {
                return Err(JobSetError::Id(index));
            }
            if !seen.insert(id.clone()) {
                return Err(JobSetError::Twice { index, id });
            }
            if e.compute_nodes == 0 {
                return Err(JobSetError::Nowhere(id));
            }
            if e.processes == 0 {
                return Err(JobSetError::Idle(id));
            }
            if !(e.weight.is_finite() && e.weight > 0.0) {
                return Err(JobSetError::Weight(id, e.weight));
            }
            let current = e.current.map(|io_nodes| Current { io_nodes, ..Current::default() });
            jobs.push(Job {
                app: e.app,
                user: e.user,
                curve: e.curve.map(Into::into),
                weight: e.weight,
                current,
                history: e.history,
                ..Job::new(id, e.compute_nodes, e.processes)
            });
            ids.push(e.id);
        }
        Ok(JobSet { ids, jobs, unknown_fields })
    }

    /// What `policy` would give them of `pool`, and what STATIC would.
    pub fn decide(&self, policy: &dyn Policy, pool: &Pool) -> Result<WhatIf, PolicyError> {
        let decision = policy.decide(&self.jobs, pool)?;
        let explained = decision.explain(&self.jobs, pool);
        let fixed = Static.decide(&self.jobs, pool).ok();
        let fixed = fixed.filter(|d| d.used() <= u64::from(d.io_nodes)).map(|d| d.total);
        Ok(WhatIf { decision, explained, fixed })
    }

    /// The answer with the jobs' ids as they were written.
    pub fn to_json(&self, what_if: &WhatIf) -> Result<serde_json::Value, serde_json::Error> {
        let job = |(id, e): (&Id, &Explanation)| {
            let mut value = serde_json::to_value(e)?;
            value["id"] = serde_json::to_value(id)?;
            Ok(value)
        };
        let jobs: Result<Vec<_>, serde_json::Error> =
            self.ids.iter().zip(&what_if.explained).map(job).collect();
        let decision = &what_if.decision;
        Ok(serde_json::json!({
            "policy": decision.policy,
            "io_nodes": decision.io_nodes,
            "used": decision.used(),
            "total": decision.total,
            "static_total": what_if.fixed,
            "share": decision.share,
            "unpredicted": decision.unpredicted(),
            "jobs": jobs?,
        }))
    }
}

/// What a policy would decide.
#[derive(Debug)]
pub struct WhatIf {
    /// The decision.
    pub decision: Decision,
    /// Why, job by job.
    pub explained: Vec<Explanation>,
    /// What STATIC would reach with the same jobs, where it has an answer that fits the pool.
    pub fixed: Option<Bandwidth>,
}
