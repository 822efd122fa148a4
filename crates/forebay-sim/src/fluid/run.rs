//! The event loop of the job grain.

use super::behaviour::Submitted;
use super::forwarding::{Stream, rates};
use super::place::{ComputeNodes, FixedMap, Stretch};
use super::{Fared, LargeMachine, Mapping, Month};
use crate::stats::Summary;
use forebay_policy::dfra::{Conclusion, DfraConfig, History, IoProfile};
use forebay_policy::{Current, Dfra, Job, Policy, PolicyError, Pool, Reason};
use forebay_types::{IoMode, NodeId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive(usize),
    Phase(usize),
    /// A stream ends, if its rate is still of this version.
    StreamEnd(usize, u32),
}

/// A time that can be ordered.
#[derive(Clone, Copy, PartialEq)]
struct Time(f64);

impl Eq for Time {}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Time) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Time) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

struct Running {
    stretches: Vec<Stretch>,
    /// Its I/O nodes and how many of its compute nodes each serves.
    nodes: Vec<(NodeId, u32)>,
    job: Job,
    phases_left: u32,
    phase_began: f64,
    open_streams: u32,
    /// The most it has done so far.
    peak: f64,
    done_bytes: f64,
}

pub(super) struct Run<'a> {
    machine: &'a LargeMachine,
    jobs: &'a [Submitted],
    map: FixedMap,
    dfra: Option<Dfra>,
    pool: Pool,
    history: History,
    free: ComputeNodes,
    waiting: VecDeque<usize>,
    running: BTreeMap<usize, Running>,
    streams: Vec<Option<Stream>>,
    unused: Vec<usize>,
    /// The streams on each I/O node.
    on: Vec<Vec<usize>>,
    /// Jobs mapped to each I/O node.
    tenants: Vec<u32>,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    sequence: u64,
    now: f64,
    month: Month,
    /// Since when, and the integrals over time of nodes in use.
    last: f64,
    integrals: [f64; 3],
    dedicated: u32,
    node_hours: (f64, f64),
    predicted: u32,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        machine: &'a LargeMachine,
        mapping: &Mapping,
        jobs: &'a [Submitted],
    ) -> Result<Run<'a>, PolicyError> {
        let (map, dfra) = match mapping {
            Mapping::Fixed => (machine.default, None),
            Mapping::RoundRobin(group) => (FixedMap { group: *group, io_nodes: machine.io_nodes }, None),
            Mapping::Dfra(config) => {
                let config = DfraConfig {
                    compute_per_io_node: Some(machine.default.group),
                    default_io_nodes: Some(machine.default.io_nodes),
                    ..*config
                };
                (machine.default, Some(Dfra::new(config)?))
            }
        };
        let mut pool =
            Pool { compute_nodes: Some(machine.compute_nodes), direct: false, ..Pool::of(machine.io_nodes) };
        for node in &mut pool.nodes {
            node.admitted = !machine.slow.iter().any(|(slow, _)| *slow == node.id);
        }
        let mut run = Run {
            machine,
            jobs,
            map,
            dfra,
            pool,
            history: History::default(),
            free: ComputeNodes::new(machine.compute_nodes),
            waiting: VecDeque::new(),
            running: BTreeMap::new(),
            streams: Vec::new(),
            unused: Vec::new(),
            on: vec![Vec::new(); machine.io_nodes as usize],
            tenants: vec![0; machine.io_nodes as usize],
            events: BinaryHeap::new(),
            sequence: 0,
            now: 0.0,
            month: Month { jobs: vec![Fared::default(); jobs.len()], ..Month::default() },
            last: 0.0,
            integrals: [0.0; 3],
            dedicated: 0,
            node_hours: (0.0, 0.0),
            predicted: 0,
        };
        for (i, job) in jobs.iter().enumerate() {
            run.at(job.arrival, Event::Arrive(i));
        }
        Ok(run)
    }

    fn at(&mut self, time: f64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((Time(time), self.sequence, event)));
    }

    pub(super) fn run(mut self) -> Result<Month, PolicyError> {
        while let Some(Reverse((Time(now), _, event))) = self.events.pop() {
            self.now = now;
            match event {
                Event::Arrive(i) => {
                    self.waiting.push_back(i);
                    self.start_jobs()?;
                }
                Event::Phase(i) => self.begin_phase(i)?,
                Event::StreamEnd(s, version) => {
                    if self.streams[s].is_some_and(|stream| stream.version == version) {
                        self.end_stream(s)?;
                    }
                }
            }
        }
        self.account();
        let span = self.horizon().max(1e-9);
        let [dedicated, default, compute] = self.integrals.map(|i| i / span);
        let large = || self.month.jobs.iter().zip(self.jobs).filter(|(_, j)| j.compute_nodes >= 512);
        let shared = large().filter(|(f, _)| f.shared).count() as f64;
        let (fared, jobs) = (&self.month.jobs, self.jobs);
        let waits = Summary::of(fared.iter().zip(jobs).map(|(f, j)| (f.start - j.arrival) / 3600.0));
        self.month.large_shared = shared / (large().count() as f64).max(1.0);
        self.month.waited_hours = waits;
        self.month.dedicated_mean = dedicated;
        self.month.default_mean = default;
        self.month.utilisation = compute / f64::from(self.machine.compute_nodes);
        self.month.benefit_node_hours = self.node_hours.0 / self.node_hours.1.max(1e-9);
        self.month.predicted = f64::from(self.predicted) / (self.jobs.len() as f64).max(1.0);
        Ok(self.month)
    }

    /// Means over time are taken until the last job is submitted: then the machine runs empty.
    fn horizon(&self) -> f64 {
        self.jobs.last().map_or(0.0, |j| j.arrival)
    }

    /// Adds up what was in use since the last change.
    fn account(&mut self) {
        let until = self.now.min(self.horizon());
        let span = (until - self.last).max(0.0);
        self.last = self.last.max(until);
        let defaults = self.machine.default.io_nodes as usize;
        let used = self.tenants[..defaults].iter().filter(|&&t| t > 0).count() as f64;
        let compute = f64::from(self.machine.compute_nodes - self.free.left());
        for (sum, value) in self.integrals.iter_mut().zip([f64::from(self.dedicated), used, compute]) {
            *sum += span * value;
        }
    }

    /// Starts what fits, in order of arrival; a small job may pass one that waits for nodes.
    fn start_jobs(&mut self) -> Result<(), PolicyError> {
        let mut at = 0;
        while at < self.waiting.len() && self.free.left() > 0 {
            let i = self.waiting[at];
            let nodes = self.jobs[i].compute_nodes;
            if nodes <= self.free.left() {
                self.account();
                if let Some(stretches) = self.free.take(nodes) {
                    self.waiting.remove(at);
                    self.start(i, stretches)?;
                    continue;
                }
            }
            at += 1;
        }
        Ok(())
    }

    fn start(&mut self, i: usize, stretches: Vec<Stretch>) -> Result<(), PolicyError> {
        let submitted = &self.jobs[i];
        let by_default = self.map.of(&stretches);
        let mut job =
            Job::new(i.to_string(), submitted.compute_nodes, submitted.compute_nodes.saturating_mul(4));
        let app = submitted.application.to_string();
        job.history = self.history.predict(&app, "", submitted.compute_nodes).copied();
        job.app = app;
        job.default_nodes = by_default.iter().map(|(n, _)| *n).collect();
        let mut nodes = by_default;
        let fared = &mut self.month.jobs[i];
        fared.start = self.now;
        fared.shared = nodes.iter().any(|(n, _)| self.tenants[n.0 as usize] > 0);
        if let Some(dfra) = &self.dfra {
            let mut all: Vec<Job> = self.running.values().map(Running::seen).collect();
            all.push(job);
            let mut decision = dfra.decide(&all, &self.pool)?;
            let chosen = decision.jobs.pop();
            job = all.pop().expect("it was just pushed");
            if let Some(chosen) = chosen {
                if let Reason::Dfra(conclusion) = chosen.reason {
                    match conclusion {
                        Conclusion::Scale { wanted, granted } => {
                            self.month.scaled += 1;
                            self.month.cut += u32::from(granted < wanted);
                        }
                        Conclusion::Isolate(_) => self.month.isolated += 1,
                        Conclusion::NoneIdle => self.month.short += 1,
                        _ => {}
                    }
                    if conclusion.dedicated() {
                        let given = chosen.nodes.clone().unwrap_or_default();
                        nodes = spread(submitted.compute_nodes, &given);
                        self.dedicated += given.len() as u32;
                        (fared.dedicated, fared.shared) = (true, false);
                        self.month.dedicated_most = self.month.dedicated_most.max(self.dedicated);
                    }
                }
                let held: Vec<NodeId> = nodes.iter().map(|(n, _)| *n).collect();
                job.current = Some(Current { dedicated: fared.dedicated, ..chosen.held(held) });
            }
        }
        fared.io_nodes = nodes.len() as u32;
        for (n, _) in &nodes {
            self.tenants[n.0 as usize] += 1;
        }
        let phases_left = submitted.behaviour.phases.max(1);
        let (phase_began, open_streams, peak, done_bytes) = (self.now, 0, 0.0, 0.0);
        self.running.insert(
            i,
            Running { stretches, nodes, job, phases_left, phase_began, open_streams, peak, done_bytes },
        );
        self.at(self.now + submitted.computes / f64::from(phases_left), Event::Phase(i));
        Ok(())
    }

    /// A phase of I/O begins on all the job's I/O nodes.
    fn begin_phase(&mut self, i: usize) -> Result<(), PolicyError> {
        let behaviour = self.jobs[i].behaviour;
        let Some(running) = self.running.get_mut(&i) else { return Ok(()) };
        let model = &self.machine.io_node;
        let total = f64::from(self.jobs[i].compute_nodes.max(1));
        // One process that writes for all has one I/O node.
        let lone = behaviour.mode == IoMode::OneTo1;
        let used: Vec<(NodeId, f64)> = match running.nodes.first() {
            Some(&(n, _)) if lone => vec![(n, 1.0)],
            _ => running.nodes.iter().map(|&(n, count)| (n, f64::from(count) / total)).collect(),
        };
        let hold = if behaviour.mode == IoMode::NTo1 { model.shared_file } else { 1.0 };
        let service = hold * (behaviour.request / model.bandwidth + 1.0 / model.requests);
        let bytes = behaviour.bytes / f64::from(behaviour.phases.max(1));
        let at_most = f64::from(behaviour.io_compute_nodes) * self.machine.compute_node_peak;
        let quickest = (bytes / at_most).max(1e-3);
        let metadata = behaviour.metadata / f64::from(behaviour.phases.max(1)) / quickest;
        (running.phase_began, running.open_streams) = (self.now, used.len() as u32);
        for (n, part) in used {
            let senders = (f64::from(behaviour.io_compute_nodes) * part).max(1e-6);
            let stream = Stream {
                job: i,
                left: bytes * part,
                rate: 0.0,
                since: self.now,
                version: 0,
                senders,
                cost: service / behaviour.request,
                service,
                most: senders * self.machine.compute_node_peak,
                metadata: (metadata * part).min(model.metadata_peak),
            };
            let s = match self.unused.pop() {
                Some(s) => {
                    // Ends announced for the stream that was here must not end this one.
                    let version = self.streams[s].map_or(0, |old| old.version) + 1;
                    self.streams[s] = Some(Stream { version, ..stream });
                    s
                }
                None => {
                    self.streams.push(Some(stream));
                    self.streams.len() - 1
                }
            };
            self.on[n.0 as usize].push(s);
            self.share(n);
        }
        Ok(())
    }

    /// Shares an I/O node out anew.
    fn share(&mut self, n: NodeId) {
        let on = std::mem::take(&mut self.on[n.0 as usize]);
        let mut here: Vec<Stream> = on.iter().filter_map(|&s| self.streams[s]).collect();
        for s in &mut here {
            s.advance(self.now);
        }
        let capacity = self.machine.slow.iter().find(|(slow, _)| *slow == n).map_or(1.0, |(_, part)| *part);
        rates(&self.machine.io_node, capacity, &mut here.iter_mut().collect::<Vec<_>>());
        for (&s, mut stream) in on.iter().zip(here) {
            self.month.events += 1;
            stream.version += 1;
            self.streams[s] = Some(stream);
            let end = self.now + stream.left / stream.rate.max(1e-9);
            self.at(end, Event::StreamEnd(s, stream.version));
        }
        self.on[n.0 as usize] = on;
    }

    fn end_stream(&mut self, s: usize) -> Result<(), PolicyError> {
        let Some(stream) = self.streams[s] else { return Ok(()) };
        self.unused.push(s);
        let node = (0..self.on.len()).find(|&n| self.on[n].contains(&s));
        if let Some(n) = node {
            self.on[n].retain(|&other| other != s);
            self.share(NodeId(n as u32));
        }
        // Void for whoever looks at it before it is used again.
        if let Some(stream) = &mut self.streams[s] {
            stream.version += 1;
        }
        let i = stream.job;
        let Some(running) = self.running.get_mut(&i) else { return Ok(()) };
        running.open_streams -= 1;
        if running.open_streams > 0 {
            return Ok(());
        }
        let behaviour = self.jobs[i].behaviour;
        let took = self.now - running.phase_began;
        let bytes = behaviour.bytes / f64::from(behaviour.phases.max(1));
        running.peak = running.peak.max(bytes / took.max(1e-9));
        running.done_bytes += bytes;
        running.phases_left -= 1;
        running.job.live = Some(profile(&behaviour, running.done_bytes, running.peak, running.nodes.len()));
        self.month.jobs[i].io_seconds += took;
        if running.phases_left > 0 {
            let computes = self.jobs[i].computes / f64::from(behaviour.phases.max(1));
            self.at(self.now + computes, Event::Phase(i));
            return Ok(());
        }
        self.end(i)
    }

    fn end(&mut self, i: usize) -> Result<(), PolicyError> {
        self.account();
        let Some(running) = self.running.remove(&i) else { return Ok(()) };
        self.free.give_back(&running.stretches);
        for (n, _) in &running.nodes {
            self.tenants[n.0 as usize] -= 1;
        }
        let fared = &mut self.month.jobs[i];
        fared.end = self.now;
        if fared.dedicated {
            self.dedicated -= running.nodes.len() as u32;
        }
        let submitted = &self.jobs[i];
        let node_hours = f64::from(submitted.compute_nodes) * (fared.end - fared.start) / 3600.0;
        let behaviour = &submitted.behaviour;
        let actual = profile(behaviour, behaviour.bytes, running.peak, running.nodes.len());
        let config = self.dfra.as_ref().map_or_else(DfraConfig::default, |d| *d.config());
        let eligible = config.eligible(Some(&actual));
        self.month.screening.count(eligible);
        self.node_hours.1 += node_hours;
        if eligible.is_ok() {
            self.node_hours.0 += node_hours;
        }
        self.predicted += u32::from(running.job.history.is_some_and(|h| h.predicted(&actual, 0.2)));
        self.history.record(&running.job.app, "", submitted.compute_nodes, actual);
        self.start_jobs()
    }
}

impl Running {
    /// The job as DFRA sees it: one without I/O so far is silent.
    fn seen(&self) -> Job {
        let silent = IoProfile {
            bytes: 0,
            io_compute_nodes: 0,
            mode: IoMode::OneTo1,
            bandwidth_mbs: 0.0,
            iops: 0.0,
            metadata_rate: 0.0,
            metadata_waiting: 0.0,
        };
        Job { live: Some(self.job.live.unwrap_or(silent)), ..self.job.clone() }
    }
}

/// Compute nodes in equal parts over the I/O nodes.
fn spread(compute_nodes: u32, nodes: &[NodeId]) -> Vec<(NodeId, u32)> {
    let count = nodes.len().max(1) as u32;
    let part = |i: u32| compute_nodes / count + u32::from(i < compute_nodes % count);
    nodes.iter().zip(0..).map(|(&n, i)| (n, part(i))).filter(|(_, part)| *part > 0).collect()
}

/// What the monitoring would have seen.
fn profile(b: &super::behaviour::Behaviour, bytes: f64, peak: f64, io_nodes: usize) -> IoProfile {
    let seconds = bytes / peak.max(1.0);
    let metadata_rate = b.metadata * (bytes / b.bytes.max(1.0)) / seconds.max(1e-9);
    // An operation of every sender waits where there are more of them than the I/O node can do.
    let per_node = metadata_rate / io_nodes.max(1) as f64;
    let load = per_node / 500.0;
    let most = f64::from(b.io_compute_nodes) / io_nodes.max(1) as f64;
    let waiting = if load < 1.0 { (load * load / (1.0 - load)).min(most) } else { most };
    IoProfile {
        bytes: bytes as u64,
        io_compute_nodes: b.io_compute_nodes,
        mode: b.mode,
        bandwidth_mbs: peak / 1e6,
        iops: peak / b.request,
        metadata_rate: metadata_rate.min(500.0 * io_nodes.max(1) as f64),
        metadata_waiting: waiting,
    }
}
