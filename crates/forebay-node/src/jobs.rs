//! Which jobs the node serves, and how a client proves that it belongs to one.

use crate::config::NodeConfig;
use crate::file::OpenFile;
use crate::session::Job;
use crate::stats::{FlowReport, Latencies, flow_reports};
use forebay_control::node::{JobMapping, Term};
use forebay_types::{FlowId, Nanos};
use forebay_wire::WireError;
use forebay_wire::hello::{Hello, Secret};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// More jobs than this at a time are no jobs.
const MAX_JOBS: usize = 4096;
const MAX_NAME: usize = 256;

/// The node's jobs by name.
pub(crate) struct Jobs {
    /// Opens the node to any job, or to that of the name.
    node: Option<(Secret, Option<String>)>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Jobs with secrets of their own.
    named: HashMap<String, Named>,
    table: HashMap<String, Arc<Job>>,
    /// The last number that was given to a flow; 0 is nobody's.
    last_flow: u32,
    /// The newest arbiter whose orders were followed.
    term: Term,
}

struct Named {
    secret: Secret,
    /// An arbiter told of it, and will tell when it has ended.
    mapped: bool,
}

impl State {
    /// The job of that name, new if need be.
    fn enter(&mut self, name: &str) -> Result<Arc<Job>, WireError> {
        if let Some(job) = self.table.get(name) {
            return Ok(Arc::clone(job));
        }
        if self.table.len() >= MAX_JOBS || name.len() > MAX_NAME {
            return Err(WireError::Unexpected("too many jobs on this I/O node, or too long a name"));
        }
        self.last_flow += 1;
        let job = Arc::new(Job::new(FlowId(self.last_flow), name));
        self.table.insert(name.to_owned(), Arc::clone(&job));
        Ok(job)
    }
}

impl Jobs {
    pub(crate) fn new(config: &NodeConfig) -> Jobs {
        let mut state = State::default();
        for job in &config.jobs {
            state.named.insert(job.name.clone(), Named { secret: job.secret.clone(), mapped: false });
            let _ = state.enter(&job.name);
        }
        Jobs { node: config.secret.clone().map(|s| (s, config.job.clone())), state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The job a hello proves to belong to, and whether it may control the node.
    pub(crate) fn authenticate(
        &self,
        challenge: &[u8; 16],
        hello: &Hello<'_>,
    ) -> Result<(Arc<Job>, bool), WireError> {
        let mut state = self.lock();
        if let Some(named) = state.named.get(hello.job)
            && named.secret.verify(challenge, hello).is_ok()
        {
            return Ok((state.enter(hello.job)?, false));
        }
        let (secret, only) = self.node.as_ref().ok_or(WireError::Credentials)?;
        if only.as_ref().is_some_and(|name| name != hello.job) {
            return Err(WireError::Credentials);
        }
        secret.verify(challenge, hello)?;
        Ok((state.enter(hello.job)?, true))
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
        let mut weights = Vec::with_capacity(jobs.len());
        for mapping in jobs {
            let Some(secret) = Secret::from_hex(&mapping.secret) else {
                tracing::warn!("the arbiter sent no usable secret for job {}", mapping.job);
                continue;
            };
            match state.enter(&mapping.job) {
                Ok(job) => {
                    job.remap(mapping.epoch, &mapping.nodes);
                    state.named.insert(mapping.job.clone(), Named { secret, mapped: true });
                    weights.push((job.flow(), mapping.weight));
                }
                Err(e) => tracing::warn!("job {}: {e}", mapping.job),
            }
        }
        if complete {
            let live: HashSet<&str> = jobs.iter().map(|j| j.job.as_str()).collect();
            state.named.retain(|name, n| !n.mapped || live.contains(name.as_str()));
        }
        for name in ended {
            if state.named.get(name).is_some_and(|n| n.mapped) {
                state.named.remove(name);
            }
        }
        weights
    }

    /// The flow of a job that has been seen.
    pub(crate) fn flow(&self, name: &str) -> Option<FlowId> {
        self.lock().table.get(name).map(|j| j.flow())
    }

    /// The name of a flow's job.
    pub(crate) fn name(&self, flow: FlowId) -> Option<String> {
        self.lock().table.values().find(|j| j.flow() == flow).map(|j| j.stats.job.clone())
    }

    fn all(&self) -> Vec<Arc<Job>> {
        self.lock().table.values().cloned().collect()
    }

    pub(crate) fn reports(&self) -> Vec<FlowReport> {
        flow_reports(self.all().iter().map(|j| &j.stats))
    }

    /// How long reads and writes have taken since the start.
    pub(crate) fn latencies(&self) -> Latencies {
        Latencies::of(self.all().iter().map(|j| &j.stats))
    }

    pub(crate) fn open_files(&self) -> usize {
        self.all().iter().map(|j| j.handles.len()).sum()
    }

    /// Gives up the files that lingered long enough. When the table is getting full, also the jobs
    /// that have ended and hold nothing any more.
    pub(crate) fn expire(&self, now: Nanos) -> Vec<Arc<OpenFile>> {
        let mut state = self.lock();
        if state.table.len() > MAX_JOBS / 2 {
            let State { named, table, .. } = &mut *state;
            table.retain(|name, job| {
                named.contains_key(name) || Arc::strong_count(job) > 1 || job.handles.len() > 0
            });
        }
        drop(state);
        self.all().iter().flat_map(|job| job.handles.expire(now)).collect()
    }
}
