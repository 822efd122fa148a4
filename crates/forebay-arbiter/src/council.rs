//! The council at work: each interval's reports of the I/O nodes become patterns, situations and
//! rewards; once a round they become one decision, which is told to all nodes when it changes
//! something. Sans I/O, like the core that drives it.
//!
//! A round is over when every connected node has reported a whole interval under the scheduler in
//! force, so that each decision is judged by what it brought; or when that takes too long.

use crate::store::Change;
use forebay_control::council::{CouncilDecision, CouncilView};
use forebay_control::node::NodeReport;
use forebay_pattern::{KeptError, Model};
use forebay_sched::SchedulerConfig;
use forebay_tune::{
    Arms, BanditConfig, Context, Council, CouncilConfig, CouncilError, Guard, Learned, Memory,
    Observation as Vote, RewardRule,
};
use forebay_types::{Nanos, NodeId, SchedulerSpec};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The name of what was learned among the learned entries.
const KEY: &str = "council";

/// Decisions that are shown.
const SHOWN: usize = 500;

/// Intervals after which a round ends even if nodes have not reported.
const PATIENCE: u64 = 3;

/// What was learned is stored this long after it changed at the latest.
const SAVE_EVERY: Nanos = Nanos::from_secs(5);

/// Whether the council acts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// It neither learns nor acts.
    Off,
    /// It learns and says what it would do.
    #[default]
    Shadow,
    /// It learns and sets the nodes' schedulers.
    On,
}

/// `[tune]` in the arbiter's configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct TuneConfig {
    /// Whether it acts.
    pub mode: Mode,
    /// The schedulers to choose between, and the one in force when nothing is known.
    pub choices: Arms,
    /// Which bandit.
    pub policy: BanditConfig,
    /// How far back experience counts.
    pub memory: Memory,
    /// How much may be risked.
    pub guard: Guard,
    /// When an interval counts.
    pub reward: RewardRule,
    /// The same seed and the same reports give the same decisions.
    pub seed: u64,
}

impl Default for TuneConfig {
    fn default() -> TuneConfig {
        TuneConfig {
            mode: Mode::default(),
            choices: Arms::twins_windows(),
            policy: BanditConfig::default(),
            memory: Memory::default(),
            guard: Guard::default(),
            reward: RewardRule::default(),
            seed: 0,
        }
    }
}

/// What is wrong with `[tune]`, or with what was learned.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// The parameters.
    #[error("tune: {0}")]
    Parameters(#[from] CouncilError),
    /// No interval would ever count.
    #[error("tune: reward.least_busy is {0}: it can be 0 to 1, the share of an interval")]
    LeastBusy(f64),
    /// What was learned.
    #[error(transparent)]
    Learned(#[from] KeptError),
}

impl TuneConfig {
    /// Says what is wrong with it, if anything is.
    pub fn check(&self) -> Result<(), TuneError> {
        self.council().map(drop)
    }

    fn council(&self) -> Result<Council, TuneError> {
        if !(0.0..=1.0).contains(&self.reward.least_busy) {
            return Err(TuneError::LeastBusy(self.reward.least_busy));
        }
        let config = CouncilConfig {
            policy: self.policy,
            memory: self.memory,
            guard: Some(self.guard),
            shadow: self.mode != Mode::On,
            seed: self.seed,
        };
        Ok(Council::new(self.choices.clone(), config)?)
    }
}

/// Reports in, schedulers out.
#[derive(Debug)]
pub struct Tuner {
    mode: Mode,
    council: Council,
    model: Model,
    rule: RewardRule,
    names: Vec<String>,
    /// Connected nodes: how often they report, and what they last said they use.
    nodes: BTreeMap<NodeId, (Nanos, SchedulerSpec)>,
    /// The longest of their intervals.
    interval: Nanos,
    /// Nodes whose report of this round counts.
    reported: BTreeSet<NodeId>,
    /// When the first report of this round came.
    began: Option<Nanos>,
    /// Whether a scheduler is in force that was chosen, or found in force, by this council.
    settled: bool,
    decisions: VecDeque<CouncilDecision>,
    changed: bool,
    saved: Nanos,
}

impl Tuner {
    /// A council that goes on from what was kept and detects patterns with `model`. What was kept and
    /// cannot be read is left out.
    pub fn new(
        config: &TuneConfig,
        model: Model,
        kept: &BTreeMap<String, serde_json::Value>,
        now: Nanos,
    ) -> Result<Tuner, TuneError> {
        let mut council = config.council()?;
        let learned: Option<Learned> = kept.get(KEY).and_then(|v| serde_json::from_value(v.clone()).ok());
        if let Some(learned) = learned {
            // What does not fit is as if it had never been learned.
            let _ = council.import(&learned);
        }
        Ok(Tuner {
            mode: config.mode,
            names: config.choices.names(),
            council,
            model,
            rule: config.reward,
            nodes: BTreeMap::new(),
            interval: Nanos::ZERO,
            reported: BTreeSet::new(),
            began: None,
            settled: false,
            decisions: VecDeque::new(),
            changed: false,
            saved: now,
        })
    }

    /// A node has come that reports every `interval` and whose scheduler is `current`; what it is to
    /// use instead, if anything. The first one tells what was in force before this arbiter started.
    pub fn joined(
        &mut self,
        node: NodeId,
        interval: Nanos,
        current: &SchedulerSpec,
    ) -> Option<SchedulerConfig> {
        self.nodes.insert(node, (interval, current.clone()));
        // What this arbiter does not know is something else than what it wants.
        let current = SchedulerConfig::try_from(current).ok();
        self.interval = self.interval.max(interval);
        if !std::mem::replace(&mut self.settled, true)
            && let Some(arm) = current.as_ref().and_then(|c| self.council.arms().find(c))
        {
            self.council.adopt(arm);
        }
        self.correction(current.as_ref())
    }

    /// A node's connection has ended: rounds do not wait for it.
    pub fn left(&mut self, node: NodeId) {
        self.nodes.remove(&node);
        self.reported.remove(&node);
        self.interval = self.nodes.values().map(|(interval, _)| *interval).max().unwrap_or(Nanos::ZERO);
    }

    fn correction(&self, current: Option<&SchedulerConfig>) -> Option<SchedulerConfig> {
        let standing = self.standing();
        (self.mode == Mode::On && current != Some(standing)).then(|| standing.clone())
    }

    fn standing(&self) -> &SchedulerConfig {
        &self.council.arms().all()[self.council.standing()]
    }

    /// A node reports an interval; `may_explore` says whether all its jobs put up with experiments.
    /// What the node is to be told, if its scheduler is not the one in force.
    pub fn report(
        &mut self,
        now: Nanos,
        node: NodeId,
        report: &NodeReport,
        may_explore: bool,
    ) -> Option<SchedulerConfig> {
        if let (Some(node), Some(scheduler)) = (self.nodes.get_mut(&node), &report.scheduler) {
            node.1.clone_from(scheduler);
        }
        if self.mode == Mode::Off {
            return None;
        }
        self.began.get_or_insert(now);
        // A node that changed its scheduler within the interval says nothing about either.
        let scheduler = SchedulerConfig::try_from(report.scheduler.as_ref()?).ok();
        if let Some(correction) = self.correction(scheduler.as_ref()) {
            return Some(correction);
        }
        let interval = &report.interval;
        let context = interval.dominant().and_then(|flow| Context::of(flow, self.model.detect(flow).pattern));
        let reward = self.rule.reward(&interval.load, interval.end.since(interval.start));
        self.reported.insert(node);
        let arm = scheduler.as_ref().and_then(|s| self.council.arms().find(s));
        self.council.report(Vote { node, arm, context, reward, may_explore });
        None
    }

    /// Decides if the round is over. What all nodes are to use from now on, if that is something else.
    pub fn round(&mut self, now: Nanos) -> Option<SchedulerConfig> {
        let began = self.began?;
        let overdue = now.since(began).0 >= self.interval.0.saturating_mul(PATIENCE);
        if self.reported.len() < self.nodes.len().max(1) && !overdue {
            return None;
        }
        let reported = std::mem::take(&mut self.reported).len();
        self.began = None;
        if reported == 0 {
            return None;
        }
        let decision = self.council.decide();
        let changed = decision.arm != decision.before;
        self.changed |= !decision.votes.is_empty();
        if self.decisions.len() == SHOWN {
            self.decisions.pop_front();
        }
        self.decisions.push_back(CouncilDecision {
            round: decision.round,
            unix_ms: now.0 / 1_000_000,
            nodes: reported,
            scheduler: (&decision.config).into(),
            changed,
            explores: decision.explores(),
            why: decision.explain(&self.names),
        });
        changed.then_some(decision.config)
    }

    /// What was learned, if it is to be kept now.
    pub fn unsaved(&mut self, now: Nanos) -> Option<Change> {
        if !self.changed || now.since(self.saved) < SAVE_EVERY {
            return None;
        }
        self.save(now)
    }

    fn save(&mut self, now: Nanos) -> Option<Change> {
        self.changed = false;
        self.saved = now;
        Some(Change::Learned { key: KEY.into(), value: serde_json::to_value(self.council.learned()).ok() })
    }

    /// Everything learned.
    pub fn learned(&self) -> Learned {
        self.council.learned()
    }

    /// Goes on with what was learned elsewhere; what is to be kept of it.
    pub fn import(&mut self, now: Nanos, learned: &Learned) -> Result<Option<Change>, TuneError> {
        self.council.import(learned)?;
        Ok(self.save(now))
    }

    /// Forgets one situation, or everything, and goes back to the default; what is to be kept, and
    /// what all nodes are to use.
    pub fn reset(
        &mut self,
        now: Nanos,
        context: Option<Context>,
    ) -> (Option<Change>, Option<SchedulerConfig>) {
        self.council.reset(context);
        let back = (self.mode == Mode::On).then(|| self.standing().clone());
        (self.save(now), back)
    }

    /// The situations in which something was learned.
    pub fn contexts(&self) -> Vec<Context> {
        self.council.learned().contexts().iter().map(|c| c.context).collect()
    }

    /// Detects patterns with another model from now on.
    pub fn set_model(&mut self, model: Model) {
        self.model = model;
    }

    /// The detector.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What is shown.
    pub fn view(&self) -> CouncilView {
        let mut in_force: Vec<SchedulerSpec> = Vec::new();
        for (_, scheduler) in self.nodes.values() {
            if !in_force.contains(scheduler) {
                in_force.push(scheduler.clone());
            }
        }
        CouncilView {
            in_force,
            mode: match self.mode {
                Mode::Off => "off",
                Mode::Shadow => "shadow",
                Mode::On => "on",
            }
            .into(),
            standing: self.standing().into(),
            round: self.council.round(),
            reported: self.reported.len(),
            model: self.model.trained_on.clone(),
            decisions: self.decisions.iter().cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_pattern::{FlowMetrics, Interval, Load};
    use forebay_types::FlowId;

    const NODES: u32 = 4;
    const SECOND: Nanos = Nanos::from_secs(1);

    /// A shared file, strided: what the shipped model knows for sure.
    fn flow(write: bool) -> FlowMetrics {
        let (n, bytes) = (1000, 1000 << 15);
        FlowMetrics {
            flow: FlowId(1),
            files: 1,
            clients: 8,
            streams: 8,
            reads: if write { 0 } else { n },
            writes: if write { n } else { 0 },
            bytes_read: if write { 0 } else { bytes },
            bytes_written: if write { bytes } else { 0 },
            size_p50: 32 << 10,
            size_mean: 32768.0,
            judged: n,
            forward: n,
            jumps: n,
            regular: n,
            outstanding: 8.0,
            ..FlowMetrics::default()
        }
    }

    fn report(second: u64, write: bool, mbs: f64, scheduler: Option<&SchedulerConfig>) -> NodeReport {
        let served = (mbs * 1e6) as u64;
        let load = Load { offered: served, served, busy: Nanos::from_secs(1), outstanding: 8.0 };
        let (start, end) = (Nanos::from_secs(second), Nanos::from_secs(second + 1));
        NodeReport {
            present: Vec::new(),
            interval: Interval { start, end, load, flows: vec![flow(write)] },
            jobs: BTreeMap::new(),
            waiting: 0,
            connections: 1,
            latency_p50: Nanos(0),
            latency_p99: Nanos(0),
            job_latencies: BTreeMap::new(),
            job_hosts: BTreeMap::new(),
            errors: 0,
            scheduler: scheduler.map(Into::into),
        }
    }

    /// Four nodes and what they were told last.
    struct World {
        tuner: Tuner,
        arms: Arms,
        in_force: Vec<SchedulerConfig>,
        second: u64,
    }

    impl World {
        fn new(config: &TuneConfig, kept: &BTreeMap<String, serde_json::Value>) -> World {
            let arms = &config.choices;
            World::started(config, kept, &arms.all()[arms.default_arm()])
        }

        /// Nodes come whose scheduler is `current`.
        fn started(
            config: &TuneConfig,
            kept: &BTreeMap<String, serde_json::Value>,
            current: &SchedulerConfig,
        ) -> World {
            let mut tuner = Tuner::new(config, Model::builtin(), kept, Nanos::ZERO).unwrap();
            let join =
                |n| tuner.joined(NodeId(n), SECOND, &current.into()).unwrap_or_else(|| current.clone());
            let in_force = (0..NODES).map(join).collect();
            World { tuner, in_force, arms: config.choices.clone(), second: 0 }
        }

        /// Writes do best with the shortest window, reads with the longest.
        fn mbs(&self, node: usize, write: bool) -> f64 {
            let arm = self.arms.find(&self.in_force[node]).unwrap() as f64;
            if write { 100.0 - 8.0 * arm } else { 50.0 + 8.0 * arm }
        }

        fn pass(&mut self, write: bool, seconds: u64, may_explore: bool) {
            for _ in 0..seconds {
                for node in 0..NODES as usize {
                    let r = report(self.second, write, self.mbs(node, write), Some(&self.in_force[node]));
                    let now = Nanos::from_secs(self.second + 1);
                    let id = NodeId(node as u32);
                    if let Some(set) = self.tuner.report(now, id, &r, may_explore) {
                        self.in_force[node] = set;
                    }
                    if let Some(set) = self.tuner.round(now) {
                        self.in_force.fill(set);
                    }
                }
                self.second += 1;
            }
        }
    }

    fn on() -> TuneConfig {
        TuneConfig { mode: Mode::On, ..TuneConfig::default() }
    }

    #[test]
    fn phases_get_their_windows_and_a_successor_knows_them() {
        let mut world = World::new(&on(), &BTreeMap::new());
        world.pass(true, 200, true);
        world.pass(false, 200, true);
        world.pass(true, 3, true);
        assert_eq!(world.in_force[0], world.arms.all()[0]);
        world.pass(false, 3, true);
        assert_eq!(world.in_force[3], world.arms.all()[6]);
        let view = world.tuner.view();
        assert_eq!((view.mode.as_str(), view.round), ("on", 406));
        assert!(view.decisions.last().unwrap().why.contains("read shared-strided"), "{view:?}");

        let Some(Change::Learned { key, value: Some(value) }) = world.tuner.unsaved(Nanos::from_secs(1000))
        else {
            panic!("it is to be kept")
        };
        assert!(world.tuner.unsaved(Nanos::from_secs(2000)).is_none(), "once");
        let mut next = World::started(&on(), &BTreeMap::from([(key, value)]), &world.in_force[0]);
        assert_eq!(next.in_force, world.in_force, "what is in force stays");
        next.pass(true, 3, true);
        assert_eq!(next.in_force[2], next.arms.all()[0]);
        next.tuner.reset(Nanos::ZERO, None);
        assert!(next.tuner.learned().contexts().is_empty());
    }

    #[test]
    fn a_shadow_learns_and_touches_nothing() {
        let mut world = World::new(&TuneConfig::default(), &BTreeMap::new());
        world.pass(true, 50, true);
        assert!(world.in_force.iter().all(|s| *s == world.arms.all()[world.arms.default_arm()]));
        assert_eq!(world.tuner.learned().contexts().len(), 1);
        let foreign: SchedulerConfig = "fifo".parse().unwrap();
        assert_eq!(world.tuner.joined(NodeId(0), SECOND, &(&foreign).into()), None);
        assert!(world.tuner.view().decisions.iter().any(|d| d.why.contains("shadow mode")));
    }

    #[test]
    fn nobody_is_experimented_with_who_asked_not_to_be() {
        let mut world = World::new(&on(), &BTreeMap::new());
        world.pass(true, 100, false);
        assert!(world.tuner.view().decisions.iter().all(|d| !d.explores && !d.changed));
        world.pass(true, 100, true);
        assert!(world.tuner.view().decisions.iter().any(|d| d.explores));
    }

    #[test]
    fn a_round_waits_for_whole_intervals_but_not_for_ever() {
        let mut world = World::new(&on(), &BTreeMap::new());
        let standing = world.in_force[0].clone();
        let say = |world: &mut World, at: u64, node: u32, scheduler: Option<&SchedulerConfig>| {
            let now = Nanos::from_millis(at);
            world.tuner.report(now, NodeId(node), &report(0, true, 80.0, scheduler), true);
            world.tuner.round(now);
        };
        for node in 0..3 {
            say(&mut world, 1000, node, Some(&standing));
        }
        say(&mut world, 1500, 3, None);
        assert_eq!(world.tuner.view().round, 0, "node 3 changed within its interval");
        say(&mut world, 2500, 3, Some(&standing));
        assert_eq!(world.tuner.view().round, 1);
        for node in 0..3 {
            say(&mut world, 3000, node, Some(&standing));
        }
        world.tuner.round(Nanos::from_millis(5900));
        assert_eq!(world.tuner.view().round, 1);
        world.tuner.round(Nanos::from_millis(6000));
        assert_eq!(world.tuner.view().round, 2, "node 3 is late");
        // A node with a scheduler of its own is told the one in force.
        let other: SchedulerConfig = "fifo".parse().unwrap();
        let told =
            world.tuner.report(Nanos::from_secs(7), NodeId(3), &report(6, true, 80.0, Some(&other)), true);
        assert_eq!(told.as_ref(), Some(world.tuner.standing()));
    }

    #[test]
    fn the_settings_read_as_people_write_them() {
        let text = "mode = \"on\"\nmemory = { window = 300 }\npolicy = { name = \"epsilon-greedy\", epsilon = 0.2 }\n\
                    [choices]\ndefault = \"fifo\"\narms = [\"fifo\", \"hbrr\"]\n[guard]\nfloor = 0.8\n";
        let config: TuneConfig = toml::from_str(text).unwrap();
        assert_eq!((config.mode, config.memory), (Mode::On, Memory::Window(300)));
        assert_eq!(config.choices.all().len(), 2);
        assert_eq!(config.guard, Guard { floor: 0.8, ..Guard::default() });
        assert!(toml::from_str::<TuneConfig>("modus = 1").is_err());
        assert_eq!(toml::from_str::<TuneConfig>("").unwrap(), TuneConfig::default());
    }
}
