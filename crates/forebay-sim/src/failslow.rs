//! A fail-slow I/O node, as the live experiment has it: four jobs write and read at a pace, one I/O node is stopped
//! for most of every cycle, and whoever screens the nodes takes it out and lets it in again.

use crate::requests::program::Paced;
use crate::requests::{Machine, Observer, Span, Stops, job, run_observed};
use forebay_pattern::Interval;
use forebay_sched::SchedulerConfig;
use forebay_sched::emulate::StorageModel;
use forebay_types::stats::median;
use forebay_types::{FileId, FlowId, Nanos, NodeId};

/// Who screens the I/O nodes: the arbiter's health screening, which this crate need not know.
pub trait NodeScreen {
    /// A node is there.
    fn joined(&mut self, node: NodeId, now: Nanos);
    /// A probe goes out to a node; its number.
    fn probe(&mut self, node: NodeId, now: Nanos) -> u64;
    /// The node has answered a probe; its storage took so long.
    fn probed(&mut self, node: NodeId, id: u64, took: Nanos, now: Nanos);
    /// The node reports an interval.
    fn reported(&mut self, node: NodeId, interval: &Interval, now: Nanos);
    /// Judges all nodes: those that are not to be used.
    fn tick(&mut self, now: Nanos) -> Vec<NodeId>;
}

/// The experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Failslow {
    /// I/O nodes, and jobs: one on each.
    pub nodes: u32,
    /// Processes of a job.
    pub processes: u32,
    /// Bytes of a request.
    pub request: u64,
    /// From one round of a write and a read to the next.
    pub pace: Nanos,
    /// When the node becomes slow, and for how long.
    pub slow: (Nanos, Nanos),
    /// How long a cycle is, and how much of it the node is stopped for.
    pub cycle: (Nanos, Nanos),
    /// How often nodes are probed and judged.
    pub probe: Nanos,
    /// It ends here at the latest.
    pub until: Nanos,
}

impl Default for Failslow {
    /// As the live experiment.
    fn default() -> Failslow {
        Failslow {
            nodes: 4,
            processes: 2,
            request: 64 << 10,
            pace: Nanos::from_millis(8),
            slow: (Nanos::from_secs(12), Nanos::from_secs(25)),
            cycle: (Nanos::from_millis(200), Nanos::from_millis(180)),
            probe: Nanos::from_millis(250),
            until: Nanos::from_secs(97),
        }
    }
}

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// Seconds, and MB/s of all jobs.
    pub rate: Vec<(f64, f64)>,
    /// When the node was screened out, in seconds.
    pub screened: Option<f64>,
    /// When it was used again.
    pub readmitted: Option<f64>,
}

impl Seen {
    /// The median rate between two moments.
    pub fn rate(&self, from: f64, to: f64) -> f64 {
        median(&self.rate.iter().filter(|(t, _)| (from..to).contains(t)).map(|r| r.1).collect::<Vec<_>>())
    }
}

struct Watching<'a> {
    setting: &'a Failslow,
    stops: Stops,
    /// There and back, without a stop.
    round_trip: Nanos,
    screen: &'a mut dyn NodeScreen,
    /// Answers under way: when they are back, whose, and to which probe.
    answers: Vec<(Nanos, NodeId, u64)>,
    /// What a probe takes at the storage.
    took: Nanos,
    out: bool,
    moved: bool,
    seen: Seen,
}

impl Observer for Watching<'_> {
    fn observe(&mut self, now: Nanos, intervals: &[Interval]) -> Option<SchedulerConfig> {
        let bytes: u64 = intervals.iter().flat_map(|i| &i.flows).map(|f| f.served).sum();
        self.seen.rate.push((now.as_secs_f64(), bytes as f64 / 1e6 / self.setting.probe.as_secs_f64()));
        let (mut back, later): (Vec<_>, Vec<_>) = self.answers.iter().partition(|(at, ..)| *at <= now);
        self.answers = later;
        back.sort_unstable();
        for (at, node, id) in back {
            self.screen.probed(node, id, self.took, at);
        }
        for (node, interval) in (0..).map(NodeId).zip(intervals) {
            // Who is stopped cannot report; it is late by less than a cycle.
            self.screen.reported(node, interval, now);
            let id = self.screen.probe(node, now);
            let there = self.stops.runs_again(node, now).unwrap_or(now);
            self.answers.push((there + self.round_trip + self.took, node, id));
        }
        let out = self.screen.tick(now).contains(&self.stops.node);
        self.moved = out != self.out;
        self.out = out;
        match (out, self.seen.screened) {
            (true, None) => self.seen.screened = Some(now.as_secs_f64()),
            (false, Some(_)) if self.seen.readmitted.is_none() => {
                self.seen.readmitted = Some(now.as_secs_f64())
            }
            _ => {}
        }
        None
    }

    fn moves(&mut self) -> Vec<(FlowId, NodeId)> {
        if !std::mem::take(&mut self.moved) {
            return Vec::new();
        }
        // The job that is on it alone goes to the first of the others, or back.
        let home = self.stops.node;
        vec![(FlowId(home.0), if self.out { NodeId(0) } else { home })]
    }
}

impl Failslow {
    /// Runs it; the last node is the one that becomes slow.
    pub fn run(&self, model: &StorageModel, screen: &mut dyn NodeScreen) -> Seen {
        let (from, span) = self.slow;
        let victim = NodeId(self.nodes.saturating_sub(1));
        let (cycle, stopped) = self.cycle;
        let stops = Stops { node: victim, from, until: from + span, cycle, stopped };
        let scheduler = "fifo".parse().expect("a scheduler's name");
        let machine = Machine {
            interval: self.probe,
            stops: Some(stops),
            ..Machine::new(self.nodes, model.clone(), scheduler)
        };
        (0..self.nodes).for_each(|n| screen.joined(NodeId(n), Nanos::ZERO));
        let mut all = Vec::new();
        for n in 0..self.nodes {
            all.extend(job(n, self.processes, n..n + 1, n..n + 1, |rank| {
                let file = FileId(1 + u64::from(n) * u64::from(self.processes) + rank);
                let (size, pace) = (self.request, self.pace);
                Box::new(Paced { file, size, blocks: 64, pace, began: Nanos::ZERO, step: 0 })
            }));
        }
        let latency = machine.compute_link.latency;
        let took = model.server.per_request + model.server.latency;
        let mut watching = Watching {
            setting: self,
            stops,
            round_trip: latency + latency,
            screen,
            answers: Vec::new(),
            took,
            out: false,
            moved: false,
            seen: Seen::default(),
        };
        run_observed(&machine, all, Span { from: Nanos::ZERO, until: self.until }, &mut watching);
        watching.seen
    }
}
