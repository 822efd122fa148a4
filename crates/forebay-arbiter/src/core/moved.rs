//! What each job has moved, kept for the next arbiter: I/O nodes only tell what they do from one report to
//! the next, so what is not kept here would be forgotten with the arbiter.

use super::{Action, Core};
use crate::store::{Change, StoredJob};
use forebay_types::{Nanos, NodeId};
use std::collections::BTreeMap;

/// The name among the learned entries.
const KEY: &str = "moved";

/// Of so many jobs, those that moved most: it is one entry, and a store may refuse one that is too large.
const MOST: usize = 1000;

/// How often it is kept, while it grows.
const EVERY: Nanos = Nanos::from_secs(5);

/// As it was last kept: of each job when it began (another of the same name is another) and the bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Moved {
    kept: BTreeMap<String, (u64, u64)>,
    at: Nanos,
}

impl Moved {
    /// What is among what was learned. An entry that cannot be read is as if it had not been made.
    pub(super) fn restore(learned: &BTreeMap<String, serde_json::Value>) -> Moved {
        let kept = learned.get(KEY).and_then(|v| serde_json::from_value(v.clone()).ok());
        Moved { kept: kept.unwrap_or_default(), at: Nanos::ZERO }
    }

    /// What an earlier arbiter knew of a job.
    pub(super) fn of(&self, job: &StoredJob) -> u64 {
        let known = self.kept.get(&job.request.id).filter(|(since, _)| *since == job.since_unix_ms);
        known.map_or(0, |(_, bytes)| *bytes)
    }
}

impl Core {
    /// Keeps what the jobs have moved, now and then.
    pub(super) fn keep_moved(&mut self, now: Nanos) {
        if now.since(self.moved.at) >= EVERY {
            self.keep_moved_now(now);
        }
    }

    /// The arbiter ends: keeps it now.
    pub fn stopping(&mut self, now: Nanos) {
        self.keep_moved_now(now);
        self.keep_peaks_now(now);
    }

    fn keep_moved_now(&mut self, now: Nanos) {
        self.moved.at = now;
        let all = self.jobs.iter().map(|(id, j)| (j.activity.moved(), id, j.stored.since_unix_ms));
        let mut all: Vec<_> = all.filter(|(bytes, ..)| *bytes > 0).collect();
        all.sort_unstable_by_key(|(bytes, ..)| std::cmp::Reverse(*bytes));
        let all: BTreeMap<String, (u64, u64)> =
            all.into_iter().take(MOST).map(|(bytes, id, since)| (id.clone(), (since, bytes))).collect();
        if all != self.moved.kept {
            let value = serde_json::to_value(&all).ok();
            self.actions.push(Action::Persist(Change::Learned { key: KEY.to_owned(), value }));
            self.moved.kept = all;
        }
    }

    /// A node is heard no longer: nobody knows what it does for its jobs since its last report.
    pub(super) fn unheard(&mut self, node: NodeId) {
        for job in self.jobs.values_mut().filter(|j| j.nodes().contains(&node)) {
            job.activity.uncounted = true;
        }
    }
}
