//! `forebay run --watch`: what the program does while it runs, below what it says itself; without a terminal,
//! a line a second.

use crate::launch;
use forebay_client::{Config, Counters, HOUSEKEEPING, OpTotals};
use forebay_control::client::Client as Arbiter;
use forebay_control::view::JobView;
use forebay_top::picture::{AskRanks, Picture};
use forebay_top::{Look, Panel};
use forebay_types::{Address, ClientReport, Epoch, Nanos, NodeId};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(1);

/// Whom to ask.
pub(crate) struct Watched {
    /// What the processes of this machine count.
    pub(crate) counters: &'static Counters,
    /// The job, and its I/O nodes where there is no arbiter.
    pub(crate) config: Config,
    /// Who knows of its other processes, and of where it is.
    pub(crate) arbiter: Option<Arc<Arbiter>>,
    pub(crate) app: String,
    pub(crate) processes: u32,
}

/// Shows it until dropped.
pub(crate) enum Watcher {
    Panel { _panel: Panel },
    Lines { _lines: Lines },
}

impl Watcher {
    pub(crate) fn start(watched: Watched, say: fn(&str)) -> std::io::Result<Watcher> {
        if std::io::stderr().is_terminal() && forebay_top::can_draw() {
            let colours = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
            let job = watched.config.job.clone();
            let panel = Panel::start(&job, INTERVAL, colours, watched.look())?;
            return Ok(Watcher::Panel { _panel: panel });
        }
        let lines = Lines::start(watched.counters, &watched.config.job, say)?;
        Ok(Watcher::Lines { _lines: lines })
    }
}

impl Watched {
    /// The job as it is now: as the arbiter knows it, and without one as its processes count.
    fn look(self) -> Look {
        let ranks = {
            let config = self.config.clone();
            move |nodes: &[Address]| -> Vec<ClientReport> {
                launch::clients(&config, nodes).0.into_iter().flat_map(|(_, clients)| clients).collect()
            }
        };
        if let Some(arbiter) = self.arbiter {
            let ask: Box<AskRanks> = Box::new(move |_, nodes| {
                ranks(&nodes.iter().filter_map(|n| n.parse().ok()).collect::<Vec<Address>>())
            });
            let job = self.config.job;
            return Box::new(move || {
                Picture::take(&arbiter, Some(&job), Some(&*ask)).map_err(|e| e.to_string())
            });
        }
        let (begin, mut then, mut before) = (Instant::now(), Instant::now(), Done::default());
        Box::new(move || {
            let (now, totals) = (Instant::now(), Counters::totals(&[self.counters]));
            let done = Done::of(&totals);
            let seconds = now.duration_since(then).as_secs_f64().max(1e-9);
            let moved = |d: &Done| d.read + d.written;
            let data = totals.iter().filter(|t| matches!(t.name, "read" | "write" | "append"));
            let longest = |p: usize| Nanos(data.clone().map(|t| t.latency_ns[p]).max().unwrap_or(0));
            let job = JobView {
                id: self.config.job.clone(),
                app: self.app.clone(),
                user: String::new(),
                account: String::new(),
                hosts: Vec::new(),
                compute_nodes: 1,
                processes: self.processes,
                weight: 1,
                age_ms: begin.elapsed().as_millis() as u64,
                lease_ms: 0,
                epoch: Epoch(0),
                nodes: (0..self.config.nodes.len() as u32).map(NodeId).collect(),
                shared: false,
                bandwidth_mbs: moved(&done).saturating_sub(moved(&before)) as f64 / seconds / 1e6,
                operations: done.operations.saturating_sub(before.operations) as f64 / seconds,
                // Only an arbiter is told.
                busy: 0.0,
                limited: 0.0,
                latency_p50: longest(0),
                latency_p99: longest(2),
                predicted_mbs: None,
                curve: None,
                pattern: Some(done.summary()),
                bytes: moved(&done),
                bytes_at_least: false,
                direct: false,
                pinned: Vec::new(),
                reason: "of its own, on this machine".to_owned(),
            };
            (then, before) = (now, done);
            Ok(Picture::alone(job, ranks(&self.config.nodes)))
        })
    }
}

/// Says a line a second until dropped.
pub(crate) struct Lines {
    /// Dropped first: that is the end.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Lines {
    fn start(counters: &'static Counters, job: &str, say: fn(&str)) -> std::io::Result<Lines> {
        let (end, ended) = channel::<()>();
        let job = job.to_owned();
        let thread = std::thread::Builder::new().name("watch".into()).spawn(move || {
            let (begin, mut then, mut before) = (Instant::now(), Instant::now(), Done::default());
            while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let (now, done) = (Instant::now(), Done::of(&Counters::totals(&[counters])));
                let seconds = now.duration_since(then).as_secs_f64();
                say(&done.line(&before, &job, begin.elapsed().as_secs(), seconds));
                (then, before) = (now, done);
            }
        })?;
        Ok(Lines { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What was done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Done {
    read: u64,
    written: u64,
    operations: u64,
    metadata: u64,
    errors: u64,
    /// The longest operation, in nanoseconds.
    longest: u64,
}

impl Done {
    fn of(totals: &[OpTotals]) -> Done {
        let mut done = Done::default();
        for op in totals {
            match op.name {
                // Repeated ones are among the writes.
                HOUSEKEEPING | "repeated" => continue,
                "read" => done.read += op.bytes,
                "write" | "append" => done.written += op.bytes,
                _ => done.metadata += op.count,
            }
            done.operations += op.count;
            done.errors += op.errors;
            done.longest = done.longest.max(op.latency_ns[3]);
        }
        done
    }

    fn summary(&self) -> String {
        let mb = |bytes: u64| bytes as f64 / 1e6;
        format!(
            "{:.1} MB read, {:.1} MB written, {} metadata operations, {} errors",
            mb(self.read),
            mb(self.written),
            self.metadata,
            self.errors
        )
    }

    fn line(&self, before: &Done, job: &str, at: u64, seconds: f64) -> String {
        let rate = |now: u64, was: u64| now.saturating_sub(was) as f64 / seconds.max(1e-9);
        let mbs = |now: u64, was: u64| rate(now, was) / 1e6;
        format!(
            "{job} after {at} s: reads {:.1} MB/s, writes {:.1} MB/s, {:.0} operations/s ({:.0} metadata), \
             {} errors, longest {:.1} ms",
            mbs(self.read, before.read),
            mbs(self.written, before.written),
            rate(self.operations, before.operations),
            rate(self.metadata, before.metadata),
            self.errors,
            self.longest as f64 / 1e6,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_what_was_done_since_the_last() {
        let op =
            |name, count, bytes| OpTotals { name, count, errors: 1, bytes, latency_ns: [0, 0, 0, 2_500_000] };
        let before = Done::of(&[op("write", 10, 1_000_000)]);
        let now = Done::of(&[op("write", 30, 5_000_000), op("open", 4, 0), op(HOUSEKEEPING, 9, 9)]);
        assert_eq!(
            now.line(&before, "sim", 3, 2.0),
            "sim after 3 s: reads 0.0 MB/s, writes 2.0 MB/s, 12 operations/s (2 metadata), 2 errors, longest 2.5 ms"
        );
    }
}
