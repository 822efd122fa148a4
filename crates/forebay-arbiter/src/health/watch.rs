//! What is known of one node: the probes and reports of the last seconds, and its past.

use super::ScreenConfig;
use super::robust::median;
use forebay_control::node::NodeReport;
use forebay_pattern::FlowMetrics;
use forebay_types::Nanos;
use std::collections::{BTreeMap, VecDeque};

/// Requests that can be compared with each other: one operation, sizes within a factor of four.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Read(u32),
    Write(u32),
    Metadata,
}

impl Kind {
    fn of(flow: &FlowMetrics) -> Kind {
        if flow.data_requests() == 0 {
            return Kind::Metadata;
        }
        let class = (flow.size_mean.max(1.0).log2() / 2.0) as u32;
        if flow.read_share() >= 0.5 { Kind::Read(class) } else { Kind::Write(class) }
    }

    /// For a sentence.
    pub(super) fn describe(self) -> String {
        let size = |class: u32| match 4u64.saturating_pow(class) {
            n if n < 1 << 10 => format!("{n} B"),
            n if n < 1 << 20 => format!("{} KiB", n >> 10),
            n => format!("{} MiB", n >> 20),
        };
        match self {
            Kind::Read(c) => format!("reads of {} and more", size(c)),
            Kind::Write(c) => format!("writes of {} and more", size(c)),
            Kind::Metadata => "metadata operations".into(),
        }
    }
}

/// How requests of one kind were served.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Service {
    /// Mean time from a request's receipt to its answer, in seconds.
    pub(super) response: f64,
    /// MB/s, or operations a second for metadata, while there was something to do.
    pub(super) rate: f64,
}

/// Something with a past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Measure {
    Stall,
    /// Apart for busy and idle nodes.
    Storage(bool),
    Response(Kind),
    Rate(Kind),
}

/// The last few seconds, summed up. Spans are in seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    /// Probes that were answered, or have been waiting for long.
    pub(super) probes: usize,
    /// Of those: probes whose storage failed.
    pub(super) failed: usize,
    /// How often its connection broke of late.
    pub(super) breaks: usize,
    /// Median round trip without the storage's part; `None` of too few probes.
    pub(super) stall: Option<f64>,
    /// Median storage time; `None` of too few probes.
    pub(super) storage: Option<f64>,
    /// The node had something to do for most of the time.
    pub(super) busy: bool,
    /// By kind, where there was enough to judge.
    pub(super) service: BTreeMap<Kind, Service>,
}

struct Answer {
    at: Nanos,
    stall: f64,
    storage: Storage,
}

/// What a probe found out about the storage.
enum Storage {
    Took(f64),
    Failed,
    Unknown,
}

struct Work {
    at: Nanos,
    kind: Kind,
    requests: u64,
    served: f64,
    busy: f64,
    /// Seconds that requests spent at the node, summed over the requests.
    spent: f64,
}

/// Values of the past that are kept of one measure…
const PAST: usize = 120;
/// …and how many of them make a past to speak of.
const LEAST_PAST: usize = 5;
/// Kinds of requests whose past is kept.
const MOST_MEASURES: usize = 64;
/// Breaks of its connection that are remembered, and for how long.
const MOST_BREAKS: usize = 100;
pub(super) const BREAKS_WITHIN: Nanos = Nanos::from_secs(30);
/// Flows of one report that are looked at.
const MOST_FLOWS: usize = 256;

#[derive(Default)]
pub(super) struct Watch {
    pending: VecDeque<(u64, Nanos)>,
    answers: VecDeque<Answer>,
    work: VecDeque<Work>,
    busy: VecDeque<(Nanos, f64)>,
    past: BTreeMap<Measure, VecDeque<f64>>,
    /// When its connection broke.
    breaks: VecDeque<Nanos>,
    remembered: Nanos,
    /// The last failure of its storage.
    pub(super) failure: Option<String>,
}

impl Watch {
    pub(super) fn sent(&mut self, id: u64, now: Nanos) {
        self.pending.push_back((id, now));
    }

    pub(super) fn answered(&mut self, id: u64, took: Nanos, error: Option<String>, now: Nanos) {
        // An answer to nothing that was asked says nothing.
        if !self.pending.iter().any(|(i, _)| *i == id) {
            return;
        }
        while let Some((asked, sent)) = self.pending.pop_front() {
            let trip = now.since(sent);
            if asked != id {
                // Passed over: the node was still at an earlier one.
                let stall = trip.as_secs_f64();
                self.answers.push_back(Answer { at: now, stall, storage: Storage::Unknown });
                continue;
            }
            let took = took.min(trip);
            let storage = match &error {
                None => Storage::Took(took.as_secs_f64()),
                Some(text) => {
                    self.failure = Some(text.chars().take(200).collect());
                    Storage::Failed
                }
            };
            self.answers.push_back(Answer { at: now, stall: (trip - took).as_secs_f64(), storage });
            return;
        }
    }

    pub(super) fn reported(&mut self, report: &NodeReport, now: Nanos) {
        let span = report.interval.end.since(report.interval.start).as_secs_f64();
        let share = if span > 0.0 { report.interval.load.busy.as_secs_f64() / span } else { 0.0 };
        self.busy.push_back((now, share));
        for flow in report.interval.flows.iter().take(MOST_FLOWS) {
            let (requests, busy) =
                (flow.data_requests().saturating_add(flow.metadata), flow.busy.as_secs_f64());
            let kind = Kind::of(flow);
            let served = if kind == Kind::Metadata { flow.metadata as f64 } else { flow.served as f64 / 1e6 };
            let spent = flow.outstanding.max(0.0) * busy;
            self.work.push_back(Work { at: now, kind, requests, served, busy, spent });
        }
    }

    /// Its connection broke: what it was asked will not be answered.
    pub(super) fn broke(&mut self, now: Nanos) {
        self.pending.clear();
        self.breaks.push_back(now);
        if self.breaks.len() > MOST_BREAKS {
            self.breaks.pop_front();
        }
    }

    /// What was seen is no longer about this node as it is now.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
        self.answers.clear();
        self.work.clear();
        self.busy.clear();
    }

    /// Sums up the last window and forgets what is older.
    pub(super) fn view(&mut self, config: &ScreenConfig, now: Nanos) -> View {
        let from = Nanos(now.0.saturating_sub((config.window * 1e9) as u64));
        while self.pending.front().is_some_and(|(_, sent)| *sent < from) {
            self.pending.pop_front();
            self.answers.push_back(Answer { at: now, stall: config.window, storage: Storage::Unknown });
        }
        self.answers.retain(|a| a.at >= from);
        self.work.retain(|w| w.at >= from);
        self.busy.retain(|b| b.0 >= from);
        self.breaks.retain(|b| now.since(*b) <= BREAKS_WITHIN);
        // A probe that has been waiting for long is known to take at least that long.
        let late = self.pending.iter().map(|(_, sent)| now.since(*sent).as_secs_f64());
        let late: Vec<f64> = late.filter(|age| *age >= config.probe_every).collect();
        let probes = self.answers.len() + late.len();
        let enough = probes >= config.least_probes;
        let stalls = self.answers.iter().map(|a| a.stall).chain(late.iter().copied());
        let took = |a: &Answer| if let Storage::Took(t) = a.storage { Some(t) } else { None };
        let took: Vec<f64> = self.answers.iter().filter_map(took).collect();
        let mut kinds: BTreeMap<Kind, Work> = BTreeMap::new();
        for w in &self.work {
            let sum =
                kinds.entry(w.kind).or_insert(Work { requests: 0, served: 0.0, busy: 0.0, spent: 0.0, ..*w });
            sum.requests = sum.requests.saturating_add(w.requests);
            sum.served += w.served;
            sum.busy += w.busy;
            sum.spent += w.spent;
        }
        let judged =
            |w: &Work| w.requests >= config.least_requests && w.busy > 0.0 && w.busy >= config.least_busy;
        let served = |w: &Work| Service { response: w.spent / w.requests as f64, rate: w.served / w.busy };
        View {
            probes,
            breaks: self.breaks.len(),
            failed: self.answers.iter().filter(|a| matches!(a.storage, Storage::Failed)).count(),
            stall: if enough { median(stalls.collect()) } else { None },
            storage: if took.len() >= config.least_probes { median(took) } else { None },
            busy: median(self.busy.iter().map(|b| b.1).collect()).unwrap_or(0.0) >= 0.5,
            service: kinds.iter().filter(|(_, w)| judged(w)).map(|(k, w)| (*k, served(w))).collect(),
        }
    }

    /// The node behaves: what it does now belongs to its past. Once per window.
    pub(super) fn remember(&mut self, view: &View, config: &ScreenConfig, now: Nanos) {
        if now.since(self.remembered).as_secs_f64() < config.window {
            return;
        }
        self.remembered = now;
        let mut keep = |measure, value: Option<f64>| {
            let Some(value) = value else { return };
            if self.past.len() >= MOST_MEASURES && !self.past.contains_key(&measure) {
                return;
            }
            let values = self.past.entry(measure).or_default();
            values.push_back(value);
            if values.len() > PAST {
                values.pop_front();
            }
        };
        keep(Measure::Stall, view.stall);
        keep(Measure::Storage(view.busy), view.storage);
        for (kind, s) in &view.service {
            keep(Measure::Response(*kind), Some(s.response));
            keep(Measure::Rate(*kind), Some(s.rate));
        }
    }

    /// The median of its past, if it has one.
    pub(super) fn past(&self, measure: Measure) -> Option<f64> {
        let values = self.past.get(&measure).filter(|v| v.len() >= LEAST_PAST)?;
        median(values.iter().copied().collect())
    }
}
