//! Where the time of a job's requests went.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Display;

/// Where the time of a job's requests went, in seconds, summed over its last requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobBlame {
    /// How many requests this is about.
    pub requests: u64,
    /// Over how long they came.
    pub span: f64,
    /// From arrival to the end, and what was lost before.
    pub total: f64,
    /// At the storage, as long as such requests take there by themselves.
    pub service: f64,
    /// At the storage beyond that, while its servers served nobody else that the I/O node knows of: slow, or at
    /// work for others.
    #[serde(default)]
    pub storage: f64,
    /// Held back by a limit.
    pub throttled: f64,
    /// Waiting while requests of this job were at the storage, before or at the same server; its own among
    /// them.
    pub behind: BTreeMap<String, f64>,
    /// Waiting while nothing was: the scheduler wanted it so.
    pub idle: f64,
    /// Lost by requests that were sent before, to a node or over a connection that is gone.
    #[serde(default)]
    pub failover: f64,
    /// What its requests took without limits, summed up, and what they would have taken through the scheduler
    /// that was asked about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what_if: Option<(f64, f64)>,
    /// How many data servers requests were seen to go to.
    #[serde(default)]
    pub servers: usize,
}

impl JobBlame {
    /// The same job on another node.
    pub fn add(&mut self, other: &JobBlame) {
        self.requests += other.requests;
        self.span = self.span.max(other.span);
        self.total += other.total;
        self.service += other.service;
        self.storage += other.storage;
        self.throttled += other.throttled;
        self.idle += other.idle;
        self.failover += other.failover;
        self.servers = self.servers.max(other.servers);
        for (job, seconds) in &other.behind {
            *self.behind.entry(job.clone()).or_default() += seconds;
        }
        self.what_if = match (self.what_if, other.what_if) {
            (Some(a), Some(b)) => Some((a.0 + b.0, a.1 + b.1)),
            (a, b) => a.or(b),
        };
    }

    /// What its requests would have taken under `other`, each, in words, if that was asked.
    pub fn foreseen(&self, other: &dyn Display) -> Option<String> {
        let (now, then) = self.what_if?;
        let each = |seconds: f64| seconds / self.requests.max(1) as f64 * 1e3;
        let change = if now > 0.0 { (then / now - 1.0) * 100.0 } else { 0.0 };
        let (now, then, held) = (each(now), each(then), each(self.throttled));
        let mut said = format!("under {other}: {then:.3} ms instead of {now:.3} ms ({change:+.0} %)");
        if self.throttled > 0.0 {
            said.push_str(&format!("; the {held:.3} ms that a limit holds each back are left out of both"));
        }
        // What its own requests wait for each other there is not told apart from what they take.
        if self.servers > 1 {
            said.push_str(&format!(
                "; with {} data servers this is rough (docs/STEER.md says how rough)",
                self.servers
            ));
        }
        Some(said)
    }

    /// Its parts in words and as shares of the whole, the largest first; those of nothing are left out.
    pub fn parts(&self, job: &str) -> Vec<(f64, String)> {
        let mut parts: Vec<(f64, String)> = vec![
            (self.service, "at the storage, for its own requests".to_owned()),
            (
                self.storage,
                "at the storage, which was slower than it can be, or at work for others elsewhere".to_owned(),
            ),
            (self.throttled, "held back by a limit".to_owned()),
            (self.idle, "waiting while nothing was at the storage: its scheduler lets it wait".to_owned()),
            (self.failover, "lost to an I/O node or a connection that was gone".to_owned()),
        ];
        for (other, seconds) in &self.behind {
            let who = if other == job { "its own requests".to_owned() } else { format!("job {other}") };
            parts.push((*seconds, format!("behind {who}")));
        }
        parts.retain(|(seconds, _)| *seconds > 0.0);
        parts.sort_by(|a, b| b.0.total_cmp(&a.0));
        parts.into_iter().map(|(seconds, what)| (seconds / self.total.max(1e-12), what)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_foreseen_says_what_it_leaves_out() {
        let asked =
            JobBlame { requests: 10, total: 0.08, what_if: Some((0.08, 0.02)), ..JobBlame::default() };
        let said = asked.foreseen(&"sfq");
        assert_eq!(said.as_deref(), Some("under sfq: 2.000 ms instead of 8.000 ms (-75 %)"));
        let limited = JobBlame { total: 3.28, throttled: 3.2, ..asked };
        let said = limited.foreseen(&"sfq").unwrap_or_default();
        assert!(
            said.ends_with("; the 320.000 ms that a limit holds each back are left out of both"),
            "{said}"
        );
        let wide = JobBlame { servers: 4, throttled: 0.0, ..limited };
        let said = wide.foreseen(&"sfq").unwrap_or_default();
        assert!(
            said.ends_with("; with 4 data servers this is rough (docs/STEER.md says how rough)"),
            "{said}"
        );
        assert_eq!(JobBlame::default().foreseen(&"sfq"), None);
    }
}
