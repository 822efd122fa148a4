//! `sw`: by time window of arrival, then by application, then by arrival. Requests of one application
//! that come close together are served together.

use crate::aggregate::{Limits, Run};
use crate::{Algorithm, Batch, Request, Scheduler, SchedulerConfig};
use forebay_types::{FlowId, Nanos};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// The parameters of `sw`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SwConfig {
    /// Requests that arrive within one window are sorted by application.
    #[serde(with = "forebay_types::span")]
    pub window: Nanos,
}

impl Default for SwConfig {
    fn default() -> SwConfig {
        SwConfig { window: Nanos::from_millis(1) }
    }
}

#[derive(Debug)]
struct Window {
    index: u64,
    flows: BTreeMap<FlowId, Run>,
}

/// Serves window by window, application by application.
#[derive(Debug)]
pub struct Sw {
    window: Nanos,
    /// The windows that hold something, oldest first.
    windows: VecDeque<Window>,
    len: usize,
    merge: Limits,
}

impl Sw {
    /// An empty one.
    pub fn new(config: &SwConfig, merge: Limits) -> Sw {
        Sw { window: Nanos(config.window.0.max(1)), windows: VecDeque::new(), len: 0, merge }
    }

    /// The window a request belongs to, made if need be.
    fn window_of(&mut self, arrival: Nanos) -> &mut Window {
        let index = arrival.0 / self.window.0;
        let at = self.windows.partition_point(|w| w.index < index);
        if self.windows.get(at).is_none_or(|w| w.index != index) {
            self.windows.insert(at, Window { index, flows: BTreeMap::new() });
        }
        &mut self.windows[at]
    }
}

impl Scheduler for Sw {
    fn enqueue(&mut self, _now: Nanos, r: Request) {
        self.window_of(r.arrival).flows.entry(r.flow).or_default().push(r);
        self.len += 1;
    }

    fn dispatch(&mut self, _now: Nanos) -> Option<Batch> {
        let window = self.windows.front_mut()?;
        let mut run = window.flows.first_entry()?;
        let batch = run.get_mut().pop(&self.merge)?;
        self.len -= batch.requests().len();
        if run.get().is_empty() {
            run.remove();
        }
        if window.flows.is_empty() {
            self.windows.pop_front();
        }
        Some(batch)
    }

    fn len(&self) -> usize {
        self.len
    }

    /// A new window length would sort what waits anew, so only merging changes in place.
    fn retune(&mut self, config: &SchedulerConfig) -> bool {
        let same = matches!(&config.algorithm, Algorithm::Sw(sw) if sw.window == self.window);
        if same {
            self.merge = config.merge;
        }
        same
    }

    fn drain(&mut self) -> Vec<Request> {
        let windows = std::mem::take(&mut self.windows);
        let runs = windows.into_iter().flat_map(|w| w.flows.into_values());
        let mut all: Vec<Request> = runs.flat_map(|mut run| run.drain()).collect();
        self.len = 0;
        all.sort_by_key(|r| r.arrival);
        all
    }
}
