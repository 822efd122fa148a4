//! Where the time of a job's requests went.

use crate::{Nanos, NodeId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Display;

/// How the part begins in words of which nobody is known to be the reason.
pub const SLOW_STORAGE: &str = "at the storage, which was slower than it can be";

/// A moment lasts so long.
pub const MOMENT: Nanos = Nanos::from_millis(100);

/// So many of them are told of, the last ones.
const MOST_MOMENTS: u64 = 1200;

/// In a good moment no more than this part of the time at the storage was due to a slow one.
const GOOD: f64 = 0.1;

/// How slow the storage was for a job in a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// Its number since 1970, by the wall clock.
    pub at: u64,
    /// Seconds that requests were at the storage.
    pub total: f64,
    /// Seconds of that which a slow storage is to blame for.
    pub slow: f64,
}

impl Moment {
    /// Whether the storage was as fast as it can be.
    pub fn is_good(&self) -> bool {
        self.slow < self.total * GOOD
    }

    /// From when to when it was.
    pub fn span(&self) -> (Nanos, Nanos) {
        (Nanos(self.at * MOMENT.0), Nanos((self.at + 1) * MOMENT.0))
    }

    /// The moments of requests that were at the storage from when to when, and for how many seconds of that a slow storage
    /// is to blame.
    pub fn of(spells: &[(Nanos, Nanos, f64)]) -> Vec<Moment> {
        let last = spells.iter().map(|s| s.1.0 / MOMENT.0).max().unwrap_or_default();
        let first = last.saturating_sub(MOST_MOMENTS - 1);
        let mut all: BTreeMap<u64, Moment> = BTreeMap::new();
        for (from, until, slow) in spells.iter().filter(|s| s.0 < s.1) {
            let whole = until.since(*from).as_secs_f64();
            for at in (from.0 / MOMENT.0).max(first)..=until.0 / MOMENT.0 {
                let moment = all.entry(at).or_insert(Moment { at, ..Moment::default() });
                let (begin, end) = moment.span();
                let here = end.min(*until).since(begin.max(*from)).as_secs_f64();
                moment.total += here;
                moment.slow += slow * here / whole;
            }
        }
        all.into_values().collect()
    }

    /// All of several I/O nodes.
    pub fn sum<'a>(all: impl IntoIterator<Item = &'a Moment>) -> Vec<Moment> {
        let mut sums: BTreeMap<u64, Moment> = BTreeMap::new();
        for one in all {
            let sum = sums.entry(one.at).or_insert(Moment { at: one.at, ..Moment::default() });
            sum.total += one.total;
            sum.slow += one.slow;
        }
        sums.into_values().collect()
    }
}

/// What an I/O node remembers of the moments in which the storage was slow for requests through others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// Of the seconds that a slow storage is to blame for, in how many.
    pub known: f64,
    /// By job.
    pub jobs: BTreeMap<String, Neighbour>,
}

/// What a job did through an I/O node while the storage was slow for another one, and while it was not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Neighbour {
    /// Bytes, while it was slow.
    pub bytes: f64,
    /// Seconds that the slow storage is to blame for, while this job was there.
    pub slow: f64,
    /// Part of the good moments in which it was there.
    pub good: f64,
}

/// Who was at the storage through another I/O node, while it was slow for the job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Elsewhere {
    /// Who.
    pub job: String,
    /// Through which I/O node.
    pub node: NodeId,
    /// Its part of the bytes that went through other I/O nodes meanwhile.
    pub share: f64,
    /// The part of that time for which it was there.
    pub slow: f64,
    /// The part of the better times.
    pub good: f64,
}

impl Elsewhere {
    /// Whether it was there in the better times just as well.
    pub fn says_nothing(&self) -> bool {
        self.good >= self.slow * 0.8
    }
}

/// Where the time of a job's requests went, in seconds, summed over its last requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobBlame {
    /// How many requests this is about.
    pub requests: u64,
    /// Over how long they came.
    pub span: f64,
    /// From arrival to the end, and what was lost before.
    pub total: f64,
    /// At the storage, as long as such requests take there by themselves.
    pub service: f64,
    /// At the storage beyond that, while its servers served nobody else that the I/O node knows of: slow, or at
    /// work for others.
    #[serde(default)]
    pub storage: f64,
    /// Held back by a limit.
    pub throttled: f64,
    /// Waiting while requests of this job were at the storage, before or at the same server; its own among
    /// them.
    pub behind: BTreeMap<String, f64>,
    /// Waiting while nothing was: the scheduler wanted it so.
    pub idle: f64,
    /// Lost by requests that were sent before, to a node or over a connection that is gone.
    #[serde(default)]
    pub failover: f64,
    /// What its requests took without limits, summed up, and what they would have taken through the scheduler
    /// that was asked about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what_if: Option<(f64, f64)>,
    /// How many data servers requests were seen to go to.
    #[serde(default)]
    pub servers: usize,
    /// When it was at the storage, and how slow that was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moments: Vec<Moment>,
    /// Who was there through other I/O nodes while it was slow, as far as those remember.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<Elsewhere>,
    /// Seconds of a slow storage of which other I/O nodes remember nothing.
    #[serde(default)]
    pub forgotten: f64,
}

/// A job of which less is to be said is left out.
const LEAST: f64 = 0.1;

impl JobBlame {
    /// The same job on another node.
    pub fn add(&mut self, other: &JobBlame) {
        self.requests += other.requests;
        self.span = self.span.max(other.span);
        self.total += other.total;
        self.service += other.service;
        self.storage += other.storage;
        self.throttled += other.throttled;
        self.idle += other.idle;
        self.failover += other.failover;
        self.servers = self.servers.max(other.servers);
        self.moments = Moment::sum(self.moments.iter().chain(&other.moments));
        for (job, seconds) in &other.behind {
            *self.behind.entry(job.clone()).or_default() += seconds;
        }
        self.what_if = match (self.what_if, other.what_if) {
            (Some(a), Some(b)) => Some((a.0 + b.0, a.1 + b.1)),
            (a, b) => a.or(b),
        };
    }

    /// What its requests would have taken under `other`, each, in words, if that was asked.
    pub fn foreseen(&self, other: &dyn Display) -> Option<String> {
        let (now, then) = self.what_if?;
        let each = |seconds: f64| seconds / self.requests.max(1) as f64 * 1e3;
        let change = if now > 0.0 { (then / now - 1.0) * 100.0 } else { 0.0 };
        let (now, then, held) = (each(now), each(then), each(self.throttled));
        let mut said = format!("under {other}: {then:.3} ms instead of {now:.3} ms ({change:+.0} %)");
        if self.throttled > 0.0 {
            said.push_str(&format!("; the {held:.3} ms that a limit holds each back are left out of both"));
        }
        // What its own requests wait for each other there is not told apart from what they take.
        if self.servers > 1 {
            said.push_str(&format!(
                "; with {} data servers this is rough (docs/STEER.md says how rough)",
                self.servers
            ));
        }
        Some(said)
    }

    /// Other I/O nodes were asked who was there: of each, what it was asked about (in seconds of a slow storage) and its answer.
    pub fn beside(&mut self, answers: &[(NodeId, f64, Beside)]) {
        let bytes: f64 = answers.iter().flat_map(|(_, _, b)| b.jobs.values()).map(|n| n.bytes).sum();
        let of = |(node, asked, answer): &(NodeId, f64, Beside)| {
            let (node, asked) = (*node, asked.max(1e-12));
            let all = answer.jobs.clone().into_iter();
            all.map(move |(job, n)| Elsewhere {
                job,
                node,
                share: n.bytes / bytes.max(1.0),
                slow: n.slow / asked,
                good: n.good,
            })
            .collect::<Vec<_>>()
        };
        self.elsewhere =
            answers.iter().flat_map(of).filter(|e| e.share >= LEAST && e.slow >= LEAST).collect();
        self.elsewhere.sort_by(|a, b| b.share.total_cmp(&a.share));
        self.forgotten = answers.iter().map(|(_, asked, b)| asked - b.known).fold(0.0, f64::max);
    }

    /// What is known of others while the storage was slow, in words.
    pub fn meanwhile(&self, job: &str) -> Vec<String> {
        let of = |e: &Elsewhere| {
            let who = if e.job == job { "its own requests".to_owned() } else { format!("job {}", e.job) };
            let [share, slow, good] = [e.share, e.slow, e.good].map(|part| part * 100.0);
            let same = if e.says_nothing() { ", so that it need not be the reason" } else { "" };
            format!(
                "while {who} moved {share:.0} % of what went through other I/O nodes (I/O node {}), there in {slow:.0} % of \
                 that time, and in {good:.0} % of the better times{same}",
                e.node
            )
        };
        let mut said: Vec<String> = self.elsewhere.iter().map(of).collect();
        if self.forgotten > self.storage * LEAST {
            let part = self.forgotten / self.storage * 100.0;
            said.push(format!("other I/O nodes do not remember {:.0} % of that time", part.min(100.0)));
        }
        said
    }

    /// Its parts in words and as shares of the whole, the largest first; those of nothing are left out.
    pub fn parts(&self, job: &str) -> Vec<(f64, String)> {
        let mut parts: Vec<(f64, String)> = vec![
            (self.service, "at the storage, for its own requests".to_owned()),
            (self.storage, format!("{SLOW_STORAGE}, or at work for others elsewhere")),
            (self.throttled, "held back by a limit".to_owned()),
            (self.idle, "waiting while nothing was at the storage: its scheduler lets it wait".to_owned()),
            (self.failover, "lost to an I/O node or a connection that was gone".to_owned()),
        ];
        for (other, seconds) in &self.behind {
            let who = if other == job { "its own requests".to_owned() } else { format!("job {other}") };
            parts.push((*seconds, format!("behind {who}")));
        }
        parts.retain(|(seconds, _)| *seconds > 0.0);
        parts.sort_by(|a, b| b.0.total_cmp(&a.0));
        parts.into_iter().map(|(seconds, what)| (seconds / self.total.max(1e-12), what)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_have_what_was_slow_in_them() {
        let ms = Nanos::from_millis;
        assert_eq!(Moment::of(&[]), []);
        // 50 ms in the first, 100 in the second, 50 in the third; half of it slow.
        let all = Moment::of(&[(ms(1050), ms(1250), 0.1), (ms(1210), ms(1220), 0.0)]);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert_eq!(all.iter().map(|m| m.at).collect::<Vec<_>>(), [10, 11, 12]);
        assert!(near(all[0].total, 0.05) && near(all[0].slow, 0.025) && near(all[1].slow, 0.05), "{all:?}");
        assert!(near(all[2].total, 0.06) && near(all[2].slow, 0.025) && !all[2].is_good(), "{all:?}");
        // However long it took, only the last moments are told of.
        assert_eq!(Moment::of(&[(ms(0), ms(1_000_000_000), 1.0)]).len(), 1200);
        let sum = Moment::sum(all.iter().chain(&all));
        assert!(sum.len() == 3 && near(sum[1].slow, 0.1), "{sum:?}");
    }

    #[test]
    fn who_was_there_meanwhile_is_named_with_what_speaks_against_it() {
        let neighbour = |bytes, slow, good| Neighbour { bytes, slow, good };
        let mut b = JobBlame { requests: 9, total: 10.0, storage: 4.0, ..JobBlame::default() };
        let there = Beside {
            known: 4.0,
            jobs: [("loud", neighbour(9e6, 3.9, 0.02)), ("always", neighbour(3e6, 4.0, 1.0))]
                .map(|(job, n)| (job.to_owned(), n))
                .into(),
        };
        let other = Beside { known: 2.0, jobs: [("small".to_owned(), neighbour(1e3, 4.0, 0.0))].into() };
        b.beside(&[(NodeId(2), 4.0, there), (NodeId(3), 4.0, other)]);
        let said = b.meanwhile("victim");
        assert_eq!(
            said,
            [
                "while job loud moved 75 % of what went through other I/O nodes (I/O node 2), there in 98 % of that time, \
                 and in 2 % of the better times",
                "while job always moved 25 % of what went through other I/O nodes (I/O node 2), there in 100 % of that \
                 time, and in 100 % of the better times, so that it need not be the reason",
                "other I/O nodes do not remember 50 % of that time",
            ]
        );
        assert_eq!(JobBlame::default().meanwhile("victim"), Vec::<String>::new());
    }

    #[test]
    fn what_is_foreseen_says_what_it_leaves_out() {
        let asked =
            JobBlame { requests: 10, total: 0.08, what_if: Some((0.08, 0.02)), ..JobBlame::default() };
        let said = asked.foreseen(&"sfq");
        assert_eq!(said.as_deref(), Some("under sfq: 2.000 ms instead of 8.000 ms (-75 %)"));
        let limited = JobBlame { total: 3.28, throttled: 3.2, ..asked };
        let said = limited.foreseen(&"sfq").unwrap_or_default();
        assert!(
            said.ends_with("; the 320.000 ms that a limit holds each back are left out of both"),
            "{said}"
        );
        let wide = JobBlame { servers: 4, throttled: 0.0, ..limited };
        let said = wide.foreseen(&"sfq").unwrap_or_default();
        assert!(
            said.ends_with("; with 4 data servers this is rough (docs/STEER.md says how rough)"),
            "{said}"
        );
        assert_eq!(JobBlame::default().foreseen(&"sfq"), None);
    }
}
