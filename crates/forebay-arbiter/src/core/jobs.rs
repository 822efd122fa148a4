//! Jobs register, renew their lease, and end.

use super::{Action, Activity, Core, Ended, Job, unix_ms};
use crate::store::{Change, StoredJob};
use forebay_control::job::{
    JobGrant, JobRequest, LONGEST, MOST_HOSTS, MOST_HOSTS_BYTES, check_name, printable,
};
use forebay_types::{Epoch, Identity, Nanos, NodeId};
use std::collections::BTreeMap;

/// So many runs may make up a job.
const MOST_RUNS: usize = 1024;
/// Who has not asked for so long does not run any more.
const BANNED: Nanos = Nanos::from_secs(3600);

/// Why the arbiter says no.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// What was sent makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// There is none of that name.
    #[error("{0}")]
    Unknown(String),
    /// It contradicts what there is.
    #[error("{0}")]
    Conflict(String),
    /// It is not for whoever asks.
    #[error("{0}")]
    Forbidden(String),
    /// The arbiter has as much as it takes.
    #[error("{0}")]
    Full(String),
}

impl Core {
    /// Whether a job is this user's; of another's it is not even said that there is one. `None`: of anybody.
    pub fn owned(&self, id: &str, only: Option<u32>) -> Result<(), Refusal> {
        let owner = |j: &Job| j.stored.owner.as_ref().map(|o| o.uid);
        match only {
            Some(_) if self.jobs.get(id).and_then(owner) != only => Err(unknown(id)),
            _ => Ok(()),
        }
    }

    /// A job of nobody in particular begins, or says again that it runs. `secret` becomes its secret unless it
    /// has one.
    pub fn register(&mut self, now: Nanos, request: JobRequest, secret: &str) -> Result<JobGrant, Refusal> {
        self.register_for(now, request, secret, None)
    }

    /// The same for a job of a user who has proved to be one.
    pub fn register_for(
        &mut self,
        now: Nanos,
        mut request: JobRequest,
        secret: &str,
        owner: Option<Identity>,
    ) -> Result<JobGrant, Refusal> {
        check(&request)?;
        self.is_over(now, &request)?;
        let uid = owner.as_ref().map(|o| o.uid);
        if let Some(known) = self.jobs.get(&request.id) {
            let theirs = known.stored.owner.as_ref().map(|o| o.uid) == uid;
            if request.secret.is_none() || known.stored.request.secret != request.secret || !theirs {
                return Err(Refusal::Conflict(format!(
                    "a job {:?} runs already, and the secret sent is not its secret; choose another id",
                    request.id
                )));
            }
            let mut grant = self.renew(now, &request.id, request.run)?;
            grant.secret = request.secret;
            return Ok(grant);
        }
        if self.jobs.len() >= self.config.max_jobs {
            return Err(Refusal::Full(format!(
                "{} jobs run already, and no more are taken",
                self.jobs.len()
            )));
        }
        if uid.is_some() {
            let most = (self.config.max_jobs / 4).max(1);
            let own = self.jobs.values().filter(|j| j.stored.owner.as_ref().map(|o| o.uid) == uid).count();
            if own >= most {
                return Err(Refusal::Full(format!("you have {own} jobs here, and no user may have more")));
            }
        }
        let order = self.next_order;
        if request.id.is_empty() {
            let app = if request.app.is_empty() { "job" } else { &request.app };
            let app: String =
                app.chars().take(40).map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
            // The order alone could meet a name that someone chose.
            let free = |n: &u64| !self.jobs.contains_key(&format!("{app}-{n}"));
            let n = (order..).find(free).unwrap_or(order);
            request.id = format!("{app}-{n}");
        }
        request.secret.get_or_insert_with(|| secret.to_owned());
        let (id, run, lease_until) = (request.id.clone(), request.run, now + self.config.lease);
        self.next_order += 1;
        let stored = StoredJob {
            request,
            order,
            since_unix_ms: unix_ms(now),
            epoch: Epoch(0),
            held: None,
            addresses: Vec::new(),
            direct: false,
            pinned: Vec::new(),
            owner,
            runs: vec![run],
        };
        self.jobs.insert(
            id.clone(),
            Job {
                stored,
                lease_until,
                leases: BTreeMap::from([(run, lease_until)]),
                failed: false,
                moved: now,
                reason: "no I/O node is admitted: it waits for one".to_owned(),
                predicted: None,
                curve: None,
                activity: Activity::default(),
            },
        );
        self.decide(now, &format!("job {id} begins"));
        self.ensure_kept(&id);
        let mut grant = self.grant(&id)?;
        grant.secret = self.jobs.get(&id).and_then(|j| j.stored.request.secret.clone());
        Ok(grant)
    }

    /// That run of a job is alive.
    pub fn renew(&mut self, now: Nanos, id: &str, run: u32) -> Result<JobGrant, Refusal> {
        let lease_until = now + self.config.lease;
        let job = self.jobs.get_mut(id).ok_or_else(|| unknown(id))?;
        if !job.leases.contains_key(&run) {
            job.leases.retain(|_, until| *until > now);
            if job.leases.len() >= MOST_RUNS {
                return Err(Refusal::Full(format!("{MOST_RUNS} runs make up job {id:?} already")));
            }
        }
        job.leases.insert(run, lease_until);
        job.lease_until = job.lease_until.max(lease_until);
        self.keep_runs(id);
        self.grant(id)
    }

    /// Which runs make up a job is kept, where that has changed.
    fn keep_runs(&mut self, id: &str) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        if !job.leases.keys().eq(&job.stored.runs) {
            job.stored.runs = job.leases.keys().copied().collect();
            self.actions.push(Action::Persist(Change::Job(Box::new(job.stored.clone()))));
        }
    }

    /// An admin wants a job on these I/O nodes, or (none) leaves it to the policy again.
    pub fn pin(&mut self, now: Nanos, id: &str, mut nodes: Vec<NodeId>) -> Result<JobGrant, Refusal> {
        let held = self.jobs.get(id).ok_or_else(|| unknown(id))?.nodes();
        if let Some(n) = nodes.iter().find(|n| !self.admits(**n, held)) {
            return Err(Refusal::Conflict(format!("I/O node {n} is not there, or not admitted")));
        }
        let mut seen = Vec::new();
        nodes.retain(|n| {
            let new = !seen.contains(n);
            seen.push(*n);
            new
        });
        let job = self.jobs.get_mut(id).ok_or_else(|| unknown(id))?;
        let cause = if nodes.is_empty() { "is left to the policy again" } else { "is pinned" };
        job.stored.pinned = nodes;
        self.actions.push(Action::Persist(Change::Job(Box::new(job.stored.clone()))));
        self.decide(now, &format!("job {id} {cause}"));
        self.grant(id)
    }

    /// A run of a job has ended, and with the last of them the job; whether it did all it was to do. One that has said
    /// nothing for long may be stopped while its processes work: then the job lasts as long as I/O nodes see any.
    pub fn end_run(&mut self, now: Nanos, id: &str, run: u32, complete: bool) -> Result<(), Refusal> {
        let job = self.jobs.get_mut(id).ok_or_else(|| unknown(id))?;
        job.leases.remove(&run);
        job.failed |= !complete;
        if job.leases.is_empty() {
            let complete = !job.failed;
            return self.over(now, id, complete);
        }
        self.keep_runs(id);
        Ok(())
    }

    /// Somebody ends a job, whoever runs it: its runs do not begin it again. Whether it did all it was to do; if so it
    /// predicts the next run.
    pub fn end(&mut self, now: Nanos, id: &str, complete: bool) -> Result<(), Refusal> {
        let runs = self.jobs.get(id).ok_or_else(|| unknown(id))?.stored.runs.clone();
        if self.banned.len() < self.config.max_jobs {
            self.banned
                .extend(runs.into_iter().filter(|run| *run != 0).map(|run| ((id.to_owned(), run), now)));
        }
        self.over(now, id, complete)
    }

    /// Refuses a run of a job that somebody has ended, for as long as it asks.
    fn is_over(&mut self, now: Nanos, request: &JobRequest) -> Result<(), Refusal> {
        self.banned.retain(|_, asked| now.since(*asked) < BANNED);
        let Some(asked) = self.banned.get_mut(&(request.id.clone(), request.run)) else { return Ok(()) };
        *asked = now;
        Err(Refusal::Conflict(format!("job {:?} was ended at the arbiter", request.id)))
    }

    fn over(&mut self, now: Nanos, id: &str, complete: bool) -> Result<(), Refusal> {
        self.forget_job(now, id, complete);
        self.decide(now, &format!("job {id} ended"));
        Ok(())
    }

    /// Ends the jobs whose leases have run out, and says so.
    pub(super) fn expire_jobs(&mut self, now: Nanos) -> Option<String> {
        let dead: Vec<String> =
            self.jobs.iter().filter(|(_, j)| j.lease_until <= now).map(|(id, _)| id.clone()).collect();
        for id in &dead {
            self.forget_job(now, id, false);
        }
        match dead.as_slice() {
            [] => None,
            [one] => Some(format!("job {one} did not renew its lease")),
            many => Some(format!("{} jobs did not renew their leases", many.len())),
        }
    }

    fn forget_job(&mut self, now: Nanos, id: &str, complete: bool) {
        let Some(job) = self.jobs.remove(id) else { return };
        if self.ended.len() < self.config.max_jobs {
            let ended = Ended { at: now, began_unix_ms: job.stored.since_unix_ms };
            self.ended.insert(id.to_owned(), ended);
        }
        self.actions.push(Action::Persist(Change::JobEnded(id.to_owned())));
        // What an arbiter saw that was restarted meanwhile is a part of a run.
        if complete && !job.activity.uncounted {
            let run = self.runs.record(unix_ms(now), job.scale(), &job.activity);
            self.actions.extend(run.into_iter().map(Action::Persist));
        }
        self.save_learned(now);
        self.broadcast(&[], std::slice::from_ref(&id.to_owned()));
    }

    /// A job that was given nothing is kept all the same.
    fn ensure_kept(&mut self, id: &str) {
        if let Some(job) = self.jobs.get(id).filter(|j| j.stored.held.is_none()) {
            self.actions.push(Action::Persist(Change::Job(Box::new(job.stored.clone()))));
        }
    }

    fn grant(&self, id: &str) -> Result<JobGrant, Refusal> {
        let job = self.jobs.get(id).ok_or_else(|| unknown(id))?;
        let own = job.nodes();
        let others = self.dedicated_to_others(id);
        let spare = |(n, node): (&NodeId, &super::Node)| {
            let free = node.admitted() && !own.contains(n) && !others.contains(n);
            free.then(|| node.stored.addresses.first().cloned())?
        };
        Ok(JobGrant {
            id: id.to_owned(),
            secret: None,
            lease_ms: self.config.lease.0 / 1_000_000,
            epoch: job.stored.epoch,
            nodes: own.to_vec(),
            addresses: job.stored.addresses.clone(),
            spare: self.nodes.iter().filter_map(spare).take(64).collect(),
            direct: job.stored.direct,
            reason: job.reason.clone(),
            notes: job.stored.request.pattern.iter().filter_map(|name| self.curves.misses(name)).collect(),
            fixed: self.fixed(job).map(|(host, at)| (host, job.stored.addresses[at].clone())).collect(),
        })
    }
}

fn unknown(id: &str) -> Refusal {
    Refusal::Unknown(format!("there is no job {id:?}: it never registered, ended, or its lease ran out"))
}

fn check(r: &JobRequest) -> Result<(), Refusal> {
    let invalid = |what: String| Err(Refusal::Invalid(what));
    check_name(&r.id).map_err(|why| Refusal::Invalid(format!("id: {why}")))?;
    let named = [("app", &r.app), ("user", &r.user), ("account", &r.account)];
    for (name, text) in named.into_iter().chain(r.hosts.iter().map(|host| ("hosts", host))) {
        printable(text).map_err(|why| Refusal::Invalid(format!("{name}: {why}")))?;
    }
    let bytes = r.hosts.iter().map(String::len).sum::<usize>();
    if r.hosts.len() > MOST_HOSTS || bytes > MOST_HOSTS_BYTES {
        return invalid(format!("hosts: more than {MOST_HOSTS}, or of more than {MOST_HOSTS_BYTES} bytes"));
    }
    for (name, n) in [("compute_nodes", r.compute_nodes), ("processes", r.processes), ("weight", r.weight)] {
        if n == 0 || n > 10_000_000 {
            return invalid(format!("{name}: {n} is not between 1 and 10000000"));
        }
    }
    if r.pattern.as_ref().is_some_and(|p| p.len() > LONGEST) {
        return invalid(format!("pattern: longer than {LONGEST} bytes"));
    }
    match &r.secret {
        Some(s) if s.len() != 64 || !s.bytes().all(|b| b.is_ascii_hexdigit()) => {
            invalid("secret: 64 hexadecimal digits are needed".to_owned())
        }
        _ => Ok(()),
    }
}
