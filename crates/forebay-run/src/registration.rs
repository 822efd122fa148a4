//! A job at the arbiter for as long as a program runs: registered, its lease renewed, ended; and what
//! its later processes have to know, as it is now: where the job's I/O nodes are, and which of them
//! cannot be reached from here.

use crate::survivors::{Charge, Successor};
use anyhow::{Context, Result, bail};
use forebay_control::client::Client;
use forebay_control::job::{JobGrant, JobRequest};
use forebay_control::status::Unanswered;
use forebay_types::{Address, Epoch, Secret};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two tries while the arbiter does not answer.
const RETRY: Duration = Duration::from_millis(500);

/// How long an arbiter has for an answer, so that a hanging one does not cost the lease.
const PATIENCE: Duration = Duration::from_secs(3);

/// How often it is tried which I/O nodes can be reached…
const PROBE: Duration = Duration::from_millis(500);

/// …and how long each has for it: the system answers, however busy the node is.
const REACH: Duration = Duration::from_millis(300);

/// So many I/O nodes are tried.
const MOST_PROBED: usize = 64;

/// So many are remembered.
const MOST_USED: usize = 1024;

/// A run of a registered job. Dropping it ends the run, and the job if there is no other.
pub(crate) struct Registered {
    arbiter: Arc<Client>,
    /// What the arbiter said when it had I/O nodes for the job.
    pub(crate) grant: JobGrant,
    /// Whether there may have been a job of this name before: the name was given.
    pub(crate) named: bool,
    current: Arc<Current>,
    ended: Arc<AtomicBool>,
    /// Takes over when this process is gone.
    successor: Option<Successor>,
    /// The job goes on without this one.
    left: bool,
    /// It did not come to its end in order.
    failed: bool,
    request: JobRequest,
}

/// Told what later processes have to know: the grant, and which I/O nodes cannot be reached.
type Changed = Box<dyn Fn(&JobGrant, &[Address]) + Send + Sync>;

/// What is known now.
#[derive(Default)]
struct Current {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    grant: Option<JobGrant>,
    down: Vec<Address>,
    /// All that the job has had.
    used: Vec<Address>,
    /// Why the arbiter does not want the job any more.
    refused: Option<String>,
    changed: Option<Changed>,
}

impl Current {
    /// Takes something in; whoever wants to know is told if it is news.
    fn update(&self, change: impl FnOnce(&mut State) -> bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if change(&mut state)
            && let State { grant: Some(grant), down, changed: Some(tell), .. } = &*state
            && !grant.addresses.is_empty()
        {
            tell(grant, down);
        }
    }

    fn take(&self, grant: &JobGrant) {
        self.update(|state| {
            let known = |old: &JobGrant| {
                let shown = |g: &JobGrant| (g.epoch, g.addresses.clone(), g.spare.clone(), g.direct);
                shown(old) == shown(grant)
            };
            let news = !state.grant.as_ref().is_some_and(known);
            if news {
                for address in grant.addresses.iter().filter_map(|a| a.parse().ok()) {
                    if state.used.len() < MOST_USED && !state.used.contains(&address) {
                        state.used.push(address);
                    }
                }
                state.grant = Some(grant.clone());
            }
            news
        });
    }

    fn refuse(&self, why: Option<String>) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).refused = why;
    }

    /// The I/O nodes that may be used, as far as they are reached by way of a network.
    fn to_probe(&self) -> Vec<Address> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let all = state.grant.iter().flat_map(|g| g.addresses.iter().chain(&g.spare));
        let parsed = all.filter_map(|a| a.parse().ok()).filter(|a| matches!(a, Address::Tcp(_)));
        parsed.take(MOST_PROBED).collect()
    }
}

impl Registered {
    /// Who was asked.
    pub(crate) fn arbiter(&self) -> Arc<Client> {
        Arc::clone(&self.arbiter)
    }

    /// Why the arbiter does not want the job any more, if so.
    pub(crate) fn refused(&self) -> Option<String> {
        self.current.state.lock().unwrap_or_else(PoisonError::into_inner).refused.clone()
    }

    /// Which run of the job this is.
    pub(crate) fn run(&self) -> u32 {
        self.request.run
    }

    /// All I/O nodes that the job has had.
    pub(crate) fn used(&self) -> Vec<Address> {
        self.current.state.lock().unwrap_or_else(PoisonError::into_inner).used.clone()
    }

    /// Tells whenever the job is found on other I/O nodes than before, or one of them cannot be reached
    /// any more, or again. Running processes hear of moves from their nodes; this is for those that
    /// start later.
    pub(crate) fn when_changed(&self, tell: impl Fn(&JobGrant, &[Address]) + Send + Sync + 'static) {
        self.current.update(|state| {
            state.changed = Some(Box::new(tell));
            true
        });
    }

    /// Registers the job and waits until it has I/O nodes; gives up after `patience`.
    pub(crate) fn new(arbiter: Client, mut request: JobRequest, patience: Duration) -> Result<Registered> {
        let arbiter = Arc::new(arbiter.with_patience(PATIENCE));
        let (until, named) = (Instant::now() + patience, !request.id.is_empty());
        // Other runs of the same name are told apart by this.
        request.run = (RandomState::new().build_hasher().finish() as u32).max(1);
        let first = loop {
            match arbiter.register(&request) {
                Ok(grant) => break grant,
                Err(Unanswered::Away(_)) if Instant::now() < until => std::thread::sleep(RETRY),
                Err(e) => return Err(e).context("the job could not be registered"),
            }
        };
        // From now on it is the same job, however often it has to register.
        request.id.clone_from(&first.id);
        request.secret.clone_from(&first.secret);
        let mut job = Registered::known(arbiter, request, first, named);
        while job.grant.addresses.is_empty() {
            if Instant::now() > until {
                bail!("the arbiter has no I/O node for the job: {}", job.grant.reason);
            }
            std::thread::sleep(Duration::from_millis(100));
            match renew(&job.arbiter, &job.request, &job.ended) {
                Ok(grant) => job.grant = JobGrant { secret: job.grant.secret.take(), ..grant },
                Err(Unanswered::Away(_)) => {}
                Err(e) => return Err(e).context("the job was registered, and is not any more"),
            }
        }
        job.go_on();
        Ok(job)
    }

    fn known(arbiter: Arc<Client>, request: JobRequest, grant: JobGrant, named: bool) -> Registered {
        let (current, ended) = (Arc::new(Current::default()), Arc::new(AtomicBool::new(false)));
        Registered {
            arbiter,
            grant,
            named,
            current,
            ended,
            successor: None,
            left: false,
            failed: false,
            request,
        }
    }

    /// Renews the lease and follows the job from now on.
    fn go_on(&self) {
        self.current.take(&self.grant);
        let (arbiter, current, ended) =
            (Arc::clone(&self.arbiter), Arc::clone(&self.current), Arc::clone(&self.ended));
        let (lease, request) = (Duration::from_millis(self.grant.lease_ms), self.request.clone());
        std::thread::spawn(move || follow(&arbiter, &request, lease, &current, &ended));
        let (current, ended) = (Arc::clone(&self.current), Arc::clone(&self.ended));
        std::thread::spawn(move || probe(&current, &ended));
    }

    /// A job that another process has registered, and left to this one.
    pub(crate) fn resume(charge: Charge) -> Result<Registered> {
        let secret = charge.secret.as_deref().and_then(Secret::from_hex);
        let arbiter = Arc::new(Client::of_user(&charge.arbiters, secret)?.with_patience(PATIENCE));
        let job = Registered::known(arbiter, charge.request, charge.grant, true);
        job.go_on();
        Ok(job)
    }

    /// What somebody else needs to go on with the job.
    fn charge(&self) -> Charge {
        let (arbiters, secret) = self.arbiter.access();
        let secret = secret.map(|s| s.to_hex());
        Charge { arbiters, secret, request: self.request.clone(), grant: self.grant.clone() }
    }

    /// Has a process stand by that takes over when this one is killed, for those that go on with the configuration
    /// `file`: they would not hear where the job is.
    pub(crate) fn stand_by(&mut self, file: &Path) {
        self.successor = Successor::start(file, &self.charge()).ok();
    }

    /// Processes of the job go on without this one: it lives as long as I/O nodes report them, and somebody else goes on
    /// telling them where it is. Whether there is somebody.
    pub(crate) fn leave(mut self) -> bool {
        self.left = true;
        self.successor.take().is_some_and(Successor::take_over)
    }

    /// The job has ended, and whether it failed.
    pub(crate) fn end(mut self, failed: bool) {
        self.failed = failed;
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // Before the job is ended: nobody registers it again. The threads are not waited for; what they
        // ask for is bounded in time, and the program ends.
        self.ended.store(true, Ordering::SeqCst);
        if !self.left {
            // If it cannot be told, the lease runs out.
            let _ = self.arbiter.end_run(&self.grant.id, self.request.run, self.failed);
        }
    }
}

/// Renews the lease for as long as the job runs, and hears from the arbiter when it is moved.
fn follow(arbiter: &Client, request: &JobRequest, lease: Duration, current: &Current, ended: &AtomicBool) {
    let wait = (lease / 3).max(Duration::from_millis(100));
    let mut known = Epoch::default();
    while !ended.load(Ordering::SeqCst) {
        let followed = match arbiter.follow(&request.id, request.run, known, wait) {
            Err(Unanswered::NotFound(_)) => renew(arbiter, request, ended),
            other => other,
        };
        match followed {
            Ok(grant) => {
                known = grant.epoch;
                current.refuse(None);
                current.take(&grant);
            }
            Err(e) => {
                if let Unanswered::Refused(why) = e {
                    current.refuse(Some(why));
                }
                std::thread::sleep(RETRY.min(wait));
            }
        }
    }
}

/// Renews the lease, or registers again with an arbiter that does not know the job.
fn renew(arbiter: &Client, request: &JobRequest, ended: &AtomicBool) -> Result<JobGrant, Unanswered> {
    match arbiter.renew(&request.id, request.run) {
        // After the end it is unknown because it has ended.
        Err(Unanswered::NotFound(_)) if !ended.load(Ordering::SeqCst) => arbiter.register(request),
        other => other,
    }
}

/// Finds out, for as long as the job runs, which of its I/O nodes cannot be reached from here.
fn probe(current: &Current, ended: &AtomicBool) {
    while !ended.load(Ordering::SeqCst) {
        let reached = |address: &Address| match address {
            Address::Tcp(at) => TcpStream::connect_timeout(at, REACH).is_ok(),
            Address::Unix(_) => true,
        };
        let down: Vec<Address> = current.to_probe().into_iter().filter(|a| !reached(a)).collect();
        current.update(|state| {
            let news = state.down != down;
            state.down = down;
            news
        });
        std::thread::sleep(PROBE);
    }
}
