//! A job queue on a machine, in virtual time: strict FIFO for compute nodes, the policy called
//! whenever the running jobs change, a job's duration from its volume and the bandwidth it gets.

use crate::history;
use forebay_policy::{
    BandwidthCurve, Decision, Job, PolicyError, PolicyKind, Pool, Progress, Settings, placement,
};
use forebay_types::IoMode;
use forebay_types::{Nanos, NodeId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A machine, applications and the jobs submitted to it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueFile {
    /// Where it comes from.
    #[serde(default)]
    pub note: String,
    /// Compute nodes of the machine.
    pub compute_nodes: u32,
    /// I/O nodes of the machine.
    pub io_nodes: u32,
    /// Whether jobs may go to the file system directly.
    #[serde(default)]
    pub direct: bool,
    /// How often a running job looks whether it has other I/O nodes now, in seconds from its start; 0: it is told at once.
    #[serde(default)]
    pub look_seconds: f64,
    /// By name.
    pub applications: BTreeMap<String, Application>,
    /// In the order of submission.
    pub queue: Vec<Submission>,
}

/// An application: its size and how fast its I/O is.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Application {
    /// Compute nodes.
    pub compute_nodes: u32,
    /// Processes.
    pub processes: u32,
    /// What one run reads and writes, 10^9 bytes.
    pub gigabytes: f64,
    /// MB/s by I/O nodes.
    pub curve: BandwidthCurve,
    /// How its processes use files.
    pub mode: IoMode,
    /// Where the figures come from.
    #[serde(default)]
    pub note: String,
}

/// One job of the queue.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Submission {
    /// Which application.
    pub app: String,
    /// When it is submitted, in seconds from the start.
    #[serde(default)]
    pub arrival: f64,
    /// Its weight, for fair MCKP.
    #[serde(default = "one")]
    pub weight: f64,
}

fn one() -> f64 {
    1.0
}

/// Why a queue cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// Not the JSON of a queue.
    #[error("not a queue: {0}")]
    Json(#[from] serde_json::Error),
    /// It makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// The policy refused.
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

impl QueueFile {
    /// The queue that ships with Forebay: 14 jobs, 96 compute nodes, 12 I/O nodes.
    pub const BUILT_IN: &str = include_str!("../../../data/queue14.json");

    /// The other queue of the same experiment: HACC, SIM and S3D.
    pub const THREE: &str = include_str!("../../../data/queue3.json");

    /// Reads and checks a queue.
    pub fn parse(json: &str) -> Result<QueueFile, QueueError> {
        let file: QueueFile = serde_json::from_str(json)?;
        file.check()?;
        Ok(file)
    }

    fn check(&self) -> Result<(), QueueError> {
        let invalid = |what: String| Err(QueueError::Invalid(what));
        if self.queue.is_empty() {
            return invalid("the queue is empty".to_owned());
        }
        if self.io_nodes > 100_000 {
            return invalid(format!("{} I/O nodes are more than can be simulated", self.io_nodes));
        }
        if self.look_seconds != 0.0 && !(0.1..=1e9).contains(&self.look_seconds) {
            return invalid(format!("jobs look for their I/O nodes every {} s", self.look_seconds));
        }
        for (name, app) in &self.applications {
            if app.compute_nodes == 0 || app.compute_nodes > self.compute_nodes {
                return invalid(format!(
                    "application {name}: {} compute nodes on a machine of {}",
                    app.compute_nodes, self.compute_nodes
                ));
            }
            if !(app.gigabytes > 0.0 && app.gigabytes <= MOST_GB) {
                return invalid(format!(
                    "application {name}: {} GB is no volume: it can be up to {MOST_GB}",
                    app.gigabytes
                ));
            }
            if let Some(point) = app.curve.points().iter().find(|p| p.bandwidth.0 > MOST_MBS) {
                return invalid(format!(
                    "application {name}: {} MB/s by {} I/O nodes: it can be up to {MOST_MBS}",
                    point.bandwidth.0, point.io_nodes
                ));
            }
        }
        for (i, job) in self.queue.iter().enumerate() {
            if !self.applications.contains_key(&job.app) {
                return invalid(format!("job {i} of the queue: there is no application {:?}", job.app));
            }
            if !(job.arrival.is_finite() && job.arrival >= 0.0) {
                return invalid(format!("job {i} of the queue: arrival {} s", job.arrival));
            }
            if !(job.weight.is_finite() && job.weight > 0.0) {
                return invalid(format!("job {i} of the queue: weight {} is not above 0", job.weight));
            }
        }
        Ok(())
    }

    /// The jobs in order of submission.
    fn jobs(&self) -> Vec<Planned> {
        let mut jobs: Vec<Planned> = Vec::new();
        let mut runs: BTreeMap<&str, u32> = BTreeMap::new();
        for s in &self.queue {
            let app = &self.applications[&s.app];
            let run = runs.entry(&s.app).or_default();
            *run += 1;
            let job = Job::new(format!("{}#{run}", s.app), app.compute_nodes, app.processes);
            let bytes = app.gigabytes * 1e9;
            let history = Some(history::profile(&app.curve, app.compute_nodes, app.mode, bytes));
            let job = Job { app: s.app.clone(), weight: s.weight, history, ..job };
            let job = job.with_curve(Arc::new(app.curve.clone()));
            jobs.push(Planned { job, arrival: s.arrival, megabytes: bytes / 1e6 });
        }
        jobs.sort_by(|a, b| a.arrival.total_cmp(&b.arrival));
        jobs
    }
}

/// Of a job. What is left of it is told to a byte.
const MOST_GB: f64 = 1e6;
/// The same of a job's bandwidth.
const MOST_MBS: f64 = 1e7;

struct Planned {
    job: Job,
    arrival: f64,
    megabytes: f64,
}

/// A span in which a job held the same I/O nodes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hold {
    /// From, seconds.
    pub from: f64,
    /// Until, seconds.
    pub until: f64,
    /// The I/O nodes; none is direct access.
    pub io_nodes: Vec<NodeId>,
}

/// How one job fared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobOutcome {
    /// The application and its run: `HACC#2`.
    pub id: String,
    /// When it was submitted, s.
    pub arrival: f64,
    /// When it got its compute nodes, s.
    pub start: f64,
    /// When its I/O was done, s.
    pub end: f64,
    /// Its volume over its run time, MB/s.
    pub bandwidth_mbs: f64,
    /// How often its I/O nodes were changed while it ran.
    pub moves: u32,
    /// What it held when.
    pub holds: Vec<Hold>,
}

/// How a policy fared on the queue.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Which policy.
    pub policy: PolicyKind,
    /// When the last job was done, s.
    pub makespan: f64,
    /// The sum of the jobs' bandwidths, MB/s (the thesis's Equation 5.2).
    pub aggregate_mbs: f64,
    /// All data over the makespan, MB/s.
    pub throughput_mbs: f64,
    /// Times the policy was called.
    pub decisions: u32,
    /// The jobs, in order of submission.
    pub jobs: Vec<JobOutcome>,
}

struct Running {
    index: usize,
    job: Job,
    left: f64,
    rate: f64,
    /// Until when a move keeps it from doing I/O.
    paused: f64,
    /// The I/O nodes that it has been given, and when it looks at that next.
    given: Vec<NodeId>,
    look: f64,
}

impl Running {
    /// The job as a policy sees it now. Its volume is known: applications run again and again.
    fn at(&self, now: f64, outcome: &JobOutcome, plan: &Planned) -> Job {
        let progress = Progress {
            elapsed: Nanos(((now - outcome.start) * 1e9) as u64),
            served_bytes: ((plan.megabytes - self.left) * 1e6) as u64,
            volume_bytes: Some((plan.megabytes * 1e6) as u64),
        };
        Job { progress: Some(progress), ..self.job.clone() }
    }
}

/// Runs the queue under one policy. A job whose I/O nodes change does no I/O for the `move_seconds` of
/// the settings.
pub fn simulate(file: &QueueFile, kind: PolicyKind, settings: &Settings) -> Result<Outcome, QueueError> {
    let move_seconds = settings.fair.move_seconds;
    let curves = file.applications.values().map(|a| (&a.curve, a.compute_nodes));
    let policy = kind.build(&Settings { dfra: history::with_peaks(settings.dfra, curves), ..*settings })?;
    let pool =
        Pool { compute_nodes: Some(file.compute_nodes), direct: file.direct, ..Pool::of(file.io_nodes) };
    let plan = file.jobs();
    let mut outcomes: Vec<JobOutcome> = plan.iter().map(JobOutcome::waiting).collect();
    let mut running: Vec<Running> = Vec::new();
    let mut waiting = 0;
    let mut free = file.compute_nodes;
    let mut now = 0.0;
    let mut decisions = 0;
    let mut changed = false;
    let mut review: Option<f64> = None;
    while waiting < plan.len() || !running.is_empty() {
        while let Some(next) = plan.get(waiting).filter(|p| p.arrival <= now && p.job.compute_nodes <= free) {
            free -= next.job.compute_nodes;
            outcomes[waiting].start = now;
            running.push(Running {
                index: waiting,
                job: next.job.clone(),
                left: next.megabytes,
                rate: 0.0,
                paused: now,
                given: Vec::new(),
                look: now,
            });
            waiting += 1;
            changed = true;
        }
        if std::mem::take(&mut changed) && !running.is_empty() {
            let jobs: Vec<Job> =
                running.iter().map(|r| r.at(now, &outcomes[r.index], &plan[r.index])).collect();
            let decision = policy.decide(&jobs, &pool)?;
            decisions += 1;
            // Never at once: virtual time must go on.
            review = decision.review.map(|after| now + after.as_secs_f64().max(1e-3));
            give(&decision, &jobs, &pool, &mut running);
        }
        serve(&mut running, &mut outcomes, now, file.look_seconds, move_seconds)?;
        let arrival = plan.get(waiting).map(|p| p.arrival).filter(|&a| a > now);
        let ends = running.iter().map(|r| r.paused.max(now) + r.left / r.rate);
        let looks = running.iter().map(|r| r.look).filter(|&at| at > now);
        let Some(next) = arrival.into_iter().chain(review).chain(looks).chain(ends).min_by(f64::total_cmp)
        else {
            return Err(QueueError::Invalid("nothing runs and nothing arrives, yet jobs wait".to_owned()));
        };
        for r in &mut running {
            r.left -= (next - r.paused.max(now)).max(0.0) * r.rate;
        }
        now = next;
        changed |= review.is_some_and(|at| at <= now);
        running.retain(|r| {
            // A millionth of a MB is rounding, not data.
            let done = r.left <= 1e-6;
            if done {
                changed = true;
                free += r.job.compute_nodes;
                outcomes[r.index].finish(now, plan[r.index].megabytes);
            }
            !done
        });
    }
    let volume: f64 = plan.iter().map(|p| p.megabytes).sum();
    Ok(Outcome {
        policy: kind,
        makespan: now,
        aggregate_mbs: outcomes.iter().map(|o| o.bandwidth_mbs).sum(),
        throughput_mbs: volume / now,
        decisions,
        jobs: outcomes,
    })
}

impl JobOutcome {
    fn waiting(plan: &Planned) -> JobOutcome {
        JobOutcome {
            id: plan.job.id.clone(),
            arrival: plan.arrival,
            start: 0.0,
            end: 0.0,
            bandwidth_mbs: 0.0,
            moves: 0,
            holds: Vec::new(),
        }
    }

    fn finish(&mut self, now: f64, megabytes: f64) {
        self.end = now;
        self.bandwidth_mbs = megabytes / (now - self.start);
        if let Some(hold) = self.holds.last_mut() {
            hold.until = now;
        }
    }
}

/// Puts the decision into effect: who is to be where.
fn give(decision: &Decision, jobs: &[Job], pool: &Pool, running: &mut [Running]) {
    let mut placed = placement::place(decision, jobs, pool);
    for ((job, chosen), nodes) in jobs.iter().zip(&decision.jobs).zip(&mut placed) {
        // Of fewer than it was to have it uses the most of which its curve says something.
        if nodes.len() < chosen.io_nodes as usize {
            let known = (1..=nodes.len()).rev().find(|n| job.bandwidth(*n as u32).is_some_and(|b| b.0 > 0.0));
            nodes.truncate(known.unwrap_or(nodes.len()));
        }
    }
    for ((r, chosen), nodes) in running.iter_mut().zip(&decision.jobs).zip(placed) {
        r.given.clone_from(&nodes);
        r.job.current = Some(chosen.held(nodes));
    }
}

/// Jobs that look go to the I/O nodes that they were given; how fast each is where it is.
fn serve(
    running: &mut [Running],
    outcomes: &mut [JobOutcome],
    now: f64,
    look_seconds: f64,
    move_seconds: f64,
) -> Result<(), QueueError> {
    for r in running.iter_mut().filter(|r| r.look <= now) {
        r.look = now + look_seconds;
        let outcome = &mut outcomes[r.index];
        if outcome.holds.last().is_some_and(|h| h.io_nodes == r.given) {
            continue;
        }
        if let Some(hold) = outcome.holds.last_mut() {
            hold.until = now;
            outcome.moves += 1;
            r.paused = now + move_seconds;
        }
        outcome.holds.push(Hold { from: now, until: now, io_nodes: r.given.clone() });
    }
    let nodes = |r: &Running| outcomes[r.index].holds.last().map_or(&[][..], |h| &h.io_nodes[..]);
    let mut users: BTreeMap<NodeId, u32> = BTreeMap::new();
    for node in running.iter().flat_map(&nodes) {
        *users.entry(*node).or_default() += 1;
    }
    for r in running {
        // On I/O nodes that others use too, a job gets an equal part of each.
        let nodes = nodes(r);
        let parts: f64 = nodes.iter().map(|n| 1.0 / f64::from(users[n])).sum();
        let part = if nodes.is_empty() { 1.0 } else { parts / nodes.len() as f64 };
        let count = nodes.len() as u32;
        let alone = r.job.bandwidth(count).map(|b| b.0).filter(|&b| b > 0.0).ok_or_else(|| {
            QueueError::Invalid(format!(
                "{} would be on {count} I/O nodes, of which its curve says nothing (or 0 MB/s)",
                r.job.id
            ))
        })?;
        r.rate = alone * part;
    }
    Ok(())
}

/// What a policy reached on the way from STATIC to MCKP: 1 is all of MCKP's gain.
pub fn part_of_gain(of: &Outcome, fixed: &Outcome, mckp: &Outcome) -> f64 {
    (of.aggregate_mbs - fixed.aggregate_mbs) / (mckp.aggregate_mbs - fixed.aggregate_mbs)
}

/// The least that any job got of its bandwidth under STATIC.
pub fn least_share(of: &Outcome, fixed: &Outcome) -> f64 {
    of.jobs
        .iter()
        .zip(&fixed.jobs)
        .map(|(a, b)| a.bandwidth_mbs / b.bandwidth_mbs)
        .fold(f64::INFINITY, f64::min)
}
