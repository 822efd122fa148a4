//! The node's metrics, for Prometheus. Made when somebody asks, from what is counted anyway; no secret and
//! no file's name is in them.

use crate::node::Node;
use crate::stats::{Counted, TALLY};
use crate::sys;
use forebay_types::exposition::{Bounded, Exposition};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

/// So many jobs have series of their own.
const OWN_SERIES: usize = 100;

/// Buckets of latencies: from 16 us to 17 s, by four.
const LATENCIES: (u32, u32, usize) = (14, 34, 2);
/// Of sizes: from 1 KiB to 16 MiB, by four.
const SIZES: (u32, u32, usize) = (10, 24, 2);
/// Of queue lengths: from 0 to 4095, by four.
const LENGTHS: (u32, u32, usize) = (0, 12, 2);
/// Values that are what they are.
const UNSCALED: f64 = 1.0;
const NANOSECONDS: f64 = 1e9;

/// What has to be remembered from one scrape to the next.
pub(crate) struct JobSeries(Mutex<Bounded<TALLY>>);

impl Default for JobSeries {
    fn default() -> JobSeries {
        JobSeries(Mutex::new(Bounded::new(OWN_SERIES)))
    }
}

impl Node {
    /// The metrics as of now.
    pub fn metrics(&self) -> String {
        let mut e = Exposition::default();
        self.about(&mut e);
        self.of_operations(&mut e);
        self.of_the_queue(&mut e);
        self.of_connections(&mut e);
        self.of_jobs(&mut e);
        e.into_text()
    }

    fn about(&self, e: &mut Exposition) {
        let (id, scheduler) = (self.config.id.to_string(), self.scheduler().to_string());
        e.gauges("forebay_node_info", "The I/O node's number, version and scheduler; always 1")
            .sample(&[("node", &id), ("version", env!("CARGO_PKG_VERSION")), ("scheduler", &scheduler)], 1.0);
        let up = sys::now().since(self.started);
        let start = sys::wall_clock().since(up).as_secs_f64();
        e.gauge("forebay_node_start_time_seconds", "When the node began, in seconds since 1970", start);
        let draining = f64::from(u8::from(self.draining()));
        e.gauge("forebay_node_draining", "1 while the node lets its clients go", draining);
        let used = self.pool.used() as f64;
        e.gauge("forebay_node_payload_memory_bytes", "Memory that payloads take up", used);
        let limit = self.config.memory as f64;
        e.gauge("forebay_node_payload_memory_limit_bytes", "Memory that payloads may take up", limit);
        if let Some(resident) = resident() {
            let help = "Resident memory of the process";
            e.gauge("process_resident_memory_bytes", help, resident as f64);
        }
    }

    fn of_operations(&self, e: &mut Exposition) {
        let all = self.jobs.by_operation();
        let help = "From receipt of an operation to its answer";
        let mut latencies = e.histograms("forebay_node_operation_duration_seconds", help);
        for (operation, Counted { latency, .. }) in &all {
            latencies.distribution(&[("operation", operation)], latency, LATENCIES, NANOSECONDS);
        }
        let mut sizes = e.histograms("forebay_node_operation_size_bytes", "Bytes that an operation moved");
        for (operation, counted) in &all {
            if let Some(size) = &counted.size {
                sizes.distribution(&[("operation", operation)], size, SIZES, UNSCALED);
            }
        }
        let help = "Operations that were answered with an error";
        let mut errors = e.counters("forebay_node_operation_errors_total", help);
        for (operation, counted) in &all {
            errors.sample(&[("operation", operation)], counted.errors as f64);
        }
        let help = "Bytes of each system call that reached the storage, after merging";
        let mut calls = e.histograms("forebay_node_storage_call_size_bytes", help);
        for (operation, sizes) in [("read", &self.stats.issued_read), ("write", &self.stats.issued_write)] {
            calls.distribution(&[("operation", operation)], &sizes.counts(), SIZES, UNSCALED);
        }
    }

    fn of_the_queue(&self, e: &mut Exposition) {
        let (waiting, jain) = self.engine.with_queue(|q| (q.len(), q.accounts().jain()));
        e.gauge("forebay_node_queue_requests", "Requests that wait for the scheduler", waiting as f64);
        let help = "How many requests waited whenever one came";
        let mut lengths = e.histograms("forebay_node_queue_length_requests", help);
        lengths.distribution(&[], &self.engine.queue_length().counts(), LENGTHS, UNSCALED);
        let (held, throttled) = self.engine.with_queue(|q| q.throttled());
        e.gauge("forebay_node_throttled_requests", "Requests that a limit holds back", held as f64);
        let help = "Requests that a limit has held back";
        e.counter("forebay_node_throttled_requests_total", help, throttled.requests);
        let help = "How long limits have held requests back";
        let mut seconds = e.counters("forebay_node_throttled_seconds_total", help);
        seconds.sample(&[], throttled.waited.as_secs_f64());
        let help = "Jain's index over the jobs' service by weight";
        e.gauge("forebay_node_fairness_ratio", help, jain);
        let s = &self.stats;
        for (name, help, counter) in [
            (
                "forebay_node_merged_requests_total",
                "Requests that went out in a system call with others",
                &s.merged,
            ),
            (
                "forebay_node_inline_requests_total",
                "Requests served by the thread that received them",
                &s.inline,
            ),
            ("forebay_node_dispatched_requests_total", "Requests served by dispatchers", &s.dispatched),
            (
                "forebay_node_fenced_requests_total",
                "Requests refused because their client's lease had run out",
                &s.expired,
            ),
            (
                "forebay_node_replayed_requests_total",
                "Requests that came again, and were not carried out twice",
                &s.replayed,
            ),
        ] {
            e.counter(name, help, counter.load(Relaxed));
        }
    }

    fn of_connections(&self, e: &mut Exposition) {
        let unanswered: u64 = self.connections().iter().map(|l| u64::from(l.unanswered.load(Relaxed))).sum();
        let connections = self.connection_count() as f64;
        e.gauge("forebay_node_connections", "Open connections", connections);
        e.gauge("forebay_node_sessions", "Client processes", self.sessions.len() as f64);
        e.gauge("forebay_node_open_files", "Open files", self.jobs.open_files() as f64);
        let help = "Requests that were received and not answered yet";
        e.gauge("forebay_node_unanswered_requests", help, unanswered as f64);
        let help = "Requests that all connections together may have unanswered";
        e.gauge("forebay_node_credits", help, connections * f64::from(self.config.credits));
        let s = &self.stats;
        for (name, help, counter) in [
            ("forebay_node_connections_accepted_total", "Connections that were taken", &s.accepted),
            ("forebay_node_connections_refused_total", "Connections beyond the limit", &s.refused),
            ("forebay_node_connections_cut_off_total", "Connections that the node broke off", &s.cut_off),
        ] {
            e.counter(name, help, counter.load(Relaxed));
        }
    }

    fn of_jobs(&self, e: &mut Exposition) {
        let tallies = self.jobs.tallies();
        let series = self.job_series.0.lock().unwrap_or_else(PoisonError::into_inner).update(tallies);
        let mut bytes = e.counters("forebay_node_job_bytes_total", "Bytes moved for the job");
        for (job, tally) in &series {
            for (kind, n) in [("read", tally[1]), ("write", tally[2])] {
                bytes.sample(&[("job", job), ("kind", kind)], n as f64);
            }
        }
        let mut operations = e.counters("forebay_node_job_operations_total", "The job's operations");
        for (job, tally) in &series {
            for (kind, n) in [("read", tally[4]), ("write", tally[5]), ("metadata", tally[6])] {
                operations.sample(&[("job", job), ("kind", kind)], n as f64);
            }
        }
        let help = "The job's operations that failed";
        let mut errors = e.counters("forebay_node_job_errors_total", help);
        for (job, tally) in &series {
            errors.sample(&[("job", job)], tally[7] as f64);
        }
    }
}

/// Memory of this process that is not swapped out, in bytes.
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * sys::PAGE as u64)
}
