//! `/metrics`, for Prometheus. The number of series is bounded: by the number of I/O nodes, and by the
//! number of jobs that have series of their own (`max-job-metrics`); the other jobs are added up.

use super::{App, Rejection};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use forebay_control::status::Status;
use forebay_control::view::{HealthView, JobView, NodeState, NodeView};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;

type Labels = Vec<(&'static str, String)>;
type Float = Gauge<f64, AtomicU64>;

/// The name under which jobs without series of their own are added up.
const OTHERS: &str = "(others)";

pub(super) async fn metrics(State(shared): App) -> Result<Response, Rejection> {
    let (health, nodes, jobs) =
        shared.ask(|core, now| (core.health(now), core.nodes(now), core.jobs(now))).await?;
    let mut registry = Registry::with_prefix("forebay");
    about(&mut registry, &health, shared.asked(), shared.history_dropped());
    of_nodes(&mut registry, &nodes);
    of_jobs(&mut registry, jobs, shared.config.max_job_metrics);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)
        .map_err(|e| Rejection::new(Status::Failed, format!("metrics: {e}")))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

fn about(registry: &mut Registry, health: &HealthView, asked: u64, dropped: u64) {
    let mut gauge = |name: &str, help: &str, value: f64| {
        let g = Float::default();
        g.set(value);
        registry.register(name, help, g);
    };
    gauge("jobs", "Jobs that run", health.jobs as f64);
    gauge("nodes", "I/O nodes that are known", health.nodes as f64);
    gauge("nodes_admitted", "I/O nodes that jobs are given to", health.admitted as f64);
    gauge("term", "The arbiter's term", health.term.0 as f64);
    gauge("up_seconds", "Seconds since the arbiter began to lead", health.up_ms as f64 / 1e3);
    for (name, help, value) in [
        ("requests", "Requests and messages that reached the arbiter", asked),
        ("history_dropped", "Rows of history that were dropped", dropped),
    ] {
        let counter = Counter::<u64>::default();
        counter.inc_by(value);
        registry.register(name, help, counter);
    }
}

fn of_nodes(registry: &mut Registry, nodes: &[NodeView]) {
    let mut family = |name: &str, help: &str, value: fn(&NodeView) -> f64| {
        let family = Family::<Labels, Float>::default();
        for node in nodes {
            family.get_or_create(&vec![("node", node.id.to_string())]).set(value(node));
        }
        registry.register(name, help, family);
    };
    family("node_admitted", "1 if jobs are given to the I/O node", |n| {
        f64::from(u8::from(matches!(n.state, NodeState::Admitted | NodeState::Awaited)))
    });
    family("node_bytes_per_second", "Bytes moved by the I/O node, in its last interval", |n| {
        n.bandwidth_mbs * 1e6
    });
    family("node_jobs", "Jobs on the I/O node", |n| n.jobs.len() as f64);
    family("node_waiting", "Requests waiting at the I/O node", |n| n.waiting as f64);
    family("node_latency_p99_seconds", "99th percentile of the latency, in the last interval", |n| {
        n.latency_p99.as_secs_f64()
    });
    family("node_errors", "Storage errors in the last interval", |n| n.errors as f64);
}

fn of_jobs(registry: &mut Registry, mut jobs: Vec<JobView>, most: usize) {
    // The busiest have series of their own.
    jobs.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.id.cmp(&b.id)));
    let mut family = |name: &str, help: &str, value: fn(&JobView) -> f64| {
        let family = Family::<Labels, Float>::default();
        for (i, job) in jobs.iter().enumerate() {
            let id = if i < most { job.id.clone() } else { OTHERS.to_owned() };
            family.get_or_create(&vec![("job", id)]).inc_by(value(job));
        }
        registry.register(name, help, family);
    };
    family("job_bytes_per_second", "Bytes moved for the job, in the last second", |j| j.bandwidth_mbs * 1e6);
    family("job_bytes", "Bytes moved for the job so far", |j| j.bytes as f64);
    family("job_io_nodes", "I/O nodes the job has", |j| j.nodes.len() as f64);
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
        let mut registry = Registry::default();
        of_jobs(&mut registry, (0..5000).map(job).collect(), 10);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let series = text.lines().filter(|l| l.starts_with("job_bytes_per_second{")).count();
        assert_eq!(series, 11);
        assert!(text.contains("job_bytes_per_second{job=\"(others)\"} 4990000000"), "{text}");
        assert!(text.contains("job 4999"), "the busiest has its own");
    }
}
