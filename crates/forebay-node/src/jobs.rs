//! Which jobs the node serves, and how a client proves that it belongs to one.

use crate::config::NodeConfig;
use crate::control::CONTROL_JOB;
use crate::file::OpenFile;
use crate::identity::Identities;
use crate::job::Job;
use crate::stats::{ByOperation, FlowReport, Latencies, TALLY, flow_reports};
use crate::sys::acting::Whom;
use forebay_control::node::{JobMapping, Term};
use forebay_types::{FlowId, Nanos, Secret, names};
use forebay_wire::WireError;
use forebay_wire::hello::{Hello, Side, verify};
use forebay_wire::seal::Seed;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// More jobs than this at a time are no jobs.
const MAX_JOBS: usize = 4096;
const MAX_NAME: usize = 255;
/// Of so many jobs that have ended the counters are kept, for whoever asks afterwards.
const KEPT: usize = 64;

/// The node's jobs by name.
pub(crate) struct Jobs {
    /// Opens the node to any job, or to that of the name.
    node: Option<(Secret, Option<String>)>,
    /// Whether an arbiter tells of jobs.
    follows: bool,
    identities: Identities,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Jobs with secrets of their own.
    named: HashMap<String, Named>,
    table: HashMap<String, Arc<Job>>,
    /// Jobs of the table that have ended, oldest first.
    ended: VecDeque<String>,
    /// Jobs whose processes have come, and what was counted of earlier ones of the name then.
    begun: HashMap<String, (u64, u64)>,
    /// The last number that was given to a flow; 0 is nobody's.
    last_flow: u32,
    /// The newest arbiter whose orders were followed.
    term: Term,
    /// What was counted of jobs that are no longer in the table.
    retired: ByOperation,
    /// Flows of jobs whose name another user's has now.
    replaced: Vec<FlowId>,
    /// Jobs that the arbiter has told of while something was left of another user's of the name.
    waiting: HashMap<String, JobMapping>,
}

struct Named {
    secret: Secret,
    whom: Whom,
    life: Life,
}

/// How long a job with a secret of its own is let in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    /// As long as the node lives.
    Configured,
    /// Until the arbiter says that it has ended.
    Mapped,
    /// As long as it has processes here, whatever the arbiter has heard of it.
    Ending,
}

impl State {
    /// The job of that name that is served as `whom`. Another user's of the same name is not it: it must be
    /// gone first.
    fn enter_as(&mut self, name: &str, whom: &Whom) -> Result<Arc<Job>, WireError> {
        let job = self.enter(name)?;
        if job.belongs_to(whom) {
            return Ok(job);
        }
        drop(job);
        if let Some(other) =
            self.table.get(name).filter(|j| Arc::strong_count(j) == 1 && j.handles.len() == 0)
        {
            other.stats.add_to(&mut self.retired);
            self.replaced.push(other.flow());
            tell_end(&mut self.begun, name, other);
            self.table.remove(name);
            let job = self.enter(name)?;
            job.belongs_to(whom);
            return Ok(job);
        }
        Err(WireError::NameTaken)
    }

    /// The arbiter has told of a job: its flow and weight, or why it is not served.
    fn learn(&mut self, mapping: &JobMapping, identities: &Identities) -> Result<(FlowId, u32), WireError> {
        let secret = Secret::from_hex(&mapping.secret)
            .ok_or(WireError::Unexpected("the arbiter sent no usable secret for it"))?;
        let whom = identities.of_job(mapping.user.as_ref());
        let job = self.enter_as(&mapping.job, &whom)?;
        job.remap(mapping.epoch, &mapping.nodes);
        self.named.insert(mapping.job.clone(), Named { secret, whom, life: Life::Mapped });
        Ok((job.flow(), mapping.weight))
    }

    /// A user begins a job, with a secret that only they and this node know. It lives as long as it has processes
    /// here, whoever begins it included.
    fn begin(&mut self, name: &str, secret: Secret, whom: Whom) -> Result<Arc<Job>, WireError> {
        let job = self.enter_as(name, &whom)?;
        let other = self.named.get(name).filter(|n| n.secret != secret || n.whom != whom);
        if other
            .is_some_and(|n| n.life != Life::Ending || Arc::strong_count(&job) > 2 || job.handles.len() > 0)
        {
            return Err(WireError::Unexpected("a job of this name runs on this I/O node: choose another"));
        }
        self.named.insert(name.to_owned(), Named { secret, whom, life: Life::Ending });
        Ok(job)
    }

    /// The job of that name, new if need be.
    fn enter(&mut self, name: &str) -> Result<Arc<Job>, WireError> {
        if let Some(job) = self.table.get(name) {
            return Ok(Arc::clone(job));
        }
        if self.table.len() >= MAX_JOBS || name.len() > MAX_NAME {
            return Err(WireError::Unexpected("too many jobs on this I/O node, or too long a name"));
        }
        if names::seen(name).is_err() {
            return Err(WireError::Unexpected("the job's name has characters that are not seen"));
        }
        self.last_flow += 1;
        let job = Arc::new(Job::new(FlowId(self.last_flow), name));
        self.table.insert(name.to_owned(), Arc::clone(&job));
        Ok(job)
    }

    /// A process of the job has come. Whoever controls this node is none.
    fn come(&mut self, name: &str, job: &Job) {
        if name != CONTROL_JOB && !self.begun.contains_key(name) {
            self.begun.insert(name.to_owned(), job.stats.totals());
            tracing::info!("job {name} begins here");
        }
    }

    /// The arbiter no longer knows the job: its processes that are here may go on, and start others.
    fn end(&mut self, name: &str) {
        if let Some(named) = self.named.get_mut(name).filter(|n| n.life == Life::Mapped) {
            named.life = Life::Ending;
        }
    }
}

/// Says what was done for a job whose processes had come, once.
fn tell_end(begun: &mut HashMap<String, (u64, u64)>, name: &str, job: &Job) {
    if let Some((earlier_requests, earlier_bytes)) = begun.remove(name) {
        let (requests, bytes) = job.stats.totals();
        let (requests, bytes) =
            (requests.saturating_sub(earlier_requests), bytes.saturating_sub(earlier_bytes));
        tracing::info!("job {name} has ended here: {requests} requests, {bytes} bytes");
    }
}

/// What a node that knows the job's secret makes of a handshake.
pub(crate) struct Shown {
    /// That it knows it.
    pub(crate) proof: [u8; 32],
    /// What the connection's keys are made of.
    pub(crate) seed: Seed,
}

impl Jobs {
    pub(crate) fn new(config: &NodeConfig, identities: Identities) -> Jobs {
        let mut state = State::default();
        for job in &config.jobs {
            let (secret, whom) = (job.secret.clone(), identities.of_configured(job.user.as_ref()));
            let _ = state.enter_as(&job.name, &whom);
            state.named.insert(job.name.clone(), Named { secret, whom, life: Life::Configured });
        }
        let node = config.secret.clone().map(|s| (s, config.job.clone()));
        Jobs { node, follows: !config.arbiters.is_empty(), identities, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The job a hello proves to belong to, whether it may control the node, and what the node makes of the same
    /// secret.
    pub(crate) fn authenticate(
        &self,
        challenge: &[u8; 16],
        hello: &Hello<'_>,
    ) -> Result<(Arc<Job>, bool, Shown), WireError> {
        let known = self.recognise(challenge, hello)?;
        self.lock().come(hello.job, &known.0);
        Ok(known)
    }

    fn recognise(
        &self,
        challenge: &[u8; 16],
        hello: &Hello<'_>,
    ) -> Result<(Arc<Job>, bool, Shown), WireError> {
        let proof = |secret: &Secret| {
            let what = hello.to_prove(challenge);
            Shown { proof: what.of(Side::Node, secret), seed: what.seed(secret) }
        };
        if !hello.credential.is_empty() {
            let (secret, user) = self.identities.vouched(hello)?;
            verify(&secret, challenge, hello)?;
            let (own, whom) = (proof(&secret), self.identities.of_job(Some(&user)));
            return Ok((self.lock().begin(hello.job, secret, whom)?, false, own));
        }
        let mut state = self.lock();
        if let Some(named) = state.named.get(hello.job)
            && verify(&named.secret, challenge, hello).is_ok()
        {
            let (whom, own) = (named.whom.clone(), proof(&named.secret));
            return Ok((state.enter_as(hello.job, &whom)?, false, own));
        }
        let waits = state.waiting.get(hello.job).and_then(|m| Secret::from_hex(&m.secret));
        if waits.is_some_and(|secret| verify(&secret, challenge, hello).is_ok()) {
            return Err(WireError::NameTaken);
        }
        let (secret, only) = self.node.as_ref().ok_or(WireError::Credentials)?;
        if only.as_ref().is_some_and(|name| name != hello.job) {
            return Err(WireError::Credentials);
        }
        match verify(secret, challenge, hello) {
            // A node that was just started may hear of the job any moment; others know it meanwhile.
            Err(_) if self.follows && hello.job != CONTROL_JOB && !state.named.contains_key(hello.job) => {
                Err(WireError::UnknownJob)
            }
            Err(e) => Err(e),
            Ok(()) => {
                let whom = self.identities.of_the_node();
                Ok((state.enter_as(hello.job, &whom)?, true, proof(secret)))
            }
        }
    }

    /// Follows an arbiter's order, unless a newer arbiter has given one: then says which.
    pub(crate) fn obey(&self, term: Term) -> Result<(), Term> {
        let mut state = self.lock();
        if term < state.term {
            return Err(state.term);
        }
        state.term = term;
        Ok(())
    }

    /// The newest arbiter whose orders were followed.
    pub(crate) fn term(&self) -> Term {
        self.lock().term
    }

    /// Takes in where the clients of jobs belong; `complete`: there are no others, else all but
    /// those that have `ended` remain as they are. The jobs' flows with their weights.
    pub(crate) fn remap(&self, jobs: &[JobMapping], complete: bool, ended: &[String]) -> Vec<(FlowId, u32)> {
        let mut state = self.lock();
        let live: HashSet<&str> = jobs.iter().map(|j| j.job.as_str()).collect();
        let unknown = state.named.keys().filter(|name| complete && !live.contains(name.as_str()));
        for name in unknown.chain(ended).cloned().collect::<Vec<_>>() {
            state.end(&name);
        }
        state.waiting.retain(|name, _| !complete && !ended.contains(name));
        let mut weights = Vec::with_capacity(jobs.len());
        for mapping in jobs {
            match state.learn(mapping, &self.identities) {
                Ok(weight) => weights.push(weight),
                Err(e @ WireError::NameTaken) => {
                    tracing::debug!("job {} waits: {e}", mapping.job);
                    if state.waiting.len() < MAX_JOBS {
                        state.waiting.insert(mapping.job.clone(), mapping.clone());
                    }
                }
                Err(e) => tracing::warn!("job {}: {e}", mapping.job),
            }
        }
        weights
    }

    /// Takes in the jobs that waited for others of their names to be gone, and are: their flows with their weights.
    pub(crate) fn admit(&self) -> Vec<(FlowId, u32)> {
        let mut state = self.lock();
        let mut weights = Vec::new();
        for (name, mapping) in std::mem::take(&mut state.waiting) {
            match state.learn(&mapping, &self.identities) {
                Ok(weight) => weights.push(weight),
                Err(_) => drop(state.waiting.insert(name, mapping)),
            }
        }
        weights
    }

    /// The flow of a job that is to come, or has been seen.
    pub(crate) fn expect(&self, name: &str) -> Option<FlowId> {
        self.lock().enter(name).ok().map(|j| j.flow())
    }

    /// The flow of a job that has been seen.
    pub(crate) fn flow(&self, name: &str) -> Option<FlowId> {
        self.lock().table.get(name).map(|j| j.flow())
    }

    /// The jobs that have processes here, or had one a moment ago.
    pub(crate) fn present(&self) -> Vec<String> {
        let state = self.lock();
        let here = |job: &Arc<Job>| Arc::strong_count(job) > 1 || job.handles.len() > 0;
        state.table.iter().filter(|(_, job)| here(job)).map(|(name, _)| name.clone()).collect()
    }

    /// The name of a flow's job.
    pub(crate) fn name(&self, flow: FlowId) -> Option<String> {
        self.lock().table.values().find(|j| j.flow() == flow).map(|j| j.stats.job.clone())
    }

    /// Looks at all jobs. Their references must not leave: they tell whether a job has processes here.
    fn with_all<T>(&self, look: impl FnOnce(&mut dyn Iterator<Item = &Job>) -> T) -> T {
        look(&mut self.lock().table.values().map(|job| &**job))
    }

    pub(crate) fn reports(&self) -> Vec<FlowReport> {
        self.with_all(|jobs| flow_reports(jobs.map(|j| (&j.stats, j.clients.report(None))), None))
    }

    /// By job, the compute nodes that have moved data.
    pub(crate) fn hosts(&self) -> BTreeMap<String, BTreeSet<u64>> {
        self.with_all(|jobs| jobs.map(|j| (j.stats.job.clone(), j.clients.hosts())).collect())
    }

    /// How long reads and writes have taken since the start.
    pub(crate) fn latencies(&self) -> Latencies {
        self.with_all(|jobs| Latencies::of(jobs.map(|j| &j.stats)))
    }

    /// What was counted of all jobs since the start, by operation.
    pub(crate) fn by_operation(&self) -> ByOperation {
        let state = self.lock();
        let mut all = state.retired.clone();
        for job in state.table.values() {
            job.stats.add_to(&mut all);
        }
        all
    }

    /// Each job's counters, summed up.
    pub(crate) fn tallies(&self) -> Vec<(String, [u64; TALLY])> {
        self.with_all(|jobs| jobs.map(|j| (j.stats.job.clone(), j.stats.tally())).collect())
    }

    pub(crate) fn open_files(&self) -> usize {
        self.with_all(|jobs| jobs.map(|j| j.handles.len()).sum())
    }

    /// Gives up the files that lingered long enough.
    pub(crate) fn expire(&self, now: Nanos) -> Vec<Arc<OpenFile>> {
        self.with_all(|jobs| jobs.flat_map(|job| job.handles.expire(now)).collect())
    }

    /// The node ends: says what was done for the jobs that are still here.
    pub(crate) fn tell_ends(&self) {
        let State { table, begun, .. } = &mut *self.lock();
        table.iter().for_each(|(name, job)| tell_end(begun, name, job));
    }

    /// Notes which jobs have ended: nobody is to come, no process of theirs is here, none of their files
    /// is open. The last few remain in the table; the flows of the others, which do not.
    pub(crate) fn drop_ended(&self) -> Vec<FlowId> {
        let mut state = self.lock();
        let State { named, table, ended, begun, retired, replaced, .. } = &mut *state;
        let idle = |job: &Arc<Job>| Arc::strong_count(job) == 1 && job.handles.len() == 0;
        named.retain(|name, n| n.life != Life::Ending || table.get(name).is_some_and(|job| !idle(job)));
        ended.retain(|name| table.get(name).is_some_and(idle) && !named.contains_key(name));
        for (name, job) in table.iter().filter(|(_, job)| idle(job)) {
            let life = named.get(name).map(|n| n.life);
            if life == Some(Life::Mapped) {
                // More of its processes may come.
                continue;
            }
            tell_end(begun, name, job);
            if life.is_none() && !ended.contains(name) {
                ended.push_back(name.clone());
            }
        }
        let surplus = ended.len().saturating_sub(KEPT);
        let mut flows = std::mem::take(replaced);
        for job in ended.drain(..surplus).filter_map(|name| table.remove(&name)) {
            job.stats.add_to(retired);
            flows.push(job.flow());
        }
        flows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello<'a>(secret: &Secret, challenge: &[u8; 16], job: &'a str) -> Hello<'a> {
        let session = forebay_wire::hello::SessionId([1; 16]);
        let mut hello = Hello {
            version: 1,
            session,
            job,
            host: "h",
            pid: 1,
            rank: None,
            proof: [0; 32],
            challenge: [5; 16],
            credential: "",
            epoch: forebay_types::Epoch(0),
            lifeline: false,
            exports: Vec::new(),
            protect: forebay_types::Protect::None,
        };
        hello.proof = hello.to_prove(challenge).of(Side::Client, secret);
        hello
    }

    fn jobs(secret: &Secret) -> Jobs {
        let (secret, act_as) = (Some(secret.clone()), crate::config::ActAs::Itself);
        let config = NodeConfig { secret, act_as, ..NodeConfig::default() };
        Jobs::new(&config, Identities::new(&config).unwrap())
    }

    #[test]
    fn of_ended_jobs_only_the_last_are_kept() {
        let secret = Secret::new([1; 32]);
        let jobs = jobs(&secret);
        let challenge = [2; 16];
        let mut dropped = Vec::new();
        for n in 0..3 * KEPT {
            let name = format!("job-{n}");
            let (job, admin, _) = jobs.authenticate(&challenge, &hello(&secret, &challenge, &name)).unwrap();
            assert!(admin);
            assert!(!jobs.drop_ended().contains(&job.flow()), "it is here");
            drop(job);
            dropped.extend(jobs.drop_ended());
        }
        assert_eq!(dropped.len(), 2 * KEPT);
        assert_eq!(jobs.with_all(|jobs| jobs.count()), KEPT);
        // One that comes again has not ended.
        let name = format!("job-{}", 3 * KEPT - 1);
        let (job, ..) = jobs.authenticate(&challenge, &hello(&secret, &challenge, &name)).unwrap();
        assert!(jobs.drop_ended().is_empty());
        assert_eq!(jobs.lock().ended.len(), KEPT - 1);
        drop(job);
    }

    #[test]
    fn a_job_lives_as_long_as_its_processes() {
        let jobs = jobs(&Secret::new([1; 32]));
        let secret = Secret::new([3; 32]);
        let mapping = JobMapping {
            job: "j".into(),
            epoch: forebay_types::Epoch(1),
            nodes: vec!["tcp:127.0.0.1:1".into()],
            secret: secret.to_hex(),
            weight: 1,
            user: None,
        };
        jobs.remap(&[mapping], true, &[]);
        let challenge = [2; 16];
        let come = || jobs.authenticate(&challenge, &hello(&secret, &challenge, "j"));
        let (first, admin, _) = come().unwrap();
        assert!(!admin);
        // Its launcher was stopped, and the arbiter forgot it.
        jobs.remap(&[], true, &["j".into()]);
        jobs.drop_ended();
        let second = come().expect("another process of a job that is still running");
        drop((first, second));
        jobs.drop_ended();
        assert!(come().is_err(), "it has ended");
    }
}
