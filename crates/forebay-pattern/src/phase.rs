//! I/O phases: when a flow works in bursts, how long they last and whether they come at a beat.

use forebay_types::{Nanos, stats};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Bursts that are remembered.
const REMEMBER: usize = 64;
/// A beat: this share of the distances between bursts lies within [`TOLERANCE`] of the median.
const AGREE: f64 = 0.75;
const TOLERANCE: f64 = 0.15;
/// Distances needed to speak of a beat.
const LEAST_DISTANCES: usize = 3;

/// What is known of a flow's phases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseSummary {
    /// Finished bursts seen so far.
    pub bursts: u64,
    /// Whether a burst is going on.
    pub active: bool,
    /// Median length of the remembered bursts.
    pub burst_length: Option<Nanos>,
    /// Median bytes of the remembered bursts.
    pub burst_bytes: Option<u64>,
    /// Time from burst to burst, if they come at a beat.
    pub period: Option<Nanos>,
    /// When the next burst is due, if they come at a beat.
    pub next: Option<Nanos>,
}

#[derive(Clone, Copy, Debug)]
struct Burst {
    start: Nanos,
    end: Nanos,
    bytes: u64,
}

/// Follows the phases of one flow, interval by interval.
#[derive(Clone, Debug, Default)]
pub struct Phases {
    finished: VecDeque<Burst>,
    total: u64,
    current: Option<Burst>,
    quiet: u32,
    peak: f64,
}

/// An interval belongs to a burst if it moves at least this share of the peak rate…
const LOUD: f64 = 0.02;
/// …and a burst ends after so many intervals that do not, so that a hiccup does not cut it in two.
const QUIET_INTERVALS: u32 = 2;

impl Phases {
    /// A flow of which nothing is known.
    pub fn new() -> Phases {
        Phases::default()
    }

    /// The flow moved `bytes` from `start` to `end`. Intervals come in order; leave none out, or
    /// what is left out counts as part of the silence before.
    pub fn interval(&mut self, start: Nanos, end: Nanos, bytes: u64) {
        let span = end.since(start).as_secs_f64();
        if span <= 0.0 {
            return;
        }
        let rate = bytes as f64 / span;
        self.peak = self.peak.max(rate);
        if bytes > 0 && rate >= self.peak * LOUD {
            let burst = self.current.get_or_insert(Burst { start, end, bytes: 0 });
            burst.end = end;
            burst.bytes = burst.bytes.saturating_add(bytes);
            self.quiet = 0;
        } else if self.current.is_some() {
            self.quiet += 1;
            if self.quiet >= QUIET_INTERVALS {
                self.finish();
            }
        }
    }

    fn finish(&mut self) {
        if let Some(burst) = self.current.take() {
            if self.finished.len() == REMEMBER {
                self.finished.pop_front();
            }
            self.finished.push_back(burst);
            self.total += 1;
        }
    }

    /// What is known now.
    pub fn summary(&self) -> PhaseSummary {
        let starts: Vec<u64> = self.finished.iter().chain(&self.current).map(|b| b.start.0).collect();
        let distances: Vec<u64> = starts.windows(2).map(|w| w[1] - w[0]).collect();
        let period = beat(distances);
        PhaseSummary {
            bursts: self.total,
            active: self.current.is_some(),
            burst_length: median(self.finished.iter().map(|b| b.end.since(b.start).0).collect()).map(Nanos),
            burst_bytes: median(self.finished.iter().map(|b| b.bytes).collect()),
            period: period.map(Nanos),
            next: period.zip(starts.last()).map(|(p, s)| Nanos(s.saturating_add(p))),
        }
    }
}

fn beat(distances: Vec<u64>) -> Option<u64> {
    if distances.len() < LEAST_DISTANCES {
        return None;
    }
    let middle = median(distances.clone())?;
    let near = |d: &&u64| d.abs_diff(middle) as f64 <= TOLERANCE * middle as f64;
    let agreeing = distances.iter().filter(near).count();
    (agreeing as f64 >= AGREE * distances.len() as f64).then_some(middle)
}

fn median(values: Vec<u64>) -> Option<u64> {
    let values: Vec<f64> = values.into_iter().map(|v| v as f64).collect();
    Some(stats::median(&values)).filter(|m| m.is_finite()).map(|m| m as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(seconds: &[u64]) -> PhaseSummary {
        let mut phases = Phases::new();
        for (i, &bytes) in seconds.iter().enumerate() {
            phases.interval(Nanos::from_secs(i as u64), Nanos::from_secs(i as u64 + 1), bytes);
        }
        phases.summary()
    }

    #[test]
    fn a_checkpoint_every_ten_seconds() {
        let second = |i: u64| if i % 10 < 3 { 1_000_000 } else { 0 };
        let s = run(&(0..60).map(second).collect::<Vec<_>>());
        assert_eq!(s.period, Some(Nanos::from_secs(10)));
        assert_eq!(s.burst_length, Some(Nanos::from_secs(3)));
        assert_eq!(s.burst_bytes, Some(3_000_000));
        assert_eq!(s.next, Some(Nanos::from_secs(60)));
        assert_eq!((s.bursts, s.active), (6, false));
    }

    #[test]
    fn a_hiccup_and_a_trickle_do_not_matter() {
        let second = |i: u64| match i % 10 {
            0 | 1 | 3 => 1_000_000,
            2 => 0,
            _ => 100,
        };
        let s = run(&(0..60).map(second).collect::<Vec<_>>());
        assert_eq!(s.period, Some(Nanos::from_secs(10)));
        assert_eq!(s.burst_length, Some(Nanos::from_secs(4)));
    }

    #[test]
    fn bursts_without_a_beat() {
        let mut seconds = vec![0; 100];
        for start in [0, 5, 25, 33, 70, 76] {
            seconds[start] = 1_000_000;
        }
        let s = run(&seconds);
        assert_eq!(s.period, None);
        assert_eq!(s.bursts, 6);
    }

    #[test]
    fn steady_work_is_one_burst() {
        let s = run(&[500; 50]);
        assert_eq!((s.bursts, s.active, s.period), (0, true, None));
    }
}
