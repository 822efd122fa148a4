//! A job at the arbiter for as long as a program runs: registered, its lease renewed, ended.

use crate::arbiter::{Arbiter, Unanswered, in_path};
use anyhow::{Context, Result, bail};
use forebay_control::JOBS_PATH;
use forebay_control::job::{JobGrant, JobRequest};
use forebay_types::Epoch;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two tries while the arbiter does not answer.
const RETRY: Duration = Duration::from_millis(500);

/// A registered job. Dropping it ends the job.
pub(super) struct Registered {
    arbiter: Arc<Arbiter>,
    /// What the arbiter said when it had I/O nodes for the job.
    pub(super) grant: JobGrant,
    moved: Arc<OnceLock<Moved>>,
    stop: Option<Sender<()>>,
    renewer: Option<JoinHandle<()>>,
}

/// Told when the job is found on other I/O nodes.
type Moved = Box<dyn Fn(&JobGrant) + Send + Sync>;

impl Registered {
    /// Tells when the job is found on other I/O nodes than those of [`Registered::grant`]. Running
    /// processes hear it from their nodes, and much sooner; this is for those that start later.
    pub(super) fn when_moved(&self, tell: impl Fn(&JobGrant) + Send + Sync + 'static) {
        // Only the first one counts, and there is no other.
        let _ = self.moved.set(Box::new(tell));
    }

    /// Registers the job and waits until it has I/O nodes; gives up after `patience`.
    pub(super) fn new(arbiter: Arbiter, mut request: JobRequest, patience: Duration) -> Result<Registered> {
        let arbiter = Arc::new(arbiter);
        let until = Instant::now() + patience;
        let first = loop {
            match register(&arbiter, &request) {
                Ok(grant) => break grant,
                Err(Unanswered::Away(_)) if Instant::now() < until => std::thread::sleep(RETRY),
                Err(e) => return Err(e).context("the job could not be registered"),
            }
        };
        // From now on it is the same job, however often it has to register.
        request.id.clone_from(&first.id);
        request.secret.clone_from(&first.secret);
        let (stop, stopped) = channel();
        let every = Duration::from_millis(first.lease_ms / 3).max(Duration::from_millis(100));
        let moved: Arc<OnceLock<Moved>> = Arc::default();
        let renewer = {
            let (arbiter, request, moved) = (Arc::clone(&arbiter), request.clone(), Arc::clone(&moved));
            std::thread::spawn(move || {
                let (mut pause, mut epoch) = (every, Epoch::default());
                // Ends when the sender is dropped.
                while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                    let renewed = renew(&arbiter, &request);
                    pause = if renewed.is_ok() { every } else { RETRY.min(every) };
                    if let (Ok(grant), Some(tell)) = (renewed, moved.get())
                        && grant.epoch != epoch
                        && !grant.addresses.is_empty()
                    {
                        epoch = grant.epoch;
                        tell(&grant);
                    }
                }
            })
        };
        let mut job = Registered { arbiter, grant: first, moved, stop: Some(stop), renewer: Some(renewer) };
        while job.grant.addresses.is_empty() {
            if Instant::now() > until {
                bail!("the arbiter has no I/O node for the job: {}", job.grant.reason);
            }
            std::thread::sleep(Duration::from_millis(100));
            if let Ok(grant) = renew(&job.arbiter, &request) {
                job.grant = JobGrant { secret: job.grant.secret.take(), ..grant };
            }
        }
        Ok(job)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(renewer) = self.renewer.take() {
            let _ = renewer.join();
        }
        // If it cannot be told, the lease runs out.
        let _ = self.arbiter.call("DELETE", &format!("{JOBS_PATH}/{}", in_path(&self.grant.id)), None);
    }
}

fn register(arbiter: &Arbiter, request: &JobRequest) -> Result<JobGrant, Unanswered> {
    arbiter.send("POST", JOBS_PATH, Some(request))
}

/// Renews the lease, or registers again with an arbiter that does not know the job.
fn renew(arbiter: &Arbiter, request: &JobRequest) -> Result<JobGrant, Unanswered> {
    let path = format!("{JOBS_PATH}/{}/lease", in_path(&request.id));
    match arbiter.send("PUT", &path, None::<&()>) {
        Err(Unanswered::NotFound(_)) => register(arbiter, request),
        other => other,
    }
}
