//! The arbiter's mind: which I/O nodes there are, which jobs run, who has what and why. Sans I/O: what
//! happens is told with `now`, and [`Core::actions`] hands out what is to be done about it.
//!
//! Actions are in order, and whoever carries them out stores every [`Action::Persist`] before it sends
//! anything: nodes never hear of what a restarted arbiter would not know.
//!
//! | file | what lives there |
//! |---|---|
//! | `core/jobs.rs` | a job registers, renews its lease, ends |
//! | `core/nodes.rs` | an I/O node says hello, reports, is screened, drains, is lost |
//! | `core/limits.rs` | what jobs may have at most, node by node |
//! | `core/guarantees.rs` | what they have at least: the weights |
//! | `core/screening.rs` | nodes are probed, and diagnoses carried out |
//! | `core/site.rs` | a site's fixed map of compute nodes |
//! | `core/decide.rs` | the policy runs, and its decision becomes the mapping |
//! | `core/tune.rs` | the council's part |
//! | `core/view.rs` | what is shown |

mod decide;
mod guarantees;
mod jobs;
mod limits;
mod moved;
mod nodes;
mod screening;
mod site;
#[cfg(test)]
mod tests;
mod tune;
mod view;

pub use jobs::Refusal;
use limits::Limits;
use moved::Moved;
pub use nodes::ConnectionId;

use crate::activity::Activity;
use crate::council::{TuneConfig, TuneError, Tuner};
use crate::curves::{CurveQuery, Curves};
use crate::health::{self, Screen, ScreenConfig};
use crate::runs::{Runs, Scale};
use crate::store::{Change, Kept, StoredJob, StoredNode};
use forebay_control::node::{NodeHello, NodeReport, Term, ToNode};
use forebay_control::view::{DecisionView, HistoryRow};
use forebay_pattern::Model;
use forebay_policy::{Policy, PolicyError, PolicyKind, Settings, SharingRule};
use forebay_types::{AccessPattern, Epoch, Nanos, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// What the core is told once.
#[derive(Clone, Debug, PartialEq)]
pub struct CoreConfig {
    /// Who decides.
    pub policy: PolicyKind,
    /// The policies' settings.
    pub settings: Settings,
    /// Compute nodes of the whole machine, over which STATIC divides the I/O nodes; `None` divides
    /// over those of the running jobs.
    pub compute_nodes: Option<u32>,
    /// What is learned about scheduler parameters.
    pub tune: TuneConfig,
    /// When jobs may share an I/O node.
    pub sharing: SharingRule,
    /// A job that does not renew its lease within this long is dead.
    pub lease: Nanos,
    /// How long an I/O node whose connection broke, or that is silent, is still counted on.
    pub node_grace: Nanos,
    /// How long I/O nodes have to come back after the arbiter started.
    pub start_grace: Nanos,
    /// When a node counts as slow.
    pub health: ScreenConfig,
    /// Decide again this long after the last decision if measurements have changed a curve.
    pub review: Nanos,
    /// Move running jobs on a measurement's account only if the predicted total grows by this part.
    pub min_gain: f64,
    /// Jobs that are taken at most.
    pub max_jobs: usize,
    /// I/O nodes that are taken at most.
    pub max_nodes: usize,
    /// A site's fixed map: which I/O node serves a compute node. Jobs of which every host is in it are not the
    /// policy's; DFRA takes it for the default that it departs from.
    pub map: BTreeMap<String, NodeId>,
}

impl Default for CoreConfig {
    fn default() -> CoreConfig {
        CoreConfig {
            policy: PolicyKind::Fair,
            settings: Settings::default(),
            compute_nodes: None,
            tune: TuneConfig::default(),
            sharing: SharingRule::default(),
            lease: Nanos::from_secs(15),
            node_grace: Nanos::from_secs(2),
            start_grace: Nanos::from_secs(10),
            health: ScreenConfig::default(),
            review: Nanos::from_secs(5),
            min_gain: 0.05,
            max_jobs: 10_000,
            max_nodes: 1_000,
            map: BTreeMap::new(),
        }
    }
}

/// Why there is no core.
#[derive(Debug, thiserror::Error)]
pub enum CoreError {
    /// The policy cannot be made.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The council cannot.
    #[error(transparent)]
    Tune(#[from] TuneError),
}

/// What is to be done.
#[derive(Clone, Debug)]
pub enum Action {
    /// Store this, before anything that follows.
    Persist(Change),
    /// Tell a node.
    Send {
        /// Which.
        to: NodeId,
        /// What.
        message: ToNode,
    },
    /// End a node's connection: another one has taken its place, or it has been silent.
    HangUp(ConnectionId),
    /// Say in the log what is thought of a node.
    Judged(health::Change),
    /// Add to the history; of a job that began then, in milliseconds since 1970.
    Record(HistoryRow, u64),
    /// Keep a decision.
    Decided(Box<DecisionView>),
}

/// An I/O node.
#[derive(Clone, Debug)]
struct Node {
    stored: StoredNode,
    /// Its open connection.
    connection: Option<ConnectionId>,
    /// What it said of itself, once it did so to this arbiter.
    hello: Option<NodeHello>,
    /// Its last report.
    report: Option<Box<NodeReport>>,
    /// When it was last heard of.
    heard: Nanos,
    /// When it was last probed.
    probed: Nanos,
    /// Without a connection: it is counted on until then.
    awaited: Nanos,
    /// Why it was screened out.
    screened: Option<String>,
    /// It was told to end.
    drain_told: bool,
}

/// A job.
#[derive(Clone, Debug)]
struct Job {
    stored: StoredJob,
    /// It lasts until then: as long as one of its runs, or as I/O nodes see its processes.
    lease_until: Nanos,
    /// Until when each of its runs is taken for one that goes on.
    leases: BTreeMap<u32, Nanos>,
    /// One of its runs did not do all it was to do.
    failed: bool,
    /// When its mapping last changed.
    moved: Nanos,
    reason: String,
    predicted: Option<f64>,
    curve: Option<String>,
    activity: Activity,
}

/// The arbiter's state.
pub struct Core {
    config: CoreConfig,
    policy: Box<dyn Policy>,
    curves: Curves,
    runs: Runs,
    moved: Moved,
    tuner: Tuner,
    term: Term,
    epoch: Epoch,
    nodes: BTreeMap<NodeId, Node>,
    jobs: BTreeMap<String, Job>,
    /// Runs of jobs that somebody has ended, and when they last asked to go on.
    banned: BTreeMap<(String, u32), Nanos>,
    /// Jobs that have ended of late: nodes may still report what they did last.
    ended: BTreeMap<String, Ended>,
    limits: Limits,
    next_order: u64,
    next_decision: u64,
    started: Nanos,
    /// Who loses its connection is counted on until then at least.
    patient: Nanos,
    decided: Nanos,
    /// [`Curves::news`] at the last decision.
    decided_news: u64,
    /// The policy wants to be asked again then.
    review: Option<Nanos>,
    saved: Nanos,
    screening: Screen,
    /// When the nodes were last judged.
    judged: Nanos,
    /// Every job that runs has had the time to say so: whoever is not known is gone.
    complete: bool,
    actions: Vec<Action>,
}

/// A job that has ended.
struct Ended {
    at: Nanos,
    began_unix_ms: u64,
}

/// By then all nodes have reported what a job that has ended did last.
const LAST_WORD: Nanos = Nanos::from_secs(5);

/// How often what was learned is stored while jobs run.
const SAVE_EVERY: Nanos = Nanos::from_secs(30);

impl Core {
    /// An arbiter that goes on from what was kept. Its first decision has the number `next_decision`.
    pub fn new(
        config: CoreConfig,
        mut curves: Curves,
        term: Term,
        kept: &Kept,
        next_decision: u64,
        now: Nanos,
    ) -> Result<Core, CoreError> {
        if config.policy == PolicyKind::Zero {
            return Err(PolicyError::NoDirect.into());
        }
        let policy = config.policy.build(&config.settings)?;
        curves.restore(&kept.learned);
        let tuner = Tuner::new(&config.tune, Model::builtin(), &kept.learned, now)?;
        let held: BTreeSet<NodeId> =
            kept.jobs.values().flat_map(|j| &j.held).flat_map(|h| &h.nodes).copied().collect();
        // One that was given up before is not waited for, unless that left jobs nowhere to go.
        let awaited = |n: &StoredNode| match n.gone && (n.leaving || !held.contains(&n.id)) {
            true => Nanos::ZERO,
            false => now + config.start_grace,
        };
        let moved = Moved::restore(&kept.learned);
        let node = |n: &StoredNode| Node {
            stored: n.clone(),
            connection: None,
            hello: None,
            report: None,
            heard: now,
            probed: now,
            awaited: awaited(n),
            screened: None,
            drain_told: false,
        };
        let job = |j: &StoredJob| Job {
            stored: j.clone(),
            lease_until: now + config.lease,
            leases: j.runs.iter().map(|run| (*run, now + config.lease)).collect(),
            failed: false,
            moved: now,
            reason: "as before the arbiter started".to_owned(),
            predicted: None,
            curve: None,
            activity: Activity::resumed(moved.of(j)),
        };
        let jobs = kept.jobs.iter().map(|(id, j)| (id.clone(), job(j))).collect();
        Ok(Core {
            policy,
            decided_news: curves.news(),
            curves,
            runs: Runs::restore(&kept.learned),
            moved,
            tuner,
            term,
            epoch: kept.epoch,
            nodes: kept.nodes.values().map(|n| (n.id, node(n))).collect(),
            next_order: kept.jobs.values().map(|j| j.order + 1).max().unwrap_or(0),
            jobs,
            banned: BTreeMap::new(),
            ended: BTreeMap::new(),
            limits: Limits::restore(&kept.limits, &kept.learned),
            next_decision,
            started: now,
            patient: now,
            decided: now,
            review: None,
            saved: now,
            screening: Screen::new(config.health),
            judged: now,
            complete: false,
            actions: Vec::new(),
            config,
        })
    }

    /// The fencing token.
    pub fn term(&self) -> Term {
        self.term
    }

    /// What is to be done since the last call, in order.
    pub fn actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// The arbiter did not run from `from` until now: what nobody could tell it meanwhile is held against nobody. Leases
    /// and silences count on as if that time had not been, and who has to connect again is counted on for as long as
    /// after a restart.
    pub fn stood_still(&mut self, from: Nanos, now: Nanos) {
        let gap = now.since(from);
        for node in self.nodes.values_mut() {
            node.heard = node.heard + gap;
            if node.connection.is_none() && node.awaited != Nanos::ZERO {
                node.awaited = node.awaited + gap;
            }
        }
        for job in self.jobs.values_mut() {
            job.lease_until = job.lease_until + gap;
            job.leases.values_mut().for_each(|until| *until = *until + gap);
        }
        self.patient = now + self.config.start_grace;
    }

    /// Time has passed. To be called a few times a second.
    pub fn tick(&mut self, now: Nanos) {
        self.measure(now);
        self.judge(now);
        if !self.complete && now.since(self.started) >= self.config.lease {
            self.complete = true;
            self.tell_all_mappings();
        }
        let lost = self.expire_nodes(now);
        self.ended.retain(|_, job| now.since(job.at) < LAST_WORD);
        let ended = self.expire_jobs(now);
        if let Some(cause) = ended.or(lost) {
            self.decide(now, &cause);
        } else if self.review.is_some_and(|r| r <= now) {
            self.decide(now, decide::REVIEW);
        } else if self.curves.news() != self.decided_news && now.since(self.decided) >= self.config.review {
            self.reconsider(now);
        }
        self.tune_tick(now);
        self.limits_tick(now);
        self.keep_moved(now);
        self.keep_peaks(now);
        if now.since(self.saved) >= SAVE_EVERY {
            self.save_learned(now);
        }
    }

    /// The state as it is kept: what the stored changes add up to.
    pub fn kept(&self) -> Kept {
        Kept {
            epoch: self.epoch,
            jobs: self.jobs.iter().map(|(id, j)| (id.clone(), j.stored.clone())).collect(),
            nodes: self.nodes.iter().map(|(id, n)| (*id, n.stored.clone())).collect(),
            limits: self.limits.kept(),
            learned: BTreeMap::new(),
        }
    }

    /// Compares what jobs get with their curves.
    fn measure(&mut self, now: Nanos) {
        let mut users: BTreeMap<NodeId, u32> = BTreeMap::new();
        for node in self.jobs.values().flat_map(Job::nodes) {
            *users.entry(*node).or_default() += 1;
        }
        for job in self.jobs.values_mut() {
            for second in job.activity.complete(now, self.tuner.model()) {
                // Only whole seconds since the last move, on nodes of its own, say what a count gives.
                let own = job.nodes().iter().all(|n| users.get(n) == Some(&1));
                let whole = second.start > job.moved && second.nodes.iter().all(|n| job.nodes().contains(n));
                if let Some(bandwidth) = second.while_busy.filter(|_| own && whole) {
                    let count = job.nodes().len() as u32;
                    let scale = job.scale();
                    let shape = job.activity.shape;
                    let asked = job.asked(&scale, shape.as_ref());
                    self.curves.measured(asked, unix_ms(now), count, bandwidth);
                }
            }
        }
    }

    fn save_learned(&mut self, now: Nanos) {
        self.saved = now;
        self.actions.extend(self.curves.unsaved().into_iter().map(Action::Persist));
    }

    fn next_epoch(&mut self) -> Epoch {
        self.epoch = Epoch(self.epoch.0 + 1);
        self.epoch
    }
}

impl Job {
    /// The I/O nodes it has.
    fn nodes(&self) -> &[NodeId] {
        self.stored.held.as_ref().map_or(&[], |h| &h.nodes)
    }

    fn scale(&self) -> Scale {
        let r = &self.stored.request;
        let app = if r.app.is_empty() { &r.id } else { &r.app };
        (app.clone(), r.user.clone(), r.compute_nodes)
    }

    fn asked<'a>(&'a self, scale: &'a Scale, shape: Option<&'a AccessPattern>) -> CurveQuery<'a> {
        let r = &self.stored.request;
        CurveQuery { scale, processes: r.processes, scenario: r.pattern.as_deref(), shape }
    }
}

/// The core's time counts from 1970.
fn unix_ms(now: Nanos) -> u64 {
    now.0 / 1_000_000
}
