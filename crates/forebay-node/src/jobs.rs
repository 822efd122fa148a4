//! Which jobs the node serves, and how a client proves that it belongs to one.

use crate::config::NodeConfig;
use crate::file::{Handles, OpenFile};
use crate::session::Job;
use crate::stats::{FlowReport, FlowStats, flow_reports};
use forebay_types::{FlowId, Nanos};
use forebay_wire::WireError;
use forebay_wire::hello::{Hello, Secret};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// More jobs than this at a time are no jobs.
const MAX_JOBS: usize = 4096;
const MAX_NAME: usize = 256;

/// The node's jobs by name.
pub(crate) struct Jobs {
    /// Opens the node to any job, or to that of the name.
    node: Option<(Secret, Option<String>)>,
    named: HashMap<String, Secret>,
    table: Mutex<HashMap<String, Arc<Job>>>,
}

impl Jobs {
    pub(crate) fn new(config: &NodeConfig) -> Jobs {
        let jobs = Jobs {
            node: config.secret.clone().map(|s| (s, config.job.clone())),
            named: config.jobs.iter().map(|j| (j.name.clone(), j.secret.clone())).collect(),
            table: Mutex::default(),
        };
        for job in &config.jobs {
            let _ = jobs.enter(&job.name);
        }
        jobs
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Job>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The job of that name, new if need be.
    fn enter(&self, name: &str) -> Result<Arc<Job>, WireError> {
        let mut table = self.lock();
        if let Some(job) = table.get(name) {
            return Ok(Arc::clone(job));
        }
        if table.len() >= MAX_JOBS || name.len() > MAX_NAME {
            return Err(WireError::Unexpected("too many jobs on this I/O node, or too long a name"));
        }
        // Flow 0 is nobody's.
        let flow = FlowId(table.len() as u32 + 1);
        let job = Arc::new(Job { stats: FlowStats::new(flow, name.to_owned()), handles: Handles::default() });
        table.insert(name.to_owned(), Arc::clone(&job));
        Ok(job)
    }

    /// The job a hello proves to belong to, and whether it may control the node.
    pub(crate) fn authenticate(
        &self,
        challenge: &[u8; 16],
        hello: &Hello<'_>,
    ) -> Result<(Arc<Job>, bool), WireError> {
        if let Some(secret) = self.named.get(hello.job)
            && secret.verify(challenge, hello).is_ok()
        {
            return Ok((self.enter(hello.job)?, false));
        }
        let (secret, only) = self.node.as_ref().ok_or(WireError::Credentials)?;
        if only.as_ref().is_some_and(|name| name != hello.job) {
            return Err(WireError::Credentials);
        }
        secret.verify(challenge, hello)?;
        Ok((self.enter(hello.job)?, true))
    }

    /// The flow of a job that has been seen.
    pub(crate) fn flow(&self, name: &str) -> Option<FlowId> {
        self.lock().get(name).map(|j| j.flow())
    }

    /// The name of a flow's job.
    pub(crate) fn name(&self, flow: FlowId) -> Option<String> {
        self.lock().values().find(|j| j.flow() == flow).map(|j| j.stats.job.clone())
    }

    pub(crate) fn reports(&self) -> Vec<FlowReport> {
        let all: Vec<Arc<Job>> = self.lock().values().cloned().collect();
        flow_reports(all.iter().map(|j| &j.stats))
    }

    pub(crate) fn open_files(&self) -> usize {
        self.lock().values().map(|j| j.handles.len()).sum()
    }

    /// Gives up the files that lingered long enough.
    pub(crate) fn expire(&self, now: Nanos) -> Vec<Arc<OpenFile>> {
        let all: Vec<Arc<Job>> = self.lock().values().cloned().collect();
        all.iter().flat_map(|job| job.handles.expire(now)).collect()
    }
}
