//! Verdicts over time, for the whole pool.

use super::ScreenConfig;
use super::judge::{Evidence, Peers, judge, ms};
use super::watch::{View, Watch};
use forebay_control::node::NodeReport;
use forebay_types::{Nanos, NodeId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What may be expected of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// In line.
    Healthy,
    /// Out of line, but not for long enough, or it cannot be spared. It is used.
    Suspect,
    /// Out of line for long: it gets no jobs, and those it has are moved.
    Slow,
    /// Nothing is heard of it.
    Lost,
    /// It is being emptied on request.
    Drained,
}

impl State {
    /// May jobs be on it?
    pub fn usable(self) -> bool {
        matches!(self, State::Healthy | State::Suspect)
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            State::Healthy => "healthy",
            State::Suspect => "suspect",
            State::Slow => "slow",
            State::Lost => "lost",
            State::Drained => "drained",
        })
    }
}

/// What is thought of a node, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// What may be expected.
    pub state: State,
    /// Since when.
    pub since: Nanos,
    /// One sentence with the numbers.
    pub reason: String,
}

/// A node's state is another one from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which node.
    pub node: NodeId,
    /// What it was.
    pub from: State,
    /// What it is.
    pub diagnosis: Diagnosis,
}

/// Watches the nodes and gives the diagnoses. Times are the caller's, and must not run backwards.
pub struct Screen {
    config: ScreenConfig,
    nodes: BTreeMap<NodeId, Entry>,
    ticked: Option<Nanos>,
    probes: u64,
}

struct Entry {
    watch: Watch,
    heard: Nanos,
    connected: bool,
    drained: bool,
    diagnosis: Diagnosis,
    lost: Option<Loss>,
    /// It stood still and is back: it has to show that it can be relied on.
    returned: Option<String>,
    /// Seconds out of line, less those in line.
    score: f64,
    /// It is screened out.
    slow: Option<Spell>,
    /// How often it became slow again soon after it was re-admitted.
    relapses: u32,
    readmitted: Option<(Nanos, String)>,
}

/// Nothing is heard of a node.
struct Loss {
    since: Nanos,
    /// Its connection was still there: it does not run, rather than being gone.
    silent: bool,
}

/// A node's time out of use.
struct Spell {
    reason: String,
    excess: f64,
    /// In line since.
    good: Option<Nanos>,
    /// In line for so long, it is re-admitted.
    hold: f64,
}

/// The screen itself is thought to have stood still if nobody called it for so many probe periods.
const STANDSTILL: f64 = 6.0;

impl Screen {
    /// No nodes yet.
    pub fn new(config: ScreenConfig) -> Screen {
        Screen { config, nodes: BTreeMap::new(), ticked: None, probes: 0 }
    }

    /// The thresholds.
    pub fn config(&self) -> &ScreenConfig {
        &self.config
    }

    /// The node has connected, for the first time or again.
    pub fn joined(&mut self, node: NodeId, now: Nanos) {
        let entry = self.nodes.entry(node).or_insert_with(|| Entry::new(now));
        entry.connected = true;
        entry.drained = false;
        entry.heard = now;
        // It may have been started anew, which is a remedy; a slow one has to show it.
        entry.lost = None;
        if let Some(spell) = &mut entry.slow {
            spell.good = None;
        }
    }

    /// The node's connection has ended; it is lost if it does not come back soon.
    pub fn disconnected(&mut self, node: NodeId, now: Nanos) {
        if let Some(entry) = self.nodes.get_mut(&node).filter(|e| e.connected) {
            entry.connected = false;
            entry.watch.broke(now);
        }
    }

    /// Never to be mentioned again.
    pub fn forget(&mut self, node: NodeId) {
        self.nodes.remove(&node);
    }

    /// The node is being emptied, or (`false`) is back.
    pub fn drained(&mut self, node: NodeId, drained: bool) {
        if let Some(entry) = self.nodes.get_mut(&node) {
            entry.drained = drained;
        }
    }

    /// The node's report of an interval: its heartbeat.
    pub fn reported(&mut self, node: NodeId, report: &NodeReport, now: Nanos) {
        if let Some(entry) = self.nodes.get_mut(&node) {
            entry.heard = now;
            entry.watch.reported(report, now);
        }
    }

    /// A probe goes out to the node now; returns its number.
    pub fn probe(&mut self, node: NodeId, now: Nanos) -> u64 {
        self.probes += 1;
        if let Some(entry) = self.nodes.get_mut(&node) {
            entry.watch.sent(self.probes, now);
        }
        self.probes
    }

    /// The node has answered probe `id`; its storage took `took`, or failed.
    pub fn probed(&mut self, node: NodeId, id: u64, took: Nanos, error: Option<String>, now: Nanos) {
        if let Some(entry) = self.nodes.get_mut(&node) {
            entry.heard = now;
            entry.watch.answered(id, took, error, now);
        }
    }

    /// What is thought of the node; `None` if it is unknown.
    pub fn diagnosis(&self, node: NodeId) -> Option<&Diagnosis> {
        self.nodes.get(&node).map(|e| &e.diagnosis)
    }

    /// All nodes.
    pub fn diagnoses(&self) -> impl Iterator<Item = (NodeId, &Diagnosis)> {
        self.nodes.iter().map(|(n, e)| (*n, &e.diagnosis))
    }

    /// Judges all nodes; to be called at least once per probe period. Returns what changed.
    pub fn tick(&mut self, now: Nanos) -> Vec<Change> {
        let step = now.since(self.ticked.unwrap_or(now)).as_secs_f64();
        self.ticked = Some(now);
        if step > STANDSTILL * self.config.probe_every {
            // The arbiter itself did not run: what it thinks it saw was its own fault.
            for entry in self.nodes.values_mut().filter(|e| e.connected) {
                entry.watch.clear();
                entry.heard = now;
            }
            return Vec::new();
        }
        let config = self.config;
        for entry in self.nodes.values_mut() {
            entry.note_loss(config.lost_after, now);
            if entry.drained {
                entry.watch.clear();
            }
        }
        let views: BTreeMap<NodeId, View> = self
            .nodes
            .iter_mut()
            .filter(|(_, e)| e.in_pool())
            .map(|(n, e)| (*n, e.watch.view(&config, now)))
            .collect();
        let reference: Vec<(NodeId, &View)> = views
            .iter()
            .filter(|(n, _)| self.nodes.get(n).is_some_and(|e| e.slow.is_none()))
            .map(|(n, v)| (*n, v))
            .collect();
        let mut found: BTreeMap<NodeId, Evidence> = BTreeMap::new();
        for (node, view) in &views {
            let Some(entry) = self.nodes.get_mut(node) else { continue };
            let evidence = judge(&config, view, &entry.watch, Peers { but: *node, all: &reference });
            entry.weigh(evidence.as_ref(), view, step, &config, now);
            found.extend(evidence.map(|e| (*node, e)));
        }
        let limit = self.most_slow(views.len());
        self.take_back(limit, now);
        self.take_out(&found, limit, now);
        let spared = format!(
            "It stays in use: {limit} of {} nodes may be taken out, and {} are",
            views.len(),
            self.slow_nodes().len()
        );
        let conclude = |(node, entry): (&NodeId, &mut Entry)| {
            let from = entry.diagnosis.state;
            entry.conclude(found.get(node), views.get(node), &spared, &config, now);
            let diagnosis = &entry.diagnosis;
            (diagnosis.state != from).then(|| Change { node: *node, from, diagnosis: diagnosis.clone() })
        };
        self.nodes.iter_mut().filter_map(conclude).collect()
    }

    /// How many of `pool` nodes may be out of use for being slow.
    fn most_slow(&self, pool: usize) -> usize {
        let part = self.config.largest_part;
        if pool < 2 || part == 0.0 {
            return 0;
        }
        ((part * pool as f64) as usize).clamp(1, pool - 1)
    }

    fn slow_nodes(&self) -> Vec<(NodeId, f64)> {
        let slow =
            |(n, e): (&NodeId, &Entry)| e.slow.as_ref().filter(|_| e.in_pool()).map(|s| (*n, s.excess));
        self.nodes.iter().filter_map(slow).collect()
    }

    /// The pool has become smaller: slow nodes are better than none.
    fn take_back(&mut self, limit: usize, now: Nanos) {
        let mut slow = self.slow_nodes();
        slow.sort_by(|a, b| b.1.total_cmp(&a.1));
        for (node, _) in slow.into_iter().skip(limit) {
            if let Some(entry) = self.nodes.get_mut(&node) {
                entry.readmit("it was slow, but too few other nodes are left".into(), now);
            }
        }
    }

    fn take_out(&mut self, found: &BTreeMap<NodeId, Evidence>, limit: usize, now: Nanos) {
        let mut candidates: Vec<(NodeId, f64, String)> = Vec::new();
        for (node, entry) in self.nodes.iter_mut().filter(|(_, e)| e.in_pool() && e.slow.is_none()) {
            let returned = entry.returned.take();
            match (returned, found.get(node)) {
                (Some(sentence), _) => candidates.push((*node, 1e9, sentence)),
                (None, Some(e)) if !e.past_only && entry.score >= self.config.sustain => {
                    candidates.push((*node, e.excess, format!("{}, for {}", e.sentence, ms(entry.score))));
                }
                _ => {}
            }
        }
        candidates.sort_by(|a, b| b.1.total_cmp(&a.1));
        let free = limit.saturating_sub(self.slow_nodes().len());
        for (node, excess, sentence) in candidates.into_iter().take(free) {
            if let Some(entry) = self.nodes.get_mut(&node) {
                entry.begin_spell(sentence, excess, &self.config, now);
            }
        }
    }
}

impl Entry {
    fn new(now: Nanos) -> Entry {
        Entry {
            watch: Watch::default(),
            heard: now,
            connected: true,
            drained: false,
            diagnosis: Diagnosis { state: State::Healthy, since: now, reason: "it has just joined".into() },
            lost: None,
            returned: None,
            score: 0.0,
            slow: None,
            relapses: 0,
            readmitted: None,
        }
    }

    fn in_pool(&self) -> bool {
        self.lost.is_none() && !self.drained
    }

    fn note_loss(&mut self, limit: f64, now: Nanos) {
        if now.since(self.heard).as_secs_f64() > limit {
            let (since, silent) = (self.heard, self.connected);
            self.lost.get_or_insert(Loss { since, silent });
            self.watch.clear();
            self.score = 0.0;
        } else if let Some(loss) = self.lost.take().filter(|l| l.silent) {
            let span = ms(self.heard.since(loss.since).as_secs_f64());
            match &mut self.slow {
                Some(spell) => spell.good = None,
                None => {
                    let sentence =
                        format!("nothing was heard of it for {span}, though its connection was there");
                    self.returned = Some(sentence);
                }
            }
        }
    }

    fn weigh(&mut self, found: Option<&Evidence>, view: &View, step: f64, config: &ScreenConfig, now: Nanos) {
        match found {
            Some(e) if !e.past_only => self.score = (self.score + step).min(config.sustain.max(step)),
            _ => self.score = (self.score - step).max(0.0),
        }
        match &mut self.slow {
            // Only a node that can be measured can show that it behaves.
            Some(spell) if found.is_some() || view.stall.is_none() => spell.good = None,
            Some(spell) => {
                let good = *spell.good.get_or_insert(now);
                let span = now.since(good).as_secs_f64();
                if span >= spell.hold {
                    self.readmit(format!("re-admitted after it was in line for {}", ms(span)), now);
                }
            }
            None if found.is_none() && self.score == 0.0 => self.watch.remember(view, config, now),
            None => {}
        }
    }

    fn begin_spell(&mut self, reason: String, excess: f64, config: &ScreenConfig, now: Nanos) {
        let soon = |at: Nanos| now.since(at).as_secs_f64() < config.forgive;
        self.relapses = match &self.readmitted {
            Some((at, _)) if soon(*at) => self.relapses.saturating_add(1),
            _ => 0,
        };
        let hold = (config.probation * 2f64.powi(self.relapses.min(30) as i32)).min(config.longest_probation);
        self.slow = Some(Spell { reason, excess, good: None, hold });
    }

    fn readmit(&mut self, why: String, now: Nanos) {
        self.slow = None;
        self.score = 0.0;
        self.readmitted = Some((now, why));
    }

    fn conclude(
        &mut self,
        found: Option<&Evidence>,
        view: Option<&View>,
        spared: &str,
        config: &ScreenConfig,
        now: Nanos,
    ) {
        let ago = |at: Nanos| now.since(at).as_secs_f64();
        let (state, reason) = if self.drained {
            (State::Drained, "it is being emptied on request".into())
        } else if let Some(loss) = &self.lost {
            let what = if loss.silent { "nothing has been heard of it" } else { "it has been disconnected" };
            (State::Lost, format!("{what} for {}", ms(ago(loss.since))))
        } else if let Some(spell) = &self.slow {
            let outlook = match spell.good {
                Some(good) => format!("In line for {} of {}", ms(ago(good)), ms(spell.hold)),
                None => format!("It is re-admitted after {} in line", ms(spell.hold)),
            };
            (State::Slow, format!("{}. {outlook}", spell.reason))
        } else if let Some(e) = found {
            let reason = match e.past_only {
                true => format!("{}. No other node can be compared with, so it stays in use", e.sentence),
                false if self.score >= config.sustain => format!("{}. {spared}", e.sentence),
                false => format!("{}, for {}", e.sentence, ms(self.score)),
            };
            (State::Suspect, reason)
        } else if self.score > 0.0 {
            (State::Suspect, "it was out of line a moment ago".into())
        } else {
            let (stall, storage) = view.map_or((None, None), |v| (v.stall, v.storage));
            let reason = match (&self.readmitted, stall, storage) {
                (Some((at, why)), ..) if ago(*at) < config.forgive => why.clone(),
                (_, Some(stall), Some(storage)) => {
                    format!("in line: probes wait {}, its storage takes {}", ms(stall), ms(storage))
                }
                _ => "in line, as far as is known".into(),
            };
            (State::Healthy, reason)
        };
        if state != self.diagnosis.state {
            self.diagnosis.since = now;
        }
        self.diagnosis.state = state;
        self.diagnosis.reason = reason;
    }
}
