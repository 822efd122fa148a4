//! `forebay run --watch`: what the program does while it runs, a line a second.

use forebay_client::{Counters, HOUSEKEEPING, OpTotals};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(1);

/// Says a line a second until dropped.
pub(crate) struct Watcher {
    /// Dropped first: that is the end.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    pub(crate) fn start(counters: &'static Counters, job: &str, say: fn(&str)) -> std::io::Result<Watcher> {
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
        Ok(Watcher { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Watcher {
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
