//! Every request as an event: processes on compute nodes, links, I/O nodes with the production
//! scheduler queue and collector, data servers by the storage model. Deterministic by seed, one thread.
//!
//! | module | what lives there |
//! |---|---|
//! | [`program`] | what the processes do |
//! | [`link`] | the network |
//! | `world` | the event loop |
//! | [`tuner`] | the production detector and council over the simulated nodes |

pub mod link;
pub mod program;
pub mod tuner;
mod world;

use forebay_pattern::Interval;
use forebay_sched::SchedulerConfig;
use forebay_sched::emulate::StorageModel;
use forebay_types::{Bandwidth, FlowId, Nanos, NodeId};
use link::LinkModel;
use program::Program;

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Machine {
    /// I/O nodes; with none, the compute nodes go to the data servers themselves.
    pub io_nodes: u32,
    /// Batches an I/O node has at the storage at once.
    pub dispatchers: u32,
    /// Of compute nodes.
    pub compute_link: LinkModel,
    /// Of I/O nodes.
    pub node_link: LinkModel,
    /// The data servers.
    pub storage: StorageModel,
    /// What the I/O nodes schedule by.
    pub scheduler: SchedulerConfig,
    /// Weights of flows other than 1.
    pub weights: Vec<(FlowId, u32)>,
    /// Total-service sharing: the I/O nodes tell each other after so many bytes of service.
    pub share: Option<u64>,
    /// Each I/O node stands at this place of the rotation instead of its own: what-if.
    pub same_site: bool,
    /// How long an interval of the collectors is.
    pub interval: Nanos,
    /// A large call goes in pieces of so many bytes,
    pub piece: u64,
    /// of which so many are under way at once.
    pub window: u32,
    /// I/O nodes that are slow, and how many times as long everything takes there.
    pub slow: Vec<(NodeId, f64)>,
    /// An I/O node that is stopped again and again.
    pub stops: Option<Stops>,
    /// The same seed gives the same outcome.
    pub seed: u64,
}

impl Machine {
    /// With the defaults of the production node and of the papers' network.
    pub fn new(io_nodes: u32, storage: StorageModel, scheduler: SchedulerConfig) -> Machine {
        Machine {
            io_nodes,
            dispatchers: 16,
            compute_link: LinkModel::default(),
            node_link: LinkModel::default(),
            storage,
            scheduler,
            weights: Vec::new(),
            share: None,
            same_site: false,
            interval: Nanos::from_secs(1),
            piece: 4 << 20,
            window: 4,
            slow: Vec::new(),
            stops: None,
            seed: 1,
        }
    }
}

/// An I/O node that is stopped at the beginning of every cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stops {
    /// Which.
    pub node: NodeId,
    /// The first cycle begins here.
    pub from: Nanos,
    /// From here on it runs.
    pub until: Nanos,
    /// How long a cycle is.
    pub cycle: Nanos,
    /// How much of it the node is stopped for.
    pub stopped: Nanos,
}

impl Stops {
    /// When the node runs again, if it is stopped at `now`.
    pub fn runs_again(&self, node: NodeId, now: Nanos) -> Option<Nanos> {
        if node != self.node || now < self.from || now >= self.until {
            return None;
        }
        let cycle = self.cycle.0.max(1);
        let began = now.0 - (now.0 - self.from.0) % cycle;
        let again = Nanos(began + self.stopped.0.min(cycle));
        (now < again).then_some(again)
    }
}

/// One process.
pub struct Process {
    /// The job it belongs to.
    pub flow: FlowId,
    /// The compute node it runs on.
    pub compute_node: u32,
    /// The I/O node its requests go to; ignored without any.
    pub io_node: u32,
    /// What it does.
    pub program: Box<dyn Program>,
}

/// Spreads processes over compute nodes and I/O nodes in blocks: `program` by rank.
pub fn job(
    flow: u32,
    processes: u32,
    compute_nodes: std::ops::Range<u32>,
    io_nodes: std::ops::Range<u32>,
    mut program: impl FnMut(u64) -> Box<dyn Program>,
) -> Vec<Process> {
    let place = |rank: u32, of: &std::ops::Range<u32>| {
        of.start + (u64::from(rank) * u64::from(of.len() as u32) / u64::from(processes.max(1))) as u32
    };
    (0..processes)
        .map(|rank| Process {
            flow: FlowId(flow),
            compute_node: place(rank, &compute_nodes),
            io_node: place(rank, &io_nodes),
            program: program(u64::from(rank)),
        })
        .collect()
}

/// What was seen of one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlowTotals {
    /// Calls answered.
    pub calls: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// The processes' time in them, added up.
    pub waited: Nanos,
    /// The longest of them.
    pub longest: Nanos,
    /// When its first call was made.
    pub began: Option<Nanos>,
    /// When its last call was answered.
    pub ended: Nanos,
}

impl FlowTotals {
    /// What a call took, in the mean.
    pub fn mean(&self) -> Nanos {
        Nanos(self.waited.0 / self.calls.max(1))
    }

    /// From the first call to the last answer.
    pub fn makespan(&self) -> Nanos {
        self.ended.since(self.began.unwrap_or(self.ended))
    }

    /// Bytes over the makespan.
    pub fn bandwidth(&self) -> Bandwidth {
        Bandwidth::of(self.bytes, self.makespan())
    }
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Calls made from here on count.
    pub from: Nanos,
    /// The simulation ends here, or when all processes have.
    pub until: Nanos,
}

impl Span {
    /// All of it.
    pub const ALL: Span = Span { from: Nanos::ZERO, until: Nanos(u64::MAX) };
}

/// What came out.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// By flow.
    pub flows: Vec<FlowTotals>,
    /// Bytes that the I/O nodes (or, without, the servers) served to each flow within the span.
    pub served: Vec<u64>,
    /// Batches at the storage.
    pub batches: u64,
    /// Requests in them.
    pub requests: u64,
    /// Events handled.
    pub events: u64,
    /// When it ended.
    pub end: Nanos,
}

impl Outcome {
    /// What a flow did.
    pub fn flow(&self, flow: u32) -> FlowTotals {
        self.flows.get(flow as usize).copied().unwrap_or_default()
    }

    /// All bytes over the time from the first call to the last answer.
    pub fn bandwidth(&self) -> Bandwidth {
        let active = || self.flows.iter().filter(|f| f.calls > 0);
        let began = active().filter_map(|f| f.began).min().unwrap_or_default();
        let ended = active().map(|f| f.ended).max().unwrap_or_default();
        Bandwidth::of(active().map(|f| f.bytes).sum(), ended.since(began))
    }

    /// Requests in a batch, in the mean.
    pub fn merged(&self) -> f64 {
        self.requests as f64 / self.batches.max(1) as f64
    }
}

/// Watches the simulated nodes and may change their scheduler: once an interval.
pub trait Observer {
    /// All nodes' intervals have ended; the scheduler that all of them use from now on, if another.
    fn observe(&mut self, now: Nanos, intervals: &[Interval]) -> Option<SchedulerConfig>;

    /// Asked after that: flows whose processes use another I/O node from now on.
    fn moves(&mut self) -> Vec<(FlowId, NodeId)> {
        Vec::new()
    }
}

/// Runs the processes on the machine.
pub fn run(machine: &Machine, processes: Vec<Process>, span: Span) -> Outcome {
    world::World::new(machine, processes, span).run(None)
}

/// The same, with somebody who watches.
pub fn run_observed(
    machine: &Machine,
    processes: Vec<Process>,
    span: Span,
    observer: &mut dyn Observer,
) -> Outcome {
    world::World::new(machine, processes, span).run(Some(observer))
}
