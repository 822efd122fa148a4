//! One job as this node sees it: what its processes share here.

use crate::buffer::Account;
use crate::clients::Clients;
use crate::file::Handles;
use crate::stats::FlowStats;
use crate::sys::acting::Whom;
use forebay_types::{Epoch, FlowId};
use forebay_wire::hello::SessionId;
use forebay_wire::session::waits::Waits;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// One job: its flow, its counters and its open files.
pub(crate) struct Job {
    pub(crate) stats: FlowStats,
    /// Who its processes are.
    pub(crate) clients: Clients,
    pub(crate) handles: Handles,
    /// As whom its requests are carried out; the same for as long as it has processes here.
    whom: OnceLock<Whom>,
    epoch: AtomicU64,
    /// The addresses of its I/O nodes, as of `epoch`.
    nodes: Mutex<Arc<[String]>>,
    /// Its processes that wait for locks, if this is its home node.
    waits: Mutex<Waits<SessionId>>,
    /// Its payload memory.
    pub(crate) memory: Arc<Account>,
}

impl Job {
    pub(crate) fn new(flow: FlowId, name: &str) -> Job {
        Job {
            stats: FlowStats::new(flow, name.to_owned()),
            clients: Clients::default(),
            handles: Handles::default(),
            whom: OnceLock::new(),
            epoch: AtomicU64::new(0),
            nodes: Mutex::new(Arc::from([])),
            waits: Mutex::default(),
            memory: Arc::default(),
        }
    }

    /// As whom its requests are carried out: nobody, until somebody has said.
    pub(crate) fn whom(&self) -> &Whom {
        self.whom.get().unwrap_or(&Whom::Nobody)
    }

    /// Whether its requests are carried out as `whom`, from now on if nobody has said.
    pub(crate) fn belongs_to(&self, whom: &Whom) -> bool {
        self.whom.get_or_init(|| whom.clone()) == whom
    }

    pub(crate) fn waits(&self) -> MutexGuard<'_, Waits<SessionId>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn flow(&self) -> FlowId {
        self.stats.flow
    }

    /// The version of its mapping: every reply tells it.
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Relaxed))
    }

    /// Where its clients belong.
    pub(crate) fn mapping(&self) -> (Epoch, Arc<[String]>) {
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        (self.epoch(), Arc::clone(&nodes))
    }

    /// Where its clients belong from now on, unless something newer is known.
    pub(crate) fn remap(&self, epoch: Epoch, to: &[String]) {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if epoch > self.epoch() {
            *nodes = to.into();
            self.epoch.store(epoch.0, Relaxed);
        }
    }
}
