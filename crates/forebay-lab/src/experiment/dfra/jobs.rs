//! The jobs of the experiment: what their processes do, and what became of their requests.

use crate::experiment::testbed::{at, open};
use anyhow::{Result, bail};
use forebay_client::{Client, Config, Meta, Target};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a process does over and over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Does {
    /// Writes so many bytes to a file of its own (N-N).
    Own(usize),
    /// Writes so many bytes to the file of all, in turn (N-1).
    Shared(usize),
    /// Makes, looks at and removes a directory.
    Names,
}

/// A kind of job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    /// The application of the paper that it stands for.
    pub(super) name: &'static str,
    pub(super) processes: usize,
    pub(super) compute_nodes: usize,
    pub(super) does: Does,
    /// The pause of a process after each request.
    pub(super) pause: Duration,
}

/// The files of a process are not longer than so many requests.
const WRAP: u64 = 64;

/// What became of the requests of a job.
#[derive(Debug, Default)]
struct JobCounters {
    stop: AtomicBool,
    /// Requests that begin now count.
    counting: AtomicBool,
    requests: AtomicU64,
    nanos: AtomicU64,
}

/// A job at work. Dropping it ends its processes.
pub(super) struct Running {
    seen: Arc<JobCounters>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Running {
    /// Starts the processes of a job, each as if on one of the job's `hosts`.
    pub(super) fn start(kind: Kind, job: &str, config: &Config, hosts: &[String]) -> Running {
        let seen = Arc::new(JobCounters::default());
        let start = |rank: usize| {
            let host = hosts.get(rank * hosts.len() / kind.processes.max(1)).cloned();
            let config = Config { hosts: hosts.to_vec(), host, ..config.clone() };
            let (seen, job) = (Arc::clone(&seen), job.to_owned());
            std::thread::spawn(move || process(kind, &job, rank, config, &seen))
        };
        let threads = (0..kind.processes).map(start).collect();
        Running { seen, threads }
    }

    /// Whether requests that begin from now on count.
    pub(super) fn count(&self, counting: bool) {
        self.seen.counting.store(counting, Relaxed);
    }

    /// Ends the processes: how many requests counted, and what one took.
    pub(super) fn end(mut self) -> Result<(u64, Duration)> {
        self.seen.stop.store(true, Relaxed);
        for thread in std::mem::take(&mut self.threads) {
            thread.join().unwrap_or_else(|_| bail!("a process of the experiment failed"))?;
        }
        let requests = self.seen.requests.load(Relaxed);
        let mean = self.seen.nanos.load(Relaxed) / requests.max(1);
        Ok((requests, Duration::from_nanos(mean)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.seen.stop.store(true, Relaxed);
        for thread in std::mem::take(&mut self.threads) {
            // What it has to say is said by `end`.
            let _ = thread.join();
        }
    }
}

fn process(kind: Kind, job: &str, rank: usize, config: Config, seen: &JobCounters) -> Result<()> {
    let client = Client::new(config, None)?;
    let name = match kind.does {
        Does::Shared(_) => format!("{job}-all"),
        _ => format!("{job}-{rank}"),
    };
    let (size, file) = match kind.does {
        Does::Own(size) | Does::Shared(size) => (size, Some(open(&client, &name)?)),
        Does::Names => (0, None),
    };
    let data = vec![rank as u8; size];
    for step in 0u64.. {
        if seen.stop.load(Relaxed) {
            break;
        }
        let (counts, began) = (seen.counting.load(Relaxed), Instant::now());
        let place = match kind.does {
            Does::Shared(_) => (step % WRAP) * kind.processes as u64 + rank as u64,
            _ => step % WRAP,
        };
        match &file {
            Some(file) => {
                let done = client.pwrite(file, &data, place * size as u64)?;
                if done != size {
                    bail!("{job}: {done} of {size} bytes were written");
                }
            }
            None => {
                let of = |n: u64| -> Meta<'_> {
                    match n {
                        0 => Meta::Mkdir { path: at(&name), mode: 0o700 },
                        1 => Meta::Stat { target: Target::Path(at(&name)) },
                        _ => Meta::Rmdir { path: at(&name) },
                    }
                };
                client.meta(of(step % 3), |_| Some(()))?;
            }
        }
        if counts {
            seen.requests.fetch_add(1, Relaxed);
            seen.nanos.fetch_add(began.elapsed().as_nanos() as u64, Relaxed);
        }
        if !kind.pause.is_zero() {
            std::thread::sleep(kind.pause);
        }
    }
    if let Some(file) = &file {
        client.close(file)?;
    }
    client.leave();
    Ok(())
}
