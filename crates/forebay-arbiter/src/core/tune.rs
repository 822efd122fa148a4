//! The council in the core: reports go to it, its decisions to the nodes, what it learned to the store.

use super::{Action, Core, Refusal};
use crate::council::Tuner;
use forebay_control::node::{NodeReport, ToNode};
use forebay_pattern::Model;
use forebay_sched::SchedulerConfig;
use forebay_tune::Learned;
use forebay_types::{Nanos, NodeId, SchedulerSpec};

impl Core {
    /// What is learned about scheduler parameters.
    pub fn tuner(&self) -> &Tuner {
        &self.tuner
    }

    /// Detects access patterns with another model from now on.
    pub fn set_model(&mut self, model: Model) {
        self.tuner.set_model(model);
    }

    /// Goes on with what was learned elsewhere.
    pub fn import_learned(&mut self, now: Nanos, learned: &Learned) -> Result<(), Refusal> {
        let kept = self.tuner.import(now, learned).map_err(|e| Refusal::Invalid(e.to_string()))?;
        self.actions.extend(kept.map(Action::Persist));
        Ok(())
    }

    /// Forgets what was learned in one situation (in the words it is shown in), or everything.
    pub fn reset_learned(&mut self, now: Nanos, context: Option<&str>) -> Result<(), Refusal> {
        let found = match context {
            None => None,
            Some(name) => {
                let all = self.tuner.contexts();
                let found = all.iter().find(|c| c.to_string() == name).copied();
                let none = || Refusal::Unknown(format!("nothing was learned in a situation {name:?}"));
                Some(found.ok_or_else(none)?)
            }
        };
        let (kept, back) = self.tuner.reset(now, found);
        self.actions.extend(kept.map(Action::Persist));
        self.set_schedulers(back);
        Ok(())
    }

    /// A node has come with this scheduler.
    pub(super) fn tune_hello(&mut self, id: NodeId, interval: Nanos, current: &SchedulerSpec) {
        if let Some(set) = self.tuner.joined(id, interval, current) {
            self.actions.push(Action::Send {
                to: id,
                message: ToNode::Scheduler { term: self.term, set: (&set).into() },
            });
        }
    }

    /// A node reports.
    pub(super) fn tune_report(&mut self, now: Nanos, id: NodeId, report: &NodeReport) {
        let willing = |name: &String| self.jobs.get(name).is_none_or(|j| j.stored.request.explore);
        let may_explore = report.jobs.values().all(willing);
        if let Some(set) = self.tuner.report(now, id, report, may_explore) {
            self.actions.push(Action::Send {
                to: id,
                message: ToNode::Scheduler { term: self.term, set: (&set).into() },
            });
        }
        self.tune_round(now);
    }

    /// Time has passed.
    pub(super) fn tune_tick(&mut self, now: Nanos) {
        self.tune_round(now);
        let kept = self.tuner.unsaved(now);
        self.actions.extend(kept.map(Action::Persist));
    }

    fn tune_round(&mut self, now: Nanos) {
        let set = self.tuner.round(now);
        self.set_schedulers(set);
    }

    /// Tells all connected nodes.
    fn set_schedulers(&mut self, set: Option<SchedulerConfig>) {
        let Some(set) = set else { return };
        let message = ToNode::Scheduler { term: self.term, set: (&set).into() };
        let connected = self.connected().into_iter();
        self.actions.extend(connected.map(|to| Action::Send { to, message: message.clone() }));
    }
}
