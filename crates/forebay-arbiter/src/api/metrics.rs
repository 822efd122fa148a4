//! `/metrics`, for Prometheus. The number of series is bounded: by the number of I/O nodes, and by the
//! number of jobs that have series of their own (`max-job-metrics`); the other jobs are added up.

use super::App;
use crate::core::Core;
use crate::service::Shared;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use forebay_control::view::{HealthView, JobView, NodeState, NodeView};
use forebay_types::exposition::{Bounded, CONTENT_TYPE, Exposition, OTHERS};
use forebay_types::{Nanos, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// What has to be remembered of jobs from one scrape to the next.
pub(crate) struct JobSeries(Mutex<Bounded<1>>);

impl JobSeries {
    pub(crate) fn new(most: usize) -> JobSeries {
        JobSeries(Mutex::new(Bounded::new(most)))
    }
}

/// One that stands by says so: whether anybody leads is what most wants to be known.
pub(super) async fn metrics(State(shared): App) -> Response {
    let mut e = Exposition::default();
    let seen = shared.ask(|core, now| (core.health(now), core.nodes(now), counted(core, now))).await;
    about(&mut e, &shared, seen.is_ok());
    if let Ok((health, nodes, jobs)) = seen {
        of_the_reign(&mut e, &health);
        of_nodes(&mut e, &nodes);
        of_jobs(&mut e, &jobs, &nodes, &shared.job_series);
    }
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], e.into_text()).into_response()
}

/// The jobs, with what they moved under this arbiter: a counter that begins anew has to begin at 0.
fn counted(core: &Core, now: Nanos) -> Vec<JobView> {
    let mut jobs = core.jobs(now);
    for (job, bytes) in jobs.iter_mut().zip(core.counted()) {
        job.bytes = bytes;
    }
    jobs
}

fn about(e: &mut Exposition, shared: &Shared, leading: bool) {
    let policy = shared.config.core.policy.name();
    let mut info = e.gauges("forebay_arbiter_info", "The arbiter's version and policy; always 1");
    info.sample(&[("version", env!("CARGO_PKG_VERSION")), ("policy", policy)], 1.0);
    let help = "1 if this arbiter leads, 0 if it stands by";
    e.gauge("forebay_arbiter_leading", help, f64::from(u8::from(leading)));
    let help = "Requests and messages that reached the arbiter";
    e.counter("forebay_arbiter_requests_total", help, shared.asked());
    let help = "Rows of history that were dropped because the database could not keep up";
    e.counter("forebay_arbiter_history_rows_dropped_total", help, shared.history_dropped());
    e.counter(
        "forebay_arbiter_decisions_total",
        "Decisions since the database began",
        shared.next_decision().saturating_sub(1),
    );
}

fn of_the_reign(e: &mut Exposition, health: &HealthView) {
    e.gauge("forebay_arbiter_jobs", "Jobs that run", health.jobs as f64);
    e.gauge(
        "forebay_arbiter_term",
        "The arbiter's term: its reign, larger for every new one",
        health.term.0 as f64,
    );
    let help = "How long the arbiter has led";
    e.gauge("forebay_arbiter_leading_duration_seconds", help, health.up_ms as f64 / 1e3);
}

fn of_nodes(e: &mut Exposition, nodes: &[NodeView]) {
    let mut states = BTreeMap::from(NodeState::ALL.map(|s| (s.name(), 0u32)));
    for node in nodes {
        *states.entry(node.state.name()).or_default() += 1;
    }
    let mut all = e.gauges("forebay_arbiter_nodes", "I/O nodes that are known, by how they stand");
    for (state, count) in &states {
        all.sample(&[("state", state)], f64::from(*count));
    }
    let ids: Vec<String> = nodes.iter().map(|n| n.id.to_string()).collect();
    let mut state = e.gauges("forebay_arbiter_node_state", "How the I/O node stands; always 1");
    for (id, node) in ids.iter().zip(nodes) {
        state.sample(&[("node", id), ("state", node.state.name())], 1.0);
    }
    let mut verdict = e.gauges("forebay_arbiter_node_health", "What the screening thinks of it; always 1");
    for (id, node) in ids.iter().zip(nodes) {
        if let Some(health) = &node.health {
            verdict.sample(&[("node", id), ("verdict", &health.state)], 1.0);
        }
    }
    let mut gauges = |name: &str, help: &str, value: fn(&NodeView) -> f64| {
        let mut family = e.gauges(name, help);
        for (id, node) in ids.iter().zip(nodes) {
            family.sample(&[("node", id)], value(node));
        }
    };
    gauges("forebay_arbiter_node_bytes_per_second", "Bytes moved by it, in its last interval", |n| {
        n.bandwidth_mbs * 1e6
    });
    gauges("forebay_arbiter_node_jobs", "Jobs on the I/O node", |n| n.jobs.len() as f64);
    gauges("forebay_arbiter_node_queue_requests", "Requests that wait there", |n| n.waiting as f64);
    gauges("forebay_arbiter_node_latency_p50_seconds", "Median latency in its last interval", |n| {
        n.latency_p50.as_secs_f64()
    });
    gauges("forebay_arbiter_node_latency_p99_seconds", "99th percentile of the same", |n| {
        n.latency_p99.as_secs_f64()
    });
    gauges("forebay_arbiter_node_errors", "Storage errors in its last interval", |n| n.errors as f64);
    gauges("forebay_arbiter_node_silence_seconds", "Since it was last heard of", |n| n.heard_ms as f64 / 1e3);
}

fn of_jobs(e: &mut Exposition, jobs: &[JobView], nodes: &[NodeView], series: &JobSeries) {
    let lost: BTreeSet<NodeId> = nodes.iter().filter(|n| n.state.is_gone()).map(|n| n.id).collect();
    let totals = jobs.iter().map(|j| (j.id.clone(), [j.bytes]));
    let series = series.0.lock().unwrap_or_else(PoisonError::into_inner).update(totals);
    let mut bytes = e.counters("forebay_arbiter_job_bytes_total", "Bytes moved for the job");
    for (job, [n]) in &series {
        bytes.sample(&[("job", job)], *n as f64);
    }
    let mut gauges = |name: &str, help: &str, value: &dyn Fn(&JobView) -> f64| {
        let mut sums: BTreeMap<&str, f64> = series.iter().map(|(name, _)| (name.as_str(), 0.0)).collect();
        for job in jobs {
            let name = if sums.contains_key(job.id.as_str()) { job.id.as_str() } else { OTHERS };
            *sums.entry(name).or_default() += value(job);
        }
        let mut family = e.gauges(name, help);
        for (job, sum) in sums {
            family.sample(&[("job", job)], sum);
        }
    };
    gauges("forebay_arbiter_job_bytes_per_second", "Bytes moved for the job, in the last second", &|j| {
        j.bandwidth_mbs * 1e6
    });
    gauges("forebay_arbiter_job_predicted_bytes_per_second", "What was predicted for its I/O nodes", &|j| {
        j.predicted_mbs.unwrap_or(0.0) * 1e6
    });
    gauges(
        "forebay_arbiter_job_busy_ratio",
        "Part of the last second with requests at its I/O nodes that no limit held back",
        &|j| j.busy,
    );
    gauges(
        "forebay_arbiter_job_limited_ratio",
        "Part of the last second in which a limit held it back",
        &|j| j.limited,
    );
    // One that is lost stays the job's until another takes its place: it is of no use to it.
    gauges("forebay_arbiter_job_io_nodes", "I/O nodes the job has, without those that are lost", &|j| {
        j.nodes.iter().filter(|n| !lost.contains(n)).count() as f64
    });
    gauges("forebay_arbiter_job_direct", "Whether the job does its I/O itself, as the policy wanted", &|j| {
        f64::from(u8::from(j.direct))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: usize) -> JobView {
        let json = format!(
            r#"{{"id":"job {id}","app":"","user":"","compute_nodes":1,"processes":1,"weight":1,"age_ms":0,
            "lease_ms":0,"epoch":0,"nodes":[0],"shared":false,"bandwidth_mbs":1.0,"predicted_mbs":null,
            "curve":null,"pattern":null,"bytes":{id},"reason":""}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn many_jobs_make_few_series() {
        let mut e = Exposition::default();
        let jobs: Vec<JobView> = (0..5000).map(job).collect();
        of_jobs(&mut e, &jobs, &[], &JobSeries::new(10));
        let text = e.into_text();
        let series = text.lines().filter(|l| l.starts_with("forebay_arbiter_job_bytes_total{")).count();
        assert_eq!(series, 11);
        let others = "forebay_arbiter_job_bytes_per_second{job=\"(others)\"} 4990000000\n";
        assert!(text.contains(others), "{text}");
        assert!(text.contains("job 4999"), "the busiest has its own");
    }
}
