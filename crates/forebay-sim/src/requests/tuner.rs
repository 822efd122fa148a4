//! The production detector and council over simulated I/O nodes, as the arbiter drives them: reports
//! of an interval in, one scheduler for all nodes out.

use super::Observer;
use forebay_pattern::{Interval, Model};
use forebay_sched::SchedulerConfig;
use forebay_tune::{Context, Council, Observation, RewardRule};
use forebay_types::{Nanos, NodeId};

/// One decision of the council.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    /// When.
    pub at: Nanos,
    /// In which situation most nodes were, if any was in one.
    pub context: Option<Context>,
    /// The arm from then on.
    pub arm: usize,
    /// The reward of the interval before, in the mean over the nodes.
    pub reward: Option<f64>,
}

/// A council that watches.
#[derive(Debug)]
pub struct Tuner {
    council: Council,
    model: Model,
    rule: RewardRule,
    /// What was decided.
    pub decisions: Vec<Decided>,
}

impl Tuner {
    /// With a council and a detector.
    pub fn new(council: Council, model: Model) -> Tuner {
        Tuner { council, model, rule: RewardRule::default(), decisions: Vec::new() }
    }

    /// The council.
    pub fn council(&self) -> &Council {
        &self.council
    }
}

impl Observer for Tuner {
    fn observe(&mut self, now: Nanos, intervals: &[Interval]) -> Option<SchedulerConfig> {
        let arm = self.council.standing();
        let (mut rewards, mut first) = (Vec::new(), None);
        for (n, interval) in intervals.iter().enumerate() {
            let context = interval.dominant().and_then(|flow| {
                let pattern = self.model.detect(flow).pattern;
                Context::of(flow, pattern)
            });
            let reward = self.rule.reward(&interval.load, interval.end.since(interval.start));
            rewards.extend(reward);
            first = first.or(context);
            self.council.report(Observation {
                node: NodeId(n as u32),
                arm: Some(arm),
                context,
                reward,
                may_explore: true,
            });
        }
        let decision = self.council.decide();
        let reward = (!rewards.is_empty()).then(|| rewards.iter().sum::<f64>() / rewards.len() as f64);
        self.decisions.push(Decided { at: now, context: first, arm: decision.arm, reward });
        (decision.arm != decision.before).then_some(decision.config)
    }
}
