//! The policy runs, and its decision becomes the mapping.

use super::{Action, Core, unix_ms};
use crate::store::Change;
use forebay_control::view::{DecidedJob, DecisionView};
use forebay_policy::{Decision, Explanation, IoNode, Job, PolicyKind, Pool, Progress, placement};
use forebay_types::{Nanos, NodeId};
use std::collections::BTreeSet;

/// Jobs and pool as the policy saw them, and what it answered.
struct PolicyRun {
    jobs: Vec<Job>,
    /// Where each job's curve comes from.
    sources: Vec<Option<String>>,
    pool: Pool,
    decision: Decision,
    /// What went wrong, where STATIC had to step in.
    problem: Option<String>,
}

/// What is said of a decision that the policy itself asked for.
pub(super) const REVIEW: &str = "a job's allowance is used up";

/// However soon a policy wants to be asked again: moves have to take effect first.
const SOONEST_REVIEW: Nanos = Nanos::from_secs(1);

impl Core {
    /// Something changed: decides, and carries it out.
    pub(super) fn decide(&mut self, now: Nanos, cause: &str) {
        if let Some(made) = self.ask_policy(now) {
            self.adopt(now, cause, &made);
        }
    }

    /// Measurements changed: decides, and carries it out if that is worth the moves.
    pub(super) fn reconsider(&mut self, now: Nanos) {
        let Some(made) = self.ask_policy(now) else { return };
        let value = |job: &Job| {
            let held = job.current.as_ref().filter(|c| !c.shared)?;
            job.bandwidth(held.nodes.len() as u32)
        };
        let (mut held, mut better) = (0.0, 0.0);
        for (job, chosen) in made.jobs.iter().zip(&made.decision.jobs) {
            if let (Some(now), Some(then)) = (value(job).or(chosen.bandwidth), chosen.bandwidth) {
                held += now.0;
                better += then.0;
            }
        }
        if better > held * (1.0 + self.config.min_gain) {
            self.adopt(now, "measurements changed", &made);
        }
    }

    /// What the policy says now; `None` if there is nothing to decide.
    fn ask_policy(&mut self, now: Nanos) -> Option<PolicyRun> {
        self.decided = now;
        self.decided_news = self.curves.news();
        self.review = None;
        let pool = Pool {
            nodes: self.nodes.iter().map(|(&id, n)| IoNode { id, admitted: n.admitted() }).collect(),
            compute_nodes: self.config.compute_nodes,
            direct: self.jobs.values().any(|j| j.stored.request.direct),
            sharing: self.config.sharing,
        };
        if self.jobs.is_empty() || pool.available() == 0 {
            return None;
        }
        let (jobs, sources): (Vec<Job>, Vec<_>) =
            self.in_order().iter().map(|id| self.policy_job(now, id)).unzip();
        let (decision, problem) = self.decide_on(&jobs, &pool)?;
        self.review = decision.review.map(|r| now + r.max(SOONEST_REVIEW));
        Some(PolicyRun { jobs, sources, pool, decision, problem })
    }

    /// The policy decides on all jobs but those that an admin has pinned; nor has it these jobs' I/O nodes to give, as long as
    /// there is one left for every other job.
    fn decide_on(&self, jobs: &[Job], pool: &Pool) -> Option<(Decision, Option<String>)> {
        let pins: Vec<Vec<NodeId>> = jobs
            .iter()
            .map(|j| self.pinned(&j.id, j.current.as_ref().map_or(&[][..], |held| &held.nodes)))
            .collect();
        let free: Vec<Job> =
            jobs.iter().zip(&pins).filter(|(_, pins)| pins.is_empty()).map(|(j, _)| j.clone()).collect();
        let mut left = pool.clone();
        for node in left.nodes.iter_mut().filter(|n| pins.iter().any(|p| p.contains(&n.id))) {
            node.admitted = false;
        }
        let left = if (left.available() as usize) < free.len() { pool } else { &left };
        let (mut decision, problem) = match self.policy.decide(&free, left) {
            Ok(decision) => (decision, None),
            Err(e) => {
                let fixed =
                    PolicyKind::Static.build(&self.config.settings).and_then(|p| p.decide(&free, left));
                match fixed {
                    Ok(d) => (d, Some(format!("{} failed ({e}), so STATIC decides", self.config.policy))),
                    // There is nothing to decide about: all are pinned.
                    Err(_) if free.is_empty() => (Decision::nothing(self.config.policy, left), None),
                    Err(_) => return None,
                }
            }
        };
        let mut chosen = std::mem::take(&mut decision.jobs).into_iter();
        for (job, pins) in jobs.iter().zip(pins) {
            decision.jobs.extend(if pins.is_empty() { chosen.next() } else { Some(job.pinned_to(pins)) });
        }
        decision.io_nodes = pool.available();
        decision.total.0 =
            decision.jobs.iter().filter_map(|j| j.bandwidth).map(|b| b.0).fold(0.0, |a, b| a + b);
        Some((decision, problem))
    }

    /// The jobs' names in the order in which they registered.
    fn in_order(&self) -> Vec<String> {
        let mut names: Vec<(u64, &String)> = self.jobs.iter().map(|(id, j)| (j.stored.order, id)).collect();
        names.sort_unstable();
        names.into_iter().map(|(_, id)| id.clone()).collect()
    }

    fn policy_job(&self, now: Nanos, id: &str) -> (Job, Option<String>) {
        let job = &self.jobs[id];
        let r = &job.stored.request;
        let scale = job.scale();
        let past = self.runs.predict(&scale);
        let shape = job.activity.shape.as_ref().or(past.and_then(|p| p.shape.as_ref()));
        let (curve, source) = self.curves.of(job.asked(&scale, shape)).map(|k| (k.curve, k.source)).unzip();
        let progress = job.activity.first.map(|first| Progress {
            elapsed: now.since(first),
            served_bytes: job.activity.bytes,
            volume_bytes: past.map(|p| p.profile.bytes),
        });
        let job = Job {
            app: scale.0,
            user: scale.1,
            curve: curve.map(Into::into),
            weight: f64::from(r.weight),
            current: job.stored.held.clone(),
            progress,
            history: past.map(|p| p.profile),
            live: job.activity.profile(r.compute_nodes),
            direct: r.direct,
            quiet: self.quiet(now, job),
            default_nodes: self.default_nodes(job),
            ..Job::new(r.id.clone(), r.compute_nodes, r.processes)
        };
        (job, source)
    }

    /// Whether all of a job's I/O nodes report, and have had nothing to report of it for long.
    fn quiet(&self, now: Nanos, job: &super::Job) -> bool {
        let heard = |n: &NodeId| self.nodes.get(n).is_some_and(|n| n.report.is_some());
        let since = job.activity.worked.max(job.moved).max(self.started);
        let long = now.since(since).as_secs_f64() >= self.config.settings.dfra.quiet_seconds;
        long && !job.nodes().is_empty() && job.nodes().iter().all(heard)
    }

    /// Makes the decision the mapping: new epochs for the jobs that move, stored and told.
    fn adopt(&mut self, now: Nanos, cause: &str, made: &PolicyRun) {
        let mut placed = placement::place(&made.decision, &made.jobs, &made.pool);
        let explained = made.decision.explain(&made.jobs, &made.pool);
        let own = |i: usize| made.decision.jobs[i].held(Vec::new()).dedicated;
        let owned: BTreeSet<NodeId> =
            (0..made.jobs.len()).filter(|i| own(*i)).flat_map(|i| placed[i].clone()).collect();
        let mut shown = Vec::with_capacity(made.jobs.len());
        let mut moved = Vec::new();
        for i in 0..made.jobs.len() {
            let chosen = &made.decision.jobs[i];
            let direct = made.jobs[i].direct && chosen.io_nodes == 0 && !chosen.shared;
            if placed[i].is_empty() && !direct {
                // Whatever the policy thinks of it, a job is somewhere.
                let used = |n: NodeId| placed.iter().filter(|p| p.contains(&n)).count();
                let any = made.pool.admitted().min_by_key(|n| (owned.contains(n), used(*n)));
                placed[i] = any.into_iter().collect();
            }
            let mut nodes = std::mem::take(&mut placed[i]);
            let before = made.jobs[i].current.as_ref().map_or(Vec::new(), |c| c.nodes.clone());
            let pinned = self.pinned(&made.jobs[i].id, &before);
            let mapped = self.mapped(&made.jobs[i].id, &before);
            if !pinned.is_empty() {
                nodes = pinned.clone();
            } else if !mapped.is_empty() {
                nodes = mapped.clone();
            }
            nodes.retain(|n| self.admits(*n, &before));
            let direct = direct && pinned.is_empty() && mapped.is_empty();
            if nodes.is_empty() && !direct {
                // Those it was to have may still come back: until then it stays, or shares.
                let used = |n: NodeId| placed.iter().filter(|p| p.contains(&n)).count();
                let there = made.pool.admitted().filter(|n| self.admits(*n, &[]));
                let there = there.min_by_key(|n| (owned.contains(n), used(*n)));
                nodes.extend(before.iter().filter(|n| self.admits(**n, &before)));
                nodes.extend(there.filter(|_| nodes.is_empty()));
            }
            shown.push(decided(&explained[i], &nodes, before, made.sources[i].clone()));
            if !pinned.is_empty() {
                shown[i].why = "pinned to these I/O nodes".to_owned();
            } else if !mapped.is_empty() {
                shown[i].why = "the site's map says so".to_owned();
            }
            if (direct || !nodes.is_empty()) && self.place(now, made, i, nodes.clone(), &shown[i].why) {
                moved.push(made.jobs[i].id.clone());
            }
            placed[i] = nodes;
        }
        self.broadcast(&moved, &[]);
        if !moved.is_empty() {
            self.divide_limits(now);
        }
        if moved.is_empty() && cause == REVIEW {
            // Nothing happened and nothing came of it.
            return;
        }
        self.actions.push(Action::Decided(Box::new(DecisionView {
            id: self.next_decision,
            unix_ms: unix_ms(now),
            term: self.term,
            policy: made.decision.policy.name().to_owned(),
            cause: made.problem.as_ref().map_or(cause.to_owned(), |p| format!("{cause}; {p}")),
            io_nodes: made.decision.io_nodes,
            total_mbs: made.decision.total.0,
            took_us: 0,
            jobs: shown,
        })));
        self.next_decision += 1;
    }

    /// The I/O nodes an admin wants the job on, as far as they are admitted.
    fn pinned(&self, id: &str, held: &[NodeId]) -> Vec<NodeId> {
        let wanted = self.jobs.get(id).map_or(&[][..], |j| &j.stored.pinned);
        wanted.iter().copied().filter(|n| self.admits(*n, held)).collect()
    }

    /// The I/O nodes that other jobs have for themselves.
    pub(super) fn dedicated_to_others(&self, id: &str) -> BTreeSet<NodeId> {
        let others =
            self.jobs.iter().filter(|(other, _)| *other != id).filter_map(|(_, j)| j.stored.held.as_ref());
        others.filter(|h| h.dedicated).flat_map(|h| &h.nodes).copied().collect()
    }

    /// An I/O node for what a job that goes direct has open still: where it is, or that has the fewest jobs.
    fn stand_by(&self, id: &str) -> Option<String> {
        let at = |n: &super::Node| n.stored.addresses.first().cloned();
        let there = |n: &super::Node| at(n).filter(|_| n.admitted() && n.hello.is_some());
        let known = &self.jobs.get(id)?.stored.addresses;
        let stays = self.nodes.values().filter_map(there).find(|a| known.contains(a));
        let users = |n: &NodeId| self.jobs.values().filter(|j| j.nodes().contains(n)).count();
        let owned = self.dedicated_to_others(id);
        let free = || {
            let all = self.nodes.iter().filter_map(|(n, node)| Some((n, there(node)?)));
            all.min_by_key(|(n, _)| (owned.contains(n), users(n))).map(|(_, a)| a)
        };
        stays.or_else(free)
    }

    /// One job gets its nodes; whether that is another mapping than it had.
    fn place(&mut self, now: Nanos, made: &PolicyRun, i: usize, nodes: Vec<NodeId>, why: &str) -> bool {
        let address = |n: &NodeId| self.nodes.get(n).and_then(|n| n.stored.addresses.first().cloned());
        let direct = nodes.is_empty();
        let addresses: Vec<String> = match direct {
            true => self.stand_by(&made.jobs[i].id).into_iter().collect(),
            false => nodes.iter().filter_map(address).collect(),
        };
        let Some(job) = self.jobs.get_mut(&made.jobs[i].id) else { return false };
        let chosen = &made.decision.jobs[i];
        job.reason = why.to_owned();
        job.predicted = chosen.bandwidth.map(|b| b.0);
        job.curve = made.sources[i].clone();
        let held = chosen.held(nodes);
        let moves = job.stored.addresses != addresses || job.stored.direct != direct;
        if !moves && job.stored.held.as_ref() == Some(&held) {
            return false;
        }
        job.stored.held = Some(held);
        (job.stored.addresses, job.stored.direct) = (addresses, direct);
        if moves {
            job.moved = now;
            let epoch = self.next_epoch();
            self.actions.push(Action::Persist(Change::Epoch(epoch)));
        }
        let epoch = self.epoch;
        let Some(job) = self.jobs.get_mut(&made.jobs[i].id) else { return false };
        if moves {
            job.stored.epoch = epoch;
        }
        self.actions.push(Action::Persist(Change::Job(Box::new(job.stored.clone()))));
        moves
    }
}

fn decided(e: &Explanation, nodes: &[NodeId], before: Vec<NodeId>, curve: Option<String>) -> DecidedJob {
    DecidedJob {
        id: e.id.clone(),
        nodes: nodes.to_vec(),
        before,
        shared: e.shared,
        predicted_mbs: e.bandwidth.map(|b| b.0),
        static_io_nodes: e.static_io_nodes,
        gain_mbs: e.gain,
        alternatives: e.alternatives.iter().map(|a| (a.io_nodes, a.bandwidth.0)).collect(),
        curve,
        why: e.why.clone(),
    }
}
