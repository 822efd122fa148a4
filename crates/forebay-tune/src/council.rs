//! The council: reports of all I/O nodes in, one decision for all of them out. A decision is global
//! because some schedulers (TWINS) are an agreement among the nodes; every node's report still
//! counts for the context that node is in.

use crate::arms::Arms;
use crate::context::Context;
use crate::guard::Guard;
use crate::learned::{Learned, LearnedContext};
use crate::learner::{Learner, Recommendation, Why};
use crate::policy::BanditConfig;
use crate::values::Memory;
use forebay_pattern::KeptError;
use forebay_sched::SchedulerConfig;
use forebay_types::NodeId;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How the council learns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CouncilConfig {
    /// Which bandit.
    pub policy: BanditConfig,
    /// How far back experience counts.
    pub memory: Memory,
    /// How much may be risked; `None` leaves the policy to itself.
    pub guard: Option<Guard>,
    /// Learn and say what would be done, but change nothing.
    pub shadow: bool,
    /// The same seed and the same reports give the same decisions.
    pub seed: u64,
}

impl Default for CouncilConfig {
    fn default() -> CouncilConfig {
        CouncilConfig {
            policy: BanditConfig::default(),
            memory: Memory::default(),
            guard: Some(Guard::default()),
            shadow: false,
            seed: 0,
        }
    }
}

/// What is wrong with a council's configuration.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CouncilError {
    /// The policy's parameters.
    #[error("epsilon must be between 0 and 1, and half_after, if given, above 0")]
    BanditPolicy,
    /// The memory's.
    #[error("a window must be 1 to {} observations, a discount above 0 and at most 1", Memory::MAX_WINDOW)]
    Memory,
    /// The guard's.
    #[error("the guard's floor and margin must be from 0 to below 1, its window 1 to 10000 decisions")]
    Guard,
}

/// What one node says about one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// Which node.
    pub node: NodeId,
    /// The arm that was in force there during the whole interval; `None` if it changed or is none
    /// of the arms, and nothing can be learned from the reward.
    pub arm: Option<usize>,
    /// The situation the node is in; `None` while it is idle or the pattern unknown.
    pub context: Option<Context>,
    /// What the interval was worth; `None` if there was too little load to tell.
    pub reward: Option<f64>,
    /// Whether its jobs put up with experiments.
    pub may_explore: bool,
}

/// What the nodes of one context voted for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Vote {
    /// Their situation.
    pub context: Context,
    /// How many nodes.
    pub nodes: usize,
    /// The arm and why.
    pub recommendation: Recommendation,
}

/// What all nodes are to use from now on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The index of this decision.
    pub round: u64,
    /// The arm's index, the same for all nodes.
    pub arm: usize,
    /// What the arm is.
    pub config: SchedulerConfig,
    /// The arm that was in force before.
    pub before: usize,
    /// In shadow mode: the arm that would have been chosen.
    pub instead_of: Option<usize>,
    /// Who voted for what.
    pub votes: Vec<Vote>,
}

/// Reports in, decisions out.
#[derive(Debug)]
pub struct Council {
    arms: Arms,
    config: CouncilConfig,
    round: u64,
    /// The arm in force.
    standing: usize,
    learners: BTreeMap<Context, Learner>,
    reports: BTreeMap<NodeId, Observation>,
    /// What each node was doing in the last round.
    last: BTreeMap<NodeId, Context>,
}

/// Contexts that are kept at most; there are not many more than this at all.
pub const MAX_CONTEXTS: usize = 1024;

impl Council {
    /// A council that knows nothing.
    pub fn new(arms: Arms, config: CouncilConfig) -> Result<Council, CouncilError> {
        if !config.policy.is_sound() {
            return Err(CouncilError::BanditPolicy);
        }
        if !config.memory.is_sound() {
            return Err(CouncilError::Memory);
        }
        if !config.guard.is_none_or(|g| g.is_sound()) {
            return Err(CouncilError::Guard);
        }
        let standing = arms.default_arm();
        Ok(Council {
            arms,
            config,
            round: 0,
            standing,
            learners: BTreeMap::new(),
            reports: BTreeMap::new(),
            last: BTreeMap::new(),
        })
    }

    /// Takes in a node's report for the current round. A second report of the same node replaces
    /// the first.
    pub fn report(&mut self, report: Observation) {
        self.reports.insert(report.node, report);
    }

    /// How many nodes have reported in this round.
    pub fn reported(&self) -> usize {
        self.reports.len()
    }

    /// The arms.
    pub fn arms(&self) -> &Arms {
        &self.arms
    }

    /// The index of the arm in force.
    pub fn standing(&self) -> usize {
        self.standing
    }

    /// How many decisions were made.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// `arm` is what is in force, whoever chose it: a council that takes over leaves it so until it
    /// has something to say. An arm that there is not is no news.
    pub fn adopt(&mut self, arm: usize) {
        if arm < self.arms.all().len() {
            self.standing = arm;
        }
    }

    /// Learns from the reports of this round, decides, and begins the next.
    ///
    /// The interval in which a node's situation changes belongs to two of them, and may look like a
    /// third: nothing is learned from it, and it has a voice only if that situation is known.
    pub fn decide(&mut self) -> Decision {
        self.round += 1;
        let reports = std::mem::take(&mut self.reports);
        let may_explore = reports.values().all(|r| r.may_explore);
        let now = reports.values().filter_map(|r| Some((r.node, r.context?))).collect();
        let before = std::mem::replace(&mut self.last, now);
        let mut nodes: BTreeMap<Context, usize> = BTreeMap::new();
        let mut rewards: BTreeMap<(Context, usize), Vec<f64>> = BTreeMap::new();
        for report in reports.values() {
            let Some(context) = report.context else { continue };
            let settled = before.get(&report.node) == Some(&context);
            if settled || self.learners.contains_key(&context) {
                *nodes.entry(context).or_default() += 1;
            }
            if let (true, Some(arm), Some(reward)) = (settled, report.arm, report.reward) {
                rewards.entry((context, arm)).or_default().push(reward);
            }
        }
        let guard = self.config.guard;
        for ((context, arm), rewards) in rewards {
            if let Some(learner) = self.learner(context) {
                learner.observe(arm, &rewards, guard.as_ref());
            }
        }

        // One draw for each round and context, not for each node: nodes in the same situation agree,
        // and an experiment is made by all of them or by none.
        let mut rng =
            ChaCha8Rng::seed_from_u64(self.config.seed ^ self.round.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let policy = self.config.policy;
        let mut votes = Vec::new();
        for (context, nodes) in nodes {
            if let Some(learner) = self.learner(context) {
                let recommendation = learner.recommend(&policy, guard.as_ref(), may_explore, &mut rng);
                votes.push(Vote { context, nodes, recommendation });
            }
        }
        let elected = elect(&votes, self.standing);
        let before = self.standing;
        if !self.config.shadow {
            self.standing = elected;
            if let Some(guard) = guard {
                // Those who voted for it bear the risk.
                for vote in votes.iter().filter(|v| v.recommendation.arm == elected) {
                    if let Some(learner) = self.learners.get_mut(&vote.context) {
                        learner.commit(elected, &guard);
                    }
                }
            }
        }
        Decision {
            round: self.round,
            arm: self.standing,
            config: self.arms.all()[self.standing].clone(),
            before,
            instead_of: (self.config.shadow && elected != self.standing).then_some(elected),
            votes,
        }
    }

    fn learner(&mut self, context: Context) -> Option<&mut Learner> {
        let full = self.learners.len() >= MAX_CONTEXTS;
        match self.learners.entry(context) {
            std::collections::btree_map::Entry::Occupied(e) => Some(e.into_mut()),
            std::collections::btree_map::Entry::Vacant(_) if full => None,
            std::collections::btree_map::Entry::Vacant(e) => {
                let arms = &self.arms;
                Some(e.insert(Learner::new(arms.all().len(), arms.default_arm(), self.config.memory)))
            }
        }
    }

    /// Everything learned, to be stored.
    pub fn learned(&self) -> Learned {
        let contexts = self
            .learners
            .iter()
            .map(|(&context, learner)| LearnedContext { context, values: learner.values().clone() })
            .collect();
        Learned::new(self.arms.clone(), self.round, contexts)
    }

    /// Goes on with what was learned before, in place of what is known now. Arms are recognised by
    /// their configuration; those that are no longer declared are left out, new ones are unknown.
    pub fn import(&mut self, learned: &Learned) -> Result<(), KeptError> {
        learned.check()?;
        let from: Vec<Option<usize>> = self.arms.all().iter().map(|a| learned.arms().find(a)).collect();
        let (memory, guard) = (self.config.memory, self.config.guard);
        let default = self.arms.default_arm();
        self.learners = learned
            .contexts()
            .iter()
            .map(|c| {
                (c.context, Learner::resume(c.values.rearranged(&from, memory), default, guard.as_ref()))
            })
            .collect();
        self.round = self.round.max(learned.round());
        Ok(())
    }

    /// Forgets what was learned in `context`, or everything, and goes back to the default arm.
    pub fn reset(&mut self, context: Option<Context>) {
        match context {
            Some(context) => drop(self.learners.remove(&context)),
            None => self.learners.clear(),
        }
        self.standing = self.arms.default_arm();
    }
}

/// The arm with the most nodes behind it; of equal ones the arm in force, or else the first.
fn elect(votes: &[Vote], standing: usize) -> usize {
    let mut nodes: BTreeMap<usize, usize> = BTreeMap::new();
    for vote in votes {
        *nodes.entry(vote.recommendation.arm).or_default() += vote.nodes;
    }
    let most = nodes.values().copied().max().unwrap_or(0);
    if most == 0 || nodes.get(&standing) == Some(&most) {
        return standing;
    }
    nodes.into_iter().find(|&(_, n)| n == most).map_or(standing, |(arm, _)| arm)
}

impl Decision {
    /// In words, with the arms by their [names](Arms::names).
    pub fn explain(&self, names: &[String]) -> String {
        let name = |arm: usize| names.get(arm).map_or("?", String::as_str);
        let outcome = match (self.votes.is_empty(), self.instead_of, self.before == self.arm) {
            (true, ..) => "stays: no node is in a known situation".into(),
            (_, Some(arm), _) => format!("stays (shadow mode; it would be {})", name(arm)),
            (.., true) => "stays".into(),
            (.., false) => format!("in place of {}", name(self.before)),
        };
        let mut text = format!("round {}: {} {outcome}", self.round, name(self.arm));
        for vote in &self.votes {
            let Recommendation { arm, why } = vote.recommendation;
            let plural = if vote.nodes == 1 { "" } else { "s" };
            let why = why.explain(names);
            text += &format!("; {} node{plural} ({}) for {}: {why}", vote.nodes, vote.context, name(arm));
        }
        text
    }

    /// Whether any node's vote for the elected arm was a trial.
    pub fn explores(&self) -> bool {
        let trial = |v: &Vote| {
            v.recommendation.arm == self.arm && matches!(v.recommendation.why, Why::Exploring { .. })
        };
        self.instead_of.is_none() && self.votes.iter().any(trial)
    }
}
