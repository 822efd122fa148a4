//! Limits. One holds for all I/O nodes of its jobs together: it is divided among them by
//! what each uses, and each is told its part, and who has the others. Nodes enforce theirs whatever becomes
//! of the arbiter, and give each other what they do not use: a division is never quite what clients do.

use super::guarantees::Peaks;
use super::{Action, Core, Refusal, unix_ms};
use crate::store::Change;
use forebay_control::job::{check_name, printable};
use forebay_control::limit::{Limit, LimitView, PlaceView, Rates, Subject};
use forebay_control::node::{JobShare, JobUse, ToNode};
use forebay_pattern::FlowMetrics;
use forebay_sched::limit::{Bound, Demand, KINDS, divide, least};
use forebay_sched::{Algorithm, SchedulerConfig};
use forebay_types::{Nanos, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// Limits that are kept at most.
const MOST: usize = 1000;
/// Nodes report every second: by then each has told of an interval that began after the last division.
const ROUND: Nanos = Nanos::from_millis(2200);
/// Not more often than this, when nodes say that one of their limits is too narrow or too wide.
const SOON: Nanos = Nanos::from_millis(90);
/// What a node said of its limits is better than a report for so long.
const FRESH: Nanos = Nanos::from_millis(1500);
/// What a node used counts for so long.
const RECENT: Nanos = Nanos::from_secs(3);
/// Other nodes that a node is to share its service with, or a job's limit, at most.
const PEERS: usize = 64;

type At = (String, NodeId);

/// All limits, and what they were divided by.
#[derive(Default)]
pub(super) struct Limits {
    all: BTreeMap<String, DividedLimit>,
    /// What each job may have where, of each kind that one of its limits is about.
    parts: BTreeMap<At, [f64; KINDS]>,
    uses: BTreeMap<At, Use>,
    pub(super) peaks: Peaks,
    told: BTreeMap<NodeId, Announced>,
    due: Nanos,
    divided: Nanos,
}

struct DividedLimit {
    limit: Limit,
    /// Where its jobs are.
    places: BTreeSet<At>,
    /// An arbiter before this one divided it: nodes that have not come yet have parts of it.
    inherited: bool,
}

struct Use {
    at: Nanos,
    rates: [f64; KINDS],
    /// What held it back; unknown where only the interval was reported.
    held: Option<[bool; KINDS]>,
    /// When it was last seen to do anything.
    worked: Nanos,
}

#[derive(Clone, Default, PartialEq)]
struct Announced {
    jobs: Vec<JobShare>,
    peers: Vec<String>,
}

impl Limits {
    pub(super) fn restore(
        kept: &BTreeMap<String, Limit>,
        learned: &BTreeMap<String, serde_json::Value>,
    ) -> Limits {
        let held = |l: &Limit| DividedLimit { limit: l.clone(), places: BTreeSet::new(), inherited: true };
        let all = kept.iter().map(|(id, l)| (id.clone(), held(l))).collect();
        Limits { all, peaks: Peaks::restore(learned), ..Limits::default() }
    }

    pub(super) fn kept(&self) -> BTreeMap<String, Limit> {
        self.all.iter().map(|(id, held)| (id.clone(), held.limit.clone())).collect()
    }

    /// The node starts afresh, or is gone: it has to be told everything.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.told.remove(&node);
    }

    /// A node reports what it did for a job.
    pub(super) fn used(&mut self, now: Nanos, node: NodeId, job: &str, span: Nanos, flow: &FlowMetrics) {
        if self.all.is_empty() || span == Nanos::ZERO {
            return;
        }
        let at = (job.to_owned(), node);
        // What a node says of its limits is fresher.
        if self.uses.get(&at).is_some_and(|u| u.held.is_some() && now.since(u.at) < FRESH) {
            return;
        }
        let amounts = [flow.served as f64, flow.data_requests() as f64, flow.metadata as f64];
        let rates = amounts.map(|a| a / span.as_secs_f64());
        self.used_at(now, at, rates, None);
    }

    /// A node tells what its limited jobs have used of late. Whether the limits are to be divided anew.
    pub(super) fn used_of_late(&mut self, now: Nanos, node: NodeId, jobs: Vec<JobUse>) -> bool {
        if self.all.is_empty() {
            return false;
        }
        let mut news = false;
        for JobUse { job, used, held } in jobs {
            news |= self.used_at(now, (job, node), used, Some(held)) != Some(held);
        }
        news || now.since(self.divided) >= SOON
    }

    /// What held it back before.
    fn used_at(
        &mut self,
        now: Nanos,
        at: At,
        rates: [f64; KINDS],
        held: Option<[bool; KINDS]>,
    ) -> Option<[bool; KINDS]> {
        let works = rates.iter().any(|r| *r > 0.0) || held.is_some_and(|h| h.contains(&true));
        let before = self.uses.get(&at).map(|u| (u.held, u.worked));
        let worked = if works { now } else { before.map_or(Nanos::ZERO, |b| b.1) };
        self.uses.insert(at, Use { at: now, rates, held, worked });
        before.and_then(|b| b.0)
    }

    /// What a subject has at least.
    pub(super) fn at_least(&self, subject: &Subject) -> Option<f64> {
        self.all.get(&subject.to_string()).and_then(|h| h.limit.at_least)
    }

    /// Whether anybody has something at least.
    pub(super) fn guarantee(&self) -> bool {
        self.all.values().any(|h| h.limit.at_least.is_some())
    }

    /// What all limits together leave to a job on a node, and on all its nodes.
    fn leaves(&self, at: &At) -> (Rates, Rates) {
        let Some(part) = self.parts.get(at) else { return Default::default() };
        let left = |held: &DividedLimit| (held.limit.leaves(part), held.limit.most);
        self.all.values().filter(|h| h.places.contains(at)).map(left).fold(Default::default(), strictest)
    }

    /// Gives every place its part of all limits that it is under.
    fn divide(&mut self) {
        let at: BTreeSet<&At> = self.all.values().flat_map(|h| &h.places).collect();
        let number: BTreeMap<&At, usize> = at.iter().enumerate().map(|(i, at)| (*at, i)).collect();
        let mut parts = vec![[0.0; KINDS]; at.len()];
        for kind in 0..KINDS {
            let mut demands: Vec<Demand> = at.iter().map(|at| self.demand(at, kind)).collect();
            let mut bounds = Vec::new();
            for held in self.all.values().filter(|h| !h.places.is_empty()) {
                let Some(total) = held.limit.most.all()[kind] else { continue };
                let of: Vec<usize> = held.places.iter().map(|at| number[at]).collect();
                // While some who have a part are not there to say so, who has one keeps it, and who has none can begin.
                let missing = held.inherited.then(|| least(total, of.len()));
                for (at, i) in held.places.iter().zip(&of).filter(|_| held.inherited) {
                    let part = self.parts.get(at).map(|p| p[kind]).filter(|p| *p > 0.0);
                    demands[*i].most = demands[*i].most.min(part.or(missing).unwrap_or(total));
                }
                bounds.push(Bound { total, of });
            }
            for (part, share) in parts.iter_mut().zip(divide(&bounds, &demands)) {
                part[kind] = share;
            }
        }
        self.parts = at.into_iter().cloned().zip(parts).collect();
    }

    /// What is known of a job on a node.
    fn demand(&self, at: &At, kind: usize) -> Demand {
        let of_late = self.uses.get(at);
        Demand {
            used: of_late.map_or(0.0, |u| u.rates[kind]),
            share: self.parts.get(at).map_or(0.0, |p| p[kind]),
            held: of_late.and_then(|u| u.held).map(|held| held[kind]),
            most: f64::INFINITY,
        }
    }

    /// The other nodes that have a part of a job's limits: those after this one, and around.
    fn others(&self, job: &str, node: NodeId) -> BTreeSet<NodeId> {
        let parts = self.all.values().filter(|h| !h.limit.most.is_none()).flat_map(|h| &h.places);
        let all: BTreeSet<NodeId> = parts.filter(|(id, _)| id == job).map(|(_, n)| *n).collect();
        let after = all.iter().filter(|n| **n > node);
        after.chain(all.iter().filter(|n| **n < node)).take(PEERS).copied().collect()
    }
}

impl Core {
    /// From now on, in place of an earlier one for the same subject.
    pub fn set_limit(&mut self, now: Nanos, limit: Limit) -> Result<LimitView, Refusal> {
        check(&limit, unix_ms(now))?;
        let id = limit.subject.to_string();
        if !self.limits.all.contains_key(&id) && self.limits.all.len() >= MOST {
            return Err(Refusal::Full(format!("there are {MOST} limits already: remove some")));
        }
        self.actions.push(Action::Persist(Change::Limit(Box::new(limit.clone()))));
        self.limits.all.insert(id.clone(), DividedLimit { limit, places: BTreeSet::new(), inherited: false });
        self.keep_peaks_now(now);
        self.divide_limits(now);
        self.limits()
            .into_iter()
            .find(|l| l.id == id)
            .ok_or_else(|| Refusal::Unknown(format!("there is no limit {id:?}")))
    }

    /// Refuses whoever has not seen what holds now.
    pub fn limit_is(&self, id: &str, was: Option<&Limit>) -> Result<(), Refusal> {
        if self.limits.all.get(id).map(|held| &held.limit) == was {
            return Ok(());
        }
        Err(Refusal::Conflict(format!(
            "somebody has changed the limit of {id} meanwhile: nothing was changed now"
        )))
    }

    /// It holds no longer.
    pub fn remove_limit(&mut self, now: Nanos, id: &str) -> Result<(), Refusal> {
        if self.limits.all.remove(id).is_none() {
            return Err(Refusal::Unknown(format!(
                "there is no limit {id:?}: `forebay limit list` shows them"
            )));
        }
        self.actions.push(Action::Persist(Change::LimitRemoved(id.to_owned())));
        self.divide_limits(now);
        Ok(())
    }

    /// All limits, and what they leave to whom.
    pub fn limits(&self) -> Vec<LimitView> {
        let place = |at: &At, held: &DividedLimit| {
            let (job, node) = at;
            let limit = self.limits.parts.get(at).map_or(Rates::default(), |part| held.limit.leaves(part));
            let weight = held.limit.at_least.and_then(|_| self.weights_on(*node).get(job).copied());
            let job = job.clone();
            PlaceView { node: *node, share: JobShare { job, limit, weight, ..JobShare::default() } }
        };
        let view = |(id, held): (&String, &DividedLimit)| LimitView {
            id: id.clone(),
            limit: held.limit.clone(),
            shares: held.places.iter().map(|at| place(at, held)).collect(),
            notes: self.notes_on(held),
        };
        self.limits.all.iter().map(view).collect()
    }

    /// What is not as whoever set the limit may think.
    fn notes_on(&self, held: &DividedLimit) -> Vec<String> {
        let subject = &held.limit.subject;
        let own: Vec<&super::Job> =
            self.jobs.iter().filter(|(id, _)| self.is_of(id, subject)).map(|(_, job)| job).collect();
        let mut notes = Vec::new();
        if own.is_empty() {
            notes.push("there is no such job at present: it holds for those to come".to_owned());
        }
        if let Some(job) = own.iter().find(|j| j.stored.direct) {
            let id = &job.stored.request.id;
            notes.push(format!(
                "job {id} does its I/O itself, as the policy wanted: it has no I/O node on which it could be limited"
            ));
        }
        if held.limit.at_least.is_some() {
            let nodes: BTreeSet<NodeId> = own.iter().flat_map(|j| j.nodes()).copied().collect();
            for (id, node) in nodes.iter().filter_map(|n| Some((n, self.nodes.get(n)?))) {
                if let Some(scheduler) = scheduler_of(node).filter(|s| !s.knows_weights()) {
                    let name = scheduler.name();
                    notes.push(format!(
                        "I/O node {id} has the scheduler {name}, which knows no weights: nothing is guaranteed there"
                    ));
                }
            }
        }
        notes
    }

    /// Time has passed.
    pub(super) fn limits_tick(&mut self, now: Nanos) {
        let over = |held: &DividedLimit| held.limit.until_unix_ms.is_some_and(|t| t <= unix_ms(now));
        let ended: Vec<String> =
            self.limits.all.iter().filter(|(_, h)| over(h)).map(|(id, _)| id.clone()).collect();
        for id in &ended {
            self.limits.all.remove(id);
            self.actions.push(Action::Persist(Change::LimitRemoved(id.clone())));
        }
        if now >= self.limits.due || !ended.is_empty() {
            self.divide_limits(now);
        }
    }

    /// Divides every limit anew, and tells the nodes for which something changed.
    pub(super) fn divide_limits(&mut self, now: Nanos) {
        (self.limits.due, self.limits.divided) = (now + ROUND, now);
        self.limits.uses.retain(|_, u| now.since(u.at) < RECENT);
        let mut all = std::mem::take(&mut self.limits.all);
        for held in all.values_mut() {
            let before = std::mem::replace(&mut held.places, self.places_of(now, &held.limit.subject));
            // Those that may still come have parts of which nothing is known.
            held.inherited &= self.nodes.values().any(|n| n.hello.is_none() && !n.lost());
            if held.inherited {
                held.places.extend(before);
                held.places.retain(|(_, node)| self.nodes.get(node).is_some_and(|n| n.hello.is_some()));
            }
        }
        self.limits.all = all;
        self.limits.divide();
        for id in self.connected() {
            let say = Announced { jobs: self.shares_on(id), peers: self.peers_of(id) };
            let told = self.limits.told.get(&id);
            if say != told.cloned().unwrap_or_default() {
                let (term, jobs, peers) = (self.term, say.jobs.clone(), say.peers.clone());
                self.limits.told.insert(id, say);
                self.actions.push(Action::Send { to: id, message: ToNode::Shares { term, jobs, peers } });
            }
        }
    }

    /// What a node that comes was told by an arbiter before this one: it holds until all of them are here.
    pub(super) fn adopt_shares(&mut self, node: NodeId, shares: &[JobShare]) {
        let mut all = std::mem::take(&mut self.limits.all);
        for share in shares.iter().filter(|s| !s.standby) {
            let rates = share.limit.all().map(|r| r.filter(|r| r.is_finite()).unwrap_or(0.0).max(0.0));
            let at = (share.job.clone(), node);
            let mut limited = false;
            for held in all.values_mut().filter(|h| self.is_of(&share.job, &h.limit.subject)) {
                held.places.insert(at.clone());
                limited = true;
            }
            if limited {
                self.limits.parts.entry(at).or_insert(rates);
            }
        }
        self.limits.all = all;
        // What it is to have no more has to be said, too.
        if !shares.is_empty() {
            self.limits.told.insert(node, Announced { jobs: shares.to_vec(), peers: Vec::new() });
        }
    }

    fn is_of(&self, job: &str, subject: &Subject) -> bool {
        let Some(job) = self.jobs.get(job) else { return false };
        let r = &job.stored.request;
        match subject {
            Subject::Job(id) => r.id == *id,
            Subject::User(user) => r.user == *user,
            Subject::App(app) => r.app == *app,
        }
    }

    /// Where the subject's jobs are, and where they were a moment ago: clients take their time to move.
    fn places_of(&self, now: Nanos, subject: &Subject) -> BTreeSet<At> {
        let there = |n: &NodeId| self.nodes.get(n).is_some_and(|n| !n.lost());
        let mut places = BTreeSet::new();
        for (id, job) in self.jobs.iter().filter(|(id, _)| self.is_of(id, subject)) {
            places.extend(job.nodes().iter().filter(|n| there(n)).map(|n| (id.clone(), *n)));
        }
        let recent = self.limits.uses.iter().filter(|(_, u)| now.since(u.worked) < RECENT).map(|(at, _)| at);
        places.extend(recent.filter(|(id, n)| there(n) && self.is_of(id, subject)).cloned());
        places
    }

    /// What is to be said to a node about its jobs: those with limits or guarantees, and those that had.
    fn shares_on(&self, node: NodeId) -> Vec<JobShare> {
        let told = self.limits.told.get(&node).map_or(&[][..], |t| &t.jobs);
        let weights = self.weights_on(node);
        let mut shares = Vec::new();
        for (id, job) in &self.jobs {
            let (mut limit, mut whole) = self.limits.leaves(&(id.clone(), node));
            // Where its clients go when their node is gone, nobody may be there to say more.
            let standby = limit.is_none();
            if standby {
                (limit, whole) = self.standby(id);
            }
            let base = job.stored.request.weight;
            let before = told.iter().find(|s| s.job == *id);
            let weight = match weights.get(id) {
                Some(weight) => Some(*weight),
                None if before.is_some_and(|s| s.weight.is_some_and(|w| w != base)) => Some(base),
                None => None,
            };
            if !limit.is_none() || weight.is_some() {
                let address = |n: NodeId| Some((n, self.nodes.get(&n)?.stored.addresses.first()?.clone()));
                let others = match limit.is_none() || standby {
                    true => Vec::new(),
                    false => self.limits.others(id, node).into_iter().filter_map(address).collect(),
                };
                let standby = standby && !limit.is_none();
                shares.push(JobShare { job: id.clone(), limit, whole, others, standby, weight });
            }
        }
        shares
    }

    /// What a job may have on a node that has no part of it, and on all together: as much as on the one of its nodes that
    /// has most.
    fn standby(&self, job: &str) -> (Rates, Rates) {
        let of = self.limits.all.values().filter(|h| !h.limit.most.is_none());
        let left = of.filter(|h| self.is_of(job, &h.limit.subject)).map(|held| {
            let own = held.places.iter().filter(|(id, _)| id == job);
            let own = own.filter_map(|at| self.limits.parts.get(at).copied());
            let most = own.reduce(|a, b| std::array::from_fn(|kind| a[kind].max(b[kind])));
            (most.map_or(held.limit.most, |most| held.limit.leaves(&most)), held.limit.most)
        });
        left.fold(Default::default(), strictest)
    }

    /// The nodes that a node tells what it serves, where that changes anything: the other nodes of its jobs
    /// that have several jobs and a scheduler that shares in proportion.
    fn peers_of(&self, id: NodeId) -> Vec<String> {
        let fair = |n: &super::Node| {
            let algorithm = scheduler_of(n).map(|c| c.algorithm);
            matches!(algorithm, Some(Algorithm::Sfq(_) | Algorithm::SfqD(_) | Algorithm::SfqDPlus(_)))
        };
        if !self.nodes.get(&id).is_some_and(fair) {
            return Vec::new();
        }
        let on = |id: NodeId| self.jobs.values().filter(move |j| j.nodes().contains(&id));
        let others: BTreeSet<NodeId> =
            on(id).flat_map(|j| j.nodes()).copied().filter(|n| *n != id && on(*n).nth(1).is_some()).collect();
        let address = |n: &NodeId| {
            let node = self.nodes.get(n).filter(|n| n.admitted() && fair(n))?;
            node.stored.addresses.first().cloned()
        };
        others.iter().filter_map(address).take(PEERS).collect()
    }
}

/// Of each kind, here and on all I/O nodes.
fn strictest(a: (Rates, Rates), b: (Rates, Rates)) -> (Rates, Rates) {
    (a.0.min(&b.0), a.1.min(&b.1))
}

/// The scheduler in force on a node.
fn scheduler_of(node: &super::Node) -> Option<SchedulerConfig> {
    let reported = node.report.as_ref().and_then(|r| r.scheduler.as_ref());
    let scheduler = reported.or(node.hello.as_ref().map(|h| &h.scheduler));
    scheduler.and_then(|s| SchedulerConfig::try_from(s).ok())
}

fn check(limit: &Limit, now_unix_ms: u64) -> Result<(), Refusal> {
    let invalid = |what: &str| Err(Refusal::Invalid(what.to_owned()));
    let name = limit.subject.name();
    let fits = match &limit.subject {
        _ if name.is_empty() => Err("is empty".to_owned()),
        Subject::Job(name) => check_name(name),
        Subject::User(_) | Subject::App(_) if name.contains('/') => Err("has a slash".to_owned()),
        Subject::User(_) | Subject::App(_) => printable(name),
    };
    if let Err(why) = fits {
        return Err(Refusal::Invalid(format!("no job, user or application has this name: it {why}")));
    }
    let numbers = limit.most.all().into_iter().chain([limit.at_least]).flatten();
    if !numbers.clone().all(|n| n >= 1.0) {
        return invalid("a limit is at least 1 a second; to stop a job, end it");
    }
    if !numbers.clone().all(|n| n <= 1e15) {
        return invalid("a limit is at most 1e15 a second; without one there is none");
    }
    if limit.at_least.zip(limit.most.bandwidth).is_some_and(|(least, most)| least > most) {
        return invalid("more is guaranteed than is allowed: the guarantee is above the bandwidth");
    }
    if numbers.count() == 0 {
        return invalid(
            "nothing is limited: give a bandwidth, operations, metadata operations or a guarantee",
        );
    }
    if limit.until_unix_ms.is_some_and(|t| t <= now_unix_ms) {
        return invalid("the limit would end before it began");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
